//! Who is next: classes with aging, addons in turns, FIFO.
//!
//! Every waiting job is in exactly one of two places: `delayed` while its time has not come, else in a group. Job groups in
//! whose way nothing stands (pause, concurrency key, node) stand in a class, by their head. Work per start does not
//! depend on how many jobs wait: it is a few lookups in trees per gate (combination of cost, constraints, waiver and
//! duration that occurs), and [`Order::work`] counts it.
//!
//! What changes by itself with time stands in sets ordered by time: `delayed`, `stages` (deadlines that come nearer),
//! `risks`, `aging` (heads that rise by a class). [`Order::advance`] handles what is due.

mod class;
mod group;
mod obstacles;
mod served;
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
pub(crate) use group::{AddonIndex, Gate, GroupId, Takes};
use group::{JobGroup, Place, Shape, Stand, aged};
pub(crate) use waiting::Waiting;

/// A concurrency key within its addon.
pub(crate) type KeyId = (AddonIndex, Arc<str>);

/// A job type within its addon.
pub(crate) type KindId = (AddonIndex, JobType);

#[derive(Clone, Debug)]
pub(crate) struct Addon {
    pub(crate) name: AddonId,
    pub(crate) paused: bool,
    pub(crate) terms: AddonTerms,
    /// What its credit grows by at its turn.
    pub(crate) quantum: i64,
    groups: BTreeSet<GroupId>,
    /// Jobs that wait, delayed ones too.
    pub(crate) waiting: usize,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    paused: bool,
    /// A caller takes jobs of this type, or will soon: its groups stand in the classes.
    served: bool,
    /// The planner keeps an eye on whether it is served.
    watched: bool,
    /// 95th percentile of how long jobs of this type took.
    learnt: Option<Duration>,
    /// What may be charged for each declared unit, as measured.
    cost_factor: Option<f64>,
    groups: BTreeSet<GroupId>,
}

#[derive(Clone, Debug, Default)]
struct Key {
    running: u32,
    groups: BTreeSet<GroupId>,
}

/// What waits.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    policy: Arc<Policy>,
    node: NodeId,
    labels: BTreeSet<String>,
    /// Boxed: a table of this many is half empty at times.
    pub(crate) jobs: HashMap<JobId, Box<Waiting>>,
    groups: Vec<Option<JobGroup>>,
    free: Vec<GroupId>,
    by_shape: HashMap<Shape, GroupId>,
    pub(crate) addons: Vec<Addon>,
    by_name: HashMap<AddonId, AddonIndex>,
    kinds: HashMap<KindId, Kind>,
    /// Types that have waiting jobs and were not watched before.
    appeared: Vec<KindId>,
    /// Jobs go and come back while a question is answered: no type appears or disappears by that.
    pub(crate) supposing: bool,
    /// See [`Mistake::CheapIsFree`](crate::planner::Mistake::CheapIsFree).
    pub(crate) cheap_is_free: bool,
    keys: HashMap<KeyId, Key>,
    pub(crate) classes: [Class; 3],
    delayed: BTreeSet<(Timestamp, JobId)>,
    stages: BTreeSet<(Timestamp, JobId)>,
    risks: BTreeSet<(Timestamp, JobId)>,
    aging: BTreeSet<(Timestamp, GroupId)>,
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
            groups: Vec::new(),
            free: Vec::new(),
            by_shape: HashMap::new(),
            addons: Vec::new(),
            by_name: HashMap::new(),
            kinds: HashMap::new(),
            appeared: Vec::new(),
            supposing: false,
            cheap_is_free: false,
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
        let groups = self.groups.iter().flatten();
        groups
            .filter_map(|group| group.queue.first())
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
            groups: BTreeSet::new(),
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
        candidate.cost = self.charged_units(addon, &candidate.job_type, candidate.declared);
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
        let group = self.group(shape);
        if let (Some(waiting), Some(about)) = (self.jobs.get_mut(&id), &mut self.groups[group.0]) {
            waiting.group = Some(group);
            waiting.candidate.job_type = about.shape.job_type.clone();
            about.queue.insert(place);
        }
        self.restand(group);
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
        let Some(group_id) = waiting.group.take() else {
            return;
        };
        let Some(group) = &mut self.groups[group_id.0] else {
            return;
        };
        group.queue.remove(&place);
        if group.queue.is_empty() {
            self.drop_group(group_id);
        } else {
            self.restand(group_id);
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

    /// The group of jobs of this shape.
    fn group(&mut self, shape: Shape) -> GroupId {
        if let Some(&group) = self.by_shape.get(&shape) {
            return group;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.groups.push(None);
            GroupId(self.groups.len() - 1)
        });
        let wrong_node = !self.suits(shape.node.as_ref(), &shape.labels);
        self.addons[shape.addon.0].groups.insert(id);
        let kind_id = (shape.addon, shape.job_type.clone());
        let kind = self.kinds.entry(kind_id.clone()).or_default();
        kind.groups.insert(id);
        if !kind.watched && !self.supposing {
            kind.watched = true;
            self.appeared.push(kind_id);
        }
        if let Some(key) = &shape.key {
            let key = (shape.addon, key.key.clone());
            self.keys.entry(key).or_default().groups.insert(id);
        }
        self.by_shape.insert(shape.clone(), id);
        self.groups[id.0] = Some(JobGroup {
            shape,
            queue: BTreeSet::new(),
            wrong_node,
            stand: None,
            rises: None,
        });
        id
    }

    fn drop_group(&mut self, id: GroupId) {
        self.leave(id);
        let Some(group) = self.groups[id.0].take() else {
            return;
        };
        let shape = group.shape;
        self.addons[shape.addon.0].groups.remove(&id);
        if let Some(kind) = self.kinds.get_mut(&(shape.addon, shape.job_type.clone())) {
            kind.groups.remove(&id);
            // One that is served is watched on, so that jobs which come and go one by one cost nothing here.
            kind.watched &= kind.served || !kind.groups.is_empty() || self.supposing;
        }
        if let Some(key) = &shape.key {
            let key = (shape.addon, key.key.clone());
            let state = self.keys.entry(key.clone()).or_default();
            state.groups.remove(&id);
            if state.groups.is_empty() && state.running == 0 {
                self.keys.remove(&key);
            }
        }
        self.by_shape.remove(&shape);
        self.free.push(id);
    }

    /// Takes a group out of its class.
    fn leave(&mut self, id: GroupId) {
        let Some(group) = &mut self.groups[id.0] else {
            return;
        };
        if let Some(rises) = group.rises.take() {
            self.aging.remove(&(rises, id));
        }
        if let Some(stand) = group.stand.take() {
            let addon = group.shape.addon;
            self.classes[stand.class].remove(addon, id, &stand);
            self.classes[stand.class].idle(addon);
        }
    }

    /// Puts a group where it stands now: in the class of its head, or nowhere when something is in its way.
    fn restand(&mut self, id: GroupId) {
        self.work += 1;
        let wanted = self.wanted(id);
        let Some(group) = &self.groups[id.0] else {
            return;
        };
        let (stand, rises) = wanted.map_or((None, None), |(stand, rises)| (Some(stand), rises));
        if group.stand == stand && group.rises == rises {
            return;
        }
        let addon = group.shape.addon;
        let before = group.stand;
        // Into the new place first: an addon that only changes places does not lose its credit.
        if let Some(stand) = &stand {
            self.classes[stand.class].insert(addon, id, stand);
        }
        if let Some(before) = before.filter(|&before| Some(before) != stand) {
            self.classes[before.class].remove(addon, id, &before);
            self.classes[before.class].idle(addon);
        }
        let Some(group) = &mut self.groups[id.0] else {
            return;
        };
        group.stand = stand;
        if group.rises != rises {
            if let Some(rises) = group.rises {
                self.aging.remove(&(rises, id));
            }
            if let Some(rises) = rises {
                self.aging.insert((rises, id));
            }
            group.rises = rises;
        }
    }

    /// Where a group stands now; nowhere while its type is not served.
    fn wanted(&self, id: GroupId) -> Option<(Stand, Option<Timestamp>)> {
        let group = self.groups[id.0].as_ref()?;
        let served = self.kinds.get(&group.shape.kind())?.served;
        let head = *group.queue.first()?;
        served.then(|| self.stand_at(group, head)).flatten()
    }

    /// Where a group would stand with this job as its head, whether its type is served or not.
    fn stand_at(&self, group: &JobGroup, head: Place) -> Option<(Stand, Option<Timestamp>)> {
        let shape = &group.shape;
        let kind = self.kinds.get(&shape.kind());
        let taken = shape
            .key
            .as_ref()
            .is_some_and(|key| self.running(shape.addon, &key.key) >= key.limit);
        let paused = self.addons[shape.addon.0].paused || kind.is_some_and(|kind| kind.paused);
        if paused || taken || group.wrong_node {
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

    /// The first job of a group.
    pub(crate) fn head(&self, group: GroupId) -> Option<JobId> {
        self.groups[group.0]
            .as_ref()?
            .queue
            .first()
            .map(|(_, id)| *id)
    }

    /// The first jobs of a group.
    pub(crate) fn heads(&self, group: GroupId, count: usize) -> Vec<JobId> {
        let queue = self.groups[group.0].as_ref().map(|group| &group.queue);
        queue
            .into_iter()
            .flatten()
            .take(count)
            .map(|(_, id)| *id)
            .collect()
    }

    /// Whether each job of a group gets a lease of its own.
    pub(crate) fn alone(&self, group: GroupId) -> bool {
        self.groups[group.0]
            .as_ref()
            .is_some_and(|group| group.shape.alone)
    }

    /// The type of a group's jobs.
    pub(crate) fn job_type(&self, group: GroupId) -> Option<&JobType> {
        self.groups[group.0]
            .as_ref()
            .map(|group| &group.shape.job_type)
    }

    /// The group that a job is in, with its gate and class when nothing is in its way.
    pub(crate) fn standing_of(&self, id: JobId) -> Option<(GroupId, Option<(usize, Gate)>)> {
        let group_id = self.jobs.get(&id)?.group?;
        let group = self.groups[group_id.0].as_ref()?;
        Some((group_id, group.stand.map(|stand| (stand.class, stand.gate))))
    }

    /// Who is next in a class among what is eligible. Takes turns on, but starts nothing.
    pub(crate) fn next(
        &mut self,
        class: usize,
        eligible: &mut dyn Eligible,
    ) -> Option<(AddonIndex, GroupId, Gate)> {
        self.classes[class].next(&self.groups, &self.addons, eligible, &mut self.work)
    }
}
