//! The command lines that the dashboard shows are understood here.
//!
//! `web/src/commands.ts` makes all of them, and its test keeps `web/commands.json` equal to what it makes.

use clap::{ArgMatches, Command};
use jobtree_protocol::JobQuery;
use serde::Deserialize;

use crate::{args, command, filter};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shown {
    line: String,
    /// The meaning of the filter of `ls`.
    query: Option<JobQuery>,
}

/// Splits a line as a POSIX shell does. The lines have single quotes, and a backslash before one, and nothing else that is special.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let word = words.last_mut().expect("there is one");
        match character {
            '\'' => quoted = !quoted,
            '\\' if !quoted => word.extend(characters.next()),
            ' ' if !quoted => words.push(String::new()),
            '"' | '$' | '`' | '<' | '>' | '|' | '&' | ';' | '(' | '*' | '?' if !quoted => {
                panic!("{line}: a shell does not take {character} for itself")
            }
            other => word.push(other),
        }
    }
    assert!(!quoted, "{line}: a quote is open");
    words
}

/// The subcommand that was asked for, with all its names, and its arguments.
fn innermost(matches: &ArgMatches) -> (String, &ArgMatches) {
    match matches.subcommand() {
        None => (String::new(), matches),
        Some((name, below)) => {
            let (rest, arguments) = innermost(below);
            (format!("{name} {rest}").trim().to_owned(), arguments)
        }
    }
}

#[test]
fn the_dashboard_shows_commands_that_exist_and_mean_what_it_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/commands.json");
    let shown = std::fs::read_to_string(path).expect("the list of commands");
    let shown: Vec<Shown> = serde_json::from_str(&shown).expect("a list");
    assert!(shown.len() > 20, "the list has {} lines", shown.len());
    for Shown { line, query } in shown {
        let matches = Command::try_get_matches_from(command(), words(&line));
        let matches = matches.unwrap_or_else(|error| panic!("{line}\n{error}"));
        let (name, arguments) = innermost(&matches);
        assert_eq!(query.is_some(), name == "ls", "{line}");
        if let Some(query) = query {
            let found = filter::parse(&args::all(arguments, "filter"));
            assert_eq!(found.as_ref(), Ok(&query), "{line}");
        }
    }
}
