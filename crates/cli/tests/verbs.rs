//! The verbs that change jobs, schedules and the store, each against a real daemon.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};
use support::snapshot::Story;
use support::{ALWAYS, Beside, Daemon, Ran, until, watch};

fn story(name: &'static str, daemon: &Daemon) -> Story {
    Story::new(name)
        .replacing(&daemon.url, "<URL>")
        .replacing(daemon.folder.0.to_str().unwrap(), "<DIR>")
}

fn with_runner() -> Daemon {
    Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"])
}

#[test]
fn a_queued_job_is_edited_and_another_is_refused() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("edit", &daemon);
    daemon.run(&["pause", "photos"]).exits(0);
    let id = daemon
        .run(&["submit", "photos", "index", "--tag", "old", "--after", "5h"])
        .text();
    let edit = |more: &[&str]| daemon.run(&[&["edit", &id], more].concat());
    edit(&[
        "--priority",
        "high",
        "--after",
        "none",
        "--deadline",
        "2099-01-01T00:00:00Z",
        "--add-tag",
        "new",
        "--remove-tag",
        "old",
    ])
    .exits(0);
    let job = daemon.job(&id);
    assert_eq!(job["priority"], "HIGH");
    assert_eq!(job["next_earliest_start_at"], Value::Null);
    assert_eq!(job["deadline_at"], "2099-01-01T00:00:00Z");
    assert_eq!(job["tags"], json!(["new"]));
    // It is found by its tags as they are now.
    let found = |tag: &str| {
        let list = daemon.run(&["ls", &format!("tag:{tag}"), "--json"]);
        list.exits(0).json()["jobs"].as_array().unwrap().len()
    };
    assert_eq!((found("old"), found("new")), (0, 1));
    let edited = job["events"].as_array().unwrap();
    let edited: Vec<_> = edited
        .iter()
        .filter(|event| event["event"] == "EDITED")
        .collect();
    assert_eq!(edited.len(), 1, "{job}");
    let reason = edited[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("priority HIGH") && reason.contains("tags new"),
        "{reason}"
    );
    // The same again changes nothing.
    let again = edit(&["--priority", "high", "--json"]).exits(0).json();
    assert_eq!(again["job_id"], id.as_str());
    let count = |job: &Value| job["events"].as_array().unwrap().len();
    assert_eq!(count(&daemon.job(&id)), count(&job));
    let mut tell = |arguments: &[&str], code| {
        story.add(&daemon.run(arguments).exits(code));
    };
    tell(&["edit", &id], 2);
    tell(&["edit", &id, "--after", "soon"], 2);
    tell(&["edit", &id, "--after", "2100-01-01T00:00:00Z"], 2);
    tell(&["edit", &id, "--priority", "urgent"], 2);
    daemon.run(&["cancel", &id]).exits(0);
    tell(&["edit", &id, "--priority", "low"], 6);
    tell(&["edit", "ffffffffffff", "--priority", "low"], 5);
    story.check();
}

#[test]
fn an_edited_priority_decides_what_starts_next() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    daemon.run(&["pause", "photos"]).exits(0);
    let ids = [(); 2].map(|()| {
        daemon
            .run(&["submit", "photos", "index", "--cost", "60"])
            .text()
    });
    daemon
        .run(&["edit", &ids[1], "--priority", "high"])
        .exits(0);
    daemon.run(&["resume", "photos"]).exits(0);
    let mut command = daemon.command();
    command
        .args(["work", "-q", "--addon", "photos", "--type", "index", "--"])
        .args(["sh", "-c", "echo $JOBTREE_JOB_ID >> order"]);
    let _worker = Beside::start(&mut command);
    daemon.run(&["wait", &ids[0], &ids[1]]).exits(0);
    let order = std::fs::read_to_string(daemon.folder.join("order")).unwrap();
    assert_eq!(order, format!("{}\n{}\n", ids[1], ids[0]));
}

/// A program that is not ready tells for how long by a line, or by its exit code alone.
#[test]
fn a_snoozed_job_waits_and_no_attempt_is_counted() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let worker = |options: &[&str], script: &str, stderr: &str| {
        let mut command = daemon.command();
        command
            .args(["work", "--addon", "photos", "--type", "index"])
            .args(options)
            .args(["--", "sh", "-c", script])
            .stderr(File::create(daemon.folder.join(stderr)).expect("a file"));
        Beside::start(&mut command)
    };
    for (number, options, script, least) in [
        (1, &[][..], "echo ::snooze 2h; exit 75", 7000),
        (2, &["--snooze", "3h"][..], "exit 75", 10_000),
    ] {
        let stderr = format!("worker{number}");
        let mut worker = worker(options, script, &stderr);
        let id = daemon.run(&["submit", "photos", "index"]).text();
        until(|| daemon.job(&id)["next_earliest_start_at"].is_string());
        support::signal("TERM", worker.pid());
        worker.wait();
        let job = daemon.job(&id);
        assert_eq!(
            (&job["state"], &job["attempts"]),
            (&"QUEUED".into(), &0.into())
        );
        let at: jiff::Timestamp = job["next_earliest_start_at"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        let seconds = at.duration_since(jiff::Timestamp::now()).as_secs();
        assert!((least..least + 1000).contains(&seconds), "{seconds}");
        assert_eq!(job["rescues"], 0);
        let told = std::fs::read_to_string(daemon.folder.join(&stderr)).unwrap();
        assert!(told.contains("given back for "), "{told}");
        assert_eq!(daemon.run(&["logs", &id]).text(), "");
        daemon.run(&["cancel", &id]).exits(0);
    }
}

#[test]
fn ended_jobs_are_forgotten_by_age_and_state() {
    let _watchdog = watch();
    // `policy set` writes the file that the daemon was started with.
    let folder = support::Folder::new();
    let file = folder.write("policy.toml", "");
    let daemon = Daemon::within(folder, &["--store", "memory", "--policy", &file]);
    daemon.run(&["pause", "photos"]).exits(0);
    let ids = [(); 3].map(|()| daemon.run(&["submit", "photos", "index"]).text());
    daemon.run(&["cancel", &ids[0], &ids[1]]).exits(0);
    let cleaned = |more: &[&str]| daemon.run(&[&["clean"], more].concat()).exits(0).stdout;
    assert!(cleaned(&[]).starts_with("forgot 0 jobs"));
    assert!(cleaned(&["--older-than", "1h"]).starts_with("forgot 0 jobs"));
    let document = daemon.run(&["clean", "--older-than", "1d", "--state", "done", "--json"]);
    assert_eq!(document.exits(0).json()["jobs"], 0);
    assert!(cleaned(&["--all"]).starts_with("forgot 2 jobs"));
    daemon.run(&["show", &ids[0]]).exits(5);
    // What has not ended stays.
    assert_eq!(daemon.job(&ids[2])["state"], "QUEUED");
    daemon.run(&["clean", "--state", "done"]).exits(2);
    daemon
        .run(&["clean", "--older-than", "1h", "--state", "queued"])
        .exits(2);
    // And by the policy's own numbers.
    let policy = "[retention]\ncanceled = \"1s\"\n";
    let policy = daemon.folder.write("new.toml", policy);
    daemon.run(&["policy", "set", &policy]).exits(0);
    daemon.run(&["cancel", &ids[2]]).exits(0);
    until(|| cleaned(&[]).starts_with("forgot 1 job,"));
    daemon.run(&["show", &ids[2]]).exits(5);
}

#[test]
fn a_schedule_of_a_command_runs_now_is_edited_and_shows_everything() {
    let _watchdog = watch();
    let daemon = with_runner();
    let mut story = story("schedules", &daemon);
    let mut tell = |arguments: &[&str], code| {
        let ran = daemon.run(arguments).exits(code);
        story.add(&ran);
        ran.stdout.trim().to_owned()
    };
    tell(
        &[
            "schedule",
            "add",
            "nightly",
            "0 3 1 1 *",
            "--zone",
            "Europe/Berlin",
            "--jitter",
            "10m",
            "--missed",
            "skip",
            "--no-overlap",
            "--cost",
            "5",
            "--attempts",
            "3",
            "--backoff",
            "1m",
            "--backoff-max",
            "10m",
            "--backoff-factor",
            "3",
            "--backoff-jitter",
            "0.5",
            "--tag",
            "backup",
            "--heavy",
            "disk",
            "--max-runtime",
            "2h",
            "--",
            "sh",
            "-c",
            "echo backup",
        ],
        0,
    );
    tell(&["schedule", "show", "nightly"], 0);
    let id = tell(&["schedule", "run-now", "nightly"], 0);
    assert_eq!(daemon.run(&["wait", &id]).exits(0).code, Some(0));
    assert_eq!(daemon.run(&["logs", &id]).text(), "backup");
    let shown = daemon
        .run(&["schedule", "show", "nightly", "--json"])
        .exits(0)
        .json();
    assert_eq!(shown["last_job"], id.as_str());
    assert!(shown["next_at"].is_string());
    assert_eq!(daemon.job(&id)["schedule_id"], shown["schedule_id"]);

    tell(
        &[
            "schedule",
            "edit",
            "nightly",
            "--name",
            "weekly",
            "--cron",
            "0 4 * * 1",
            "--overlap",
            "--priority",
            "low",
            "--",
            "sh",
            "-c",
            "sleep 1000",
        ],
        0,
    );
    let again = daemon
        .run(&["schedule", "show", "weekly", "--json"])
        .exits(0)
        .json();
    let (old, new) = (&shown["spec"]["job"], &again["spec"]["job"]);
    for kept in [
        "cost_units",
        "max_attempts",
        "backoff",
        "tags",
        "constraints",
    ] {
        assert_eq!(old[kept], new[kept], "{kept}");
    }
    assert_eq!(new["payload"]["cwd"], old["payload"]["cwd"]);
    tell(&["schedule", "edit", "weekly"], 2);
    tell(&["schedule", "edit", "weekly", "--no-overlap"], 0);
    let id = tell(&["schedule", "run-now", "weekly"], 0);
    tell(&["schedule", "run-now", "weekly"], 6);
    daemon.run(&["cancel", &id]).exits(0);
    tell(&["schedule", "ls"], 0);
    tell(&["schedule", "run-now", "none"], 5);
    tell(
        &["schedule", "add", "n", "* * * * *", "a", "t", "--", "true"],
        2,
    );
    story.check();
}

#[test]
fn show_prints_everything_that_was_submitted() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("show", &daemon);
    daemon.run(&["pause", "photos"]).exits(0);
    let first = daemon.run(&["submit", "photos", "index"]).text();
    let ran = daemon.run(&[
        "submit",
        "photos",
        "index",
        "--payload",
        "{\"a\":1}",
        "--cost",
        "7",
        "--priority",
        "high",
        "--now",
        "--after",
        "2099-01-01T00:00:00Z",
        "--deadline",
        "2099-01-02T00:00:00Z",
        "--drop-late",
        "--expect",
        "90s",
        "--max-runtime",
        "2h",
        "--attempts",
        "4",
        "--backoff",
        "30s",
        "--backoff-factor",
        "1",
        "--backoff-max",
        "1m",
        "--backoff-jitter",
        "0",
        "--tag",
        "x",
        "--tag",
        "y",
        "--key",
        "k",
        "--unique",
        "u",
        "--group",
        "g",
        "--group-limit",
        "2",
        "--depends-on",
        &first,
        "--on-dependency-failure",
        "run",
        "--heavy",
        "cpu",
        "--heavy",
        "memory",
        "--node",
        "local",
        "--label",
        "gpu",
    ]);
    let id = ran.text();
    let shown = daemon.run(&["show", &id]).exits(0);
    for part in [
        "HIGH",
        "7",
        "cpu, memory",
        "x, y",
        "2099-01-01 00:00:00",
        "2099-01-02 00:00:00",
        "it fails instead",
        "1m30s",
        "2h00m",
        "0 of 4",
        "30s, times 1 after each failure, 1m00s at most, 0 % of it drawn",
        "g, 2 at a time",
        "it runs all the same",
        "gpu",
        "in every state but PANIC",
        &first,
    ] {
        assert!(
            shown.stdout.contains(part),
            "{part:?} is not in\n{}",
            shown.stdout
        );
    }
    story.add(&shown);
    let job = daemon.job(&id);
    for (field, value) in [
        ("idempotency_key", json!("k")),
        ("unique_key", json!("u")),
        ("concurrency_key", json!("g")),
        ("concurrency_limit", json!(2)),
        ("late", json!("fail")),
        ("on_dependency_failure", json!("run")),
        ("required_node", json!("local")),
        ("required_labels", json!(["gpu"])),
        ("depends_on", json!([first])),
        ("earliest_start_at", json!("2099-01-01T00:00:00Z")),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    story.check();
    daemon
        .run(&["submit", "a", "t", "--backoff-factor", "0"])
        .exits(2);
}

/// By when jobs ended and where they ran, counted from those that are kept.
#[test]
fn statistics_are_for_a_window_of_time_and_a_machine() {
    let _watchdog = watch();
    let daemon = with_runner();
    for (code, script) in [(0, "true"), (1, "false")] {
        daemon.run(&["run", "-q", "--", script]).exits(code);
    }
    let ended = |more: &[&str]| {
        let ran = daemon.run(&[&["stats", "command", "--json"], more].concat());
        let document = ran.exits(0).json();
        let history = document["history"].as_array().unwrap();
        history
            .first()
            .map(|stats| (stats["ended"].clone(), stats["success_rate"].clone()))
    };
    let both = Some((2.into(), 0.5.into()));
    let last = daemon.job("last");
    let end = last["ended_at"].as_str().unwrap();
    for more in [&[][..], &["--since", "1h"], &["--node", "local"]] {
        assert_eq!(ended(more), both, "{more:?}");
    }
    assert_eq!(ended(&["--since", end]), Some((1.into(), 0.0.into())));
    assert_eq!(ended(&["--until", end]), Some((1.into(), 1.0.into())));
    for more in [&["--until", "1h"][..], &["--node", "elsewhere"]] {
        assert_eq!(ended(more), None, "{more:?}");
    }
    let nothing = daemon.run(&["stats", "--node", "elsewhere"]).exits(0);
    assert!(nothing.stderr.contains("none of the jobs"), "{nothing:?}");
    daemon.run(&["stats", "--since", "soon"]).exits(2);
}

/// The follow-up is a job of its own: it runs also after a failure, and knows what ended.
#[test]
fn a_command_runs_when_a_job_has_ended() {
    let _watchdog = watch();
    let daemon = with_runner();
    let told = daemon.folder.join("told");
    let id = daemon
        .run(&[
            "run",
            "-d",
            "--on-done",
            "echo $JOBTREE_ENDED_JOB > told",
            "--",
            "false",
        ])
        .text();
    daemon.run(&["wait", &id]).exits(1);
    until(|| std::fs::read_to_string(&told).is_ok_and(|text| text.ends_with('\n')));
    assert_eq!(std::fs::read_to_string(&told).unwrap().trim(), id);
    let list = daemon.run(&["ls", "tag:on-done", "--json"]).exits(0).json();
    let follow_up = &list["jobs"][0];
    assert_eq!(follow_up["depends_on"], json!([id]));
    // A repeated submission has the follow-up of the first.
    for _ in 0..2 {
        daemon
            .run(&["submit", "a", "t", "--key", "k", "--on-done", "true"])
            .exits(0);
    }
    let list = daemon.run(&["ls", "tag:on-done", "--json"]).exits(0).json();
    assert_eq!(list["jobs"].as_array().unwrap().len(), 2, "{list}");
}

#[test]
fn a_webhook_is_added_called_listed_and_removed() {
    let _watchdog = watch();
    let daemon = with_runner();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let mut story = story("webhooks", &daemon).replacing(&url, "<HOOK>");
    let secret = daemon.folder.write("secret", "0123456789abcdef\n");
    story.add(&daemon.run(&["webhook", "ls"]).exits(0));
    story.add(&daemon.run(&["webhook", "add", &url]).exits(2));
    let add = [
        "webhook",
        "add",
        &url,
        "--event",
        "done",
        "--secret-file",
        &secret,
    ];
    story.add(&daemon.run(&add).exits(0));
    story.add(&daemon.run(&["webhook", "ls"]).exits(0));
    let listed = daemon.run(&["webhook", "ls", "--json"]).exits(0).json();
    assert_eq!(listed["webhooks"][0]["events"], json!(["DONE"]));
    assert!(!listed.to_string().contains("0123456789abcdef"));
    daemon.run(&["run", "-q", "--", "true"]).exits(0);
    let (mut called, _) = listener.accept().unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(called.try_clone().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.starts_with("POST /hook "), "{line}");
    called
        .write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
        .unwrap();
    drop(called.shutdown(std::net::Shutdown::Write));
    let _ = reader.read(&mut [0; 4096]);
    until(|| {
        let listed = daemon.run(&["webhook", "ls", "--json"]).exits(0).json();
        listed["webhooks"][0]["delivered"] == 1
    });
    story.add(
        &daemon
            .run(&["webhook", "add", &url, "--event", "EATEN"])
            .exits(2),
    );
    story.add(&daemon.run(&["webhook", "rm", &url]).exits(0));
    story.add(&daemon.run(&["webhook", "rm", &url]).exits(5));
    story.check();
}

#[test]
fn every_exit_code_is_in_the_table_of_the_documentation() {
    let help = Ran::of(&mut support::Folder::new().command(), &["--help"]).text();
    let documented = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/exit-codes.md");
    let documented = std::fs::read_to_string(documented).expect("the table");
    let rows: Vec<(&str, &str)> = documented
        .lines()
        .filter_map(|line| {
            let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
            let code = cells.next()?.trim_matches(['|', ' ']);
            Some((code, cells.next()?))
        })
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    let in_help: Vec<(&str, &str)> = help
        .lines()
        .skip_while(|line| !line.starts_with("Exit codes:"))
        .filter_map(|line| line.strip_prefix("  ")?.split_once("  "))
        .map(|(code, meaning)| (code.trim(), meaning.trim()))
        .filter(|(code, _)| code.parse::<u8>().is_ok())
        .collect();
    assert!(in_help.len() >= 11, "{help}");
    assert_eq!(rows, in_help, "docs/exit-codes.md against `jobtree --help`");
}

/// Stands still, goes on, and says why meanwhile.
#[test]
fn a_running_command_is_paused_and_resumed() {
    let _watchdog = watch();
    let daemon = with_runner();
    let script = "echo $$ > pid; until [ -e go ]; do :; done";
    let id = daemon.run(&["run", "-d", "--", "sh", "-c", script]).text();
    let pid = support::pid_in(&daemon.folder.join("pid"));
    let stands = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    daemon
        .run(&["pause", "--job", "last", "--reason", "the disk is needed"])
        .exits(0);
    until(stands);
    let paused = "The run of the job is paused by the admin of this machine: the disk is needed";
    until(|| {
        let told = daemon.run(&["explain", &id]).text();
        told.starts_with(&format!("run_paused: {paused}"))
    });
    let told = daemon.run(&["explain", &id]).text();
    assert!(
        told.contains(&format!("until it is resumed (jobtree resume --job {id})")),
        "{told}"
    );
    assert!(
        daemon
            .run(&["ls"])
            .text()
            .contains("The run of the job is paused by the admin of this machine")
    );
    daemon.run(&["resume", "--job", &id]).exits(0);
    until(|| !stands());
    // The job's trail has both.
    let trail = daemon.run(&["show", &id, "--events"]).text();
    let line = |kind: &str| trail.lines().find(|line| line.contains(kind));
    let told = line(" PAUSED").unwrap_or_else(|| panic!("{trail}"));
    assert!(
        told.contains("by the admin of this machine: the disk is needed"),
        "{told}"
    );
    assert!(
        line(" RESUMED").is_some_and(|line| line.contains("by the admin")),
        "{trail}"
    );
    daemon.folder.write("go", "");
    daemon.run(&["wait", &id]).exits(0);
    // What does not run is not paused.
    let refused = daemon.run(&["pause", "--job", &id]).exits(6);
    assert!(refused.stderr.contains("is DONE"), "{refused:?}");
    daemon.run(&["pause", "photos", "--job", &id]).exits(2);
    daemon
        .run(&["pause", "--job", &id, "--type", "index"])
        .exits(2);
}

/// A program of `jobtree work` stands still as a command of `jobtree run` does, and its worker says so.
#[test]
fn a_program_of_a_worker_is_paused_and_resumed() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let mut worker = daemon.command();
    let script = "echo $$ > pid; until [ -e go ]; do :; done";
    let program = [
        "work", "--addon", "photos", "--type", "index", "--", "sh", "-c", script,
    ];
    worker
        .args(program)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _worker = Beside::start(&mut worker);
    let pid = support::pid_in(&daemon.folder.join("pid"));
    let stands = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.starts_with('T')
    };
    let told = || daemon.run(&["explain", &id]).text();
    until(|| daemon.job(&id)["state"] == "RUNNING");
    daemon.run(&["pause", "--job", &id]).exits(0);
    until(|| {
        told().starts_with("run_paused: The run of the job is paused by the admin of this machine")
    });
    assert!(stands());
    daemon.run(&["resume", "--job", &id]).exits(0);
    until(|| !stands());
    daemon.folder.write("go", "");
    daemon.run(&["wait", &id]).exits(0);
}
