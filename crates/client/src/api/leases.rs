//! Leases: asked for, renewed, answered for, given back.

use std::time::Duration;

use jobtree_protocol::operations::{
    AckJob, ClaimJobs, DispatchableQuery, LeaseQuery, ListDispatchable, ListLeases, RegisterPids,
    RenewLease, ReportJob, RequestLease, RevokeLease,
};
use jobtree_protocol::{
    AckRequest, AddonId, ClaimAnswer, ClaimRequest, Heartbeat, HeartbeatAnswer, HeartbeatBody,
    JobId, JobView, LeaseAnswer, LeaseId, LeaseList, LeaseRequest, LeaseView, PidsRequest,
    ReportBody, ReportRequest, RevokeRequest,
};

use jobtree_worker::process_origin;

use crate::call::Result;
use crate::client::Client;

impl Client {
    /// Claims jobs: each lease is for jobs that are run one after the other. If there is nothing, the daemon waits for
    /// `wait_sec`, and the answer may be empty.
    ///
    /// # Errors
    /// If the claim is refused, or the daemon does not answer.
    pub fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimAnswer>> {
        // Without an id, what was granted in an answer that got lost would be claimed beside.
        let call = self.prepare::<ClaimJobs>((), &(), request)?;
        let call = call.repeated_if(request.lease_id.is_some());
        let wait = Duration::from_secs(request.wait_sec.into());
        Ok(call.waits(wait).answer()?.leases)
    }

    /// Takes up a dispatch.
    ///
    /// # Errors
    /// If it is not there to be taken up, or the daemon does not answer.
    pub fn ack(&self, id: JobId, request: &AckRequest) -> Result<LeaseView> {
        let recognized = request.lease_id.is_some() || request.instance_id.is_some();
        let call = self.prepare::<AckJob>(id, &(), request)?;
        call.repeated_if(recognized).answer()
    }

    /// Dispatches that wait to be taken up, of an addon or of all. If there is none, the daemon waits so long for one.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn dispatchable(&self, addon: Option<&AddonId>, wait: Duration) -> Result<Vec<JobView>> {
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
        let query = DispatchableQuery {
            addon_id: addon.cloned(),
            wait_sec: (seconds > 0).then_some(seconds),
        };
        let call = self.prepare::<ListDispatchable>((), &query, &())?;
        Ok(call.waits(wait).answer()?.jobs)
    }

    /// Asks for capacity, or takes up a dispatch.
    ///
    /// # Errors
    /// If the request is refused, or the daemon does not answer. That there is no capacity is an answer.
    pub fn lease_request(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        let call = self.prepare::<RequestLease>((), &(), request)?;
        call.repeated_if(request.instance_id.is_some()).answer()
    }

    /// A page of the leases that hold, from the first or after one.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn leases(&self, after: Option<LeaseId>) -> Result<LeaseList> {
        let query = LeaseQuery {
            after,
            ..LeaseQuery::default()
        };
        self.call::<ListLeases>((), &query, &())
    }

    /// Renews a lease. The answer says what the worker should do.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        let body = HeartbeatBody {
            job_id: beat.job_id,
            progress: beat.progress,
            pids: beat.pids,
            process_origin: beat.process_origin,
            began_ms_ago: beat.began_ms_ago,
            given_back: beat.given_back,
            paused: beat.paused,
        };
        self.call::<RenewLease>(beat.lease_id, &(), &body)
    }

    /// Notes what a running job tells.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn report(&self, report: ReportRequest) -> Result<()> {
        let body = ReportBody {
            job_id: report.job_id,
            progress: report.progress,
            metrics: report.metrics,
            pids: report.pids,
            process_origin: report.process_origin,
        };
        self.call::<ReportJob>(report.lease_id, &(), &body)
    }

    /// Takes a lease away: its jobs wait again.
    ///
    /// # Errors
    /// If there is no such lease, or the daemon does not answer.
    pub fn revoke(&self, id: LeaseId, reason: Option<&str>) -> Result<()> {
        let request = RevokeRequest {
            reason: reason.map(str::to_owned),
        };
        self.call::<RevokeLease>(id, &(), &request)
    }

    /// Names the processes of this machine that work under a lease, in place of those named before. How a daemon on this
    /// machine recognises them is sent along.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn pid(&self, id: LeaseId, pids: Vec<u32>) -> Result<()> {
        let process_origin = process_origin(&pids);
        let request = PidsRequest {
            pids,
            process_origin,
        };
        self.call::<RegisterPids>(id, &(), &request)
    }
}
