//! What events do to the dispatcher's state; what may start afterwards is the pump's question.

use std::time::Duration;

use jobtree_protocol::JobId;

use super::absence::kind_of;
use super::{Dispatcher, Effect, Event, LiveLease, Outcome};
use crate::ledger::{Held, Holder, Phase};
use crate::now::Now;

impl Dispatcher {
    pub(super) fn take(&mut self, event: Event, now: Now, effects: &mut Vec<Effect>) {
        match event {
            Event::Submitted(candidates) => {
                for candidate in candidates {
                    // What is on its way already is known to the store as such: an old message.
                    if !self.ledger.contains(Holder::Job(candidate.id)) {
                        self.order.add(candidate);
                    }
                }
            }
            Event::Withdrawn(job) => {
                self.order.remove(job);
                self.holds.forget(job);
                self.denied.remove(&job);
            }
            Event::Answered { job, outcome } => self.answered(job, outcome, now),
            Event::TakenUp { job, lease } => self.runs(job, Holder::Lease(lease)),
            Event::Returned { job, revision } => {
                let holder = Holder::Job(job);
                let dispatched = self.ledger.get(holder).and_then(kind_of);
                self.put_back(holder, Some(revision));
                self.came_back(dispatched, now);
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
                let (units, holder) = (candidate.cost, Holder::Job(candidate.id));
                let ends = candidate.expected_duration.map(|takes| now.mono + takes);
                let (phase, jobs) = (Phase::Dispatched(until), vec![candidate]);
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
            } => {
                let addon = self.order.addon(&addon);
                self.order.learn(addon, &job_type, takes);
            }
            Event::Labels(labels) => self.order.set_labels(labels.into_iter().collect()),
            Event::Drain(draining) => self.draining = draining,
            Event::Claim(ask) => {
                self.claimed_here(&ask);
                self.ask(ask);
            }
            Event::Shown(addon) => self.shown(addon.as_ref()),
            Event::ClaimEnded(id) => self.end_ask(id),
            Event::Kick | Event::Timer => {}
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
                    self.ledger.set_phase(holder, Phase::Dispatched(until));
                }
            }
            Outcome::Lost => {
                if let Some(held) = self.free(holder) {
                    self.forget_denials(&held);
                    self.refund(&held);
                }
            }
            Outcome::Failed => {
                if !self.reserve_again(holder) {
                    self.put_back(holder, None);
                }
            }
        }
    }

    /// A job that was on its way runs, under a lease.
    fn runs(&mut self, job: JobId, lease: Holder) {
        if let Some(held) = self.free(Holder::Job(job)) {
            self.forget_denials(&held);
            self.present(&held);
            self.enter(
                lease,
                Held {
                    phase: Phase::Running,
                    jobs: Vec::new(),
                    ..held
                },
            );
        }
    }

    fn leased(&mut self, live: LiveLease, now: Now) {
        let addon = self.order.addon(&live.addon);
        let key = live.key.map(|key| (addon, key.key));
        let ends = live.ends_in.map(|takes| now.mono + takes);
        let (units, phase) = (live.units, Phase::Running);
        let held = Held {
            addon,
            units,
            key,
            ends,
            phase,
            jobs: Vec::new(),
            charged: None,
            allowed: None,
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

    /// A dispatch was proposed to go back: ask again later if nothing comes of it. Its units stay in use, for it may
    /// just have been taken up.
    pub(super) fn await_return(&mut self, holder: Holder, now: Now) {
        let again: Duration = self.admission.policy().dispatch.tick;
        self.ledger
            .set_phase(holder, Phase::Dispatched(now.mono + again));
    }
}
