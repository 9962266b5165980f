//! Commands about leases: how they are granted, held and ended.

use std::sync::Arc;

use jobtree_protocol::{
    AckRequest, CompleteAnswer, CompleteRequest, Heartbeat, HeartbeatAnswer, JobId, JobState,
    LeaseId, ReleaseRequest, ReportRequest, RevokeRequest,
};
use jobtree_queue::transitions::{
    self, Admit, Changes, Claim, Claimed, LoadAdvice, Proof, Proposed, Reserve, TakeUp, TimeOut,
};
use jobtree_queue::{JobRecord, LeaseRecord, Reservation};

use super::Unit;
use crate::error::StoreError;
use crate::ids::IdMap;
use crate::tables::{Result, Tables};

/// A job, and what its worker says of it.
type Answered<'a> = (&'a JobRecord, &'a CompleteRequest);

/// Reads the record of the job that begins with the end of another. Why it could not be read is left in `read`.
fn next_of<'a>(
    tables: &'a mut dyn Tables,
    read: &'a mut Result<()>,
) -> impl FnOnce(JobId) -> Option<Arc<JobRecord>> + 'a {
    move |id| match tables.jobs(&[id]) {
        Ok(mut found) => found.pop(),
        Err(error) => {
            *read = Err(error);
            None
        }
    }
}

impl Unit<'_> {
    pub(crate) fn reserve(&mut self, id: JobId, command: Reserve) -> Result<Reservation> {
        let job = self.job(id)?;
        let key_holders = self.key_holders(&job)?;
        let command = Reserve {
            key_holders,
            ..command
        };
        let done = transitions::reserve(&self.cx, &job, command)?;
        self.settle(done)
    }

    pub(crate) fn take_up(&mut self, id: JobId, command: TakeUp) -> Result<LeaseRecord> {
        let job = self.job(id)?;
        let lease = self.lease_of(&job)?;
        let done = transitions::take_up(&self.cx, &job, lease.as_ref(), command)?;
        self.settle(done)
    }

    pub(crate) fn ack(
        &mut self,
        id: JobId,
        request: AckRequest,
        new_lease_id: LeaseId,
    ) -> Result<LeaseRecord> {
        let job = self.job(id)?;
        let lease = match request.lease_id {
            Some(given) => self.tables.lease(given)?,
            None => self.lease_of(&job)?,
        };
        let done = transitions::ack(&self.cx, &job, lease.as_ref(), request, new_lease_id)?;
        self.settle(done)
    }

    /// Grants a lease for those of the jobs that can have it.
    pub(crate) fn claim(&mut self, ids: &[JobId], command: Claim) -> Result<Claimed> {
        let existing = self.tables.lease(command.lease_id)?;
        let mut jobs = self.tables.free_jobs(ids)?;
        // In the order that was asked for: it is the order in which they are run.
        if !jobs.iter().map(|job| job.id).eq(ids.iter().copied()) {
            let places: IdMap<JobId, usize> = ids
                .iter()
                .enumerate()
                .map(|(place, id)| (*id, place))
                .collect();
            jobs.sort_by_key(|job| places.get(&job.id));
        }
        let holders = jobs
            .iter()
            .map(|job| self.key_holders(job))
            .collect::<Result<Vec<_>>>()?;
        let proposed: Vec<Proposed<'_>> = jobs
            .iter()
            .zip(holders)
            .map(|(job, key_holders)| Proposed { job, key_holders })
            .collect();
        let done = transitions::claim(&self.cx, &proposed, existing.as_ref(), command)?;
        let mut claimed = self.settle(done)?;
        if claimed.jobs.is_empty() {
            // A repetition: they are those of the lease.
            claimed.jobs = self.jobs_of(&claimed.lease)?;
            claimed.jobs.sort_by_key(|job| job.lease_position);
        }
        Ok(claimed)
    }

    pub(crate) fn admit(&mut self, command: Admit) -> Result<LeaseRecord> {
        let mut existing = self.tables.lease(command.lease_id)?;
        if let (None, Some(request)) = (&existing, command.request_name())
            && let Some(id) = self.tables.requested_lease(&request)?
        {
            // Locked, and looked at again: it may have ended since it was found.
            existing = self.tables.lease(id)?.filter(LeaseRecord::is_live);
        }
        let done = transitions::admit(&self.cx, existing.as_ref(), command)?;
        self.settle(done)
    }

    /// The job that a report concerns: the one it names, else the one in hand.
    fn concerned(
        &mut self,
        lease: &LeaseRecord,
        named: Option<JobId>,
    ) -> Result<Option<Arc<JobRecord>>> {
        match named.or_else(|| lease.in_hand().map(|job| job.id)) {
            None => Ok(None),
            Some(id) => Ok(self.tables.jobs(&[id])?.pop()),
        }
    }

    pub(crate) fn heartbeat(
        &mut self,
        request: Heartbeat,
        load: LoadAdvice,
    ) -> Result<HeartbeatAnswer> {
        let lease = self.lease(request.lease_id)?;
        let needed = transitions::heartbeat_needs(&lease, &request);
        let jobs = match needed.is_empty() {
            true => Vec::new(),
            false => self.tables.jobs(&needed)?,
        };
        let done = transitions::heartbeat(&self.cx, &lease, &jobs, request, load)?;
        self.settle(done)
    }

    pub(crate) fn ask_back(&mut self, id: LeaseId, jobs: &[JobId]) -> Result<Vec<JobId>> {
        let lease = self.lease(id)?;
        let done = transitions::ask_back(&lease, jobs)?;
        self.settle(done)
    }

    pub(crate) fn report(&mut self, request: ReportRequest) -> Result<()> {
        let lease = self.lease(request.lease_id)?;
        let job = self.concerned(&lease, request.job_id)?;
        let done = transitions::report(&self.cx, &lease, job.as_deref(), request)?;
        self.settle(done)
    }

    pub(crate) fn complete(
        &mut self,
        id: JobId,
        request: &CompleteRequest,
    ) -> Result<CompleteAnswer> {
        let job = self.job(id)?;
        let lease = self.tables.lease(request.lease_id)?;
        let mut read = Ok(());
        let next = next_of(self.tables, &mut read);
        let done = transitions::complete(&self.cx, &job, lease.as_ref(), request, next);
        read?;
        self.settle(done?)
    }

    /// The jobs with these ids, each at the place of its id.
    fn jobs_in_order(&mut self, ids: &[JobId]) -> Result<Vec<Option<Arc<JobRecord>>>> {
        let found = self.tables.jobs(ids)?;
        // Most backends find them in this order.
        if found.iter().map(|job| job.id).eq(ids.iter().copied()) {
            return Ok(found.into_iter().map(Some).collect());
        }
        let by_id: IdMap<JobId, Arc<JobRecord>> =
            found.into_iter().map(|job| (job.id, job)).collect();
        Ok(ids.iter().map(|id| by_id.get(id).cloned()).collect())
    }

    /// Each is answered for itself. All of one lease are taken together: its record is written once.
    pub(crate) fn complete_many(
        &mut self,
        requests: &[(JobId, CompleteRequest)],
    ) -> Result<Vec<Result<CompleteAnswer>>> {
        let ids: Vec<JobId> = requests.iter().map(|(id, _)| *id).collect();
        let jobs = self.jobs_in_order(&ids)?;
        let mut answers: Vec<Result<CompleteAnswer>> =
            ids.iter().map(|id| Err(StoreError::NoJob(*id))).collect();
        // By lease: the places among the requests, and what is there.
        let mut by_lease: Vec<(LeaseId, Vec<usize>, Vec<Answered<'_>>)> = Vec::new();
        for (place, (job, (_, request))) in jobs.iter().zip(requests).enumerate() {
            let Some(job) = job.as_deref() else { continue };
            match by_lease
                .iter_mut()
                .find(|(lease, ..)| *lease == request.lease_id)
            {
                Some((_, places, group)) => {
                    places.push(place);
                    group.push((job, request));
                }
                None => by_lease.push((request.lease_id, vec![place], vec![(job, request)])),
            }
        }
        let mut changes = Changes::default();
        for (lease, places, group) in by_lease {
            let lease = self.tables.lease(lease)?;
            let mut read = Ok(());
            let next = next_of(self.tables, &mut read);
            let done = transitions::complete_many(&self.cx, lease.as_ref(), &group, next);
            read?;
            for (place, answer) in places.into_iter().zip(done.answers) {
                answers[place] = answer.map(|(answer, _)| answer).map_err(Into::into);
            }
            // Leases have no jobs in common, so nothing is changed twice.
            if changes.is_empty() {
                changes = done.changes;
                continue;
            }
            changes.jobs.extend(done.changes.jobs);
            changes.leases.extend(done.changes.leases);
            changes.events.extend(done.changes.events);
            changes.ended.extend(done.changes.ended);
        }
        self.write(changes)?;
        Ok(answers)
    }

    pub(crate) fn release(&mut self, id: LeaseId, request: &ReleaseRequest) -> Result<()> {
        let lease = self.lease(id)?;
        let jobs = self.jobs_of(&lease)?;
        let done = transitions::release(&self.cx, &lease, &jobs, request)?;
        self.settle(done)
    }

    pub(crate) fn revoke(&mut self, id: LeaseId, request: &RevokeRequest) -> Result<()> {
        let lease = self.lease(id)?;
        let jobs = self.jobs_of(&lease)?;
        let done = transitions::revoke(&self.cx, &lease, &jobs, request)?;
        self.settle(done)
    }

    pub(crate) fn expire(&mut self, id: LeaseId, proof: Proof) -> Result<()> {
        let lease = self.lease(id)?;
        let jobs = self.jobs_of(&lease)?;
        let done = transitions::expire(&self.cx, &lease, &jobs, proof)?;
        self.settle(done)
    }

    pub(crate) fn time_out(&mut self, id: LeaseId, command: TimeOut) -> Result<JobState> {
        let lease = self.lease(id)?;
        let jobs = self.jobs_of(&lease)?;
        let done = transitions::time_out(&self.cx, &lease, &jobs, command)?;
        self.settle(done)
    }
}
