//! Jobs that programs submit by the SQL function `jobtree_submit`, in transactions of their own.

#[path = "two_daemons/pair.rs"]
mod pair;
#[path = "../../../examples/transactional-enqueue/shop.rs"]
mod shop;
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use jobtree_protocol::{Limits, SubmitRequest};
use pair::Server;
use serde_json::{Value, json};
use support::{ALWAYS, Daemon, Ran, until, watch};

/// A daemon and the database that it shares with a shop.
struct Shop {
    daemon: Daemon,
    database: Server,
    url: String,
}

/// The schema of the daemon's tables, which is not the shop's.
const SCHEMA: &str = "place0";

impl Shop {
    fn open() -> Self {
        let (database, url) = pair::database();
        database.sql("CREATE TABLE orders (id SERIAL PRIMARY KEY, item TEXT)");
        Self {
            daemon: Daemon::with(&["--store", &url, "--policy", ALWAYS]),
            url: format!("postgres://postgres@127.0.0.1:{}/postgres", database.port()),
            database,
        }
    }

    fn submit(&self, job: &Value) -> String {
        self.database.sql(&submit(job))
    }

    /// Waits until the daemon has moved all that was submitted.
    fn all_moved(&self) {
        let left =
            format!("SELECT count(*) FROM {SCHEMA}.scheduler_submissions WHERE refused IS NULL");
        until(|| self.database.sql(&left) == "0");
    }

    fn jobs(&self) -> usize {
        let list = self.daemon.run(&["ls", "--json"]).exits(0).json();
        list["jobs"].as_array().map_or(0, Vec::len)
    }
}

fn submit(job: &Value) -> String {
    let text = job.to_string().replace('\'', "''");
    format!("SELECT {SCHEMA}.jobtree_submit('{text}')")
}

fn job(name: &str) -> Value {
    json!({"addon_id": "shop", "job_type": "invoice", "cost_units": 5, "payload": {"name": name}})
}

#[test]
fn a_job_exists_if_its_transaction_commits() {
    let _watchdog = watch();
    let shop = Shop::open();
    let kept = shop
        .database
        .sql(&format!("BEGIN; {}; COMMIT", submit(&job("kept"))));
    let lost = format!("BEGIN; {}; ROLLBACK", submit(&job("rolled back")));
    shop.database.sql(&lost);
    shop.all_moved();
    assert_eq!(shop.jobs(), 1);
    let kept = shop.daemon.job(&kept);
    assert_eq!(kept["payload"], json!({"name": "kept"}));
    // As over HTTP.
    let other = shop
        .daemon
        .run(&["submit", "shop", "invoice", "--cost", "5"])
        .text();
    let other = shop.daemon.job(&other);
    let kinds = |job: &Value| {
        let events = job["events"].as_array().cloned().unwrap_or_default();
        let kinds = events.iter().map(|event| event["event"].clone());
        kinds.take(1).collect::<Vec<_>>()
    };
    assert_eq!(
        (kinds(&kept), kinds(&kept)),
        (kinds(&other), vec![json!("SUBMITTED")])
    );
}

/// Without a notification, each of them would wait for the next look, which comes every five seconds.
#[test]
fn a_commit_wakes_the_daemon() {
    let _watchdog = watch();
    let shop = Shop::open();
    let begun = Instant::now();
    for number in 0..10 {
        shop.submit(&job(&number.to_string()));
        shop.all_moved();
    }
    let took = begun.elapsed();
    assert!(
        took < Duration::from_secs(15),
        "ten submissions took {took:?}"
    );
}

#[test]
fn keys_hold_across_sql_and_http() {
    let _watchdog = watch();
    let shop = Shop::open();
    let mut keyed = job("once");
    keyed["idempotency_key"] = json!("once");
    // Before and after it was moved.
    let first = shop.submit(&keyed);
    assert_eq!(shop.submit(&keyed), first);
    shop.all_moved();
    assert_eq!(shop.submit(&keyed), first);
    let client = pair::client_of(&shop.daemon);
    let request: SubmitRequest = serde_json::from_value(keyed).expect("a submission");
    let again = client.submit(request).expect("it is known");
    assert!(
        again.duplicate && again.job_id.to_string() == first,
        "{again:?}"
    );

    let mut unique = job("one at a time");
    unique["unique_key"] = json!("one");
    let request: SubmitRequest = serde_json::from_value(unique.clone()).expect("a submission");
    let live = client.submit(request).expect("it is new").job_id;
    assert_eq!(shop.submit(&unique), live.to_string());
    assert_eq!(shop.jobs(), 2);
}

/// Bodies that the API refuses, each with the fields that it names.
fn refused_bodies() -> Vec<Value> {
    let with = |field: &str, value: Value| {
        let mut body = job("x");
        body[field] = value;
        body
    };
    vec![
        with("addon_id", json!("two words")),
        with("addon_id", json!("")),
        with("job_type", json!("x".repeat(129))),
        with("cost_units", json!(0)),
        with("cost_units", json!(101)),
        with("expected_duration_sec", json!(0)),
        with("max_runtime_sec", json!(-1)),
        with("max_attempts", json!(1001)),
        with("concurrency_limit", json!(2)),
        with("idempotency_key", json!("")),
        with("unique_key", json!("x".repeat(257))),
        with("concurrency_key", json!("a\u{7}b")),
        with("late", json!("fail")),
        with("earliest_start_in_sec", json!(5)),
        with("deadline_in_sec", json!(5)),
        with("tags", json!(vec!["x"; 33])),
        with("tags", json!(["fine", ""])),
        with("required_labels", json!(vec!["x"; 17])),
        with("required_node", json!("a b")),
        with("job_id", json!("0192f0c1-0000-4000-8000-000000000000")),
        with("payload", json!("x".repeat(1 << 20))),
        with("backoff", json!({"factor": 0.5})),
        with("backoff", json!({"jitter": 2})),
        with("traceparent", json!("nonsense")),
        json!({"addon_id": "a", "job_type": "t", "cost_units": 1,
            "earliest_start_at": "2026-01-31T12:00:00Z", "deadline_at": "2026-01-31T11:00:00Z"}),
    ]
}

/// Returns what psql says, and whether it was done.
fn psql(shop: &Shop, user: &str, sql: &str) -> (bool, String) {
    let mut command = Command::new("psql");
    command.args(["-h", "127.0.0.1", "-p", &shop.database.port().to_string()]);
    command.args([
        "-U",
        user,
        "-d",
        "postgres",
        "-q",
        "-t",
        "-A",
        "-v",
        "ON_ERROR_STOP=1",
    ]);
    // A payload may be longer than an argument.
    let file = shop.daemon.folder.write("call.sql", sql);
    let ran = Ran::of(&mut command, &["-f", &file]);
    (ran.code == Some(0), ran.stdout + &ran.stderr)
}

#[test]
fn what_the_api_refuses_is_refused_with_the_same_fields() {
    let _watchdog = watch();
    let shop = Shop::open();
    for body in refused_bodies() {
        let request: SubmitRequest = serde_json::from_value(body.clone()).expect("readable");
        let wrong = request
            .validate(&Limits::default())
            .expect_err("it is refused");
        let (done, said) = psql(&shop, "postgres", &submit(&body));
        assert!(!done, "{body} was taken");
        for field in wrong {
            let named = format!("{}: ", field.field);
            assert!(said.contains(&named), "{field} is not in {said}");
        }
    }
    for body in [json!([]), json!({"addon_id": "a"}), json!({"nonsense": 1})] {
        assert!(
            !psql(&shop, "postgres", &submit(&body)).0,
            "{body} was taken"
        );
    }
    assert_eq!(shop.jobs(), 0);
    // What the function does not see, the queue does: it is set aside with the reason, and holds up no other job.
    let mut deep = job("deep");
    deep["payload"] = (0..70).fold(json!(1), |inner, _| json!([inner]));
    let (deep, fine) = (shop.submit(&deep), shop.submit(&job("fine")));
    shop.all_moved();
    let why = format!("SELECT refused FROM {SCHEMA}.scheduler_submissions WHERE job_id = '{deep}'");
    assert!(shop.database.sql(&why).contains("nested 70 deep"));
    assert_eq!(shop.daemon.job(&fine)["state"], "QUEUED");
}

#[test]
fn a_role_needs_nothing_but_the_function() {
    let _watchdog = watch();
    let shop = Shop::open();
    shop.database.sql("CREATE ROLE clerk LOGIN");
    let (done, said) = psql(&shop, "clerk", &submit(&job("early")));
    assert!(!done && said.contains("permission denied"), "{said}");
    shop.database.sql(&format!(
        "GRANT USAGE ON SCHEMA {SCHEMA} TO clerk; GRANT EXECUTE ON FUNCTION {SCHEMA}.jobtree_submit(JSON) TO clerk"
    ));
    let (done, said) = psql(&shop, "clerk", &submit(&job("allowed")));
    assert!(done, "{said}");
    shop.all_moved();
    assert_eq!(shop.jobs(), 1);
}

/// Where drivers of other languages are kept between runs.
fn drivers(language: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("drivers")
        .join(language)
}

#[track_caller]
fn install(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{command:?} failed; is the registry reachable? {said}"
    );
}

fn example(name: &str) -> PathBuf {
    let examples = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    examples.join("transactional-enqueue").join(name)
}

/// Orders a book and nothing: one job comes of it.
fn orders(shop: &Shop, order: &dyn Fn(&str) -> Option<String>) {
    let id = order("a book").expect("it is ordered");
    order("nothing");
    shop.all_moved();
    assert_eq!(shop.daemon.job(&id)["payload"], json!({"order": 1}));
    assert_eq!(
        (
            shop.jobs(),
            shop.database.sql("SELECT count(*) FROM orders")
        ),
        (1, "1".into())
    );
}

fn run(shop: &Shop, command: &mut Command, item: &str) -> Option<String> {
    command
        .env("DATABASE_URL", &shop.url)
        .env("JOBTREE_SCHEMA", SCHEMA);
    let ran = Ran::of(command, &[item]);
    assert_eq!(ran.code == Some(0), item != "nothing", "{ran:#?}");
    (ran.code == Some(0)).then(|| ran.stdout.trim().to_owned())
}

#[test]
fn an_order_in_python() {
    let _watchdog = watch();
    let drivers = drivers("python");
    if !drivers.join("psycopg").exists() {
        let mut pip = Command::new("python3");
        pip.args(["-m", "pip", "install", "--quiet", "--target"]);
        install(pip.arg(&drivers).arg("psycopg[binary]==3.2.3"));
    }
    let shop = Shop::open();
    orders(&shop, &|item| {
        let mut python = Command::new("python3");
        python.env("PYTHONPATH", &drivers).arg(example("shop.py"));
        run(&shop, &mut python, item)
    });
}

#[test]
fn an_order_in_node() {
    let _watchdog = watch();
    let drivers = drivers("node");
    if !drivers.join("node_modules/pg").exists() {
        std::fs::create_dir_all(&drivers).expect("a folder");
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"]);
        install(npm.arg(&drivers).arg("pg@8.13.1"));
    }
    // Modules are looked for beside the program.
    let program = drivers.join("shop.mjs");
    std::fs::copy(example("shop.mjs"), &program).expect("the example");
    let shop = Shop::open();
    orders(&shop, &|item| {
        run(&shop, Command::new("node").arg(&program), item)
    });
}

#[test]
fn an_order_in_rust() {
    let _watchdog = watch();
    let shop = Shop::open();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let mut client = runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(&shop.url, tokio_postgres::NoTls)
            .await
            .expect("connected");
        tokio::spawn(connection);
        client
    });
    let client = std::cell::RefCell::new(&mut client);
    orders(&shop, &|item| {
        let mut client = client.borrow_mut();
        let order = shop::order(&mut client, SCHEMA, item);
        Some(runtime.block_on(order).expect("it is ordered"))
    });
}
