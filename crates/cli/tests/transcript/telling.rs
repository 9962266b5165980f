//! Chapters of a transcript, and their comparison with the file.

use std::path::PathBuf;

use crate::support::snapshot::normalized;
use crate::support::{Daemon, Ran};

const HEAD: &str = "\
# The first hour

What you type, and what you see. This file is made by a test that does all of it against real daemons
(`JOBTREE_SNAPSHOTS=write cargo test -p jobtree-cli --test transcript` writes it anew). Ids, times and lengths of time differ from run to
run, so stand-ins are shown: `<ID-1>` is a job's id, `<ID-1-END>` its last eight characters.

The daemons have the default policy. Other programs use the machine that makes this page, so each job was submitted with
`--ignore-load`, which is left out below. Without it, a job starts when the machine has been quiet for a minute.
";

/// One story.
pub struct Chapter {
    title: &'static str,
    text: String,
    is_code: bool,
    replaced: Vec<(String, &'static str)>,
}

impl Chapter {
    pub fn new(title: &'static str) -> Self {
        Chapter {
            title,
            text: String::new(),
            is_code: false,
            replaced: Vec::new(),
        }
    }

    /// Its address and folder are others each time.
    pub fn about(&mut self, daemon: &Daemon) {
        self.replacing(&daemon.url, "http://127.0.0.1:7717");
        self.replacing(daemon.folder.0.to_str().expect("a plain path"), "~");
    }

    pub fn replacing(&mut self, text: &str, by: &'static str) {
        self.replaced.push((text.to_owned(), by));
    }

    fn code(&mut self, is_code: bool) {
        match (self.is_code, is_code) {
            (false, true) => self.text += "\n```console\n",
            (true, false) => self.text += "```\n",
            _ => {}
        }
        self.is_code = is_code;
    }

    /// A sentence between commands.
    pub fn says(&mut self, sentence: &str) {
        self.code(false);
        self.text += &format!("\n{sentence}\n");
    }

    /// A line that the test does in another way than by typing it.
    pub fn line(&mut self, line: &str) {
        self.code(true);
        self.text += &format!("$ {line}\n");
    }

    /// A file that the user has written.
    pub fn file(&mut self, name: &str, path: &str) {
        self.line(&format!("cat {name}"));
        self.text += &std::fs::read_to_string(path).expect("the file");
    }

    /// A command, run here; what it submits starts whatever the load is.
    pub fn does(&mut self, daemon: &Daemon, arguments: &[&str], code: i32) {
        let ran = daemon.run(&submits(arguments)).exits(code);
        self.ran_as(&typed(arguments), &ran);
    }

    /// A command, run here as it is written.
    pub fn does_as_written(&mut self, daemon: &Daemon, arguments: &[&str], code: i32) {
        let ran = daemon.run(arguments).exits(code);
        self.ran_as(&typed(arguments), &ran);
    }

    /// A command with a file for its standard input.
    pub fn pipes(&mut self, daemon: &Daemon, file: &str, arguments: &[&str]) {
        let mut command = daemon.command();
        command.stdin(std::fs::File::open(file).expect("the file"));
        let ran = Ran::of(&mut command, &submits(arguments)).exits(0);
        self.ran_as(&format!("cat list | {}", typed(arguments)), &ran);
    }

    pub fn ran(&mut self, ran: &Ran) {
        let arguments: Vec<&str> = ran.line.split(' ').collect();
        self.ran_as(&typed(&arguments), ran);
    }

    /// What a line printed, both streams, and its exit code if that is not 0.
    pub fn ran_as(&mut self, line: &str, ran: &Ran) {
        self.line(line);
        for text in [&ran.stderr, &ran.stdout] {
            // Whether a command waits for the next pass of the scheduler is a matter of milliseconds; and `show` tells of
            // the flag that the head of the page is about.
            let left_out = |line: &str| {
                line.starts_with("waiting: ")
                    || line.ends_with(" whatever the load is (--ignore-load)")
            };
            for line in text.lines().filter(|line| !left_out(line)) {
                self.text += &format!("{line}\n");
            }
        }
        if let Some(code) = ran.code.filter(|code| *code != 0) {
            self.text += &format!("[exit code {code}]\n");
        }
    }

    /// A line that a command beside the others prints.
    pub fn prints(&mut self, line: &str) {
        self.code(true);
        self.text += &format!("{line}\n");
    }

    fn finished(mut self) -> (&'static str, String) {
        self.code(false);
        for (from, to) in &self.replaced {
            self.text = self.text.replace(from, to);
        }
        (self.title, normalized(&self.text))
    }
}

/// Returns the arguments with `--ignore-load` behind the words that submit a job, if they do.
pub fn submits<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let place = match arguments {
        ["submit" | "run", ..] => 1,
        ["schedule", "add", ..] => 2,
        _ => return arguments.to_vec(),
    };
    let (before, behind) = arguments.split_at(place);
    [before, &["--ignore-load"], behind].concat()
}

/// Arguments as a user types them.
fn typed(arguments: &[&str]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%$".contains(c);
    let quoted = arguments.iter().map(|argument| {
        match !argument.is_empty() && argument.chars().all(plain) {
            true => (*argument).to_owned(),
            false => format!("'{argument}'"),
        }
    });
    let words: Vec<String> = std::iter::once("jobtree".to_owned())
        .chain(quoted)
        .collect();
    words.join(" ")
}

/// Compares all chapters with the file. A chapter that could not be told here is not missed.
pub fn compare(chapters: Vec<Chapter>) {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/first-hour.md");
    let told: Vec<(&str, String)> = chapters.into_iter().map(Chapter::finished).collect();
    if std::env::var_os("JOBTREE_SNAPSHOTS").is_some_and(|what| what == "write") {
        let mut text = HEAD.to_owned();
        for (title, chapter) in &told {
            text += &format!("\n## {title}\n{chapter}");
        }
        return std::fs::write(file, text).expect("the file is written");
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let mut parts = expected.split("\n## ");
    assert_eq!(parts.next(), Some(HEAD), "the head of {}", file.display());
    let known: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('\n')).collect();
    for (title, chapter) in &told {
        let found = known.iter().find(|(known, _)| known == title);
        let expected = found.map_or("", |(_, text)| text).trim_end();
        let chapter = chapter.trim_end();
        if chapter == expected {
            continue;
        }
        let pairs = chapter.lines().zip(expected.lines());
        let line = pairs.take_while(|(is, was)| is == was).count();
        let show = |text: &str| {
            text.lines()
                .skip(line.saturating_sub(3))
                .take(8)
                .collect::<Vec<_>>()
                .join("\n")
        };
        panic!(
            "docs/first-hour.md differs in {title:?}.\nIt is:\n{}\n\nIt was:\n{}\n\nIf it is right now: JOBTREE_SNAPSHOTS=write",
            show(chapter),
            show(expected)
        );
    }
}
