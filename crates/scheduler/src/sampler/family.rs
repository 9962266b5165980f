//! Whose CPU time is ours: registered processes and all below them.
//!
//! A process is known by its pid *and* the time it started, so that a pid that is given out again is somebody else.
//! Who was once seen below one of ours stays ours for its life: a daemon that leaves its parent takes its load along.
//!
//! The kernel adds the time of a child that has ended to its parent's `reaped` time, when the parent waits for it. So
//! what the family used between two looks is
//!
//! ```text
//!   Σ growth of the own time of who was there both times
//! + Σ own and reaped time of who began since
//! + Σ growth of the reaped time of who was there both times,
//!     less what was counted before of the children that have gone
//! ```
//!
//! the last part for each parent alone and never below zero: a parent that does not wait for its children inherits
//! nothing, and nothing may be taken from others for that. What a registered process itself used since the last look when
//! it ends is lost, and counts as foreign once.

use std::collections::HashMap;

/// One process at one moment. Times are in any unit, the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    /// When it started, in any unit.
    pub(crate) started: u64,
    /// CPU time of its threads.
    pub(crate) own: u64,
    /// CPU time of the children it has waited for, and theirs.
    pub(crate) reaped: u64,
}

/// Who belongs to us, and what they had used when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Registered pids, with the start time of the process that was meant; `None` if there was no such process.
    roots: HashMap<u32, Option<u64>>,
    members: HashMap<u32, Process>,
}

impl Family {
    /// These are registered from now on, and no others. `started` tells the start time of a pid.
    pub(crate) fn register(&mut self, pids: &[u32], started: impl Fn(u32) -> Option<u64>) {
        self.roots.retain(|pid, _| pids.contains(pid));
        for &pid in pids {
            self.roots.entry(pid).or_insert_with(|| started(pid));
        }
    }

    /// Whether nobody is registered, so that nobody need be looked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Takes a look: what the family used since the last one. `since` is the time of the last look in the unit of the
    /// start times, where that can be compared: who started before it and is seen for the first time has used what it used
    /// before it was ours.
    pub(crate) fn look(&mut self, processes: &[Process], since: Option<u64>) -> u64 {
        let now = self.members_among(processes);
        let mut used = 0;
        let mut inherited: HashMap<u32, u64> = HashMap::new();
        for (pid, process) in &now {
            match self.before(process) {
                Some(before) => {
                    used += process.own.saturating_sub(before.own);
                    inherited.insert(*pid, process.reaped.saturating_sub(before.reaped));
                }
                None if since.is_some_and(|since| process.started >= since) => {
                    used += process.own + process.reaped;
                }
                None => {}
            }
        }
        for gone in self.members.values() {
            if now
                .get(&gone.pid)
                .is_some_and(|process| same(process, gone))
            {
                continue;
            }
            if let Some(heir) = self.heir_of(gone, &now) {
                let inherited = inherited.entry(heir).or_default();
                *inherited = inherited.saturating_sub(gone.own + gone.reaped);
            }
        }
        self.members = now;
        used + inherited.values().sum::<u64>()
    }

    fn before(&self, process: &Process) -> Option<&Process> {
        let before = self.members.get(&process.pid);
        before.filter(|before| same(before, process))
    }

    /// The nearest process above `gone` that is still there: whoever got its time, if anybody did.
    fn heir_of(&self, gone: &Process, now: &HashMap<u32, Process>) -> Option<u32> {
        let mut parent = gone.parent;
        // As often as there are members at most: what was read while it changed may be a ring.
        for _ in 0..=self.members.len() {
            let above = self.members.get(&parent)?;
            if now.get(&parent).is_some_and(|process| same(process, above)) {
                return Some(parent);
            }
            parent = above.parent;
        }
        None
    }

    fn members_among(&self, processes: &[Process]) -> HashMap<u32, Process> {
        let mut below: HashMap<u32, Vec<&Process>> = HashMap::new();
        let mut found = Vec::new();
        for process in processes {
            below.entry(process.parent).or_default().push(process);
            let registered = self.roots.get(&process.pid) == Some(&Some(process.started));
            // Without a registered process there is nobody left to whom a member could belong.
            let known = !self.roots.is_empty() && self.before(process).is_some();
            if registered || known {
                found.push(process);
            }
        }
        let mut members = HashMap::new();
        while let Some(process) = found.pop() {
            if members.insert(process.pid, *process).is_none() {
                found.extend(below.get(&process.pid).into_iter().flatten());
            }
        }
        members
    }
}

fn same(one: &Process, other: &Process) -> bool {
    one.pid == other.pid && one.started == other.started
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, parent: u32, started: u64, own: u64, reaped: u64) -> Process {
        Process {
            pid,
            parent,
            started,
            own,
            reaped,
        }
    }

    fn registered(pid: u32, started: u64) -> Family {
        let mut family = Family::default();
        family.register(&[pid], |_| Some(started));
        family
    }

    #[test]
    fn what_it_used_before_it_was_registered_does_not_count() {
        let mut family = registered(10, 5);
        assert_eq!(family.look(&[process(10, 1, 5, 700, 30)], Some(100)), 0);
        assert_eq!(family.look(&[process(10, 1, 5, 720, 30)], Some(200)), 20);
    }

    #[test]
    fn children_and_their_children_count() {
        let mut family = registered(10, 5);
        family.look(&[process(10, 1, 5, 0, 0)], Some(100));
        let all = [
            process(10, 1, 5, 1, 0),
            process(12, 11, 120, 20, 0),
            process(11, 10, 110, 4, 0),
            process(13, 1, 110, 1000, 0),
        ];
        assert_eq!(family.look(&all, Some(100)), 25);
    }

    #[test]
    fn a_child_that_has_ended_counts_once() {
        let mut family = registered(10, 5);
        let child = process(11, 10, 110, 40, 0);
        family.look(&[process(10, 1, 5, 0, 0)], Some(100));
        assert_eq!(
            family.look(&[process(10, 1, 5, 0, 0), child], Some(100)),
            40
        );
        // It used 7 more, ended, and was waited for; another came and went unseen with 3.
        assert_eq!(family.look(&[process(10, 1, 5, 0, 50)], Some(200)), 10);
    }

    #[test]
    fn a_grandchild_that_has_ended_with_its_parent_counts_once() {
        let mut family = registered(10, 5);
        family.look(&[process(10, 1, 5, 0, 0)], Some(100));
        let all = [
            process(10, 1, 5, 0, 0),
            process(11, 10, 110, 10, 0),
            process(12, 11, 110, 30, 0),
        ];
        assert_eq!(family.look(&all, Some(100)), 40);
        assert_eq!(family.look(&[process(10, 1, 5, 0, 45)], Some(200)), 5);
    }

    #[test]
    fn a_parent_that_does_not_wait_takes_nothing_from_others() {
        let mut family = registered(10, 5);
        let child = process(11, 10, 110, 40, 0);
        family.look(&[process(10, 1, 5, 0, 0), child], Some(100));
        // The child's time went nowhere; the parent's own 6 still count.
        assert_eq!(family.look(&[process(10, 1, 5, 6, 0)], Some(200)), 6);
    }

    #[test]
    fn a_daemon_that_left_its_parent_is_still_ours() {
        let mut family = registered(10, 5);
        let mut daemon = process(11, 10, 110, 5, 0);
        family.look(&[process(10, 1, 5, 0, 0), daemon], Some(100));
        daemon.parent = 1;
        daemon.own = 9;
        let own_child = process(12, 11, 210, 2, 0);
        let all = [process(10, 1, 5, 0, 0), daemon, own_child];
        assert_eq!(family.look(&all, Some(200)), 6);
    }

    #[test]
    fn a_reused_pid_is_somebody_else() {
        let mut family = registered(10, 5);
        family.look(&[process(10, 1, 5, 100, 0)], Some(100));
        let stranger = process(10, 1, 150, 500, 0);
        assert_eq!(family.look(&[stranger], Some(100)), 0);
        family.register(&[10], |_| Some(150));
        assert_eq!(
            family.look(&[stranger], Some(200)),
            0,
            "still the one that was meant"
        );
        family.register(&[], |_| None);
        family.register(&[10], |_| Some(150));
        family.look(&[stranger], Some(300));
        let later = process(10, 1, 150, 503, 0);
        assert_eq!(family.look(&[later], Some(400)), 3, "registered anew");
    }

    #[test]
    fn nobody_counts_any_more_when_nobody_is_registered() {
        let mut family = registered(10, 5);
        family.look(&[process(10, 1, 5, 0, 0)], Some(100));
        family.register(&[], |_| None);
        assert!(family.is_empty());
        assert_eq!(family.look(&[process(10, 1, 5, 90, 0)], Some(200)), 0);
    }

    #[test]
    fn time_that_goes_back_counts_nothing() {
        let mut family = registered(10, 5);
        family.look(&[process(10, 1, 5, 100, 50)], Some(100));
        assert_eq!(family.look(&[process(10, 1, 5, 90, 40)], Some(200)), 0);
    }

    #[test]
    fn parents_in_a_ring_end() {
        let mut family = registered(10, 5);
        let ring = [process(10, 11, 5, 1, 0), process(11, 10, 6, 1, 0)];
        family.look(&ring, Some(0));
        assert_eq!(family.look(&[], Some(100)), 0);
    }
}
