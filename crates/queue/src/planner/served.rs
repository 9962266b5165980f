//! Served job types: those that a worker or another caller takes jobs of. Capacity is reserved for those alone.
//!
//! A type is *served* while
//!
//! - a claim waits for it;
//! - a listener is registered for it, for its addon or for all ([`Event::Listening`](super::Event::Listening)): a webhook,
//!   an event subscriber, a long poll that waits;
//! - a worker claimed it, or a caller polled `dispatchable`, asked for capacity or accepted a reservation of it, within the
//!   take-up time, or three times the interval between such calls if that is longer, to
//!   [ten minutes](super::calls::LONGEST_SERVED).
//!
//! Jobs of a served type are granted to a claim that waits for them. Without one they are reserved if the type is served
//! by a caller that accepts reservations; types that are only claimed are left in the queue, where the next claim finds
//! them in one command. Reservations that no caller accepts are evidence against the callers: after [`TRUSTED`] rounds in a
//! row (reservations that were out together are one round) listeners and polls do not count for that type any more, until
//! a claim, a request or an acceptance of it.
//!
//! A type that is not served stands aside, however many of its jobs wait and however urgent they are, and is
//! [probed](super::probe). What this adds to the wait of a served job is [`UnservedBound`](crate::hold::UnservedBound).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, JobType, NodeId};

use super::calls::{Callers, Calls};
use super::{ClaimAsk, ListenScope, Mistake, Planner};
use crate::ledger::{Held, Phase};
use crate::now::{Now, wall_after};
use crate::order::{AddonIndex, KindId};

/// The longest rest between two probes of a type, unless the take-up time is longer.
pub(crate) const LONGEST_REST: Duration = Duration::from_secs(300);

/// A job that was not accepted at another node is back so long after its term.
const RETURNED_WITHIN: Duration = Duration::from_secs(1);

/// Rounds of reservations that no caller accepted, after which listeners and polls do not count for a type.
const TRUSTED: u32 = 2;

/// Types of which something is remembered before those without waiting jobs and recent calls are forgotten.
const REMEMBERED: usize = 1024;

/// The record of when a type was served.
#[derive(Clone, Debug, Default)]
pub(super) struct Service {
    callers: Callers,
    /// Rounds of reservations that no caller accepted, in a row.
    vain: u32,
    /// When the last of them ended, on the monotonic clock.
    vain_at: Duration,
    /// No probe begins before, on the monotonic clock.
    pub(super) rest: Duration,
    /// When the next probe would have begun, if it waits for reservations at other nodes.
    put_off: Option<Duration>,
    /// Since when it is not served.
    since: Option<Timestamp>,
    /// The probe that is out.
    pub(super) probe: Option<JobId>,
    agenda: Agenda,
}

/// When a type is to be looked at again.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Agenda {
    #[default]
    Nothing,
    /// Served until then, or to be probed from then on.
    At(Duration),
    /// May be probed, since then.
    Ready(Duration),
}

/// Why a type is not served, for an explanation.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Unserved {
    /// Since when.
    pub(crate) since: Timestamp,
    /// When it was served last; `None` if it never was.
    pub(crate) last: Option<Timestamp>,
    /// Rounds of reservations that no caller accepted, in a row.
    pub(crate) vain: u32,
    /// When the next probe may begin.
    pub(crate) probe: Timestamp,
}

/// The types of one addon, or of all, that are listened for.
#[derive(Clone, Debug, Default)]
struct Listened {
    /// All of them.
    all: bool,
    /// Those that listeners name.
    types: BTreeSet<JobType>,
}

/// Who calls, who listens, and what follows for each type.
#[derive(Clone, Debug, Default)]
pub(super) struct Served {
    /// The types that are listened for, by addon; `None` is for listeners of all addons.
    listeners: BTreeMap<Option<AddonIndex>, Listened>,
    /// Calls for any type of an addon; `None` is for polls of all addons.
    addons: BTreeMap<Option<AddonIndex>, Callers>,
    kinds: BTreeMap<KindId, Service>,
    /// Watched types that are not served.
    aside: BTreeMap<AddonIndex, BTreeSet<JobType>>,
    timers: BTreeSet<(Duration, KindId)>,
    /// Types that may be probed, the one that waits longest for that first.
    pub(super) ready: BTreeSet<(Duration, KindId)>,
    /// Types whose probe has ended in this step.
    pub(super) ended: Vec<KindId>,
    /// How many types there were when some were last forgotten.
    kept: usize,
}

impl Served {
    /// When a type is to be looked at next.
    pub(super) fn next_time(&self) -> Option<Duration> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The callers that concern a type.
    fn callers(&self, kind: &KindId) -> impl Iterator<Item = &Callers> {
        let own = self.kinds.get(kind).map(|service| &service.callers);
        let addons = [None, Some(kind.0)].into_iter();
        own.into_iter()
            .chain(addons.filter_map(|addon| self.addons.get(&addon)))
    }

    fn is_listened_for(&self, (addon, job_type): &KindId) -> bool {
        let scopes = [None, Some(*addon)];
        let mut listened = scopes.iter().filter_map(|scope| self.listeners.get(scope));
        listened.any(|listened| listened.all || listened.types.contains(job_type))
    }

    fn begin_listening(&mut self, addon: Option<AddonIndex>, job_type: Option<JobType>) {
        let listened = self.listeners.entry(addon).or_default();
        match job_type {
            None => listened.all = true,
            Some(job_type) => {
                listened.types.insert(job_type);
            }
        }
    }

    /// Notes that a scope is no longer listened for. Returns `true` if it was before.
    fn end_listening(&mut self, addon: Option<AddonIndex>, job_type: Option<&JobType>) -> bool {
        let Some(listened) = self.listeners.get_mut(&addon) else {
            return false;
        };
        let ended = match job_type {
            None => std::mem::take(&mut listened.all),
            Some(job_type) => listened.types.remove(job_type),
        };
        if !listened.all && listened.types.is_empty() {
            self.listeners.remove(&addon);
        }
        ended
    }

    fn trusted(&self, kind: &KindId) -> bool {
        let Some(service) = self.kinds.get(kind).filter(|it| it.vain >= TRUSTED) else {
            return true;
        };
        let mut claims = self.callers(kind).filter_map(|callers| callers.claims);
        claims.any(|claims| claims.last > service.vain_at)
    }

    /// Until when a type is served by those who accept reservations; `None` if it is not. Those who are registered have no end.
    fn accepted_until(&self, kind: &KindId, take_up: Duration, now: Duration) -> Option<Duration> {
        let polls = self.callers(kind).filter_map(|callers| callers.polls);
        let polled = polls.map(|polls| polls.until(take_up)).max();
        let until = if self.is_listened_for(kind) {
            Some(Duration::MAX)
        } else {
            polled
        };
        until.filter(|until| *until > now && self.trusted(kind))
    }

    /// Returns `true` if jobs of a type may be reserved for callers that are not known by name.
    pub(super) fn is_accepted(&self, kind: &KindId, take_up: Duration, now: Duration) -> bool {
        self.accepted_until(kind, take_up, now).is_some()
    }

    fn claimed_until(&self, kind: &KindId, take_up: Duration, now: Duration) -> Option<Duration> {
        let claims = self.callers(kind).filter_map(|callers| callers.claims);
        let until = claims.map(|claims| claims.until(take_up)).max();
        until.filter(|until| *until > now)
    }

    /// What is known of a type, to be changed. Forgets others first if there are many.
    pub(super) fn service(
        &mut self,
        kind: &KindId,
        take_up: Duration,
        now: Duration,
    ) -> &mut Service {
        if self.kinds.len() >= REMEMBERED.max(2 * self.kept) && !self.kinds.contains_key(kind) {
            self.kinds.retain(|_, service| {
                let calls = [service.callers.claims, service.callers.polls];
                let fresh = |calls: &Calls| calls.until(take_up) > now;
                service.probe.is_some()
                    || service.agenda != Agenda::Nothing
                    || calls.iter().flatten().any(fresh)
            });
            self.kept = self.kinds.len();
        }
        self.kinds.entry(kind.clone()).or_default()
    }

    fn plan(&mut self, kind: &KindId, agenda: Agenda) {
        let Some(service) = self.kinds.get_mut(kind) else {
            return;
        };
        let before = std::mem::replace(&mut service.agenda, agenda);
        if before == agenda {
            return;
        }
        match before {
            Agenda::Nothing => {}
            Agenda::At(at) => drop(self.timers.remove(&(at, kind.clone()))),
            Agenda::Ready(since) => drop(self.ready.remove(&(since, kind.clone()))),
        }
        match agenda {
            Agenda::Nothing => {}
            Agenda::At(at) => drop(self.timers.insert((at, kind.clone()))),
            Agenda::Ready(since) => drop(self.ready.insert((since, kind.clone()))),
        }
    }

    /// A probe of a type has begun.
    pub(super) fn begin_probe(&mut self, kind: &KindId, job: JobId) {
        self.plan(kind, Agenda::Nothing);
        if let Some(service) = self.kinds.get_mut(kind) {
            service.probe = Some(job);
            service.put_off = None;
        }
    }

    /// A type that may be probed is tried again then.
    pub(super) fn try_later(&mut self, kind: &KindId, at: Duration) {
        self.plan(kind, Agenda::At(at));
    }

    /// A probe has ended, however it did.
    pub(super) fn end_probe(&mut self, kind: KindId) {
        if let Some(service) = self.kinds.get_mut(&kind) {
            service.probe = None;
            self.ended.push(kind);
        }
    }

    fn set_aside(&mut self, kind: &KindId, aside: bool) -> bool {
        if aside {
            let types = self.aside.entry(kind.0).or_default();
            return types.insert(kind.1.clone());
        }
        let Some(types) = self.aside.get_mut(&kind.0) else {
            return false;
        };
        let was = types.remove(&kind.1);
        if types.is_empty() {
            self.aside.remove(&kind.0);
        }
        was
    }

    fn types_aside(&self, addon: Option<AddonIndex>) -> Vec<KindId> {
        let addons = self
            .aside
            .iter()
            .filter(|(index, _)| addon.is_none_or(|it| it == **index));
        addons
            .flat_map(|(index, types)| types.iter().map(|job_type| (*index, job_type.clone())))
            .collect()
    }
}

impl Planner {
    fn take_up(&self) -> Duration {
        self.admission.policy().dispatch.take_up
    }

    /// Returns `true` if jobs of a type may be reserved now.
    pub(super) fn is_accepted(&self, kind: &KindId, now: Now) -> bool {
        self.mistakes.contains(&Mistake::ReserveForNobody)
            || self.served.is_accepted(kind, self.take_up(), now.mono)
    }

    /// Until when a type is served at least, by what is known now; `None` if it is not.
    fn served_until(&self, kind: &KindId, now: Now) -> Option<Duration> {
        let take_up = self.take_up();
        if self.mistakes.contains(&Mistake::ReserveForNobody) {
            return Some(Duration::MAX);
        }
        // A claim that ends counts from then on: not for less than that.
        let waits = self.ask_for(kind.0, &kind.1).is_some();
        let claimed = waits.then(|| now.mono.saturating_add(take_up));
        let accepted = self.served.accepted_until(kind, take_up, now.mono);
        let claimed = claimed.max(self.served.claimed_until(kind, take_up, now.mono));
        claimed.max(accepted)
    }

    /// Decides anew whether a type is served, and when to look again. `appeared`: it has waiting jobs again.
    fn review(&mut self, kind: &KindId, appeared: bool, now: Now) {
        let (take_up, until) = (self.take_up(), self.served_until(kind, now));
        let delay = first_rest(take_up, &self.node, &kind.1);
        let waits = self.order.has_groups(kind);
        let service = self.served.service(kind, take_up, now.mono);
        let probed = service.probe.is_some();
        if !waits && !probed {
            self.served.set_aside(kind, false);
            self.served.plan(kind, Agenda::Nothing);
            self.order.unwatch(kind);
            return;
        }
        if let Some(until) = until {
            service.since = None;
            service.put_off = None;
            self.served.set_aside(kind, false);
            self.served.plan(kind, Agenda::At(until));
            self.order.set_served(kind, true);
            return;
        }
        let new = self.served.set_aside(kind, true);
        self.order.set_served(kind, false);
        let service = self.served.service(kind, take_up, now.mono);
        service.since.get_or_insert(now.wall);
        if new || appeared {
            service.rest = service.rest.max(whole_second(now.mono + delay));
        }
        let agenda = match service.rest {
            _ if probed => Agenda::Nothing,
            rest if rest > now.mono => Agenda::At(rest),
            rest => match service.agenda {
                ready @ Agenda::Ready(_) => ready,
                _ => Agenda::Ready(rest),
            },
        };
        self.served.plan(kind, agenda);
    }

    /// Looks at the types whose time has come.
    pub(super) fn review_due(&mut self, now: Now) {
        while let Some((_, kind)) = self.served.timers.first().filter(|(at, _)| *at <= now.mono) {
            let kind = kind.clone();
            self.review(&kind, false, now);
        }
    }

    /// Looks at the types that have waiting jobs again, and at those whose probe has ended.
    pub(super) fn review_changed(&mut self, now: Now) {
        for kind in std::mem::take(&mut self.served.ended) {
            self.review(&kind, false, now);
        }
        for kind in self.order.take_appeared() {
            self.review(&kind, true, now);
        }
    }

    fn review_aside(&mut self, addon: Option<AddonIndex>, now: Now) {
        if !self.served.aside.is_empty() {
            for kind in self.served.types_aside(addon) {
                self.review(&kind, false, now);
            }
        }
    }

    /// Takes a worker's claim as a sign that the types it wants are served. `new`: it comes; otherwise it has waited until now.
    pub(super) fn note_claim(&mut self, ask: &ClaimAsk, new: bool, now: Now) {
        if self.what_if.view.is_some() {
            return;
        }
        let (take_up, addon) = (self.take_up(), self.order.addon(&ask.addon));
        if ask.types.is_empty() {
            let callers = self.served.addons.entry(Some(addon)).or_default();
            Calls::note(&mut callers.claims, now, new);
        }
        for job_type in &ask.types {
            let kind = (addon, job_type.clone());
            let service = self.served.service(&kind, take_up, now.mono);
            Calls::note(&mut service.callers.claims, now, new);
        }
        if new {
            let aside = self.served.aside.get(&addon).into_iter().flatten();
            let wanted: Vec<KindId> = aside
                .filter(|job_type| ask.wants(job_type))
                .map(|job_type| (addon, job_type.clone()))
                .collect();
            for kind in wanted {
                self.review(&kind, false, now);
            }
        }
    }

    /// Takes a poll, or an ask for capacity, as a sign that reservations of an addon, or of all, are accepted.
    pub(super) fn note_poll(&mut self, addon: Option<&AddonId>, now: Now) {
        let addon = addon.map(|addon| self.order.addon(addon));
        let callers = self.served.addons.entry(addon).or_default();
        Calls::note(&mut callers.polls, now, true);
        self.review_aside(addon, now);
    }

    /// So many listen for reservations of these types.
    pub(super) fn note_listeners(&mut self, scope: ListenScope, listeners: u32, now: Now) {
        let addon = scope.addon.map(|addon| self.order.addon(&addon));
        if listeners > 0 {
            self.served.begin_listening(addon, scope.job_type);
            self.review_aside(addon, now);
        } else if self.served.end_listening(addon, scope.job_type.as_ref()) {
            let kinds = self.served.kinds.iter();
            let planned = kinds.filter(|((index, job_type), service)| {
                addon.is_none_or(|addon| addon == *index)
                    && scope.job_type.as_ref().is_none_or(|it| it == job_type)
                    && service.agenda != Agenda::Nothing
            });
            for kind in planned.map(|(kind, _)| kind.clone()).collect::<Vec<_>>() {
                self.review(&kind, false, now);
            }
        }
    }

    /// Takes a request for a job, or the acceptance of a reservation, as a sign that its type is served, and as proof that
    /// reservations of it are accepted.
    pub(super) fn note_acceptance(&mut self, kind: &KindId, now: Now) {
        let take_up = self.take_up();
        let service = self.served.service(kind, take_up, now.mono);
        Calls::note(&mut service.callers.polls, now, true);
        service.vain = 0;
        if self
            .served
            .aside
            .get(&kind.0)
            .is_some_and(|types| types.contains(&kind.1))
        {
            self.review(kind, false, now);
        }
    }

    /// A job of this type runs: what was reserved of it in vain is forgotten.
    pub(super) fn forget_vain(&mut self, held: &Held) {
        if let Some(job) = held.jobs.first() {
            let kind = (held.addon, job.job_type.clone());
            if let Some(service) = self.served.kinds.get_mut(&kind) {
                service.vain = 0;
            }
        }
    }

    /// A reservation came back that no caller accepted. Those that were out together count once.
    pub(super) fn note_vain(&mut self, kind: &KindId, reserved_at: Duration, now: Now) {
        let (take_up, node) = (self.take_up(), self.node.clone());
        let service = self.served.service(kind, take_up, now.mono);
        if service.vain > 0 && reserved_at < service.vain_at {
            return;
        }
        service.vain = service.vain.saturating_add(1);
        service.vain_at = now.mono;
        service.rest = whole_second(now.mono + rest(take_up, &node, &kind.1, service.vain));
        self.served.ended.push(kind.clone());
    }

    /// Another node was quicker with a job of this type, or a job of it came back from another node, where it may be served:
    /// no probe begins here before that node had the time to take it.
    pub(super) fn leave_to_others(&mut self, kind: &KindId, now: Now) {
        let take_up = self.take_up();
        let delay = first_rest(take_up, &self.node, &kind.1);
        let service = self.served.service(kind, take_up, now.mono);
        let until = whole_second(now.mono + delay);
        if service.rest < until {
            service.rest = until;
            self.served.ended.push(kind.clone());
        }
    }

    /// A job of this type is reserved at another node until then: no probe begins here before. Where other nodes always have one
    /// out, a probe waits for no longer than the longest rest: they may serve other jobs of the type than those that wait here.
    pub(super) fn wait_for_others(&mut self, kind: &KindId, until: Duration, now: Now) {
        if self.order.is_served(kind) || !self.order.has_groups(kind) {
            return;
        }
        let take_up = self.take_up();
        let service = self.served.service(kind, take_up, now.mono);
        if service.probe.is_some() {
            return;
        }
        let due = *service.put_off.get_or_insert(service.rest.max(now.mono));
        let latest = due + take_up.max(LONGEST_REST);
        let until = whole_second(until + RETURNED_WITHIN).min(latest);
        if service.rest < until {
            service.rest = until;
            self.served.ended.push(kind.clone());
        }
    }

    /// Why a type is not served; `None` if it is.
    pub(crate) fn unserved(&self, kind: &KindId, now: Now) -> Option<Unserved> {
        if self.served_until(kind, now).is_some() {
            return None;
        }
        let service = self.served.kinds.get(kind);
        let calls = self
            .served
            .callers(kind)
            .flat_map(|it| [it.claims, it.polls]);
        let take_up = self.take_up();
        let rest = service.map_or_else(
            || now.mono + first_rest(take_up, &self.node, &kind.1),
            |service| service.rest,
        );
        Some(Unserved {
            since: service.and_then(|it| it.since).unwrap_or(now.wall),
            last: calls.flatten().map(|calls| calls.at).max(),
            vain: service.map_or(0, |service| service.vain),
            probe: wall_after(now.wall, rest.saturating_sub(now.mono)),
        })
    }
}

/// The type of a reservation that waits to be accepted, and since when it is out.
pub(super) fn reserved_kind(held: &Held) -> Option<(KindId, Duration)> {
    let reserved = matches!(held.phase, Phase::Reserved(_));
    let job = held.jobs.first().filter(|_| reserved)?;
    Some(((held.addon, job.job_type.clone()), held.since))
}

/// The next whole second: types whose rests end together are looked at together.
fn whole_second(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs() + u64::from(time.subsec_nanos() > 0))
}

/// How long a type is left alone before its first probe.
fn first_rest(take_up: Duration, node: &NodeId, job_type: &JobType) -> Duration {
    rest(take_up, node, job_type, 1)
}

/// How long a type is left alone after so many rounds in vain: twice as long each time, to the longest rest; by up to a
/// quarter less, which differs from node to node, so that they do not all come back together.
fn rest(take_up: Duration, node: &NodeId, job_type: &JobType, vain: u32) -> Duration {
    let doubled = take_up.saturating_mul(2_u32.saturating_pow(vain.saturating_sub(1)));
    let longest = take_up.max(LONGEST_REST);
    let less = spread(node, job_type, vain) / 4.0;
    doubled.min(longest).mul_f64(1.0 - less)
}

/// A number from 0 to 1 that looks random, and is another one on another node: nothing is drawn here (FNV-1a, and a last
/// mix for the high bits).
fn spread(node: &NodeId, job_type: &JobType, times: u32) -> f64 {
    let bytes = node.as_str().bytes().chain(job_type.as_str().bytes());
    let hash = bytes
        .chain(times.to_le_bytes())
        .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        });
    let mixed = (hash ^ (hash >> 32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 40) as f64 / (1_u64 << 24) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_do_not_come_back_together() {
        let kind = JobType::new("work").unwrap();
        let of =
            |index: u32, times| spread(&NodeId::new(format!("n{index}")).unwrap(), &kind, times);
        for times in 1..5 {
            let mut all: Vec<f64> = (0..40).map(|index| of(index, times)).collect();
            assert!(all.iter().all(|part| (0.0..1.0).contains(part)));
            all.sort_by(f64::total_cmp);
            assert!(all[0] < 0.2 && all[39] > 0.8, "{all:?}");
            all.dedup();
            assert_eq!(all.len(), 40);
        }
        assert_eq!(of(3, 1), of(3, 1));
    }

    #[test]
    fn names_of_types_that_come_and_go_are_forgotten() {
        let mut served = Served::default();
        let take_up = Duration::from_secs(30);
        for number in 0..100_000_u64 {
            let kind = (AddonIndex(0), JobType::new(format!("t{number}")).unwrap());
            let start = Now {
                wall: "2026-01-01T00:00:00Z".parse().unwrap(),
                mono: Duration::from_secs(1000),
            };
            let now = start.after(Duration::from_secs(number));
            let service = served.service(&kind, take_up, now.mono);
            Calls::note(&mut service.callers.claims, now, true);
        }
        assert!(
            served.kinds.len() <= 2 * REMEMBERED,
            "{}",
            served.kinds.len()
        );
    }
}
