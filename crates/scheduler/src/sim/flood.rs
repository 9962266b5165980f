//! A flood without faults, through the whole core: how long everybody waits at most.
//!
//! Several addons flood a machine with small jobs. Meanwhile one addon submits a small job now and then, and one submits
//! a job that takes the whole machine. The bound is the formula of [`WaitBound`], and a second for the way through the
//! store.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_protocol::{CompleteRequest, JobId, LeaseId, Limits, SubmitRequest};
use jobtree_queue::Now;
use jobtree_queue::hold::WaitBound;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
use jobtree_queue::transitions::TakeUp;
use jobtree_store::{Listening, Stamp, Store, Submission, Written};

use super::node::base;
use crate::core::{Call, Core, Dispatchable, Input, Output, Responder, Rng, perform, rules_of};
use crate::options::Options;

/// How a flood went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flood {
    /// The longest wait of a small addon's single jobs.
    pub single: Duration,
    /// The wait of the largest job.
    pub largest: Duration,
    /// What the formula allows each of them.
    pub bound: Duration,
}

struct Machine {
    core: Core,
    store: Store,
    options: Options,
    news: Arc<Mutex<Vec<Written>>>,
    _listening: Listening,
    rng: Rng,
    time: Duration,
    /// Runs, and when they end.
    ends: BTreeMap<(Duration, JobId), LeaseId>,
    run: Duration,
    /// When jobs were submitted that are watched, and when they started.
    watched: BTreeMap<JobId, (Duration, Option<Duration>)>,
}

impl Machine {
    fn new(seed: u64, holds: bool, run: Duration) -> Self {
        let mut policy = Policy::default();
        policy.quiet.enter_after = Duration::ZERO;
        policy.ramp.units_per_sample = 0;
        policy.order.age_step = Duration::ZERO;
        if !holds {
            policy.order.hold = Duration::ZERO;
        }
        let options = Options {
            policy: policy.clone(),
            ..Options::default()
        };
        let store = Store::in_memory();
        let news: Arc<Mutex<Vec<Written>>> = Arc::default();
        let told = Arc::clone(&news);
        let listening = store.listen(Arc::new(move |written| {
            let mut news = told.lock().unwrap_or_else(PoisonError::into_inner);
            news.extend(written.iter().cloned());
        }));
        let mut rng = Rng::new(seed);
        let start = Now {
            wall: base(),
            mono: Duration::from_secs(1000),
        };
        let core = Core::new(&options, Arc::new(policy), rng.draw(), start);
        Self {
            core,
            store,
            options,
            news,
            _listening: listening,
            rng,
            time: Duration::ZERO,
            ends: BTreeMap::new(),
            run,
            watched: BTreeMap::new(),
        }
    }

    fn now(&self) -> Now {
        Now {
            wall: base() + self.time,
            mono: Duration::from_secs(1000) + self.time,
        }
    }

    fn stamp(&mut self) -> Stamp {
        Stamp {
            now: self.now(),
            roll: self.rng.draw(),
            rules: rules_of(&self.options.policy, &self.options).into(),
        }
    }

    fn submit(&mut self, addon: &str, cost: u32) -> JobId {
        let request = SubmitRequest::new(addon, "t", cost);
        let intent = request.validate(&Limits::default()).expect("a sound one");
        let mut random = [0; 10];
        random[..8].copy_from_slice(&self.rng.draw().to_le_bytes());
        let id = JobId::from_parts(self.now().wall, random);
        let submission = Submission {
            id,
            id_given: false,
            intent,
        };
        let stamp = self.stamp();
        let answer = self.store.submit(stamp, submission).wait();
        answer.expect("memory answers").job_id
    }

    fn watch(&mut self, addon: &str, cost: u32) -> JobId {
        let id = self.submit(addon, cost);
        self.watched.insert(id, (self.time, None));
        id
    }

    /// Everything that follows from what happened, until nothing does.
    fn settle(&mut self, outputs: Vec<Output>) {
        let mut outputs: VecDeque<Output> = outputs.into();
        loop {
            let mut inputs = Vec::new();
            let news =
                std::mem::take(&mut *self.news.lock().unwrap_or_else(PoisonError::into_inner));
            if !news.is_empty() {
                self.take_up(&news);
                inputs.push(Input::Committed(news));
            }
            while let Some(output) = outputs.pop_front() {
                let Output::Op { id, stamp, op } = output else {
                    continue;
                };
                let mut operation = perform(&self.store, stamp, op);
                let mut context = Context::from_waker(Waker::noop());
                if let Poll::Ready(answer) = operation.as_mut().poll(&mut context) {
                    let answer = Box::new(answer);
                    let news = std::mem::take(
                        &mut *self.news.lock().unwrap_or_else(PoisonError::into_inner),
                    );
                    self.take_up(&news);
                    inputs.push(Input::Committed(news));
                    inputs.push(Input::Answer { op: id, answer });
                }
            }
            if inputs.is_empty() {
                return;
            }
            let now = self.now();
            outputs.extend(self.core.step(inputs, now));
        }
    }

    /// Workers take up what is dispatched at once.
    fn take_up(&mut self, news: &[Written]) {
        for job in news.iter().flat_map(|it| &it.changes.jobs) {
            if !job.is_reserved() {
                continue;
            }
            let stamp = self.stamp();
            let command = TakeUp {
                lease_id: self.rng.lease_id(),
                instance_id: None,
                pids: Vec::new(),
                process_origin: None,
            };
            if let Ok(lease) = self.store.take_up(stamp, job.id, command).wait() {
                self.ends.insert((self.time + self.run, job.id), lease.id);
                if let Some((_, started @ None)) = self.watched.get_mut(&job.id) {
                    *started = Some(self.time);
                }
            }
        }
    }

    fn second(&mut self) {
        self.time += Duration::from_secs(1);
        while let Some((&(at, job), &lease)) = self.ends.first_key_value()
            && at <= self.time
        {
            self.ends.remove(&(at, job));
            let stamp = self.stamp();
            let done = CompleteRequest::done(lease, None);
            let answer = self.store.complete(stamp, job, done).wait();
            answer.expect("it holds its lease");
        }
        let now = self.now();
        // A caller polls for everything, or nothing would be reserved.
        let caller = Responder::new(self.time.as_secs(), |_| Ok(()));
        let poll = Call::Dispatchable(Dispatchable(None), Duration::ZERO, caller);
        let inputs = [Input::Call(poll), Input::Sample(Sample::idle())];
        let outputs = self.core.step(inputs, now);
        self.settle(outputs);
    }

    fn waited(&self, job: JobId) -> Duration {
        let (since, started) = self.watched[&job];
        started.unwrap_or(self.time) - since
    }
}

/// Runs a flood; without `holds` no capacity is kept for a job that does not fit.
///
/// # Errors
/// If somebody waits longer than the formula says.
pub fn flood(seed: u64, holds: bool) -> Result<Flood, String> {
    let mut rng = Rng::new(seed);
    let cost = [2, 4, 5][rng.below(3) as usize];
    // Shorter than a lease holds, so that nobody has to renew.
    let run = Duration::from_secs(5 + rng.below(15));
    let floods = 2 + rng.below(2);
    let mut machine = Machine::new(seed, holds, run);
    let now = machine.now();
    let outputs = machine.core.begin(now);
    machine.settle(outputs);
    // In lots that begin at different seconds, so that capacity is freed little by little.
    let mut largest = None;
    let mut singles = Vec::new();
    for second in 0..420_u64 {
        // More than fits is there all the time.
        if second < 300 && machine.core.planner().waiting() < 150 {
            for addon in 0..floods {
                for _ in 0..(100 / cost / 2) {
                    machine.submit(&format!("f{addon}"), cost);
                }
            }
        }
        if second == 60 {
            largest = Some(machine.watch("big", 100));
        }
        if second % 50 == 30 && second < 300 {
            singles.push(machine.watch("small", cost));
        }
        machine.second();
    }
    let bound = WaitBound {
        age_step: Duration::ZERO,
        longest_run: run,
        capacity: 100,
        largest_ahead: cost,
        own_ahead: 0,
        own_quantum: 100,
        // The floods, and the other one that is watched.
        other_quanta: vec![100; floods as usize + 1],
    };
    let bound = bound.wait() + Duration::from_secs(1);
    let largest = machine.waited(largest.expect("it was submitted"));
    let single = singles.iter().map(|job| machine.waited(*job)).max();
    let single = single.unwrap_or_default();
    if largest > bound || single > bound {
        return Err(format!(
            "the largest waited {largest:?} and the small addon {single:?}, and {bound:?} is the bound"
        ));
    }
    Ok(Flood {
        single,
        largest,
        bound,
    })
}
