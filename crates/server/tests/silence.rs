//! What goes into logs: neither tokens nor payloads, whatever happens and however much is logged.
//!
//! A program of its own: what is logged is collected from all threads.

mod support;

use std::fmt::{self, Write};
use std::sync::Mutex;

use jobtree_protocol::{Scope, paths};
use serde_json::json;
use support::{Client, House, JSON};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

static LINES: Mutex<String> = Mutex::new(String::new());

/// Takes everything, of every level.
struct Lines;

struct Text<'a>(&'a mut String);

impl Visit for Text<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut lines = LINES.lock().unwrap();
        span.record(&mut Text(&mut lines));
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Text(&mut LINES.lock().unwrap()));
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut lines = LINES.lock().unwrap();
        write!(lines, "\n{}", event.metadata().target()).unwrap();
        event.record(&mut Text(&mut lines));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn tokens_and_payloads_are_not_logged() {
    tracing::subscriber::set_global_default(Lines).unwrap();
    let house = House::new();
    let token = house.admin_token();
    let secret = token.rsplit('_').next().unwrap().to_owned();
    let mut admin = house.admin();
    let body = json!({"addon_id": "a", "job_type": "t", "cost_units": 1, "payload": {"password": "hunter-two"}});
    admin.post(paths::SUBMIT, &body).expect(200);
    let (lease, job) = admin.claim("a");
    let failed = json!({"lease_id": lease, "status": "FAILED", "error": "because of hunter-two"});
    admin
        .post(&paths::at(paths::COMPLETE, &job), &failed)
        .expect(200);
    let made = admin
        .post(
            paths::TOKENS,
            &json!({"name": "n", "addon_id": "a", "scopes": [Scope::Read]}),
        )
        .expect(201);
    let made = made["token"].as_str().unwrap().to_owned();
    Client::new(house.server.addr(), Some(made.clone()))
        .get(paths::TOKENS)
        .problem(403, "forbidden");
    Client::new(house.server.addr(), Some(format!("{token}0")))
        .get(paths::JOBS)
        .problem(401, "unauthorized");
    admin
        .get(&format!("{}?token={token}", paths::JOBS))
        .problem(400, "malformed");
    admin
        .request("POST", paths::SUBMIT, JSON, b"{\"payload\": \"hunter-two\"")
        .problem(400, "malformed");
    let hook = json!({"url": "http://127.0.0.1:1/", "secret": "hunter-two-and-more"});
    admin.post(paths::WEBHOOKS, &hook).expect(201);
    // A connection that breaks within a request, and one that speaks something else.
    let crooked = format!(
        "GET {} HTTP/1.1\r\nauthorization: Bearer {token}\r\n\0",
        paths::JOBS
    );
    house.nobody().raw(crooked.as_bytes(), false);
    tracing::warn!("this line is there, so the collector works");
    house.server.stop();
    let lines = LINES.lock().unwrap();
    assert!(lines.contains("this line is there"));
    for hidden in [&secret, &token, &made, "hunter-two"] {
        let found = lines.lines().find(|line| line.contains(hidden));
        assert_eq!(found, None);
    }
}
