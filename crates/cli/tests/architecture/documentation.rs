//! The documentation names files, types and functions that exist.
//!
//! Text in backticks that looks like a file of this repository is looked up in the file system, and text that looks like a
//! type or a function is looked up among the words of the sources. So a page that a renaming leaves behind fails here, with
//! the line to correct.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::rules::UNSAFE_ALLOWED;

/// The folders at the root of the repository that paths in documentation begin with.
const TOP_FOLDERS: &[&str] = &[
    ".cargo/",
    ".ci/",
    "compat/",
    "crates/",
    "docs/",
    "examples/",
    "scripts/",
];

/// The endings of sources, which a page names only if they exist. Other names of files may belong to a user.
const SOURCE_ENDINGS: &[&str] = &[".rs", ".sql"];

/// The length of ARCHITECTURE.md in bytes, at most: it is a map, and how a crate works stands in the crate's README.
const LONGEST_MAP: usize = 20_000;

/// A page: its path from the root, and its text.
struct Page {
    path: String,
    text: String,
}

/// A mention of something in backticks.
#[derive(Debug, PartialEq, Eq)]
struct Mention<'a> {
    line: usize,
    text: &'a str,
}

/// Returns the mentions in backticks of a page, without its blocks of code.
fn mentions(text: &str) -> Vec<Mention<'_>> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (line, content) in (1..).zip(text.lines()) {
        if content.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let mentioned = content.split('`').skip(1).step_by(2);
            found.extend(mentioned.map(|text| Mention { line, text }));
        }
    }
    found
}

/// Returns `true` if the text looks like a file or folder of this repository.
fn looks_like_a_path(text: &str) -> bool {
    let is_plain = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    is_plain
        && (TOP_FOLDERS.iter().any(|folder| text.starts_with(folder))
            || SOURCE_ENDINGS
                .iter()
                .any(|ending| text.ends_with(ending) && text.len() > ending.len()))
}

/// Returns the folders in which a path on a page may lie: the root, and for a crate's page the crate and its sources.
fn folders_of(page: &str) -> Vec<String> {
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    match folder {
        "" | "docs" => vec![String::new()],
        folder => vec![
            String::new(),
            format!("{folder}/"),
            format!("{folder}/src/"),
        ],
    }
}

/// Returns the names in a mention that look like a type, or like something inside of one: `Worker::wait_until` has two.
fn code_names(text: &str) -> Vec<&str> {
    let text = text.strip_suffix("()").unwrap_or(text);
    let names: Vec<&str> = text.split("::").collect();
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let looks_like_a_type = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.contains(|c: char| c.is_ascii_lowercase())
    };
    let is_code = names.len() > 1 || names.iter().any(looks_like_a_type);
    if is_code && names.iter().all(is_name) {
        names
    } else {
        Vec::new()
    }
}

/// Returns what is wrong with a page, given what exists.
fn wrong_on(page: &Page, exists: &dyn Fn(&str) -> bool, words: &HashSet<String>) -> Vec<String> {
    let mut wrong = Vec::new();
    for mention in mentions(&page.text) {
        let Mention { line, text } = mention;
        if looks_like_a_path(text) {
            let folders = folders_of(&page.path);
            if !folders
                .iter()
                .any(|folder| exists(&format!("{folder}{text}")))
            {
                wrong.push(format!(
                    "{}:{line} names the file `{text}`, which does not exist",
                    page.path
                ));
            }
        } else {
            for name in code_names(text) {
                if !words.contains(name) {
                    wrong.push(format!(
                        "{}:{line} names `{text}`, but no source has the word `{name}`",
                        page.path
                    ));
                }
            }
        }
    }
    let folder = page
        .path
        .rsplit_once('/')
        .map_or(String::new(), |(folder, _)| format!("{folder}/"));
    for Mention { line, text } in links(&page.text) {
        if !exists(&format!("{folder}{text}")) {
            wrong.push(format!(
                "{}:{line} links to {text}, which does not exist",
                page.path
            ));
        }
    }
    wrong
}

/// Returns the relative targets of the links on a page, without their anchors.
fn links(text: &str) -> Vec<Mention<'_>> {
    let mut found = Vec::new();
    for (line, content) in (1..).zip(text.lines()) {
        let targets = content
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split_once(')'));
        let targets = targets.map(|(target, _)| target.split('#').next().unwrap_or(target));
        let relative = targets.filter(|target| !target.is_empty() && !target.contains(':'));
        found.extend(relative.map(|text| Mention { line, text }));
    }
    found
}

/// Returns the pages of the repository that this test holds to what exists.
fn pages(root: &Path) -> Vec<Page> {
    let mut paths = vec![
        PathBuf::from("README.md"),
        PathBuf::from("ARCHITECTURE.md"),
        PathBuf::from("CONTRIBUTING.md"),
    ];
    let folder = |name: &str| {
        let entries = fs::read_dir(root.join(name)).expect("the folder can be listed");
        let mut found: Vec<PathBuf> = entries
            .map(|entry| Path::new(name).join(entry.expect("the entry can be read").file_name()))
            .collect();
        found.sort();
        found
    };
    paths.extend(
        folder("docs")
            .into_iter()
            .filter(|path| path.extension().is_some_and(|ending| ending == "md")),
    );
    paths.extend(
        folder("crates")
            .into_iter()
            .map(|path| path.join("README.md")),
    );
    let page = |path: PathBuf| Page {
        text: fs::read_to_string(root.join(&path))
            .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
        path: path
            .to_str()
            .expect("our names are text")
            .replace('\\', "/"),
    };
    paths.into_iter().map(page).collect()
}

/// Adds the words of all sources below a folder: of code, SQL, headers and manifests.
fn add_words(folder: &Path, words: &mut HashSet<String>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the entry can be read").path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            if !path.ends_with("target") && !path.ends_with("node_modules") {
                add_words(&path, words);
            }
        } else if matches!(ending, Some("rs" | "sql" | "h" | "toml"))
            && !path.ends_with("documentation.rs")
        {
            let text = fs::read_to_string(&path).expect("a source is text");
            let found = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.extend(found.filter(|word| !word.is_empty()).map(str::to_owned));
        }
    }
}

#[test]
fn documentation_names_what_exists() {
    let root = super::root();
    let mut words = HashSet::new();
    add_words(&root.join("crates"), &mut words);
    let exists = |path: &str| root.join(path).exists();
    let pages = pages(&root);
    let wrong: Vec<String> = pages
        .iter()
        .flat_map(|page| wrong_on(page, &exists, &words))
        .collect();
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
    let checked: usize = pages
        .iter()
        .map(|page| {
            mentions(&page.text)
                .iter()
                .filter(|mention| looks_like_a_path(mention.text))
                .count()
        })
        .sum();
    assert!(
        checked > 100,
        "only {checked} paths were found: the pages are not read as they are written"
    );
}

#[test]
fn every_crate_shows_its_page_in_its_documentation() {
    let crates = super::root().join("crates");
    for entry in fs::read_dir(&crates).expect("the folder can be listed") {
        let folder = entry.expect("the entry can be read").path();
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root));
        let root = roots
            .iter()
            .find(|root| root.is_file())
            .expect("a crate has a first file");
        let text = fs::read_to_string(root).expect("a source is text");
        let is_included = text
            .lines()
            .any(|line| line == r#"#![doc = include_str!("../README.md")]"#);
        assert!(
            is_included,
            "{} does not include its README.md",
            root.display()
        );
    }
}

/// Returns the cells of each row of the tables on a page, without marks of code.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    let cells = |line: &str| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().replace('`', ""))
            .collect()
    };
    lines.map(cells).collect()
}

#[test]
fn the_map_is_short_and_lists_every_crate() {
    let root = super::root();
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map is there");
    assert!(
        map.len() <= LONGEST_MAP,
        "ARCHITECTURE.md has {} bytes, more than {LONGEST_MAP}: move details to crates/*/README.md",
        map.len()
    );
    let rows = rows(&map);
    for package in super::packages(&root.join("Cargo.toml")) {
        let name = package.name.trim_start_matches("jobtree-");
        let row = rows
            .iter()
            .find(|row| row[0] == name)
            .unwrap_or_else(|| panic!("the crate map of ARCHITECTURE.md lacks `{name}`"));
        let has_unsafe = if UNSAFE_ALLOWED.contains(&package.name.as_str()) {
            "yes"
        } else {
            "no"
        };
        assert_eq!(
            row[2], has_unsafe,
            "whether `{name}` may have unsafe code, in the crate map of ARCHITECTURE.md"
        );
    }
}

/// Returns the rows of the table on a page whose first column has this heading.
fn table(text: &str, heading: &str) -> Vec<Vec<String>> {
    let begin = format!("| {heading} |");
    let from = text
        .find(&begin)
        .unwrap_or_else(|| panic!("there is no table of {heading}"));
    let lines = text[from..]
        .lines()
        .take_while(|line| line.starts_with('|'));
    rows(&lines.skip(2).collect::<Vec<_>>().join("\n"))
}

/// Returns the stages that `scripts/test` knows.
fn stages(script: &str) -> Vec<&str> {
    let lists = script
        .lines()
        .filter_map(|line| line.split_once("_stages=("));
    let names = lists.filter_map(|(_, rest)| rest.split_once(')'));
    names
        .flat_map(|(names, _)| names.split_whitespace())
        .collect()
}

#[test]
fn contributing_describes_the_stages_and_the_crates_with_unsafe_code() {
    let read =
        |path: &str| fs::read_to_string(super::root().join(path)).expect("the file is there");
    let (page, script) = (read("CONTRIBUTING.md"), read("scripts/test"));
    let described = table(&page, "stage");
    let mut described: Vec<&str> = described
        .iter()
        .flat_map(|row| row[0].split(", "))
        .collect();
    let mut stages = stages(&script);
    described.sort_unstable();
    stages.sort_unstable();
    assert!(!stages.is_empty());
    assert_eq!(
        described, stages,
        "the table of stages in CONTRIBUTING.md, and scripts/test --list"
    );
    let rooms = table(&page, "crate with unsafe code");
    let rooms: Vec<&str> = rooms.iter().map(|row| row[0].as_str()).collect();
    let allowed: Vec<&str> = UNSAFE_ALLOWED
        .iter()
        .map(|name| name.trim_start_matches("jobtree-"))
        .collect();
    assert_eq!(
        rooms, allowed,
        "the table of crates with unsafe code in CONTRIBUTING.md"
    );
}

#[test]
fn what_does_not_exist_is_found_on_a_page() {
    let page = |path: &str, text: &str| Page {
        path: path.into(),
        text: text.into(),
    };
    let exists = |path: &str| ["crates/pool/src/fork.rs", "docs/glossary.md"].contains(&path);
    let words = ["Worker", "wait_until"].map(str::to_owned).into();
    let wrong = |path: &str, text: &str| wrong_on(&page(path, text), &exists, &words).len();
    // A crate's page names its sources briefly; other pages name the whole path.
    assert_eq!(
        wrong(
            "crates/pool/README.md",
            "`fork.rs`, `src/fork.rs`, `crates/pool/src/fork.rs`"
        ),
        0
    );
    assert_eq!(wrong("crates/tree/README.md", "`fork.rs`"), 1);
    assert_eq!(
        wrong("ARCHITECTURE.md", "`fork.rs` and `crates/pool/src/join.rs`"),
        2
    );
    // Files of users, and blocks of code, are no business of this test.
    assert_eq!(
        wrong(
            "ARCHITECTURE.md",
            "`jobs.db`\n```text\n`gone.rs`\n```\n`docs/glossary.md`"
        ),
        0
    );
    assert_eq!(
        wrong(
            "ARCHITECTURE.md",
            "`Worker::wait_until()`, `join`, `QUEUED`, `Worker<T>`"
        ),
        0
    );
    assert_eq!(wrong("ARCHITECTURE.md", "`Worker::park`, `Strand`"), 2);
    assert_eq!(
        wrong("docs/glossary.md", "`Fiber`, `crates/gone.rs`, `Worker`"),
        2
    );
    assert_eq!(
        wrong(
            "docs/a.md",
            "[here](#a), [there](https://a.b), [words](glossary.md#a)"
        ),
        0
    );
    assert_eq!(wrong("docs/a.md", "[words](docs/glossary.md)"), 1);
}
