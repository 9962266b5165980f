//! Tries each rule on a run made by hand that breaks it: a rule that cannot fail checks nothing.

use std::time::Duration;

use jobtree_protocol::{Event, JobId, JobState, LeaseId};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::ledger::{Call, Disturbance, Kept, Outcome, Run, What};
use crate::rules::{self, CAPACITY, COST};

fn job(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

fn lease(number: u128) -> LeaseId {
    LeaseId(Uuid::from_u128(1000 + number))
}

/// An event of the n-th second.
fn event(second: i64, kind: &str, of: Option<JobId>, under: Option<LeaseId>) -> Event {
    let at = jiff::Timestamp::from_second(1_800_000_000 + second).expect("a time");
    let event =
        json!({ "job_id": of, "at": at, "event": kind, "lease_id": under, "node_id": "n1" });
    serde_json::from_value(event).expect("an event")
}

fn call(what: What, body: Value) -> Call {
    Call {
        daemon: 0,
        sent: Duration::from_secs(1),
        ended: Duration::from_secs(2),
        what,
        outcome: Outcome::Answer(200, body),
    }
}

/// A run that keeps all rules: a job is submitted, claimed and done, and a lease without jobs comes and goes.
fn good() -> Run {
    let (one, under, other) = (job(1), lease(1), lease(2));
    let mut run = Run {
        calls: vec![
            call(What::Submit { number: 1 }, json!({"job_id": one})),
            call(
                What::Claim { lease: under },
                json!({"leases": [{"lease_id": under, "jobs": [{"job_id": one}]}]}),
            ),
            call(
                What::Complete {
                    job: one,
                    lease: under,
                },
                json!({"state": "DONE"}),
            ),
            call(
                What::Capacity { key: "a".into() },
                json!({"approved": true, "lease_id": other}),
            ),
        ],
        ..Run::default()
    };
    let kept = Kept {
        number: 1,
        state: JobState::Done,
        unique_key: Some("u".into()),
        gate: Some(("g".into(), 1)),
    };
    run.evidence.jobs.insert(one, kept);
    run.evidence.request_keys.insert(other, "a".into());
    run.evidence.events = vec![
        event(0, "SUBMITTED", Some(one), None),
        event(1, "LEASE_GRANTED", None, Some(under)),
        event(1, "DISPATCHING", Some(one), Some(under)),
        event(2, "DONE", Some(one), Some(under)),
        event(2, "LEASE_RELEASED", None, Some(under)),
        event(3, "LEASE_GRANTED", None, Some(other)),
        event(6, "LEASE_EXPIRED", None, Some(other)),
    ];
    run
}

/// Adds a second job with the keys of the first, which waits.
fn second_job(run: &mut Run, number: u64) -> JobId {
    let kept = Kept {
        number,
        ..run.evidence.jobs[&job(1)].clone()
    };
    run.evidence.jobs.insert(job(2), kept);
    run.calls
        .push(call(What::Submit { number }, json!({"job_id": job(2)})));
    job(2)
}

type Break = fn(&mut Run);

/// Each rule, and what breaks it.
const BREAKS: &[(&str, Break)] = &[
    ("a submission that was acknowledged is kept", |run| {
        run.evidence.jobs.clear();
    }),
    ("a submission takes effect once", |run| {
        second_job(run, 1);
    }),
    ("a submission takes effect once", |run| {
        run.calls.push(run.calls[0].clone());
    }),
    ("a submission takes effect once", |run| {
        drop(run.calls.remove(0));
    }),
    ("a unique key has one live job", |run| {
        let two = second_job(run, 2);
        run.evidence
            .events
            .insert(1, event(0, "SUBMITTED", Some(two), None));
    }),
    ("an end that was acknowledged is kept", |run| {
        drop(run.evidence.events.remove(3));
    }),
    ("an end that was acknowledged is kept", |run| {
        let kept = run.evidence.jobs.get_mut(&job(1)).expect("it is there");
        kept.state = JobState::Queued;
    }),
    ("an end that was acknowledged is kept", |run| {
        let what = What::Cancel { job: job(1) };
        run.calls.push(call(what, json!({"state": "CANCELED"})));
    }),
    ("a job is done once", |run| {
        run.evidence
            .events
            .insert(4, run.evidence.events[3].clone());
    }),
    ("a claim that was acknowledged is kept", |run| {
        drop(run.evidence.events.remove(2));
    }),
    ("a claim that was acknowledged is kept", |run| {
        let what = What::Ack {
            job: job(1),
            lease: lease(3),
        };
        run.calls.push(call(what, json!({})));
    }),
    ("a lease is granted once", |run| {
        run.evidence
            .events
            .insert(2, run.evidence.events[1].clone());
    }),
    ("a job has one live lease", |run| {
        let again = event(1, "RUNNING", Some(job(1)), Some(lease(3)));
        run.evidence.events.insert(3, again);
    }),
    ("a request key has one live lease", |run| {
        run.evidence.request_keys.insert(lease(3), "a".into());
        let other = event(4, "LEASE_GRANTED", None, Some(lease(3)));
        run.evidence.events.insert(6, other);
    }),
    ("a request key has one live lease", |run| {
        run.evidence.request_keys.clear();
    }),
    ("a concurrency key lets in as many as its limit", |run| {
        let two = second_job(run, 2);
        let beside = event(1, "DISPATCHING", Some(two), Some(lease(3)));
        run.evidence.events.insert(3, beside);
    }),
    ("a machine's leases fit its capacity", |run| {
        for number in 10..=10 + u128::from(CAPACITY / COST) {
            let granted = event(7, "LEASE_GRANTED", None, Some(lease(number)));
            run.evidence.events.push(granted);
        }
    }),
    ("a lease lasts its term", |run| {
        run.evidence.events[6] = event(4, "LEASE_EXPIRED", None, Some(lease(2)));
    }),
    ("every call is answered, and not with 5xx", |run| {
        run.calls[0].outcome = Outcome::Answer(500, json!({}));
    }),
    ("every call is answered, and not with 5xx", |run| {
        run.calls[0].outcome = Outcome::Answer(503, json!({}));
    }),
    ("every call is answered, and not with 5xx", |run| {
        run.calls[0].outcome = Outcome::Unreachable("refused".into());
    }),
    ("every job ends while workers ask for jobs", |run| {
        run.evidence.stuck.push("a job".into());
    }),
    ("nothing is in use when nothing runs", |run| {
        run.evidence.used.push(20)
    }),
    ("the audit finds nothing", |run| {
        run.evidence.audit.push("a violation".into())
    }),
];

#[test]
fn a_run_without_fault_breaks_no_rule() {
    let mut run = good();
    assert_eq!(rules::broken(&run), Vec::<String>::new());
    // Around a kill, a daemon may be unreachable or say so.
    run.disturbances.push(Disturbance {
        daemon: 0,
        from: Duration::from_millis(1500),
        to: Duration::from_secs(9),
    });
    run.calls[3].outcome = Outcome::Answer(503, json!({}));
    run.calls.push(Call {
        outcome: Outcome::Unreachable("reset".into()),
        ..call(What::Other("revoke"), json!({}))
    });
    run.calls.push(Call {
        outcome: Outcome::Dropped,
        ..call(What::Other("revoke"), json!({}))
    });
    assert_eq!(rules::broken(&run), Vec::<String>::new());
}

#[test]
fn each_rule_is_broken_by_a_run_that_breaks_it() {
    for (place, (name, breaks)) in BREAKS.iter().enumerate() {
        let mut run = good();
        breaks(&mut run);
        let broken = rules::broken(&run);
        let found = broken.iter().any(|it| it.starts_with(&format!("{name}: ")));
        assert!(found, "break {place} of {name:?} was not found: {broken:?}");
    }
    for (name, _) in rules::ALL {
        let is_tried = BREAKS.iter().any(|(tried, _)| tried == name);
        assert!(is_tried, "{name:?} was not tried on a run that breaks it");
    }
}
