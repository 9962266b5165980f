//! The first hour with jobtree as a transcript: what a user types, and what they see. `docs/first-hour.md` is made of it.
//!
//! Each story runs against a daemon of its own, with the default policy: jobs are submitted with `--ignore-load` (see
//! `telling.rs`), since other programs use the machine that runs tests. Ids, times and lengths of time are replaced by
//! stand-ins; everything else must be as in the file. `JOBTREE_SNAPSHOTS=write` writes the file anew.

mod support;
#[path = "transcript/telling.rs"]
mod telling;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Beside, Daemon, Load, Ran, SHORT_LEASES, ready, signal, until, url_of, watch};
use telling::{Chapter, compare, submits};

#[path = "../../store/tests/support/postgres.rs"]
mod postgres;

/// A folder by the names that the support of PostgreSQL uses.
struct Folder(support::Folder);

impl Folder {
    fn new(_: &str) -> Self {
        Self(support::Folder::new())
    }

    fn path(&self) -> &Path {
        &self.0.0
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

/// A daemon that keeps jobs in memory.
fn in_memory() -> Daemon {
    Daemon::with(&["--store", "memory"])
}

/// Waits until a job has a state.
fn is(daemon: &Daemon, job: &str, state: &str) {
    until(|| daemon.job(job)["state"] == state);
}

/// Waits until the daemon's runner has reported: before, a command is told that there is none.
fn has_runner(daemon: &Daemon) {
    until(|| {
        daemon
            .run(&["workers"])
            .exits(0)
            .stdout
            .contains("jobtree runner")
    });
}

/// `jobtree work` beside the test.
fn work(daemon: &Daemon, kind: &str, program: &[&str]) -> Beside {
    let mut command = daemon.command();
    command
        .args(["work", "-q", "--addon", "photos", "--type", kind, "--"])
        .args(program);
    Beside::start(&mut command)
}

fn demo() -> Chapter {
    let mut told = Chapter::new("A look around");
    let folder = support::Folder::new();
    let mut command = folder.command();
    command
        .args(["serve", "--demo", "--listen", "127.0.0.1:0"])
        .env("TMPDIR", &folder.0)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null());
    let mut demo = Beside::start(&mut command);
    let mut url = String::new();
    let stdout = demo.0.stdout.take().expect("it is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut url).expect("it tells");
    told.says(
        "The demo runs two addons (applications that submit jobs) in a temporary directory. It asks for no token, and leaves nothing \
         behind. The address that it prints is the dashboard's, for a browser; in another terminal, `jobtree top` shows the same, \
         `jobtree ls` lists its jobs.",
    );
    told.line("jobtree serve --demo &");
    told.replacing(url.trim(), "http://127.0.0.1:7717");
    told.prints(url.trim());
    let listed = || {
        let mut command = folder.command();
        command.env("JOBTREE_URL", url.trim());
        Ran::of(&mut command, &["ls"])
    };
    until(|| listed().text().contains("photos"));
    signal("TERM", demo.pid());
    assert_eq!(demo.wait(), Some(0));
    told
}

fn submitting() -> Chapter {
    let mut told = Chapter::new("A job, and a worker that runs it");
    let daemon = in_memory();
    told.about(&daemon);
    told.says("`jobtree serve` keeps jobs in a file. A job belongs to an addon and has a type; its payload is any JSON.");
    told.line("jobtree serve &");
    told.prints(&daemon.url);
    told.does(
        &daemon,
        &[
            "submit",
            "photos",
            "index",
            "--payload",
            "{\"path\":\"/photos\"}",
        ],
        0,
    );
    told.says("No worker serves its type yet, and `explain` says so.");
    told.does(&daemon, &["explain", "last"], 0);
    told.says("A worker is any program: the payload comes on standard input, lines of progress go out, the exit code tells.");
    let script = daemon.folder.write(
        "index.sh",
        "#!/bin/sh\nread payload\necho \"indexing $payload\"\necho '::progress 0.5 half of it'\necho '::result {\"files\": 3}'\n",
    );
    Command::new("chmod")
        .args(["+x", &script])
        .status()
        .expect("chmod");
    told.file("index.sh", &script);
    told.line("jobtree work --addon photos --type index -- ./index.sh &");
    let worker = work(&daemon, "index", &["./index.sh"]);
    told.does(&daemon, &["wait", "last"], 0);
    told.does(&daemon, &["logs", "last"], 0);
    told.does(&daemon, &["show", "last"], 0);
    drop(worker);
    told.says("In Python it is the same; `examples/workers` has one that speaks HTTP by itself.");
    let python = daemon.folder.write(
        "count.py",
        "import json, sys\nwords = json.load(sys.stdin)\nprint('::result', json.dumps({'letters': sum(map(len, words))}))\n",
    );
    told.file("count.py", &python);
    told.line("jobtree work --addon photos --type count -- python3 count.py &");
    let _worker = work(&daemon, "count", &["python3", "count.py"]);
    told.does(
        &daemon,
        &[
            "submit",
            "photos",
            "count",
            "--payload",
            "[\"one\",\"three\"]",
        ],
        0,
    );
    told.does(&daemon, &["wait", "last"], 0);
    let job = daemon.job("last");
    assert_eq!(job["result"]["letters"], 8, "{job}");
    told
}

fn commands() -> Chapter {
    let mut told = Chapter::new("Commands, when the machine is quiet");
    let without = in_memory();
    told.about(&without);
    told.says("A daemon runs commands only if it was told to.");
    told.does(&without, &["run", "-d", "--", "make", "world"], 0);
    drop(without);
    let daemon = Daemon::with(&["--store", "memory", "--runner"]);
    told.about(&daemon);
    has_runner(&daemon);
    told.line("jobtree serve --runner &");
    told.says("A build: its output comes as if it ran here, and so does its exit code.");
    let build = daemon
        .folder
        .write("build.sh", "echo compiling main.c\necho linking\n");
    told.file("build.sh", &build);
    told.does(&daemon, &["run", "--", "sh", "build.sh"], 0);
    told.says("What is piped in is passed on.");
    let piped = daemon.folder.write("list", "pear\napple\n");
    told.pipes(&daemon, &piped, &["run", "--", "sort"]);
    told.says(
        "A program that fails: its code is ours, and the end of its standard error is the reason.",
    );
    told.does(
        &daemon,
        &["run", "--", "sh", "-c", "echo no disk >&2; exit 3"],
        3,
    );
    told.does(&daemon, &["ls"], 0);
    told.does(&daemon, &["run", "-q", "--", "no-such-program"], 127);
    told.says("Ctrl-C stops a command as in a shell; `cancel` does so from elsewhere.");
    told.does(&daemon, &["run", "-d", "--", "sleep", "1000"], 0);
    is(&daemon, "last", "RUNNING");
    told.does(&daemon, &["cancel", "last", "--reason", "wrong folder"], 0);
    told
}

fn reasons() -> Chapter {
    let mut told = Chapter::new("Why does it wait?");
    let daemon = in_memory();
    told.about(&daemon);
    let worker = work(
        &daemon,
        "index",
        &["sh", "-c", "[ -e stop ] && sleep 1000; exit 1"],
    );
    until(|| daemon.run(&["workers"]).exits(0).stdout.contains("photos"));
    let mut explains = |title: &str, submit: &[&str]| {
        told.says(title);
        told.does(&daemon, submit, 0);
        told.does(&daemon, &["explain", "last"], 0);
    };
    explains(
        "Its time has not come:",
        &[
            "submit",
            "photos",
            "index",
            "--after",
            "2099-01-01T00:00:00Z",
        ],
    );
    explains(
        "It depends on a job that has not ended:",
        &["submit", "photos", "index", "--depends-on", "last"],
    );
    explains(
        "It needs a machine that is not there:",
        &["submit", "photos", "index", "--label", "gpu"],
    );
    daemon
        .run(&["pause", "photos", "--reason", "moving house"])
        .exits(0);
    explains("Its addon is paused:", &["submit", "photos", "index"]);
    daemon.run(&["cancel", "--all"]).exits(0);
    daemon.run(&["resume", "photos"]).exits(0);
    told.says("It failed, and waits before its next attempt:");
    told.does(
        &daemon,
        &[
            "submit",
            "photos",
            "index",
            "--attempts",
            "3",
            "--backoff",
            "1h",
        ],
        0,
    );
    until(|| daemon.job("last")["attempts"] == 1);
    told.does(&daemon, &["explain", "last"], 0);
    told.says("`retry` does not wait for that; `edit` changes what was submitted.");
    told.does(
        &daemon,
        &["edit", "last", "--after", "none", "--priority", "high"],
        0,
    );
    until(|| daemon.job("last")["attempts"] == 2);
    told.does(&daemon, &["retry", "last"], 0);
    is(&daemon, "last", "FAILED");
    told.does(&daemon, &["redrive", "last"], 0);
    until(|| daemon.job("last")["attempts"] == 1);
    daemon.run(&["cancel", "--all"]).exits(0);
    daemon.folder.write("stop", "");
    let group = ["submit", "photos", "index", "--group", "albums"];
    daemon.run(&submits(&group)).exits(0);
    is(&daemon, "last", "RUNNING");
    told.says("Only one of its group runs at a time:");
    told.does(&daemon, &group, 0);
    until(|| daemon.run(&["explain", "last"]).text().contains("albums"));
    told.does(&daemon, &["explain", "last"], 0);
    daemon.run(&["cancel", "--all"]).exits(0);
    drop(worker);
    told
}

/// What the host tells of itself is PANIC, whatever else the machine does.
fn overloaded() -> Chapter {
    let mut told = Chapter::new("When the machine is overloaded");
    let daemon = Daemon::with(&["--store", "memory", "--runner"]);
    told.about(&daemon);
    has_runner(&daemon);
    told.says(
        "The daemon goes by what it measures, and by what a program tells of itself (`POST …/signals`): here, that its users wait \
         for ten seconds. `--now` does not wait for quiet, but for the end of PANIC.",
    );
    daemon.push(Load::Panic);
    told.does_as_written(&daemon, &["run", "-d", "--now", "--", "true"], 0);
    // The machine may be overloaded by itself: its signals differ from moment to moment, and may come before this one.
    let latency = || {
        let told = daemon.run(&["explain", "last", "--json"]).exits(0).json();
        let reason = &told["reasons"][0];
        let signals = reason["signals"].as_array().cloned().unwrap_or_default();
        let of_host = |signal: &serde_json::Value| signal["signal"] == "latency_ms";
        let found = signals.into_iter().find(of_host);
        found.filter(|_| reason["code"] == "panic")
    };
    until(|| latency().is_some());
    let why = daemon.run(&["explain", "last"]).exits(0);
    let (begin, _) = why.stdout.split_once("(PANIC): ").expect("the state");
    let latency = latency().expect("it is pushed");
    let shown = |part: &str| latency[part].as_str().expect("a text").to_owned();
    let signal = format!(
        "{begin}(PANIC): latency of the host's requests {} (bound {})",
        shown("value"),
        shown("bound")
    );
    told.ran_as(
        "jobtree explain last",
        &Ran {
            line: why.line.clone(),
            code: why.code,
            stdout: format!("{signal}, …\n…\n"),
            stderr: String::new(),
        },
    );
    told.says("An admin may do something about it at once; the job's events say that the load was ignored.");
    told.does_as_written(
        &daemon,
        &["run", "-q", "--ignore-load", "--", "echo", "repaired"],
        0,
    );
    told
}

fn by_the_clock() -> Chapter {
    let mut told = Chapter::new("By the clock");
    let daemon = Daemon::with(&["--store", "memory", "--runner"]);
    told.about(&daemon);
    told.does(
        &daemon,
        &[
            "schedule",
            "add",
            "nightly",
            "0 3 1 1 *",
            "--",
            "echo",
            "backup",
        ],
        0,
    );
    told.does(&daemon, &["schedule", "run-now", "nightly"], 0);
    told.does(&daemon, &["wait", "last"], 0);
    told.does(&daemon, &["logs", "last"], 0);
    told.does(
        &daemon,
        &[
            "schedule",
            "edit",
            "nightly",
            "--zone",
            "Europe/Berlin",
            "--no-overlap",
        ],
        0,
    );
    told.does(&daemon, &["schedule", "ls"], 0);
    told
}

fn restarts() -> Chapter {
    let mut told = Chapter::new("What survives");
    let mut daemon = Daemon::with(&["--policy", SHORT_LEASES, "--runner"]);
    told.about(&daemon);
    told.says("Jobs are on disk before their id is printed: they outlive a restart, a crash and a power cut.");
    told.does(&daemon, &["submit", "photos", "index"], 0);
    daemon.ends_and_returns("TERM");
    told.line("kill $DAEMON; jobtree serve --runner &");
    has_runner(&daemon);
    told.does(&daemon, &["ls"], 0);
    told.says("A command whose runner dies is run again; the log has a line between the runs.");
    let script = "echo begun; [ -e second ] || { touch second; sleep 1000; }; echo done";
    told.does(&daemon, &["run", "-d", "--", "sh", "-c", script], 0);
    until(|| daemon.folder.join("second").exists());
    until(|| daemon.run(&["logs", "last"]).exits(0).stdout == "begun\n");
    daemon.ends_and_returns("KILL");
    told.line("kill -9 $DAEMON; jobtree serve --runner &");
    has_runner(&daemon);
    told.does(&daemon, &["wait", "last"], 0);
    told.does(&daemon, &["logs", "last"], 0);
    told.says("One that must not run twice says so.");
    told.does(&daemon, &["run", "-d", "--once", "--", "sleep", "1000"], 0);
    is(&daemon, "last", "RUNNING");
    daemon.ends_and_returns("KILL");
    told.line("kill -9 $DAEMON; jobtree serve --runner &");
    told.does(&daemon, &["wait", "last"], 10);
    told
}

fn refused() -> Chapter {
    let mut told = Chapter::new("What goes wrong");
    let daemon = in_memory();
    told.about(&daemon);
    told.says("No daemon, a wrong token, a word that is none: each says what to do next.");
    let mut command = daemon.folder.command();
    told.ran(&Ran::of(&mut command, &["ls"]).exits(3));
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", "wrong");
    told.line("export JOBTREE_TOKEN=wrong");
    told.ran(&Ran::of(&mut command, &["ls"]).exits(4));
    told.line("unset JOBTREE_TOKEN");
    told.does(&daemon, &["show", "ffffffffffff"], 5);
    told.does(
        &daemon,
        &["submit", "photos", "index", "--after", "soon"],
        2,
    );
    told.does(&daemon, &["cancel", "--filter", ""], 2);
    drop(daemon);
    told.says("A file that is no database, or was damaged:");
    let folder = support::Folder::new();
    told.replacing(folder.0.to_str().expect("a path"), "~");
    std::fs::create_dir_all(folder.join("data")).expect("a folder");
    std::fs::write(folder.join("data/jobs.db"), "no database".repeat(1000)).expect("a file");
    let serve = |folder: &support::Folder| {
        let ran = Ran::of(&mut folder.command(), &["serve", "--listen", "127.0.0.1:0"]);
        ran.exits(1)
    };
    told.ran_as("jobtree serve", &serve(&folder));
    damage(&folder);
    told.says("A store whose disk has lost a part of it:");
    told.ran_as("jobtree serve", &serve(&folder));
    told.says("A folder that belongs to another account:");
    let data = folder.join("data");
    let allow = |mode| std::fs::set_permissions(&data, PermissionsExt::from_mode(mode));
    allow(0o000).expect("the owner may");
    for arguments in [&["ls"][..], &["serve", "--listen", "127.0.0.1:0"]] {
        let mut command = folder.command();
        // Permissions do not stop root.
        if std::fs::metadata("/proc/self").expect("itself").uid() == 0 {
            command.uid(65534).gid(65534);
        }
        let ran = Ran::of(&mut command, arguments);
        assert!(ran.stderr.contains("ermission denied"), "{ran:?}");
        assert!(
            ran.stderr.contains(data.to_str().expect("a path")),
            "{ran:?}"
        );
        told.ran_as(&format!("jobtree {}", arguments[0]), &ran);
    }
    allow(0o700).expect("the owner may");
    told
}

/// Makes a store with jobs in it, and writes over its first pages behind the head.
fn damage(folder: &support::Folder) {
    std::fs::remove_dir_all(folder.join("data")).expect("the old data");
    let mut daemon = Daemon::within(support::Folder::new(), &[]);
    for _ in 0..5 {
        daemon.run(&["submit", "photos", "index"]).exits(0);
    }
    daemon.ends("TERM");
    let file = daemon.folder.join("data/jobs.db");
    let mut bytes = std::fs::read(&file).expect("the store");
    // The head of the file stays, and with it what it is.
    let pages = &mut bytes[4096..];
    pages.fill(0xa5);
    std::fs::create_dir_all(folder.join("data")).expect("a folder");
    std::fs::write(folder.join("data/jobs.db"), bytes).expect("a file");
}

/// None where no file system can be mounted.
fn full_disk() -> Option<Chapter> {
    let mut told = Chapter::new("A full disk");
    let folder = support::Folder::new();
    let data = folder.join("data");
    std::fs::create_dir_all(&data).expect("a folder");
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=4m", "jobtree-test"])
        .arg(&data);
    if !mount.output().is_ok_and(|output| output.status.success()) {
        support::skipped("the story of a full disk: this user may not mount one");
        return None;
    }
    let mounted = Mounted(data.clone());
    let daemon = Daemon::within(folder, &[]);
    told.about(&daemon);
    told.says("With no room left, a submission is refused and says so; nothing that was answered is lost.");
    let payload = format!("\"{}\"", "x".repeat(60_000));
    let submit = || {
        let command = [
            "submit",
            "photos",
            "index",
            "--payload",
            &payload,
            "--after",
            "5h",
        ];
        daemon.run(&command)
    };
    let mut kept = Vec::new();
    let refused = loop {
        let ran = submit();
        match ran.code {
            Some(0) => kept.push(ran.text()),
            _ => break ran,
        }
    };
    assert!(refused.stderr.contains("full"), "{refused:?}");
    told.ran_as(
        "jobtree submit photos index --payload \"$LARGE\"",
        &refused.exits(1),
    );
    for id in kept.iter().take(3) {
        assert_eq!(daemon.job(id)["state"], "QUEUED");
    }
    told.says("`jobtree explain` says the same, and so do the log of the daemon, `jobtree doctor` and `/readyz`.");
    // A small write of the daemon's own may find room, and then it is well until the next large one.
    let full = |look: &dyn Fn() -> String| {
        let mut seen = String::new();
        until(|| {
            submit();
            seen = look();
            seen.contains("/data is full")
        });
        seen
    };
    let explained = full(&|| daemon.run(&["explain", &kept[0]]).exits(0).stdout);
    let first: Vec<&str> = explained.lines().take(3).collect();
    let why = daemon.run(&["explain", &kept[0]]).exits(0);
    let stdout = first.join("\n") + "\n";
    told.ran_as("jobtree explain last", &Ran { stdout, ..why });
    let log = || std::fs::read_to_string(daemon.folder.join("serve.err")).unwrap_or_default();
    until(|| log().contains("ERROR"));
    assert!(
        log().contains("/data is full, and nothing is written: make room"),
        "{}",
        log()
    );
    full(&|| daemon.run(&["doctor"]).exits(1).stdout);
    let answer = full(&|| ready(&daemon.url));
    assert!(answer.contains("503"), "{answer}");
    drop(mounted);
    drop(daemon);
    Some(told)
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn database_away() -> Chapter {
    let mut told = Chapter::new("A PostgreSQL that goes away");
    let mut server = postgres::Server::start();
    let url = url_of(&server.new_place());
    let daemon = Daemon::with(&["--store", &url]);
    told.about(&daemon);
    told.replacing(&url, "postgres://…");
    told.line("jobtree serve --store postgres://… &");
    told.does(&daemon, &["submit", "photos", "index"], 0);
    let id = daemon.run(&["ls", "--json"]).exits(0).json()["jobs"][0]["job_id"].clone();
    let id = id.as_str().expect("an id").to_owned();
    let told_by_wait = daemon.folder.join("wait.err");
    let mut waiting = Beside::start(
        daemon
            .command()
            .args(["wait", &id])
            .stdout(std::process::Stdio::null())
            .stderr(std::fs::File::create(&told_by_wait).expect("a file")),
    );
    told.line("jobtree wait last &");
    told.line("systemctl stop postgresql");
    server.crash();
    told.says("A command that waits says why, and goes on when the database is back. A new job is refused instead of lost.");
    const AWAY: &str = "the database does not answer (";
    let waits = || std::fs::read_to_string(&told_by_wait).unwrap_or_default();
    until(|| waits().contains(AWAY));
    // What the system says of the connection depends on the moment.
    let plain = |text: &str| -> String {
        let (before, rest) = text.split_once(AWAY).unwrap_or_else(|| panic!("{text}"));
        let (_, behind) = rest.split_once("), ").unwrap_or_else(|| panic!("{text}"));
        format!("{before}{AWAY}…), {behind}")
    };
    let all = waits();
    let line = all
        .lines()
        .find(|line| line.contains(AWAY))
        .expect("a line");
    told.prints(&plain(line));
    let refused = daemon.run(&["submit", "photos", "index"]).exits(1);
    let stderr = plain(&refused.stderr);
    told.ran_as("jobtree submit photos index", &Ran { stderr, ..refused });
    let log = || std::fs::read_to_string(daemon.folder.join("serve.err")).unwrap_or_default();
    until(|| log().contains("ERROR") && log().contains(AWAY));
    let doctor = daemon.run(&["doctor"]).exits(1);
    assert!(doctor.stdout.contains(AWAY), "{doctor:?}");
    let answer = ready(&daemon.url);
    assert!(answer.contains("503") && answer.contains(AWAY), "{answer}");
    told.line("systemctl start postgresql");
    server.run();
    until(|| daemon.run(&["show", &id]).code == Some(0));
    until(|| daemon.run(&["cancel", &id, "--reason", "enough"]).code == Some(0));
    assert_eq!(waiting.wait(), Some(11));
    until(|| log().contains("the store takes changes again"));
    told
}

#[test]
fn the_first_hour_is_as_its_transcript_tells() {
    let _watchdog = watch();
    // Most of the time is waiting, for leases that end and servers that start.
    let stories: [fn() -> Option<Chapter>; 10] = [
        || Some(demo()),
        || Some(submitting()),
        || Some(commands()),
        || Some(reasons()),
        || Some(overloaded()),
        || Some(by_the_clock()),
        || Some(restarts()),
        || Some(refused()),
        full_disk,
        || Some(database_away()),
    ];
    let told = stories.map(std::thread::spawn);
    let chapters = told.map(|chapter| match chapter.join() {
        Ok(chapter) => chapter,
        Err(panic) => std::panic::resume_unwind(panic),
    });
    compare(chapters.into_iter().flatten().collect());
}
