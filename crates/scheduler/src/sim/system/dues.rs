//! What workers owe for their leases, followed from outside: by the calls they make and by what the store writes.

use std::sync::Arc;
use std::time::Duration;

use jobtree_protocol::{EventKind, LeaseId};
use jobtree_queue::LeaseEnd;
use jobtree_store::Written;

use super::mailbox::{Ask, Command, ProcessId};
use crate::sim::check::Broken;
use crate::sim::sim_event::SimEvent;
use crate::sim::world::World;

/// What a worker owes for a lease that it was told of.
pub(super) struct Due {
    pub(super) process: ProcessId,
    /// When the renewal was sent that was answered last; at first, when the lease was granted.
    pub(super) renewed: Duration,
    /// When something was last sent for it.
    pub(super) attempted: Duration,
    /// The worker was told that it is over, or has let go of it itself.
    pub(super) is_over: bool,
}

impl World {
    /// Notes for which leases something is sent.
    pub(super) fn note_attempt(&mut self, ask: &Ask) {
        let now = self.time;
        let dues = &mut self.processes().dues;
        match ask {
            Ask::Command(Command::Beat(request, _)) => {
                for beat in &request.leases {
                    if let Some(due) = dues.get_mut(&beat.lease_id) {
                        due.attempted = now;
                    }
                }
            }
            Ask::Command(Command::Complete(request, _)) => {
                if let Some(due) = dues.get_mut(&request.lease_id) {
                    due.attempted = now;
                }
            }
            Ask::Command(Command::Release(lease, ..)) => {
                if let Some(due) = dues.get_mut(lease) {
                    due.is_over = true;
                }
            }
            Ask::Claim(..) | Ask::Command(Command::Log(..)) => {}
        }
    }

    /// What a command wrote, as far as workers are concerned.
    pub(in crate::sim) fn follow_leases(&mut self, written: &[Written]) -> Result<(), Broken> {
        if self.processes.is_none() {
            return Ok(());
        }
        for event in written.iter().flat_map(|it| &it.changes.events) {
            let ends = matches!(
                event.kind,
                EventKind::CancelRequested
                    | EventKind::LeaseExpired
                    | EventKind::LeaseRevoked
                    | EventKind::Timeout
            );
            let Some(lease) = event.lease_id.filter(|_| ends) else {
                continue;
            };
            if event.kind == EventKind::Timeout {
                self.processes().excused.insert(lease);
            }
            self.poke_soon(lease);
        }
        for lease in written.iter().flat_map(|it| &it.changes.asked) {
            self.poke_soon(*lease);
        }
        for lease in written.iter().flat_map(|it| &it.changes.leases) {
            match lease.end {
                None => {
                    let now = self.time;
                    self.processes().granted.entry(lease.id).or_insert(now);
                    continue;
                }
                Some(LeaseEnd::Expired) => self.check_expired(lease.id)?,
                Some(LeaseEnd::Revoked) => {
                    self.processes().excused.insert(lease.id);
                }
                Some(_) => {}
            }
            self.processes().dues.remove(&lease.id);
        }
        Ok(())
    }

    /// The worker of a lease hears that something happened to it, if the message gets through.
    fn poke_soon(&mut self, lease: LeaseId) {
        let due = self.processes().dues.get(&lease).map(|due| due.process);
        let Some(process) = due else {
            return;
        };
        let lost = self.rng.chance(500);
        if !lost && !self.is_lost_on_its_way(process) {
            let delay = self.transit();
            self.later(delay, SimEvent::Poke(process.place, lease));
        }
    }

    pub(in crate::sim) fn poke(&mut self, place: usize, lease: LeaseId) {
        let running = self.processes().all[place].running.as_ref();
        let link = running.map(|running| Arc::clone(&running.link));
        if let Some(link) = link {
            link.poke(lease);
        }
    }

    /// A lease has run out: its worker has stopped the job before, and has tried to renew it until then.
    fn check_expired(&mut self, lease: LeaseId) -> Result<(), Broken> {
        let (ttl, now) = (self.ttl(), self.time);
        let processes = self.processes();
        if processes.excused.contains(&lease) {
            return Ok(());
        }
        if let Some((process, job)) = processes.ledger.runs_under(lease) {
            let place = process.place;
            return Err(format!(
                "lease {lease} ran out, and process {place} still runs job {job} under it"
            ));
        }
        let Some(due) = processes.dues.get(&lease).filter(|due| !due.is_over) else {
            return Ok(());
        };
        let works = processes.living(due.process).is_some_and(|it| !it.stops);
        // It renews after a third of the TTL, a sixth early if it knows only when it asked for the lease; and again whenever
        // its patience with that is over, until its fence.
        if works && due.attempted < due.renewed + ttl * 9 / 20 {
            let (place, silent) = (due.process.place, now - due.attempted);
            return Err(format!(
                "lease {lease} ran out: process {place} held it and sent nothing for it in the last {silent:?}"
            ));
        }
        processes.report.expired_of_living += u64::from(works);
        Ok(())
    }

    /// No two processes run one job, unless the lease of the first was taken away.
    pub(super) fn check_processes(&mut self) -> Result<(), Broken> {
        let processes = self.processes();
        if let Some(broken) = processes.ledger.take_broken() {
            return Err(broken);
        }
        for overlap in processes.ledger.take_overlaps() {
            let excused = |lease| processes.excused.contains(lease);
            if excused(&overlap.before) || excused(&overlap.lease) {
                processes.report.excused += 1;
                continue;
            }
            let (job, before) = (overlap.job, overlap.before);
            let (one, other) = (overlap.process.place, overlap.other.place);
            return Err(format!(
                "job {job} is begun by process {other}, and still runs in process {one} under lease {before}"
            ));
        }
        Ok(())
    }
}
