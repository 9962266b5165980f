//! A process's way to its scheduler, as the worker sees it: calls go into the mailbox of the simulation, which loses, delays
//! and doubles them.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use jobtree_protocol::{
    ApiError, ClaimAnswer, ClaimRequest, CompleteManyAnswer, CompleteManyRequest, ErrorCode,
    HeartbeatManyAnswer, HeartbeatManyRequest, JobId, LeaseId, LogAppend, LogAppendAnswer,
    ReleaseRequest,
};
use jobtree_runtime::sim;
use jobtree_worker::reply::Promised;
use jobtree_worker::{Grantor, Poke, Reply};

use super::ledger::Ledger;
use super::mailbox::{Ask, Command, Mail, Mailbox, Place, ProcessId};

pub(super) struct Link {
    process: ProcessId,
    mailbox: Arc<Mailbox>,
    ledger: Arc<Ledger>,
    /// The process is gone: its worker only has to end.
    is_dead: AtomicBool,
    poke: Mutex<Option<Poke>>,
}

impl Link {
    pub(super) fn new(process: ProcessId, mailbox: &Arc<Mailbox>, ledger: &Arc<Ledger>) -> Self {
        Link {
            process,
            mailbox: Arc::clone(mailbox),
            ledger: Arc::clone(ledger),
            is_dead: AtomicBool::new(false),
            poke: Mutex::default(),
        }
    }

    /// The process is gone.
    pub(super) fn cut(&self) {
        self.is_dead.store(true, Ordering::Relaxed);
    }

    /// Something happened to a lease.
    pub(super) fn poke(&self, lease: LeaseId) {
        let poke = {
            let poke = self.poke.lock().unwrap_or_else(PoisonError::into_inner);
            poke.clone()
        };
        if let Some(poke) = poke {
            poke(lease);
        }
    }

    fn ask<T: Send + 'static>(&self, make: impl FnOnce(Place<T>) -> Ask) -> Promised<T> {
        let (place, promised) = Place::new();
        let ask = make(place);
        if self.is_dead.load(Ordering::Relaxed) {
            ask.refuse(gone());
        } else {
            self.mailbox.push(Mail::Call(self.process, ask));
        }
        promised
    }
}

/// What a worker whose process is gone hears, so that it ends.
pub(super) fn gone() -> ApiError {
    ApiError::new(ErrorCode::LeaseLost, "the simulated process is gone")
}

impl Grantor for Link {
    fn claim(&self, mut request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        // They differ from one run of the program to the next.
        request.pids.clear();
        Reply::new(Claiming {
            promised: self.ask(|place| Ask::Claim(request, place)),
            process: self.process,
            mailbox: Arc::clone(&self.mailbox),
            is_answered: false,
        })
    }

    fn heartbeat_many(&self, request: HeartbeatManyRequest) -> Reply<HeartbeatManyAnswer> {
        for beat in &request.leases {
            for job in &beat.given_back {
                self.ledger.give_back(self.process, beat.lease_id, *job);
            }
        }
        Reply::new(self.ask(|place| Ask::Command(Command::Beat(request, place))))
    }

    fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer> {
        for job in &request.jobs {
            let job = Some(job.job_id);
            self.ledger
                .answered_for(self.process, request.lease_id, job);
        }
        Reply::new(self.ask(|place| Ask::Command(Command::Complete(request, place))))
    }

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        self.ledger.answered_for(self.process, lease, None);
        Reply::new(self.ask(|place| Ask::Command(Command::Release(lease, request, place))))
    }

    fn append_log(&self, job: JobId, append: LogAppend) -> Reply<LogAppendAnswer> {
        Reply::new(self.ask(|place| Ask::Command(Command::Log(job, append, place))))
    }

    /// Each machine was started at another time.
    fn mono(&self) -> Duration {
        let booted = Duration::from_secs(500 + 31 * self.process.place as u64);
        booted + sim::elapsed().unwrap_or_default()
    }

    fn watch(&self, poke: Poke) {
        *self.poke.lock().unwrap_or_else(PoisonError::into_inner) = Some(poke);
    }

    fn loses_answers(&self) -> bool {
        true
    }
}

/// A claim that waits. Its scheduler is told when the worker does not wait any more.
struct Claiming {
    promised: Promised<Vec<ClaimAnswer>>,
    process: ProcessId,
    mailbox: Arc<Mailbox>,
    is_answered: bool,
}

impl Future for Claiming {
    type Output = Result<Vec<ClaimAnswer>, ApiError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.promised).poll(context);
        self.is_answered = polled.is_ready();
        polled
    }
}

impl Drop for Claiming {
    fn drop(&mut self) {
        if !self.is_answered {
            let untaken = self.promised.leave();
            let leases = untaken.and_then(Result::ok).unwrap_or_default();
            let leases = leases.into_iter().map(|lease| lease.lease_id).collect();
            self.mailbox.push(Mail::Left(self.process, leases));
        }
    }
}
