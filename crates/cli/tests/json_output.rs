//! Every command, against a daemon that was started as the documentation says: with the default policy. What commands print with
//! `--json` fits `docs/json.schema.json`.
//!
//! Jobs are submitted with `--ignore-load`, so that the load of this machine does not matter.

mod support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use support::schema::Schemas;
use support::{Beside, Daemon, Folder, Ran, until, watch};

/// Commands that do something and print nothing of it, not even with `--json`.
const SILENT: [&str; 10] = [
    "kick",
    "schedule rm",
    "lease report",
    "lease release",
    "lease revoke",
    "lease pid",
    "token rm",
    "webhook rm",
    "policy set",
    "policy validate",
];
/// Commands whose output is for a shell or a reader of manual pages.
const TEXT: [&str; 2] = ["completions", "man"];

/// The names of all commands, as the help lists them.
fn commands(folder: &Folder) -> BTreeSet<String> {
    let listed = |arguments: &[&str]| -> Vec<String> {
        let help = Ran::of(&mut folder.command(), &[arguments, &["--help"]].concat()).text();
        let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let lines = lines.take_while(|line| !line.is_empty());
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect()
    };
    let mut all = BTreeSet::new();
    for name in listed(&[]) {
        let parts = listed(&[&name]);
        match parts.is_empty() {
            true => drop(all.insert(name)),
            false => all.extend(parts.iter().map(|part| format!("{name} {part}"))),
        }
    }
    all
}

/// Runs commands, and notes whose output was checked.
struct Checked<'a> {
    daemon: &'a Daemon,
    schemas: Schemas,
    names: BTreeSet<String>,
}

impl Checked<'_> {
    fn document(&mut self, name: &str, document: &Value) {
        if let Err(wrong) = self.schemas.check(name, document) {
            panic!("jobtree {name} --json: {wrong}");
        }
        self.names.insert(name.to_owned());
    }

    /// Runs a command, and returns the last document that it printed.
    #[track_caller]
    fn run(&mut self, name: &str, more: &[&str], code: i32) -> Value {
        let mut arguments: Vec<&str> = name.split(' ').collect();
        arguments.push("--json");
        arguments.extend(more);
        let ran = self.daemon.run(&arguments).exits(code);
        self.printed(name, &ran)
    }

    #[track_caller]
    fn printed(&mut self, name: &str, ran: &Ran) -> Value {
        let documents = serde_json::Deserializer::from_str(&ran.stdout).into_iter::<Value>();
        let documents: Vec<Value> = documents
            .map(|document| document.unwrap_or_else(|error| panic!("{error}: {ran:?}")))
            .collect();
        for document in &documents {
            self.document(name, document);
        }
        match documents.last() {
            Some(last) => last.clone(),
            None => panic!("no JSON: {ran:?}"),
        }
    }

    /// Runs a command that prints nothing.
    #[track_caller]
    fn silent(&mut self, name: &str, more: &[&str]) {
        assert!(SILENT.contains(&name), "{name} is not listed");
        let mut arguments: Vec<&str> = name.split(' ').collect();
        arguments.push("--json");
        arguments.extend(more);
        let ran = self.daemon.run(&arguments).exits(0);
        assert_eq!(ran.stdout, "", "{ran:?}");
        self.names.insert(name.to_owned());
    }

    /// Runs a command that cannot do what it is told.
    #[track_caller]
    fn refused(&mut self, arguments: &[&str], code: i32) {
        let ran = self.daemon.run(arguments).exits(code);
        let last = ran.stderr.lines().last().unwrap_or_default();
        let error = serde_json::from_str(last).unwrap_or_else(|_| panic!("{ran:?}"));
        self.document("error", &error);
    }
}

/// Returns an identifier that is a field of a document.
fn id(document: &Value, field: &str) -> String {
    let id = document[field].as_str();
    id.unwrap_or_else(|| panic!("no {field}: {document}"))
        .to_owned()
}

#[test]
fn every_command_prints_json_that_fits_its_schema() {
    let _watchdog = watch();
    let daemon = Daemon::with(&["--runner"]);
    let mut all = Checked {
        daemon: &daemon,
        schemas: Schemas::read(),
        names: BTreeSet::new(),
    };
    of_jobs(&mut all);
    of_workers(&mut all);
    of_the_clock(&mut all);
    of_operators(&mut all);
    of_files(&mut all);
    of_the_daemon(&mut all);
    all.names.extend(TEXT.map(str::to_owned));
    let mut expected = commands(&daemon.folder);
    expected.insert("error".into());
    assert_eq!(all.names, expected);
    // No schema is left over.
    let others = SILENT.iter().chain(&TEXT);
    let others: BTreeSet<String> = others.map(|name| (*name).to_owned()).collect();
    let schemas = all.schemas.names();
    assert!(schemas.is_disjoint(&others));
    assert_eq!(schemas.len() + others.len(), expected.len());
}

fn of_jobs(all: &mut Checked<'_>) {
    let waiting = all.run("submit", &["photos", "index", "--after", "5h"], 0);
    let waiting = id(&waiting, "job_id");
    let lines = "{\"addon_id\":\"photos\",\"job_type\":\"index\"}\n{\"addon_id\":\"\",\"job_type\":\"index\"}\n";
    let file = all.daemon.folder.write("jobs.ndjson", lines);
    all.run("submit", &["--file", &file], 1);
    all.run("explain", &[&waiting], 0);
    all.run("trace", &[&waiting], 0);
    all.run("edit", &[&waiting, "--priority", "low"], 0);
    all.run("retry", &[&waiting], 0);
    all.run("wait", &[&waiting, "--timeout", "1ms"], 12);
    all.run("cancel", &[&waiting], 0);
    all.run("redrive", &[&waiting], 0);
    let script = "echo out; echo err >&2; exit 3";
    let ran = all.run("run", &["--ignore-load", "--", "sh", "-c", script], 3);
    assert_eq!(ran["state"], "FAILED", "{ran}");
    let running = all.run("run", &["-d", "--ignore-load", "--", "sleep", "1000"], 0);
    let running = id(&running, "job_id");
    until(|| all.daemon.job(&running)["state"] == "RUNNING");
    all.run("pause", &["--job", &running], 0);
    all.run("resume", &["--job", &running], 0);
    all.run("cancel", &[&running], 0);
    let detached = all.run("run", &["-d", "--", "true"], 0);
    all.run("cancel", &[&id(&detached, "job_id")], 0);
    all.run("logs", &[&id(&ran, "job_id")], 0);
    all.run("show", &[&id(&ran, "job_id"), "--events"], 0);
    all.run("ls", &[], 0);
    all.run("ls", &["--all"], 0);
    all.run("stats", &[], 0);
    all.run("watch", &["--after", "0", "--count", "5"], 0);
    // Measurements come among the events, whenever there is one.
    let mut watch = all.daemon.command();
    watch
        .args(["watch", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut watch = Beside::start(&mut watch);
    let lines = BufReader::new(watch.0.stdout.take().expect("it is piped")).lines();
    let mut lines = lines.map(|line| serde_json::from_str::<Value>(&line.expect("text")));
    let load = lines.find_map(|line| line.ok().filter(|line| line.get("load").is_some()));
    all.document("watch", &load.expect("a measurement"));
    all.refused(&["show", "ffffffffffff", "--json"], 5);
    all.refused(&["submit", "a", "t", "--cost", "0", "--json"], 2);
}

fn of_workers(all: &mut Checked<'_>) {
    let mut work = all.daemon.command();
    work.args(["work", "--json", "--addon", "photos", "--type", "scale"])
        .args(["--", "sh", "-c", "exit 4"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut work = Beside::start(&mut work);
    all.run("submit", &["photos", "scale", "--ignore-load"], 0);
    let mut line = String::new();
    let mut lines = BufReader::new(work.0.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("a line");
    all.document("work", &serde_json::from_str(&line).expect("JSON"));
    until(|| {
        let workers = all.run("workers", &[], 0);
        workers["workers"]
            .as_array()
            .is_some_and(|all| all.len() > 1)
    });
    drop(work);
    // Whatever the load is, the first is granted and the second denied: the machine has 100 units.
    let mut job = || {
        let submit = ["photos", "sync", "--cost", "60", "--ignore-load"];
        id(&all.run("submit", &submit, 0), "job_id")
    };
    let (first, second) = (job(), job());
    let lease = all.run("lease request", &["--job", &first], 0);
    let lease = id(&lease, "lease_id");
    all.run("lease request", &["--job", &second], 6);
    all.run("lease ls", &[], 0);
    all.run("lease show", &[&lease], 0);
    all.run("lease heartbeat", &[&lease], 0);
    all.silent("lease report", &[&lease, "--progress", "0.5"]);
    let own = std::process::id().to_string();
    all.silent("lease pid", &[&lease, "--pid", &own]);
    all.silent("lease release", &[&lease, "--return-jobs"]);
    let lease = all.run("lease request", &["--job", &second], 0);
    all.silent("lease revoke", &[&id(&lease, "lease_id")]);
}

fn of_the_clock(all: &mut Checked<'_>) {
    let add = ["nightly", "0 3 1 1 *", "photos", "index"];
    all.run("schedule add", &add, 0);
    all.run("schedule ls", &[], 0);
    all.run("schedule show", &["nightly"], 0);
    all.run("schedule pause", &["nightly"], 0);
    all.run("schedule resume", &["nightly"], 0);
    all.run("schedule edit", &["nightly", "--cost", "5"], 0);
    all.run("schedule run-now", &["nightly"], 0);
    all.silent("schedule rm", &["nightly"]);
}

fn of_operators(all: &mut Checked<'_>) {
    all.run("pause", &["music", "--reason", "tidying up"], 0);
    all.run("pause", &[], 0);
    all.run("status", &[], 0);
    all.run("top", &[], 0);
    all.run("resume", &["music"], 0);
    let create = ["reader", "--scope", "read", "--addon", "photos"];
    all.run("dashboard", &[], 0);
    all.run("token create", &create, 0);
    all.run("token ls", &[], 0);
    all.silent("token rm", &["reader"]);
    let secret = all.daemon.folder.write("secret", "0123456789abcdef\n");
    let add = ["http://127.0.0.1:1/hook", "--secret-file", &secret];
    let hook = all.run("webhook add", &add, 0);
    all.run("webhook ls", &[], 0);
    all.silent("webhook rm", &[&id(&hook, "webhook_id")]);
    all.run("policy show", &[], 0);
    let policy = all.daemon.folder.write("policy.toml", "");
    all.silent("policy validate", &[&policy]);
    all.silent("policy set", &[&policy]);
    all.silent("kick", &[]);
    all.run("clean", &["--all"], 0);
    all.run("config show", &[], 0);
    let doctor = all.daemon.run(&["doctor", "--json"]);
    // What it finds here is not the subject.
    all.printed("doctor", &doctor);
}

fn of_files(all: &mut Checked<'_>) {
    let copy = id(&all.run("backup", &["copy.db"], 0), "path");
    all.run("audit check", &[&copy], 0);
    let moved = all.daemon.folder.join("moved.db");
    let moved = moved.to_str().expect("a plain path");
    all.run("move-store", &["--from", &copy, "--to", moved], 0);
    // As its help says: from what two other commands print.
    let jobs = all.daemon.run(&["ls", "--all", "--json"]).exits(0).stdout;
    let jobs = all.daemon.folder.write("recorded.ndjson", &jobs);
    let at = jiff::Timestamp::now();
    let load =
        format!("{{\"at\":\"{at}\",\"busy\":0,\"state\":\"QUIET\",\"capacity\":0,\"used\":0}}\n");
    let load = all.daemon.folder.write("load.ndjson", &load);
    all.run("simulate", &["--load", &load, "--jobs", &jobs], 0);
    all.run("bench", &["--quick", "--workers", "1"], 0);
}

fn of_the_daemon(all: &mut Checked<'_>) {
    let folder = Folder::new();
    let mut serve = folder.command();
    serve
        .args(["serve", "--json", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut serve = Beside::start(&mut serve);
    let mut line = String::new();
    let mut lines = BufReader::new(serve.0.stdout.take().expect("it is piped"));
    lines.read_line(&mut line).expect("a line");
    all.document("serve", &serde_json::from_str(&line).expect("JSON"));
}
