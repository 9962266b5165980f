//! What other schedulers write to a shared store is read in steady intervals, whatever else is read meanwhile, and a job
//! that is found is proposed again, whatever became of it before.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_protocol::{JobId, Limits, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_scheduler::Options;
use jobtree_scheduler::core::{
    Answer, Call, Core, Dispatchable, Input, Live, Op, Output, Responder, perform, rules_of,
};
use jobtree_store::{Pruned, Stamp, Store, StoreError, Submission};
use watchdog::Watchdog;

/// Answers what is asked of an empty store, until nothing is asked any more. Returns how often all that waits was read.
fn answered(core: &mut Core, mut outputs: Vec<Output>, now: Now) -> usize {
    let mut readings = 0;
    loop {
        let mut answers = Vec::new();
        for output in outputs {
            let Output::Op { id, op, .. } = output else {
                continue;
            };
            let answer = match op {
                Op::ReadLive(op) => Answer::ReadLive(op, Ok(Live::default())),
                Op::ReadQueued(op) => {
                    readings += 1;
                    Answer::ReadQueued(op, Ok(Vec::new()))
                }
                Op::ReadNotes(op) => Answer::ReadNotes(op, Ok(Vec::new())),
                Op::PutNote(op) => Answer::PutNote(op, Ok(())),
                Op::ReadNodes(op) => Answer::ReadNodes(op, Ok(Vec::new())),
                Op::Prune(op) => Answer::Prune(op, Ok(Pruned::default())),
                other => panic!("nothing else is asked of an empty store: {other:?}"),
            };
            let answer = Box::new(answer);
            answers.push(Input::Answer { op: id, answer });
        }
        if answers.is_empty() {
            return readings;
        }
        outputs = core.step(answers, now);
    }
}

fn at(seconds: u64) -> Now {
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Now {
        wall: start + Duration::from_secs(seconds),
        mono: Duration::from_secs(seconds),
    }
}

fn shared_options() -> Options {
    Options {
        shared: true,
        look: Duration::from_secs(5),
        ..Options::default()
    }
}

#[test]
fn a_full_reading_is_not_put_off_by_smaller_ones() {
    let _watchdog = Watchdog::watching("readings");
    let options = shared_options();
    let mut core = Core::new(&options, Arc::new(Policy::default()), 7, at(0));
    let begun = core.begin(at(0));
    assert_eq!(
        answered(&mut core, begun, at(0)),
        1,
        "all is read at the start"
    );
    // Each second somebody fires a schedule: what is live is read again.
    let mut readings = 0;
    for second in 1..=60 {
        let outputs = core.step([Input::SettingsChanged], at(second));
        readings += answered(&mut core, outputs, at(second));
    }
    assert!(
        (10..=20).contains(&readings),
        "{readings} readings in a minute"
    );
}

/// A store that other schedulers use as well: every proposal for its only job comes too late, and a reading of the job
/// then does not find it.
struct Contested {
    store: Store,
    proposals: usize,
    readings: usize,
}

impl Contested {
    fn with_a_job(options: &Options) -> Contested {
        let store = Store::in_memory();
        let request = SubmitRequest::new("addon", "kind", 1);
        let submission = Submission {
            id: JobId::from_random([1; 16]),
            id_given: false,
            intent: request.validate(&Limits::default()).unwrap(),
        };
        let stamp = Stamp {
            now: at(0),
            roll: 1,
            rules: rules_of(&options.policy, options).into(),
        };
        store.submit(stamp, submission).wait().unwrap();
        Contested {
            store,
            proposals: 0,
            readings: 0,
        }
    }

    fn answer(&mut self, stamp: Stamp, op: Op) -> Answer {
        match op {
            Op::Reserve(op) => {
                self.proposals += 1;
                let error = StoreError::NoJob(op.job);
                Answer::Reserve(op, Err(error))
            }
            Op::ReadJobs(op) => {
                self.readings += 1;
                Answer::ReadJobs(op, Ok(Vec::new()))
            }
            op => {
                let mut context = Context::from_waker(Waker::noop());
                match perform(&self.store, stamp, op).as_mut().poll(&mut context) {
                    Poll::Ready(answer) => answer,
                    Poll::Pending => panic!("memory answers at once"),
                }
            }
        }
    }

    fn settle(&mut self, core: &mut Core, mut outputs: Vec<Output>, now: Now) {
        while !outputs.is_empty() {
            let mut inputs = Vec::new();
            for output in outputs {
                if let Output::Op { id, stamp, op } = output {
                    let answer = Box::new(self.answer(stamp, op));
                    inputs.push(Input::Answer { op: id, answer });
                }
            }
            if inputs.is_empty() {
                return;
            }
            outputs = core.step(inputs, now);
        }
    }
}

#[test]
fn a_job_that_was_refused_and_lost_sight_of_is_proposed_again_when_it_is_read() {
    let _watchdog = Watchdog::watching("contested");
    let options = shared_options();
    let mut store = Contested::with_a_job(&options);
    let policy = Arc::new(options.policy.clone());
    let mut core = Core::new(&options, policy, 7, at(0));
    let begun = core.begin(at(0));
    store.settle(&mut core, begun, at(0));
    // After a minute the machine counts as quiet, and the job is proposed.
    for second in 1..=120 {
        // A caller that polls serves the job's type: nothing is reserved for types that no one serves.
        let caller = Responder::new(second, |_| Ok(()));
        let poll = Call::Dispatchable(Dispatchable(None), Duration::ZERO, caller);
        let inputs = [Input::Call(poll), Input::Sample(Sample::idle())];
        let outputs = core.step(inputs, at(second));
        store.settle(&mut core, outputs, at(second));
    }
    assert!(store.readings >= 1, "a refused job is read again");
    assert!(store.proposals >= 5, "{} proposals", store.proposals);
}
