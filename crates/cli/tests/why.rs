//! Why a job does not run: each reason as `explain` tells it, and the same first reason in `ls` and `wait`.
//!
//! Daemons have the default policy. Where a job must start, it leaves out what goes by the load of this machine; see
//! `support/always.toml`. Load is what the test pushes.

mod support;

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use jobtree_client::Client;
use jobtree_protocol::{AddonId, ClaimRequest, Heartbeat, InstanceId};
use serde_json::Value;
use support::{ALWAYS, Beside, Daemon, Folder, Load, Ran, always, ready, signal, until, watch};

/// Returns the reasons of a job, as JSON.
fn reasons(daemon: &Daemon, id: &str) -> Vec<Value> {
    let told = daemon.run(&["explain", id, "--json"]).exits(0).json();
    told["reasons"].as_array().expect("a list").clone()
}

/// Waits until the first reason of a job has this code, and returns its message. `ls` and `wait` must tell the same.
#[track_caller]
fn first_reason(daemon: &Daemon, id: &str, code: &str) -> String {
    let mut first = Value::Null;
    until(|| {
        let all = reasons(daemon, id);
        first = all.into_iter().next().unwrap_or_default();
        first["code"] == code
    });
    assert!(first["since"].is_string(), "{first}");
    let message = first["message"].as_str().expect("a text").to_owned();
    // Numbers in it may have changed since.
    let words = |text: &str| -> String {
        let beginning: String = text.chars().take(30).collect();
        beginning.chars().filter(|c| !c.is_ascii_digit()).collect()
    };
    let listed = daemon.run(&["ls"]).exits(0).stdout;
    let end = &id[id.len() - 8..];
    let line = listed
        .lines()
        .find(|line| line.contains(end))
        .unwrap_or_default();
    let shown: String = line.chars().filter(|c| !c.is_ascii_digit()).collect();
    assert!(shown.contains(&words(&message)), "{message:?} in {line:?}");
    let top = daemon.run(&["top", "--once", "--width", "200", "--height", "60"]);
    let top = top.exits(0).stdout;
    let line = top.lines().find(|line| line.contains(end));
    let shown: String = line
        .unwrap_or(&top)
        .chars()
        .filter(|c| !c.is_ascii_digit())
        .collect();
    assert!(shown.contains(&words(&message)), "{message:?} in {shown:?}");
    let waited = daemon
        .run(&["wait", id, "--timeout", "1ms"])
        .exits(12)
        .stderr;
    let waited: String = waited.chars().filter(|c| !c.is_ascii_digit()).collect();
    assert!(
        waited.contains(&words(&message)),
        "{message:?} in {waited:?}"
    );
    message
}

#[test]
fn a_pause_tells_who_paused_and_why_and_since_when() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let ops = ["token", "create", "ops", "--scope", "admin", "-q"];
    let ops = daemon.run(&ops).text();
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", ops);
    Ran::of(&mut command, &["pause", "photos", "--reason", "disk swap"]).exits(0);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let message = first_reason(&daemon, &id, "addon_paused");
    assert_eq!(message, "The addon is paused by token \"ops\": disk swap");
    let first = &reasons(&daemon, &id)[0];
    let created = daemon.job(&id)["created_at"]
        .as_str()
        .expect("a time")
        .to_owned();
    assert!(
        first["since"].as_str().expect("a time") < created.as_str(),
        "{first}"
    );
    let told = daemon.run(&["explain", &id]).text();
    assert!(told.contains("+00:00"), "times have an offset: {told}");
    assert!(
        told.contains("until its addon is resumed (jobtree resume photos)"),
        "{told}"
    );
    let shown = daemon.run(&["pause", "--json"]);
    assert!(
        shown.stdout.contains("token \\\"ops\\\"") || shown.code != Some(0),
        "{shown:?}"
    );
}

#[test]
fn no_worker_tells_who_served_the_type_last() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let message = first_reason(&daemon, &id, "unserved");
    assert_eq!(
        message,
        "No worker serves index jobs of addon photos: none has called since the daemon started"
    );
    let told = daemon.run(&["explain", &id]).text();
    let until = "until a worker for addon photos and type index is started";
    assert!(told.contains(until), "{told}");
}

/// A worker that went away is told with the time of its last call.
#[test]
fn a_type_whose_worker_has_gone_tells_which_worker_it_was() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let mut work = daemon.command();
    work.args(["work", "-q", "--addon", "photos", "--type", "index", "--"])
        .arg("true");
    let mut worker = Beside::start(&mut work);
    let done = daemon.run(&["submit", "photos", "index"]).text();
    daemon.run(&["wait", &done]).exits(0);
    signal("TERM", worker.pid());
    worker.wait();
    let before = jiff::Timestamp::now();
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let message = first_reason(&daemon, &id, "unserved");
    let begin =
        "No worker serves index jobs of addon photos: served last by jobtree work 0.1.0, process ";
    let rest = message
        .strip_prefix(begin)
        .unwrap_or_else(|| panic!("{message}"));
    let (pid, at) = rest
        .split_once(" at ")
        .unwrap_or_else(|| panic!("{message}"));
    assert_eq!(pid, worker.pid().to_string());
    assert!(
        at.parse::<jiff::Timestamp>().expect("a time") <= before,
        "{message}"
    );
}

#[test]
fn what_a_job_asks_of_its_machine_and_of_other_jobs_is_named() {
    let _watchdog = watch();
    let daemon = Daemon::start();
    let submit = |more: &[&str]| {
        let all = [&["submit", "photos", "index"][..], more].concat();
        daemon.run(&all).text()
    };
    let first = submit(&["--label", "gpu"]);
    for (more, message) in [
        (
            &["--label", "gpu"][..],
            "The job asks for the label gpu, which node local does not have",
        ),
        (
            &["--label", "gpu", "--label", "tape"],
            "The job asks for the labels gpu, tape, which node local does not have",
        ),
        (
            &["--node", "n2"],
            "The job asks for node n2; this is node local",
        ),
        (
            &["--node", "n2", "--label", "gpu"],
            "The job asks for node n2 and the label gpu; this is node local",
        ),
    ] {
        assert_eq!(first_reason(&daemon, &submit(more), "wrong_node"), message);
    }
    let behind = submit(&["--depends-on", &first]);
    let message = first_reason(&daemon, &behind, "dependency");
    assert_eq!(message, format!("The job waits for job {first} to end"));
    let told = daemon.run(&["explain", &behind]).text();
    assert!(told.contains(&format!("until job {first} ends")), "{told}");
}

/// What runs and stands still is told, too, by all that show it.
#[test]
fn a_command_that_stands_still_says_why() {
    let _watchdog = watch();
    let folder = Folder::new();
    let policy = folder.write("policy.toml", &always("60s"));
    let daemon = Daemon::with(&["--store", "memory", "--policy", &policy, "--runner"]);
    let told = daemon.folder.join("run.err");
    let mut run = daemon.command();
    run.args([
        "run",
        "--",
        "sh",
        "-c",
        "while ! [ -e stop ]; do sleep 0.1; done",
    ])
    .stdout(Stdio::null())
    .stderr(File::create(&told).expect("a file"));
    let mut running = Beside::start(&mut run);
    let shown = || std::fs::read_to_string(&told).unwrap_or_default();
    until(|| daemon.run(&["show", "last"]).stdout.contains("RUNNING"));
    let id = daemon.job("last")["job_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    assert_eq!(reasons(&daemon, &id), [] as [Value; 0]);
    until(|| {
        daemon.push(Load::Panic);
        reasons(&daemon, &id)
            .first()
            .is_some_and(|reason| reason["code"] == "held_by_load")
    });
    let message = first_reason(&daemon, &id, "held_by_load");
    assert_eq!(
        message,
        "The command stands still while the machine is overloaded (PANIC)"
    );
    until(|| shown().contains(&format!("waiting: {message}")));
    until(|| {
        daemon.push(Load::Quiet);
        reasons(&daemon, &id).is_empty()
    });
    daemon.run(&["pause", "--job", &id]).exits(0);
    let message = first_reason(&daemon, &id, "run_paused");
    assert!(
        message.contains(" by the admin of this machine"),
        "{message}"
    );
    let paused = "waiting: The run of the job is paused by the admin of this machine";
    until(|| shown().contains(paused));
    daemon.run(&["resume", "--job", &id]).exits(0);
    daemon.folder.write("stop", "");
    assert_eq!(running.wait(), Some(0));
    for told in ["waiting: The command ", paused] {
        assert_eq!(shown().matches(told).count(), 1, "{}", shown());
    }
}

#[test]
fn taken_slots_and_a_job_that_is_claimed_behind_another_are_named() {
    let _watchdog = watch();
    let daemon = Daemon::with(&[
        "--store",
        "memory",
        "--policy",
        ALWAYS,
        "--runner",
        "--runner-slots",
        "1",
    ]);
    let first = daemon.run(&["run", "-d", "--", "sleep", "60"]).text();
    until(|| daemon.job(&first)["state"] == "RUNNING");
    let more: Vec<String> = (0..4)
        .map(|_| daemon.run(&["run", "-d", "--", "sleep", "60"]).text())
        .collect();
    // One of them may be in the runner's hands already, in advance; the last is not.
    let last = &more[3];
    let message = first_reason(&daemon, last, "no_worker");
    assert!(message.starts_with("All worker slots for "), "{message}");
    assert!(message.contains(": 1 of 1 ("), "{message}");
    daemon.run(&["cancel", "--all"]).exits(0);

    // Claimed together, run one after the other. The claim is there before the jobs may start, so it gets all of them.
    daemon.run(&["pause", "photos"]).exits(0);
    let batch: Vec<String> = (0..4)
        .map(|_| daemon.run(&["submit", "photos", "index"]).text())
        .collect();
    let client = Client::builder(&daemon.url).token(daemon.token());
    let client = client.build().expect("a client");
    let claim = ClaimRequest {
        max_jobs: 4,
        wait_sec: 300,
        ..ClaimRequest::one_job(
            AddonId::new("photos").expect("a name"),
            InstanceId::generate(),
        )
    };
    let claims = client.clone();
    let claimed = thread::spawn(move || claims.claim(&claim).expect("the daemon answers"));
    let codes = |id: &str| -> Vec<Value> {
        let all = reasons(&daemon, id).into_iter();
        all.map(|reason| reason["code"].clone()).collect()
    };
    until(|| codes(&batch[0]) == ["addon_paused"]);
    daemon.run(&["resume", "photos"]).exits(0);
    let leases = claimed.join().expect("it claims");
    let jobs: Vec<String> = leases[0]
        .jobs
        .iter()
        .map(|job| job.job_id.to_string())
        .collect();
    assert_eq!(jobs.len(), 4, "{leases:?}");
    assert_eq!(daemon.job(&jobs[0])["state"], "RUNNING");
    for id in &jobs[1..] {
        // A worker that is silent is another reason.
        let beat = Heartbeat::of(leases[0].lease_id);
        client.heartbeat(beat).expect("it holds");
        let message = first_reason(&daemon, id, "claimed");
        let behind = format!("has claimed the job and runs job {} first", jobs[0]);
        assert!(message.ends_with(&behind), "{message}");
    }
}

#[test]
fn a_failed_run_tells_which_attempt_comes_when() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--store", "memory", "--policy", ALWAYS, "--runner"]);
    let id = daemon
        .run(&["run", "-d", "--attempts", "3", "--", "false"])
        .text();
    let message = first_reason(&daemon, &id, "retry_backoff");
    assert!(
        message.starts_with("The last run failed: attempt 2 of 3 starts at "),
        "{message}"
    );
    daemon.run(&["cancel", &id]).exits(0);
}

#[test]
fn a_silent_worker_is_named() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let id = daemon.run(&["submit", "photos", "index"]).text();
    let mut worker = daemon.command();
    worker
        .args([
            "work", "--addon", "photos", "--type", "index", "--", "sleep", "60",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let worker = Beside::start(&mut worker);
    until(|| daemon.job(&id)["state"] == "RUNNING");
    signal("STOP", worker.pid());
    let message = first_reason(&daemon, &id, "worker_silent");
    assert!(
        message.contains(" has the job and is silent since "),
        "{message}"
    );
    signal("CONT", worker.pid());
}

#[test]
fn panic_names_its_signals_and_now_and_ignore_load_waive_what_they_say() {
    let _watchdog = watch();
    let folder = Folder::new();
    let policy = folder.write("policy.toml", &always_with_cooldown());
    let daemon = Daemon::with(&["--store", "memory", "--policy", &policy, "--runner"]);
    until(|| {
        daemon.push(Load::Panic);
        let status = daemon.run(&["top", "--json"]).exits(0).json();
        status["nodes"][0]["state"] == "PANIC"
    });
    let now = daemon.run(&["run", "-d", "--now", "--", "true"]).text();
    let message = first_reason(&daemon, &now, "panic");
    assert!(
        message.starts_with("The machine is overloaded (PANIC): latency of the host's requests 10000 ms (bound 575 ms)"),
        "{message}"
    );
    let signals = &reasons(&daemon, &now)[0]["signals"];
    assert_eq!(signals[0]["signal"], "latency_ms");
    assert_eq!(
        (&signals[0]["value"], &signals[0]["bound"]),
        (&"10000 ms".into(), &"575 ms".into())
    );
    // What ignores the load starts, and the trail says so.
    daemon.run(&["run", "--ignore-load", "--", "true"]).exits(0);
    let ran = daemon.job("last");
    assert_eq!(ran["start"], "ignore_load");
    assert_eq!(
        ran["events"][0]["reason"],
        "starts whatever the load is, also in PANIC"
    );
    // Only an admin may.
    let token = [
        "token", "create", "s", "--addon", "photos", "--scope", "submit", "-q",
    ];
    let token = daemon.run(&token).text();
    let mut command = daemon.command();
    command.env("JOBTREE_TOKEN", token);
    let refused = Ran::of(
        &mut command,
        &["submit", "photos", "index", "--ignore-load"],
    );
    assert!(refused.stderr.contains("scope admin"), "{refused:?}");
    refused.exits(4);
    // It cools down for a minute now, which --now does not wait for.
    daemon.push(Load::Quiet);
    daemon.run(&["wait", &now]).exits(0);
    let quiet = daemon.run(&["run", "-d", "--", "true"]).text();
    first_reason(&daemon, &quiet, "cooling_down");
    // Each change of the state is in the trail.
    let watched = daemon.run(&["watch", "--after", "0", "--count", "40", "--json"]);
    assert!(watched.stdout.contains("LOAD_STATE"), "{watched:?}");
}

/// The policy of these tests, with the cool-down of a minute that is the default. A PANIC as short as those of these tests would be
/// taken for a spike, which has none.
fn always_with_cooldown() -> String {
    let cooldown = "panic_cooldown = \"60s\"";
    always("60s").replace(cooldown, &format!("{cooldown}\nspike = \"0\""))
}

#[test]
fn a_cool_down_survives_a_restart() {
    let _watchdog = watch();
    let folder = Folder::new();
    let policy = folder.write("policy.toml", &always_with_cooldown());
    let mut daemon = Daemon::with(&["--policy", &policy, "--runner"]);
    let state =
        |daemon: &Daemon| daemon.run(&["top", "--json"]).json()["nodes"][0]["state"].clone();
    until(|| {
        daemon.push(Load::Panic);
        state(&daemon) == "PANIC"
    });
    until(|| {
        daemon.push(Load::Quiet);
        state(&daemon) != "PANIC"
    });
    daemon.ends_and_returns("TERM");
    let id = daemon.run(&["run", "-d", "--", "true"]).text();
    let message = first_reason(&daemon, &id, "cooling_down");
    assert!(message.contains("cools down for 1m"), "{message}");
}

/// A small disk of its own, unmounted with the test.
struct SmallDisk(Folder);

impl SmallDisk {
    /// Mounts one; none where that is not allowed.
    fn mount() -> Option<Self> {
        let folder = Folder::new();
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=8m", "none"])
            .arg(&folder.0);
        let mounted = mount.stderr(Stdio::null()).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(SmallDisk(folder))
    }

    /// Writes a file that leaves no room.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).expect("a file");
        for size in [65536, 512, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0.0).status();
    }
}

#[test]
fn a_full_disk_is_named_until_there_is_room() {
    let _watchdog = watch();
    let Some(disk) = SmallDisk::mount() else {
        support::skipped("this user may not mount a disk");
        return;
    };
    let place = disk.0.0.to_str().expect("a plain path").to_owned();
    let daemon = Daemon::with(&["--data-dir", &place, "--no-auth"]);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    disk.fill();
    // What is written is small, and the file has some room left.
    let mut refused = None;
    until(|| {
        let payload = format!("{:?}", "x".repeat(4000));
        let ran = daemon.run(&["submit", "photos", "index", "--payload", &payload]);
        refused = Some(ran);
        refused.as_ref().is_some_and(|ran| ran.code != Some(0))
    });
    let refused = refused.expect("it was");
    let told = format!("the disk of {place} is full, and nothing is written: make room there");
    assert!(
        refused.stderr.starts_with(&format!("error: {told}")),
        "{refused:?}"
    );
    let message = first_reason(&daemon, &id, "store");
    assert!(message.starts_with(&told), "{message}");
    let answer = ready(&daemon.url);
    assert!(answer.contains("503") && answer.contains(&told), "{answer}");
    std::fs::remove_file(disk.0.join("filler")).expect("there is room");
    until(|| daemon.run(&["submit", "photos", "index"]).code == Some(0));
    first_reason(&daemon, &id, "unserved");
    assert!(ready(&daemon.url).contains("200"));
}

/// Sends a request as it is, and returns the first line of the answer.
fn raw(url: &str, request: &str) -> String {
    let answer = support::raw(url, request);
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_demo_without_a_token_refuses_pages_of_other_sites() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--demo"]);
    let host = daemon.url.strip_prefix("http://").expect("an address");
    let request = |method: &str, path: &str, headers: &str, body: &str| {
        let length = body.len();
        raw(
            &daemon.url,
            &format!(
                "{method} {path} HTTP/1.1\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
            ),
        )
    };
    let submit = "/api/system/scheduler/queue/jobs/submit";
    let kick = "/api/system/scheduler/queue/kick";
    let status = "/api/system/scheduler/status";
    let body = r#"{"addon_id":"a","job_type":"t","cost_units":1}"#;
    let json = format!("Host: {host}\r\nContent-Type: application/json\r\n");
    let is = |answer: &str, code: &str| {
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code}")),
            "{answer} is not {code}"
        );
    };
    // A program, and a page of this server.
    is(&request("POST", submit, &json, body), "200");
    is(
        &request("GET", status, &format!("Host: {host}\r\n"), ""),
        "200",
    );
    let own = format!("{json}Origin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n");
    is(&request("POST", submit, &own, body), "200");
    // A name of somebody else's that resolves to this machine.
    let rebound = "Host: evil.example\r\nContent-Type: application/json\r\n";
    is(&request("POST", submit, rebound, body), "421");
    is(&request("GET", status, rebound, ""), "421");
    // What a page of another site can send without asking first: forms, plain text, reads.
    for headers in [
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
    ] {
        for kind in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "application/json",
        ] {
            let headers = format!("Host: {host}\r\nContent-Type: {kind}\r\n{headers}");
            is(&request("POST", submit, &headers, body), "403");
            is(&request("POST", kick, &headers, ""), "403");
        }
        let headers = format!("Host: {host}\r\n{headers}");
        is(&request("GET", status, &headers, ""), "403");
    }
    // A browser that says nothing of where a request comes from: only JSON is taken, which a page cannot send so.
    let plain = format!("Host: {host}\r\nContent-Type: text/plain\r\n");
    is(&request("POST", submit, &plain, body), "415");
    let none = format!("Host: {host}\r\n");
    is(&request("POST", submit, &none, body), "415");
}
