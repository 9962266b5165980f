//! Who is next: classes with aging, addons in turns, FIFO.
//!
//! Every waiting job is in exactly one of two places: `delayed` while its time has not come, else in a lane. Lanes in
//! whose way nothing stands (pause, concurrency key, node) stand in a class, by their head. Work per start does not
//! depend on how many jobs wait: it is a few lookups in trees per gate (combination of cost, constraints, waiver and
//! duration that occurs), and [`Order::work`] counts it.
//!
//! What changes by itself with time stands in sets ordered by time: `delayed`, `stages` (deadlines that come nearer),
//! `risks`, `aging` (heads that rise by a class). [`Order::advance`] handles what is due.

mod class;
mod lane;
mod obstacles;
mod timers;
mod waiting;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobType, NodeId};

use crate::candidate::Candidate;
use crate::policy::{AddonTerms, Policy};
pub(crate) use class::{Class, Eligible, Turns};
pub(crate) use lane::{AddonIndex, Gate, LaneId, Takes};
use lane::{Lane, Shape, Stand, aged};
pub(crate) use waiting::Waiting;

/// A concurrency key within its addon.
pub(crate) type KeyId = (AddonIndex, Arc<str>);

#[derive(Clone, Debug)]
pub(crate) struct Addon {
    pub(crate) name: AddonId,
    pub(crate) paused: bool,
    pub(crate) terms: AddonTerms,
    /// What its credit grows by at its turn.
    pub(crate) quantum: i64,
    lanes: BTreeSet<LaneId>,
    /// Jobs that wait, delayed ones too.
    pub(crate) waiting: usize,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    paused: bool,
    /// Left to other nodes: nobody here takes its jobs up.
    left: bool,
    /// 95th percentile of how long jobs of this type took.
    learnt: Option<Duration>,
    lanes: BTreeSet<LaneId>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    running: u32,
    lanes: BTreeSet<LaneId>,
}

/// What waits.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    policy: Arc<Policy>,
    node: NodeId,
    labels: BTreeSet<String>,
    /// Boxed: a table of this many is half empty at times.
    pub(crate) jobs: HashMap<JobId, Box<Waiting>>,
    lanes: Vec<Option<Lane>>,
    free: Vec<LaneId>,
    by_shape: HashMap<Shape, LaneId>,
    pub(crate) addons: Vec<Addon>,
    by_name: HashMap<AddonId, AddonIndex>,
    kinds: HashMap<(AddonIndex, JobType), Kind>,
    keys: HashMap<KeyId, Key>,
    pub(crate) classes: [Class; 3],
    delayed: BTreeSet<(Timestamp, JobId)>,
    stages: BTreeSet<(Timestamp, JobId)>,
    risks: BTreeSet<(Timestamp, JobId)>,
    aging: BTreeSet<(Timestamp, LaneId)>,
    /// The wall clock, as of the last [`Order::advance`].
    clock: Timestamp,
    work: u64,
}

impl Order {
    pub(crate) fn new(policy: Arc<Policy>, node: NodeId, labels: BTreeSet<String>) -> Order {
        Order {
            policy,
            node,
            labels,
            jobs: HashMap::new(),
            lanes: Vec::new(),
            free: Vec::new(),
            by_shape: HashMap::new(),
            addons: Vec::new(),
            by_name: HashMap::new(),
            kinds: HashMap::new(),
            keys: HashMap::new(),
            classes: Default::default(),
            delayed: BTreeSet::new(),
            stages: BTreeSet::new(),
            risks: BTreeSet::new(),
            aging: BTreeSet::new(),
            clock: Timestamp::MIN,
            work: 0,
        }
    }

    /// Lookups since the beginning: what a start costs is a difference of two.
    pub(crate) fn work(&self) -> u64 {
        self.work
    }

    /// Since when the first of those waits that wait for no time.
    pub(crate) fn oldest(&self) -> Option<Timestamp> {
        let lanes = self.lanes.iter().flatten();
        lanes
            .filter_map(|lane| lane.queue.first())
            .map(|(since, _)| *since)
            .min()
    }

    /// An addon's number; it gets one with its first job.
    pub(crate) fn addon(&mut self, name: &AddonId) -> AddonIndex {
        if let Some(&index) = self.by_name.get(name) {
            return index;
        }
        let index = AddonIndex(self.addons.len());
        let terms = self.policy.addon(name.as_str());
        self.addons.push(Addon {
            name: name.clone(),
            paused: terms.paused,
            terms,
            quantum: i64::from(self.policy.order.quantum) * i64::from(terms.weight),
            lanes: BTreeSet::new(),
            waiting: 0,
        });
        self.by_name.insert(name.clone(), index);
        index
    }

    /// Adds a job that waits; one that was there already is replaced.
    pub(crate) fn add(&mut self, candidate: Candidate) {
        self.remove(candidate.id);
        let addon = self.addon(&candidate.addon);
        self.addons[addon.0].waiting += 1;
        let id = candidate.id;
        let learnt = self.learnt(addon, &candidate.job_type);
        let risk = candidate
            .urgency(learnt)
            .at_risk_from(&self.policy.deadline);
        let risk = risk.filter(|_| !candidate.warned);
        if let Some(risk) = risk {
            self.risks.insert((risk, id));
        }
        // Names are kept once, not once a job.
        let mut candidate = candidate;
        candidate.addon = self.addons[addon.0].name.clone();
        self.jobs
            .insert(id, Box::new(Waiting::new(candidate, addon, risk)));
        self.place(id);
    }

    /// Puts a job that is in no place where it belongs.
    fn place(&mut self, id: JobId) {
        let at = self.clock;
        let Some(waiting) = self.jobs.get_mut(&id) else {
            return;
        };
        let candidate = &waiting.candidate;
        if let Some(time) = candidate
            .not_before
            .filter(|&time| time > at && !waiting.hurried)
        {
            self.delayed.insert((time, id));
            waiting.delayed = Some(time);
            return;
        }
        let learnt = self
            .kinds
            .get(&(waiting.addon, candidate.job_type.clone()))
            .and_then(|kind| kind.learnt);
        let standing = candidate
            .urgency(learnt)
            .standing(&self.policy.deadline, at);
        waiting.stage = standing.until;
        if let Some(until) = standing.until {
            self.stages.insert((until, id));
        }
        let constraints = candidate.constraints;
        let shape = Shape {
            addon: waiting.addon,
            job_type: candidate.job_type.clone(),
            priority: candidate.priority,
            urgent: standing.urgent,
            waiver: standing.waiver,
            cost: candidate.cost,
            heavy: [
                constraints.cpu_heavy,
                constraints.disk_write_heavy,
                constraints.network_heavy,
                constraints.memory_heavy,
            ],
            declared: candidate.expected_duration.map(Takes::of),
            key: candidate.key.clone(),
            node: candidate.node.clone(),
            labels: candidate.labels.clone(),
            alone: candidate.alone,
        };
        let place = (candidate.enqueued_at, id);
        let lane = self.lane(shape);
        if let (Some(waiting), Some(about)) = (self.jobs.get_mut(&id), &mut self.lanes[lane.0]) {
            waiting.lane = Some(lane);
            waiting.candidate.job_type = about.shape.job_type.clone();
            about.queue.insert(place);
        }
        self.restand(lane);
    }

    /// Takes a job out of its place; it still waits.
    fn displace(&mut self, id: JobId) {
        let Some(waiting) = self.jobs.get_mut(&id) else {
            return;
        };
        let place = (waiting.candidate.enqueued_at, id);
        if let Some(time) = waiting.delayed.take() {
            self.delayed.remove(&(time, id));
        }
        if let Some(until) = waiting.stage.take() {
            self.stages.remove(&(until, id));
        }
        let Some(lane_id) = waiting.lane.take() else {
            return;
        };
        let Some(lane) = &mut self.lanes[lane_id.0] else {
            return;
        };
        lane.queue.remove(&place);
        if lane.queue.is_empty() {
            self.drop_lane(lane_id);
        } else {
            self.restand(lane_id);
        }
    }

    /// Takes a job out altogether.
    pub(crate) fn remove(&mut self, id: JobId) -> Option<Candidate> {
        self.displace(id);
        let waiting = *self.jobs.remove(&id)?;
        if let Some(risk) = waiting.risk {
            self.risks.remove(&(risk, id));
        }
        self.addons[waiting.addon.0].waiting -= 1;
        Some(waiting.candidate)
    }

    /// The lane of jobs of this shape.
    fn lane(&mut self, shape: Shape) -> LaneId {
        if let Some(&lane) = self.by_shape.get(&shape) {
            return lane;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.lanes.push(None);
            LaneId(self.lanes.len() - 1)
        });
        let wrong_node = !self.suits(shape.node.as_ref(), &shape.labels);
        self.addons[shape.addon.0].lanes.insert(id);
        self.kinds
            .entry((shape.addon, shape.job_type.clone()))
            .or_default()
            .lanes
            .insert(id);
        if let Some(key) = &shape.key {
            let key = (shape.addon, key.key.clone());
            self.keys.entry(key).or_default().lanes.insert(id);
        }
        self.by_shape.insert(shape.clone(), id);
        self.lanes[id.0] = Some(Lane {
            shape,
            queue: BTreeSet::new(),
            wrong_node,
            stand: None,
            rises: None,
        });
        id
    }

    fn drop_lane(&mut self, id: LaneId) {
        self.leave(id);
        let Some(lane) = self.lanes[id.0].take() else {
            return;
        };
        let shape = lane.shape;
        self.addons[shape.addon.0].lanes.remove(&id);
        if let Some(kind) = self.kinds.get_mut(&(shape.addon, shape.job_type.clone())) {
            kind.lanes.remove(&id);
        }
        if let Some(key) = &shape.key {
            let key = (shape.addon, key.key.clone());
            let state = self.keys.entry(key.clone()).or_default();
            state.lanes.remove(&id);
            if state.lanes.is_empty() && state.running == 0 {
                self.keys.remove(&key);
            }
        }
        self.by_shape.remove(&shape);
        self.free.push(id);
    }

    /// Takes a lane out of its class.
    fn leave(&mut self, id: LaneId) {
        let Some(lane) = &mut self.lanes[id.0] else {
            return;
        };
        if let Some(rises) = lane.rises.take() {
            self.aging.remove(&(rises, id));
        }
        if let Some(stand) = lane.stand.take() {
            let addon = lane.shape.addon;
            self.classes[stand.class].remove(addon, id, &stand);
            self.classes[stand.class].idle(addon);
        }
    }

    /// Puts a lane where it stands now: in the class of its head, or nowhere when something is in its way.
    fn restand(&mut self, id: LaneId) {
        self.work += 1;
        let wanted = self.wanted(id);
        let Some(lane) = &self.lanes[id.0] else {
            return;
        };
        let (stand, rises) = wanted.map_or((None, None), |(stand, rises)| (Some(stand), rises));
        if lane.stand == stand && lane.rises == rises {
            return;
        }
        let addon = lane.shape.addon;
        let before = lane.stand;
        // Into the new place first: an addon that only changes places does not lose its credit.
        if let Some(stand) = &stand {
            self.classes[stand.class].insert(addon, id, stand);
        }
        if let Some(before) = before.filter(|&before| Some(before) != stand) {
            self.classes[before.class].remove(addon, id, &before);
            self.classes[before.class].idle(addon);
        }
        let Some(lane) = &mut self.lanes[id.0] else {
            return;
        };
        lane.stand = stand;
        if lane.rises != rises {
            if let Some(rises) = lane.rises {
                self.aging.remove(&(rises, id));
            }
            if let Some(rises) = rises {
                self.aging.insert((rises, id));
            }
            lane.rises = rises;
        }
    }

    fn wanted(&self, id: LaneId) -> Option<(Stand, Option<Timestamp>)> {
        let lane = self.lanes[id.0].as_ref()?;
        let shape = &lane.shape;
        let head = *lane.queue.first()?;
        let kind = self.kinds.get(&(shape.addon, shape.job_type.clone()));
        let taken = shape
            .key
            .as_ref()
            .is_some_and(|key| self.running(shape.addon, &key.key) >= key.limit);
        let paused = self.addons[shape.addon.0].paused || kind.is_some_and(|kind| kind.paused);
        // Nobody else may have what asks for this node.
        let left = shape.node.is_none() && kind.is_some_and(|kind| kind.left);
        if paused || taken || left || lane.wrong_node {
            return None;
        }
        let (class, rises) = aged(
            shape.priority,
            head.0,
            self.policy.order.age_step,
            self.clock,
        );
        let (class, rises) = if shape.urgent {
            (2, None)
        } else {
            (class, rises)
        };
        let learnt = kind.and_then(|kind| kind.learnt).map(Takes::of);
        let takes = shape.declared.or(learnt);
        let gate = Gate {
            waiver: shape.waiver,
            cost: shape.cost,
            heavy: shape.heavy,
            takes,
        };
        Some((Stand { class, gate, head }, rises))
    }

    /// Whose turn it is in each class.
    pub(crate) fn turns(&self) -> [Turns; 3] {
        self.classes.each_ref().map(Class::turns)
    }

    pub(crate) fn set_turns(&mut self, turns: [Turns; 3]) {
        for (class, turns) in self.classes.iter_mut().zip(turns) {
            class.set_turns(turns);
        }
    }

    /// Lets a job start before its time, or not.
    pub(crate) fn hurry(&mut self, id: JobId, hurried: bool) {
        let Some(waiting) = self.jobs.get_mut(&id) else {
            return;
        };
        if std::mem::replace(&mut waiting.hurried, hurried) != hurried {
            self.replace(id);
        }
    }

    /// Charges an addon for a start in a class.
    pub(crate) fn charge(&mut self, class: usize, addon: AddonIndex, cost: u32) {
        let quantum = self.addons[addon.0].quantum;
        self.classes[class].charge(addon, cost, quantum);
    }

    /// Whether any job waits whose time has come.
    pub(crate) fn anything_but_delayed(&self) -> bool {
        self.jobs.len() > self.delayed.len()
    }

    /// The first job of a lane.
    pub(crate) fn head(&self, lane: LaneId) -> Option<JobId> {
        self.lanes[lane.0]
            .as_ref()?
            .queue
            .first()
            .map(|(_, id)| *id)
    }

    /// The first jobs of a lane.
    pub(crate) fn heads(&self, lane: LaneId, count: usize) -> Vec<JobId> {
        let queue = self.lanes[lane.0].as_ref().map(|lane| &lane.queue);
        queue
            .into_iter()
            .flatten()
            .take(count)
            .map(|(_, id)| *id)
            .collect()
    }

    /// Whether each job of a lane gets a lease of its own.
    pub(crate) fn alone(&self, lane: LaneId) -> bool {
        self.lanes[lane.0]
            .as_ref()
            .is_some_and(|lane| lane.shape.alone)
    }

    /// The type of a lane's jobs.
    pub(crate) fn job_type(&self, lane: LaneId) -> Option<&JobType> {
        self.lanes[lane.0].as_ref().map(|lane| &lane.shape.job_type)
    }

    /// The lane that a job is in, with its gate and class when nothing is in its way.
    pub(crate) fn standing_of(&self, id: JobId) -> Option<(LaneId, Option<(usize, Gate)>)> {
        let lane_id = self.jobs.get(&id)?.lane?;
        let lane = self.lanes[lane_id.0].as_ref()?;
        Some((lane_id, lane.stand.map(|stand| (stand.class, stand.gate))))
    }

    /// Who is next in a class among what is eligible. Takes turns on, but starts nothing.
    pub(crate) fn next(
        &mut self,
        class: usize,
        eligible: &mut dyn Eligible,
    ) -> Option<(AddonIndex, LaneId, Gate)> {
        self.classes[class].next(&self.lanes, &self.addons, eligible, &mut self.work)
    }
}
