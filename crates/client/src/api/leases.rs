//! Leases: asked for, renewed, answered for, given back.

use std::time::Duration;

use jobtree_protocol::{
    AckRequest, AddonId, ClaimAnswer, ClaimRequest, ClaimedLeases, CompleteAnswer,
    CompleteManyAnswer, CompleteManyRequest, CompleteRequest, DispatchableJobs, Heartbeat,
    HeartbeatAnswer, HeartbeatBody, HeartbeatManyAnswer, HeartbeatManyRequest, JobId, JobView,
    LeaseAnswer, LeaseId, LeaseList, LeaseRequest, LeaseView, PidsRequest, ReleaseRequest,
    ReportBody, ReportRequest, RevokeRequest, paths,
};

use crate::call::{Call, Result};
use crate::client::Client;
use crate::query::Query;

impl Client {
    /// Claims jobs: each lease is for jobs that are run one after the other. If there is nothing, the daemon waits for
    /// `wait_sec`, and the answer may be empty.
    ///
    /// # Errors
    /// If the claim is refused, or the daemon does not answer.
    pub fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimAnswer>> {
        // Without an id, what was granted in an answer that got lost would be claimed beside.
        let call = self.post(paths::CLAIM).json(request)?;
        let call = call.repeated_if(request.lease_id.is_some());
        let wait = Duration::from_secs(request.wait_sec.into());
        let claimed: ClaimedLeases = call.waits(wait).read()?;
        Ok(claimed.leases)
    }

    /// Takes a worker's answer.
    ///
    /// # Errors
    /// If the lease is lost, the state does not allow it, or the daemon does not answer.
    pub fn complete(&self, id: JobId, request: &CompleteRequest) -> Result<CompleteAnswer> {
        let call = self.post(paths::at(paths::COMPLETE, id)).json(request)?;
        call.repeated().read()
    }

    /// Takes many answers of one lease in one commit, each answered for itself.
    ///
    /// # Errors
    /// If the daemon takes none of them, or does not answer.
    pub fn complete_many(&self, request: &CompleteManyRequest) -> Result<CompleteManyAnswer> {
        self.completing(request)?.repeated().read()
    }

    pub(crate) fn completing(&self, request: &CompleteManyRequest) -> Result<Call<'_>> {
        self.post(paths::COMPLETE_MANY).json(request)
    }

    /// Takes up a dispatch.
    ///
    /// # Errors
    /// If it is not there to be taken up, or the daemon does not answer.
    pub fn ack(&self, id: JobId, request: &AckRequest) -> Result<LeaseView> {
        let recognized = request.lease_id.is_some() || request.instance_id.is_some();
        let call = self.post(paths::at(paths::ACK, id)).json(request)?;
        call.repeated_if(recognized).read()
    }

    /// Dispatches that wait to be taken up, of an addon or of all. If there is none, the daemon waits so long for one.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn dispatchable(&self, addon: Option<&AddonId>, wait: Duration) -> Result<Vec<JobView>> {
        let seconds = wait.as_secs();
        let query = Query::default()
            .with_some("addon_id", addon)
            .with_some("wait_sec", (seconds > 0).then_some(seconds));
        let call = self.get(paths::DISPATCHABLE).query(query);
        let found: DispatchableJobs = call.waits(wait).read()?;
        Ok(found.jobs)
    }

    /// Asks for capacity, or takes up a dispatch.
    ///
    /// # Errors
    /// If the request is refused, or the daemon does not answer. That there is no capacity is an answer.
    pub fn lease_request(&self, request: &LeaseRequest) -> Result<LeaseAnswer> {
        let call = self.post(paths::LEASE_REQUEST).json(request)?;
        call.repeated_if(request.instance_id.is_some()).read()
    }

    /// A page of the leases that hold, from the first or after one.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn leases(&self, after: Option<LeaseId>) -> Result<LeaseList> {
        let query = Query::default().with_some("after", after);
        self.get(paths::LEASES).query(query).read()
    }

    /// One lease.
    ///
    /// # Errors
    /// If there is no such lease, or the daemon does not answer.
    pub fn lease(&self, id: LeaseId) -> Result<LeaseView> {
        self.get(paths::at(paths::LEASE, id)).read()
    }

    /// Renews a lease. The answer says what the worker should do.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatAnswer> {
        let path = paths::at(paths::HEARTBEAT, beat.lease_id);
        let body = HeartbeatBody {
            job_id: beat.job_id,
            progress: beat.progress,
            pids: beat.pids,
        };
        self.post(path).json(&body)?.repeated().read()
    }

    /// Renews many leases of one worker, each answered for itself.
    ///
    /// # Errors
    /// If the daemon takes none of them, or does not answer.
    pub fn heartbeat_many(&self, request: &HeartbeatManyRequest) -> Result<HeartbeatManyAnswer> {
        self.beating(request)?.repeated().read()
    }

    pub(crate) fn beating(&self, request: &HeartbeatManyRequest) -> Result<Call<'_>> {
        self.post(paths::HEARTBEAT_MANY).json(request)
    }

    /// Notes what a running job tells.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn report(&self, report: ReportRequest) -> Result<()> {
        let path = paths::at(paths::REPORT, report.lease_id);
        let body = ReportBody {
            job_id: report.job_id,
            progress: report.progress,
            metrics: report.metrics,
            pids: report.pids,
        };
        self.post(path).json(&body)?.repeated().done()
    }

    /// Gives a lease back.
    ///
    /// # Errors
    /// If it is not one's own any more, or the daemon does not answer.
    pub fn release(&self, id: LeaseId, request: &ReleaseRequest) -> Result<()> {
        let call = self.post(paths::at(paths::RELEASE, id)).json(request)?;
        call.repeated().done()
    }

    /// Takes a lease away: its jobs wait again.
    ///
    /// # Errors
    /// If there is no such lease, or the daemon does not answer.
    pub fn revoke(&self, id: LeaseId, reason: Option<&str>) -> Result<()> {
        let request = RevokeRequest {
            reason: reason.map(str::to_owned),
        };
        let call = self.post(paths::at(paths::REVOKE, id)).json(&request)?;
        call.repeated().done()
    }

    /// Names the processes that work under a lease, in place of those named before.
    ///
    /// # Errors
    /// If the lease is lost, or the daemon does not answer.
    pub fn pid(&self, id: LeaseId, pids: Vec<u32>) -> Result<()> {
        let call = self.post(paths::at(paths::PID, id));
        call.json(&PidsRequest { pids })?.repeated().done()
    }
}
