//! What events do to the planner's state; what may start afterwards is the pump's question.

use std::time::Duration;

use jobtree_protocol::JobId;

use super::served::reserved_kind;
use super::{Effect, Event, LiveLease, Outcome, Planner};
use crate::candidate::Candidate;
use crate::ledger::{Held, Holder, Phase};
use crate::now::{Now, wall_until};

impl Planner {
    pub(super) fn take(&mut self, event: Event, now: Now, effects: &mut Vec<Effect>) {
        match event {
            Event::Submitted(candidates) => {
                for candidate in candidates {
                    // What is on its way already is known to the store as such: an old message.
                    if !self.ledger.contains(Holder::Job(candidate.id)) {
                        self.waits(candidate, now);
                    }
                }
            }
            Event::Withdrawn(job) => self.withdraw(job),
            Event::ReservedElsewhere { candidate, until } => {
                self.withdraw(candidate.id);
                let addon = self.order.addon(&candidate.addon);
                let kind = (addon, candidate.job_type);
                self.wait_for_others(&kind, until, now);
                self.away.insert(candidate.id, kind, until);
            }
            Event::Answered { job, outcome } => self.answered(job, outcome, now),
            Event::Accepted { job, lease } => {
                let reserved = self.ledger.get(Holder::Job(job)).and_then(reserved_kind);
                self.runs(job, Holder::Lease(lease));
                if let Some((kind, _)) = reserved {
                    self.note_acceptance(&kind, now);
                }
            }
            Event::Returned { job, revision } => {
                let holder = Holder::Job(job);
                let reserved = self.ledger.get(holder).and_then(reserved_kind);
                self.put_back(holder, Some(revision));
                if let Some((kind, since)) = reserved {
                    self.note_vain(&kind, since, now);
                }
            }
            Event::Leased(live) => self.leased(live, now),
            Event::Freed(holder) => {
                if let Some(held) = self.free(holder) {
                    self.forget_denials(&held);
                }
            }
            Event::Dispatched { candidate, until } => {
                self.order.remove(candidate.id);
                let addon = self.order.addon(&candidate.addon);
                let key = candidate.key.as_ref().map(|key| (addon, key.key.clone()));
                let holder = Holder::Job(candidate.id);
                let units =
                    self.order
                        .charged_units(addon, &candidate.job_type, candidate.declared);
                let ends = candidate.expected_duration.map(|takes| now.mono + takes);
                let (phase, jobs) = (Phase::Reserved(until), vec![candidate]);
                self.enter(
                    holder,
                    Held {
                        addon,
                        units,
                        key,
                        ends,
                        phase,
                        jobs,
                        charged: None,
                        allowed: None,
                        since: now.mono,
                        probe: false,
                    },
                );
            }
            Event::Sample(sample) => {
                let used = self.ledger.units();
                if let Some(from) = self.admission.sample(sample, used, now) {
                    let to = self.admission.quiet().state();
                    effects.push(Effect::StateChanged { from, to });
                }
            }
            Event::Pushed(signals) => self.admission.push(signals, now),
            Event::PolicyChanged(policy) => {
                self.admission.set_policy(policy.clone(), now);
                self.order.set_policy(policy);
            }
            Event::AddonPaused(addon, paused) => {
                let addon = self.order.addon(&addon);
                self.order.pause_addon(addon, paused);
            }
            Event::TypePaused(addon, job_type, paused) => {
                let addon = self.order.addon(&addon);
                self.order.pause_type(addon, &job_type, paused);
            }
            Event::KeyElsewhere {
                addon,
                key,
                running,
            } => {
                let key = (self.order.addon(&addon), key);
                if running == 0 {
                    self.elsewhere.remove(&key);
                } else {
                    self.elsewhere.insert(key.clone(), running);
                }
                self.show_keys([key]);
            }
            Event::Learnt {
                addon,
                job_type,
                takes,
                cost_factor,
            } => {
                let addon = self.order.addon(&addon);
                if let Some(takes) = takes {
                    self.order.learn(addon, &job_type, takes);
                }
                if let Some(factor) = cost_factor {
                    self.order.learn_cost(addon, &job_type, factor);
                }
            }
            Event::Labels(labels) => self.order.set_labels(labels.into_iter().collect()),
            Event::Drain(draining) => {
                if draining != self.draining {
                    self.draining_since = draining.then_some(now.wall);
                }
                self.draining = draining;
            }
            Event::Claim(ask) => self.ask(ask, now),
            Event::ClaimEnded(id) => self.end_ask(id, now),
            Event::Polled { addon } => self.note_poll(addon.as_ref(), now),
            Event::Listening { scope, listeners } => self.note_listeners(scope, listeners, now),
            Event::Kick | Event::Timer => {}
        }
    }

    /// A job waits no more here.
    fn withdraw(&mut self, job: JobId) {
        self.order.remove(job);
        self.holds.forget(job);
        self.denied.remove(&job);
        self.away.remove(job);
    }

    /// A job waits. If it is new here and has waited for long, its type may be served on the node that it came from.
    fn waits(&mut self, mut candidate: Candidate, now: Now) {
        self.away.remove(candidate.id);
        let addon = self.order.addon(&candidate.addon);
        candidate.cost = self
            .order
            .charged_units(addon, &candidate.job_type, candidate.declared);
        let known = self.order.jobs.get(&candidate.id);
        if known.is_some_and(|known| known.candidate == candidate) {
            // Old news. To take it out and put it back would look like a type that has come and gone.
            return;
        }
        let take_up = self.admission.policy().dispatch.take_up;
        let waited = wall_until(candidate.enqueued_at, now.wall);
        let (job, comes_back) = (candidate.id, known.is_none() && waited >= take_up / 2);
        self.order.add(candidate);
        if let Some((candidate, addon)) = self.candidate_of(job).filter(|_| comes_back) {
            let kind = (addon, candidate.job_type.clone());
            if !self.order.is_served(&kind) {
                self.leave_to_others(&kind, now);
            }
        }
    }

    fn answered(&mut self, job: JobId, outcome: Outcome, now: Now) {
        let holder = Holder::Job(job);
        match outcome {
            Outcome::Accepted(Some(lease)) => self.runs(job, Holder::Lease(lease)),
            Outcome::Accepted(None) => {
                let proposed = self
                    .ledger
                    .get(holder)
                    .is_some_and(|held| held.phase == Phase::Proposed);
                if proposed {
                    let until = now.mono + self.admission.policy().dispatch.take_up;
                    self.ledger.set_phase(holder, Phase::Reserved(until));
                }
            }
            Outcome::Lost => {
                if let Some(held) = self.free(holder) {
                    self.forget_denials(&held);
                    self.refund(&held);
                    if let Some(job) = held.jobs.first().filter(|_| held.probe) {
                        self.leave_to_others(&(held.addon, job.job_type.clone()), now);
                    }
                }
            }
            Outcome::Failed => {
                if !self.reserve_again(holder) {
                    self.put_back(holder, None);
                }
            }
        }
    }

    /// A job that was on its way runs, under a lease: a new one, or one that holds units already and is charged for the
    /// more expensive of both.
    fn runs(&mut self, job: JobId, lease: Holder) {
        if let Some(held) = self.free(Holder::Job(job)) {
            self.forget_denials(&held);
            self.forget_vain(&held);
            let before = self.ledger.get(lease).map_or(0, |before| before.units);
            self.enter(
                lease,
                Held {
                    units: held.units.max(before),
                    phase: Phase::Running,
                    jobs: Vec::new(),
                    probe: false,
                    ..held
                },
            );
        }
    }

    fn leased(&mut self, live: LiveLease, now: Now) {
        let addon = self.order.addon(&live.addon);
        let key = live.key.map(|key| (addon, key.key));
        let ends = live.ends_in.map(|takes| now.mono + takes);
        let units = live.job_type.map_or(live.units, |job_type| {
            self.order.charged_units(addon, &job_type, live.units)
        });
        let phase = Phase::Running;
        let held = Held {
            addon,
            units,
            key,
            ends,
            phase,
            jobs: Vec::new(),
            charged: None,
            allowed: None,
            since: now.mono,
            probe: false,
        };
        self.enter(Holder::Lease(live.lease), held);
    }

    /// What was on its way waits again, at its old place; its addon gets its charge back.
    pub(crate) fn put_back(&mut self, holder: Holder, revision: Option<u64>) {
        let Some(held) = self.free(holder) else {
            return;
        };
        self.refund(&held);
        for mut candidate in held.jobs {
            candidate.revision = revision.unwrap_or(candidate.revision);
            self.order.add(candidate);
        }
    }

    fn forget_denials(&mut self, held: &Held) {
        for job in &held.jobs {
            self.denied.remove(&job.id);
        }
    }

    fn refund(&mut self, held: &Held) {
        if let Some(class) = held.charged {
            self.order.classes[class].refund(held.addon, held.units);
        }
        if let Some(starved) = held.allowed {
            self.admission.take_back_one(starved);
        }
    }

    /// A reservation was proposed to go back: ask again later if nothing comes of it. Its units stay in use, for it may
    /// just have been accepted.
    pub(super) fn await_return(&mut self, holder: Holder, now: Now) {
        let again: Duration = self.admission.policy().dispatch.tick;
        self.ledger
            .set_phase(holder, Phase::Reserved(now.mono + again));
    }
}
