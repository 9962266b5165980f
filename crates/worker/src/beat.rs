//! Heartbeats, from a thread of their own: a handler that computes for an hour keeps no lease from being renewed.
//!
//! The same thread sends logs, tells how the worker does, and moves completions on when nobody else does. It never waits
//! for an answer: it sends what is due, looks at what was answered, stops jobs whose fence has come, and sleeps until the
//! next of these or until it is rung (`alarm.rs`). It looks at its clock at least each second, since a machine that slept
//! wakes to timers that know nothing of it.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use jobtree_protocol::{
    ApiError, Each, ErrorCode, HeartbeatManyAnswer, HeartbeatManyRequest, LeaseId, LogAppendAnswer,
};

use crate::alarm::Alarm;
use crate::grantor::Grantor;
use crate::handler::Run;
use crate::held::Held;
use crate::reply::Reply;
use crate::report::report;
use crate::worker::Shared;

const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Leases that are renewed in one request.
const MOST_AT_ONCE: usize = 500;

/// The leases that are to be renewed.
#[derive(Default)]
pub(crate) struct Board {
    state: Mutex<BoardState>,
    alarm: Alarm,
}

#[derive(Default)]
struct BoardState {
    /// In an order that is the same in each run of a simulation.
    leases: BTreeMap<LeaseId, Arc<Held>>,
    closed: bool,
}

/// Heartbeats on their way, in one request.
struct Sent {
    leases: Vec<Arc<Held>>,
    at: Duration,
    reply: Reply<HeartbeatManyAnswer>,
}

impl Board {
    fn lock(&self) -> MutexGuard<'_, BoardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn ring(&self) {
        self.alarm.ring();
    }

    /// A lease to renew. The thread is not woken for one that it will see early enough: there may be thousands a second,
    /// and most end before they are renewed.
    pub(crate) fn add(&self, held: &Arc<Held>, now: Duration) {
        self.lock().leases.insert(held.lease, Arc::clone(held));
        if held.next().is_some_and(|next| next < now + LONGEST_SLEEP) {
            self.ring();
        }
    }

    pub(crate) fn remove(&self, lease: LeaseId) {
        self.lock().leases.remove(&lease);
    }

    pub(crate) fn poke(&self, lease: LeaseId) {
        let held = self.lock().leases.get(&lease).cloned();
        if let Some(held) = held {
            held.hurry();
        }
        self.ring();
    }

    /// No lease comes any more: the thread ends with the last.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.ring();
    }

    /// Renews, until the board is closed and empty.
    pub(crate) fn keep(self: &Arc<Self>, shared: &Shared) {
        let grantor = shared.grantor();
        let waker = Waker::from(Arc::new(Rung(Arc::clone(self))));
        let mut sent: Vec<Sent> = Vec::new();
        let mut logs: Vec<SentLog> = Vec::new();
        let mut report_at = grantor.report_every().map(|_| grantor.mono());
        loop {
            self.alarm.silence();
            let (leases, closed) = {
                let state = self.lock();
                let leases: Vec<_> = state.leases.values().cloned().collect();
                (leases, state.closed)
            };
            if closed && leases.is_empty() {
                return;
            }
            let reported = report_at.is_some_and(|at| grantor.mono() >= at);
            for some in leases.chunks(MOST_AT_ONCE) {
                sent.extend(send_due(shared, some, reported));
            }
            if reported && leases.is_empty() {
                sent.extend(send_due(shared, &[], true));
            }
            if reported {
                let every = grantor.report_every();
                report_at = every.map(|every| grantor.mono() + every);
            }
            sent.retain_mut(|sent| sent.is_pending(&waker, grantor));
            logs.extend(leases.iter().filter_map(|held| send_log(grantor, held)));
            logs.retain_mut(|sent| sent.is_pending(&waker, grantor));
            for held in &leases {
                let due = held.outbox.next().is_some_and(|at| at <= grantor.mono());
                if due {
                    shared.move_on(held);
                }
            }
            let each = leases.iter().flat_map(|held| {
                let log = held.run().and_then(|run| run.run_log().next());
                [held.next(), log, held.outbox.next()]
            });
            let next = each.chain([report_at]).flatten().min();
            let sleep = next.map_or(LONGEST_SLEEP, |next| {
                next.saturating_sub(grantor.mono()).min(LONGEST_SLEEP)
            });
            if !sleep.is_zero() {
                self.alarm.wait(sleep, &shared.clock);
            }
        }
    }
}

/// Stops what may not go on, and renews what is due, in one request.
fn send_due(shared: &Shared, leases: &[Arc<Held>], reported: bool) -> Option<Sent> {
    let grantor = shared.grantor();
    let at = grantor.mono();
    let mut due = Vec::new();
    let mut beats = Vec::new();
    for held in leases {
        held.watch(at);
        // With a report goes a heartbeat for each: trees are only taken of jobs whose leases are renewed with them.
        if let Some(beat) = held.due(at, reported) {
            beats.push(beat);
            due.push(Arc::clone(held));
        }
    }
    if due.is_empty() && !reported {
        return None;
    }
    let reply = grantor.heartbeat_many(HeartbeatManyRequest {
        leases: beats,
        worker: reported.then(|| report(shared)),
    });
    Some(Sent {
        leases: due,
        at,
        reply,
    })
}

impl Sent {
    fn is_pending(&mut self, waker: &Waker, grantor: &dyn Grantor) -> bool {
        let answer = Pin::new(&mut self.reply).poll(&mut Context::from_waker(waker));
        match answer {
            Poll::Pending => return true,
            Poll::Ready(Ok(answer)) => {
                let mut answers = answer.leases.into_iter();
                for held in &self.leases {
                    match answers.next() {
                        Some(Each::Done(answer)) => held.renewed(self.at, grantor.mono(), &answer),
                        Some(Each::Refused { error }) => refused(held, &error, grantor),
                        None => held.unanswered(grantor.mono()),
                    }
                }
            }
            Poll::Ready(Err(error)) => {
                for held in &self.leases {
                    refused(held, &error, grantor);
                }
            }
        }
        false
    }
}

fn refused(held: &Held, error: &ApiError, grantor: &dyn Grantor) {
    match error.code {
        ErrorCode::LeaseLost | ErrorCode::NotFound | ErrorCode::WrongState => {
            held.lose(&error.message);
        }
        ErrorCode::Invalid | ErrorCode::Malformed | ErrorCode::TooLarge => {
            held.untellable(grantor.mono());
        }
        _ => held.unanswered(grantor.mono()),
    }
}

/// A piece of a log on its way.
struct SentLog {
    run: Run,
    reply: Reply<LogAppendAnswer>,
}

fn send_log(grantor: &dyn Grantor, held: &Held) -> Option<SentLog> {
    let run = held.run()?;
    let piece = run.run_log().due(held.lease, grantor.mono())?;
    let reply = grantor.append_log(run.id(), piece);
    Some(SentLog { run, reply })
}

impl SentLog {
    fn is_pending(&mut self, waker: &Waker, grantor: &dyn Grantor) -> bool {
        let log = self.run.run_log();
        match Pin::new(&mut self.reply).poll(&mut Context::from_waker(waker)) {
            Poll::Pending => return true,
            Poll::Ready(Ok(answer)) => log.answered(answer),
            Poll::Ready(Err(error)) => log.refused(&error, grantor.mono()),
        }
        false
    }
}

struct Rung(Arc<Board>);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}
