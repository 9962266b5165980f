//! Tests run with the policy that a new user gets. A test that changes what admission goes by says why, in a comment above
//! the line.

use std::fs;

use super::user_code::sources;

/// The crates whose tests start jobs.
const CRATES: &[&str] = &["scheduler", "server", "client", "cli"];

/// The sections of a policy that admission goes by.
const SECTIONS: &[&str] = &["busy", "quiet", "ramp", "capacity"];

/// Returns `true` if a line of a test sets something that admission goes by.
fn sets_admission(line: &str) -> bool {
    let line = line.trim_start();
    let Some((place, _)) = line.split_once(" = ") else {
        return false;
    };
    let is_set = |section: &&str| place.contains(&format!("policy.{section}."));
    !line.starts_with("//") && SECTIONS.iter().any(is_set)
}

/// Returns the numbers of the lines that set something that admission goes by, with neither a comment nor another such line
/// above them.
fn unexplained(text: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut is_explained = false;
    for (number, line) in (1..).zip(text.lines()) {
        if !sets_admission(line) {
            is_explained = line.trim_start().starts_with("//");
        } else if !is_explained {
            found.push(number);
        }
    }
    found
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
    let mut broken = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with(file!())) {
        let text = fs::read_to_string(file).expect("a source");
        for line in unexplained(&text) {
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
