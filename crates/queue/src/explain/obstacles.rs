//! What is in a job's way by itself, whatever else waits.

use jiff::Timestamp;
use jobtree_protocol::{JobId, QuietState};

use super::Obstacle;
use crate::admission::{Ask, View, worst_state};
use crate::block::Block;
use crate::capacity::busy_for;
use crate::change::Change;
use crate::deadline::Waiver;
use crate::now::{Now, wall_before};
use crate::order::AddonIndex;
use crate::planner::{Planner, Unserved};
use crate::quiet::enter_bound;

impl Planner {
    /// Since when something is in a job's way: since it was denied for it, or since it waits.
    pub(super) fn denied_since(&self, job: JobId, block: &Block, now: Now) -> Timestamp {
        let denied = self
            .denial_of(job)
            .filter(|(denied, _)| denied.same_kind(block));
        let waits = self
            .candidate_of(job)
            .map(|(candidate, _)| candidate.enqueued_at);
        denied
            .map(|(_, since)| *since)
            .or(waits)
            .unwrap_or(now.wall)
            .min(now.wall)
    }

    pub(super) fn obstacles(&self, job: JobId, now: Now) -> Vec<Obstacle> {
        let Some((candidate, addon)) = self.candidate_of(job) else {
            return Vec::new();
        };
        let mut found: Vec<(Block, Change)> = Vec::new();
        self.of_its_own(job, addon, now, &mut found);
        let learnt = self.order().learnt(addon, &candidate.job_type);
        let standing = candidate
            .urgency(learnt)
            .standing(&self.admission().policy().deadline, now.wall);
        let view = self.admission().view(now);
        let waiver = view.waiver(standing.waiver);
        let ask = Ask {
            cost: candidate.cost,
            constraints: candidate.constraints,
            waiver,
        };
        let calmer = self.of_the_machine(&view, &ask, &mut found);
        self.of_room(addon, &calmer, &ask, &mut found);
        let since_state = view.since.min(now.wall);
        // What began before the job did is in its way since the job waits.
        let in_the_way = |began: Option<Timestamp>| {
            let waits = candidate.enqueued_at;
            began.map_or(waits, |began| began.max(waits)).min(now.wall)
        };
        let since = |block: &Block| match block {
            Block::NotQuiet { .. } | Block::Panic { .. } | Block::StreakTooShort { .. } => {
                since_state
            }
            Block::CoolingDown { left, whole } => {
                wall_before(now.wall, whole.saturating_sub(*left))
            }
            Block::Stale { age, .. } => wall_before(now.wall, *age),
            Block::NotYet { .. } | Block::Retry { .. } => candidate.delayed_since.min(now.wall),
            Block::Unserved { .. } => {
                let unserved = self.unserved(&(addon, candidate.job_type.clone()), now);
                let since = unserved.map(|unserved| unserved.since);
                since.unwrap_or(now.wall).min(now.wall)
            }
            // Neither the job's wishes nor the node's labels change while the job waits.
            Block::WrongNode { .. } => candidate.enqueued_at.min(now.wall),
            Block::Draining => in_the_way(self.draining_since()),
            other => self.denied_since(job, other, now),
        };
        found
            .into_iter()
            .map(|(block, change)| Obstacle {
                since: since(&block),
                block,
                change,
            })
            .collect()
    }

    /// Its time, pauses, its key, its node, and its workers.
    fn of_its_own(
        &self,
        job: JobId,
        addon: AddonIndex,
        now: Now,
        found: &mut Vec<(Block, Change)>,
    ) {
        let Some((candidate, _)) = self.candidate_of(job) else {
            return;
        };
        let order = self.order();
        if let (Some(block), Some(at)) = (candidate.delayed(now.wall), candidate.not_before) {
            found.push((block, Change::WaitUntil(at)));
        }
        if order.addons[addon.0].paused {
            found.push((Block::AddonPaused, Change::ResumeAddon));
        }
        if order.type_paused(addon, &candidate.job_type) {
            found.push((Block::TypePaused, Change::ResumeType));
        }
        if let Some(key) = &candidate.key {
            let (running, limit) = (order.running(addon, &key.key), key.limit);
            if running >= limit {
                let block = Block::KeyTaken {
                    key: key.key.to_string(),
                    running,
                    limit,
                };
                found.push((block, Change::FreeKey(running + 1 - limit)));
            }
        }
        if let Some(block) = order.unsuited(candidate.node.as_ref(), &candidate.labels) {
            found.push((block, Change::OtherNode));
        }
        if self.is_draining() {
            found.push((Block::Draining, Change::StopDraining));
        }
        let kind = (addon, candidate.job_type.clone());
        if let Some(Unserved {
            last, vain, probe, ..
        }) = self.unserved(&kind, now)
        {
            let (addon, job_type) = (candidate.addon.clone(), kind.1);
            let change = Change::Serve { addon, job_type };
            found.push((Block::Unserved { last, vain, probe }, change));
        } else if !self.is_taken(&kind, now) {
            found.push((Block::NoWorker, Change::Worker));
        }
    }

    /// The machine, the quiet conditions, and pressure; returns the machine as it would be without them.
    fn of_the_machine(&self, view: &View, ask: &Ask, found: &mut Vec<(Block, Change)>) -> View {
        let admission = self.admission();
        let quiet = &admission.policy().quiet;
        let mut calmer = view.clone();
        let needs = worst_state(ask.waiver);
        let mut lasting = if needs == QuietState::Quiet {
            quiet.enter_after
        } else {
            quiet.calm_after
        };
        let bound = enter_bound(quiet, needs);
        let mut suppose = |calmer: &mut View, block: Block, change: Change| {
            apply(calmer, &change);
            found.push((block, change));
        };
        match admission.machine(view, ask.waiver) {
            Some(block @ (Block::Stale { .. } | Block::Panic { .. })) => {
                if view.cooling.is_some() && ask.waiver < Waiver::Cooldown {
                    // It is PANIC until it has calmed down, and cools down from then on.
                    lasting = lasting.max(quiet.calm_after + quiet.panic_cooldown);
                }
                suppose(
                    &mut calmer,
                    block,
                    Change::BusyAtMost {
                        busy: bound,
                        state: needs,
                        lasting,
                    },
                );
            }
            Some(Block::CoolingDown { left, whole }) => {
                suppose(
                    &mut calmer,
                    Block::CoolingDown { left, whole },
                    Change::Wait(left),
                );
            }
            _ => {}
        }
        for block in admission.quiet_conditions(&calmer, ask.waiver) {
            let change = match &block {
                Block::OutsideWindow { opens } => {
                    Change::WaitUntil(opens.unwrap_or(Timestamp::MAX))
                }
                Block::StreakTooShort { streak, needed } => {
                    Change::Wait(needed.saturating_sub(*streak))
                }
                _ => {
                    // Part of it may have passed.
                    let calm = admission.quiet().calm_for(needs, view.now);
                    let lasting = lasting.saturating_sub(calm);
                    Change::BusyAtMost {
                        busy: bound,
                        state: needs,
                        lasting,
                    }
                }
            };
            suppose(&mut calmer, block, change);
        }
        for block in admission.pressures(&calmer, ask.waiver, ask.constraints) {
            if let Block::Pressure {
                resource, bound, ..
            } = block
            {
                let level = bound / admission.policy().busy.tighten;
                suppose(
                    &mut calmer,
                    block,
                    Change::PressureAtMost { resource, level },
                );
            }
        }
        calmer
    }

    /// Caps, capacity and the ramp, on the machine as it would be.
    fn of_room(&self, addon: AddonIndex, view: &View, ask: &Ask, found: &mut Vec<(Block, Change)>) {
        let admission = self.admission();
        let (usage, terms) = (self.usage_of(addon), self.order().addons[addon.0].terms);
        let mut freed = 0;
        for block in admission.room(view, ask, &usage, &terms) {
            let change = match block {
                Block::Leases { active, limit } => Change::FreeLeases(active + 1 - limit),
                Block::AddonLeases { active, limit } => Change::FreeAddonLeases(active + 1 - limit),
                Block::AddonUnits {
                    used,
                    requested,
                    limit,
                } => Change::FreeAddonUnits(used + requested - limit),
                Block::Capacity {
                    used,
                    requested,
                    capacity,
                } => {
                    let mut capacity = capacity;
                    if requested > capacity {
                        let policy = admission.policy();
                        let busy = busy_for(&policy.capacity, requested).unwrap_or(0.0);
                        let tightened = ask.constraints != Default::default();
                        let busy = if tightened {
                            busy / policy.busy.tighten
                        } else {
                            busy
                        };
                        let (state, lasting) = (view.state, std::time::Duration::ZERO);
                        let change = Change::BusyAtMost {
                            busy,
                            state,
                            lasting,
                        };
                        let mut calmer = view.clone();
                        apply(&mut calmer, &change);
                        capacity = admission.capacity(&calmer, ask.constraints);
                        found.push((block.clone(), change));
                    }
                    freed = (used + requested).saturating_sub(capacity);
                    if freed == 0 {
                        continue;
                    }
                    Change::FreeUnits(freed)
                }
                Block::Ramp { requested, .. } => {
                    let left = admission.ramp_left(usage.units.saturating_sub(freed));
                    if left.is_none_or(|left| requested <= left) {
                        continue;
                    }
                    Change::NextSample
                }
                _ => continue,
            };
            found.push((block, change));
        }
    }
}

/// The machine as it would be after a change.
pub(super) fn apply(view: &mut View, change: &Change) {
    match *change {
        Change::BusyAtMost {
            busy,
            state,
            lasting,
        } => {
            let hot = view.stale.take().is_some() || view.state == QuietState::Panic;
            if hot && !lasting.is_zero() {
                view.cooling = None;
            }
            view.busy = view.busy.min(busy);
            view.cpu = view.cpu.min(busy);
            view.pressure = view.pressure.map(|level| level.min(busy));
            view.state = view.state.min(state);
        }
        Change::PressureAtMost { resource, level } => {
            let pressure = &mut view.pressure[resource as usize];
            *pressure = pressure.min(level);
        }
        Change::Wait(time) => {
            view.cooling = view
                .cooling
                .and_then(|left| left.checked_sub(time))
                .filter(|left| !left.is_zero());
            if view.state == QuietState::Quiet {
                view.streak += time;
            }
        }
        Change::WaitUntil(at) if view.opens.is_some_and(|opens| opens <= at) => {
            view.in_window = true;
            view.opens = None;
        }
        _ => {}
    }
}
