//! Probes: reservations of types that no caller is known to serve.
//!
//! A program may read the queue in a way that the planner does not see, so a type that is not served is tried now and then: one job
//! of it is reserved for the take-up time, and returned if no caller accepts it. A probe costs served jobs nothing but a
//! bounded wait:
//!
//! - there is one a type at a time, and a rest before each: about the take-up time before the first and after it, then
//!   twice as long each time, to [`LONGEST_REST`](super::served::LONGEST_REST);
//! - none begins while a job of a served type stands behind an open gate (it waits for room, for its turn, for a cap, or
//!   for a worker that will soon be back), while one that a claim waits for here is reserved for another node, while
//!   capacity is held, or while the ramp keeps anything back;
//! - none takes a concurrency key that a job of a served type waits for, and none is the one that is allowed when quiet
//!   never comes.
//!
//! Where several nodes share a store, the first rest leaves a job to those nodes that serve it, and no probe of a type begins
//! while a job of it is known to be reserved at another node, for up to
//! [`LONGEST_REST`](super::served::LONGEST_REST): so there is one probe a type over all nodes, as far as they have heard of
//! each other. If another node is quicker than the one that serves the type, the latter keeps its units free until the job is
//! back: otherwise it would find them taken by the next probe each time, the more often the more nodes there are.

use super::pump::{How, Pick};
use super::{Effect, Planner, Started};
use crate::admission::View;
use crate::order::KindId;

/// Probes that are tried in one step.
const TRIED: usize = 16;

/// Job groups of a type that are looked at for its probe.
const LOOKED_AT: usize = 64;

impl Planner {
    /// Proposes probes of the types whose rest is over, if no served job wants the units.
    pub(super) fn probe_unserved(
        &mut self,
        view: &View,
        started: &mut Started,
        effects: &mut Vec<Effect>,
    ) {
        if self.served.ready.is_empty() || self.what_if.view.is_some() {
            return;
        }
        let policy = self.admission.policy().clone();
        let wanted = self.holds.current.is_some()
            || self.served_jobs_wait(view)
            || self.served_jobs_are_away();
        for _ in 0..TRIED {
            if wanted || self.leases() >= policy.caps.leases {
                return;
            }
            let Some((_, kind)) = self.served.ready.first().cloned() else {
                return;
            };
            let Some(pick) = self.probe_of(&kind, view) else {
                let later = view.now.mono + policy.dispatch.tick;
                self.served.try_later(&kind, later);
                continue;
            };
            if self.ramped(pick.gate.cost) {
                return;
            }
            let Some(job) = self.order.head(pick.group) else {
                return;
            };
            self.served.begin_probe(&kind, job);
            let how = How {
                probe: true,
                ..How::default()
            };
            self.start_job(job, pick, how, view, started, effects);
        }
    }

    /// Returns `true` if a job of a served type stands behind an open gate.
    fn served_jobs_wait(&self, view: &View) -> bool {
        let mut gates = self.order.classes.iter().flat_map(|class| class.gates());
        gates.any(|(gate, _)| {
            let constraints = gate.constraints();
            gate.cost <= self.admission.capacity_for(view, constraints, gate.waiver)
                && (self.admission)
                    .gate(view, gate.waiver, constraints)
                    .is_none()
        })
    }

    /// Returns `true` if a job that a claim waits for is reserved for another node.
    fn served_jobs_are_away(&self) -> bool {
        let mut kinds = self.away.kinds();
        kinds.any(|(addon, job_type)| self.ask_for(*addon, job_type).is_some())
    }

    /// The job of a type to probe: of those that may start now, one of the highest class, then the oldest.
    fn probe_of(&self, kind: &KindId, view: &View) -> Option<Pick> {
        let (addon, terms) = (kind.0, self.order.addons[kind.0.0].terms);
        let usage = self.usage_of(addon);
        let policy = self.admission.policy();
        let groups = self.order.aside(kind, LOOKED_AT).into_iter();
        let startable = groups.filter(|(group, stand)| {
            let gate = &stand.gate;
            let open = self.admission.gate(view, gate.waiver, gate.constraints());
            let key = self.order.key_of(*group);
            open.is_none()
                && self.fits(view, gate)
                && terms.admit(policy, usage.addon_units, usage.addon_leases, gate.cost)
                && key.is_none_or(|key| !self.order.served_have_key(&key))
        });
        let best = startable.min_by_key(|(_, stand)| (std::cmp::Reverse(stand.class), stand.head));
        best.map(|(group, stand)| Pick {
            class: stand.class,
            addon,
            group,
            gate: stand.gate,
        })
    }
}
