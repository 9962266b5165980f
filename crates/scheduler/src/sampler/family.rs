//! Whose CPU time is ours: registered processes and all below them.
//!
//! A process is known by its pid *and* the time it started, so that a pid that is given out again is somebody else.
//! A process that was once seen below a registered one stays with it while that is registered: a daemon that leaves its
//! parent takes its load along.
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
//! nothing, and nothing may be taken from others for that. It is summed for each registered process: a process belongs to
//! the nearest registered one above it, so that a registered process takes nothing away from one below it. What a registered process itself used since the last look when
//! it ends is lost, and counts as foreign once.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

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

/// The processes that belong to us, and what they had used when they were last looked at.
#[derive(Debug, Default)]
pub(crate) struct Family {
    /// Registered processes: pid and start time.
    roots: BTreeMap<u32, u64>,
    members: HashMap<u32, Member>,
}

/// A process and the registered process that it belongs to.
#[derive(Clone, Copy, Debug)]
struct Member {
    process: Process,
    /// Pid and start time.
    root: (u32, u64),
}

impl Family {
    /// Registers these processes, by pid and start time, and no others.
    pub(crate) fn register(&mut self, roots: &BTreeMap<u32, u64>) {
        self.roots.clone_from(roots);
    }

    /// Returns `true` if no process is registered, so that none need be looked for.
    pub(crate) fn is_empty(&self) -> bool {
        self.roots.is_empty()
    }

    /// Returns what each registered process and those that belong to it used since the last call. `since` is the time of
    /// the last call in the unit of the start times, where that can be compared: a process that started before it and is
    /// seen for the first time has used what it used before it was ours.
    pub(crate) fn look(&mut self, processes: &[Process], since: Option<u64>) -> BTreeMap<u32, u64> {
        let now = self.members_among(processes);
        let mut used: BTreeMap<u32, u64> = BTreeMap::new();
        let mut inherited: HashMap<u32, u64> = HashMap::new();
        for (pid, Member { process, root }) in &now {
            let of_root = used.entry(root.0).or_default();
            match self.before(process) {
                Some(before) => {
                    *of_root += process.own.saturating_sub(before.process.own);
                    let reaped = process.reaped.saturating_sub(before.process.reaped);
                    inherited.insert(*pid, reaped);
                }
                None if since.is_some_and(|since| process.started >= since) => {
                    *of_root += process.own + process.reaped;
                }
                None => {}
            }
        }
        for gone in self.members.values().map(|member| &member.process) {
            if now
                .get(&gone.pid)
                .is_some_and(|member| same(&member.process, gone))
            {
                continue;
            }
            if let Some(heir) = self.heir_of(gone, &now) {
                let inherited = inherited.entry(heir).or_default();
                *inherited = inherited.saturating_sub(gone.own + gone.reaped);
            }
        }
        for (heir, inherited) in inherited {
            *used.entry(now[&heir].root.0).or_default() += inherited;
        }
        self.members = now;
        used
    }

    fn before(&self, process: &Process) -> Option<&Member> {
        let before = self.members.get(&process.pid);
        before.filter(|before| same(&before.process, process))
    }

    /// Returns the nearest process above `gone` that is still there: the one that got its time, if any did.
    fn heir_of(&self, gone: &Process, now: &HashMap<u32, Member>) -> Option<u32> {
        let mut parent = gone.parent;
        // As often as there are members at most: what was read while it changed may be a ring.
        for _ in 0..=self.members.len() {
            let above = &self.members.get(&parent)?.process;
            if now
                .get(&parent)
                .is_some_and(|member| same(&member.process, above))
            {
                return Some(parent);
            }
            parent = above.parent;
        }
        None
    }

    fn members_among(&self, processes: &[Process]) -> HashMap<u32, Member> {
        let mut below: HashMap<u32, Vec<&Process>> = HashMap::new();
        let (mut registered, mut known) = (Vec::new(), Vec::new());
        for process in processes {
            below.entry(process.parent).or_default().push(process);
            if self.is_root((process.pid, process.started)) {
                registered.push((process, (process.pid, process.started)));
            } else if let Some(before) = self.before(process)
                && self.is_root(before.root)
            {
                known.push((process, before.root));
            }
        }
        let mut members = HashMap::new();
        // Where a process is now goes before where it was.
        for mut found in [registered, known] {
            while let Some((process, root)) = found.pop() {
                let root = match (process.pid, process.started) {
                    own if self.is_root(own) => own,
                    _ => root,
                };
                let member = Member {
                    process: *process,
                    root,
                };
                // A registered process is reached from above, too, and belongs to itself then as well.
                if let Entry::Vacant(place) = members.entry(process.pid) {
                    place.insert(member);
                    let children = below.get(&process.pid).into_iter().flatten();
                    found.extend(children.map(|child| (*child, root)));
                }
            }
        }
        members
    }

    fn is_root(&self, (pid, started): (u32, u64)) -> bool {
        self.roots.get(&pid) == Some(&started)
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
        family.register(&BTreeMap::from([(pid, started)]));
        family
    }

    impl Family {
        /// Returns what all registered processes used together.
        fn used(&mut self, processes: &[Process], since: u64) -> u64 {
            self.look(processes, Some(since)).values().sum()
        }
    }

    #[test]
    fn what_it_used_before_it_was_registered_does_not_count() {
        let mut family = registered(10, 5);
        assert_eq!(family.used(&[process(10, 1, 5, 700, 30)], 100), 0);
        assert_eq!(family.used(&[process(10, 1, 5, 720, 30)], 200), 20);
    }

    #[test]
    fn children_and_their_children_count() {
        let mut family = registered(10, 5);
        family.used(&[process(10, 1, 5, 0, 0)], 100);
        let all = [
            process(10, 1, 5, 1, 0),
            process(12, 11, 120, 20, 0),
            process(11, 10, 110, 4, 0),
            process(13, 1, 110, 1000, 0),
        ];
        assert_eq!(family.used(&all, 100), 25);
    }

    #[test]
    fn a_child_that_has_ended_counts_once() {
        let mut family = registered(10, 5);
        let child = process(11, 10, 110, 40, 0);
        family.used(&[process(10, 1, 5, 0, 0)], 100);
        assert_eq!(family.used(&[process(10, 1, 5, 0, 0), child], 100), 40);
        // It used 7 more, ended, and was waited for; another came and went unseen with 3.
        assert_eq!(family.used(&[process(10, 1, 5, 0, 50)], 200), 10);
    }

    #[test]
    fn a_grandchild_that_has_ended_with_its_parent_counts_once() {
        let mut family = registered(10, 5);
        family.used(&[process(10, 1, 5, 0, 0)], 100);
        let all = [
            process(10, 1, 5, 0, 0),
            process(11, 10, 110, 10, 0),
            process(12, 11, 110, 30, 0),
        ];
        assert_eq!(family.used(&all, 100), 40);
        assert_eq!(family.used(&[process(10, 1, 5, 0, 45)], 200), 5);
    }

    #[test]
    fn a_parent_that_does_not_wait_takes_nothing_from_others() {
        let mut family = registered(10, 5);
        let child = process(11, 10, 110, 40, 0);
        family.used(&[process(10, 1, 5, 0, 0), child], 100);
        // The child's time went nowhere; the parent's own 6 still count.
        assert_eq!(family.used(&[process(10, 1, 5, 6, 0)], 200), 6);
    }

    #[test]
    fn a_daemon_that_left_its_parent_is_still_ours() {
        let mut family = registered(10, 5);
        let mut daemon = process(11, 10, 110, 5, 0);
        family.used(&[process(10, 1, 5, 0, 0), daemon], 100);
        daemon.parent = 1;
        daemon.own = 9;
        let own_child = process(12, 11, 210, 2, 0);
        let all = [process(10, 1, 5, 0, 0), daemon, own_child];
        assert_eq!(family.used(&all, 200), 6);
    }

    #[test]
    fn a_reused_pid_is_somebody_else() {
        let mut family = registered(10, 5);
        family.used(&[process(10, 1, 5, 100, 0)], 100);
        let stranger = process(10, 1, 150, 500, 0);
        assert_eq!(family.used(&[stranger], 100), 0);
        let later = process(10, 1, 150, 502, 0);
        assert_eq!(family.used(&[later], 200), 0);
        family.register(&BTreeMap::from([(10, 150)]));
        family.used(&[later], 300);
        let later = process(10, 1, 150, 505, 0);
        assert_eq!(family.used(&[later], 400), 3, "registered anew");
    }

    #[test]
    fn nobody_counts_any_more_when_nobody_is_registered() {
        let mut family = registered(10, 5);
        family.used(&[process(10, 1, 5, 0, 0)], 100);
        family.register(&BTreeMap::new());
        assert!(family.is_empty());
        assert_eq!(family.used(&[process(10, 1, 5, 90, 0)], 200), 0);
    }

    #[test]
    fn time_that_goes_back_counts_nothing() {
        let mut family = registered(10, 5);
        family.used(&[process(10, 1, 5, 100, 50)], 100);
        assert_eq!(family.used(&[process(10, 1, 5, 90, 40)], 200), 0);
    }

    #[test]
    fn a_process_belongs_to_the_nearest_registered_one() {
        let mut family = Family::default();
        family.register(&BTreeMap::from([(10, 5), (12, 7)]));
        let all = |used: u64| {
            [
                process(10, 1, 5, used, 0),
                process(11, 10, 6, 2 * used, 0),
                process(12, 11, 7, 3 * used, 0),
                process(13, 12, 8, 4 * used, 0),
            ]
        };
        family.look(&all(0), Some(100));
        let used = family.look(&all(10), Some(200));
        assert_eq!(used, BTreeMap::from([(10, 30), (12, 70)]));
    }

    #[test]
    fn a_daemon_whose_registered_process_is_registered_no_longer_is_foreign() {
        let mut family = Family::default();
        family.register(&BTreeMap::from([(10, 5), (20, 5)]));
        let other = process(20, 1, 5, 0, 0);
        let mut daemon = process(11, 10, 110, 5, 0);
        family.used(&[process(10, 1, 5, 0, 0), daemon, other], 100);
        (daemon.parent, daemon.own) = (1, 9);
        family.register(&BTreeMap::from([(20, 5)]));
        assert_eq!(family.used(&[daemon, other], 200), 0);
    }

    #[test]
    fn parents_in_a_ring_end() {
        let mut family = registered(10, 5);
        let ring = [process(10, 11, 5, 1, 0), process(11, 10, 6, 1, 0)];
        family.used(&ring, 0);
        assert_eq!(family.used(&[], 100), 0);
    }
}
