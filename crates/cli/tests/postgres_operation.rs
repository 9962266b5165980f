//! How a store on PostgreSQL is reached: over TLS, through a pooler, and under a name that no other scheduler has. And what is
//! remembered on both kinds of stores, since the first release.

#[path = "two_daemons/pair.rs"]
mod pair;
mod support;

use std::path::Path;

use jobtree_store::{OpenError, PostgresOptions, Store};
use pair::Server;
use pair::postgres::unprivileged;
use support::{ALWAYS, Beside, Daemon, Folder, Ran, until, watch};

fn open(url: &str) -> Result<Store, OpenError> {
    Store::connect(&PostgresOptions::new(url))
}

/// Returns what opening fails with.
#[track_caller]
fn refused(url: &str) -> String {
    match open(url) {
        Ok(_) => panic!("{url} was opened"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn tls_is_spoken_as_sslmode_says() {
    let _watchdog = watch();
    let server = Server::start();
    let folder = Folder::new();
    let own =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("another");
    server.speak_tls(&own.cert.pem(), &own.signing_key.serialize_pem());
    let root = folder.write("root.crt", &own.cert.pem());
    let other = folder.write("other.crt", &other.cert.pem());
    let url = |host: &str, rest: &str| {
        format!(
            "postgres://postgres@{host}:{}/postgres?{rest}",
            server.port()
        )
    };
    // Whether all connections of a store are encrypted.
    let encrypted = |url: &str| {
        let store = open(url).unwrap_or_else(|error| panic!("{url}: {error}"));
        store.counts(false).wait().expect("it answers");
        let all = "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                   WHERE application_name LIKE 'jobtree%'";
        let all = server.sql(all);
        drop(store);
        until(|| {
            let left =
                "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'jobtree%'";
            server.sql(left) == "0"
        });
        all
    };
    assert_eq!(encrypted(&url("127.0.0.1", "sslmode=disable")), "f");
    assert_eq!(encrypted(&url("127.0.0.1", "")), "t");
    assert_eq!(encrypted(&url("127.0.0.1", "sslmode=require")), "t");
    let full = format!("sslmode=verify-full&sslrootcert={root}");
    assert_eq!(encrypted(&url("localhost", &full)), "t");
    let authority = format!("sslmode=verify-ca&sslrootcert={root}");
    assert_eq!(encrypted(&url("127.0.0.1", &authority)), "t");
    // The certificate is for another name, or of another authority.
    refused(&url("127.0.0.1", &full));
    for mode in ["require", "verify-ca", "verify-full"] {
        refused(&url(
            "localhost",
            &format!("sslmode={mode}&sslrootcert={other}"),
        ));
    }
    let said = refused(&url(
        "localhost",
        "sslmode=verify-full&sslrootcert=/nowhere",
    ));
    assert!(
        said.contains("/nowhere") && said.contains("sslrootcert"),
        "{said}"
    );
}

/// Starts PgBouncer before a server. Returns its port.
fn bouncer(server: &Server, mode: &str) -> (Beside, u16) {
    let program = Path::new("/usr/sbin/pgbouncer");
    assert!(
        program.exists(),
        "there is no PgBouncer: install Debian's package 'pgbouncer'"
    );
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let file = server.path().join(format!("{mode}.ini"));
    let text = format!(
        "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
         auth_type = any\npool_mode = {mode}\nunix_socket_dir =\nlogfile = {}/{mode}.log\n",
        server.port(),
        server.path().display()
    );
    std::fs::write(&file, text).expect("its settings");
    let bouncer = Beside::start(unprivileged(program).arg("-q").arg(&file));
    until(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    (bouncer, port)
}

#[test]
fn a_pooler_is_used_in_session_mode_and_refused_in_transaction_mode() {
    let _watchdog = watch();
    let server = Server::start();
    let (_bouncer, port) = bouncer(&server, "transaction");
    let said = refused(&format!("postgres://postgres@127.0.0.1:{port}/postgres"));
    assert!(
        said.contains("transaction mode") && said.contains("pool_mode=session"),
        "{said}"
    );
    let (_bouncer, port) = bouncer(&server, "session");
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let daemon = Daemon::with(&["--store", &url]);
    let id = daemon.run(&["submit", "photos", "index"]).text();
    assert_eq!(daemon.job(&id)["state"], "QUEUED");
}

#[test]
fn two_daemons_of_one_name_do_not_share_a_store() {
    let _watchdog = watch();
    let (database, url) = pair::database();
    let mut first = Daemon::with(&["--store", &url]);
    let folder = Folder::new();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", &url];
    let second = Ran::of(&mut folder.command(), &serve);
    assert_ne!(second.code, Some(0), "{second:#?}");
    assert!(
        second.stderr.contains("'local'") && second.stderr.contains("--node"),
        "{second:#?}"
    );
    // Another name, or another store in the same database.
    let named = Daemon::with(&["--store", &url, "--node", "other"]);
    let elsewhere = pair::url_of(&[&database], &database.new_place());
    let elsewhere = Daemon::with(&["--store", &elsewhere]);
    drop((named, elsewhere));
    // A name is free again when its daemon is gone, however it went.
    first.ends_and_returns("KILL");
    assert_eq!(first.run(&["status"]).code, Some(0));
}

/// The statistics of a type as the first release kept them, for all machines.
const OLD_RUNS: &str =
    r#"{"succeeded":30,"failed":10,"waited_ms":0,"ran":{"buckets":{"235":30},"count":30}}"#;
const OLD_NAME: &str = "learnt/runs/photos/thumbnail";

/// Returns how many jobs of a type have ended, as far as it is remembered.
fn ended(daemon: &Daemon, job_type: &str) -> u64 {
    let stats = daemon.run(&["stats", job_type, "--json"]).exits(0).json();
    stats["history"][0]["ended"].as_u64().unwrap_or(0)
}

/// Returns the decisions, the newest first.
fn decisions(daemon: &Daemon) -> Vec<String> {
    let decisions = pair::client_of(daemon).decisions(Some(500));
    let decisions = decisions.expect("an admin may ask").into_iter();
    decisions
        .map(|it| format!("{} {} {}", it.at, it.code, it.reason))
        .collect()
}

/// Decides something on a store that the first release made, restarts, and returns the decisions that must be there from now on.
fn decides_and_remembers(daemon: &mut Daemon) -> Vec<String> {
    until(|| ended(daemon, "thumbnail") == 40);
    daemon.run(&["run", "-q", "--", "true"]).exits(0);
    let ask = ["lease", "request", "photos", "sync", "--cost", "90"];
    // Leases of the first release may still hold units.
    let mut lease = String::new();
    until(|| {
        let ran = daemon.run(&ask);
        lease = ran.stdout.trim().to_owned();
        ran.code == Some(0)
    });
    daemon.run(&ask).exits(6);
    daemon.run(&["lease", "release", &lease]).exits(0);
    until(|| ended(daemon, "command") == 1);
    let before = decisions(daemon);
    assert!(
        before.iter().any(|it| it.contains(" capacity ")),
        "{before:?}"
    );
    daemon.ends_and_returns("TERM");
    remembers(daemon, &before);
    before
}

/// The statistics and decisions of before are there.
fn remembers(daemon: &Daemon, before: &[String]) {
    until(|| ended(daemon, "thumbnail") == 40 && ended(daemon, "command") == 1);
    let now = decisions(daemon);
    for decision in before {
        assert!(now.contains(decision), "{decision} is forgotten: {now:?}");
    }
}

#[test]
fn decisions_and_statistics_stay_since_the_first_release_on_both_stores_and_from_one_to_the_other()
{
    let _watchdog = watch();
    let folder = Folder::new();
    std::fs::create_dir(folder.join("data")).expect("a folder");
    let file = folder.join("data/jobs.db");
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../store/tests/fixtures/jobs-0.1.db");
    std::fs::write(&file, std::fs::read(fixture).expect("the file")).expect("a copy");
    let insert = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); \
                  db.execute('INSERT INTO scheduler_notes VALUES (?, ?)', sys.argv[2:]); db.commit()";
    let mut python = std::process::Command::new("python3");
    python
        .args(["-c", insert])
        .arg(&file)
        .args([OLD_NAME, OLD_RUNS]);
    assert!(python.status().expect("python3 is there").success());
    let mut on_file = Daemon::within(folder, &["--policy", ALWAYS, "--runner"]);
    let known = decides_and_remembers(&mut on_file);
    on_file.ends("TERM");

    let server = Server::start();
    let first_release = include_str!("../../store/src/postgres/schema.sql");
    let note = format!("INSERT INTO scheduler_notes VALUES ('{OLD_NAME}', '{OLD_RUNS}')");
    let place = server.new_place();
    let schema = place.rsplit_once("search_path=").expect("a schema").1;
    let schema = schema.trim_end_matches('\'');
    server.sql(&format!(
        "SET search_path = {schema}; {first_release}; {note}"
    ));
    let url = support::url_of(&place);
    let mut on_server = Daemon::with(&["--store", &url, "--policy", ALWAYS, "--runner"]);
    decides_and_remembers(&mut on_server);

    let url = support::url_of(&server.new_place());
    let from = on_file.folder.join("data/jobs.db");
    let from = from.to_str().expect("a plain path");
    on_server
        .run(&["move-store", "--from", from, "--to", &url])
        .exits(0);
    let moved = Daemon::with(&["--store", &url, "--policy", ALWAYS]);
    remembers(&moved, &known);
}
