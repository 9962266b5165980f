//! The workers in the world of a simulation, and what they do.

use std::time::Duration;

use jobtree_protocol::{
    AckRequest, ApiError, ClaimRequest, CompleteRequest, ErrorCode, Heartbeat, InstanceId, JobId,
    JobState, LeaseId, Priority, ReleaseRequest, Usage,
};
use jobtree_queue::transitions::{LoadAdvice, TakeUp};
use jobtree_store::StoreError;

use super::check::Broken;
use super::machine::registered;
use super::sim_event::{Calling, From, Out, Reply, SimEvent};
use super::worker::{Doing, Holding, Task, Way};
use super::world::{World, core_bug};
use super::{Bug, Mistake};
use crate::core::{Call, CallId, CapacityRequest, Dispatchable, WorkerClaim};
use crate::error::told;

/// Workers repeat a call that was not answered for so long.
const REPEAT: Duration = Duration::from_secs(2);
/// Seconds that a claim waits at most where waits are measured: longer than any bound.
const LONG_WAIT: u64 = 120;
/// Calls in 1000 that a worker makes at any node, and not at that of its own machine.
const ANYWHERE: u64 = 250;
/// Calls in 1000 that a worker makes at another node at the same time.
const TWICE: u64 = 100;

impl World {
    fn set(&mut self, worker: usize, doing: Doing) -> u64 {
        self.workers[worker].doing = doing;
        self.workers[worker].turn += 1;
        self.workers[worker].turn
    }

    /// Does something else, and acts again after a while.
    fn turn_to(&mut self, worker: usize, doing: Doing, delay: Duration) {
        self.set(worker, doing);
        self.act_at(worker, self.time + delay);
    }

    /// It acts then, and not at the time it meant to before.
    fn act_at(&mut self, worker: usize, at: Duration) {
        self.workers[worker].alarm += 1;
        let alarm = self.workers[worker].alarm;
        self.at(at, SimEvent::Act(worker, alarm));
    }

    pub(super) fn act(&mut self, worker: usize) {
        let faults = self.scenario.faults;
        if !matches!(self.workers[worker].doing, Doing::Dead | Doing::Stalled(_)) {
            if self.fault(faults.worker_crashes) {
                return self.crash(worker);
            }
            if self.fault(faults.worker_lies) {
                self.lie(worker);
            }
        }
        match self.workers[worker].doing.clone() {
            Doing::Idle if self.retired => self.act_at(worker, self.time + REPEAT),
            Doing::Idle => self.ask(worker, None),
            Doing::Asking { lease, again } if again <= self.time => self.ask(worker, lease),
            Doing::Asking { again, .. } => self.act_at(worker, again),
            Doing::Holding(holding) => {
                if self.fault(faults.worker_stalls) {
                    let stall = self.millis(5_000, 30_000);
                    return self.turn_to(worker, Doing::Stalled(holding), stall);
                }
                self.hold(worker, holding);
            }
            Doing::Stalled(mut holding) => {
                if self.rng.chance(300) {
                    // It has not noticed, and answers before it looks at its clock.
                    self.tell_end(worker, &holding, From::Nobody);
                    holding.ends = Some(self.time);
                }
                self.turn_to(worker, Doing::Holding(holding), Duration::ZERO);
            }
            Doing::Dead => {
                if !core_bug(&self.scenario, Bug::TrustWorkerNames) {
                    let mut bytes = [0; 16];
                    bytes[..8].copy_from_slice(&self.rng.draw().to_le_bytes());
                    self.workers[worker].instance = InstanceId::from_random(bytes);
                }
                self.workers[worker].spare = None;
                self.workers[worker].request = None;
                self.turn_to(worker, Doing::Idle, Duration::ZERO);
            }
        }
    }

    fn lease_ttl(&self) -> Duration {
        self.scenario.policy.dispatch.lease_ttl
    }

    fn crash(&mut self, worker: usize) {
        let down = self.millis(500, 8_000);
        self.turn_to(worker, Doing::Dead, down);
    }

    fn calls_anywhere(&self) -> bool {
        self.scenario.anywhere && self.nodes.len() > 1
    }

    /// Returns the node that a worker calls: with several schedulers now and then another one than its own.
    fn called_node(&mut self, worker: usize) -> usize {
        let own = self.workers[worker].node;
        if !self.calls_anywhere() || !self.rng.chance(ANYWHERE) {
            return own;
        }
        let node = self.rng.below(self.nodes.len() as u64) as usize;
        self.report.called_elsewhere += u64::from(node != own);
        node
    }

    /// Returns the nodes that a worker makes the same call at: one, or now and then two at once.
    fn called_nodes(&mut self, worker: usize) -> Vec<usize> {
        let mut nodes = vec![self.called_node(worker)];
        if self.calls_anywhere() && self.rng.chance(TWICE) {
            let step = 1 + self.rng.below(self.nodes.len() as u64 - 1) as usize;
            nodes.push((nodes[0] + step) % self.nodes.len());
            self.report.called_twice += 1;
        }
        nodes
    }

    /// Asks for work; again, if it was not answered.
    fn ask(&mut self, worker: usize, lease: Option<LeaseId>) {
        let way = self.workers[worker].way;
        let named = self.scenario.named_claims;
        let wait = match named {
            true => LONG_WAIT,
            false => [0, 2, 8][self.rng.below(3) as usize],
        };
        let wait_for = Duration::from_secs(wait);
        let (addon, instance) = (
            self.workers[worker].addon.clone(),
            self.workers[worker].instance,
        );
        let (pids, process_origin) = registered(worker, self.workers[worker].turn);
        let mut drawn = lease;
        let nodes = self.called_nodes(worker);
        let node = nodes[0];
        let mut calls = Vec::new();
        match way {
            Way::Claim => {
                let draws = self.rng.chance(500);
                let new = self.rng.lease_id();
                drawn = lease.or(draws.then_some(new));
                let request = ClaimRequest {
                    lease_id: drawn,
                    addon_id: addon,
                    job_types: match named {
                        true => vec!["t".parse().expect("a name")],
                        false => Vec::new(),
                    },
                    max_jobs: 1 + self.rng.below(3) as u32,
                    max_leases: 1,
                    wait_sec: wait as u32,
                    instance_id: instance,
                    node_id: None,
                    pids,
                    process_origin,
                    begins_now: self.rng.chance(700).then_some(1),
                    returns_unbegun: self.rng.chance(700),
                };
                // Without an id of its own the worker could not tell two grants from one.
                let most = if drawn.is_some() { 2 } else { 1 };
                for node in nodes.into_iter().take(most) {
                    let (id, caller) = self.nodes[node].caller(Reply::Claimed);
                    let claim = WorkerClaim {
                        request: request.clone(),
                        in_process: false,
                    };
                    calls.push((node, id, Call::Claim(claim, caller)));
                }
            }
            // Some ask for a lease first, and take up a dispatch under that.
            Way::TakeUp if self.workers[worker].spare.is_none() && self.rng.chance(300) => {
                let asked = nodes.into_iter().map(|node| self.capacity(worker, node));
                calls.extend(asked);
            }
            Way::TakeUp => {
                let (id, caller) = self.nodes[node].caller(Reply::Dispatchable);
                let poll = Dispatchable(Some(addon));
                calls.push((node, id, Call::Dispatchable(poll, wait_for, caller)));
            }
            Way::Capacity => {
                let asked = nodes.into_iter().map(|node| self.capacity(worker, node));
                calls.extend(asked);
            }
        }
        self.leave(worker);
        let again = self.time + wait_for + REPEAT;
        let turn = self.set(
            worker,
            Doing::Asking {
                lease: drawn,
                again,
            },
        );
        self.act_at(worker, again);
        for (node, id, call) in calls {
            if self.fault(self.scenario.faults.message_lost) {
                continue;
            }
            let life = self.nodes[node].life;
            let delay = self.millis(0, 30);
            let event = SimEvent::Call(node, life, Box::new(call), id, worker, turn);
            self.later(delay, event);
        }
    }

    /// Asks for capacity; by the same key until it is answered.
    fn capacity(&mut self, worker: usize, node: usize) -> (usize, CallId, Call) {
        let (cost_units, key) = (1 + self.rng.below(30) as u32, self.rng.draw());
        let this = &mut self.workers[worker];
        let (pids, process_origin) = registered(worker, this.turn);
        let request = this.request.get_or_insert_with(|| CapacityRequest {
            addon_id: this.addon.clone(),
            job_type: "t".parse().expect("a name"),
            cost_units,
            priority: Priority::Normal,
            constraints: Default::default(),
            expected_duration_sec: None,
            instance_id: Some(this.instance),
            request_key: Some(format!("{key:x}")),
            pids,
            process_origin,
        });
        let request = request.clone();
        let (id, caller) = self.nodes[node].caller(Reply::Capacity);
        (node, id, Call::Capacity(Box::new(request), caller))
    }

    /// It does not wait for an earlier reply any more, which its scheduler may notice.
    fn leave(&mut self, worker: usize) {
        let mut calls = Vec::new();
        for (node, this) in self.nodes.iter().enumerate() {
            let mine = this
                .callers
                .iter()
                .filter(|(_, (whose, _))| *whose == worker);
            calls.extend(mine.map(|(call, _)| (node, *call)));
        }
        for (node, call) in calls {
            if self.rng.chance(500) {
                let life = self.nodes[node].life;
                let delay = self.millis(0, 200);
                self.later(delay, SimEvent::Left(node, life, call));
            }
        }
    }

    /// A scheduler's reply has come.
    pub(super) fn replied(
        &mut self,
        worker: usize,
        turn: u64,
        reply: Result<Reply, ApiError>,
    ) -> Result<(), Broken> {
        if self.workers[worker].turn != turn {
            return Ok(());
        }
        let pause = self.millis(50, 1500);
        if let Ok(Reply::Capacity(_)) = reply {
            self.workers[worker].request = None;
        }
        match reply {
            Ok(Reply::Claimed(leases)) => match leases.into_iter().next() {
                Some(lease) => {
                    let tasks = lease.jobs.iter().map(Task::of).collect();
                    self.take_lease(worker, lease.lease_id, tasks);
                }
                None => self.turn_to(worker, Doing::Idle, pause),
            },
            Ok(Reply::Capacity(answer)) if self.workers[worker].way == Way::TakeUp => {
                self.workers[worker].spare = answer.lease_id;
                self.turn_to(worker, Doing::Idle, pause);
            }
            Ok(Reply::Capacity(answer)) => match answer.lease_id {
                Some(lease) => self.take_lease(worker, lease, Default::default()),
                None => self.turn_to(worker, Doing::Idle, pause * 4),
            },
            Ok(Reply::Dispatchable(jobs)) => {
                let mine = self.nodes[self.workers[worker].node].options.node.clone();
                let anywhere = self.calls_anywhere() && self.rng.chance(ANYWHERE);
                let is_mine = |job: &&jobtree_protocol::JobView| {
                    anywhere || job.node_id.as_ref() == Some(&mine)
                };
                let found = jobs.iter().find(is_mine);
                match found {
                    Some(job) => self.take_up(worker, job.job_id),
                    None => self.turn_to(worker, Doing::Idle, pause),
                }
            }
            _ => self.turn_to(worker, Doing::Idle, pause),
        }
        Ok(())
    }

    /// Accepts a dispatch: at any node, and now and then at two at once.
    fn take_up(&mut self, worker: usize, job: JobId) {
        let again = self.time + REPEAT;
        let turn = self.set(worker, Doing::Asking { lease: None, again });
        self.act_at(worker, again);
        let instance = self.workers[worker].instance;
        let spare = self.workers[worker].spare.take();
        let (pids, process_origin) = registered(worker, turn);
        for node in self.called_nodes(worker) {
            if self.nodes[node].core.is_none() {
                continue;
            }
            let stamp = self.stamp(node);
            let new = self.rng.lease_id();
            let (pids, process_origin) = (pids.clone(), process_origin.clone());
            let store = &self.nodes[node].store;
            let answer = if spare.is_some() {
                let request = AckRequest {
                    lease_id: spare,
                    instance_id: Some(instance),
                    pids,
                    process_origin,
                };
                store.ack(stamp, job, request, new)
            } else {
                let command = TakeUp {
                    lease_id: new,
                    instance_id: Some(instance),
                    pids,
                    process_origin,
                };
                store.take_up(stamp, job, command)
            };
            let joined = spare.is_some();
            let calling: Calling = Box::pin(async move {
                let lease = answer.await?;
                Ok(Out::TakenUp(Box::new(lease), joined))
            });
            self.call_store(node, From::Worker(worker, turn, self.time), calling);
        }
    }

    /// It has a lease, and renews it before it begins.
    fn take_lease(
        &mut self,
        worker: usize,
        lease: LeaseId,
        tasks: std::collections::VecDeque<Task>,
    ) {
        let time = self.time;
        let holding = Holding {
            lease,
            tasks,
            confirmed: false,
            fence: time + self.lease_ttl(),
            next_beat: time,
            ends: None,
            telling: None,
            given_back: Vec::new(),
        };
        let careless = self.workers[worker].careless;
        let holding = if careless {
            // It begins at once, and does not renew.
            Holding {
                confirmed: true,
                next_beat: time + Duration::from_secs(86_400),
                ..holding
            }
        } else {
            holding
        };
        self.turn_to(worker, Doing::Holding(holding), Duration::ZERO);
    }

    /// A worker with a lease goes on.
    fn hold(&mut self, worker: usize, mut holding: Holding) {
        let time = self.time;
        let careless = self.workers[worker].careless;
        if time >= holding.fence && !careless {
            // It could not renew: somebody else may have it by now.
            return self.turn_to(worker, Doing::Idle, Duration::ZERO);
        }
        if time >= holding.next_beat {
            holding.next_beat = time + self.lease_ttl() / 3;
            self.beat(worker, &holding);
        }
        if holding.confirmed {
            match holding.ends {
                None => {
                    let task = holding.tasks.front().copied();
                    if task.is_some_and(|task| task.script.poison) {
                        return self.crash(worker);
                    }
                    let takes = task.map_or(2000, |task| task.script.takes);
                    holding.ends = Some(time + Duration::from_millis(takes));
                }
                Some(ends) if ends <= time => {
                    let due = holding.telling.is_none_or(|at| at + REPEAT <= time);
                    if due {
                        holding.telling = Some(time);
                        let from = From::Worker(worker, self.workers[worker].turn, time);
                        self.tell_end(worker, &holding, from);
                    }
                }
                Some(_) => {}
            }
        }
        let ends = holding.ends.filter(|ends| *ends > time);
        let tell = holding.telling.map(|at| at + REPEAT);
        let next = [Some(holding.next_beat), Some(holding.fence), ends, tell]
            .into_iter()
            .flatten()
            .filter(|at| *at > time)
            .min()
            .unwrap_or(time + REPEAT);
        self.workers[worker].doing = Doing::Holding(holding);
        self.act_at(worker, next);
    }

    fn beat(&mut self, worker: usize, holding: &Holding) {
        let node = self.called_node(worker);
        if self.nodes[node].core.is_none() || self.fault(self.scenario.faults.message_lost) {
            return;
        }
        let stamp = self.stamp(node);
        let request = Heartbeat {
            given_back: holding.given_back.clone(),
            ..Heartbeat::of(holding.lease)
        };
        let answer = self.nodes[node]
            .store
            .heartbeat(stamp, request, LoadAdvice::default());
        let turn = self.workers[worker].turn;
        let calling: Calling = Box::pin(async { answer.await.map(Out::Beat) });
        self.call_store(node, From::Worker(worker, turn, self.time), calling);
    }

    /// Takes what it is asked to give back out of what it will run, and confirms that with its next heartbeat, at once. What
    /// it confirmed and is not asked for any more was taken back.
    fn give_back(&mut self, holding: &mut Holding, asked: &[JobId]) {
        let gone = |id: &&JobId| !asked.contains(id);
        self.report.given_back += holding.given_back.iter().filter(gone).count() as u64;
        let in_hand = holding.tasks.front().map(|task| task.id);
        let given: Vec<JobId> = asked
            .iter()
            .copied()
            .filter(|id| Some(*id) != in_hand)
            .collect();
        if !self.scenario.has(Mistake::BeginsGivenBack) {
            holding.tasks.retain(|task| !given.contains(&task.id));
        }
        if !given.is_empty() {
            holding.next_beat = self.time;
        }
        holding.given_back = given;
    }

    /// What it ran is over, or it gives its capacity back.
    fn tell_end(&mut self, worker: usize, holding: &Holding, from: From) {
        let mut node = self.called_node(worker);
        let silent = self.nodes[node].core.is_none();
        if silent || self.fault(self.scenario.faults.message_lost) {
            return;
        }
        let lease = holding.lease;
        let Some(task) = holding.tasks.front() else {
            let stamp = self.stamp(node);
            let request = ReleaseRequest::default();
            let answer = self.nodes[node].store.release(stamp, lease, request);
            let calling: Calling = Box::pin(async { answer.await.map(|()| Out::Done) });
            return self.call_store(node, from, calling);
        };
        let job = task.id;
        let request = if task.attempts < task.script.fails {
            CompleteRequest::failed(lease, "as its script says")
        } else {
            CompleteRequest::done(lease, None)
        };
        let request = CompleteRequest {
            usage: self.usage(job, task.script.takes),
            ..request
        };
        let times = 1 + u64::from(self.fault(self.scenario.faults.message_doubled));
        for time in 0..times {
            let stamp = self.stamp(node);
            let answer = self.nodes[node].store.complete(stamp, job, request.clone());
            let calling: Calling = Box::pin(async { answer.await.map(Out::Completed) });
            let from = if time == 0 { from } else { From::Nobody };
            self.call_store(node, from, calling);
            // The same call at another node, or at the same one.
            let other = self.called_node(worker);
            if self.nodes[other].core.is_some() {
                node = other;
            }
        }
    }

    /// Returns what a run of this many milliseconds used, where costs are learnt.
    fn usage(&self, job: JobId, takes: u64) -> Option<Usage> {
        let policy = &self.scenario.policy;
        let known = self.shadow.jobs.get(&job).filter(|_| policy.cost.learn)?;
        let factor = match known.intent.addon_id.as_str() {
            "a0" => 0.1,
            "a1" => 5.0,
            _ => 1.0,
        };
        let share = f64::from(known.cost()) / f64::from(policy.capacity.units);
        Some(Usage {
            cpu_ms: Some((takes as f64 * share * factor) as u64),
            processors: Some(1),
            ..Usage::default()
        })
    }

    /// Says what is not so: it must be refused.
    fn lie(&mut self, worker: usize) {
        let known: Vec<JobId> = self.shadow.submitted.iter().copied().collect();
        let node = self.workers[worker].node;
        if known.is_empty() || self.nodes[node].core.is_none() {
            return;
        }
        let job = known[self.rng.below(known.len() as u64) as usize];
        let invented = self.rng.lease_id();
        let held = match &self.workers[worker].doing {
            Doing::Holding(holding) if holding.tasks.iter().all(|task| task.id != job) => {
                Some(holding.lease)
            }
            _ => None,
        };
        let lease = held.unwrap_or(invented);
        let ran_under_it = self
            .shadow
            .granted
            .get(&job)
            .is_some_and(|leases| leases.contains(&lease));
        if ran_under_it {
            return;
        }
        let stamp = self.stamp(node);
        let request = CompleteRequest::done(lease, None);
        let answer = self.nodes[node].store.complete(stamp, job, request);
        let calling: Calling = Box::pin(async { answer.await.map(Out::Completed) });
        self.call_store(node, From::Liar("a job ended without its lease"), calling);
    }

    /// The store's answer has come.
    pub(super) fn came_back(
        &mut self,
        from: From,
        answer: Result<Out, StoreError>,
    ) -> Result<(), Broken> {
        match (from, answer) {
            (From::Submitter(place), Ok(Out::Submitted(answer))) => {
                let known = self.submissions[place].1.replace(answer.job_id);
                if known.is_some_and(|known| known != answer.job_id) {
                    return Err(format!(
                        "one key, two jobs: {known:?} and {}",
                        answer.job_id
                    ));
                }
                self.shadow.submitted.insert(answer.job_id);
                Ok(())
            }
            (From::Worker(worker, turn, sent), answer) => {
                self.worker_answered(worker, turn, sent, answer)
            }
            _ => Ok(()),
        }
    }

    fn worker_answered(
        &mut self,
        worker: usize,
        turn: u64,
        sent: Duration,
        answer: Result<Out, StoreError>,
    ) -> Result<(), Broken> {
        if let Ok(Out::Completed(completed)) = &answer
            && completed.state == JobState::Done
        {
            self.shadow.done.insert(completed.job_id);
        }
        let doing = self.workers[worker].doing.clone();
        match (doing, answer) {
            (Doing::Asking { .. }, Ok(Out::TakenUp(lease, joined)))
                if self.workers[worker].turn == turn =>
            {
                self.report.joined += u64::from(joined);
                let jobs = self.shadow.jobs.get(&lease.jobs[0].id);
                let tasks = jobs.map(|job| Task::of(&job.view(None))).into_iter();
                self.take_lease(worker, lease.id, tasks.collect());
            }
            (Doing::Asking { .. }, Err(_)) if self.workers[worker].turn == turn => {
                self.turn_to(worker, Doing::Idle, REPEAT);
            }
            (Doing::Holding(mut holding), answer) if self.workers[worker].turn == turn => {
                match answer {
                    Ok(Out::Beat(beat)) => {
                        holding.fence = holding.fence.max(sent + self.lease_ttl());
                        holding.confirmed = true;
                        self.give_back(&mut holding, &beat.give_back);
                        let told_to_stop = |task: &Task| beat.cancel.contains(&task.id);
                        if holding.tasks.front().is_some_and(told_to_stop) {
                            holding.ends = Some(self.time);
                        }
                    }
                    Ok(Out::Completed(completed)) => {
                        let first = holding.tasks.front();
                        if first.is_some_and(|task| task.id == completed.job_id) {
                            holding.tasks.pop_front();
                            (holding.ends, holding.telling) = (None, None);
                        }
                        if holding.tasks.is_empty() {
                            let pause = self.millis(0, 300);
                            self.turn_to(worker, Doing::Idle, pause);
                            return Ok(());
                        }
                    }
                    Ok(_) => {
                        self.turn_to(worker, Doing::Idle, Duration::ZERO);
                        return Ok(());
                    }
                    Err(error) if told(&error).code != ErrorCode::Unavailable => {
                        // It is not its lease any more: it stops.
                        let pause = self.millis(0, 300);
                        self.turn_to(worker, Doing::Idle, pause);
                        return Ok(());
                    }
                    Err(_) => {}
                }
                // It is the same stay: what is under way is for this turn.
                self.workers[worker].doing = Doing::Holding(holding);
                self.act_at(worker, self.time);
            }
            _ => {}
        }
        Ok(())
    }
}
