//! What commands print, compared with files. `JOBTREE_SNAPSHOTS=write` writes the files instead, for somebody to read the
//! difference.
//!
//! What differs from run to run is replaced: ids (numbered in the order in which they appear; also their ends), times, lengths of time,
//! addresses and folders. Several spaces count as two, since columns are as wide as what stands in them.

use std::collections::HashMap;
use std::path::PathBuf;

use super::Ran;

/// Several commands, one below the other.
pub struct Story {
    name: &'static str,
    text: String,
    replaced: Vec<(String, &'static str)>,
    exact: bool,
}

impl Story {
    pub fn new(name: &'static str) -> Self {
        Story {
            name,
            text: String::new(),
            replaced: Vec::new(),
            exact: false,
        }
    }

    /// Nothing in it differs from run to run.
    pub fn exactly(mut self) -> Self {
        self.exact = true;
        self
    }

    /// A text that is another each time: a folder, a port.
    pub fn replacing(mut self, text: impl Into<String>, by: &'static str) -> Self {
        self.replaced.push((text.into(), by));
        self
    }

    pub fn add(&mut self, ran: &Ran) {
        let code = ran.code.map_or("none".to_owned(), |code| code.to_string());
        self.text += &format!("$ jobtree {}\n", ran.line);
        for (name, text) in [("", &ran.stdout), ("2> ", &ran.stderr)] {
            for line in text.lines() {
                self.text += &format!("{name}{line}\n");
            }
        }
        self.text += &format!("[{code}]\n\n");
    }

    /// Compares all of it with the file.
    #[track_caller]
    pub fn check(self) {
        let mut text = self.text;
        for (from, to) in &self.replaced {
            text = text.replace(from, to);
        }
        if !self.exact {
            text = normalized(&text);
        }
        let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/snapshots")
            .join(format!("{}.txt", self.name));
        if std::env::var_os("JOBTREE_SNAPSHOTS").is_some_and(|what| what == "write") {
            std::fs::write(file, text).expect("the file is written");
            return;
        }
        let expected = std::fs::read_to_string(&file).unwrap_or_default();
        if text == expected {
            return;
        }
        let differs = text.lines().zip(expected.lines()).position(|(a, b)| a != b);
        let line = differs.unwrap_or_else(|| text.lines().count().min(expected.lines().count()));
        let show = |text: &str| {
            text.lines()
                .skip(line.saturating_sub(3))
                .take(8)
                .collect::<Vec<_>>()
                .join("\n")
        };
        panic!(
            "{} differs from line {} on.\nIt is:\n{}\n\nIt was:\n{}\n\nIf it is right now: JOBTREE_SNAPSHOTS=write",
            file.display(),
            line + 1,
            show(&text),
            show(&expected),
        );
    }
}

/// The text without what differs from run to run.
pub fn normalized(text: &str) -> String {
    let mut ids = HashMap::new();
    let lines = text.lines().map(|line| {
        let mut shown = String::new();
        let mut rest = line;
        let mut names_process = false;
        while !rest.is_empty() {
            let is_space = rest.starts_with(' ');
            let end = rest.find(|c: char| (c == ' ') != is_space);
            let (word, behind) = rest.split_at(end.unwrap_or(rest.len()));
            rest = behind;
            match is_space {
                // How far a line is set in does not depend on what else stands there.
                true if word.len() > 1 && !shown.trim_start_matches("2>").trim().is_empty() => {
                    shown.push_str("  ");
                }
                true => shown.push_str(word),
                false if names_process && word.starts_with(|c: char| c.is_ascii_digit()) => {
                    let behind = word.trim_start_matches(|c: char| c.is_ascii_digit());
                    shown.push_str("<PID>");
                    shown.push_str(behind);
                }
                false => shown.push_str(&without_times(&without_short_ids(
                    &without_ids(word, &mut ids),
                    &ids,
                ))),
            }
            if !is_space {
                names_process = word == "process";
            }
        }
        shown.replace("<TIME> <TIME>", "<TIME>")
    });
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .collect()
}

/// 8-4-4-4-12 hexadecimal digits.
fn id_at(text: &str) -> Option<&str> {
    const SHAPE: &str = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    fits(text, SHAPE).then(|| &text[..SHAPE.len()])
}

fn without_ids(word: &str, ids: &mut HashMap<String, usize>) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some(next) = rest.chars().next() {
        match id_at(rest) {
            Some(id) => {
                let number = ids.len() + 1;
                let number = *ids.entry(id.to_owned()).or_insert(number);
                text += &format!("<ID-{number}>");
                rest = &rest[id.len()..];
            }
            None => {
                text.push(next);
                rest = &rest[next.len_utf8()..];
            }
        }
    }
    text
}

/// Replaces the last 8 characters of an id that stood there before.
fn without_short_ids(word: &str, ids: &HashMap<String, usize>) -> String {
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let found = ids
        .iter()
        .find(|(id, _)| core.len() == 8 && id.ends_with(core));
    match found {
        Some((_, number)) => word.replace(core, &format!("<ID-{number}-END>")),
        None => word.to_owned(),
    }
}

/// A date with or without a time, a time of day, a length of time, a token.
fn without_times(word: &str) -> String {
    let word = without_dates(word);
    let core = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    let made_of = |others: &str| {
        core.chars()
            .all(|c| c.is_ascii_digit() || others.contains(c))
    };
    // With or without an offset.
    let is_time = [8, 14].contains(&core.len()) && core.contains(':') && made_of(":+-");
    let is_length = core.starts_with(|c: char| c.is_ascii_digit())
        && core.ends_with(['s', 'm', 'h'])
        && made_of("dhms");
    let is_token = core.starts_with("jt_") && core.len() > 40;
    match () {
        () if is_time => word.replace(core, "<TIME>"),
        () if is_length => word.replace(core, "<LENGTH>"),
        () if is_token => word.replace(core, "<TOKEN>"),
        () => word,
    }
}

fn without_dates(word: &str) -> String {
    let mut text = String::new();
    let mut rest = word;
    while let Some(next) = rest.chars().next() {
        if fits(rest, "dddd-dd-dd") {
            text.push_str("<TIME>");
            let belongs = |c: char| c.is_ascii_digit() || "TZ:.+-".contains(c);
            rest = rest.trim_start_matches(belongs);
        } else {
            text.push(next);
            rest = &rest[next.len_utf8()..];
        }
    }
    text
}

/// Whether it begins in this shape: `d` stands for a digit, `x` for a hexadecimal one.
fn fits(text: &str, shape: &str) -> bool {
    let Some(begin) = text.get(..shape.len()) else {
        return false;
    };
    begin
        .chars()
        .zip(shape.chars())
        .all(|(c, shape)| match shape {
            'd' => c.is_ascii_digit(),
            'x' => c.is_ascii_hexdigit(),
            other => c == other,
        })
}
