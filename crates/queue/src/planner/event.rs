//! What happened, as the planner is told, and what it proposes.

use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use jobtree_protocol::{AddonId, JobId, JobType, LeaseId, NodeId, QuietState};

use super::ClaimAsk;
use crate::admission::Verdict;
use crate::candidate::{Candidate, ConcurrencyKey};
use crate::ledger::Holder;
use crate::now::Now;
use crate::policy::Policy;
use crate::signals::{HostSignals, Sample};

/// The job types that a listener is told of reservations of. The default is all.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListenScope {
    /// Only types of this addon.
    pub addon: Option<AddonId>,
    /// Only this type.
    pub job_type: Option<JobType>,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// These wait now: new, tried again, rescued, or free of what they depended on. One that is known here as proposed or
    /// reserved is left alone, for this may be old news: [`Event::Returned`] brings it back, or [`Event::Freed`] first.
    Submitted(Vec<Candidate>),
    /// This one waits no more: it was cancelled, or another scheduler has it.
    Withdrawn(JobId),
    /// A job waits no more here: it is reserved for another node, which may have no worker for it. It comes back with
    /// [`Event::Submitted`], or goes with [`Event::Withdrawn`]. Its reservation may be a probe of its type, and one over all
    /// nodes is enough.
    ReservedElsewhere {
        /// The job.
        candidate: Candidate,
        /// The latest time at which it is back, on the monotonic clock.
        until: Duration,
    },
    /// What became of a proposal; of a batch, under its first job.
    Answered {
        /// The job.
        job: JobId,
        /// What became of it.
        outcome: Outcome,
    },
    /// A reservation was accepted: by a request for that job, or an acknowledgement.
    Accepted {
        /// The job.
        job: JobId,
        /// The lease that it runs under.
        lease: LeaseId,
    },
    /// A reservation went back to the queue, at its old place: it was not accepted.
    Returned {
        /// The job.
        job: JobId,
        /// Its record's revision now.
        revision: u64,
    },
    /// A lease is live that is not known here: at the start, or of an ask without a job.
    Leased(LiveLease),
    /// A lease was released, revoked or ran out; or a reservation ended otherwise than by being accepted.
    Freed(Holder),
    /// A reservation is live that is not known here: at the start.
    Dispatched {
        /// The job.
        candidate: Candidate,
        /// Until when it may be accepted, on the monotonic clock.
        until: Duration,
    },
    /// The machine was measured.
    Sample(Sample),
    /// The host said something of itself.
    Pushed(HostSignals),
    /// Another policy is in force.
    PolicyChanged(Arc<Policy>),
    /// An addon is paused or resumed.
    AddonPaused(AddonId, bool),
    /// A type is paused or resumed.
    TypePaused(AddonId, JobType, bool),
    /// So many jobs with a key run on other nodes.
    KeyElsewhere {
        /// The addon.
        addon: AddonId,
        /// The key.
        key: Arc<str>,
        /// How many.
        running: u32,
    },
    /// What past runs of this type tell, by the 95th percentile.
    Learnt {
        /// The addon.
        addon: AddonId,
        /// The type.
        job_type: JobType,
        /// The expected duration of such jobs, if it is known.
        takes: Option<Duration>,
        /// What may be charged for each unit that they declare, if that is known.
        cost_factor: Option<f64>,
    },
    /// The node has these labels now.
    Labels(Vec<String>),
    /// The node takes no more jobs, or takes them again.
    Drain(bool),
    /// A worker asks for jobs, and waits until it gets some or the ask ends.
    Claim(ClaimAsk),
    /// An ask has ended: its worker went, or was answered.
    ClaimEnded(u64),
    /// A caller asked for what is dispatchable, or for capacity, of an addon: reservations of it are accepted here, for a
    /// while. The same step reserves what may start. Claims, requests and acceptances count by themselves.
    Polled {
        /// The addon; `None` if of all.
        addon: Option<AddonId>,
    },
    /// So many listen for reservations now: webhooks, event subscribers, long polls that wait. The number replaces the one
    /// that was said before of the same scope.
    Listening {
        /// The job types that they listen for.
        scope: ListenScope,
        /// The number of listeners.
        listeners: u32,
    },
    /// A scheduling pass is wanted.
    Kick,
    /// The time of [`Effect::WakeAt`] has come.
    Timer,
}

/// What became of a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is so. With a lease it runs; without, it waits to be accepted.
    Accepted(Option<LeaseId>),
    /// The job had changed: it is not ours to start. If it still waits it is submitted again, after
    /// [`Event::KeyElsewhere`] if its concurrency key was taken.
    Lost,
    /// The store could not say: the job waits as before.
    Failed,
}

/// A lease that is live.
#[derive(Clone, Debug)]
pub struct LiveLease {
    /// The lease.
    pub lease: LeaseId,
    /// Its addon.
    pub addon: AddonId,
    /// Its units; of a batch, the largest declared cost.
    pub units: u32,
    /// The type of its jobs, by which they are charged; none of a lease of capacity alone.
    pub job_type: Option<JobType>,
    /// The key of its job.
    pub key: Option<ConcurrencyKey>,
    /// How long it is expected to last from now on.
    pub ends_in: Option<Duration>,
}

/// What is to be done. Everything but [`Effect::WakeAt`] is against the store.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Reserve this job for this node (DISPATCHING), if it still is at this revision.
    Reserve {
        /// The job.
        job: JobId,
        /// What to compare and swap on.
        revision: u64,
        /// The node.
        node: NodeId,
        /// Until when it may be accepted.
        until: Now,
        /// No caller is known to serve its type.
        probe: bool,
        /// By which numbers it was decided.
        verdict: Verdict,
    },
    /// Grant one lease for these jobs, in this order, to the worker that asked. The answer names the first.
    Grant {
        /// The ask.
        ask: u64,
        /// The jobs, each with what to compare and swap on.
        jobs: Vec<(JobId, u64)>,
        /// The units of the lease.
        cost: u32,
        /// The node.
        node: NodeId,
        /// By which numbers it was decided.
        verdict: Verdict,
    },
    /// Grant a lease for this job, which is reserved for this node, to the worker that asked. The reservation becomes the
    /// lease; nothing is admitted again.
    Accept {
        /// The ask.
        ask: u64,
        /// The job.
        job: JobId,
        /// What to compare and swap on.
        revision: u64,
    },
    /// This reservation was not accepted in time.
    ReturnUnclaimed {
        /// The job.
        job: JobId,
    },
    /// This job is denied for another reason than the one that was written last.
    WriteDenial {
        /// The job.
        job: JobId,
        /// The reason and its numbers.
        verdict: Verdict,
    },
    /// This job may miss its deadline.
    AtRisk {
        /// The job.
        job: JobId,
        /// What is left for waiting; negative when it is too late.
        slack: SignedDuration,
    },
    /// The machine's state has changed.
    StateChanged {
        /// What it was.
        from: QuietState,
        /// What it is.
        to: QuietState,
    },
    /// Come back then at the latest.
    WakeAt(Now),
}
