//! Tests of the whole core on a store in memory: its memory while readings overlap, and jobs that no caller serves.

use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use jobtree_protocol::{Limits, SubmitRequest};
use jobtree_queue::signals::Sample;
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

/// Cores on one store in memory, each on a machine that idles, in virtual time. No caller serves any job.
struct Unserved {
    store: Store,
    commits: Arc<Mutex<Vec<Written>>>,
    cores: Vec<Core>,
    now: Now,
    _listening: jobtree_store::Listening,
}

impl Unserved {
    fn on(nodes: usize) -> Unserved {
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().unwrap(),
            mono: Duration::from_secs(1),
        };
        let store = Store::in_memory();
        let commits = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&commits);
        let keep = move |written: &[Written]| kept.lock().unwrap().extend_from_slice(written);
        let listening = store.listen(Arc::new(keep));
        let core = |number: usize| {
            let options = Options {
                node: format!("node-{number}").parse().unwrap(),
                shared: nodes > 1,
                ..Options::default()
            };
            Core::new(&options, Arc::new(Policy::default()), number as u64, now)
        };
        let mut unserved = Unserved {
            store,
            commits,
            cores: (0..nodes).map(core).collect(),
            now,
            _listening: listening,
        };
        for node in 0..nodes {
            let outputs = unserved.cores[node].begin(now);
            unserved.carry_out(node, outputs);
        }
        unserved
    }

    /// Carries out what a core asks for, and what follows. The other nodes are told which jobs have changed.
    fn carry_out(&mut self, node: usize, outputs: Vec<Output>) {
        let mut asked: Vec<_> = operations(outputs)
            .into_iter()
            .map(|it| (node, it))
            .collect();
        while let Some((node, operation)) = asked.pop() {
            let answered = answer(&self.store, operation);
            let commits = std::mem::take(&mut *self.commits.lock().unwrap());
            let changed = commits.iter().flat_map(|it| &it.changes.jobs);
            let changed: Vec<JobId> = changed.map(|job| job.id).collect();
            let inputs = [Input::Committed(commits), answered];
            let more = operations(self.cores[node].step(inputs, self.now));
            asked.extend(more.into_iter().map(|it| (node, it)));
            for other in (0..self.cores.len()).filter(|it| *it != node && !changed.is_empty()) {
                let input = Input::JobsChanged(changed.clone());
                let more = operations(self.cores[other].step([input], self.now));
                asked.extend(more.into_iter().map(|it| (other, it)));
            }
        }
    }

    fn submit(&mut self, request: &SubmitRequest, count: u128) {
        for number in 0..count {
            let submission = Submission {
                id: JobId::from_random(number.to_be_bytes()),
                id_given: false,
                intent: request.clone().validate(&Limits::default()).unwrap(),
            };
            let stamp = Stamp {
                now: self.now,
                roll: 1,
                rules: rules_of(&Policy::default(), &Options::default()).into(),
            };
            self.store.submit(stamp, submission).wait().unwrap();
        }
        let commits = std::mem::take(&mut *self.commits.lock().unwrap());
        for node in 0..self.cores.len() {
            let input = Input::Committed(commits.clone());
            let outputs = self.cores[node].step([input], self.now);
            self.carry_out(node, outputs);
        }
    }

    /// Lets a time pass, with a measurement at each node.
    fn pass(&mut self, time: Duration) {
        self.now = Now {
            wall: self.now.wall + time,
            mono: self.now.mono + time,
        };
        for node in 0..self.cores.len() {
            let inputs = [Input::Sample(Sample::idle()), Input::Timer];
            let outputs = self.cores[node].step(inputs, self.now);
            self.carry_out(node, outputs);
        }
    }

    /// Returns the number of rows of the audit trail.
    fn rows(&self) -> usize {
        let (mut rows, mut after) = (0, 0);
        loop {
            let page = self.store.events_after(after, 1000).wait().unwrap();
            let Some(last) = page.last() else {
                return rows;
            };
            after = last.cursor;
            rows += page.len();
        }
    }
}

/// Six jobs that no caller serves, of high priority, wrote some 860 000 rows a day: each was reserved and returned again and
/// again, and denied in between.
#[test]
fn unserved_jobs_write_a_few_hundred_rows_a_day() {
    let written = rows_of_six_jobs(24, None);
    assert!((100..=2000).contains(&written), "{written} rows in a day");
    #[cfg(feature = "sim")]
    {
        let as_before = rows_of_six_jobs(1, Some(Bug::ReserveForNobody));
        assert!(as_before > 500, "{as_before} rows in an hour");
    }
}

/// Returns how many rows six jobs that no caller serves write in so many hours.
fn rows_of_six_jobs(hours: u64, mistake: Option<Bug>) -> usize {
    let mut unserved = Unserved::on(1);
    #[cfg(feature = "sim")]
    mistake
        .into_iter()
        .for_each(|it| unserved.cores[0].plant(it));
    #[cfg(not(feature = "sim"))]
    assert_eq!(mistake, None);
    let mut job = SubmitRequest::new("forgotten", "report", 20);
    job.priority = jobtree_protocol::Priority::High;
    unserved.submit(&job, 6);
    let before = unserved.rows();
    for _ in 0..hours * 360 {
        unserved.pass(Duration::from_secs(10));
    }
    unserved.rows() - before
}

/// Three nodes share a store. A job that one of them reserves is read by the others, which wait with probes of its type.
#[test]
fn an_unserved_type_has_one_probe_over_all_nodes() {
    let mut unserved = Unserved::on(3);
    unserved.submit(&SubmitRequest::new("forgotten", "report", 5), 30);
    let mut seen = 0;
    for second in 0..3600 {
        unserved.pass(Duration::from_secs(1));
        let out = unserved.store.dispatching().wait().unwrap().len();
        assert!(out <= 1, "{out} probes in second {second}");
        seen += out;
    }
    assert!(seen > 100, "probes were out for {seen} s of an hour");
}
