//! The outbox: a crash at any place loses nothing and doubles nothing.

use std::path::PathBuf;

use jobtree_protocol::{JobQuery, JobState};
use rusqlite::Connection;

use super::*;

/// A program's own database and its queue, as files; what is not in them is gone with a crash.
struct Program {
    place: PathBuf,
}

impl Program {
    fn new(name: &str) -> Program {
        let name = format!("jobtree-outbox-{name}-{}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&place);
        std::fs::create_dir_all(&place).unwrap();
        let program = Program { place };
        let own = program.own();
        outbox::prepare(&own).unwrap();
        own.execute_batch("CREATE TABLE orders (item TEXT)")
            .unwrap();
        program
    }

    fn own(&self) -> Connection {
        Connection::open(self.place.join("own.db")).unwrap()
    }

    fn queue(&self) -> Queue {
        Queue::open(self.place.join("jobs.db")).unwrap()
    }

    fn order(&self, item: &str) -> JobId {
        let (queue, mut own) = (self.queue(), self.own());
        let transaction = own.transaction().unwrap();
        transaction
            .execute("INSERT INTO orders VALUES (?1)", [item])
            .unwrap();
        let id = queue
            .enqueue_in(&transaction, NewJob::new("invoice", item))
            .unwrap();
        transaction.commit().unwrap();
        id
    }

    fn queued(&self) -> Vec<JobId> {
        let list = self
            .queue()
            .scheduler()
            .jobs(JobQuery::default())
            .wait()
            .unwrap();
        list.jobs.iter().map(|job| job.job_id).collect()
    }

    fn waiting(&self) -> usize {
        outbox::waiting(&self.own(), 1000).unwrap().len()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.place);
    }
}

/// Where a crash comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Crash {
    BeforeTheUsersCommit,
    AfterTheUsersCommit,
    AfterReading,
    AfterSubmitting,
    WhileForgetting,
    Never,
}

#[test]
fn a_crash_at_any_step_loses_nothing_and_doubles_nothing() {
    use Crash::*;
    for crash in [
        BeforeTheUsersCommit,
        AfterTheUsersCommit,
        AfterReading,
        AfterSubmitting,
        WhileForgetting,
        Never,
    ] {
        let program = Program::new(&format!("{crash:?}"));
        let before = program.order("a pen");
        let expected = run_until(&program, crash, before);
        // Started again, twice: the second time there is nothing to do.
        program.queue().relay_once(&mut program.own()).unwrap();
        let again = program.queue().relay_once(&mut program.own()).unwrap();
        assert_eq!(again, Relayed::default(), "{crash:?}");
        assert_eq!(program.queued(), expected, "{crash:?}");
        assert_eq!(program.waiting(), 0, "{crash:?}");
        let own = program.own();
        let orders: i64 = own
            .query_row("SELECT count(*) FROM orders", [], |row| row.get(0))
            .unwrap();
        assert_eq!(
            orders,
            expected.len() as i64,
            "a job for each order: {crash:?}"
        );
    }
}

/// Orders a book and moves it, as far as it comes; the jobs that must exist afterwards.
fn run_until(program: &Program, crash: Crash, before: JobId) -> Vec<JobId> {
    let (queue, mut own) = (program.queue(), program.own());
    let transaction = own.transaction().unwrap();
    transaction
        .execute("INSERT INTO orders VALUES ('a book')", [])
        .unwrap();
    let id = queue
        .enqueue_in(&transaction, NewJob::new("invoice", "a book"))
        .unwrap();
    if crash == Crash::BeforeTheUsersCommit {
        // A connection that is gone rolls back.
        return vec![before];
    }
    transaction.commit().unwrap();
    let both = vec![before, id];
    if crash == Crash::AfterTheUsersCommit {
        return both;
    }
    let waiting = outbox::waiting(&own, AT_ONCE).unwrap();
    assert_eq!(waiting.len(), 2);
    if crash == Crash::AfterReading {
        return both;
    }
    let moved = forward(queue.scheduler(), waiting).unwrap();
    assert_eq!(moved.moved, both);
    if crash == Crash::AfterSubmitting {
        return both;
    }
    if crash == Crash::WhileForgetting {
        // Its transaction is not committed.
        let half = own.transaction().unwrap();
        half.execute("DELETE FROM jobtree_outbox", []).unwrap();
        return both;
    }
    settle(&mut own, &moved).unwrap();
    both
}

#[test]
fn a_job_that_was_moved_twice_runs_once_even_if_it_has_ended_in_between() {
    let program = Program::new("ended");
    let id = program.order("a book");
    let (queue, own) = (program.queue(), program.own());
    let waiting = outbox::waiting(&own, AT_ONCE).unwrap();
    forward(queue.scheduler(), waiting.clone()).unwrap();
    let runs = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&runs);
    let worker = queue.worker().handle("invoice", move |item: String, _| {
        *counted.lock().unwrap() += 1;
        Ok(item)
    });
    let worker = worker.start().unwrap();
    assert_eq!(queue.result_of::<String>(id).wait().unwrap(), "a book");
    // The relay crashed before it forgot it, and comes again.
    let again = forward(queue.scheduler(), waiting).unwrap();
    assert_eq!(again.moved, [id]);
    assert_eq!(queue.job(id).wait().unwrap().state, JobState::Done);
    worker.drain(Duration::from_secs(60)).unwrap();
    assert_eq!(*runs.lock().unwrap(), 1);
}

#[test]
fn what_the_queue_refuses_is_set_aside_and_holds_up_nobody() {
    let (queue, mut own) = (Queue::in_memory(), Connection::open_in_memory().unwrap());
    outbox::prepare(&own).unwrap();
    let mut write = |job: NewJob| {
        let transaction = own.transaction().unwrap();
        let written = queue.enqueue_in(&transaction, job);
        transaction.commit().unwrap();
        written
    };
    let keyed = |item: &str| NewJob::new("invoice", item).idempotency_key("one");
    let first = write(keyed("a book")).unwrap();
    let other = write(keyed("a pen")).unwrap();
    let last = write(NewJob::new("invoice", "paper")).unwrap();
    // What can be seen at once is refused at once.
    let wrong = write(NewJob::new("in voice", "ink")).unwrap_err();
    assert!(matches!(wrong, OutboxError::Refused(_)), "{wrong}");
    let relayed = queue.relay_once(&mut own).unwrap();
    assert_eq!(relayed.moved, [first, last]);
    assert_eq!(relayed.refused[0].0, other);
    let aside = outbox::refused(&own).unwrap();
    assert_eq!(aside[0].0, other.to_string());
}

#[test]
fn a_relay_moves_what_comes() {
    let program = Program::new("relay");
    let queue = program.queue();
    let relay = queue
        .relay(program.own(), Duration::from_secs(3600))
        .unwrap();
    let mut own = program.own();
    let transaction = own.transaction().unwrap();
    let id = queue
        .enqueue_in(&transaction, NewJob::new("invoice", "a book"))
        .unwrap();
    assert!(queue.job(id).wait().is_err(), "not before the commit");
    transaction.commit().unwrap();
    relay.nudge();
    let worker = queue.worker().handle("invoice", |item: String, _| Ok(item));
    let worker = worker.start().unwrap();
    while queue.job(id).wait().is_err() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(queue.result_of::<String>(id).wait().unwrap(), "a book");
    assert_eq!(relay.error(), None);
    worker.drain(Duration::from_secs(60)).unwrap();
}
