//! The subcommands. A new one needs a module here and a line in [`ALL`].

mod bench;

use clap::{ArgMatches, Command};

use crate::error::CliError;

/// One subcommand.
pub struct Subcommand {
    /// What one types.
    pub name: &'static str,
    /// Adds its arguments and help.
    pub define: fn(Command) -> Command,
    /// Does it.
    pub run: fn(&ArgMatches) -> Result<(), CliError>,
}

/// All there are.
pub const ALL: &[Subcommand] = &[Subcommand {
    name: "bench",
    define: bench::define,
    run: bench::run,
}];
