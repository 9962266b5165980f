//! Passwords from a file, as libpq reads them: so that no password stands in a connection string, which others may see in
//! a process list or a log.
//!
//! The file is the one that `PGPASSFILE` names, else `.pgpass` in the home folder. A line is
//! `host:port:database:user:password`; `*` stands for anything, a backslash before `:` or `\` for that character, and the
//! first line that fits counts. A file that others can read is not used, as in libpq.

use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::error::OpenError;

/// Takes the password from the file, if the connection string has none and the file has one.
pub(super) fn fill_in(config: &mut Config) -> Result<(), OpenError> {
    if config.get_password().is_some() {
        return Ok(());
    }
    let Some(path) = place() else { return Ok(()) };
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(());
    };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::metadata(&path)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(OpenError::Database(format!(
                "{} can be read by others, so it is not used; run 'chmod 600' on it",
                path.display()
            )));
        }
    }
    if let Some(password) = find(&text, &wanted(config)) {
        config.password(password);
    }
    Ok(())
}

fn place() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("PGPASSFILE") {
        return Some(path.into());
    }
    std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".pgpass"))
}

/// Host, port, database and user of the connection. A socket counts as `localhost`.
fn wanted(config: &Config) -> [String; 4] {
    let host = match config.get_hosts().first() {
        Some(Host::Tcp(name)) => name.clone(),
        _ => "localhost".to_owned(),
    };
    let port = config.get_ports().first().copied().unwrap_or(5432);
    let user = config.get_user().unwrap_or_default().to_owned();
    let database = config.get_dbname().map_or(user.clone(), str::to_owned);
    [host, port.to_string(), database, user]
}

fn find(text: &str, wanted: &[String; 4]) -> Option<String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(fields).find_map(|fields| {
        let (password, names) = fields.split_last()?;
        let fits = names.len() == 4
            && names
                .iter()
                .zip(wanted)
                .all(|(name, wanted)| name == "*" || name == wanted);
        fits.then(|| password.clone())
    })
}

/// The parts between colons, of which a password is the fifth.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let field = fields.last_mut().expect("there is one at least");
        match character {
            '\\' => field.extend(characters.next()),
            ':' => fields.push(String::new()),
            other => field.push(other),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(config: &str) -> [String; 4] {
        wanted(&config.parse().expect("a connection string"))
    }

    #[test]
    fn the_first_line_that_fits_counts() {
        let text =
            "# a comment\ndb:5432:jobs:other:no\ndb:*:jobs:jobtree:a\\:b\\\\c\n*:*:*:*:rest\n";
        let config = "host=db user=jobtree dbname=jobs";
        assert_eq!(find(text, &of(config)), Some("a:b\\c".to_owned()));
        let config = "host=elsewhere port=6000 user=jobtree";
        assert_eq!(find(text, &of(config)), Some("rest".to_owned()));
        assert_eq!(find("db:1:jobs:jobtree:x", &of(config)), None);
        assert_eq!(find("nonsense", &of(config)), None);
    }

    #[test]
    fn a_socket_is_localhost_and_the_database_is_the_users() {
        let wanted = of("host=/run/postgresql user=jobtree");
        assert_eq!(wanted, ["localhost", "5432", "jobtree", "jobtree"]);
    }
}
