//! What operators do over HTTP: schedules, pauses, draining, signals, policy, tokens, questions.

mod support;

use jobtree_protocol::{Scope, paths};
use serde_json::{Value, json};
use support::{Client, House, NO_ID, TOML};

fn nightly(name: &str) -> Value {
    json!({
        "name": name,
        "cron": "0 3 * * *",
        "time_zone": "Europe/Berlin",
        "job": {"addon_id": "a", "job_type": "t", "cost_units": 5},
    })
}

#[test]
fn a_schedule_is_made_changed_paused_and_deleted() {
    let house = House::new();
    let mut admin = house.admin();
    let made = admin
        .post(paths::SCHEDULES, &nightly("nightly"))
        .expect(201);
    let id = made["schedule_id"].as_str().unwrap().to_owned();
    assert!(made["next_at"].is_string());
    let path = paths::at(paths::SCHEDULE, &id);
    assert_eq!(admin.get(&path).expect(200), made);
    let mut hourly = nightly("hourly");
    hourly["cron"] = json!("0 * * * *");
    let changed = admin.put(&path, &hourly).expect(200);
    assert_eq!(changed["spec"]["name"], "hourly");
    let paused = admin
        .poke(&paths::at(paths::SCHEDULE_PAUSE, &id))
        .expect(200);
    assert_eq!(paused["spec"]["paused"], true);
    assert_eq!(paused["next_at"], json!(null));
    let resumed = admin
        .poke(&paths::at(paths::SCHEDULE_RESUME, &id))
        .expect(200);
    assert!(resumed["next_at"].is_string());
    let list = admin.get(paths::SCHEDULES).expect(200);
    assert_eq!(list["schedules"], json!([resumed]));
    assert_eq!(admin.delete(&path).status, 204);
    admin.get(&path).problem(404, "not_found");
    admin.delete(&path).problem(404, "not_found");
    admin.put(&path, &hourly).problem(404, "not_found");
    admin
        .poke(&paths::at(paths::SCHEDULE_PAUSE, NO_ID))
        .problem(404, "not_found");
    admin
        .poke(&paths::at(paths::SCHEDULE_RESUME, "x"))
        .problem(400, "malformed");
}

#[test]
fn a_wrong_schedule_is_refused() {
    let house = House::new();
    let mut admin = house.admin();
    admin.post(paths::SCHEDULES, &nightly("taken")).expect(201);
    admin
        .post(paths::SCHEDULES, &nightly("taken"))
        .problem(409, "conflict");
    let with = |field: &str, value: Value| {
        let mut body = nightly("other");
        body[field] = value;
        body
    };
    for (body, status, code, field) in [
        (json!({}), 400, "malformed", ""),
        (with("cron", json!("61 * * * *")), 422, "invalid", "cron"),
        (
            with("time_zone", json!("Mars/North")),
            422,
            "invalid",
            "time_zone",
        ),
        (with("name", json!("")), 422, "invalid", "name"),
        (with("missed", json!("some")), 400, "malformed", ""),
        (
            with(
                "job",
                json!({"addon_id": "a", "job_type": "t", "cost_units": 0}),
            ),
            422,
            "invalid",
            "job.cost_units",
        ),
    ] {
        let problem = admin.post(paths::SCHEDULES, &body).problem(status, code);
        if !field.is_empty() {
            assert_eq!(problem["fields"][0]["field"], field, "{problem}");
        }
    }
}

#[test]
fn a_paused_addon_is_skipped() {
    let house = House::new();
    let mut admin = house.admin();
    let pause = json!({"addon_id": "a", "reason": "it is on fire"});
    assert_eq!(admin.post(paths::PAUSE, &pause).status, 204);
    let list = admin.get(paths::PAUSES).expect(200);
    assert_eq!(list["pauses"][0]["addon_id"], "a");
    assert_eq!(list["pauses"][0]["reason"], "it is on fire");
    admin.submit("a", "t");
    let claim = json!({"addon_id": "a", "instance_id": NO_ID});
    assert_eq!(
        admin.post(paths::CLAIM, &claim).expect(200)["leases"],
        json!([])
    );
    let one = json!({"addon_id": "a"});
    assert_eq!(
        admin.post(paths::RESUME, &one).expect(200),
        json!({"resumed": true})
    );
    assert_eq!(
        admin.post(paths::RESUME, &one).expect(200),
        json!({"resumed": false})
    );
    admin.claim("a");
    for path in [paths::PAUSE, paths::RESUME] {
        admin.post(path, &json!({})).problem(400, "malformed");
        admin
            .post(path, &json!({"addon_id": "a/b"}))
            .problem(400, "malformed");
    }
    let long = json!({"addon_id": "a", "reason": "x".repeat(2000)});
    admin.post(paths::PAUSE, &long).problem(422, "invalid");
}

#[test]
fn draining_starts_nothing_new() {
    let house = House::new();
    let mut admin = house.admin();
    let on = json!({"draining": true});
    assert_eq!(admin.post(paths::DRAIN, &on).expect(200), on);
    admin.submit("a", "t");
    let claim = json!({"addon_id": "a", "instance_id": NO_ID});
    assert_eq!(
        admin.post(paths::CLAIM, &claim).expect(200)["leases"],
        json!([])
    );
    admin
        .post(paths::DRAIN, &json!({"draining": false}))
        .expect(200);
    admin.claim("a");
    admin
        .post(paths::DRAIN, &json!({"draining": "yes"}))
        .problem(400, "malformed");
    admin.poke(paths::DRAIN).problem(415, "malformed");
    assert_eq!(admin.poke(paths::KICK).status, 204);
}

#[test]
fn the_host_tells_what_it_measured() {
    let house = House::new();
    let mut admin = house.admin();
    let good = json!({"p95_latency_ms": 80.0, "in_flight": 3, "requests_per_sec": 9.5, "error_rate": 0.01});
    assert_eq!(admin.post(paths::SIGNALS, &good).status, 204);
    assert_eq!(admin.post(paths::SIGNALS, &json!({})).status, 204);
    for (wrong, status, code) in [
        (json!({"error_rate": 2}), 422, "invalid"),
        (json!({"in_flight": -1}), 422, "invalid"),
        (json!({"node_id": "elsewhere"}), 422, "invalid"),
        (json!({"node_id": "a b"}), 400, "malformed"),
        (json!({"latency": 1}), 400, "malformed"),
    ] {
        admin.post(paths::SIGNALS, &wrong).problem(status, code);
    }
}

fn toml(client: &mut Client, method: &str, path: &str, text: &str) -> support::Reply {
    client.request(method, path, TOML, text.as_bytes())
}

#[test]
fn the_policy_is_read_checked_and_replaced() {
    let house = House::new();
    let mut admin = house.admin();
    let now = admin.get(paths::POLICY);
    assert_eq!(now.header("content-type"), Some("application/toml"));
    assert!(now.text().contains("[quiet]"), "{}", now.text());
    // What is shown can be set again.
    assert_eq!(
        toml(&mut admin, "PUT", paths::POLICY, &now.text()).status,
        204
    );
    assert_eq!(admin.get(paths::POLICY).text(), now.text());

    let small = "[caps]\nleases = 3\n";
    let checked = toml(&mut admin, "POST", paths::POLICY_VALIDATE, small);
    assert_eq!(checked.expect(200), json!({"valid": true}));
    assert_eq!(admin.get(paths::POLICY).text(), now.text());
    assert_eq!(toml(&mut admin, "PUT", paths::POLICY, small).status, 204);
    assert_eq!(house.server.scheduler().policy().caps.leases, 3);

    for (method, path) in [("PUT", paths::POLICY), ("POST", paths::POLICY_VALIDATE)] {
        // Wrong, and so never in force.
        let refused = toml(&mut admin, method, path, "[quiet]\nquiet_max = 12");
        let problem = refused.problem(422, "invalid");
        assert_eq!(problem["fields"][0]["field"], "quiet.quiet_max");
        toml(&mut admin, method, path, "quiet = [").problem(422, "invalid");
        toml(&mut admin, method, path, "[colour]").problem(422, "invalid");
        admin
            .request(method, path, support::JSON, b"{}")
            .problem(415, "malformed");
        admin
            .request(method, path, TOML, b"\xff")
            .problem(400, "malformed");
    }
    assert_eq!(house.server.scheduler().policy().caps.leases, 3);
}

#[test]
fn a_preview_tells_what_a_policy_would_have_started_and_changes_nothing() {
    let house = House::new();
    let mut admin = house.admin();
    for addon in ["a", "a", "b"] {
        admin.submit(addon, "t");
    }
    let in_force = admin.get(paths::POLICY).text();
    let preview =
        |client: &mut Client, policy: &str| toml(client, "POST", paths::POLICY_PREVIEW, policy);
    // Policies that are tried and never in force: one that starts everything, whatever the load is.
    let eager = "[busy]\nignore = true\n[quiet]\nenter_after = \"0\"\n";
    // Only pushed signals count, and none are pushed.
    let never = "[busy]\npushed_required = true\n";
    // A measurement comes every second; one behind the last job lets it start.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let told = preview(&mut admin, eager).expect(200);
        if told["given"]["started"] == 3 {
            assert_eq!(told["jobs"], 3);
            assert_eq!(told["given"]["never_started"], 0);
            assert!(told["given"]["average_wait_sec"].as_f64().unwrap() >= 0.0);
            assert_eq!(told["left_out"], false);
            assert!(told["since"].is_string() && told["until"].is_string());
            break;
        }
        assert!(std::time::Instant::now() < end, "{told}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let told = preview(&mut admin, never).expect(200);
    assert_eq!(told["given"], json!({"started": 0, "never_started": 3}));
    assert_eq!(told["jobs"], 3);
    assert_eq!(admin.get(paths::POLICY).text(), in_force);
    // An addon's token learns of the addon's jobs alone, which the others have taken place from all the same.
    let mut own = house.addon("b", &[Scope::Read]);
    let told = preview(&mut own, eager).expect(200);
    assert_eq!(
        (&told["jobs"], &told["given"]["started"]),
        (&json!(1), &json!(1))
    );
    preview(&mut house.addon("b", &[Scope::Submit]), eager).problem(403, "forbidden");
    preview(&mut house.nobody(), eager).problem(401, "unauthorized");
    // A value out of bounds.
    preview(&mut admin, "[quiet]\nquiet_max = 12.0\n").problem(422, "invalid");
    assert_eq!(admin.get(paths::POLICY).text(), in_force);
}

#[test]
fn a_policy_that_was_set_outlives_the_server() {
    let folder = support::Folder::new("policy");
    let start = || {
        let mut options = support::options(folder.path());
        options.store = jobtree_server::StoreChoice::File;
        jobtree_server::Server::start(options).unwrap()
    };
    let server = start();
    let token = std::fs::read_to_string(folder.path().join("admin.token")).unwrap();
    let mut admin = Client::new(server.addr(), Some(token.trim_end().to_owned()));
    assert_eq!(
        toml(&mut admin, "PUT", paths::POLICY, "[caps]\nleases = 3").status,
        204
    );
    drop(server);
    let server = start();
    assert_eq!(server.scheduler().policy().caps.leases, 3);
}

#[test]
fn a_policy_file_is_followed_and_written() {
    let folder = support::Folder::new("policy-file");
    let file = folder.path().join("policy.toml");
    std::fs::write(&file, "[caps]\nleases = 5\n").unwrap();
    let house = House::with(|options| options.policy_file = Some(file.clone()));
    let leases = || house.server.scheduler().policy().caps.leases;
    assert_eq!(leases(), 5);
    std::fs::write(&file, "[caps]\nleases = 66\n").unwrap();
    let until = |count: u32| {
        while leases() != count {
            std::thread::yield_now();
        }
    };
    until(66);
    let set = toml(
        &mut house.admin(),
        "PUT",
        paths::POLICY,
        "[caps]\nleases = 7\n",
    );
    assert_eq!(set.status, 204);
    assert_eq!(
        std::fs::read_to_string(&file).unwrap(),
        "[caps]\nleases = 7\n"
    );
    assert_eq!(leases(), 7);
}

#[test]
fn a_policy_file_that_is_wrong_keeps_the_server_from_starting() {
    let folder = support::Folder::new("wrong-policy");
    let file = folder.path().join("policy.toml");
    // Wrong, and so never in force.
    std::fs::write(&file, "[quiet]\nquiet_max = 12\n").unwrap();
    let mut options = support::options(folder.path());
    options.policy_file = Some(file);
    let error = jobtree_server::Server::start(options)
        .unwrap_err()
        .to_string();
    assert!(error.contains("quiet.quiet_max is 12"), "{error}");
}

#[test]
fn tokens_are_made_listed_and_deleted() {
    let house = House::new();
    let mut admin = house.admin();
    let request = json!({
        "name": "the indexer", "addon_id": "a", "scopes": ["submit", "read"],
        "expires_at": "2999-01-01T00:00:00Z",
    });
    let made = admin.post(paths::TOKENS, &request).expect(201);
    let secret = made["token"].as_str().unwrap().to_owned();
    assert_eq!(made["name"], "the indexer");
    let listed = admin.get(paths::TOKENS);
    assert_eq!(
        listed.expect(200)["tokens"][0]["token_id"],
        made["token_id"]
    );
    assert!(!listed.text().contains(&secret));
    let mut holder = Client::new(house.server.addr(), Some(secret));
    holder.submit("a", "t");
    holder.get(paths::TOKENS).problem(403, "forbidden");
    let path = paths::at(paths::TOKEN, made["token_id"].as_str().unwrap());
    assert_eq!(admin.delete(&path).status, 204);
    holder.get(paths::JOBS).problem(401, "unauthorized");
    admin.delete(&path).problem(404, "not_found");
    admin
        .delete(&paths::at(paths::TOKEN, "x"))
        .problem(400, "malformed");

    for (wrong, status, code, field) in [
        (json!({}), 400, "malformed", ""),
        (
            json!({"name": "", "addon_id": "a", "scopes": ["read"]}),
            422,
            "invalid",
            "name",
        ),
        (
            json!({"name": "n", "addon_id": "a", "scopes": []}),
            422,
            "invalid",
            "scopes",
        ),
        (
            json!({"name": "n", "scopes": ["read", "submit"]}),
            422,
            "invalid",
            "addon_id",
        ),
        (
            json!({"name": "n", "addon_id": "a", "scopes": ["admin"]}),
            422,
            "invalid",
            "addon_id",
        ),
        (
            json!({"name": "n", "addon_id": "a", "scopes": ["fly"]}),
            400,
            "malformed",
            "",
        ),
        (
            json!({"name": "n", "scopes": ["admin"], "expires_at": "2001-01-01T00:00:00Z"}),
            422,
            "invalid",
            "expires_at",
        ),
    ] {
        let problem = admin.post(paths::TOKENS, &wrong).problem(status, code);
        if !field.is_empty() {
            assert_eq!(problem["fields"][0]["field"], field, "{problem}");
        }
    }
}

#[test]
fn what_was_decided_and_counted_is_told() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("a", "t");
    let (lease, job) = admin.claim("a");
    let done = json!({"lease_id": lease, "status": "DONE"});
    admin
        .post(&paths::at(paths::COMPLETE, &job), &done)
        .expect(200);
    let big = json!({"addon_id": "a", "job_type": "t", "cost_units": 100});
    admin.post(paths::LEASE_REQUEST, &big).expect(200);
    admin.post(paths::LEASE_REQUEST, &big).expect(200);

    let decisions = admin
        .get(&format!("{}?limit=500", paths::DECISIONS))
        .expect(200);
    let newest = &decisions["decisions"][0];
    assert_eq!(newest["approved"], false);
    assert_eq!(newest["addon_id"], "a");
    admin
        .get(&format!("{}?limit=0", paths::DECISIONS))
        .problem(400, "malformed");
    let history = admin.get(paths::HISTORY).expect(200);
    assert_eq!(history["history"][0]["addon_id"], "a");
    assert_eq!(history["history"][0]["ended"], 1);
    let stats = admin.get(paths::STATS).expect(200);
    assert_eq!(stats["events"]["DONE"], 1);
    assert_eq!(stats["ran"]["count"], 1);
    let status = admin.get(paths::STATUS).expect(200);
    assert_eq!(status["jobs"]["DONE"], 1);
    assert_eq!(status["nodes"][0]["used"], 100);

    let mut reader = house.addon("b", &[Scope::Read]);
    assert_eq!(
        reader.get(paths::DECISIONS).expect(200)["decisions"],
        json!([])
    );
    assert_eq!(reader.get(paths::HISTORY).expect(200)["history"], json!([]));
    assert_eq!(reader.get(paths::STATUS).expect(200)["addons"], json!({}));
    reader.get(paths::STATS).problem(403, "forbidden");
}

#[test]
fn a_backup_is_made_under_a_name_in_a_folder_of_its_own() {
    let house = House::with(|options| options.store = jobtree_server::StoreChoice::File);
    let mut admin = house.admin();
    let id = admin.submit("photos", "index");
    let made = admin
        .post(paths::BACKUP, &json!({"name": "before.db"}))
        .expect(201);
    let path = house.folder.path().join("backups").join("before.db");
    assert_eq!(made["path"], json!(path.to_str().unwrap()));
    let copy = jobtree_store::Store::open(&jobtree_store::SqliteOptions::new(&path)).unwrap();
    let job = copy.job(id.parse().unwrap()).wait().unwrap();
    assert_eq!(job.job.intent.addon_id.as_str(), "photos");

    // Never over another, and nowhere else.
    admin
        .post(paths::BACKUP, &json!({"name": "before.db"}))
        .problem(409, "conflict");
    for name in ["../jobs.db", "/tmp/x", "", ".hidden", "a b", "a\u{0}"] {
        let refused = admin.post(paths::BACKUP, &json!({"name": name}));
        refused.problem(422, "invalid");
    }
    admin.poke(paths::BACKUP).expect(201);
    let mut photos = house.addon("photos", &[Scope::Read]);
    photos.poke(paths::BACKUP).problem(403, "forbidden");
    let in_memory = House::new();
    in_memory
        .admin()
        .poke(paths::BACKUP)
        .problem(409, "conflict");
}

#[test]
fn a_token_that_only_reads_may_be_for_all_addons() {
    let house = House::new();
    let mut admin = house.admin();
    let id = admin.submit("photos", "index");
    let made = admin
        .post(
            paths::TOKENS,
            &json!({"name": "dashboard", "scopes": ["read"]}),
        )
        .expect(201);
    let token = made["token"].as_str().unwrap().to_owned();
    let mut reader = Client::new(house.server.addr(), Some(token));
    reader.get(&paths::at(paths::JOB, &id)).expect(200);
    assert!(reader.get(paths::METRICS).text().contains("jobtree_"));
    reader
        .post(paths::KICK, &json!({}))
        .problem(403, "forbidden");
    let submit = json!({"addon_id": "photos", "job_type": "index", "cost_units": 1});
    reader
        .post(paths::SUBMIT, &submit)
        .problem(403, "forbidden");
    let reasons = reader
        .post(paths::REASONS, &json!({"jobs": [id]}))
        .expect(200);
    assert_eq!(reasons["jobs"][0]["reason"]["code"], "unserved");
    // Other addons' jobs do not exist for the token of one.
    let mut mail = house.addon("mail", &[Scope::Read]);
    let hidden = mail
        .post(paths::REASONS, &json!({"jobs": [id]}))
        .expect(200);
    assert_eq!(hidden["jobs"], json!([]));
}
