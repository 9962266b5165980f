//! The durable commands of a job from its submission to its end, with the policy that a new user gets: a job that was
//! dispatched, returned to the queue and admitted again for a claim cost three for the grant alone.
//!
//! Counts the commands that change a job or a lease, of all callers; the store writes each in one transaction.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteManyRequest, CompleteOne, CompleteRequest, CompleteStatus,
    EventKind, JobId, SubmitManyRequest, SubmitRequest,
};
use jobtree_store::{Listening, Store, Written};
use support::{OnQuietMachine, claim, start};
use watchdog::Watchdog;

/// A scheduler, and what is committed of jobs and leases.
struct Counted {
    scheduler: OnQuietMachine,
    /// The events of each command.
    commands: Arc<Mutex<Vec<Vec<EventKind>>>>,
    _listening: Listening,
}

impl Counted {
    fn start() -> Counted {
        let store = Store::in_memory();
        let commands = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&commands);
        let listener = move |all: &[Written]| {
            let of_jobs = |written: &&Written| {
                let changes = &written.changes;
                !changes.jobs.is_empty() || !changes.leases.is_empty()
            };
            let kinds = |written: &Written| -> Vec<EventKind> {
                written.changes.events.iter().map(|it| it.kind).collect()
            };
            kept.lock()
                .unwrap()
                .extend(all.iter().filter(of_jobs).map(kinds));
        };
        let listening = store.listen(Arc::new(listener));
        Counted {
            scheduler: start(store),
            commands,
            _listening: listening,
        }
    }

    /// Returns the events of each command since the last call.
    fn commands(&self) -> Vec<Vec<EventKind>> {
        std::mem::take(&mut *self.commands.lock().unwrap())
    }

    /// Submits a job. The planner has seen it before this returns.
    fn submit(&self) -> JobId {
        let job = SubmitRequest::new("photos", "index", 1);
        let job = self.scheduler.submit(job).wait().unwrap().job_id;
        self.scheduler.load().wait().unwrap();
        job
    }

    fn claim_now(&self, jobs: u32) -> ClaimAnswer {
        let request = ClaimRequest {
            wait_sec: 0,
            ..claim("photos", jobs)
        };
        let mut leases = self.scheduler.claim(request).wait().unwrap();
        assert_eq!(leases.len(), 1, "a job waits");
        leases.remove(0)
    }

    fn complete(&self, lease: &ClaimAnswer) {
        for job in &lease.jobs {
            let done = CompleteRequest::done(lease.lease_id, None);
            self.scheduler.complete(job.job_id, done).wait().unwrap();
        }
    }
}

#[test]
fn a_job_that_is_claimed_without_waiting_costs_three_commands() {
    let _watchdog = Watchdog::watching("one by one");
    let counted = Counted::start();
    for _ in 0..5 {
        let job = counted.submit();
        let lease = counted.claim_now(1);
        assert_eq!(lease.jobs[0].job_id, job);
        counted.complete(&lease);
        let commands = counted.commands();
        assert_eq!(commands.len(), 3, "submit, grant, complete: {commands:?}");
    }
}

#[test]
fn a_job_that_a_claim_waits_for_costs_three_commands() {
    let _watchdog = Watchdog::watching("waiting claim");
    let counted = Counted::start();
    for _ in 0..5 {
        let waits = counted.scheduler.claim(claim("photos", 1));
        let job = counted.submit();
        let leases = waits.wait().unwrap();
        assert_eq!(leases[0].jobs[0].job_id, job);
        counted.complete(&leases[0]);
        let commands = counted.commands();
        assert_eq!(commands.len(), 3, "submit, grant, complete: {commands:?}");
    }
}

#[test]
fn a_batch_costs_three_commands_however_many_jobs_are_in_it() {
    let _watchdog = Watchdog::watching("batch");
    let counted = Counted::start();
    let jobs = vec![SubmitRequest::new("photos", "index", 1); 50];
    let request = SubmitManyRequest { jobs };
    counted.scheduler.submit_many(request).wait().unwrap();
    let lease = counted.claim_now(50);
    assert_eq!(lease.jobs.len(), 50);
    let one = |job: &jobtree_protocol::JobView| CompleteOne {
        job_id: job.job_id,
        status: CompleteStatus::Done,
        result: None,
        error: None,
        retry: true,
        began_ms_ago: None,
        ended_ms_ago: None,
        usage: None,
    };
    let request = CompleteManyRequest {
        lease_id: lease.lease_id,
        jobs: lease.jobs.iter().map(one).collect(),
        in_hand: None,
    };
    counted.scheduler.complete_many(request).wait().unwrap();
    let commands = counted.commands();
    assert_eq!(commands.len(), 3, "submit, grant, complete: {commands:?}");
}

/// One by one, completing a member begins the next in the same command.
#[test]
fn members_of_a_batch_cost_one_command_each() {
    let _watchdog = Watchdog::watching("members");
    let counted = Counted::start();
    let jobs = vec![SubmitRequest::new("photos", "index", 1); 10];
    let request = SubmitManyRequest { jobs };
    counted.scheduler.submit_many(request).wait().unwrap();
    let lease = counted.claim_now(10);
    assert_eq!(lease.jobs.len(), 10);
    counted.complete(&lease);
    let commands = counted.commands();
    assert_eq!(
        commands.len(),
        12,
        "submit, grant, completions: {commands:?}"
    );
}

/// A reservation is one command, and a claim accepts it by one: the job is not returned, and not admitted again.
#[test]
fn a_claim_accepts_a_reserved_job_by_one_command() {
    let _watchdog = Watchdog::watching("reserved");
    let counted = Counted::start();
    let job = counted.submit();
    let polled = counted.scheduler.dispatchable(None, Duration::ZERO);
    assert_eq!(polled.wait().unwrap()[0].job_id, job);
    let lease = counted.claim_now(1);
    assert_eq!(lease.jobs[0].job_id, job);
    counted.complete(&lease);
    let commands = counted.commands();
    let expected = "submit, reserve, accept, complete";
    assert_eq!(commands.len(), 4, "{expected}: {commands:?}");
}
