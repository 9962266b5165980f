//! Workers whose handler is a program: what it gets and gives, how it is stopped, and that nothing of it is left when its
//! worker is killed.

mod support;

use std::process::Command;

use jiff::{SignedDuration, Timestamp};
use support::{Beside, Daemon, Ran, lives, pid_in, signal, until, watch};

/// `jobtree work` for this daemon, with a shell script.
fn worker(daemon: &Daemon, options: &[&str], script: &str) -> Command {
    let mut command = daemon.command();
    command
        .args(["work", "-q", "--addon", "photos", "--type", "index"])
        .args(options)
        .args(["--", "sh", "-c", script]);
    command
}

fn submit(daemon: &Daemon, more: &[&str]) -> String {
    let mut arguments = vec!["submit", "photos", "index"];
    arguments.extend(more);
    daemon.run(&arguments).text()
}

/// How long a lease holds, by the policy of the tests.
const TTL: SignedDuration = SignedDuration::from_secs(5);

/// Ignores TERM, as does one in the background, and one in a session of its own.
const STUBBORN: &str = "trap '' TERM; \
    sh -c 'trap \"\" TERM; echo $$ > one; while :; do sleep 1; done' & \
    setsid sh -c 'trap \"\" TERM; echo $$ > two; while :; do sleep 1; done' & \
    echo $$ > zero; while :; do sleep 1; done";

fn family(daemon: &Daemon) -> [u32; 3] {
    ["zero", "one", "two"].map(|name| pid_in(&daemon.folder.join(name)))
}

#[test]
fn a_program_gets_the_payload_and_gives_progress_log_and_result() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script = "read payload; [ \"$payload\" = \"$JOBTREE_PAYLOAD\" ] || exit 1; \
        echo \"$JOBTREE_ADDON/$JOBTREE_JOB_TYPE $JOBTREE_JOB_ID attempt $JOBTREE_ATTEMPT\"; \
        [ -z \"$JOBTREE_TOKEN\" ] || exit 1; echo careful >&2; \
        echo '::progress 0.5 half way'; until [ -e go ]; do sleep 0.01; done; echo '::result {\"seen\": 7}'";
    let mut command = worker(&daemon, &[], script);
    command.env("JOBTREE_TOKEN", daemon.token());
    let _worker = Beside::start(&mut command);
    let id = submit(&daemon, &["--payload", "{\"album\": 7}"]);
    until(|| daemon.job(&id)["progress"]["message"] == "half way");
    daemon.folder.write("go", "");
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(job["result"]["seen"], 7, "{job}");
    let log = daemon.run(&["logs", &id]).text();
    let expected = format!("photos/index {id} attempt 1");
    assert!(log.lines().any(|line| line == expected), "{log}");
    assert!(log.lines().any(|line| line == "careful"), "{log}");
}

#[test]
fn what_a_program_tells_last_is_known_when_its_job_has_ended() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script = "echo '::progress 0.9 nearly'; printf '::progress 1 all of it'";
    let _worker = Beside::start(&mut worker(&daemon, &[], script));
    for _ in 0..3 {
        let id = submit(&daemon, &[]);
        daemon.run(&["wait", &id]).exits(0);
        let job = daemon.job(&id);
        assert_eq!(job["progress"]["fraction"], 1.0, "{job}");
        assert_eq!(job["progress"]["message"], "all of it", "{job}");
    }
}

/// By the default of the policy jobs are dispatched, and wait for half a minute to be taken up.
/// An addon polls, so that its jobs are reserved, and then its worker claims: the claim accepts the reservations.
#[test]
fn jobs_that_were_reserved_before_their_worker_came_do_not_wait() {
    let _watchdog = watch();
    let folder = support::Folder::new();
    let policy = std::fs::read_to_string(support::ALWAYS).unwrap();
    let policy = policy.replace("[dispatch]", "[dispatch]\ntake_up = \"1h\"");
    let policy = folder.write("dispatch.toml", &policy);
    let daemon = Daemon::with(&["--store", "memory", "--policy", &policy]);
    // Together they are no more than may start between two measurements.
    let ids = [(); 2].map(|()| submit(&daemon, &[]));
    let polled = Command::new("curl")
        .args(["--silent", "--show-error", "--fail-with-body"])
        .args([
            "--header",
            &format!("Authorization: Bearer {}", daemon.token()),
        ])
        .arg(format!(
            "{}/api/system/scheduler/queue/dispatchable",
            daemon.url
        ))
        .output()
        .expect("curl is there");
    assert!(polled.status.success(), "{polled:?}");
    for id in &ids {
        assert_eq!(daemon.job(id)["state"], "DISPATCHING");
    }
    let _worker = Beside::start(&mut worker(&daemon, &[], "true"));
    for id in &ids {
        daemon.run(&["wait", id]).exits(0);
    }
}

#[test]
fn a_program_is_a_step_of_the_trace_that_its_job_was_submitted_in() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = Beside::start(&mut worker(&daemon, &[], "echo \"trace $TRACEPARENT\""));
    let mut command = daemon.command();
    let submitted = command.env("TRACEPARENT", TRACE);
    let id = Ran::of(submitted, &["submit", "photos", "index"]).text();
    daemon.run(&["wait", &id]).exits(0);
    assert_eq!(daemon.job(&id)["traceparent"], TRACE);
    let log = daemon.run(&["logs", &id]).text();
    assert_eq!(log, format!("trace {TRACE}"));
    // Without one, the job is a trace of its own.
    let id = submit(&daemon, &[]);
    daemon.run(&["wait", &id]).exits(0);
    let own = format!("trace 00-{}-", id.replace('-', ""));
    let log = daemon.run(&["logs", &id]).text();
    assert!(log.starts_with(&own), "{log}");
}

#[test]
fn exit_codes_become_ends() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script = "read n; echo \"run $JOBTREE_ATTEMPT\" >&2; case $n in \
        0) exit 0;; 1) [ $JOBTREE_ATTEMPT = 2 ];; 65) exit 65;; 9) kill -9 $$;; \
        75) [ -e given ] || { touch given; exit 75; };; esac";
    let _worker = Beside::start(&mut worker(&daemon, &["--slots", "4"], script));
    let ended = |payload: &str, attempts: &str, code: i32| {
        let id = submit(&daemon, &["--payload", payload, "--attempts", attempts]);
        daemon.run(&["retry", &id]);
        until(|| {
            // A failed attempt waits for some seconds before the next: not here.
            daemon.run(&["retry", &id]);
            daemon.run(&["wait", "-q", &id, "--timeout", "50ms"]).code != Some(12)
        });
        daemon.run(&["wait", "-q", &id]).exits(code);
        daemon.job(&id)
    };
    assert_eq!(ended("0", "1", 0)["attempts"], 1);
    assert_eq!(ended("1", "3", 0)["attempts"], 2);
    let failed = ended("65", "3", 65);
    assert_eq!(
        failed["attempts"], 1,
        "no further attempt mends it: {failed}"
    );
    assert_eq!(failed["last_error"], "exit code 65: run 1");
    assert_eq!(
        ended("9", "1", 137)["last_error"],
        "ended by signal 9: run 1"
    );
    let given_back = ended("75", "1", 0);
    assert_eq!(
        given_back["attempts"], 1,
        "what was given back is not counted: {given_back}"
    );
}

#[test]
fn a_cancelled_job_takes_all_its_processes_with_it() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = Beside::start(&mut worker(&daemon, &["--grace", "50ms"], STUBBORN));
    let id = submit(&daemon, &[]);
    let family = family(&daemon);
    daemon.run(&["cancel", &id]).exits(0);
    daemon.run(&["wait", &id]).exits(11);
    until(|| !family.iter().any(|&pid| lives(pid)));
}

#[test]
fn a_job_that_takes_too_long_is_stopped() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = Beside::start(&mut worker(&daemon, &["--grace", "1h"], STUBBORN));
    let id = submit(&daemon, &["--max-runtime", "1s"]);
    let family = family(&daemon);
    daemon.run(&["wait", &id]).exits(10);
    until(|| !family.iter().any(|&pid| lives(pid)));
}

/// It cannot renew its lease, so it stops its job by itself, whatever grace was promised.
#[test]
fn a_worker_that_lost_its_daemon_stops_its_job() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = Beside::start(&mut worker(&daemon, &["--grace", "1h"], STUBBORN));
    submit(&daemon, &[]);
    let family = family(&daemon);
    signal("STOP", daemon.pid());
    until(|| !family.iter().any(|&pid| lives(pid)));
    signal("CONT", daemon.pid());
}

#[test]
fn a_worker_that_is_killed_leaves_nothing_behind_and_its_job_is_rescued_in_time() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let mut first = Beside::start(&mut worker(&daemon, &[], STUBBORN));
    let id = submit(&daemon, &[]);
    let family = family(&daemon);
    assert!(family.iter().all(|&pid| lives(pid)));
    // The next one is there already.
    let _second = Beside::start(&mut worker(&daemon, &[], "echo again"));
    first.0.kill().unwrap();
    first.wait();
    let killed = Timestamp::now();
    until(|| !family.iter().any(|&pid| lives(pid)));

    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(
        (&job["rescues"], &job["attempts"]),
        (&1.into(), &1.into()),
        "{job}"
    );
    // The one time that is promised: its lease's, and two seconds.
    let began: Timestamp = job["started_at"].as_str().unwrap().parse().unwrap();
    let rescued = began.duration_since(killed);
    assert!(
        rescued <= TTL + SignedDuration::from_secs(2),
        "{rescued}: {job}"
    );
}

#[test]
fn a_worker_that_is_asked_to_end_lets_its_job_end() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script = "echo $$ > zero; until [ -e go ]; do sleep 0.01; done; echo done";
    let mut worker = Beside::start(&mut worker(&daemon, &[], script));
    let id = submit(&daemon, &[]);
    pid_in(&daemon.folder.join("zero"));
    signal("TERM", worker.pid());
    // It takes nothing new.
    let later = submit(&daemon, &[]);
    daemon.folder.write("go", "");
    assert_eq!(worker.wait(), Some(0));
    daemon.run(&["wait", &id]).exits(0);
    assert_eq!(daemon.job(&later)["state"], "QUEUED", "nobody claims it");
}

#[test]
fn a_worker_that_may_not_wait_gives_its_job_back() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let options = ["--drain", "10ms", "--grace", "50ms"];
    let mut worker = Beside::start(&mut worker(&daemon, &options, STUBBORN));
    let id = submit(&daemon, &[]);
    let family = family(&daemon);
    signal("TERM", worker.pid());
    assert_eq!(worker.wait(), Some(0));
    until(|| !family.iter().any(|&pid| lives(pid)));
    let job = daemon.job(&id);
    assert_eq!(
        (&job["state"], &job["attempts"]),
        (&"QUEUED".into(), &0.into()),
        "{job}"
    );
}

#[test]
fn a_worker_and_its_job_outlast_a_daemon_that_crashes() {
    let _watchdog = watch();
    let mut daemon = Daemon::with(&["--policy", support::ALWAYS]);
    let script = "echo $$ >> runs; echo $$ > zero; until [ -e go ]; do sleep 0.01; done; echo done";
    let _worker = Beside::start(&mut worker(&daemon, &[], script));
    let id = submit(&daemon, &[]);
    pid_in(&daemon.folder.join("zero"));
    assert_eq!(daemon.ends_and_returns("KILL"), None);
    daemon.folder.write("go", "");
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    assert_eq!(
        (&job["rescues"], &job["attempts"]),
        (&0.into(), &1.into()),
        "{job}"
    );
    let runs = std::fs::read_to_string(daemon.folder.join("runs")).unwrap();
    assert_eq!(runs.lines().count(), 1, "{runs}");
    // It takes the next one, too.
    let id = submit(&daemon, &[]);
    daemon.run(&["wait", &id]).exits(0);
}

#[test]
fn ctrl_c_on_a_command_stops_its_job() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", support::ALWAYS, "--runner"]);
    let mut run = Beside::start(daemon.command().args([
        "run",
        "-q",
        "--",
        "sh",
        "-c",
        "echo $$ > zero; sleep 1000",
    ]));
    let pid = pid_in(&daemon.folder.join("zero"));
    signal("INT", run.pid());
    assert_eq!(run.wait(), Some(11));
    until(|| !lives(pid));
}

#[test]
fn a_command_of_the_runner_is_a_step_of_its_jobs_trace() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const OTHER: &str = "00-aaaabbbbccccddddeeeeffff00001111-00f067aa0ba902b7-00";
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", support::ALWAYS, "--runner"]);
    let told = |traced: Option<&str>, more: &[&str]| {
        let mut command = daemon.command();
        if let Some(trace) = traced {
            command.env("TRACEPARENT", trace);
        }
        let mut arguments = vec!["run", "-q"];
        arguments.extend(more);
        arguments.extend(["--", "sh", "-c", "echo $JOBTREE_JOB_ID $TRACEPARENT"]);
        let told = Ran::of(&mut command, &arguments).text();
        let (id, trace) = told.split_once(' ').expect("both are there");
        (id.to_owned(), trace.to_owned())
    };
    let (id, trace) = told(Some(TRACE), &[]);
    assert_eq!(trace, TRACE);
    assert_eq!(daemon.job(&id)["traceparent"], TRACE);
    // Without one, the job is a trace of its own.
    let (id, trace) = told(None, &[]);
    let own = format!("00-{}-", id.replace('-', ""));
    assert!(trace.starts_with(&own), "{trace} does not begin with {own}");
    // Whoever names one for the command means it.
    let (_, trace) = told(Some(TRACE), &["--env", &format!("TRACEPARENT={OTHER}")]);
    assert_eq!(trace, OTHER);
}

#[test]
#[cfg(target_os = "linux")]
fn what_a_program_uses_is_shown_beside_what_its_job_declares() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let _worker = Beside::start(&mut worker(&daemon, &[], script));
    let id = submit(&daemon, &["--cost", "7"]);
    daemon.run(&["wait", &id]).exits(0);
    let job = daemon.job(&id);
    let cpu_ms = job["metrics"]["used_cpu_ms"].as_f64().unwrap_or_default();
    assert!(cpu_ms > 0.0, "{job}");

    let stats = daemon.run(&["stats", "index", "--json"]).text();
    let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
    let usage = &stats["history"][0]["usage"];
    assert_eq!(usage["runs"], 1, "{stats}");
    let near = |value: &serde_json::Value, expected: f64| {
        let value = value.as_f64().unwrap_or_default();
        (value / expected - 1.0).abs() < 0.05
    };
    assert!(near(&usage["declared_cost"], 7.0), "{stats}");
    assert!(near(&usage["cpu_sec"], cpu_ms / 1000.0), "{stats}");
    assert!(usage["measured_cost"].as_f64() > Some(0.0), "{stats}");
    assert_eq!(usage.get("cost_factor"), None, "one run teaches nothing");
    let table = daemon.run(&["stats"]).text();
    assert!(
        table.contains("MEASURED") && table.contains("index"),
        "{table}"
    );
    let nothing = daemon.run(&["stats", "other"]).text();
    assert!(!nothing.contains("index"), "{nothing}");

    let explained = daemon.run(&["explain", &id]).text();
    let line = explained.lines().find(|line| line.starts_with("cost: "));
    let line = line.unwrap_or_else(|| panic!("{explained}"));
    assert!(line.starts_with("cost: 7 declared, "), "{line}");
    assert!(line.ends_with("measured in 1 runs of its type"), "{line}");
}
