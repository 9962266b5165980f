//! Leases: granted, renewed, answered for, given back.

use jobtree_protocol::{
    AckRequest, ClaimAnswer, ClaimRequest, CompleteAnswer, CompleteManyAnswer, CompleteManyRequest,
    CompleteRequest, Each, FieldError, Heartbeat, HeartbeatAnswer, JobId, LeaseAnswer, LeaseAsk,
    LeaseId, LeaseRequest, LeaseView, Limits, LogAppend, LogAppendAnswer, ReleaseRequest,
    ReportRequest, RevokeRequest,
};
use jobtree_queue::transitions::{LoadAdvice, TakeUp};

use super::{Scheduler, checked};
use crate::Reply;
use crate::core::{Call, Told};
use crate::error::told;

impl Scheduler {
    /// Claims jobs: each lease is for jobs that its worker runs one after the other. If there is nothing, it waits for
    /// `wait_sec`, and the answer may be empty.
    pub fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let own = &self.options().node;
        if request.node_id.as_ref().is_some_and(|node| node != own) {
            let message = format!(
                "is not the node of this scheduler: ask the one of it, or leave it out; this is {own}"
            );
            return Reply::ready(Err(jobtree_protocol::ApiError::invalid(vec![
                FieldError::new("node_id", message),
            ])));
        }
        self.call(Call::Claim(request), |told| match told {
            Told::Claimed(leases) => Some(leases),
            _ => None,
        })
    }

    /// Asks for capacity, or with a `job_id` takes up that job's dispatch.
    pub fn lease_request(&self, request: LeaseRequest) -> Reply<LeaseAnswer> {
        let published = self.engine.published();
        let limits = Limits {
            cost_units: published.policy.largest_cost(&request.addon_id),
            ..self.limits().clone()
        };
        let ask = match checked(request.validate(&limits)) {
            Err(wrong) => return wrong,
            Ok(ask) => ask,
        };
        let LeaseAsk::TakeUp(job) = ask else {
            let call = Call::Lease {
                ask,
                instance_id: request.instance_id,
                pids: request.pids,
            };
            return self.call(call, |told| match told {
                Told::Lease(answer) => Some(answer),
                _ => None,
            });
        };
        let command = TakeUp {
            lease_id: LeaseId::generate(),
            instance_id: request.instance_id,
            pids: request.pids,
        };
        let limits = published.limits.clone();
        let answer = self.store().take_up(self.stamp(), job, command);
        self.reply(answer, move |lease| LeaseAnswer {
            approved: true,
            lease_id: Some(lease.id),
            retry_after_sec: None,
            limits: jobtree_protocol::LeaseLimits {
                ttl_sec: lease.ttl_sec,
                max_runtime_sec: lease.jobs.first().and_then(|job| job.max_runtime_sec),
                ..limits
            },
            reason: "the dispatch is taken up".to_owned(),
            numbers: jobtree_protocol::LeaseNumbers {
                requested: lease.cost(),
                ..Default::default()
            },
        })
    }

    /// Takes up a dispatch: DISPATCHING becomes RUNNING, under the lease given or a new one.
    pub fn ack(&self, job: JobId, request: AckRequest) -> Reply<LeaseView> {
        if let Err(wrong) = checked(request.validate(self.limits())) {
            return wrong;
        }
        let answer = self
            .store()
            .ack(self.stamp(), job, request, LeaseId::generate());
        self.reply(answer, |lease| lease.view())
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
