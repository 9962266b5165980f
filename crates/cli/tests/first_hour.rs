//! What a user does in the first hour with a daemon, and what the command says when something is wrong.
//!
//! Daemons have the default policy. Where a job must start, it leaves out what goes by the load of this machine; see
//! `support/always.toml`.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use serde_json::Value;
use support::snapshot::Story;
use support::{ALWAYS, Beside, Daemon, Folder, Ran, peak_memory, signal, until, watch};

/// A story whose commands run against a daemon.
fn story(name: &'static str, daemon: &Daemon) -> Story {
    Story::new(name)
        .replacing(&daemon.url, "<URL>")
        .replacing(daemon.folder.0.to_str().unwrap(), "<DIR>")
}

#[test]
fn a_job_is_named_by_a_part_of_its_id_or_as_the_last() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("names", &daemon);
    daemon.run(&["pause", "photos"]).exits(0);
    story.add(&daemon.run(&["show", "last"]).exits(5));
    let mut ids = Vec::new();
    for number in ["1", "2", "3"] {
        let ran = daemon.run(&["submit", "photos", "index", "--tag", number]);
        story.add(&ran);
        ids.push(ran.text());
    }
    let listed = daemon.run(&["ls"]).exits(0);
    for id in &ids {
        let end = &id[id.len() - 8..];
        assert!(listed.stdout.contains(end), "{listed:?}");
        assert!(!listed.stdout.contains(id.as_str()), "{listed:?}");
        for part in [
            end,
            &id.to_uppercase(),
            &id.replace('-', ""),
            &id[..id.len() - 2],
        ] {
            assert_eq!(daemon.job(part)["job_id"], id.as_str(), "{part}");
        }
    }
    story.add(&listed);
    let whole = daemon.run(&["ls", "--whole-ids"]).exits(0);
    assert!(ids.iter().all(|id| whole.stdout.contains(id)), "{whole:?}");
    assert_eq!(daemon.job("last")["job_id"], ids[2].as_str());

    // All ids of these years begin with a zero.
    let ambiguous = daemon.run(&["show", "0"]).exits(2);
    assert!(
        ambiguous.stderr.contains("\"0\" fits 3 jobs"),
        "{ambiguous:?}"
    );
    assert!(
        ids.iter().all(|id| ambiguous.stderr.contains(id)),
        "{ambiguous:?}"
    );
    story.add(&ambiguous);
    story.add(&daemon.run(&["show", "ffffffffffff"]).exits(5));
    story.add(&daemon.run(&["show", "-"]).exits(2));

    // Every command that takes a job takes a part of its id.
    let end = |number: usize| &ids[number][28..];
    daemon.run(&["explain", end(0)]).exits(0);
    daemon.run(&["logs", end(0)]).exits(0);
    daemon.run(&["ls", "--after", end(0)]).exits(0);
    daemon.run(&["wait", end(0), "--timeout", "1ms"]).exits(12);
    daemon.run(&["retry", end(0)]).exits(0);
    daemon
        .run(&["watch", "--job", end(0), "--after", "0", "--count", "1"])
        .exits(0);
    let depends = daemon
        .run(&["submit", "photos", "index", "--depends-on", end(1)])
        .text();
    assert_eq!(daemon.job(&depends)["waiting_for"][0], ids[1].as_str());
    daemon.run(&["cancel", end(0), end(1)]).exits(0);
    daemon.run(&["redrive", end(0)]).exits(0);

    // A token that may not read cannot look a part up, but needs no lookup for a whole id.
    let token = daemon
        .run(&[
            "token", "create", "c", "--addon", "a", "--scope", "submit", "-q",
        ])
        .text();
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", token);
    let refused = Ran::of(&mut command, &["submit", "a", "t", "--depends-on", end(2)]);
    story.add(&refused.exits(4));
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", daemon.token());
    Ran::of(&mut command, &["submit", "a", "t", "--depends-on", &ids[2]]).exits(0);
    story.check();
}

#[test]
fn tokens_and_schedules_are_named_by_name_or_a_part_of_their_id() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("names_of_tokens", &daemon);
    let mut tell = |arguments: &[&str], code| {
        let ran = daemon.run(arguments).exits(code);
        story.add(&ran);
        ran.stdout.trim().to_owned()
    };
    for name in ["ci", "laptop", "twin", "twin"] {
        daemon
            .run(&["token", "create", name, "--addon", "a", "--scope", "read"])
            .exits(0);
    }
    tell(&["token", "ls"], 0);
    tell(&["token", "rm", "ci"], 0);
    tell(&["token", "rm", "ci"], 5);
    tell(&["token", "rm", "twin"], 2);
    let tokens = daemon.run(&["token", "ls", "--json"]).exits(0).json();
    let all = tokens["tokens"].as_array().unwrap();
    let laptop = all.iter().find(|token| token["name"] == "laptop").unwrap();
    let id = laptop["token_id"].as_str().unwrap();
    tell(&["token", "rm", &id[id.len() - 8..]], 0);
    let id = tell(
        &["schedule", "add", "nightly", "0 3 * * *", "photos", "index"],
        0,
    );
    tell(&["schedule", "show", "nightly"], 0);
    tell(&["schedule", "show", &id[id.len() - 8..]], 0);
    tell(&["schedule", "rm", &id], 0);
    story.check();
}

#[test]
fn a_worker_that_cannot_work_says_so_at_once() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("work_refused", &daemon);
    let token = |name: &str, addon: &str, scope: &str| {
        let create = [
            "token", "create", name, "--addon", addon, "--scope", scope, "-q",
        ];
        daemon.run(&create).text()
    };
    let (reader, other) = (
        token("reader", "photos", "read"),
        token("other", "music", "lease"),
    );
    daemon.folder.write("script", "#!/bin/sh\n");
    let admin = daemon.token();
    let mut tell = |token: &str, program: &str, code| {
        let mut command = daemon.command();
        command.env("JOBTREE_TOKEN", token);
        let arguments = [
            "work", "--addon", "photos", "--type", "index", "--", program,
        ];
        story.add(&Ran::of(&mut command, &arguments).exits(code));
    };
    tell("wrong", "true", 4);
    tell(&reader, "true", 4);
    tell(&other, "true", 4);
    tell(&admin, "./absent", 1);
    tell(&admin, "no-such-program", 1);
    tell(&admin, "./script", 1);
    story.check();
}

/// `jobtree work` with a shell script, whose lines go to a file.
fn worker(daemon: &Daemon, options: &[&str], script: &str, stderr: &str) -> Beside {
    let mut command = daemon.command();
    command
        .args(["work", "--addon", "photos", "--type", "index"])
        .args(options)
        .args(["--", "sh", "-c", script])
        .stderr(File::create(daemon.folder.join(stderr)).expect("a file"));
    Beside::start(&mut command)
}

#[test]
fn a_worker_prints_a_line_for_each_job_unless_it_is_quiet() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let script =
        "read what; case $what in 1) exit 0;; 2) echo no disk >&2; exit 3;; 3) exit 65;; esac";
    let mut ids = Vec::new();
    let mut work = |options: &[&str], stderr: &str| {
        let mut worker = worker(&daemon, options, script, stderr);
        ids.clear();
        // What it says of the addon, it says before that.
        let ready = || std::fs::read_to_string(daemon.folder.join(stderr)).unwrap();
        until(|| !options.is_empty() || ready().contains("working for photos"));
        for (payload, code) in [("1", 0), ("2", 3), ("3", 65)] {
            let submit = ["submit", "photos", "index", "--payload", payload];
            let id = daemon.run(&submit).text();
            daemon.run(&["wait", &id]).exits(code);
            ids.push(id);
        }
        signal("TERM", worker.pid());
        assert_eq!(worker.wait(), Some(0));
        std::fs::read_to_string(daemon.folder.join(stderr)).unwrap()
    };
    let told = work(&[], "loud");
    assert!(
        told.contains("note: no job of the addon photos has been submitted yet\n"),
        "{told}"
    );
    assert_eq!(work(&["-q"], "quiet"), "");
    let again = work(&[], "again");
    assert!(!again.contains("note:"), "{again}");
    let end = |number: usize| &ids[number][28..];
    for (number, outcome, reason) in [
        (0, "done", ""),
        (1, "failed", ": exit code 3: no disk"),
        (2, "failed", ": exit code 65"),
    ] {
        let begin = format!("{}  index  {outcome} after ", end(number));
        let lines: Vec<_> = again
            .lines()
            .filter(|line| line.starts_with(&begin))
            .collect();
        assert!(
            lines.len() == 1 && lines[0].ends_with(reason),
            "{begin} in\n{again}"
        );
    }
}

#[test]
fn errors_are_json_for_programs() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let error = |ran: Ran| {
        assert_eq!(ran.stdout, "", "{ran:?}");
        let line = ran.stderr.lines().last().unwrap_or_default();
        let read: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{ran:?}"));
        assert_eq!(read["version"], 1, "{ran:?}");
        assert_eq!(read["exit_code"], ran.code.unwrap(), "{ran:?}");
        read["error"].clone()
    };
    let told = error(daemon.run(&["show", "ffffffffffff", "--json"]).exits(5));
    assert_eq!(told["code"], "not_found");
    assert!(
        told["hint"].as_str().unwrap().contains("jobtree ls"),
        "{told}"
    );
    let told = error(
        daemon
            .run(&["--json", "submit", "a", "t", "--cost", "0"])
            .exits(2),
    );
    assert_eq!(
        (&told["code"], &told["fields"][0]["field"]),
        (&"invalid".into(), &"cost_units".into())
    );
    // Arguments that cannot be read, with what was meant.
    let told = error(daemon.run(&["submitt", "--json"]).exits(2));
    assert_eq!(told["code"], "usage");
    assert!(
        told["message"].as_str().unwrap().contains("'submit'"),
        "{told}"
    );
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", "wrong");
    let told = error(Ran::of(&mut command, &["ls", "--json"]).exits(4));
    assert_eq!(told["code"], "unauthorized");
    let mut command = daemon.folder.command();
    let told = error(Ran::of(&mut command, &["ls", "--json"]).exits(3));
    assert_eq!(told["code"], "unreachable");
    // People get the same in words.
    let told = daemon.run(&["submitt"]).exits(2);
    assert!(
        told.stderr.contains("tip: ") && told.stderr.contains("'submit'"),
        "{told:?}"
    );
}

#[test]
fn what_fits_every_job_needs_all() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("every_job", &daemon);
    daemon.run(&["pause", "photos"]).exits(0);
    let ids = [(); 2].map(|()| daemon.run(&["submit", "photos", "index"]).text());
    let mut tell = |arguments: &[&str], code| {
        story.add(&daemon.run(arguments).exits(code));
    };
    for id in &ids {
        tell(&["show", id, "-q"], 0);
    }
    tell(&["cancel", "--filter", ""], 2);
    tell(&["cancel", "--filter", " "], 2);
    tell(&["cancel", "--filter", "", "--all"], 2);
    tell(&["redrive", "--filter", ""], 2);
    tell(&["cancel", "--filter", "tag:none"], 0);
    assert_eq!(daemon.job(&ids[0])["state"], "QUEUED");
    tell(&["cancel", "--all", "--reason", "tidying up"], 0);
    // Nothing is FAILED: it says so, and how to get the others.
    tell(&["redrive", "--all"], 0);
    tell(&["redrive", "--filter", "addon:photos"], 0);
    tell(&["redrive", "--filter", "addon:photos state:canceled"], 0);
    story.check();
}

#[test]
fn a_token_that_may_only_cancel_cancels() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    let ids = [(); 2].map(|()| daemon.run(&["submit", "photos", "index"]).text());
    let create = [
        "token", "create", "c", "--addon", "photos", "--scope", "cancel", "-q",
    ];
    let token = daemon.run(&create).text();
    let cancel = |arguments: &[&str]| {
        let mut command = daemon.command();
        command.env("JOBTREE_TOKEN", &token);
        Ran::of(&mut command, arguments).exits(0)
    };
    let told = cancel(&["cancel", &ids[0], "--reason", "too late"]);
    assert_eq!(told.stdout, format!("{} CANCELED\n", ids[0]));
    let told = cancel(&["cancel", "--filter", "addon:photos"]);
    assert_eq!(told.stdout, format!("{} asked to stop\n", ids[1]));
    assert_eq!(daemon.job(&ids[0])["last_error"], "too late");
    assert_eq!(daemon.job(&ids[1])["state"], "CANCELED");
}

#[test]
fn a_running_job_that_is_cancelled_keeps_the_users_reason() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = worker(&daemon, &["-q"], "sleep 1000", "worker");
    let id = daemon.run(&["submit", "photos", "index"]).text();
    until(|| daemon.job(&id)["state"] == "RUNNING");
    daemon
        .run(&["cancel", &id, "--reason", "wrong album"])
        .exits(0);
    assert_eq!(daemon.job(&id)["last_error"], "wrong album");
}

#[test]
fn the_same_command_with_a_key_and_a_delay_is_the_same_job() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let submit = [
        "submit",
        "photos",
        "index",
        "--key",
        "k",
        "--after",
        "5h",
        "--deadline",
        "9h",
    ];
    let id = daemon.run(&submit).text();
    let again = daemon.run(&submit).exits(0);
    assert_eq!(again.stdout.trim_end(), id);
    assert_eq!(
        again.stderr,
        "already submitted with this key; state: QUEUED\n"
    );
    daemon.run(&["cancel", &id]).exits(0);
    let again = daemon.run(&submit).exits(0);
    assert_eq!(
        again.stderr,
        "already submitted with this key; state: CANCELED\n"
    );
    let other = [
        "submit", "photos", "index", "--key", "k", "--after", "5h", "--cost", "1",
    ];
    daemon.run(&other).exits(6);
}

#[test]
fn a_file_of_jobs_has_the_default_cost_and_its_errors_name_the_line() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let mut story = story("submit_file", &daemon);
    let good = r#"{"addon_id":"photos","job_type":"index"}"#;
    let file = daemon
        .folder
        .write("good.ndjson", &format!("{good}\n\n{good}\n"));
    let ids = daemon.run(&["submit", "--file", &file]).text();
    let costs: Vec<_> = ids
        .lines()
        .map(|id| daemon.job(id)["cost_units"].clone())
        .collect();
    assert_eq!(costs, [10, 10]);
    let ids = daemon
        .run(&["submit", "--file", &file, "--cost", "3"])
        .text();
    assert_eq!(daemon.job(ids.lines().next().unwrap())["cost_units"], 3);
    let mut tell = |name: &str, text: &str, code| {
        let file = daemon.folder.write(name, text);
        story.add(&daemon.run(&["submit", "--file", &file]).exits(code));
    };
    tell("broken.ndjson", &format!("{good}\n\n{{\n"), 2);
    tell(
        "unknown.ndjson",
        &format!("{good}\n{{\"colour\":\"red\"}}\n"),
        2,
    );
    let refused = r#"{"addon_id":"photos","job_type":"index","cost_units":0}"#;
    tell("refused.ndjson", &format!("{good}\n{refused}\n"), 1);
    story.check();
}

#[test]
fn a_demo_leaves_the_users_data_alone_and_ends_without_a_warning() {
    let _watchdog = watch();
    let folder = support::Folder::new();
    // The demo has a policy of its own, which this machine's load does not hold up for long.
    let mut command = folder.command();
    command
        .args(["serve", "--demo", "--listen", "localhost:0"])
        .env("TMPDIR", &folder.0)
        .stdout(Stdio::piped())
        .stderr(File::create(folder.join("demo.err")).unwrap());
    let mut demo = Beside::start(&mut command);
    let mut url = String::new();
    let mut stdout = BufReader::new(demo.0.stdout.take().unwrap());
    stdout.read_line(&mut url).unwrap();
    let temporary = folder.join(&format!("jobtree-demo-{}", demo.pid()));
    assert!(temporary.join("jobs.db").exists());
    // Another command needs no token, and finds jobs.
    let mut command = folder.command();
    command.env("JOBTREE_URL", url.trim());
    until(|| {
        let mut command = folder.command();
        command.env("JOBTREE_URL", url.trim());
        Ran::of(&mut command, &["ls"]).text().contains("photos")
    });
    signal("TERM", demo.pid());
    assert_eq!(demo.wait(), Some(0));
    assert!(!temporary.exists() && !folder.join("data").exists());
    let told = std::fs::read_to_string(folder.join("demo.err")).unwrap();
    assert!(!told.contains("WARN"), "{told}");
}

#[test]
fn an_ordinary_stop_logs_no_warning() {
    let _watchdog = watch();
    let mut daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    daemon.run(&["run", "-q", "--", "true"]).exits(0);
    let told = daemon.folder.join("serve.err");
    signal("TERM", daemon.pid());
    // The file is written anew by the next start.
    until(|| std::fs::read_to_string(&told).unwrap().contains("stopped"));
    let text = std::fs::read_to_string(&told).unwrap();
    assert!(!text.contains("WARN"), "{text}");
    daemon.ends_and_returns("TERM");
}

#[test]
fn run_says_at_once_that_there_is_no_runner() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let detached = daemon
        .run(&["run", "-d", "--", "make", "all of it"])
        .exits(0);
    assert!(detached.stderr.starts_with("no runner: "), "{detached:?}");
    assert!(
        detached.stderr.contains("jobtree serve --runner"),
        "{detached:?}"
    );
    // The command line stands wherever the job does.
    let id = detached.stdout.trim_end();
    let line = "make 'all of it'";
    for arguments in [&["ls"][..], &["show", id], &["top", "--once"]] {
        let told = daemon.run(arguments).exits(0);
        assert!(told.stdout.contains(line), "{told:?}");
    }
}

#[test]
fn each_run_has_its_part_of_the_log() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let script = "echo a; echo b; [ -e twice ] && exit 0; touch twice; exit 1";
    let submit = ["run", "-d", "--attempts", "2", "--", "sh", "-c", script];
    let id = daemon.run(&submit).text();
    // Its backoff is some seconds.
    until(|| {
        daemon.run(&["retry", &id]);
        daemon.job(&id)["state"] == "DONE"
    });
    let logs = |more: &[&str]| daemon.run(&[&["logs", &id], more].concat());
    assert_eq!(logs(&[]).text(), "a\nb\n--- jobtree: run 2 ---\na\nb");
    assert_eq!(logs(&["-n", "1"]).text(), "b");
    assert_eq!(logs(&["-n", "2", "-f"]).text(), "a\nb");
    assert_eq!(logs(&["--attempt", "1"]).text(), "a\nb");
    assert_eq!(logs(&["--attempt", "2", "-n", "1"]).text(), "b");
    logs(&["--attempt", "3"]).exits(5);
    // With the time of each line.
    let stamped = logs(&["-t"]).exits(0).stdout;
    let lines: Vec<(&str, &str)> = stamped
        .lines()
        .map(|line| line.split_once("  ").unwrap_or_else(|| panic!("{stamped}")))
        .collect();
    let text: Vec<&str> = lines.iter().map(|(_, text)| *text).collect();
    assert_eq!(text, ["a", "b", "--- jobtree: run 2 ---", "a", "b"]);
    let time = |text: &str| {
        text.replacen(' ', "T", 1)
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    let times: Vec<_> = lines.iter().map(|(at, _)| time(at)).collect();
    assert!(times.is_sorted(), "{stamped}");
    assert_eq!(
        logs(&["-t", "-n", "1", "--attempt", "1"]).text(),
        format!("{}  b", lines[1].0)
    );
    let page: Value = serde_json::from_str(&logs(&["--json"]).text()).unwrap();
    let parts = page["times"].as_array().unwrap();
    let (first, last) = (&parts[0], &parts[parts.len() - 1]);
    assert_eq!(first["place"], 0);
    assert!(first["at"].as_str() < last["at"].as_str(), "{page}");
    let created = daemon.job(&id)["created_at"].clone();
    assert!(created.as_str() < first["at"].as_str(), "{page}");
}

#[test]
fn a_command_with_once_is_not_run_again_after_a_crash() {
    let _watchdog = watch();
    let mut daemon = Daemon::with(&["--policy", ALWAYS, "--runner"]);
    let script = "echo run >> runs; sleep 1000";
    let id = daemon
        .run(&["run", "-d", "--once", "--", "sh", "-c", script])
        .text();
    let runs = daemon.folder.join("runs");
    until(|| std::fs::read_to_string(&runs).is_ok_and(|text| text.ends_with('\n')));
    daemon.ends_and_returns("KILL");
    daemon.run(&["wait", &id]).exits(10);
    assert_eq!(std::fs::read_to_string(&runs).unwrap(), "run\n");
    let job = daemon.job(&id);
    assert!(
        job["last_error"].as_str().unwrap().contains("--once"),
        "{job}"
    );
}

#[test]
fn a_limit_beyond_what_a_clock_can_tell_is_one_without_end() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--policy", ALWAYS, "--runner"]);
    // Each part is as long as one can be; a clock counts no further than some five hundred of them.
    let long = "18446744073709551615ms".repeat(600);
    let id = daemon.run(&["run", "-d", "--", "true"]).text();
    daemon.run(&["wait", &id, "--timeout", &long]).exits(0);
    let id = daemon.run(&["run", "-d", "--", "sleep", "1000"]).text();
    daemon.run(&["cancel", &id, "--timeout", &long]).exits(0);
    assert_eq!(daemon.job(&id)["state"], "CANCELED");
}

#[test]
fn open_jobs_are_listed_before_the_last_that_have_ended() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    daemon.run(&["pause", "photos"]).exits(0);
    let ids: Vec<_> = (0..4)
        .map(|_| daemon.run(&["submit", "photos", "index"]).text())
        .collect();
    daemon.run(&["cancel", &ids[0], &ids[1]]).exits(0);
    let order = |arguments: &[&str]| {
        let list = daemon
            .run(&[arguments, &["--json"]].concat())
            .exits(0)
            .json();
        let jobs = list["jobs"].as_array().unwrap().clone();
        let number = |job: &Value| ids.iter().position(|id| job["job_id"] == id.as_str());
        jobs.iter().filter_map(number).collect::<Vec<_>>()
    };
    assert_eq!(order(&["ls"]), [2, 3, 1, 0]);
    assert_eq!(order(&["ls", "--limit", "3"]), [2, 3, 1]);
    assert_eq!(order(&["ls", "state:canceled"]), [1, 0]);
    assert_eq!(order(&["ls", "state:canceled,queued", "--limit", "1"]), [2]);
    assert_eq!(order(&["ls", "--after", &ids[0]]), [1, 2, 3]);
}

#[test]
fn status_and_workers_fit_on_one_screen() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let mut story = story("status", &daemon);
    story.add(&daemon.run(&["workers"]).exits(0));
    let _worker = worker(&daemon, &["-q"], "exit 3", "worker");
    let id = daemon.run(&["submit", "photos", "index"]).text();
    daemon.run(&["wait", &id]).exits(3);
    daemon
        .run(&["pause", "music", "--reason", "tidying up"])
        .exits(0);
    let ended = daemon.run(&["submit", "music", "play"]).text();
    story.add(&daemon.run(&["show", &id, "-q"]).exits(0));
    until(|| {
        daemon
            .run(&["workers"])
            .exits(0)
            .stdout
            .contains("jobtree work")
    });
    let document = daemon.run(&["status", "--json"]).exits(0).json();
    assert_eq!(document["recent_failures"][0]["job_id"], id.as_str());
    assert_eq!(document["workers"][0]["addon_id"], "photos");
    let screen = daemon.run(&["status"]).exits(0);
    for part in [
        "machine   local: ",
        "1 QUEUED",
        "1 FAILED",
        "music: 1 waiting, 0 running, paused",
        "tidying up",
        "photos: 0 of 1 slot in use, jobtree work",
        &id[28..],
        "exit code 3",
    ] {
        assert!(
            screen.stdout.contains(part),
            "{part:?} is not in\n{}",
            screen.stdout
        );
    }
    assert!(screen.stdout.lines().count() < 24, "{screen:?}");
    daemon.run(&["cancel", &ended]).exits(0);
    story.check();
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let _watchdog = watch();
    let folder = support::Folder::new();
    // Tests may run as root, whom permissions do not stop: a directory in the place of a file does.
    let serve = |folder: &support::Folder| {
        let ran = Ran::of(&mut folder.command(), &["serve", "--listen", "127.0.0.1:0"]);
        ran.exits(1).stderr
    };
    std::fs::create_dir_all(folder.join("data/jobs.db")).unwrap();
    let told = serve(&folder);
    let path = folder.join("data/jobs.db");
    assert!(told.contains(path.to_str().unwrap()), "{told}");
    std::fs::remove_dir(&path).unwrap();
    std::fs::write(&path, "no database".repeat(1000)).unwrap();
    let told = serve(&folder);
    assert!(told.contains(path.to_str().unwrap()), "{told}");
    std::fs::remove_file(&path).unwrap();

    std::fs::create_dir(folder.join("data/admin.token")).unwrap();
    let told = Ran::of(&mut folder.command(), &["ls"]).exits(4).stderr;
    let path = folder.join("data/admin.token");
    assert!(told.contains(path.to_str().unwrap()), "{told}");
    assert!(told.contains("hint: use the account"), "{told}");
}

/// What stands in the way of a daemon is found while none runs, and nothing is changed by looking.
#[test]
fn the_doctor_looks_at_the_store_that_a_daemon_would_open() {
    let _watchdog = watch();
    let folder = Folder::new();
    // Its port is this test's, whatever else runs on this machine.
    let doctor_in = |folder: &Folder| {
        let mut command = folder.command();
        command.env("JOBTREE_LISTEN", "127.0.0.1:0");
        command
    };
    let line = |ran: &Ran, name: &str| {
        let found = ran.stdout.lines().find(|line| line.contains(name));
        found
            .unwrap_or_else(|| panic!("{name}: {ran:#?}"))
            .to_owned()
    };
    let is_well = |ran: &Ran, name: &str| line(ran, name).starts_with("ok");
    let doctor = Ran::of(&mut doctor_in(&folder), &["doctor"]).exits(0);
    assert!(is_well(&doctor, " store "), "{doctor:#?}");
    assert!(!folder.join("data").exists(), "nothing is made");

    let mut daemon = Daemon::within(folder, &[]);
    daemon.run(&["submit", "photos", "index"]).exits(0);
    daemon.ends("TERM");
    let folder = &daemon.folder;
    let run = |arguments: &[&str]| Ran::of(&mut doctor_in(folder), arguments);
    let data = folder.join("data");
    let file = data.join("jobs.db");
    let names = || {
        let all = std::fs::read_dir(&data).unwrap();
        let mut all: Vec<_> = all.map(|entry| entry.unwrap().file_name()).collect();
        all.sort();
        all
    };
    let before = names();
    let doctor = run(&["doctor"]).exits(0);
    let told = line(&doctor, " store ");
    assert!(
        told.starts_with("ok") && told.contains(file.to_str().unwrap()),
        "{told}"
    );
    assert_eq!(names(), before);

    // A part of it is lost.
    let whole = std::fs::read(&file).unwrap();
    let mut damaged = whole.clone();
    damaged[4096..].fill(0xa5);
    std::fs::write(&file, damaged).unwrap();
    let doctor = run(&["doctor"]).exits(1);
    let told = line(&doctor, " store ");
    assert!(
        told.starts_with("FAIL") && told.contains(file.to_str().unwrap()),
        "{told}"
    );
    assert!(told.contains("jobtree backup"), "{told}");
    std::fs::write(&file, whole).unwrap();
    run(&["doctor"]).exits(0);

    // A database that is not there.
    let away = {
        let mut command = doctor_in(folder);
        command.env(
            "JOBTREE_STORE",
            "postgres://127.0.0.1:1/jobs?connect_timeout=5",
        );
        Ran::of(&mut command, &["doctor"]).exits(1)
    };
    let told = line(&away, " store ");
    assert!(
        told.starts_with("FAIL") && told.contains("check that the database runs"),
        "{told}"
    );

    // A data directory of another account.
    let allow = |mode| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(&data, mode).unwrap();
    };
    allow(0o000);
    let mut command = doctor_in(folder);
    // Permissions do not stop root.
    if std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap()) == 0 {
        std::os::unix::process::CommandExt::uid(&mut command, 65534);
        std::os::unix::process::CommandExt::gid(&mut command, 65534);
    }
    let doctor = Ran::of(&mut command, &["doctor"]).exits(1);
    allow(0o700);
    for (name, path) in [
        ("token file", data.join("admin.token")),
        (" store ", file),
        ("SQLite", data),
    ] {
        let told = line(&doctor, name);
        assert!(
            told.starts_with("FAIL") && told.contains("ermission denied"),
            "{told}"
        );
        assert!(told.contains(path.to_str().unwrap()), "{told}");
    }
}

/// A disk that takes nothing more: the store stops, and all who ask are told which, why and what to do.
#[test]
fn a_store_that_breaks_while_the_daemon_runs_is_told_everywhere() {
    let _watchdog = watch();
    let folder = Folder::new();
    // Writes beyond a limit fail as on a broken disk, if the signal that comes with it does not end the process.
    let script = "trap '' XFSZ; exec \"$0\" serve --listen 127.0.0.1:0";
    let mut command = folder.command_of("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_jobtree")]);
    command
        .env("TZ", "TST-5:45")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut daemon = Beside::start(&mut command);
    let mut url = String::new();
    let mut out = BufReader::new(daemon.0.stdout.take().unwrap());
    out.read_line(&mut url).unwrap();
    let err = BufReader::new(daemon.0.stderr.take().unwrap());
    let (told, log) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        err.lines()
            .map_while(Result::ok)
            .try_for_each(|line| told.send(line))
    });
    let run = |arguments: &[&str]| {
        let mut command = folder.command();
        command.env("JOBTREE_URL", url.trim());
        Ran::of(&mut command, arguments)
    };
    let kept = run(&["submit", "photos", "index"]).text();
    let limited = Command::new("prlimit")
        .args(["--pid", &daemon.pid().to_string(), "--fsize=1:"])
        .status()
        .expect("util-linux has prlimit");
    assert!(limited.success());
    let data = folder.join("data");
    let stopped = format!("the store in {} has stopped (", data.display());
    const ADVICE: &str =
        "check the disk and the permissions of its files, then start the daemon again";
    // What is told of the call itself may come before the daemon has noticed.
    until(|| {
        let refused = run(&["submit", "photos", "index"]);
        assert_ne!(refused.code, Some(0), "{refused:?}");
        refused.stderr.contains(&stopped) && refused.stderr.contains(ADVICE)
    });
    let doctor = run(&["doctor"]).exits(1);
    assert!(
        doctor.stdout.contains(&stopped) && doctor.stdout.contains(ADVICE),
        "{doctor:?}"
    );
    let ready = support::ready(url.trim());
    assert!(ready.contains("503") && ready.contains(&stopped), "{ready}");
    // The log tells it, too, with the time of this place.
    let line = log.iter().find(|line| line.contains(&stopped));
    let line = line.expect("the daemon runs");
    assert!(
        line.contains("+05:45 ERROR") && line.contains(ADVICE),
        "{line}"
    );
    signal("TERM", daemon.pid());
    daemon.wait();
    // With the limit gone, all that was acknowledged is there.
    let daemon = Daemon::within(folder, &[]);
    assert_eq!(daemon.job(&kept)["state"], "QUEUED");
}

#[test]
fn output_and_errors_come_apart_whole_and_in_order() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let script =
        "for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf '\\377\\000 no newline'";
    let mut command = daemon.command();
    command.args(["run", "-q", "--", "sh", "-c", script]);
    let output = command.output().expect("it runs");
    assert_eq!(output.stdout, b"out 1\nout 2\nout 3\n\xff\0 no newline");
    assert_eq!(output.stderr, b"err 1\nerr 2\nerr 3\n");
    let pages = daemon.run(&[
        "run",
        "-q",
        "--json",
        "--",
        "sh",
        "-c",
        "echo out; echo err >&2",
    ]);
    let lines: Vec<Value> = pages
        .exits(0)
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let pieces = lines
        .iter()
        .filter_map(|line| line["pieces"].as_array())
        .flatten();
    let mut pieces: Vec<_> = pieces
        .map(|piece| (piece["stream"].clone(), piece["text"].clone()))
        .collect();
    pieces.sort_by_key(|(stream, _)| stream.to_string());
    assert_eq!(
        pieces,
        [
            ("stderr".into(), "err\n".into()),
            ("stdout".into(), "out\n".into())
        ]
    );
}

/// A hundred megabytes take about the memory that twenty take: far less than the eighty between them.
#[test]
fn much_output_arrives_whole_and_the_daemon_holds_little_of_it() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let print = |count: u64, at_least: u64| {
        let mut command = daemon.command();
        command
            .args(["run", "-q", "--", "seq", &count.to_string()])
            .stdout(Stdio::piped());
        let mut running = Beside::start(&mut command);
        // The other side of the comparison is the same program, run here: comparing numbers one by one would take longer.
        let mut expected = Command::new("seq");
        expected.arg(count.to_string()).stdout(Stdio::piped());
        let mut expected = Beside::start(&mut expected);
        let bytes = same(
            running.0.stdout.take().unwrap(),
            expected.0.stdout.take().unwrap(),
        );
        assert!(bytes > at_least, "{bytes} bytes");
        assert_eq!(running.wait(), Some(0));
        peak_memory(daemon.pid())
    };
    let little = print(2_700_000, 20_000_000);
    let much = print(12_500_000, 100_000_000);
    let more = much - little;
    eprintln!("{little} bytes for twenty megabytes, {more} more for a hundred");
    // The allocator keeps some megabytes more or less of the connections' buffers.
    assert!(more < 24 << 20, "{more} bytes more than for a fifth of it");
}

/// Each piece is printed when the one before it was read, so their order is that of reading, whichever stream they come by.
#[test]
fn the_streams_are_interleaved_in_the_order_in_which_they_are_read() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let script = "for i in 1 2 3 4 5 6; do case $i in 1|4|5) echo $i >&2;; *) echo $i;; esac; \
                  until [ -e read$i ]; do sleep 0.01; done; done";
    let mut command = daemon.command();
    command
        .args(["run", "-q", "--json", "--", "sh", "-c", script])
        .stdout(Stdio::piped());
    let mut running = Beside::start(&mut command);
    let mut pieces = Vec::new();
    for line in BufReader::new(running.0.stdout.take().unwrap()).lines() {
        let page: Value = serde_json::from_str(&line.unwrap()).unwrap();
        for piece in page["pieces"].as_array().into_iter().flatten() {
            let text = piece["text"].as_str().unwrap().to_owned();
            daemon.folder.write(&format!("read{}", text.trim_end()), "");
            pieces.push((piece["stream"].as_str().unwrap().to_owned(), text));
        }
    }
    assert_eq!(running.wait(), Some(0));
    let pieces: Vec<(&str, &str)> = pieces
        .iter()
        .map(|(stream, text)| (&**stream, &**text))
        .collect();
    assert_eq!(
        pieces,
        [
            ("stderr", "1\n"),
            ("stdout", "2\n"),
            ("stdout", "3\n"),
            ("stderr", "4\n"),
            ("stderr", "5\n"),
            ("stdout", "6\n"),
        ]
    );
    assert_eq!(daemon.run(&["logs", "last"]).text(), "1\n2\n3\n4\n5\n6");
}

/// Compares two streams to their end; returns how long they are.
fn same(mut one: impl Read, mut other: impl Read) -> u64 {
    let (mut left, mut right) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut place = 0;
    loop {
        let count = one.read(&mut left).expect("it can be read");
        other
            .read_exact(&mut right[..count])
            .unwrap_or_else(|error| panic!("more than expected, behind byte {place}: {error}"));
        assert!(left[..count] == right[..count], "behind byte {place}");
        place += count as u64;
        if count == 0 {
            let more = other.read(&mut right).expect("it can be read");
            assert_eq!(more, 0, "it ends behind byte {place}");
            return place;
        }
    }
}

#[test]
fn the_daemon_keeps_as_much_of_a_log_as_it_is_told_to() {
    let _watchdog = watch();
    let daemon = Daemon::with(&[
        "--store",
        "memory",
        "--policy",
        ALWAYS,
        "--runner",
        "--log-bytes",
        "100K",
    ]);
    let id = daemon.run(&["run", "-d", "--", "seq", "100000"]).text();
    daemon.run(&["wait", &id]).exits(0);
    let log = daemon.run(&["logs", &id]).text();
    let end = &log[log.len().saturating_sub(200)..];
    assert!(log.starts_with("1\n2\n3\n"), "{:?}", &log[..200]);
    assert!(log.ends_with("\n99999\n100000"), "{end:?}");
    assert!(log.contains("bytes left out ---\n"));
    let most = 100 << 10;
    assert!(
        (most - 4096..most + 100).contains(&log.len()),
        "{}",
        log.len()
    );
    daemon.run(&["serve", "--log-bytes", "much"]).exits(2);
}

/// What the first release kept of a log has no times. It is printed all the same, and what is kept from now on has some.
#[test]
fn a_log_of_the_first_release_is_printed_without_times() {
    let _watchdog = watch();
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../store/tests/fixtures/jobs-0.1.db"
    );
    let folder = Folder::new();
    std::fs::create_dir_all(folder.join("data")).unwrap();
    // Written, not copied: the file may be read-only.
    std::fs::write(folder.join("data/jobs.db"), std::fs::read(file).unwrap()).unwrap();
    let daemon = Daemon::within(folder, &[]);
    // It waits, so it is not pruned however long ago that was.
    let id = "019ca869-c530-7000-8000-000000230707";
    let logs = |more: &[&str]| daemon.run(&[&["logs", id], more].concat()).text();
    assert_eq!(logs(&[]), "first run");
    assert_eq!(logs(&["-t"]), "-  first run");
}

/// A run that fills its log leaves the next one its room.
#[test]
fn each_run_that_fills_its_log_keeps_its_beginning_and_its_end() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--policy", ALWAYS, "--runner", "--log-bytes", "20K"]);
    let script =
        "n=1; [ -e twice ] && n=2; echo begin $n; seq 20000; echo end $n; touch twice; [ $n = 2 ]";
    let submit = ["run", "-d", "--attempts", "2", "--", "sh", "-c", script];
    let id = daemon.run(&submit).text();
    // Its backoff is some seconds.
    until(|| {
        daemon.run(&["retry", &id]);
        daemon.job(&id)["state"] == "DONE"
    });
    for run in ["1", "2"] {
        let log = daemon.run(&["logs", &id, "--attempt", run]).text();
        let (begin, end) = (
            format!("begin {run}\n1\n2\n"),
            format!("\n20000\nend {run}"),
        );
        let shown = format!("{:.60} … {}", log, &log[log.len().saturating_sub(60)..]);
        assert!(log.starts_with(&begin) && log.ends_with(&end), "{shown}");
        assert!(log.len() <= 20 << 10, "{} bytes", log.len());
    }
}

/// Twenty megabytes of thirty.
#[test]
fn a_log_of_twenty_megabytes_is_kept_to_the_byte_with_its_beginning_and_its_end() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--policy", ALWAYS, "--runner", "--log-bytes", "20M"]);
    let id = daemon.run(&["run", "-d", "--", "seq", "4000000"]).text();
    daemon.run(&["wait", &id]).exits(0);
    let log = daemon.run(&["logs", &id]).exits(0).stdout;
    let most = 20 << 20;
    assert!(
        (most - 4096..=most).contains(&log.len()),
        "{} bytes",
        log.len()
    );
    let (head, rest) = log.split_once("--- jobtree: ").expect("a marker");
    let (left_out, tail) = rest.split_once(" bytes left out ---\n").expect("a marker");
    let whole: String = (1..=4_000_000)
        .map(|number: u32| format!("{number}\n"))
        .collect();
    // A line that is cut off gets a newline, so that the marker stands alone.
    let head = match whole.starts_with(head) {
        true => head,
        false => &head[..head.len() - 1],
    };
    assert!(whole.starts_with(head) && whole.ends_with(tail));
    assert!(tail.len() > 500_000, "{} bytes at the end", tail.len());
    let left_out: usize = left_out.parse().expect("a number");
    assert_eq!(left_out, whole.len() - head.len() - tail.len());
}

#[test]
fn a_long_log_has_its_beginning_and_its_end() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let _worker = worker(
        &daemon,
        &["-q", "--log-bytes", "4000"],
        "seq 100000",
        "worker",
    );
    let id = daemon.run(&["submit", "photos", "index"]).text();
    daemon.run(&["wait", &id]).exits(0);
    let log = daemon.run(&["logs", &id]).text();
    assert!(
        log.starts_with("1\n2\n3\n") && log.ends_with("\n99999\n100000"),
        "{log}"
    );
    assert!(log.contains("bytes left out ---\n"), "{log}");
    assert!(log.len() < 4200, "{}", log.len());
}
