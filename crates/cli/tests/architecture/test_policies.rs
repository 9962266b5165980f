//! Tests run with the policy that a new user gets. A test that changes what admission goes by says why, in a comment above
//! the line: in Rust, in TOML that stands in Rust, and in TOML files.

use std::fs;
use std::path::{Path, PathBuf};

use super::user_code::sources;

/// The crates whose tests start jobs.
const CRATES: &[&str] = &["scheduler", "server", "client", "cli"];

/// The sections of a policy that admission goes by.
const SECTIONS: &[&str] = &["busy", "quiet", "ramp", "capacity"];

/// Returns `true` if a line of a test sets something that admission goes by.
fn sets_admission(line: &str) -> bool {
    let line = line.trim_start();
    if line.starts_with("//") {
        return false;
    }
    let is_set = |place: &str| {
        let of = |section: &&str| place.contains(&format!("policy.{section}."));
        SECTIONS.iter().any(of)
    };
    let in_rust = line
        .split_once(" = ")
        .is_some_and(|(place, _)| is_set(place));
    in_rust || SECTIONS.iter().any(|section| sets_in_toml(line, section))
}

/// Returns `true` if a line holds this section of a policy with a setting behind it, or begins it.
fn sets_in_toml(line: &str, section: &str) -> bool {
    let header = format!("[{section}]");
    let mut rest = line;
    while let Some((_, behind)) = rest.split_once(&header) {
        // In a string that goes on with its first setting, or on a line of its own.
        let setting = behind.strip_prefix("\\n").unwrap_or_default();
        let name = setting.trim_start_matches(|c: char| c.is_ascii_lowercase() || c == '_');
        let goes_on = name.len() < setting.len() && name.starts_with(" = ");
        let is_alone = behind.trim().is_empty() && rest.trim_start().starts_with(&header);
        if goes_on || is_alone {
            return true;
        }
        rest = behind;
    }
    false
}

/// Returns the numbers of the lines that set something that admission goes by, with neither a comment nor another such line
/// above them.
fn unexplained(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_explained = false;
    for (number, line) in (1..).zip(text.lines()) {
        if !sets_admission(line) {
            // In TOML, too.
            let comment = ["//", "# "];
            is_explained = comment.iter().any(|it| line.trim_start().starts_with(it));
        } else if !is_explained {
            found.push(number);
        }
    }
    found
}

/// Returns the numbers of the sections of a policy file that admission goes by, without a comment above them. What the first
/// lines say holds for the whole file.
fn unexplained_in_file(text: &str) -> Vec<usize> {
    if text.starts_with("# ") {
        return Vec::new();
    }
    unexplained(text)
}

/// Collects all policies and other TOML files below a folder.
fn toml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            toml_files(&path, found);
        } else if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            found.push(path);
        }
    }
}

#[test]
fn tests_that_change_what_admission_goes_by_say_why() {
    let mut files = Vec::new();
    for name in CRATES {
        sources(
            &super::root().join("crates").join(name).join("tests"),
            &mut files,
        );
    }
    assert!(files.len() > CRATES.len(), "{files:?}");
    let in_sources = files.iter().filter(|file| !file.ends_with(file!()));
    let mut policies = Vec::new();
    for name in CRATES {
        toml_files(
            &super::root().join("crates").join(name).join("tests"),
            &mut policies,
        );
    }
    assert!(!policies.is_empty(), "the command's tests have some");
    let checks = in_sources
        .map(|file| (file, unexplained as fn(&str) -> Vec<usize>))
        .chain(policies.iter().map(|file| (file, unexplained_in_file as _)));
    let mut broken = Vec::new();
    for (file, check) in checks {
        let text = fs::read_to_string(file).expect("a source");
        for line in check(&text) {
            broken.push(format!(
                "{}:{line} changes what admission goes by: say why in a comment above it, or leave it",
                file.display()
            ));
        }
    }
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn a_change_without_a_reason_is_found() {
    let text = "\
        let mut policy = Policy::default();\n\
        policy.ramp.units_per_sample = 0;\n\
        // The curve is what this test is about.\n\
        options.policy.capacity.curve = [100.0; 11];\n\
        options.policy.quiet.quiet_max = 10.0;\n\
        policy.caps.leases = 1;\n\
        assert_eq!(policy.quiet.quiet_max, 2.0);\n\
        policy.busy.ignore = true;\n";
    assert_eq!(unexplained(text), [2, 8]);
}

#[test]
fn a_change_in_toml_without_a_reason_is_found() {
    let text = "\
        let quiet = toml(\"[quiet]\\nquiet_max = 12\");\n\
        // Calls collide only if many are let in.\n\
        let all = short + \"\\n[ramp]\\nunits_per_sample = 0\\n\";\n\
        assert!(shown.contains(\"[quiet]\"));\n\
        let empty = \"[quiet]\\n\";\n\
        let caps = \"[caps]\\nleases = 3\\n\";\n\
        let text = r#\"\n\
        [busy]\n\
        ignore = true\n\
        # Capacity is what this test is about.\n\
        [capacity]\n\
        units = 50\n\
        \"#;\n";
    assert_eq!(unexplained(text), [1, 8]);
    let file = "[dispatch]\nlease_ttl = \"5s\"\n\n[quiet]\nenter_after = \"0\"\n";
    assert_eq!(unexplained_in_file(file), [4]);
    let explained = format!("# Quiet needs no minute here.\n{file}");
    assert!(unexplained_in_file(&explained).is_empty());
}
