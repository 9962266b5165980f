//! What others write to a shared store is looked for in steady intervals, whatever else is read meanwhile, and what is found
//! is tried again, whatever became of it before.

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
use jobtree_scheduler::core::{Answered, Core, Input, Live, Op, Output, perform, rules_of};
use jobtree_store::{Stamp, Store, StoreError, Submission};
use watchdog::Watchdog;

/// Answers what is asked of an empty store, until nothing is asked any more. How often all that waits was read.
fn answered(core: &mut Core, mut outputs: Vec<Output>, now: Now) -> usize {
    let mut looks = 0;
    loop {
        let mut answers = Vec::new();
        for output in outputs {
            let Output::Op { id, op, .. } = output else {
                continue;
            };
            let answer = match op {
                Op::ReadLive => Answered::Live(Live::default()),
                Op::ReadQueued(_) => {
                    looks += 1;
                    Answered::Queued(Vec::new())
                }
                Op::ReadNotes => Answered::Notes(Vec::new()),
                _ => Answered::Done,
            };
            let answer = Ok(Box::new(answer));
            answers.push(Input::Answer { op: id, answer });
        }
        if answers.is_empty() {
            return looks;
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
fn a_look_is_not_put_off_by_smaller_ones() {
    let _watchdog = Watchdog::watching("looks");
    let options = shared_options();
    let mut core = Core::new(&options, Arc::new(Policy::default()), 7, at(0));
    let begun = core.begin(at(0));
    assert_eq!(
        answered(&mut core, begun, at(0)),
        1,
        "all is read at the start"
    );
    // Each second somebody fires a schedule: what is live is read again.
    let mut looks = 0;
    for second in 1..=60 {
        let outputs = core.step([Input::Settings], at(second));
        looks += answered(&mut core, outputs, at(second));
    }
    assert!((10..=20).contains(&looks), "{looks} looks in a minute");
}

/// A store that others use as well: every proposal for its only job comes too late, and whoever looks at the job then
/// does not see it.
struct Contested {
    store: Store,
    proposals: usize,
    looks: usize,
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
            looks: 0,
        }
    }

    fn answer(&mut self, stamp: Stamp, op: Op) -> Result<Answered, StoreError> {
        match op {
            Op::Reserve(job, _) => {
                self.proposals += 1;
                Err(StoreError::NoJob(job))
            }
            Op::Look(_) => {
                self.looks += 1;
                Ok(Answered::Looked(Vec::new()))
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
                    let answer = self.answer(stamp, op).map(Box::new);
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
    let mut options = shared_options();
    options.policy.quiet.enter_after = Duration::ZERO;
    let mut store = Contested::with_a_job(&options);
    let policy = Arc::new(options.policy.clone());
    let mut core = Core::new(&options, policy, 7, at(0));
    let begun = core.begin(at(0));
    store.settle(&mut core, begun, at(0));
    for second in 1..=60 {
        let outputs = core.step([Input::Sample(Sample::idle())], at(second));
        store.settle(&mut core, outputs, at(second));
    }
    assert!(store.looks >= 1, "what was refused is looked at");
    assert!(store.proposals >= 5, "{} proposals", store.proposals);
}
