//! Opening a store without a daemon, for commands that look after it.

use std::path::Path;

use jobtree_store::{PostgresOptions, SqliteOptions, Store};

use crate::error::CliError;

/// What a store is called: a file, a folder with `jobs.db` in it, or a database's URL.
pub const WHERE: &str = "A file, a data directory, or postgres://…";

/// Opens one. With `make`, a file that is missing is made.
///
/// # Errors
/// If it is not there, in use, or cannot be read.
pub fn open(place: &str, make: bool) -> Result<Store, CliError> {
    if place.starts_with("postgres://") || place.starts_with("postgresql://") {
        let opened = Store::connect(&PostgresOptions::new(place));
        // The URL may hold a password.
        return opened.map_err(|error| CliError::failed(format!("the database: {error}")));
    }
    let mut path = Path::new(place).to_owned();
    if path.is_dir() {
        path.push("jobs.db");
    }
    if !make && !path.exists() {
        return Err(CliError::usage(format!(
            "there is no store in {}",
            path.display()
        )));
    }
    let opened = Store::open(&SqliteOptions::new(&path));
    opened.map_err(|error| {
        CliError::failed(format!("{}: {error}", path.display()))
            .hint("a store has one user: stop the daemon, or use a copy made by `jobtree backup`")
    })
}
