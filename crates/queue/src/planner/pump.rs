//! Starts everything that may start, in order.
//!
//! The job that capacity is held for comes first. Then, from the highest class down, the job of the addon whose turn it is:
//! if it fits it starts; if not, capacity is held for it, and the search goes on among what does not delay it. What the
//! ramp keeps back ends the search: after the next sample the same job is first again, and may be of any cost.
//!
//! To start is to be granted to a claim that waits for the job, or else to be reserved. Both are for jobs of types that
//! are [served](super::served); what is left after them is for [probes](super::probe).

use std::collections::HashMap;
use std::time::Duration;

use jobtree_protocol::JobId;

use super::filter::{Filter, Search};
use super::{Effect, Mistake, Planner};
use crate::admission::{Ask, Verdict, View};
use crate::block::Block;
use crate::deadline::Waiver;
use crate::hold::{Hold, Shadow};
use crate::ledger::{Held, Holder, Phase};
use crate::now::Now;
use crate::order::{AddonIndex, Gate, GroupId};

/// Heads of shut gates whose denial is looked at in one step.
const NOTED: usize = 16;

/// What was started in one pump, for explanations.
#[derive(Clone, Debug, Default)]
pub(crate) struct Started {
    pub(crate) holders: Vec<Holder>,
    /// What was reserved, and is accepted by a claim.
    pub(crate) accepted: Vec<Holder>,
    pub(crate) jobs: Vec<JobId>,
}

/// A job group whose head is to start.
#[derive(Clone, Copy)]
pub(super) struct Pick {
    pub(super) class: usize,
    pub(super) addon: AddonIndex,
    pub(super) group: GroupId,
    pub(super) gate: Gate,
}

/// The way in which a job starts.
#[derive(Clone, Copy, Default)]
pub(super) struct How {
    /// Jobs of its group that go with it, at most.
    pub(super) more: usize,
    /// It is the one that is allowed when quiet never comes; what that took.
    pub(super) allowed: Option<Duration>,
    /// No caller is known to serve its type.
    pub(super) probe: bool,
}

/// What is proposed: the jobs, each with what to compare and swap on, and by which numbers it was decided.
pub(super) struct Proposal {
    jobs: Vec<(JobId, u64)>,
    pub(super) verdict: Verdict,
}

impl Planner {
    pub(super) fn pump(&mut self, now: Now, effects: &mut Vec<Effect>) -> Started {
        let mut started = Started::default();
        let view = self.view(now);
        let policy = self.admission.policy().clone();
        self.holds.expire(policy.order.rest, now.mono);
        // In PANIC, and while the machine cools down, only what was submitted to start all the same finds its gate open.
        let calm = self.admission.machine(&view, Waiver::Normal).is_none();
        if !self.draining {
            if calm {
                self.start_held(&view, &mut started, effects);
            }
            let mut search = Search::default();
            while self.leases() < policy.caps.leases {
                let pick = self.pick(&view, search);
                let class = pick.map_or(0, |pick| pick.class);
                if self.accept_reserved(class, now, &mut started, effects) {
                    continue;
                }
                let Some(pick) = pick else {
                    break;
                };
                if !self.fits(&view, &pick.gate) {
                    self.hold_for(pick, &mut search, &view, effects);
                    continue;
                }
                if self.ramped(pick.gate.cost) {
                    self.note_room(pick.group, &pick.gate, pick.addon, &view, effects);
                    break;
                }
                self.start(pick, How::default(), &view, &mut started, effects);
            }
            if calm {
                self.start_allowed_one(&view, &mut started, effects);
                self.probe_unserved(&view, &mut started, effects);
            }
        }
        // Admitted before: neither the machine's state nor the number of leases is asked again.
        while !self.draining && self.accept_reserved(0, now, &mut started, effects) {}
        self.note_heads(&view, effects);
        started
    }

    pub(super) fn leases(&self) -> u32 {
        self.ledger
            .leases()
            .saturating_sub(self.what_if.fewer_leases)
    }

    pub(super) fn fits(&self, view: &View, gate: &Gate) -> bool {
        let capacity = (self.admission).capacity_for(view, gate.constraints(), gate.waiver);
        self.used() + gate.cost <= capacity
    }

    pub(super) fn ramped(&self, cost: u32) -> bool {
        if self.what_if.fresh_sample {
            return false;
        }
        self.admission
            .ramp_left(self.used())
            .is_some_and(|left| cost > left)
    }

    /// When the held job can start, and what fits beside it then.
    pub(super) fn shadow(&self, hold: &Hold, view: &View, now: Now) -> Shadow {
        let gate = self
            .order
            .standing_of(hold.job)
            .and_then(|(_, stand)| stand)
            .map(|(_, gate)| gate);
        let constraints = gate.map(|gate| gate.constraints()).unwrap_or_default();
        let waiver = gate.map_or(Waiver::None, |gate| gate.waiver);
        let capacity = self.admission.capacity_for(view, constraints, waiver);
        let used = self.used();
        let lacking = (used + hold.cost).saturating_sub(capacity);
        match self.ledger.freed(lacking, now.mono) {
            Some((at, freed)) => {
                let spare = (capacity + freed).saturating_sub(used + hold.cost);
                Shadow {
                    at: Some(at),
                    spare,
                }
            }
            None => Shadow { at: None, spare: 0 },
        }
    }

    /// Whose turn it is, from the highest class down.
    fn pick(&mut self, view: &View, search: Search) -> Option<Pick> {
        let hold = self.holds.current;
        let shadow = hold.map(|hold| self.shadow(&hold, view, view.now));
        let mut filter = Filter {
            admission: &self.admission,
            ledger: &self.ledger,
            asks: &self.asks,
            asks_of: &self.asks_of,
            what_if: &self.what_if,
            served: &self.served,
            take_up: self.admission.policy().dispatch.take_up,
            everything: self.mistakes.contains(&Mistake::ReserveForNobody),
            view,
            used: self.used(),
            search,
            passing: None,
            gates: HashMap::new(),
        };
        for class in (0..3).rev() {
            filter.passing = hold.filter(|hold| class <= hold.class).and(shadow);
            if let Some((addon, group, gate)) = self.order.next(class, &mut filter) {
                return Some(Pick {
                    class,
                    addon,
                    group,
                    gate,
                });
            }
        }
        None
    }

    /// Starts the job that capacity is held for, if it fits now; gives the hold up if it cannot start here any more.
    fn start_held(&mut self, view: &View, started: &mut Started, effects: &mut Vec<Effect>) {
        let Some(hold) = self.holds.current else {
            return;
        };
        let waiting = self.order.jobs.get(&hold.job).map(|waiting| waiting.addon);
        let stand = self
            .order
            .standing_of(hold.job)
            .and_then(|(group, stand)| Some((group, stand?)));
        let (Some(addon), Some((group, (class, gate)))) = (waiting, stand) else {
            self.holds.current = None;
            return;
        };
        let shut = self
            .admission
            .gate(view, gate.waiver, gate.constraints())
            .is_some();
        let carried =
            gate.cost <= (self.admission).capacity_for(view, gate.constraints(), gate.waiver);
        if shut || !carried || !self.may_start(addon, group, gate.cost, view.now) {
            self.holds.current = None;
            return;
        }
        let room = self.leases() < self.admission.policy().caps.leases;
        if room && self.fits(view, &gate) && !self.ramped(gate.cost) {
            // Before its own group's head, if an older one has come back meanwhile: it was promised.
            self.start_job(
                hold.job,
                Pick {
                    class,
                    addon,
                    group,
                    gate,
                },
                How::default(),
                view,
                started,
                effects,
            );
        }
    }

    /// Returns `true` if an addon may start a job of this cost, and a claim waits for it or it may be reserved.
    fn may_start(&self, addon: AddonIndex, group: GroupId, cost: u32, now: Now) -> bool {
        let about = &self.order.addons[addon.0];
        let usage = self.usage_of(addon);
        let wanted = self.order.job_type(group).is_some_and(|job_type| {
            let kind = (addon, job_type.clone());
            self.ask_for(addon, job_type).is_some()
                || self.what_if.worker_for.as_ref() == Some(&kind)
                || self.is_accepted(&kind, now)
        });
        let policy = self.admission.policy();
        wanted
            && about
                .terms
                .admit(policy, usage.addon_units, usage.addon_leases, cost)
    }

    /// Keeps capacity for a job that does not fit, unless it rests from that.
    fn hold_for(
        &mut self,
        pick: Pick,
        search: &mut Search,
        view: &View,
        effects: &mut Vec<Effect>,
    ) {
        self.note_room(pick.group, &pick.gate, pick.addon, view, effects);
        let (cost, now) = (pick.gate.cost, view.now.mono);
        let longest = self.admission.policy().order.hold;
        match self.order.head(pick.group) {
            Some(job) if !self.holds.rests(job, now) && !longest.is_zero() => {
                let (since, until) = (now, now + longest);
                self.holds.current = Some(Hold {
                    job,
                    cost,
                    class: pick.class,
                    since,
                    until,
                });
            }
            _ => search.fitting_from = Some(cost),
        }
    }

    /// When quiet has not come for so long: the first that fits, without it.
    fn start_allowed_one(&mut self, view: &View, started: &mut Started, effects: &mut Vec<Effect>) {
        let policy = self.admission.policy();
        if !view.allow_one || self.leases() >= policy.caps.leases {
            return;
        }
        let search = Search {
            fitting_from: Some(0),
            allow_one: true,
        };
        let Some(pick) = self.pick(view, search) else {
            return;
        };
        if self.ramped(pick.gate.cost) {
            return;
        }
        let gate = &pick.gate;
        let waits = self.admission.gate(view, gate.waiver, gate.constraints());
        let starved = match waits {
            // It could have started without.
            None => None,
            Some(_) if self.what_if.view.is_some() => Some(Duration::ZERO),
            Some(_) => Some(self.admission.allowed_one()),
        };
        let how = How {
            allowed: starved,
            ..How::default()
        };
        self.start(pick, how, view, started, effects);
    }

    fn start(
        &mut self,
        pick: Pick,
        how: How,
        view: &View,
        started: &mut Started,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(job) = self.order.head(pick.group) {
            self.start_job(job, pick, how, view, started, effects);
        }
    }

    /// Proposes a job: to the worker that asked for it, with more of its group if it wants several, or as a reservation.
    pub(super) fn start_job(
        &mut self,
        job: JobId,
        pick: Pick,
        how: How,
        view: &View,
        started: &mut Started,
        effects: &mut Vec<Effect>,
    ) {
        let policy = self.admission.policy().clone();
        let asked = self
            .order
            .job_type(pick.group)
            .and_then(|kind| self.ask_for(pick.addon, kind));
        let asked = asked.map(|ask| (ask.id, ask.jobs.clamp(1, policy.dispatch.batch)));
        let more = asked.map_or(0, |(_, count)| count as usize - 1);
        let Some(proposal) = self.propose(job, pick, How { more, ..how }, view) else {
            return;
        };
        started.holders.push(Holder::Job(job));
        started.jobs.extend(proposal.jobs.iter().map(|(id, _)| *id));
        let (node, verdict) = (self.node.clone(), proposal.verdict);
        effects.push(match asked {
            Some((ask, _)) => {
                self.use_ask(ask, view.now);
                Effect::Grant {
                    ask,
                    jobs: proposal.jobs,
                    cost: pick.gate.cost,
                    node,
                    verdict,
                }
            }
            None => Effect::Reserve {
                job,
                revision: proposal.jobs[0].1,
                node,
                until: view.now.after(policy.dispatch.take_up),
                probe: how.probe,
                verdict,
            },
        });
    }

    /// Takes a job out of the queue, with more of its group, and enters it as proposed. Charges its addon.
    pub(super) fn propose(
        &mut self,
        job: JobId,
        pick: Pick,
        how: How,
        view: &View,
    ) -> Option<Proposal> {
        let Pick {
            class,
            addon,
            group,
            gate,
        } = pick;
        let now = view.now;
        let ask = Ask {
            cost: gate.cost,
            constraints: gate.constraints(),
            waiver: gate.waiver,
        };
        let (usage, terms) = (self.usage_of(addon), self.order.addons[addon.0].terms);
        let verdict = self.admission.verdict(None, view, &ask, &usage, &terms);
        let mut ids = vec![job];
        if how.more > 0 && !self.order.alone(group) {
            let more = self.order.heads(group, how.more + 1).into_iter();
            ids.extend(more.filter(|id| *id != job).take(how.more));
        }
        let learnt = self
            .order
            .job_type(group)
            .and_then(|kind| self.order.learnt(addon, kind));
        let mut jobs = Vec::with_capacity(ids.len());
        let mut takes = Some(Duration::ZERO);
        for &id in &ids {
            self.holds.forget(id);
            if let Some(candidate) = self.order.remove(id) {
                let expected = candidate.expected_duration.or(learnt);
                takes = takes
                    .zip(expected)
                    .map(|(sum, expected)| sum.saturating_add(expected));
                jobs.push(candidate);
            }
        }
        let first = jobs.first()?;
        let key = first.key.as_ref().map(|key| (addon, key.key.clone()));
        let proposed: Vec<(JobId, u64)> = jobs
            .iter()
            .map(|candidate| (candidate.id, candidate.revision))
            .collect();
        self.order.charge(class, addon, gate.cost);
        let held = Held {
            addon,
            units: gate.cost,
            key,
            ends: takes.map(|takes| now.mono.saturating_add(takes)),
            phase: Phase::Proposed,
            jobs,
            charged: Some(class),
            allowed: how.allowed,
            since: now.mono,
            probe: how.probe,
        };
        self.enter(Holder::Job(job), held);
        Some(Proposal {
            jobs: proposed,
            verdict,
        })
    }

    /// The first job of a group does not fit: why.
    fn note_room(
        &mut self,
        group: GroupId,
        gate: &Gate,
        addon: AddonIndex,
        view: &View,
        effects: &mut Vec<Effect>,
    ) {
        let Some(job) = self.order.head(group) else {
            return;
        };
        let ask = Ask {
            cost: gate.cost,
            constraints: gate.constraints(),
            waiver: gate.waiver,
        };
        let terms = self.order.addons[addon.0].terms;
        let blocks = self
            .admission
            .room(view, &ask, &self.usage_of(addon), &terms);
        if let Some(block) = blocks.into_iter().next() {
            self.note(job, block, &ask, view.now, effects);
        }
    }

    /// Heads of groups whose gate is shut: why. A few a step, each written when its reason changes.
    fn note_heads(&mut self, view: &View, effects: &mut Vec<Effect>) {
        let mut heads: Vec<(JobId, Block, Ask)> = Vec::new();
        for class in self.order.classes.iter().rev() {
            for (gate, addons) in class.gates() {
                let ask = Ask {
                    cost: gate.cost,
                    constraints: gate.constraints(),
                    waiver: gate.waiver,
                };
                let capacity = (self.admission).capacity_for(view, ask.constraints, ask.waiver);
                let used = self.used();
                let too_big = Block::Capacity {
                    used,
                    requested: gate.cost,
                    capacity,
                };
                let shut = (self.draining.then_some(Block::Draining))
                    .or_else(|| self.admission.gate(view, gate.waiver, ask.constraints))
                    .or((gate.cost > capacity).then_some(too_big));
                let Some(block) = shut else { continue };
                for groups in addons.values().take(NOTED - heads.len().min(NOTED)) {
                    let first = groups.first().map(|((_, job), _)| *job);
                    heads.extend(first.map(|job| (job, block.clone(), ask)));
                }
            }
        }
        for (job, block, ask) in heads {
            self.note(job, block, &ask, view.now, effects);
        }
    }
}
