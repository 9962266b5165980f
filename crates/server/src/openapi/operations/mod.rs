//! All operations.

mod leases;
mod operating;
mod queue;

use jobtree_protocol::paths;
use serde_json::{Value, json};

use super::book::Book;
use crate::api::{MOST_ROWS, MOST_WAIT};

/// What is answered when the state of things is against it.
const IN_THE_WAY: &str = "The state of the job or lease does not allow this.";
const ID: &str = "00000000-0000-4000-8000-000000000000";

pub(super) fn all(book: &mut Book) {
    probes(book);
    queue::jobs(book);
    queue::commands(book);
    queue::work(book);
    leases::leases(book);
    leases::schedules(book);
    operating::operating(book);
    operating::observing(book);
    operating::backup(book);
    operating::events(book);
    operating::tokens(book);
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": MOST_ROWS})
}

fn wait() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MOST_WAIT})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn place() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": u64::MAX})
}

fn probes(book: &mut Book) {
    book.operation(
        "get",
        paths::HEALTH,
        "health",
        "Whether the process is alive.",
    )
    .open()
    .answers_object("It is.")
    .end();
    book.operation("get", paths::READY, "ready", "Whether it can take jobs.")
        .open()
        .answers_object("It can.")
        .end();
    book.operation("get", paths::OPENAPI, "openapi", "This document.")
        .answers_object("It.")
        .end();
}
