//! The planner of one node: events in, proposals out.
//!
//! `step(event, now)` is the whole of it. It has no clock and does nothing: each [`Effect`] is a proposal that the engine
//! carries out against the store, and whose outcome comes back as an event. Until then the units of a proposal are
//! in use here (never twice granted), and afterwards they are what the store says they are. So several planners on
//! one store need not know of each other: a proposal that loses its compare-and-swap is taken back.
//!
//! There is one way from the queue to a worker. What may start is granted to a claim that waits for it; otherwise it is
//! reserved, if its type is *served* by callers that accept reservations. A reservation is accepted by a claim
//! (`accept`), or by a caller that names the job; a caller may also name a job that is not reserved (`request`).
//! Types without a caller are not reserved, but for a probe now and then.
//!
//! Every step ends the same way: what time has changed is handled, everything that may start is proposed, and the time
//! of the next step is named. Events are what starts jobs; the timer is there for events that got lost, and for what only
//! time changes. As long as a job waits there is always a next moment.

mod accept;
mod away;
mod calls;
mod claims;
mod event;
mod filter;
mod outcome;
mod probe;
mod pump;
mod request;
mod served;
mod trial;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, NodeId};

use crate::admission::{Admission, Ask, Usage, View};
use crate::block::Block;
use crate::candidate::Candidate;
use crate::hold::{Hold, Holds};
use crate::ledger::{Held, Holder, Ledger};
use crate::now::{Now, wall_until};
use crate::order::{AddonIndex, KeyId, KindId, Order};
use crate::policy::Policy;
use crate::quiet::QuietRecord;
use away::Away;
pub use claims::{ClaimAsk, LeaseAsk};
pub use event::{Effect, Event, ListenScope, LiveLease, Outcome};
pub(crate) use pump::Started;
pub use request::Requested;
use served::Served;
pub(crate) use served::Unserved;

/// Decides what starts on one node, and when.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use jobtree_protocol::{AddonId, JobId, JobType, NodeId, Priority};
/// use jobtree_queue::candidate::Candidate;
/// use jobtree_queue::planner::{Effect, Event, Planner};
/// use jobtree_queue::policy::Policy;
/// use jobtree_queue::signals::Sample;
/// use jobtree_queue::Now;
///
/// let now = Now { wall: "2026-11-15T12:00:00Z".parse().unwrap(), mono: Duration::from_secs(100) };
/// let node = NodeId::new("here").unwrap();
/// let mut planner = Planner::new(Arc::new(Policy::default()), node, [], now);
/// planner.step(Event::Sample(Sample::idle()), now);
///
/// let (addon, kind) = (AddonId::new("visuals").unwrap(), JobType::new("indexing").unwrap());
/// let mut job = Candidate::new(JobId::from_parts(now.wall, [1; 10]), addon, kind, 30, now.wall);
/// job.priority = Priority::High;
/// let effects = planner.step(Event::Submitted(vec![job.clone()]), now);
/// assert!(matches!(effects[..], [Effect::WakeAt(_)]), "no caller serves such jobs");
/// let effects = planner.step(Event::Polled { addon: Some(job.addon.clone()) }, now);
/// assert!(matches!(&effects[0], Effect::Reserve { job: reserved, .. } if *reserved == job.id));
/// ```
#[derive(Clone, Debug)]
pub struct Planner {
    node: NodeId,
    admission: Admission,
    order: Order,
    ledger: Ledger,
    holds: Holds,
    asks: BTreeMap<u64, ClaimAsk>,
    /// Waiting asks of each addon, the oldest first.
    asks_of: HashMap<AddonIndex, BTreeSet<u64>>,
    /// Jobs with a key that run on other nodes.
    elsewhere: HashMap<KeyId, u32>,
    /// Jobs that are reserved for other nodes.
    away: Away,
    draining: bool,
    /// The time at which draining began, if that was told.
    draining_since: Option<Timestamp>,
    /// The types that are served, and by whom.
    served: Served,
    /// What each job was last denied for, and since when: a denial is written when its kind changes.
    denied: HashMap<JobId, (Block, Timestamp)>,
    what_if: WhatIf,
    mistakes: BTreeSet<Mistake>,
}

/// A mistake that is made on purpose: simulations must find it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mistake {
    /// Capacity is reserved whether a type is served or not, however often no caller accepts.
    ReserveForNobody,
    /// A claim does not see what is reserved.
    ClaimsMissReservations,
    /// Jobs of a type that was measured to cost less than they declare are charged one unit each.
    CheapIsFree,
}

/// What is taken for granted while an explanation asks what would have to change; nothing otherwise.
#[derive(Clone, Debug, Default)]
pub(crate) struct WhatIf {
    pub(crate) view: Option<View>,
    pub(crate) fewer_units: u32,
    pub(crate) fewer_leases: u32,
    pub(crate) fewer_of_addon: Option<(AddonIndex, u32, u32)>,
    pub(crate) fresh_sample: bool,
    pub(crate) worker_for: Option<KindId>,
}

impl WhatIf {
    fn usage(&self, ledger: &Ledger, addon: AddonIndex) -> Usage {
        let mut usage = ledger.usage(addon);
        usage.units = usage.units.saturating_sub(self.fewer_units);
        usage.leases = usage.leases.saturating_sub(self.fewer_leases);
        if let Some((relieved, units, leases)) = self.fewer_of_addon
            && relieved == addon
        {
            usage.addon_units = usage.addon_units.saturating_sub(units);
            usage.addon_leases = usage.addon_leases.saturating_sub(leases);
        }
        usage
    }
}

impl Planner {
    /// A planner that knows of no jobs yet.
    pub fn new(
        policy: Arc<Policy>,
        node: NodeId,
        labels: impl IntoIterator<Item = String>,
        now: Now,
    ) -> Planner {
        let mut order = Order::new(policy.clone(), node.clone(), labels.into_iter().collect());
        order.advance(now.wall);
        Planner {
            node,
            admission: Admission::new(policy, now),
            order,
            ledger: Ledger::default(),
            holds: Holds::default(),
            asks: BTreeMap::new(),
            asks_of: HashMap::new(),
            elsewhere: HashMap::new(),
            away: Away::default(),
            draining: false,
            draining_since: None,
            served: Served::default(),
            denied: HashMap::new(),
            what_if: WhatIf::default(),
            mistakes: BTreeSet::new(),
        }
    }

    /// Makes a mistake from now on.
    #[doc(hidden)]
    pub fn plant(&mut self, mistake: Mistake) {
        self.order.cheap_is_free |= mistake == Mistake::CheapIsFree;
        self.mistakes.insert(mistake);
    }

    /// Takes an event, and says what is to be done.
    pub fn step(&mut self, event: Event, now: Now) -> Vec<Effect> {
        self.step_all([event], now)
    }

    /// Takes several events of one moment, and says what is to be done after the last of them.
    pub fn step_all(&mut self, events: impl IntoIterator<Item = Event>, now: Now) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.admission.tick(now);
        self.away.expire(now.mono);
        let mut risky = self.order.advance(now.wall);
        self.review_due(now);
        for event in events {
            self.take(event, now, &mut effects);
        }
        // What was just submitted may be at risk already.
        risky.extend(self.order.advance(now.wall));
        for holder in self.ledger.overdue(now.mono) {
            if let Holder::Job(job) = holder {
                effects.push(Effect::ReturnUnclaimed { job });
                self.await_return(holder, now);
            }
        }
        self.review_changed(now);
        self.pump(now, &mut effects);
        for job in risky {
            if let Some(waiting) = self.order.jobs.get(&job) {
                let candidate = &waiting.candidate;
                let learnt = self.order.learnt(waiting.addon, &candidate.job_type);
                let slack = candidate
                    .urgency(learnt)
                    .slack(now.wall)
                    .unwrap_or_default();
                effects.push(Effect::AtRisk { job, slack });
            }
        }
        if let Some(wait) = self.next_wake(now) {
            effects.push(Effect::WakeAt(now.after(wait)));
        }
        effects
    }

    /// How long until the next step at the latest; none when nothing waits for anything.
    fn next_wake(&self, now: Now) -> Option<Duration> {
        let policy = self.admission.policy();
        let from_now = |at: Duration| at.saturating_sub(now.mono);
        let idle = self.order.jobs.is_empty() && self.asks.is_empty();
        let waits = [
            self.order.next_time().map(|at| wall_until(now.wall, at)),
            self.ledger.next_overdue().map(from_now),
            self.holds.next_time().map(from_now),
            (self.served.next_time())
                .filter(|at| !self.order.jobs.is_empty() && *at < Duration::MAX)
                .map(from_now),
            (!idle).then(|| self.admission.next_change(now)).flatten(),
            self.order
                .anything_but_delayed()
                .then_some(policy.dispatch.tick),
        ];
        waits.into_iter().flatten().min()
    }

    /// The machine, as admission sees it.
    pub fn view(&self, now: Now) -> View {
        self.what_if
            .view
            .clone()
            .unwrap_or_else(|| self.admission.view(now))
    }

    /// Goes on with the states of the machine that were kept before a restart.
    pub fn restore_load(&mut self, record: &QuietRecord, now: Now) {
        self.admission.restore(record, now);
    }

    /// Signals, states, streaks and the policy in force.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// What is in use, as an addon sees it.
    pub fn usage(&mut self, addon: &AddonId) -> Usage {
        let addon = self.order.addon(addon);
        self.usage_of(addon)
    }

    pub(crate) fn usage_of(&self, addon: AddonIndex) -> Usage {
        self.what_if.usage(&self.ledger, addon)
    }

    /// Units in use.
    pub fn used(&self) -> u32 {
        self.ledger.units().saturating_sub(self.what_if.fewer_units)
    }

    /// Of them, units of reservations that wait to be accepted.
    pub fn reserved(&self) -> u32 {
        self.ledger.reserved_units()
    }

    /// Jobs that wait here.
    pub fn waiting(&self) -> usize {
        self.order.jobs.len()
    }

    /// Whether a job waits here.
    pub fn is_waiting(&self, job: JobId) -> bool {
        self.order.jobs.contains_key(&job)
    }

    /// Returns a job that waits here, as order and admission look at it.
    pub fn candidate(&self, job: JobId) -> Option<&Candidate> {
        let waiting = self.order.jobs.get(&job);
        waiting.map(|waiting| &waiting.candidate)
    }

    /// Since when the job waits that could have started first. Looks at the heads of all groups.
    pub fn oldest_waiting(&self) -> Option<Timestamp> {
        self.order.oldest()
    }

    /// Whose a job is that waits here or is on its way.
    pub fn addon_of(&self, job: JobId) -> Option<&AddonId> {
        let waiting = self.order.jobs.get(&job).map(|waiting| &waiting.candidate);
        let proposed = || {
            let held = self.ledger.get(Holder::Job(job))?;
            held.jobs.first()
        };
        waiting.or_else(proposed).map(|candidate| &candidate.addon)
    }

    /// What holds units.
    pub fn holds_units(&self, holder: Holder) -> bool {
        self.ledger.contains(holder)
    }

    /// Returns everything that holds units.
    pub fn holders(&self) -> impl Iterator<Item = Holder> {
        self.ledger.holders()
    }

    /// Returns the number of concurrency keys that are held, here or on other nodes.
    pub fn keys_held(&self) -> usize {
        self.ledger.keys() + self.elsewhere.len()
    }

    /// The job that capacity is kept for.
    pub fn hold(&self) -> Option<Hold> {
        self.holds.current
    }

    /// Lookups since the beginning: what a step costs is a difference of two.
    pub fn work(&self) -> u64 {
        self.order.work()
    }

    /// Writes a denial if it is for something else than the last one.
    fn note(&mut self, job: JobId, block: Block, ask: &Ask, now: Now, effects: &mut Vec<Effect>) {
        let Some(waiting) = self.order.jobs.get(&job) else {
            return;
        };
        let known = self
            .denied
            .get(&job)
            .is_some_and(|(denied, _)| denied.same_kind(&block));
        if known || self.what_if.view.is_some() {
            return;
        }
        self.denied.insert(job, (block.clone(), now.wall));
        let (addon, name) = (waiting.addon, waiting.candidate.addon.clone());
        let terms = self.admission.policy().addon(name.as_str());
        let (view, usage) = (self.view(now), self.usage_of(addon));
        let verdict = self
            .admission
            .verdict(Some(block), &view, ask, &usage, &terms);
        effects.push(Effect::WriteDenial { job, verdict });
    }

    /// Enters something that holds units, and shows its key to the order.
    fn enter(&mut self, holder: Holder, held: Held) {
        let key = held.key.clone();
        let before = self
            .ledger
            .insert(holder, held)
            .and_then(|before| before.key);
        self.show_keys(key.into_iter().chain(before));
    }

    /// Frees what something holds.
    fn free(&mut self, holder: Holder) -> Option<Held> {
        let held = self.ledger.remove(holder)?;
        if let Some(job) = held.jobs.first().filter(|_| held.probe) {
            let kind = (held.addon, job.job_type.clone());
            self.served.end_probe(kind);
        }
        self.show_keys(held.key.clone());
        Some(held)
    }

    fn show_keys(&mut self, keys: impl IntoIterator<Item = KeyId>) {
        for key in keys {
            let elsewhere = self.elsewhere.get(&key).copied().unwrap_or_default();
            let running = self.ledger.running(&key) + elsewhere;
            self.order.set_running(&key, running);
        }
    }
}
