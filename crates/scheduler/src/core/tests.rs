//! What the core remembers, however its inputs overlap.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use jobtree_protocol::{Limits, SubmitRequest};
use jobtree_queue::transitions::Changes;
use jobtree_store::{Stamp, Store, Submission};

use super::leases::tests::{end, lease};
use super::*;

/// A core on a store in memory that other schedulers use as well, with all of the store read.
struct Shared {
    core: Core,
    store: Store,
    now: Now,
    commits: Arc<Mutex<Vec<Written>>>,
    _listening: jobtree_store::Listening,
}

impl Shared {
    fn begun() -> Shared {
        let options = Options {
            shared: true,
            ..Options::default()
        };
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1),
        };
        let store = Store::in_memory();
        let commits = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&commits);
        let keep = move |written: &[Written]| kept.lock().unwrap().extend_from_slice(written);
        let listening = store.listen(Arc::new(keep));
        let mut core = Core::new(&options, Arc::new(Policy::default()), 7, now);
        let mut outputs = core.begin(now);
        while !outputs.is_empty() {
            let answers: Vec<Input> = operations(outputs)
                .into_iter()
                .map(|it| answer(&store, it))
                .collect();
            outputs = match answers.is_empty() {
                true => Vec::new(),
                false => core.step(answers, now),
            };
        }
        Shared {
            core,
            store,
            now,
            commits,
            _listening: listening,
        }
    }

    /// Submits a job. Returns its name, and its commit.
    fn submit(&self, number: u128) -> (JobId, Input) {
        let id = JobId::from_random(number.to_be_bytes());
        // No measurement of the machine comes, so nothing starts here.
        let request = SubmitRequest::new("addon", "kind", 1);
        let stamp = Stamp {
            now: self.now,
            roll: 1,
            rules: rules_of(&Policy::default(), &Options::default()).into(),
        };
        let submission = Submission {
            id,
            id_given: false,
            intent: request.validate(&Limits::default()).unwrap(),
        };
        self.store.submit(stamp, submission).wait().unwrap();
        let commits = std::mem::take(&mut *self.commits.lock().unwrap());
        (id, Input::Committed(commits))
    }

    /// A lease of this node was granted and has ended, as another node tells.
    fn lease_over(&self, number: u128) -> Input {
        let lease = lease(number, &self.core.turn);
        let written = |lease| Written {
            changes: Changes {
                leases: vec![lease],
                ..Changes::default()
            },
            now: self.now,
        };
        let over = end(&lease);
        Input::Committed(vec![written(lease), written(over)])
    }
}

fn operations(outputs: Vec<Output>) -> Vec<(OpId, Stamp, Op)> {
    let operation = |output| match output {
        Output::Op { id, stamp, op } => Some((id, stamp, op)),
        _ => None,
    };
    outputs.into_iter().filter_map(operation).collect()
}

fn answer(store: &Store, (op, stamp, request): (OpId, Stamp, Op)) -> Input {
    let mut context = Context::from_waker(Waker::noop());
    let answered = perform(store, stamp, request)
        .as_mut()
        .poll(&mut context)
        .map(Box::new);
    match answered {
        std::task::Poll::Ready(answer) => Input::Answer { op, answer },
        std::task::Poll::Pending => panic!("a store in memory answers at once"),
    }
}

/// Two busy daemons on one store: each notification begins a reading, and each reading ends after the next has begun, so there
/// is no instant without one. What was committed meanwhile was remembered until there was.
#[test]
fn readings_that_overlap_without_end_leave_nothing_behind() {
    let mut shared = Shared::begun();
    let now = shared.now;
    let mut under_way = Vec::new();
    for number in 0..2000 {
        let (job, committed) = shared.submit(number);
        let over = shared.lease_over(number);
        let inputs = [committed, over, Input::JobsChanged(vec![job])];
        let begun = operations(shared.core.step(inputs, now));
        assert!(begun.iter().any(|(.., op)| op.reading().is_some()));
        // What was asked for before is answered now, while this is being read.
        let answered = std::mem::replace(&mut under_way, begun).into_iter();
        let answers: Vec<Input> = answered.map(|it| answer(&shared.store, it)).collect();
        under_way.extend(operations(shared.core.step(answers, now)));
        assert!(shared.core.turn.in_flight.reads(), "they overlap");
        let jobs = shared.core.places.remembered();
        let leases = shared.core.leases.remembered();
        assert!(jobs < 10, "{jobs} revisions are remembered");
        assert!(leases < 10, "{leases} leases are remembered");
    }
}
