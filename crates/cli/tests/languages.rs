//! The workers in `examples/workers`, in other languages, over HTTP alone.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{Beside, Daemon, until, watch};

fn example(daemon: &Daemon, name: &str, job_type: &str) -> Command {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../examples/workers")
        .join(name);
    let mut command = Command::new(file);
    command
        .args(["examples", job_type])
        .env("JOBTREE_URL", &daemon.url)
        .env("JOBTREE_TOKEN", daemon.token());
    command
}

fn submit(daemon: &Daemon, job_type: &str, payload: &str) -> String {
    daemon
        .run(&["submit", "examples", job_type, "--payload", payload])
        .text()
}

#[test]
fn a_worker_in_python() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let _worker = Beside::start(&mut example(&daemon, "worker.py", "count"));
    let id = submit(&daemon, "count", r#"{"words": ["one", "three"]}"#);
    daemon.run(&["wait", &id]).exits(0);
    assert_eq!(daemon.job(&id)["result"]["letters"], 8);
    assert_eq!(
        daemon.run(&["logs", &id]).text(),
        "counting one\ncounting three"
    );

    let id = submit(&daemon, "count", r#"{"fail": true}"#);
    daemon.run(&["wait", &id]).exits(10);
    assert_eq!(daemon.job(&id)["last_error"], "ValueError: asked to fail");

    // Longer than its lease holds: it is renewed. And it stops when it is told to.
    let words = format!(
        "{{\"words\": [{}\"end\"], \"seconds_each\": 0.2}}",
        "\"x\",".repeat(500)
    );
    let id = submit(&daemon, "count", &words);
    until(|| daemon.job(&id)["progress"]["message"] == "x");
    daemon.run(&["cancel", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(
        (&job["state"], &job["rescues"]),
        (&"CANCELED".into(), &0.into()),
        "{job}"
    );
}

#[test]
fn a_worker_in_shell() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let _worker = Beside::start(&mut example(&daemon, "worker.sh", "checksum"));
    let ids =
        [r#"{"a":1}"#, "[1,2]", "\"text\""].map(|payload| submit(&daemon, "checksum", payload));
    for id in ids {
        daemon.run(&["wait", &id]).exits(0);
        let job = daemon.job(&id);
        let sum = job["result"].as_str().unwrap_or_else(|| panic!("{job}"));
        assert!(sum.parse::<u32>().is_ok(), "{job}");
    }
}
