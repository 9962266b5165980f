//! The term of a lease begins with the commit that grants or renews it, however long the store took for that.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use jobtree_protocol::{CompleteRequest, JobState, LeaseId, SubmitRequest};
use jobtree_store::{Backend, Listen, Memory, Query, Store, StoreError, Work};
use support::{claim, start_with};
use watchdog::Watchdog;

const TERM: Duration = Duration::from_secs(2);
/// Longer than a term.
const STALL: Duration = Duration::from_millis(2600);

/// A store in memory that stands still for a while, if it is told to: it commits nothing then.
#[derive(Clone, Default)]
struct Stalling {
    memory: Arc<Memory>,
    until: Arc<Mutex<Option<Instant>>>,
}

impl Stalling {
    fn stand_still(&self) {
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + STALL);
    }
}

impl Backend for Stalling {
    fn transact(&self, work: Box<dyn Work>) {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let left = until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        if left.is_zero() {
            return self.memory.transact(work);
        }
        let memory = Arc::clone(&self.memory);
        thread::spawn(move || {
            thread::sleep(left);
            memory.transact(work);
        });
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        self.memory.snapshot(query);
    }

    fn listen(&self, listener: Weak<Listen>) {
        self.memory.listen(listener);
    }

    fn stopped(&self) -> Option<StoreError> {
        None
    }
}

/// Waits for most of a term, in which the lease must hold.
fn holds_for_a_term(store: &Store, lease: LeaseId) {
    let learnt = Instant::now();
    while learnt.elapsed() < TERM - Duration::from_millis(400) {
        let found = store.lease(lease).wait().expect("it was granted");
        assert!(
            found.is_live(),
            "it ended after {:?}: {found:?}",
            learnt.elapsed()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_grant_that_took_longer_than_the_term_holds_for_a_term() {
    let _watchdog = Watchdog::watching("a slow grant");
    let backend = Stalling::default();
    let store = Store::on(backend.clone());
    let scheduler = start_with(store.clone(), |options| {
        options.policy.dispatch.lease_ttl = TERM;
    });
    let submitted = scheduler.submit(SubmitRequest::new("a", "t", 1)).wait();
    let job = submitted.expect("it is taken").job_id;
    backend.stand_still();
    let begun = Instant::now();
    let granted = scheduler.claim(claim("a", 1)).wait().expect("it waits");
    assert!(begun.elapsed() > TERM, "the store stood still");
    let lease = granted[0].lease_id;
    holds_for_a_term(&store, lease);
    let done = scheduler.complete(job, CompleteRequest::done(lease, None));
    assert_eq!(done.wait().expect("its lease holds").state, JobState::Done);
}
