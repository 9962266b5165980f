//! `jobtree bench` as somebody types it: what comes out, where, and with which exit code.

use std::process::{Command, Output};

fn jobtree(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobtree"));
    command
        .env_remove("JOBTREE_WORKERS")
        .env_remove("JOBTREE_WORKER_CAP");
    command
        .args(arguments)
        .envs(variables.iter().copied())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the program prints UTF-8")
}

#[test]
fn it_shows_the_cost_of_a_fork_and_how_work_scales() {
    let output = jobtree(&["bench", "--quick", "--workers", "2"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    for part in [
        "What a fork costs",
        "fib(27)",
        "How it scales",
        "sort of 100000",
        "1 worker ",
        "2 workers",
        "#",
    ] {
        assert!(shown.contains(part), "'{part}' is missing in:\n{shown}");
    }
    assert!(
        shown.is_ascii(),
        "output that is no terminal is ASCII:\n{shown}"
    );
}

#[test]
fn json_is_one_document_with_a_point_for_each_number_of_workers() {
    let output = jobtree(&["bench", "--quick", "--json", "--workers", "3"], &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["workers"], 3);
    let points = document["scaling"][0]["points"]
        .as_array()
        .expect("points of the first curve");
    let workers: Vec<_> = points
        .iter()
        .map(|point| point["workers"].as_u64().unwrap())
        .collect();
    assert_eq!(workers, [1, 2, 3]);
}

#[test]
fn the_number_of_workers_comes_from_the_variable() {
    let output = jobtree(&["bench", "--quick", "--json"], &[("JOBTREE_WORKERS", "2")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["workers"], 2);
}

#[test]
fn variables_that_make_no_sense_are_refused_with_a_message() {
    let values = ["many", "0", "-3", "2.5", "", "99999999999999999999"];
    let variables = ["JOBTREE_WORKERS", "JOBTREE_WORKER_CAP"];
    for (value, variable) in values.iter().flat_map(|v| variables.map(|name| (v, name))) {
        let output = jobtree(&["bench", "--quick"], &[(variable, value)]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{variable}={value}: {output:?}"
        );
        let message = text(&output.stderr);
        assert!(
            message.contains("error: ") && message.contains(variable),
            "{message}"
        );
        assert!(!message.contains("panicked"), "{message}");
        assert!(
            output.stdout.is_empty(),
            "nothing but results goes to standard output"
        );
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in [
        &["bench", "--workers", "0"][..],
        &["bench", "--workers", "1000000"],
        &["bench", "--workers", "-1"],
        &["bench", "--workers", "two"],
        &["bench", "--workers"],
        &["bench", "again"],
        &["bench", "--fast"],
        &["dance"],
        &[],
    ] {
        let output = jobtree(arguments, &[]);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let message = text(&output.stderr);
        assert!(!message.is_empty(), "{arguments:?}");
        assert!(!message.contains("panicked"), "{message}");
    }
}

#[test]
fn help_and_version_are_there() {
    let help = jobtree(&["--help"], &[]);
    assert!(help.status.success() && text(&help.stdout).contains("bench"));
    assert!(text(&jobtree(&["--version"], &[]).stdout).starts_with("jobtree "));
}
