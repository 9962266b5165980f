//! Who may do what: every operation without a token, without its scope, and on another addon's things.

mod support;

use jobtree_protocol::operations::{self as table, Access, Method};
use jobtree_protocol::{Scope, paths};
use serde_json::{Value, json};
use support::{Client, House, NO_ID, Reply};

/// An operation, ready to be called: its example as body, an id that nothing has.
struct Operation {
    id: String,
    method: String,
    path: String,
    kind: Option<String>,
    body: String,
    /// None if no token, or any, will do.
    scope: Option<String>,
    open: bool,
}

fn operations() -> Vec<Operation> {
    let document: Value = serde_json::from_str(&jobtree_server::openapi()).unwrap();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let content = operation["requestBody"]["content"].as_object();
            let content = content.and_then(|content| content.iter().next());
            let about = operation["description"].as_str().unwrap();
            all.push(Operation {
                id: operation["operationId"].as_str().unwrap().to_owned(),
                method: method.to_uppercase(),
                path: paths::at(path, NO_ID),
                kind: content.map(|(kind, _)| kind.clone()),
                body: match content {
                    Some((kind, content)) if kind == "application/json" => {
                        content["example"].to_string()
                    }
                    _ => String::new(),
                },
                scope: about
                    .contains("with the scope")
                    .then(|| about.split('`').nth(1).unwrap().to_owned()),
                open: operation["security"] == json!([]),
            });
        }
    }
    assert!(all.len() > 50);
    all
}

fn call(client: &mut Client, operation: &Operation) -> Reply {
    client.request(
        &operation.method,
        &operation.path,
        operation.kind.as_deref(),
        operation.body.as_bytes(),
    )
}

#[test]
fn nothing_is_done_without_a_token() {
    let house = House::new();
    let mut nobody = house.nobody();
    for operation in operations() {
        let reply = call(&mut nobody, &operation);
        if operation.open && operation.id != "sign_in" {
            reply.expect(200);
            continue;
        }
        reply.problem(401, "unauthorized");
        let challenge = reply.header("www-authenticate");
        assert_eq!(
            challenge,
            Some("Bearer realm=\"jobtree\""),
            "{}",
            operation.id
        );
    }
}

#[test]
fn a_token_that_is_wrong_is_none() {
    let house = House::new();
    let good = house.admin_token();
    let (head, secret) = good.rsplit_once('_').unwrap();
    let other = if secret.starts_with('0') { '1' } else { '0' };
    let wrong = [
        String::new(),
        "x".to_owned(),
        head.to_owned(),
        format!("{head}_"),
        format!("{head}_{}", &secret[1..]),
        format!("{head}_{other}{}", &secret[1..]),
        format!("{head}_{secret}0"),
        format!("{head}_{}", secret.to_uppercase() + "G"),
        format!("jt_{}_{secret}", "0".repeat(32)),
        good.to_uppercase(),
        "\u{fc}".repeat(40),
    ];
    for wrong in wrong {
        let mut client = Client::new(house.server.addr(), Some(wrong));
        client.get(paths::STATUS).problem(401, "unauthorized");
    }
    for header in [
        format!("Basic {good}"),
        good.clone(),
        format!("Bearer{good}"),
        format!("Bearer {good} {good}"),
    ] {
        let mut client = house.nobody().header("authorization", &header);
        client.get(paths::STATUS).problem(401, "unauthorized");
    }
    // The scheme is read in either case, and neither query nor cookie is looked at.
    let mut client = house
        .nobody()
        .header("authorization", &format!("bearer  {good}"));
    client.get(paths::STATUS).expect(200);
    let mut client = house.nobody().header("cookie", &format!("token={good}"));
    client.get(paths::STATUS).problem(401, "unauthorized");
    let asked = format!("{}?access_token={good}", paths::STATUS);
    house.nobody().get(&asked).problem(401, "unauthorized");
}

#[test]
fn a_token_expires() {
    let house = House::new();
    let soon = jiff::Timestamp::now() + std::time::Duration::from_millis(300);
    let body = json!({"name": "short", "addon_id": "a", "scopes": ["read"], "expires_at": soon});
    let made = house.admin().post(paths::TOKENS, &body).expect(201);
    let mut client = Client::new(house.server.addr(), made["token"].as_str().map(Into::into));
    while jiff::Timestamp::now() < soon {
        let status = client.get(paths::JOBS).status;
        assert!(status == 200 || jiff::Timestamp::now() >= soon, "{status}");
    }
    client.get(paths::JOBS).problem(401, "unauthorized");
}

#[test]
fn nothing_is_done_without_its_scope() {
    let house = House::new();
    let addons = [Scope::Submit, Scope::Read, Scope::Cancel, Scope::Lease];
    for missing in addons {
        let others: Vec<_> = addons.into_iter().filter(|it| *it != missing).collect();
        let mut client = house.addon("visuals", &others);
        for operation in operations() {
            if operation.scope.as_deref() == Some(missing.as_str()) {
                call(&mut client, &operation).problem(403, "forbidden");
            }
        }
    }
    let mut client = house.addon("visuals", &addons);
    let mut admins = 0;
    for operation in operations() {
        if operation.scope.as_deref() == Some("admin") {
            // A policy of nothing is a policy.
            call(&mut client, &operation).problem(403, "forbidden");
            admins += 1;
        }
    }
    assert!(admins >= 10, "{admins}");
}

/// What one addon's token gets for another's job or lease, and for one that does not exist.
#[test]
fn another_addons_things_do_not_exist() {
    let house = House::new();
    let all = [Scope::Submit, Scope::Read, Scope::Cancel, Scope::Lease];
    let (mut a, mut b) = (house.addon("a", &all), house.addon("b", &all));
    a.submit("a", "t");
    let (lease, job) = a.claim("a");
    let waiting = a.submit("a", "t");
    let spec = json!({"name": "n", "cron": "0 3 * * *", "job": {"addon_id": "a", "job_type": "t", "cost_units": 1}});
    let schedule = a.post(paths::SCHEDULES, &spec).expect(201)["schedule_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let before = a.get(&paths::at(paths::JOB, &job)).expect(200);

    let mine = json!({"name": "m", "cron": "0 3 * * *", "job": {"addon_id": "b", "job_type": "t", "cost_units": 1}});
    let done = json!({"lease_id": lease, "status": "DONE"});
    let log = json!({"lease_id": lease, "offset": 0, "text": "x"});
    let cases: Vec<(&str, &str, &str, Option<Value>)> = vec![
        ("GET", paths::JOB, &job, None),
        ("GET", paths::EXPLAIN, &job, None),
        ("GET", paths::JOB_EVENTS, &job, None),
        ("GET", paths::LOG, &job, None),
        ("GET", paths::TREE, &job, None),
        ("POST", paths::LOG, &job, Some(log)),
        ("POST", paths::CANCEL, &job, None),
        ("POST", paths::CANCEL, &waiting, None),
        ("POST", paths::RETRY, &waiting, None),
        ("POST", paths::ACK, &waiting, None),
        ("POST", paths::COMPLETE, &job, Some(done)),
        ("GET", paths::LEASE, &lease, None),
        ("POST", paths::HEARTBEAT, &lease, None),
        ("POST", paths::REPORT, &lease, Some(json!({}))),
        ("POST", paths::PID, &lease, Some(json!({"pids": [1]}))),
        (
            "POST",
            paths::RELEASE,
            &lease,
            Some(json!({"return_jobs": true})),
        ),
        ("POST", paths::REVOKE, &lease, None),
        ("GET", paths::SCHEDULE, &schedule, None),
        ("PUT", paths::SCHEDULE, &schedule, Some(mine)),
        ("DELETE", paths::SCHEDULE, &schedule, None),
        ("POST", paths::SCHEDULE_PAUSE, &schedule, None),
        ("POST", paths::SCHEDULE_RESUME, &schedule, None),
    ];
    for (method, pattern, id, body) in cases {
        let kind = body.is_some().then_some("application/json");
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let mut told = |id: &str| {
            let reply = b.request(method, &paths::at(pattern, id), kind, body.as_bytes());
            reply
                .problem(404, "not_found")
                .to_string()
                .replace(id, "ID")
        };
        // To the letter: it cannot be told from what is not there.
        assert_eq!(told(id), told(NO_ID), "{method} {pattern}");
    }

    let many = json!({"lease_id": lease, "jobs": [{"job_id": job, "status": "DONE"}]});
    b.post(paths::COMPLETE_MANY, &many)
        .problem(404, "not_found");
    b.post(paths::LEASE_REQUEST, &json!({"job_id": waiting}))
        .problem(404, "not_found");
    let beats = b
        .post(
            paths::HEARTBEAT_MANY,
            &json!({"leases": [{"lease_id": lease}]}),
        )
        .expect(200);
    assert_eq!(beats["leases"][0]["error"]["code"], "not_found");
    let redriven = b
        .post(paths::REDRIVE, &json!({"job_ids": [job]}))
        .expect(200);
    assert_eq!(redriven["done"], json!([]));
    assert_eq!(redriven["failed"][0]["error"]["code"], "not_found");
    let depending = json!({"addon_id": "b", "job_type": "t", "cost_units": 1, "depends_on": [job]});
    b.post(paths::SUBMIT, &depending).problem(422, "invalid");

    // In another's name.
    let submission = json!({"addon_id": "a", "job_type": "t", "cost_units": 1});
    b.post(paths::SUBMIT, &submission).problem(403, "forbidden");
    b.post(paths::SUBMIT_MANY, &json!({"jobs": [submission]}))
        .problem(403, "forbidden");
    b.post(paths::LEASE_REQUEST, &submission)
        .problem(403, "forbidden");
    let claim = json!({"addon_id": "a", "instance_id": NO_ID});
    b.post(paths::CLAIM, &claim).problem(403, "forbidden");
    b.post(paths::SCHEDULES, &spec).problem(403, "forbidden");
    let worker = json!({"worker": {"instance_id": NO_ID, "addon_id": "a"}});
    b.post(paths::HEARTBEAT_MANY, &worker)
        .problem(403, "forbidden");

    // Lists are narrowed.
    for (path, list) in [
        (paths::JOBS.to_owned(), "jobs"),
        (format!("{}?addon_id=a", paths::JOBS), "jobs"),
        (paths::LEASES.to_owned(), "leases"),
        (format!("{}?addon_id=a", paths::LEASES), "leases"),
        (paths::SCHEDULES.to_owned(), "schedules"),
        (paths::DISPATCHABLE.to_owned(), "jobs"),
        (paths::WORKERS.to_owned(), "workers"),
    ] {
        assert_eq!(b.get(&path).expect(200)[list], json!([]), "{path}");
    }
    let none = b
        .post(paths::CANCEL_MANY, &json!({"query": {}}))
        .expect(200);
    assert_eq!(none["done"], json!([]));
    let none = b
        .post(paths::CANCEL_MANY, &json!({"query": {"addon_id": "a"}}))
        .expect(200);
    assert_eq!(none["done"], json!([]));
    let status = b.get(paths::STATUS).expect(200);
    assert_eq!(
        (&status["jobs"]["RUNNING"], &status["jobs"]["QUEUED"]),
        (&json!(0), &json!(0))
    );

    // And nothing has happened by all this.
    assert_eq!(a.get(&paths::at(paths::JOB, &job)).expect(200), before);
    assert_eq!(
        a.get(&paths::at(paths::JOB, &waiting)).expect(200)["state"],
        "QUEUED"
    );
    a.get(&paths::at(paths::SCHEDULE, &schedule)).expect(200);
}

/// A body that is refused when it is read.
fn broken_body(operation: &table::Info) -> &'static [u8] {
    match operation.method {
        Method::Get => b"",
        _ => b"{",
    }
}

/// Without the scope that the table names, an operation is refused before its id, query and body are read.
#[test]
fn the_scope_comes_before_id_query_and_body() {
    let house = House::new();
    for operation in table::all() {
        let path = format!("{}?unheard_of=1", paths::at(operation.path, "no-uuid"));
        let (method, body) = (operation.method.as_str(), broken_body(operation));
        let anonymous = house.nobody().request(method, &path, None, body);
        let Access::Scope(needed) = operation.access else {
            let open = operation.access == Access::Open;
            assert_eq!(anonymous.status != 401, open, "{}", operation.id);
            continue;
        };
        anonymous.problem(401, "unauthorized");
        let others = Scope::ALL
            .into_iter()
            .filter(|scope| *scope != needed && *scope != Scope::Admin);
        let others: Vec<_> = others.collect();
        let mut client = house.addon("photos", &others);
        let refused = client.request(method, &path, None, body);
        refused.problem(403, "forbidden");
        if needed != Scope::Admin {
            let mut client = house.addon("photos", &[needed]);
            let refused = client.request(method, &path, None, body);
            refused.problem(400, "malformed");
        }
    }
}

/// Every operation whose path names a job, lease or schedule answers for another addon's as for one that does not exist,
/// before its body is read.
#[test]
fn no_operation_reaches_another_addons_thing_by_its_path() {
    let house = House::new();
    let mut admin = house.admin();
    admin.submit("photos", "thumbnail");
    let (lease, job) = admin.claim("photos");
    let spec = json!({
        "name": "nightly", "cron": "0 3 * * *",
        "job": {"addon_id": "photos", "job_type": "thumbnail", "cost_units": 5},
    });
    let made = admin.post(paths::SCHEDULES, &spec).expect(201);
    let schedule = made["schedule_id"].as_str().unwrap();
    let mut stranger = house.addon(
        "music",
        &[Scope::Submit, Scope::Read, Scope::Cancel, Scope::Lease],
    );
    let mut seen = 0;
    for operation in table::all() {
        let id = match operation.path {
            path if path.contains("{job_id}") => &*job,
            path if path.contains("{lease_id}") => &*lease,
            path if path.contains("{schedule_id}") => schedule,
            _ => continue,
        };
        let (method, pattern) = (operation.method.as_str(), operation.path);
        let body = broken_body(operation);
        let others = stranger.request(method, &paths::at(pattern, id), None, body);
        let others = others.problem(404, "not_found").to_string();
        let none = stranger.request(method, &paths::at(pattern, NO_ID), None, body);
        let none = none.problem(404, "not_found").to_string();
        assert_eq!(others.replace(id, NO_ID), none, "{}", operation.id);
        seen += 1;
    }
    assert!(seen >= 20, "{seen} operations");
    for path in [
        paths::at(paths::JOB, &job),
        paths::at(paths::LEASE, &lease),
        paths::at(paths::SCHEDULE, schedule),
    ] {
        admin.get(&path).expect(200);
    }
}

#[test]
fn too_many_requests_of_one_token_are_told_to_wait() {
    let rate = jobtree_server::Rate {
        per_second: 1,
        burst: 3,
    };
    let house = House::with(|options| options.limits.rate = Some(rate));
    let mut admin = house.admin();
    let refused = (0..50)
        .map(|_| admin.get(paths::STATUS))
        .find(|reply| reply.status != 200)
        .expect("a limit");
    refused.problem(429, "too_many");
    assert!(
        refused
            .header("retry-after")
            .unwrap()
            .parse::<u32>()
            .unwrap()
            >= 1
    );
    // Whoever has no token has no part in it, and probes are not counted.
    house
        .nobody()
        .get(paths::STATUS)
        .problem(401, "unauthorized");
    admin.get(paths::HEALTH).expect(200);
}
