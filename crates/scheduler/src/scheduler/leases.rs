//! Leases: granted, renewed, answered for, given back.

use jobtree_protocol::{
    AckRequest, ApiError, ClaimAnswer, ClaimRequest, CompleteAnswer, CompleteManyAnswer,
    CompleteManyRequest, CompleteRequest, Each, ErrorCode, FieldError, Heartbeat, HeartbeatAnswer,
    JobId, JobState, LeaseAnswer, LeaseAsk, LeaseId, LeaseLimits, LeaseNumbers, LeaseRequest,
    LeaseView, Limits, LogAppend, LogAppendAnswer, NodeId, ReleaseRequest, ReportRequest,
    RevokeRequest,
};
use jobtree_queue::LeaseRecord;
use jobtree_queue::transitions::{LoadAdvice, TakeUp, TransitionError};
use jobtree_store::StoreError;

use super::{Scheduler, checked};
use crate::Reply;
use crate::core::{Call, CapacityRequest, JobAnswer, JobRequest, WorkerClaim};
use crate::error::told;

impl Scheduler {
    /// Claims jobs: each lease is for jobs that its worker runs one after the other. If there is nothing, it waits for
    /// `wait_sec`, and the answer may be empty.
    pub fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        self.claim_by(request, false)
    }

    /// Claims jobs for a worker inside this process. If the process alone has the store open, the leases say so: they end
    /// when another process opens it.
    pub(crate) fn claim_in_process(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        self.claim_by(request, self.store().is_owned())
    }

    fn claim_by(&self, request: ClaimRequest, in_process: bool) -> Reply<Vec<ClaimAnswer>> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        if let Err(elsewhere) = self.check_node(request.node_id.as_ref()) {
            return elsewhere;
        }
        let leases = |granted: &Vec<ClaimAnswer>| granted.iter().map(|it| it.lease_id).collect();
        let claim = WorkerClaim {
            request,
            in_process,
        };
        self.call_for_leases(leases, |caller| Call::Claim(claim, caller))
    }

    /// Checks that a caller means the node of this scheduler.
    fn check_node<T: Send + 'static>(&self, wanted: Option<&NodeId>) -> Result<(), Reply<T>> {
        let own = &self.options().node;
        if wanted.is_none_or(|node| node == own) {
            return Ok(());
        }
        let message = format!(
            "is not the node of this scheduler: ask the one of it, or leave it out; this is {own}"
        );
        let wrong = FieldError::new("node_id", message);
        Err(Reply::ready(Err(ApiError::invalid(vec![wrong]))))
    }

    /// Asks for capacity, or with a `job_id` takes up that job's dispatch.
    pub fn lease_request(&self, request: LeaseRequest) -> Reply<LeaseAnswer> {
        if let Err(elsewhere) = self.check_node(request.node_id.as_ref()) {
            return elsewhere;
        }
        let published = self.engine.published();
        let limits = Limits {
            cost_units: published.policy.largest_cost(&request.addon_id),
            ..self.limits().clone()
        };
        let ask = match checked(request.validate(&limits)) {
            Err(wrong) => return wrong,
            Ok(ask) => ask,
        };
        let job = match ask {
            LeaseAsk::TakeUp(job) => job,
            LeaseAsk::Capacity {
                addon_id,
                job_type,
                cost_units,
                priority,
                constraints,
                expected_duration_sec,
            } => {
                let request = Box::new(CapacityRequest {
                    addon_id,
                    job_type,
                    cost_units,
                    priority,
                    constraints,
                    expected_duration_sec,
                    instance_id: request.instance_id,
                    request_key: request.request_key,
                    pids: request.pids,
                    process_origin: request.process_origin,
                });
                if request.name().is_some() {
                    // A caller that does not take the answer may ask again: the lease stays.
                    return self.call(|caller| Call::Capacity(request, caller));
                }
                let leases = |answer: &LeaseAnswer| answer.lease_id.into_iter().collect();
                return self.call_for_leases(leases, |caller| Call::Capacity(request, caller));
            }
        };
        let command = TakeUp {
            lease_id: LeaseId::generate(),
            instance_id: request.instance_id,
            pids: request.pids.clone(),
            process_origin: request.process_origin.clone(),
        };
        let this = self.clone();
        let answer = self.store().take_up(self.stamp(), job, command);
        Reply::new(async move {
            match answer.await {
                Ok(lease) => this.accepted(&lease).await,
                Err(error) if is_queued(&error) => {
                    let request = JobRequest {
                        job,
                        instance_id: request.instance_id,
                        pids: request.pids,
                        process_origin: request.process_origin,
                    };
                    match this.request(request).await? {
                        JobAnswer::Granted(_, answer) | JobAnswer::Denied(answer) => Ok(answer),
                    }
                }
                Err(error) => Err(told(&error)),
            }
        })
    }

    /// Returns the answer for a reservation that became a lease, with the numbers of this instant.
    async fn accepted(&self, lease: &LeaseRecord) -> Result<LeaseAnswer, ApiError> {
        let load = self.load().await?;
        Ok(LeaseAnswer {
            approved: true,
            lease_id: Some(lease.id),
            granted_units: Some(lease.cost()),
            expires_at: Some(lease.expires_at),
            retry_after_sec: None,
            limits: LeaseLimits {
                ttl_sec: lease.ttl_sec,
                max_runtime_sec: lease.jobs.first().and_then(|job| job.max_runtime_sec),
                ..self.engine.published().limits.clone()
            },
            reason: "the reserved job is accepted".to_owned(),
            numbers: LeaseNumbers {
                used: load.used,
                requested: lease.cost(),
                capacity: load.capacity,
                busy: load.busy,
            },
        })
    }

    /// Asks for one job that waits: it is admitted in the same call, or the answer says why not.
    fn request(&self, request: JobRequest) -> Reply<JobAnswer> {
        let leases = |answer: &JobAnswer| match answer {
            JobAnswer::Granted(lease, _) => vec![lease.id],
            JobAnswer::Denied(_) => Vec::new(),
        };
        self.call_for_leases(leases, |caller| Call::Request(request, caller))
    }

    /// Accepts a job: a reserved one runs under the lease given or a new one; one that still waits is admitted in the same
    /// call, if it may start now.
    pub fn ack(&self, job: JobId, request: AckRequest) -> Reply<LeaseView> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let this = self.clone();
        let answer = self
            .store()
            .ack(self.stamp(), job, request.clone(), LeaseId::generate());
        Reply::new(async move {
            match answer.await {
                Ok(lease) => Ok(lease.view()),
                // With a lease of capacity the job would hold units twice: it has to be reserved first.
                Err(error) if is_queued(&error) && request.lease_id.is_none() => {
                    let request = JobRequest {
                        job,
                        instance_id: request.instance_id,
                        pids: request.pids,
                        process_origin: request.process_origin,
                    };
                    match this.request(request).await? {
                        JobAnswer::Granted(lease, _) => Ok(lease.view()),
                        JobAnswer::Denied(answer) => Err(denied(job, &answer)),
                    }
                }
                Err(error) => Err(told(&error)),
            }
        })
    }

    /// Renews a lease. The answer says what the worker should do.
    pub fn heartbeat(&self, request: Heartbeat) -> Reply<HeartbeatAnswer> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let load = LoadAdvice(self.engine.advice(request.lease_id));
        let answer = self.store().heartbeat(self.stamp(), request, load);
        self.reply(answer, |answer| answer)
    }

    /// Notes what a running job tells.
    pub fn report(&self, request: ReportRequest) -> Reply<()> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let answer = self.store().report(self.stamp(), request);
        self.reply(answer, |()| ())
    }

    /// Keeps what a running job printed, for [`Scheduler::log`].
    pub fn append_log(&self, job: JobId, append: LogAppend) -> Reply<LogAppendAnswer> {
        let answer = self.store().append_log(self.stamp(), job, append);
        self.reply(answer, |answer| answer)
    }

    /// Takes a worker's answer.
    pub fn complete(&self, job: JobId, request: CompleteRequest) -> Reply<CompleteAnswer> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let answer = self.store().complete(self.stamp(), job, request);
        self.reply(answer, |answer| answer)
    }

    /// Takes many answers of one lease in one commit, each answered for itself.
    pub fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer> {
        let mut refused: Vec<Option<jobtree_protocol::ApiError>> = Vec::new();
        let mut sound = Vec::with_capacity(request.jobs.len());
        for (job, request) in request.each() {
            match request.validate(self.limits()) {
                Ok(()) => {
                    sound.push((job, request));
                    refused.push(None);
                }
                Err(fields) => refused.push(Some(jobtree_protocol::ApiError::invalid(fields))),
            }
        }
        let answer = self.store().complete_many(self.stamp(), sound);
        self.reply(answer, move |answers| {
            let mut answers = answers.into_iter();
            let each = refused.into_iter().map(|error| match error {
                Some(error) => Each::Refused { error },
                None => match answers.next() {
                    Some(Ok(answer)) => Each::Done(answer),
                    Some(Err(why)) => Each::Refused { error: told(&why) },
                    None => unreachable!("one answer for each completion"),
                },
            });
            CompleteManyAnswer {
                jobs: each.collect(),
            }
        })
    }

    /// Gives a lease back.
    pub fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        let answer = self.store().release(self.stamp(), lease, request);
        self.reply(answer, |()| ())
    }

    /// Takes a lease away: its jobs wait again.
    pub fn revoke(&self, lease: LeaseId, request: RevokeRequest) -> Reply<()> {
        let answer = self.store().revoke(self.stamp(), lease, request);
        self.reply(answer, |()| ())
    }

    /// A lease.
    pub fn lease(&self, id: LeaseId) -> Reply<LeaseView> {
        let answer = self.store().lease(id);
        self.reply(answer, |lease| lease.view())
    }

    /// All leases that hold.
    pub fn leases(&self) -> Reply<Vec<LeaseView>> {
        let answer = self.store().live_leases();
        self.reply(answer, |leases| {
            leases.iter().map(|lease| lease.view()).collect()
        })
    }
}

/// Returns `true` if a command was refused because the job still waits in the queue.
fn is_queued(error: &StoreError) -> bool {
    let StoreError::Refused(why) = error else {
        return false;
    };
    matches!(
        **why,
        TransitionError::WrongState {
            state: JobState::Queued,
            ..
        }
    )
}

fn denied(job: JobId, answer: &LeaseAnswer) -> ApiError {
    let retry = answer.retry_after_sec;
    let retry = retry.map_or(String::new(), |seconds| {
        format!("; ask again in {seconds} s")
    });
    let message = format!("job {job} may not start now: {}{retry}", answer.reason);
    ApiError::new(ErrorCode::NotNow, message)
}
