//! Doc comments say what an item is or does: their first word is a verb or a noun.
//!
//! A comment that begins with a bare pronoun or a question word ("Whether", "What", "It", "Nobody") makes the reader look for
//! its subject. `doc_comments.txt` lists the files that still have such comments. A file that is not in the list must have
//! none, and a file that has none any more leaves the list:
//!
//! ```sh
//! JOBTREE_WRITE_LIST=1 cargo test -p jobtree-cli --test architecture doc_comments   # removes entries, never adds one
//! ```

use std::fs;
use std::path::PathBuf;

use super::user_code::sources;

/// Words that a doc comment must not begin with.
const BARE: &[&str] = &[
    "Anybody",
    "Anyone",
    "Everybody",
    "Everyone",
    "Everything",
    "He",
    "How",
    "It",
    "Its",
    "Nobody",
    "Nothing",
    "She",
    "Somebody",
    "Someone",
    "Something",
    "These",
    "They",
    "Those",
    "We",
    "What",
    "Whatever",
    "When",
    "Where",
    "Wherever",
    "Whether",
    "Which",
    "Whichever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Why",
];

/// Returns the text of a line of a doc comment, or `None` if the line is something else.
fn doc_text(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line
        .strip_prefix("//!")
        .or_else(|| line.strip_prefix("///"))?;
    (!text.starts_with('/')).then(|| text.trim_start())
}

/// Returns the first word of a text, without marks of emphasis before it. A name in backticks is none.
fn first_word(text: &str) -> &str {
    let text = text.trim_start_matches(['*', '_']);
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric())
        .unwrap_or(text.len());
    &text[..end]
}

/// Returns the numbers of the lines on which a doc comment begins with a bare word.
fn bare_beginnings(source: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut in_comment = false;
    for (number, line) in (1..).zip(source.lines()) {
        let text = doc_text(line);
        if let Some(text) = text
            && !in_comment
            && BARE.contains(&first_word(text))
        {
            found.push(number);
        }
        in_comment = text.is_some();
    }
    found
}

fn list_file() -> PathBuf {
    super::root().join("crates/cli/tests/architecture/doc_comments.txt")
}

#[test]
fn doc_comments_begin_with_a_verb_or_a_noun() {
    let root = super::root();
    let list = fs::read_to_string(list_file()).expect("the list is there");
    let listed: Vec<&str> = list.lines().collect();
    let mut files = Vec::new();
    for entry in fs::read_dir(root.join("crates")).expect("the folder can be listed") {
        sources(
            &entry.expect("the entry can be read").path().join("src"),
            &mut files,
        );
    }
    let (mut wrong, mut left) = (Vec::new(), Vec::new());
    for file in files {
        let source = fs::read_to_string(&file).expect("a source is text");
        let found = bare_beginnings(&source);
        let path = file.strip_prefix(&root).expect("found below");
        let path = path
            .to_str()
            .expect("our names are text")
            .replace('\\', "/");
        if found.is_empty() {
            continue;
        }
        match listed.iter().find(|listed| **listed == path) {
            Some(listed) => left.push(*listed),
            None => wrong.extend(found.iter().map(|line| format!("{path}:{line}"))),
        }
    }
    assert!(
        wrong.is_empty(),
        "begin these doc comments with a verb or a noun (`true` if …, Returns …, The number of …):\n{}\n",
        wrong.join("\n")
    );
    left.sort_unstable();
    if std::env::var_os("JOBTREE_WRITE_LIST").is_some() {
        let text: String = left.iter().map(|path| format!("{path}\n")).collect();
        fs::write(list_file(), text).expect("the list can be written");
        return;
    }
    let gone: Vec<&str> = listed
        .into_iter()
        .filter(|path| !left.contains(path))
        .collect();
    assert!(
        gone.is_empty(),
        "these files keep the rule or are gone; take them off the list with JOBTREE_WRITE_LIST=1:\n{}\n",
        gone.join("\n")
    );
}

#[test]
fn a_bare_beginning_is_found() {
    let source = "\
        //! What it is.\n\
        //! It goes on.\n\
        \n\
        /// Whether it is so.\n\
        fn so() {}\n\
        /// Returns `true` if it is so.\n\
        /// Whether or not.\n\
        // What a plain comment says.\n\
        /// `What` is a name.\n\
        enum What {}\n\
        //// Nobody reads this line.\n\
        /// **It** is none.\n";
    assert_eq!(bare_beginnings(source), [1, 4, 12]);
}
