//! What would start if: the real search, on a world with some changes, and everything taken back afterwards.

use jobtree_protocol::JobId;

use super::obstacles::apply;
use crate::change::Change;
use crate::now::Now;
use crate::planner::Planner;

/// What would start.
pub(super) struct Tried {
    /// In order.
    pub(super) jobs: Vec<JobId>,
    /// What capacity would be held for.
    pub(super) held: Option<JobId>,
}

impl Planner {
    /// What would start if these changes, named for `job`, came about.
    pub(super) fn suppose(&mut self, job: JobId, changes: &[&Change], now: Now) -> Tried {
        let Some((candidate, addon)) = self.candidate_of(job) else {
            return Tried {
                jobs: Vec::new(),
                held: None,
            };
        };
        let candidate = candidate.clone();
        let kind = (addon, candidate.job_type.clone());
        // As it would be if the job were in a group: one whose time has not come may be the first of its type.
        let mut served = self.unserved(&kind, now).is_none();
        let saved = self.save();
        self.order_mut().supposing = true;
        let mut view = self.admission().view(now);
        // Busy first: how long QUIET lasts counts from when it is QUIET.
        let busy = |change: &&&Change| matches!(change, Change::BusyAtMost { .. });
        for change in changes
            .iter()
            .filter(busy)
            .chain(changes.iter().filter(|change| !busy(change)))
        {
            apply(&mut view, change);
        }
        let what_if = self.what_if_mut();
        what_if.view = Some(view);
        let mut gone = Vec::new();
        let mut was_paused = None;
        let mut type_was_paused = None;
        let mut other_node = false;
        let mut key_was = None;
        let mut was_draining = None;
        let mut of_addon = (0, 0);
        for change in changes {
            match change {
                Change::FreeUnits(units) => self.what_if_mut().fewer_units = *units,
                Change::FreeLeases(count) => self.what_if_mut().fewer_leases = *count,
                Change::FreeAddonUnits(units) => of_addon.0 = *units,
                Change::FreeAddonLeases(count) => of_addon.1 = *count,
                Change::NextSample => self.what_if_mut().fresh_sample = true,
                Change::Worker | Change::Serve { .. } => {
                    self.what_if_mut().worker_for = Some(kind.clone());
                    served = true;
                }
                Change::WaitUntil(at) if candidate.not_before.is_some_and(|time| time <= *at) => {
                    self.order_mut().hurry(job, true);
                }
                Change::ResumeAddon => {
                    was_paused = Some(self.order_mut().pause_addon(addon, false))
                }
                Change::ResumeType => {
                    type_was_paused = Some(self.order_mut().pause_type(
                        addon,
                        &candidate.job_type,
                        false,
                    ));
                }
                Change::FreeKey(count) => {
                    if let Some(key) = &candidate.key {
                        let running = self.order().running(addon, &key.key);
                        let id = (addon, key.key.clone());
                        self.order_mut()
                            .set_running(&id, running.saturating_sub(*count));
                        key_was = Some((id, running));
                    }
                }
                Change::StopDraining => was_draining = Some(self.set_draining(false)),
                Change::JobsGone(jobs) => {
                    for id in jobs {
                        gone.extend(self.order_mut().remove(*id));
                        self.forget_hold(*id);
                    }
                }
                _ => {}
            }
        }
        let was_served = self.order_mut().set_served(&kind, served);
        self.what_if_mut().fewer_of_addon = Some((addon, of_addon.0, of_addon.1));
        // Its group, now that the job is in one.
        if changes.contains(&&Change::OtherNode)
            && let Some((group, _)) = self.order().standing_of(job)
        {
            self.order_mut().set_wrong_node(group, false);
            other_node = true;
        }

        let started = self.try_pump(now);
        let tried = Tried {
            jobs: started.jobs,
            held: self.hold().map(|hold| hold.job),
        };

        for holder in started.accepted {
            self.reserve_again(holder);
        }
        for holder in started.holders.into_iter().rev() {
            self.put_back(holder, None);
        }
        for candidate in gone {
            self.order_mut().add(candidate);
        }
        if other_node {
            self.order_mut().recheck_nodes();
        }
        if let Some((id, running)) = key_was {
            self.order_mut().set_running(&id, running);
        }
        if let Some(paused) = was_paused {
            self.order_mut().pause_addon(addon, paused);
        }
        if let Some(paused) = type_was_paused {
            self.order_mut()
                .pause_type(addon, &candidate.job_type, paused);
        }
        self.order_mut().set_served(&kind, was_served);
        if let Some(draining) = was_draining {
            self.set_draining(draining);
        }
        self.order_mut().hurry(job, false);
        self.order_mut().supposing = false;
        self.restore(saved);
        tried
    }
}
