//! The workers in `examples/workers`, in other languages, over HTTP alone.

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::{Beside, Daemon, Load, until, watch};

fn example_file(name: &str) -> PathBuf {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/workers");
    examples.join(name)
}

fn example(daemon: &Daemon, name: &str, job_type: &str) -> Command {
    let mut command = Command::new(example_file(name));
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
    let daemon = Daemon::always();
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

/// By the policy of the tests, PANIC tells running jobs to yield at once, and only what a test pushes makes it.
#[test]
fn a_worker_in_python_saves_and_yields_and_goes_on_later() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let mut command = example(&daemon, "worker.py", "count");
    command.env("JOBTREE_CHECKPOINTS", &daemon.folder.0);
    let _worker = Beside::start(&mut command);
    let words: Vec<String> = (0..40).map(|number| format!("word{number:02}")).collect();
    let payload = serde_json::json!({"words": words, "seconds_each": 0.2});
    let id = submit(&daemon, "count", &payload.to_string());
    until(|| daemon.job(&id)["state"] == "RUNNING");
    daemon.push(Load::Panic);
    until(|| daemon.job(&id)["state"] == "QUEUED");
    let saved = daemon.folder.join(&format!("jobtree-{id}.json"));
    assert!(saved.exists());
    daemon.push(Load::Quiet);
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(job["result"]["letters"], 6 * 40, "{job}");
    assert_eq!(
        (&job["attempts"], &job["rescues"]),
        (&1.into(), &0.into()),
        "{job}"
    );
    let counted = words.iter().map(|word| format!("counting {word}"));
    let log = daemon.run(&["logs", &id]).text();
    assert!(log.lines().eq(counted), "each word once: {log}");
    until(|| !saved.exists());
}

#[test]
fn a_worker_in_shell_yields_and_begins_anew_later() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let source = std::fs::read_to_string(example_file("worker.sh")).unwrap();
    // The job of the example takes no time: this one waits.
    let slow = source.replace(
        "\njob() {\n",
        "\njob() {\n    until [ -e go ]; do sleep 0.05; done\n",
    );
    assert_ne!(slow, source);
    let file = daemon.folder.write("slow.sh", &slow);
    let mut command = Command::new("sh");
    command
        .args([&file, "examples", "checksum"])
        .env("JOBTREE_URL", &daemon.url)
        .env("JOBTREE_TOKEN", daemon.token())
        .current_dir(&daemon.folder.0);
    let _worker = Beside::start(&mut command);
    let id = submit(&daemon, "checksum", "1");
    until(|| daemon.job(&id)["state"] == "RUNNING");
    daemon.push(Load::Panic);
    until(|| daemon.job(&id)["state"] == "QUEUED");
    daemon.folder.write("go", "");
    daemon.push(Load::Quiet);
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(
        (&job["attempts"], &job["rescues"]),
        (&1.into(), &0.into()),
        "{job}"
    );
}

#[test]
fn a_worker_in_shell() {
    let _watchdog = watch();
    let daemon = Daemon::always();
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
