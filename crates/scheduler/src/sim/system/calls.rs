//! What goes between workers and schedulers: it takes time, gets lost, comes twice.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jobtree_protocol::{
    ApiError, ClaimAnswer, CompleteManyAnswer, Each, ErrorCode, HeartbeatManyAnswer, JobState,
    LeaseId, ReleaseRequest,
};
use jobtree_queue::transitions::LoadAdvice;
use jobtree_store::StoreError;
use jobtree_worker::reply::promise;

use super::dues::Due;
use super::mailbox::{Ask, Command, Mail, Place, ProcessId, Put};
use crate::core::{self, Input, Responder};
use crate::error::told;
use crate::sim::check::Broken;
use crate::sim::sim_event::SimEvent;
use crate::sim::world::World;

/// A call of a worker that has not been answered.
pub(super) struct Call {
    pub(super) process: ProcessId,
    pub(super) ask: Ask,
}

/// An answer that is ready to be sent back.
pub(in crate::sim) struct Ready {
    deliver: Box<dyn FnOnce(&mut World) + Send>,
    /// Whether the store's answer was lost: the scheduler has to read again.
    is_doubtful: bool,
    done: Vec<jobtree_protocol::JobId>,
}

impl fmt::Debug for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "done: {:?}", self.done)
    }
}

/// Something that a scheduler does for a worker.
pub(super) struct UnderWay {
    node: usize,
    life: u64,
    process: ProcessId,
    work: Pin<Box<dyn Future<Output = Ready> + Send>>,
}

fn unavailable(why: &str) -> ApiError {
    ApiError::new(ErrorCode::Unavailable, why)
}

/// A lease is over for its worker when a renewal was refused like this.
fn is_lost(error: &ApiError) -> bool {
    matches!(
        error.code,
        ErrorCode::LeaseLost | ErrorCode::NotFound | ErrorCode::WrongState
    )
}

impl World {
    pub(super) fn ttl(&self) -> Duration {
        self.scenario.policy.dispatch.lease_ttl
    }

    /// How long a worker waits for an answer, as the client of the daemon does.
    fn patience(&self) -> Duration {
        self.ttl() / 6
    }

    /// Takes what the processes have left.
    pub(super) fn take_mail(&mut self) {
        for mail in self.processes().mailbox.take() {
            match mail {
                Mail::Call(process, ask) => {
                    if self.processes().living(process).is_some() {
                        self.called(process, ask);
                    }
                }
                Mail::Left(process, untaken) => self.left(process, untaken),
                Mail::Crash(process) => {
                    if self.processes().living(process).is_some() {
                        self.crash_process(process.place);
                    }
                }
            }
        }
    }

    /// A worker does not wait for its claim any more. What it was granted goes back.
    fn left(&mut self, process: ProcessId, untaken: Vec<LeaseId>) {
        if self.processes().living(process).is_none() {
            return;
        }
        let node = self.processes().all[process.place].node;
        if let Some((life, call)) = self.processes().all[process.place].claim.take() {
            let delay = self.millis(0, 200);
            self.later(delay, SimEvent::Left(node, life, call));
        }
        for lease in untaken {
            self.release_lease(process, lease);
        }
    }

    /// Releases a lease whose answer its worker no longer waits for.
    fn release_lease(&mut self, process: ProcessId, lease: LeaseId) {
        let request = ReleaseRequest {
            return_jobs: true,
            ..ReleaseRequest::default()
        };
        let (place, _) = Place::new();
        let command = Command::Release(lease, request, place);
        self.called(process, Ask::Command(command));
    }

    /// A worker has made a call: it sets out, and ends by itself when the worker's patience is over.
    fn called(&mut self, process: ProcessId, ask: Ask) {
        let patience = match &ask {
            Ask::Claim(request, _) => Duration::from_secs(request.wait_sec.into()),
            _ => Duration::ZERO,
        };
        self.note_attempt(&ask);
        let number = self.processes().next_call;
        self.processes().next_call += 1;
        let again = ask.again();
        self.processes().calls.insert(number, Call { process, ask });
        let patience = patience + self.patience();
        self.later(patience, SimEvent::CallOver(number));
        if self.is_lost_on_its_way(process) {
            return;
        }
        let node = self.processes().all[process.place].node;
        let delay = self.transit();
        let sent = self.time;
        let arrival = Arrival {
            process,
            sent,
            ask: again,
        };
        self.later(delay, SimEvent::Arrive(node, Box::new(arrival)));
    }

    /// The worker's patience with a call is over.
    pub(in crate::sim) fn call_over(&mut self, number: u64) {
        let Some(Call { process, ask }) = self.processes().calls.remove(&number) else {
            return;
        };
        ask.refuse(unavailable("no answer in time"));
        // A scheduler may notice that the connection is gone.
        if matches!(ask, Ask::Claim(..)) && self.rng.chance(500) {
            self.left(process, Vec::new());
        }
    }

    pub(super) fn is_lost_on_its_way(&mut self, process: ProcessId) -> bool {
        let until = self.processes().all[process.place].cut_until;
        let cut = until > self.time && !self.calm;
        self.fault(self.scenario.faults.message_lost) || cut
    }

    /// How long a message takes: mostly moments, and now and then nearly as long as a worker waits for it.
    pub(super) fn transit(&mut self) -> Duration {
        let slow = self.processes().system.slow_messages;
        match self.fault(slow) {
            true => self.millis(100, 1_500),
            false => self.millis(0, 30),
        }
    }

    /// A call has reached its scheduler.
    pub(in crate::sim) fn arrive(&mut self, node: usize, arrival: Arrival) -> Result<(), Broken> {
        let Arrival { process, sent, ask } = arrival;
        if self.nodes[node].core.is_none() {
            if !self.is_lost_on_its_way(process) {
                ask.refuse(unavailable("nothing listens there"));
            }
            return Ok(());
        }
        let is_doubled = self.fault(self.scenario.faults.message_doubled);
        match ask {
            Ask::Claim(request, place) => {
                let (promise, promised) = promise();
                let call = self.nodes[node].new_call();
                let life = self.nodes[node].life;
                if self.processes().living(process).is_some() {
                    self.processes().all[process.place].claim = Some((life, call));
                }
                self.begin_work(node, process, async move {
                    let answer = promised.await;
                    Ready::new(move |world| world.claimed(process, &place, answer))
                });
                let responder = Responder::new(call, |answer| promise.keep(answer));
                let claim = core::WorkerClaim {
                    request,
                    in_process: false,
                };
                self.step(node, Input::Call(core::Call::Claim(claim, responder)))?;
            }
            Ask::Command(command) => {
                if is_doubled {
                    self.perform(node, process, sent, command.again());
                }
                self.perform(node, process, sent, command);
            }
        }
        Ok(())
    }

    fn begin_work(
        &mut self,
        node: usize,
        process: ProcessId,
        work: impl Future<Output = Ready> + Send + 'static,
    ) {
        let life = self.nodes[node].life;
        self.processes().under_way.push(UnderWay {
            node,
            life,
            process,
            work: Box::pin(work),
        });
    }

    /// Asks the store for what a worker wants, as the scheduler's handle does.
    fn perform(&mut self, node: usize, process: ProcessId, sent: Duration, command: Command) {
        self.serve_soon(node);
        match command {
            Command::Beat(request, place) => {
                let ids: Vec<_> = request.leases.iter().map(|beat| beat.lease_id).collect();
                let beats: Vec<_> = request
                    .leases
                    .into_iter()
                    .map(|beat| {
                        let stamp = self.stamp(node);
                        let store = &self.nodes[node].store;
                        store.heartbeat(stamp, beat, LoadAdvice::default())
                    })
                    .collect();
                self.begin_work(node, process, async move {
                    let mut doubtful = false;
                    let mut leases = Vec::new();
                    for beat in beats {
                        leases.push(match beat.await {
                            Ok(answer) => Each::Done(answer),
                            Err(error) => {
                                doubtful |= is_doubtful(&error);
                                Each::Refused {
                                    error: told(&error),
                                }
                            }
                        });
                    }
                    let answer = HeartbeatManyAnswer { leases };
                    Ready::new(move |world| world.renewed(sent, &ids, &place, answer))
                        .doubtful(doubtful)
                });
            }
            Command::Complete(request, place) => {
                let stamp = self.stamp(node);
                let jobs = request.each().collect();
                let answer = self.nodes[node].store.complete_many(stamp, jobs);
                self.begin_work(node, process, async move {
                    let answer = answer.await;
                    let doubtful = answer.as_ref().is_err_and(is_doubtful);
                    let each = |each: Result<_, StoreError>| match each {
                        Ok(answer) => Each::Done(answer),
                        Err(error) => Each::Refused {
                            error: told(&error),
                        },
                    };
                    let answer = answer
                        .map(|answers| CompleteManyAnswer {
                            jobs: answers.into_iter().map(each).collect(),
                        })
                        .map_err(|error| told(&error));
                    let jobs = answer.iter().flat_map(|answer| &answer.jobs);
                    let done = jobs.filter_map(|each| match each {
                        Each::Done(answer) => {
                            (answer.state == JobState::Done).then_some(answer.job_id)
                        }
                        Each::Refused { .. } => None,
                    });
                    let done = done.collect();
                    Ready {
                        done,
                        ..Ready::new(move |_| drop(place.put(answer)))
                    }
                    .doubtful(doubtful)
                });
            }
            Command::Release(lease, request, place) => {
                let stamp = self.stamp(node);
                let answer = self.nodes[node].store.release(stamp, lease, request);
                self.begin_work(node, process, answered(answer, place));
            }
            Command::Log(job, append, place) => {
                let stamp = self.stamp(node);
                let answer = self.nodes[node].store.append_log(stamp, job, append);
                self.begin_work(node, process, answered(answer, place));
            }
        }
    }

    /// Sends back what is ready.
    pub(super) fn send_answers(&mut self) -> Result<(), Broken> {
        let mut context = Context::from_waker(Waker::noop());
        let mut ready = Vec::new();
        let nodes = &self.nodes;
        let processes = self.processes.as_mut().expect("a simulated system");
        processes.under_way.retain_mut(|it| {
            if nodes[it.node].life != it.life {
                return false;
            }
            match it.work.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    ready.push((it.node, it.process, answer));
                    false
                }
            }
        });
        for (node, process, answer) in ready {
            self.shadow.done.extend(&answer.done);
            if answer.is_doubtful {
                self.step(node, Input::Resync)?;
            }
            if !self.is_lost_on_its_way(process) {
                let delay = self.transit();
                self.later(delay, SimEvent::Deliver(process.place, Box::new(answer)));
            }
        }
        Ok(())
    }

    /// An answer has reached its worker.
    pub(in crate::sim) fn deliver(&mut self, answer: Ready) {
        (answer.deliver)(self);
    }

    fn claimed(
        &mut self,
        process: ProcessId,
        place: &Place<Vec<ClaimAnswer>>,
        answer: Result<Vec<ClaimAnswer>, ApiError>,
    ) {
        let leases = answer.iter().flatten().map(|lease| lease.lease_id);
        let leases: Vec<_> = leases.collect();
        match place.put(answer) {
            Put::Taken => {
                let now = self.time;
                for lease in leases {
                    let granted = self.processes().granted.get(&lease);
                    let renewed = granted.copied().unwrap_or(now);
                    let due = Due {
                        process,
                        renewed,
                        attempted: now,
                        is_over: false,
                    };
                    self.processes().dues.insert(lease, due);
                }
            }
            Put::TooLate => {}
            Put::Gone(_) => {
                for lease in leases {
                    self.release_lease(process, lease);
                }
            }
        }
    }

    fn renewed(
        &mut self,
        sent: Duration,
        leases: &[LeaseId],
        place: &Place<HeartbeatManyAnswer>,
        answer: HeartbeatManyAnswer,
    ) {
        let each = answer.leases.iter().map(|each| match each {
            Each::Done(answer) => Ok(answer.give_back.len() as u64),
            Each::Refused { error } => Err(is_lost(error)),
        });
        let each: Vec<_> = each.collect();
        if place.put(Ok(answer)) != Put::Taken {
            return;
        }
        let (now, ttl) = (self.time, self.ttl());
        for (lease, each) in leases.iter().zip(each) {
            let processes = self.processes();
            processes.report.asked_back += each.unwrap_or(0);
            if let Some(due) = processes.dues.get_mut(lease) {
                match each {
                    // The worker may have stopped by its own clock before the answer came.
                    Ok(_) if now >= due.renewed + ttl * 2 / 3 => due.is_over = true,
                    Ok(_) => due.renewed = due.renewed.max(sent),
                    Err(lost) => due.is_over |= lost,
                }
            }
        }
    }
}

/// Waits for the store, and puts its answer where the worker waits.
async fn answered<T: Send + 'static>(answer: jobtree_store::Answer<T>, place: Place<T>) -> Ready {
    let answer = answer.await;
    let doubtful = answer.as_ref().is_err_and(is_doubtful);
    let answer = answer.map_err(|error| told(&error));
    Ready::new(move |_| drop(place.put(answer))).doubtful(doubtful)
}

fn is_doubtful(error: &StoreError) -> bool {
    matches!(error, StoreError::Disconnected { .. })
}

impl Ready {
    fn new(deliver: impl FnOnce(&mut World) + Send + 'static) -> Self {
        Ready {
            deliver: Box::new(deliver),
            is_doubtful: false,
            done: Vec::new(),
        }
    }

    fn doubtful(self, is_doubtful: bool) -> Self {
        Ready {
            is_doubtful,
            ..self
        }
    }
}

/// A call on its way to a scheduler.
#[derive(Debug)]
pub(in crate::sim) struct Arrival {
    process: ProcessId,
    sent: Duration,
    ask: Ask,
}
