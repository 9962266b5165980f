//! How things are printed: tables for people, JSON with a version for programs, and notes for whoever watches.
//!
//! A document is one object with `"version": 1` in front. A stream has such an object on each line. What an object holds
//! beside that is what the HTTP interface says, under the same names.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use jobtree_protocol::JobState;
use serde::Serialize;

use crate::error::CliError;

/// The version of what is printed as JSON. A change that breaks readers counts it up.
pub const VERSION: u32 = 1;

/// An object behind its version.
#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u32,
    #[serde(flatten)]
    body: &'a T,
}

#[derive(Clone)]
pub struct Out {
    /// For programs.
    pub json: bool,
    quiet: bool,
    color: bool,
}

/// Where a column's text stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

impl Out {
    pub fn new(json: bool, quiet: bool, no_color: bool) -> Self {
        let plain = no_color
            || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb")
            || !io::stdout().is_terminal();
        Out {
            json,
            quiet,
            color: !plain,
        }
    }

    /// One document. `T` must be written as an object.
    pub fn document(&self, body: &impl Serialize) -> Result<(), CliError> {
        let version = VERSION;
        let text =
            serde_json::to_string_pretty(&Versioned { version, body }).map_err(io::Error::from)?;
        self.print(&text)
    }

    /// One line of a stream.
    pub fn line(&self, body: &impl Serialize) -> Result<(), CliError> {
        let version = VERSION;
        let text = serde_json::to_string(&Versioned { version, body }).map_err(io::Error::from)?;
        self.print(&text)
    }

    /// A result as text, with a newline behind it.
    pub fn print(&self, text: &str) -> Result<(), CliError> {
        let mut output = io::stdout().lock();
        writeln!(output, "{text}")?;
        Ok(output.flush()?)
    }

    /// A result as it is.
    pub fn raw(&self, text: &str) -> Result<(), CliError> {
        let mut output = io::stdout().lock();
        output.write_all(text.as_bytes())?;
        Ok(output.flush()?)
    }

    /// Something for whoever watches.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            // Whoever cannot be told is not watching.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// Prints an error, with -q, too.
    pub fn warn(&self, text: &str) {
        // Whoever cannot be told is not watching.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Rows under their titles. An empty table is nothing at all.
    pub fn table(&self, columns: &[(&str, Align)], rows: &[Vec<String>]) -> Result<(), CliError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.raw(&table(columns, rows))
    }

    /// A state, in its colour where there are colours.
    pub fn state(&self, state: JobState) -> String {
        let code = state.ansi_colour().to_string();
        self.painted(&code, state.as_str()).into_owned()
    }

    fn painted<'a>(&self, code: &str, text: &'a str) -> Cow<'a, str> {
        if self.color {
            format!("\x1b[{code}m{text}\x1b[0m").into()
        } else {
            text.into()
        }
    }
}

/// Columns as wide as their widest cell, two spaces apart, and nothing at the end of a line.
pub fn table(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = columns.iter().map(|(title, _)| (*title).into()).collect();
    let all = || std::iter::once(&titles).chain(rows);
    let widths: Vec<usize> = (0..columns.len())
        .map(|column| all().map(|row| width(&row[column])).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in all() {
        let mut line = String::new();
        for ((cell, &wide), (_, align)) in row.iter().zip(&widths).zip(columns) {
            let space = " ".repeat(wide - width(cell));
            match align {
                Align::Left => line.extend([cell, space.as_str(), "  "]),
                Align::Right => line.extend([space.as_str(), cell, "  "]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Characters that are seen: what switches a colour is not.
fn width(cell: &str) -> usize {
    let mut count = 0;
    let mut in_escape = false;
    for character in cell.chars() {
        match (in_escape, character) {
            (false, '\x1b') => in_escape = true,
            (true, 'm') => in_escape = false,
            (true, _) => {}
            (false, _) => count += 1,
        }
    }
    count
}

/// A number of things: `1 job`, `2 jobs`.
pub fn counted(count: u64, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// A text that fits into a cell: one line, and not too long.
pub fn cell(text: &str, most: usize) -> String {
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    if line.chars().count() <= most {
        return line;
    }
    line.chars()
        .take(most.saturating_sub(1))
        .chain(['…'])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let columns = [
            ("id", Align::Left),
            ("n", Align::Right),
            ("rest", Align::Left),
        ];
        let rows = vec![
            vec!["a".into(), "100".into(), "x".into()],
            vec!["\x1b[1mbcd\x1b[0m".into(), "7".into(), String::new()],
        ];
        let expected = "id     n  rest\na    100  x\n\x1b[1mbcd\x1b[0m    7\n";
        assert_eq!(table(&columns, &rows), expected);
    }

    #[test]
    fn one_thing_has_no_plural() {
        let told = [0, 1, 2].map(|count| counted(count, "job"));
        assert_eq!(told, ["0 jobs", "1 job", "2 jobs"]);
    }

    #[test]
    fn a_cell_is_one_short_line() {
        assert_eq!(cell("a\nb", 9), "a b");
        assert_eq!(cell("abcdef", 4), "abc…");
    }
}
