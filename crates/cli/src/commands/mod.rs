//! The subcommands. A new one needs a module here and a line in [`ALL`].

mod audit;
mod backup;
mod bench;
mod cancel;
mod clean;
mod completions;
mod config;
mod dashboard;
mod doctor;
mod edit;
mod explain;
mod kick;
mod lease;
mod logs;
mod ls;
mod man;
mod move_store;
mod pause;
mod policy;
mod redrive;
mod resume;
mod retry;
mod run;
mod schedule;
mod serve;
mod show;
mod simulate;
mod stats;
mod status;
mod submit;
mod token;
mod top;
mod trace;
mod wait;
mod watch;
mod webhook;
mod work;
mod workers;

use clap::{ArgMatches, Command};

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// One subcommand.
pub struct Subcommand {
    /// What one types.
    pub name: &'static str,
    /// Adds its arguments and help.
    pub define: fn(Command) -> Command,
    /// Does it.
    pub run: fn(&ArgMatches, &Context) -> Result<Exit, CliError>,
}

macro_rules! all {
    ($($name:literal => $module:ident,)*) => {
        /// All there are, as the help shows them.
        pub const ALL: &[Subcommand] = &[$(Subcommand {
            name: $name,
            define: $module::define,
            run: $module::run,
        }),*];
    };
}

all! {
    "serve" => serve,
    "run" => run,
    "submit" => submit,
    "status" => status,
    "ls" => ls,
    "show" => show,
    "explain" => explain,
    "stats" => stats,
    "logs" => logs,
    "trace" => trace,
    "watch" => watch,
    "wait" => wait,
    "cancel" => cancel,
    "edit" => edit,
    "retry" => retry,
    "redrive" => redrive,
    "pause" => pause,
    "resume" => resume,
    "kick" => kick,
    "top" => top,
    "dashboard" => dashboard,
    "schedule" => schedule,
    "lease" => lease,
    "work" => work,
    "workers" => workers,
    "token" => token,
    "webhook" => webhook,
    "policy" => policy,
    "simulate" => simulate,
    "clean" => clean,
    "backup" => backup,
    "move-store" => move_store,
    "audit" => audit,
    "config" => config,
    "doctor" => doctor,
    "bench" => bench,
    "completions" => completions,
    "man" => man,
}
