//! Advice on its way from the daemon to programs: they read it, save, give way, and go on later from where they were.
//!
//! The load is what a test pushes: by the policy of these tests nothing that this machine does counts.

mod support;

use std::process::Command;

use support::{Beside, Daemon, Folder, Load, always, lives, pid_in, until, watch};

/// A daemon in which PANIC lasts for so long before running jobs are told to yield, and the folder of its policy.
fn daemon(panic_cooldown: &str, more: &[&str]) -> (Folder, Daemon) {
    let folder = Folder::new();
    let policy = folder.write("policy.toml", &always(panic_cooldown));
    let mut arguments = vec!["--store", "memory", "--policy", &policy];
    arguments.extend(more);
    let daemon = Daemon::with(&arguments);
    (folder, daemon)
}

fn worker(daemon: &Daemon, options: &[&str], script: &str) -> Command {
    let mut command = daemon.command();
    command
        .args(["work", "-q", "--addon", "photos", "--type", "index"])
        .args(options)
        .args(["--", "sh", "-c", script]);
    command
}

fn submit(daemon: &Daemon) -> String {
    daemon.run(&["submit", "photos", "index"]).text()
}

fn log(daemon: &Daemon, id: &str) -> String {
    daemon.run(&["logs", id]).text()
}

/// Waits until the job is in the queue again, and nothing was counted.
fn returned(daemon: &Daemon, id: &str) {
    until(|| daemon.job(id)["state"] == "QUEUED");
    let job = daemon.job(id);
    assert_eq!(
        (&job["attempts"], &job["rescues"]),
        (&0.into(), &0.into()),
        "{job}"
    );
}

/// Works while it is told nothing, page by page; here each advice is a page. It saves when told to, and exits when told to
/// yield. Begun again, it goes on behind the page that it saved.
const READER: &str = "page=$(cat saved 2>/dev/null || echo 0); echo \"from page $page\"; \
    [ $page = 0 ] || { echo '::result {\"from\": '$page'}'; exit 0; }; \
    while read advice <&$JOBTREE_ADVICE_FD; do \
        page=$((page + 1)); echo \"$page $advice\"; \
        case $advice in checkpoint) echo $page > saved;; yield) exit 75;; esac; \
    done";

#[test]
fn a_program_is_told_slow_checkpoint_and_yield_and_finishes_later_from_its_checkpoint() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("1h", &[]);
    let _worker = Beside::start(&mut worker(&daemon, &["--yield-grace", "1h"], READER));
    let id = submit(&daemon);
    until(|| log(&daemon, &id) == "from page 0");
    daemon.push(Load::Busy);
    until(|| log(&daemon, &id).ends_with("1 slow"));
    daemon.push(Load::Panic);
    until(|| log(&daemon, &id).ends_with("2 checkpoint"));
    // From now on this PANIC has lasted for long enough.
    let policy = daemon.folder.write("short.toml", &always("0"));
    daemon.run(&["policy", "set", &policy]).exits(0);
    returned(&daemon, &id);
    assert!(log(&daemon, &id).ends_with("3 yield"));
    daemon.push(Load::Quiet);
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(job["result"]["from"], 2, "{job}");
    assert_eq!(job["attempts"], 1, "{job}");
}

/// Ends by TERM alone; when begun again, at once.
const DEAF: &str = "[ ! -e ended ] || exit 0; trap 'echo > ended; exit 0' TERM; echo $$ > zero; \
    while :; do sleep 0.01; done";

#[test]
fn a_program_that_does_not_yield_is_stopped_after_its_grace_and_its_job_waits_again() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("0", &[]);
    let _worker = Beside::start(&mut worker(&daemon, &["--yield-grace", "10ms"], DEAF));
    let id = submit(&daemon);
    let pid = pid_in(&daemon.folder.join("zero"));
    daemon.push(Load::Panic);
    returned(&daemon, &id);
    assert!(!lives(pid) && daemon.folder.join("ended").exists());
    daemon.push(Load::Quiet);
    daemon.run(&["wait", &id]).exits(0);
}

#[test]
fn a_program_that_never_yields_is_told_by_its_signal_and_goes_on() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("0", &[]);
    let script = "trap 'read advice <&$JOBTREE_ADVICE_FD; echo $advice' USR1; echo ready; \
        until [ -e go ]; do sleep 0.01; done";
    let options = ["--yield-grace", "never", "--advice-signal", "USR1"];
    let _worker = Beside::start(&mut worker(&daemon, &options, script));
    let id = submit(&daemon);
    until(|| log(&daemon, &id) == "ready");
    daemon.push(Load::Panic);
    until(|| log(&daemon, &id).ends_with("yield"));
    daemon.push(Load::Quiet);
    until(|| log(&daemon, &id).ends_with("continue"));
    daemon.folder.write("go", "");
    daemon.run(&["wait", &id]).exits(0);
    assert_eq!(log(&daemon, &id), "ready\nyield\ncontinue");
}

#[test]
fn a_program_is_told_that_the_daemon_drains_and_may_finish() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("0", &[]);
    let script = "read advice <&$JOBTREE_ADVICE_FD; echo $advice";
    let _worker = Beside::start(&mut worker(&daemon, &["--yield-grace", "10ms"], script));
    let id = submit(&daemon);
    until(|| daemon.job(&id)["state"] == "RUNNING");
    let client = jobtree_client::Client::builder(&daemon.url).token(daemon.token());
    client.build().unwrap().drain(true).unwrap();
    daemon.run(&["wait", &id]).exits(0);
    assert_eq!(log(&daemon, &id), "drain");
}

#[test]
fn a_command_of_the_runner_that_knows_nothing_of_advice_is_paused_and_then_begun_anew() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("1h", &["--runner"]);
    let arguments = ["run", "-q", "--yield-grace", "0", "--", "sh", "-c", DEAF];
    let mut run = Beside::start(daemon.command().args(arguments));
    let pid = pid_in(&daemon.folder.join("zero"));
    daemon.push(Load::Panic);
    // The shell, or the sleep that it waits for.
    until(|| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('T'))
    });
    let policy = daemon.folder.write("short.toml", &always("0"));
    daemon.run(&["policy", "set", &policy]).exits(0);
    until(|| daemon.folder.join("ended").exists() && !lives(pid));
    daemon.push(Load::Quiet);
    assert_eq!(run.wait(), Some(0), "the second run");
}

#[test]
fn a_command_of_the_runner_that_obeys_advice_is_not_paused_and_may_exit_with_75() {
    let _watchdog = watch();
    let (_folder, daemon) = daemon("0", &["--runner"]);
    let script = "[ ! -e saved ] || exit 0; echo $$ > zero; read advice <&$JOBTREE_ADVICE_FD; \
        echo $advice > saved; exit 75";
    let arguments = ["run", "-q", "--obeys-advice", "--", "sh", "-c", script];
    let mut run = Beside::start(daemon.command().args(arguments));
    pid_in(&daemon.folder.join("zero"));
    daemon.push(Load::Panic);
    until(|| daemon.folder.join("saved").exists());
    daemon.push(Load::Quiet);
    assert_eq!(run.wait(), Some(0), "the second run");
    // Of itself, the code is an error like others.
    daemon
        .run(&["run", "-q", "--", "sh", "-c", "exit 75"])
        .exits(75);
    daemon
        .run(&["run", "-q", "--advice-signal", "KILL", "--", "true"])
        .exits(2);
}
