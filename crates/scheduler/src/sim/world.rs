//! The world of a simulation: what happens when, and to whom.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use jobtree_protocol::{InstanceId, JobId, JobState, LeaseId, SubmitRequest};
use jobtree_queue::signals::Sample;
use jobtree_store::{Pause, Store};

use super::calendar::Calendar;
use super::check::{Broken, Shadow};
use super::claim_answers::ClaimAnswers;
use super::disk::{Disk, Peek};
use super::machine::SimMachine;
use super::node::{Node, base};
use super::operators::{OPERATOR, Operators};
use super::served_waits::{ServedWaits, is_unserved};
use super::sim_event::{Calling, From, Reply, SimEvent};
use super::system::Processes;
use super::tables::Forgets;
use super::worker::{Doing, Way, Worker};
use super::{Bug, Failure, Mistake, Report, Scenario};
use crate::core::{ACCEPTED, Call, Core, Input, Op, Output, Rng, perform, rng};

/// The addon that is paused.
pub(super) const PAUSED: &str = "a4";
/// So many steps in a tenth of a second are no work any more.
const SPINNING: u32 = 5000;
/// How long after the last job what is in use must have been given back: leases of workers that are gone have to run out.
const GIVEN_BACK: Duration = Duration::from_secs(180);
/// Steps that are remembered for a failure.
const TRACE: usize = 60;

/// What is remembered of a run's steps: telling takes longer than doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Telling {
    Nothing,
    /// Those before a failure.
    Last,
    All,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) scenario: Scenario,
    pub(super) rng: Rng,
    pub(super) time: Duration,
    pub(super) queue: BTreeMap<(Duration, u64), SimEvent>,
    pub(super) next: u64,
    pub(super) disk: Arc<Disk>,
    pub(super) peek: Store,
    pub(super) nodes: Vec<Node>,
    pub(super) workers: Vec<Worker>,
    pub(super) calls: BTreeMap<u64, (usize, u64, From, Calling)>,
    pub(super) next_call: u64,
    pub(super) shadow: Shadow,
    pub(super) submissions: Vec<(SubmitRequest, Option<JobId>)>,
    pub(super) calendar: Calendar,
    pub(super) claim_answers: ClaimAnswers,
    pub(super) served_waits: ServedWaits,
    pub(super) operators: Operators,
    /// Schedulers whose wake-ups may have changed.
    pub(super) touched: Vec<bool>,
    pub(super) calm: bool,
    pub(super) telling: Telling,
    pub(super) trace: VecDeque<String>,
    pub(super) report: Report,
    /// When each scheduler last read the store, if it did: they must not all do it at once.
    pub(super) reads: Vec<Option<Duration>>,
    pub(super) together: u32,
    pub(super) commits: u64,
    /// Something was written or acknowledged: it may be over.
    pub(super) progressed: bool,
    /// How often each live lease has been renewed, and when the last grant or renewal was committed.
    pub(super) terms: BTreeMap<LeaseId, (u64, Duration)>,
    /// All jobs have ended, and workers ask for nothing more: what is in use is to be given back.
    pub(super) retired: bool,
    pub(super) busy_since: Duration,
    pub(super) busy_steps: u32,
    /// Of a simulated system: processes with real workers.
    pub(super) processes: Option<Box<Processes>>,
}

impl World {
    pub(super) fn new(seed: u64, scenario: Scenario, telling: Telling) -> Self {
        let mut rng = Rng::new(seed);
        let disk = Disk::new(Forgets {
            keys: scenario.has(Mistake::ForgottenKeys),
            fresh_keys: scenario.has(Mistake::KeysForgottenBetweenNodes),
            unique: scenario.has(Mistake::ForgottenUnique),
            holders: scenario.has(Mistake::ForgottenHolders),
            dependents: scenario.has(Mistake::ForgottenDependents),
            in_hand: scenario.has(Mistake::ForgottenHand),
        });
        let schedulers = scenario.schedulers;
        let nodes: Vec<Node> = (0..scenario.schedulers)
            .map(|index| Node::new(index, &scenario, &disk))
            .collect();
        let mut workers = Vec::new();
        for node in 0..scenario.schedulers {
            for place in 0..scenario.workers {
                let addon = match place {
                    _ if scenario.named_claims => ["a0", "a2"][(node + place) % 2],
                    1 => "a1",
                    _ if place == scenario.workers - 1 && node == 0 => "a3",
                    _ => ["a0", "a2"][(place / 2) % 2],
                };
                let way = match addon {
                    "a3" => Way::Capacity,
                    _ if scenario.mixed && place % 2 == 1 => Way::TakeUp,
                    "a0" | "a2" if scenario.claims => Way::Claim,
                    _ => Way::TakeUp,
                };
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&rng.draw().to_le_bytes());
                workers.push(Worker {
                    node,
                    addon: addon.parse().expect("a name"),
                    way,
                    instance: InstanceId::from_random(bytes),
                    doing: Doing::Idle,
                    turn: 0,
                    alarm: 0,
                    spare: None,
                    request: None,
                    careless: scenario.has(Mistake::NoHeartbeats),
                });
            }
        }
        let peek = Store::on(Peek(Arc::clone(&disk)));
        let reads = vec![None; scenario.schedulers];
        Self {
            seed,
            scenario,
            rng,
            time: Duration::ZERO,
            queue: BTreeMap::new(),
            next: 0,
            disk,
            peek,
            nodes,
            workers,
            calls: BTreeMap::new(),
            next_call: 0,
            shadow: Shadow::default(),
            submissions: Vec::new(),
            calendar: Calendar::default(),
            claim_answers: ClaimAnswers::default(),
            served_waits: ServedWaits::default(),
            operators: Operators::default(),
            touched: vec![true; schedulers],
            calm: false,
            telling,
            trace: VecDeque::new(),
            report: Report::default(),
            reads,
            together: 0,
            commits: 0,
            progressed: false,
            terms: BTreeMap::new(),
            retired: false,
            busy_since: Duration::ZERO,
            busy_steps: 0,
            processes: None,
        }
    }

    /// How it went, and the steps that were remembered.
    pub(super) fn run(mut self) -> (Result<Report, Box<Failure>>, VecDeque<String>) {
        self.plan();
        let result = self.go();
        self.concluded(result)
    }

    pub(super) fn plan(&mut self) {
        self.pause_one();
        self.plan_operators();
        self.disk.sync();
        for node in 0..self.nodes.len() {
            let delay = self.millis(0, 500);
            self.later(delay, SimEvent::Start(node));
            self.later(delay, SimEvent::Sample(node));
            let trouble = self.until_trouble();
            self.later(trouble, SimEvent::Machine(node));
        }
        for worker in 0..self.workers.len() {
            let delay = self.millis(0, 3000);
            self.later(delay, SimEvent::Act(worker, 0));
        }
        self.plan_submissions();
        let trouble = self.scenario.trouble;
        self.later(trouble, SimEvent::Calm);
    }

    /// How it went, and the steps that were remembered.
    pub(super) fn concluded(
        mut self,
        result: Result<(), Broken>,
    ) -> (Result<Report, Box<Failure>>, VecDeque<String>) {
        let result = match result {
            Ok(()) => {
                self.report.expired = self.shadow.expired;
                self.report.redrives = self.shadow.redrives;
                self.report.retries = self.shadow.retries;
                let ended = |state| {
                    let jobs = self.shadow.jobs.values();
                    let served = jobs.filter(|job| !is_unserved(&job.intent.job_type));
                    served.filter(|job| job.state == state).count() as u64
                };
                self.report.done = ended(JobState::Done);
                self.report.not_done = ended(JobState::Failed) + ended(JobState::Canceled);
                Ok(self.report)
            }
            Err(what) => Err(Box::new(Failure {
                seed: self.seed,
                what,
                trace: Vec::new(),
            })),
        };
        (result, self.trace)
    }

    /// One addon is paused from the beginning, and stays so: nobody else may be held up by it.
    fn pause_one(&mut self) {
        let stamp = self.stamp(0);
        let pause = Pause {
            addon_id: PAUSED.parse().expect("a name"),
            job_type: None,
            since: base(),
            reason: None,
            by: None,
        };
        let paused = self.peek.pause(stamp, pause);
        paused.wait().expect("memory answers");
    }

    fn go(&mut self) -> Result<(), Broken> {
        while let Some(((time, _), event)) = self.queue.pop_first() {
            if self.turn(time, event)? {
                return self.check_kept();
            }
            if time > self.end() {
                break;
            }
        }
        Err(self.unended())
    }

    /// When everything must have ended, and afterwards be given back.
    pub(super) fn end(&self) -> Duration {
        match self.retired {
            true => self.report.time + GIVEN_BACK,
            false => self.scenario.trouble + self.scenario.calm,
        }
    }

    /// Lets an event happen. Returns `true` if everything has ended.
    pub(super) fn turn(&mut self, time: Duration, event: SimEvent) -> Result<bool, Broken> {
        self.busy_steps = if time.saturating_sub(self.busy_since) < Duration::from_millis(100) {
            self.busy_steps + 1
        } else {
            self.busy_since = time;
            0
        };
        if self.busy_steps > SPINNING * (1 + self.nodes.len() as u32 / 3) {
            return Err("it spins: thousands of steps, and no time passes".to_owned());
        }
        self.time = time;
        self.report.steps += 1;
        if let Some(wall) = self.database_time()
            && !self.scenario.has(Mistake::MachineTime)
        {
            self.disk.set_wall(wall);
        }
        if let Some(later) = self.sleeper(&event) {
            // Its machine sleeps: it happens when that wakes.
            let jitter = self.millis(0, 50);
            self.at(later + jitter, event);
            return Ok(false);
        }
        self.note(&event);
        self.happen(event)?;
        self.check_runs()?;
        self.check_moments()?;
        self.check_served_waits()?;
        let progressed = std::mem::take(&mut self.progressed);
        if self.calm && progressed && !self.retired && self.is_closed() && self.finished() {
            self.report.time = self.time;
            self.retired = true;
            self.cancel_unserved();
        }
        Ok(self.retired && self.check_idle().is_ok())
    }

    /// Says what has not ended.
    pub(super) fn unended(&self) -> Broken {
        if self.retired
            && let Err(used) = self.check_idle()
        {
            return used;
        }
        let left = self.shadow.unfinished();
        let told: Vec<String> = left
            .iter()
            .take(3)
            .map(|id| {
                let job = &self.shadow.jobs.get(id);
                format!(
                    "{:?}",
                    job.map(|job| (
                        job.id,
                        job.state,
                        &job.denial,
                        job.intent.addon_id.as_str(),
                        job.cost(),
                        job.lease_id
                    ))
                )
            })
            .collect();
        format!(
            "{} acknowledged jobs never end, first: {}",
            left.len(),
            told.join("; ")
        )
    }

    /// What the time is, where all go by the database's.
    pub(super) fn database_time(&self) -> Option<jiff::Timestamp> {
        (self.scenario.schedulers > 1).then(|| base() + self.time)
    }

    fn finished(&self) -> bool {
        self.submissions.iter().all(|(_, acked)| acked.is_some())
            && self.shadow.unfinished().is_empty()
    }

    pub(super) fn at(&mut self, time: Duration, event: SimEvent) {
        self.next += 1;
        let time = match &self.processes {
            None => time,
            // The runtime's clock has milliseconds.
            Some(_) => Duration::from_millis(time.as_nanos().div_ceil(1_000_000) as u64),
        };
        self.queue.insert((time, self.next), event);
    }

    pub(super) fn later(&mut self, delay: Duration, event: SimEvent) {
        self.at(self.time + delay, event);
    }

    pub(super) fn millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(least * 1000 + self.rng.below((most - least) * 1000 + 1))
    }

    /// A fault that happens so often in 1000.
    pub(super) fn fault(&mut self, in_1000: u64) -> bool {
        let happens = self.rng.chance(in_1000);
        happens && !self.calm
    }

    fn until_trouble(&mut self) -> Duration {
        let mean = 1_000_000 / self.scenario.faults.machine.max(1);
        self.millis(mean / 4, mean)
    }

    fn note(&mut self, event: &SimEvent) {
        let (kind, whose) = event.kind();
        let micros = self.time.as_micros() as u64;
        for number in [micros, kind, whose as u64] {
            self.report.fingerprint = rng::mixed(self.report.fingerprint ^ number);
        }
        if self.telling == Telling::Nothing {
            return;
        }
        let mut line = format!("{:>10.3} {event:?}", self.time.as_secs_f64());
        line.truncate(line.floor_char_boundary(400));
        if self.telling == Telling::Last && self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    /// Until when the machine sleeps that something happens on.
    fn sleeper(&self, event: &SimEvent) -> Option<Duration> {
        let node = match event {
            SimEvent::Wake(node, _)
            | SimEvent::Serve(node, _)
            | SimEvent::Answer(node, ..)
            | SimEvent::Call(node, ..)
            | SimEvent::Left(node, ..)
            | SimEvent::Sample(node)
            | SimEvent::Arrive(node, _)
            | SimEvent::Hint(node, _) => *node,
            SimEvent::Reply(worker, ..) | SimEvent::Act(worker, _) => self.workers[*worker].node,
            SimEvent::Back(From::Worker(worker, ..), _) => self.workers[*worker].node,
            _ => return None,
        };
        let until = self.nodes[node].asleep_until;
        (until > self.time).then_some(until)
    }

    fn happen(&mut self, event: SimEvent) -> Result<(), Broken> {
        match event {
            SimEvent::Wake(node, alarm) => {
                if self.nodes[node].alarm == alarm {
                    self.step(node, Input::Timer)?;
                }
            }
            SimEvent::Serve(node, life) => self.serve(node, life)?,
            SimEvent::Answer(node, life, op, answer) => {
                if self.nodes[node].life == life {
                    self.nodes[node].asked.remove(&op);
                    self.claim_answers.answered(node, &answer);
                    self.report.traffic.answered(&answer);
                    self.step(node, Input::Answer { op, answer })?;
                }
            }
            SimEvent::Call(node, life, call, id, worker, turn) => {
                if self.nodes[node].life == life && self.nodes[node].core.is_some() {
                    self.nodes[node].callers.insert(id, (worker, turn));
                    self.claim_answers.called(node, &call);
                    self.served_waits.called(node, id, &call);
                    if let Call::Capacity(request, _) = &*call
                        && let Some(name) = request.name()
                    {
                        self.nodes[node].requested.insert(id, name);
                    }
                    self.step(node, Input::Call(*call))?;
                }
            }
            SimEvent::Left(node, life, call) => {
                if self.nodes[node].life == life {
                    self.nodes[node].callers.remove(&call);
                    self.served_waits.call_ended(node, call);
                    self.step(node, Input::Left(call))?;
                }
            }
            SimEvent::Reply(worker, turn, reply) => self.replied(worker, turn, *reply)?,
            SimEvent::Back(from, answer) => {
                self.progressed = true;
                self.came_back(from, *answer)?;
            }
            SimEvent::Act(worker, alarm) => {
                if self.workers[worker].alarm == alarm {
                    self.act(worker);
                }
            }
            SimEvent::Submit(place) => self.submit(place),
            SimEvent::Cancel => self.cancel_something(),
            SimEvent::Operate => self.operate()?,
            SimEvent::Sample(node) => {
                self.check_heard(node)?;
                self.check_counts(node)?;
                let every = self.millis(900, 1100);
                self.later(every, SimEvent::Sample(node));
                let blind = self.nodes[node].blind_until > self.time;
                if self.nodes[node].core.is_some()
                    && !blind
                    && let Some(sample) = self.measure(node)?
                {
                    self.step(node, Input::Sample(sample))?;
                }
            }
            SimEvent::Machine(node) => self.trouble(node)?,
            SimEvent::Start(node) => self.start(node)?,
            SimEvent::Hint(node, jobs) => {
                if self.nodes[node].core.is_some() {
                    self.report.traffic.hints += 1;
                    self.step(node, Input::JobsChanged(jobs))?;
                }
            }
            SimEvent::Blind(node, life, rescue) => {
                if self.nodes[node].life == life {
                    rescue.ask(&self.nodes[node].port);
                    self.serve_soon(node);
                }
            }
            SimEvent::Calm => self.calm_down()?,
            SimEvent::StartProcess(place) => self.start_process(place)?,
            SimEvent::EndProcess(place) => self.end_process(place),
            SimEvent::ProcessTrouble(place) => self.process_trouble(place),
            SimEvent::Arrive(node, arrival) => self.arrive(node, *arrival)?,
            SimEvent::Deliver(_, answer) => self.deliver(*answer),
            SimEvent::CallOver(call) => self.call_over(call),
            SimEvent::Poke(place, lease) => self.poke(place, lease),
            SimEvent::AskBack => self.ask_back_something(),
        }
        Ok(())
    }

    /// Returns what the sampler of a node measures; none if it was started at this very moment.
    fn measure(&mut self, index: usize) -> Result<Option<Sample>, Broken> {
        let node = &mut self.nodes[index];
        let capacity = node.policy.capacity.units;
        let leases = node.core.as_ref().map(Core::processes).unwrap_or_default();
        node.machine.pass(node.idle);
        node.sampler.register(&leases, capacity);
        let Ok(measured) = node.sampler.sample(self.time) else {
            return Ok(None);
        };
        let foreign = 1.0 - measured.cpu_idle - measured.own_cpu;
        let most = SimMachine::most_own(&leases, capacity);
        if measured.own_cpu > most + 1e-9 {
            return Err(format!(
                "{} of n{index} counts as our own load, and {most} may: a process is foreign",
                measured.own_cpu
            ));
        }
        Ok(Some(Sample {
            cpu_idle: measured.cpu_idle,
            own_cpu: measured.own_cpu,
            // Where others use nearly all of the CPU, they also wait for it: else there would be no PANIC here.
            psi_cpu: Some(10.0 + 87.5 * (foreign - 0.1).max(0.0)),
            ..Sample::idle()
        }))
    }

    fn start(&mut self, node: usize) -> Result<(), Broken> {
        if self.nodes[node].core.is_some() {
            return Ok(());
        }
        let seed = self.rng.draw();
        let time = self.time;
        self.nodes[node].start(&self.scenario, seed, time);
        let now = self.nodes[node].now(time);
        let outputs = self.nodes[node]
            .core
            .as_mut()
            .map(|core| core.begin(now))
            .unwrap_or_default();
        self.handle(node, outputs)
    }

    /// Everything works from now on.
    fn calm_down(&mut self) -> Result<(), Broken> {
        (self.calm, self.progressed) = (true, true);
        let woken = self.nodes.iter().map(|node| node.asleep_until).max();
        let woken = woken.unwrap_or_default().max(self.time);
        self.served_waits.disturbed(woken);
        for node in 0..self.nodes.len() {
            self.nodes[node].idle = 1.0;
            self.nodes[node].blind_until = Duration::ZERO;
            self.nodes[node].stalled_until = self.time;
            self.nodes[node].wall_off = SignedDuration::ZERO;
            self.start(node)?;
        }
        Ok(())
    }

    /// Something happens to a machine.
    fn trouble(&mut self, node: usize) -> Result<(), Broken> {
        if self.calm || self.scenario.faults.machine == 0 {
            return Ok(());
        }
        let again = self.until_trouble();
        self.later(again, SimEvent::Machine(node));
        match self.rng.below(6) {
            0 => self.kill(node)?,
            1 => {
                // Somebody sets its wall clock.
                let seconds = self.rng.below(240) as i64 - 120;
                self.nodes[node].wall_off = SignedDuration::from_secs(seconds);
                self.served_waits.disturbed(self.time);
            }
            2 => {
                // One that sleeps already sleeps on: what happens on it was put off until it wakes.
                let until = self.time + self.millis(5_000, 60_000);
                let node = &mut self.nodes[node];
                node.asleep_until = node.asleep_until.max(until);
                let woken = node.asleep_until;
                self.served_waits.disturbed(woken);
            }
            3 => self.nodes[node].idle = [1.0, 0.7, 0.4, 0.05][self.rng.below(4) as usize],
            4 => {
                let blind = self.millis(5_000, 30_000);
                self.nodes[node].blind_until = self.time + blind;
            }
            _ => self.nodes[node].idle = 1.0,
        }
        Ok(())
    }

    fn kill(&mut self, node: usize) -> Result<(), Broken> {
        if self.nodes[node].core.is_none() {
            return Ok(());
        }
        self.report.restarts += 1;
        self.nodes[node].kill();
        self.served_waits.killed(node);
        self.calls.retain(|_, (of, ..)| *of != node);
        if self.scenario.has(Mistake::AnswersEarly) {
            // Its machine goes down with it.
            self.disk.cut();
            self.start_over();
            self.check_kept()?;
        }
        let delay = self.millis(10, 20_000);
        self.served_waits.disturbed(self.time + delay);
        self.later(delay, SimEvent::Start(node));
        Ok(())
    }

    /// Gives a core something, with the news before it.
    pub(super) fn step(&mut self, node: usize, input: Input) -> Result<(), Broken> {
        let time = self.time;
        let this = &mut self.nodes[node];
        let now = this.now(time);
        let news = this.news();
        let Some(core) = this.core.as_mut() else {
            return Ok(());
        };
        let mut inputs = Vec::new();
        if !news.is_empty() {
            inputs.push(Input::Committed(news));
        }
        inputs.push(input);
        self.touched[node] = true;
        let outputs = core.step(inputs, now);
        self.handle(node, outputs)
    }

    fn handle(&mut self, node: usize, outputs: Vec<Output>) -> Result<(), Broken> {
        let mut proposes = false;
        for output in outputs {
            match output {
                Output::WakeAt(at) => {
                    self.nodes[node].alarm += 1;
                    let alarm = self.nodes[node].alarm;
                    let at = self.nodes[node].time_of(at).max(self.time);
                    // A timer is never exact.
                    let late = self.millis(0, 3);
                    self.at(at + late, SimEvent::Wake(node, alarm));
                }
                Output::Op { id, stamp, op } => {
                    let new = id >= self.nodes[node].begun;
                    self.nodes[node].begun = self.nodes[node].begun.max(id + 1);
                    // A claim that accepts a reservation admits nothing, also if another node's caller was faster.
                    let here = &self.nodes[node].options.node;
                    let grants = match &op {
                        Op::Reserve(_) | Op::Admit(_) => true,
                        Op::Claim(op) => {
                            let mut jobs = op.jobs.iter();
                            let accepts = op.command.reason == ACCEPTED;
                            !accepts && !jobs.all(|id| self.shadow.is_reserved(id, here))
                        }
                        _ => false,
                    };
                    proposes |= new && grants;
                    if new {
                        self.check_paused(node, &op)?;
                    }
                    if let Op::Admit(op) = &op
                        && let Some(name) = self.nodes[node].requested.get(&op.call)
                    {
                        let lease = op.command.lease_id;
                        self.shadow.requested.insert(lease, name.clone());
                    }
                    if matches!(op, Op::ReadLive(_)) {
                        self.note_read(node)?;
                    }
                    self.report.traffic.asked(&op);
                    self.nodes[node].asked.insert(id, op.clone());
                    let operation = self.begin(node, stamp, op);
                    self.nodes[node].ops.insert(id, operation);
                    self.serve_soon(node);
                }
                Output::Respond(response) => {
                    let call = response.call();
                    self.served_waits.call_ended(node, call);
                    // A caller always takes its answer here; that it gets lost comes later.
                    let _ = response.deliver();
                    let Some(reply) = self.nodes[node].take_reply() else {
                        continue;
                    };
                    let requested = self.nodes[node].requested.remove(&call);
                    if let Ok(Reply::Capacity(answer)) = &reply {
                        self.shadow.check_capacity_answer(answer, requested)?;
                    }
                    let Some((worker, turn)) = self.nodes[node].callers.remove(&call) else {
                        continue;
                    };
                    if worker == OPERATOR {
                        if matches!(reply, Ok(Reply::Followed(()))) {
                            self.pause_followed(node, turn);
                        }
                        continue;
                    }
                    if matches!(&reply, Ok(Reply::Claimed(leases)) if leases.is_empty()) {
                        self.check_empty_claim(node, worker, turn)?;
                    }
                    if self.fault(self.scenario.faults.message_lost) {
                        continue;
                    }
                    let delay = self.millis(0, 30);
                    self.later(delay, SimEvent::Reply(worker, turn, Box::new(reply)));
                }
            }
        }
        if proposes {
            self.check_capacity(node)?;
        }
        Ok(())
    }

    /// Begins an operation; the mistakes [`Mistake::BlindRescue`] and [`Mistake::MergedGrants`] are made here.
    fn begin(
        &mut self,
        node: usize,
        stamp: jobtree_store::Stamp,
        op: Op,
    ) -> crate::core::Performing {
        if let Op::Expire(request) = &op
            && self.scenario.has(Mistake::BlindRescue)
        {
            let lease = request.lease;
            let of_lease = |job: &&Arc<jobtree_queue::JobRecord>| job.lease_id == Some(lease);
            let old: Vec<_> = self
                .shadow
                .jobs
                .values()
                .filter(of_lease)
                .cloned()
                .collect();
            let (rescue, operation) = super::stale_rescue::rescue(stamp, request.clone(), old);
            // It was read some time ago.
            let delay = self.millis(2_000, 8_000);
            let life = self.nodes[node].life;
            self.later(delay, SimEvent::Blind(node, life, rescue));
            return operation;
        }
        if let Op::Claim(request) = &op
            && self.scenario.has(Mistake::MergedGrants)
        {
            return super::merged_grant::grant(&self.nodes[node].port, stamp, request.clone());
        }
        perform(&self.nodes[node].store, stamp, op)
    }
}

/// A mistake of the core.
pub(super) fn core_bug(scenario: &Scenario, bug: Bug) -> bool {
    scenario.has(Mistake::Core(bug))
}
