//! The subcommand that the program calls itself with: each probe ends, and says what it used.

use std::process::{Command, Output};

fn alone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_jobtree-bench"))
        .arg("alone")
        .args(arguments)
        .output()
        .expect("the program starts")
}

#[test]
fn every_probe_ends_with_what_it_left_still_alive() {
    for probe in [
        "jobs-made-and-ended",
        "tokio-tokens-made-and-dropped",
        "jobs-attached",
        "tokio-tokens",
        "jobs-not-begun",
        "tokio-tasks-not-begun",
        "jobs-parked",
        "tokio-tasks-waiting",
        "jobs-parked-on-small-stacks",
        "may-tasks-parked",
        "ticks",
        "no-ticks",
        "lane-jobs-among-few",
        "aged-lane-jobs-among-few",
        "lane-jobs-waiting",
    ] {
        let output = alone(&[probe, "20"]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{probe}: {said}");
        if cfg!(target_os = "linux") {
            let printed = String::from_utf8_lossy(&output.stdout);
            assert!(
                printed.starts_with("resident bytes: "),
                "{probe}: {printed}"
            );
        }
    }
}

#[test]
fn an_unknown_probe_is_refused_with_those_there_are() {
    let output = alone(&["no-such-probe", "1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("jobs-attached"));
}
