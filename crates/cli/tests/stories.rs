//! The command as somebody types it, against a daemon: what is printed, where, and with which exit code.

mod support;

use support::snapshot::Story;
use support::{ALWAYS, Daemon, Folder, Ran, watch};

/// A story whose commands run against a daemon.
fn story(name: &'static str, daemon: &Daemon) -> Story {
    Story::new(name)
        .replacing(&daemon.url, "<URL>")
        .replacing(daemon.folder.0.to_str().unwrap(), "<DIR>")
}

const NOBODY: &str = "019a0000-0000-7000-8000-000000000000";

#[test]
fn help() {
    let _watchdog = watch();
    let folder = Folder::new();
    let mut story = Story::new("help").exactly();
    for arguments in [
        &["--help"][..],
        &["run", "--help"],
        &["ls", "--help"],
        &["work", "--help"],
        &["serve", "--help"],
    ] {
        story.add(&Ran::of(&mut folder.command(), arguments).exits(0));
    }
    story.check();
}

#[test]
fn without_a_daemon() {
    let _watchdog = watch();
    let folder = Folder::new();
    let mut story = Story::new("without_a_daemon").replacing(folder.0.to_str().unwrap(), "<DIR>");
    let mut tell = |arguments: &[&str], code| {
        story.add(&Ran::of(&mut folder.command(), arguments).exits(code));
    };
    tell(&["ls"], 3);
    tell(&["submit", "photos", "index"], 3);
    tell(&["watch"], 3);
    tell(&["work", "--addon", "a", "--type", "t", "--", "true"], 3);
    tell(&["show", "nothing"], 2);
    tell(&["ls", "colour:red"], 2);
    tell(&["ls", "--limit", "many"], 2);
    tell(&["submit", "a", "t", "--payload", "{"], 2);
    tell(&["submit", "a", "t", "--after", "soon"], 2);
    tell(&["submit", "a"], 2);
    tell(&["work", "--type", "t", "--", "true"], 2);
    tell(&["serve", "--listen", "here"], 2);
    tell(&["serve", "--store", "cloud"], 2);
    tell(&["serve", "--listen", "0.0.0.0:0"], 1);
    tell(&["--url", "ftp://x", "ls"], 2);
    tell(&["--config", "absent.toml", "ls"], 2);
    tell(&["top", "--once"], 3);
    tell(&["audit", "check"], 2);
    tell(&["move-store", "--from", "absent.db", "--to", "new.db"], 2);
    story.check();
}

#[test]
fn settings_and_their_origins() {
    let _watchdog = watch();
    let folder = Folder::new();
    let file = folder.write(
        "settings.toml",
        "addon = \"photos\"\nlisten = \"127.0.0.1:9\"\n",
    );
    let mut story = Story::new("settings").replacing(folder.0.to_str().unwrap(), "<DIR>");
    let mut command = folder.command();
    command
        .env("JOBTREE_TOKEN", "very-secret")
        .env("JOBTREE_STORE", "postgres://me:secret@host/db");
    story.add(
        &Ran::of(
            &mut command,
            &[
                "config",
                "show",
                "--origin",
                "--config",
                &file,
                "--url",
                "http://other",
            ],
        )
        .exits(0),
    );
    story.add(&Ran::of(&mut folder.command(), &["config", "show", "--json"]).exits(0));
    let wrong = folder.write("wrong.toml", "urls = \"x\"\n");
    story.add(
        &Ran::of(
            &mut folder.command(),
            &["config", "show", "--config", &wrong],
        )
        .exits(2),
    );
    story.check();
}

#[test]
fn the_life_of_a_job() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("life_of_a_job", &daemon);
    let mut tell = |arguments: &[&str], code| {
        let ran = daemon.run(arguments).exits(code);
        story.add(&ran);
        ran.stdout.trim().to_owned()
    };
    tell(&["ls"], 0);
    tell(&["pause", "photos", "--reason", "tidying up"], 0);
    tell(&["pause"], 0);
    let id = tell(
        &[
            "submit",
            "photos",
            "index",
            "--payload",
            "{\"album\": 7}",
            "--tag",
            "summer",
            "--cost",
            "20",
            "--key",
            "album-7",
        ],
        0,
    );
    tell(
        &[
            "submit",
            "photos",
            "index",
            "--payload",
            "{\"album\": 7}",
            "--tag",
            "summer",
            "--cost",
            "20",
            "--key",
            "album-7",
        ],
        0,
    );
    tell(&["submit", "photos", "index", "--key", "album-7"], 6);
    tell(&["submit", "photos", "", "--cost", "500"], 2);
    tell(&["ls", "state:waiting", "addon:photos"], 0);
    tell(&["ls", "state:done"], 0);
    tell(&["show", &id], 0);
    tell(&["show", NOBODY], 5);
    tell(&["wait", &id, "--timeout", "10ms"], 12);
    tell(&["cancel", &id, "--reason", "no longer wanted"], 0);
    tell(&["wait", &id], 11);
    tell(&["explain", &id], 0);
    tell(&["logs", &id], 0);
    tell(&["logs", "-f", &id], 0);
    tell(&["show", &id, "--events"], 0);
    tell(&["cancel", &id], 0);
    tell(&["redrive", &id], 0);
    tell(&["cancel", "--filter", "addon:photos tag:summer"], 0);
    tell(&["resume", "photos"], 0);
    tell(&["resume", "photos"], 6);
    tell(&["kick"], 0);
    story.check();
}

#[test]
fn a_waiting_job_says_why() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    daemon.run(&["pause", "photos"]).exits(0);
    let id = daemon
        .run(&["submit", "photos", "index", "--after", "1h"])
        .text();
    let told = daemon.run(&["explain", &id]).exits(0);
    assert!(
        told.stdout.contains("until its addon is resumed"),
        "{told:?}"
    );
    let json = daemon.run(&["explain", &id, "--json"]).exits(0).json();
    let codes: Vec<&str> = json["reasons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|reason| reason["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["not_yet", "addon_paused", "unserved"], "{json}");
}

#[test]
fn json_has_a_version_and_the_interfaces_names() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("json", &daemon);
    daemon.run(&["pause", "photos"]).exits(0);
    let mut tell = |arguments: &[&str]| {
        let ran = daemon.run(arguments).exits(0);
        for line in ran
            .stdout
            .lines()
            .filter(|line| line.starts_with('{') && line.ends_with('}'))
        {
            let read: serde_json::Value = serde_json::from_str(line).expect("a line of JSON");
            assert_eq!(read["version"], 1);
        }
        story.add(&ran);
        ran
    };
    let submitted = tell(&["submit", "photos", "index", "--tag", "x", "--json"]).json();
    let id = submitted["job_id"].as_str().unwrap().to_owned();
    tell(&["ls", "tag:x", "--json"]).json();
    tell(&["ls", "--all", "--json"]);
    tell(&["pause", "--json"]).json();
    tell(&[
        "watch", "--job", &id, "--after", "0", "--count", "1", "--json",
    ]);
    tell(&["cancel", &id, "--json"]);
    tell(&["schedule", "ls", "--json"]).json();
    tell(&["lease", "ls", "--json"]).json();
    tell(&["token", "ls", "--json"]).json();
    story.check();
}

#[test]
fn many_jobs_at_once() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let lines: String = (0..1200)
        .map(|number| {
            format!(
                "{{\"addon_id\":\"bulk\",\"job_type\":\"t{}\",\"cost_units\":1}}\n",
                number % 2
            )
        })
        .collect();
    let file = daemon.folder.write("jobs.ndjson", &lines);
    let ids = daemon.run(&["submit", "--file", &file]).text();
    assert_eq!(ids.lines().count(), 1200);
    let listed = daemon.run(&["ls", "--all", "type:t1"]).text();
    assert_eq!(listed.lines().count(), 601);
    let page = daemon
        .run(&["ls", "--limit", "700", "--json"])
        .exits(0)
        .json();
    assert_eq!(page["jobs"].as_array().unwrap().len(), 700);
    assert!(page["next"].is_string());

    let wrong = daemon.folder.write("wrong.ndjson", "{\"addon_id\":\"bulk\",\"job_type\":\"t\",\"cost_units\":1}\n{\"addon_id\":\"bulk\",\"job_type\":\"t\",\"cost_units\":0}\n");
    let ran = daemon.run(&["submit", "--file", &wrong]).exits(1);
    assert_eq!(ran.stdout.lines().count(), 1, "{ran:?}");
    assert!(ran.stderr.contains("cost_units"), "{ran:?}");
    let no_job = daemon.folder.write("no_job.ndjson", "{\n");
    daemon.run(&["submit", "--file", &no_job]).exits(2);
}

#[test]
fn schedules_tokens_leases_and_the_policy() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let mut story = story("operating", &daemon);
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
            "0 3 * * *",
            "photos",
            "index",
            "--zone",
            "Europe/Berlin",
            "--no-overlap",
        ],
        0,
    );
    tell(
        &["schedule", "add", "nightly", "0 4 * * *", "photos", "index"],
        6,
    );
    tell(
        &["schedule", "add", "odd", "61 * * * *", "photos", "index"],
        2,
    );
    tell(&["schedule", "ls"], 0);
    tell(&["schedule", "pause", "nightly"], 0);
    tell(&["schedule", "resume", "nightly"], 0);
    tell(&["schedule", "rm", "nightly"], 0);
    tell(&["schedule", "show", "nightly"], 5);
    tell(&["schedule", "show", NOBODY], 5);

    tell(
        &[
            "token",
            "create",
            "reader",
            "--scope",
            "read",
            "--addon",
            "photos",
            "--expires",
            "30d",
        ],
        0,
    );
    tell(&["token", "create", "reader", "--scope", "everything"], 2);
    tell(&["token", "ls"], 0);
    tell(&["token", "rm", NOBODY], 5);

    let lease = tell(&["lease", "request", "photos", "sync", "--cost", "30"], 0);
    tell(&["lease", "request", "photos", "sync", "--cost", "90"], 6);
    tell(&["lease", "heartbeat", &lease], 0);
    tell(&["lease", "ls"], 0);
    tell(&["lease", "release", &lease], 0);
    tell(&["lease", "heartbeat", &lease], 6);
    tell(&["lease", "show", NOBODY], 5);

    let wrong = daemon
        .folder
        // Both are only checked.
        .write("wrong.toml", "[quiet]\nquiet_max = 12\n");
    let other = daemon
        .folder
        // As above.
        .write("other.toml", "[quiet]\nquiet_max = 1.5\n");
    tell(&["policy", "validate", &wrong], 2);
    tell(&["policy", "validate", &other], 0);
    tell(&["policy", "set", &wrong], 2);
    story.check();
}

#[test]
fn a_policy_that_was_set_is_the_one_in_force() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory"]);
    let other = daemon
        .folder
        // Another one than the default, to be known again; no job is to start.
        .write("other.toml", "[quiet]\nquiet_max = 1.5\n");
    daemon.run(&["policy", "set", &other]).exits(0);
    let shown = daemon.run(&["policy", "show", "--json"]).exits(0).json();
    assert_eq!(shown["policy"]["quiet"]["quiet_max"], 1.5);
    let built_in = daemon
        .run(&["policy", "show", "--default", "--json"])
        .exits(0)
        .json();
    assert_eq!(built_in["policy"]["quiet"]["quiet_max"], 2.0);
}

#[test]
fn a_token_opens_what_it_is_for_and_nothing_else() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("tokens", &daemon);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let token = daemon
        .run(&[
            "token", "create", "reader", "--scope", "read", "--addon", "music", "-q",
        ])
        .text();
    let mut tell = |token: &str, arguments: &[&str], code| {
        let mut command = daemon.command();
        command.env("JOBTREE_TOKEN", token);
        story.add(&Ran::of(&mut command, arguments).exits(code));
    };
    tell("wrong", &["ls"], 4);
    tell(&token, &["ls"], 0);
    tell(&token, &["show", &id], 5);
    tell(&token, &["submit", "music", "play"], 4);
    tell(&token, &["token", "ls"], 4);
    tell(&token, &["dashboard", "--at", "jobs.example"], 2);
    let mut command = daemon.command();
    let nowhere = daemon.folder.join("nowhere");
    command.env("JOBTREE_DATA_DIR", &nowhere);
    story.add(&Ran::of(&mut command, &["ls"]).exits(4));
    story.check();
}

#[test]
fn commands_run_and_exit_as_they_do() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let mut story = story("run", &daemon);
    let mut tell = |arguments: &[&str], code| {
        let ran = daemon.run(arguments).exits(code);
        story.add(&ran);
        ran.stdout.trim().to_owned()
    };
    tell(&["run", "--", "echo", "hello   world", "$HOME"], 0);
    tell(
        &["run", "-q", "--", "sh", "-c", "echo gone wrong >&2; exit 3"],
        3,
    );
    tell(&["run", "-q", "--", "sh", "-c", "kill -9 $$"], 137);
    tell(
        &[
            "run",
            "-q",
            "--env",
            "COLOUR=blue",
            "--",
            "sh",
            "-c",
            "echo $COLOUR $JOBTREE_TOKEN",
        ],
        0,
    );
    tell(&["run", "--", "./no-such-program"], 127);
    tell(&["run", "-q", "--cwd", "/no/such/folder", "--", "true"], 10);
    tell(
        &[
            "run",
            "-q",
            "--open-files",
            "16",
            "--nice",
            "19",
            "--",
            "sh",
            "-c",
            "ulimit -n; nice",
        ],
        0,
    );
    tell(
        &["run", "-q", "--max-runtime", "1s", "--", "sleep", "1000"],
        10,
    );
    let id = tell(&["run", "--detach", "--", "sh", "-c", "exit 5"], 0);
    tell(&["wait", "-q", &id], 5);
    tell(&["run", "--env", "NO_SUCH_VARIABLE", "--", "true"], 2);
    story.check();
}

#[test]
fn completions_and_manual_pages() {
    let _watchdog = watch();
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish"] {
        let text = Ran::of(&mut folder.command(), &["completions", shell]).text();
        assert!(text.contains("JOBTREE_COMPLETE"), "{shell}: {text}");
    }
    Ran::of(&mut folder.command(), &["completions", "csh"]).exits(2);
    let pages = folder.join("man");
    Ran::of(
        &mut folder.command(),
        &["man", "--out", pages.to_str().unwrap()],
    )
    .exits(0);
    for page in ["jobtree.1", "jobtree-run.1", "jobtree-schedule-add.1"] {
        let text = std::fs::read_to_string(pages.join(page)).expect(page);
        assert!(text.contains(".TH"), "{page}");
    }
}

#[test]
fn another_policy_is_tried_on_recorded_load() {
    let _watchdog = watch();
    let folder = Folder::new();
    let load: String = (0..600)
        .map(|second| {
            let at = jiff::Timestamp::from_second(1_767_225_600 + second).unwrap();
            let cpu = if second < 120 { 0.95 } else { 0.0 };
            format!("{{\"at\":\"{at}\",\"busy\":0,\"state\":\"QUIET\",\"capacity\":0,\"used\":0,\"foreign_cpu\":{cpu}}}\n")
        })
        .collect();
    let load = folder.write("load.ndjson", &load);
    let jobs: String = (0..3)
        .map(|second| format!("{{\"addon_id\":\"a\",\"job_type\":\"t\",\"cost_units\":60,\"created_at\":\"2026-01-01T00:00:0{second}Z\",\"expected_duration_sec\":30}}\n"))
        .collect();
    let jobs = folder.write("jobs.ndjson", &jobs);
    let simulate = |policy: &str| {
        let mut arguments = vec!["simulate", "--load", &load, "--jobs", &jobs, "--json"];
        if !policy.is_empty() {
            arguments.extend(["--policy", policy]);
        }
        Ran::of(&mut folder.command(), &arguments).exits(0).json()
    };
    let usual = simulate("");
    assert_eq!(usual["started"], 3, "{usual}");
    assert!(
        usual["jobs"][0]["waited_sec"].as_f64().unwrap() > 120.0,
        "{usual}"
    );
    // Each waits for the one before: two do not fit.
    let started = |number: usize| {
        usual["jobs"][number]["started_at"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(
        started(0) < started(1) && started(1) < started(2),
        "{usual}"
    );
    // In words, with what of the recording has no effect.
    let one = folder.write(
        "one.ndjson",
        r#"{"addon_id":"a","job_type":"t","cost_units":60,"created_at":"2026-01-01T00:00:00Z","required_labels":["gpu"],"state":"DONE"}"#,
    );
    let arguments = ["simulate", "--load", &load, "--jobs", &one];
    let told = Ran::of(&mut folder.command(), &arguments).exits(0).stderr;
    assert!(told.starts_with("1 job over "), "{told}");
    assert!(
        told.contains("\nignored: required_labels of jobs (1)"),
        "{told}"
    );
    let always = simulate(ALWAYS);
    assert!(always["average_wait_sec"].as_f64() < usual["average_wait_sec"].as_f64());
    Ran::of(
        &mut folder.command(),
        &["simulate", "--load", &jobs, "--jobs", &jobs],
    )
    .exits(2);
}

#[test]
fn the_doctor_looks_at_everything() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let report = daemon.run(&["doctor", "--json"]).exits(0).json();
    let checks = report["checks"].as_array().unwrap();
    let find = |name: &str| {
        checks
            .iter()
            .find(|check| check["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {report}"))
    };
    for name in [
        "data directory",
        "token file",
        "SQLite",
        "fsync",
        "daemon",
        "token",
        "clocks",
    ] {
        assert_ne!(find(name)["finding"], "broken", "{report}");
    }
    let token = daemon.folder.join("data/admin.token");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&token, mode).unwrap();
    let report = daemon.run(&["doctor"]).exits(1);
    assert!(report.stdout.contains("chmod 600"), "{report:?}");
}

#[test]
fn a_store_is_copied_checked_and_moved() {
    let _watchdog = watch();
    let daemon = Daemon::with(&[]);
    for number in 0..5 {
        daemon
            .run(&["submit", "photos", "index", "--key", &number.to_string()])
            .exits(0);
    }
    let copy = daemon.run(&["backup", "copy.db"]).text();
    let copy = copy.as_str();
    daemon.run(&["backup", "copy.db"]).exits(6);
    let checked = daemon
        .run(&["audit", "check", copy, "--json"])
        .exits(0)
        .json();
    assert_eq!(
        (&checked["jobs"], &checked["found"]),
        (&5.into(), &0.into()),
        "{checked}"
    );
    // The daemon has its own open.
    daemon.run(&["audit", "check"]).exits(1);
    let moved = daemon.folder.join("moved.db");
    let moved = moved.to_str().unwrap();
    let told = daemon
        .run(&["move-store", "--from", copy, "--to", moved, "--json"])
        .exits(0)
        .json();
    assert_eq!(told["jobs"], 5, "{told}");
    daemon
        .run(&["move-store", "--from", copy, "--to", moved])
        .exits(1);
    daemon.run(&["audit", "check", moved]).exits(0);
}

#[test]
fn a_daemon_ends_when_it_is_asked_to_and_comes_back_with_its_jobs() {
    let _watchdog = watch();
    let mut daemon = Daemon::with(&[]);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let token = daemon.token();
    assert_eq!(daemon.ends_and_returns("TERM"), Some(0));
    assert_eq!(daemon.job(&id)["state"], "QUEUED");
    assert_eq!(daemon.token(), token);
}
