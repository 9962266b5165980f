//! The events of jobs, one by one, for subscribers: the newest in a ring, and with the feature `tracing` each of them there.
//!
//! Usually no subscriber wants to, so the question whether one does is one load; the rest may be slow.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::JobId;
use crate::tree::Watcher;
use crate::word::{Cause, JobState};

/// An event of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// The event's place among all events that this tree has recorded, from 0; a gap means that some were lost.
    pub sequence: u64,
    /// The job that it happened to.
    pub job: JobId,
    /// The kind of the event.
    pub kind: EventKind,
}

/// The kinds of events of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind {
    /// The job was made.
    Create {
        /// The job under which it was made; none for a root.
        parent: Option<JobId>,
    },
    /// The job went into another state that is not an end.
    State {
        /// The new state.
        to: JobState,
    },
    /// The job was asked to end.
    CancelRequest {
        /// The reason.
        cause: Cause,
    },
    /// The job ended.
    Finalize {
        /// The state in which the job ended.
        state: JobState,
    },
    /// The job got a child.
    ChildAttach {
        /// The child.
        child: JobId,
    },
    /// A waiter for the job was registered.
    WaitRegister,
    /// A waiter for the job was woken.
    WaitWake,
    /// The layer that runs the tree lacks something and continues with less. An event of the root.
    Degraded {
        /// The thing that is lacking.
        lacking: Lacking,
    },
}

/// A resource that the system could not provide or that the program blocks, and without which the jobs of a tree run worse, but
/// run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lacking {
    /// The thread that keeps deadlines: workers keep them instead.
    TimerThread,
    /// A thread for jobs that block: they wait for the threads that are there, or block workers.
    BlockingThread,
    /// A stack for a job that waits: its worker runs other work on top of the waiting one. Said once of a pool.
    Stack,
    /// The thread that calls the program's wakers and callbacks for deadlines: one of them blocks it, and another thread takes
    /// its place.
    CallbackThread,
    /// The thread that calls callbacks for a shutdown: the thread that shuts down calls them.
    ShutdownThread,
    /// The thread that sets the panic hook if a runtime is made while a thread panics: where jobs panic is unknown meanwhile.
    HookThread,
}

impl Lacking {
    /// The name under which logs show it.
    pub fn name(self) -> &'static str {
        match self {
            Lacking::TimerThread => "timer thread",
            Lacking::BlockingThread => "blocking thread",
            Lacking::Stack => "stack",
            Lacking::CallbackThread => "callback thread",
            Lacking::ShutdownThread => "shutdown thread",
            Lacking::HookThread => "panic hook thread",
        }
    }
}

impl EventKind {
    /// The name under which logs show it.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Create { .. } => "JOB_CREATE",
            EventKind::State { .. } => "JOB_STATE",
            EventKind::CancelRequest { .. } => "JOB_CANCEL_REQ",
            EventKind::Finalize { .. } => "JOB_FINALIZE",
            EventKind::ChildAttach { .. } => "JOB_CHILD_ATTACH",
            EventKind::WaitRegister => "JOB_WAIT_REGISTER",
            EventKind::WaitWake => "JOB_WAIT_WAKE",
            EventKind::Degraded { .. } => "RUNTIME_DEGRADED",
        }
    }
}

/// Events as they were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Recorded {
    /// The newest ones, in the order in which they were recorded. Of what one thread did, that is the order
    /// in which it happened; what several threads did at the same time may be told in any order.
    pub events: Vec<Event>,
    /// The number of events before them that found no room.
    pub lost: u64,
}

/// Keeps the newest events while a subscriber wants them.
pub(super) struct Recorder {
    /// `true` if the ring's capacity is more than 0, or a subscriber watches; to be read without its lock.
    records: AtomicBool,
    ring: Mutex<Ring>,
    /// Is told of everything, without the ring's lock.
    watcher: Option<Watcher>,
}

struct Ring {
    events: VecDeque<Event>,
    capacity: usize,
    next_sequence: u64,
    lost: u64,
}

impl Ring {
    fn shrink_to(&mut self, len: usize) {
        let excess = self.events.len().saturating_sub(len);
        self.events.drain(..excess);
        self.lost += excess as u64;
    }
}

impl Recorder {
    pub(super) fn new(watcher: Option<Watcher>) -> Recorder {
        Recorder {
            records: AtomicBool::new(watcher.is_some()),
            ring: Mutex::new(Ring {
                events: VecDeque::new(),
                capacity: 0,
                next_sequence: 0,
                lost: 0,
            }),
            watcher,
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        // The thread that panicked in there ran out of memory at worst, and left the ring whole.
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(super) fn records(&self) -> bool {
        self.records.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn record(&self, job: JobId, kind: EventKind) {
        // Relaxed: an event at the same time as the beginning of recording may be in or out. One that
        // follows it is in: what makes it follow makes the load see it.
        if self.records.load(Ordering::Relaxed) {
            self.push(job, kind);
        }
    }

    #[cold]
    #[inline(never)]
    fn push(&self, job: JobId, kind: EventKind) {
        if let Some(watcher) = &self.watcher {
            watcher(job, kind);
        }
        let mut ring = self.ring();
        if ring.capacity == 0 {
            // Recording ended between the question and the lock.
            return;
        }
        let sequence = ring.next_sequence;
        ring.next_sequence += 1;
        let room = ring.capacity - 1;
        ring.shrink_to(room);
        ring.events.push_back(Event {
            sequence,
            job,
            kind,
        });
    }

    /// 0 ends recording; the events so far can still be taken.
    pub(super) fn set_capacity(&self, capacity: usize) {
        let mut ring = self.ring();
        ring.capacity = capacity;
        if capacity > 0 {
            ring.shrink_to(capacity);
        }
        // Under the lock, so that of two calls at once both take the same one as the last.
        let records = capacity > 0 || self.watcher.is_some();
        self.records.store(records, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Recorded {
        let mut ring = self.ring();
        Recorded {
            events: std::mem::take(&mut ring.events).into(),
            lost: std::mem::take(&mut ring.lost),
        }
    }
}

#[cfg(not(feature = "tracing"))]
#[inline(always)]
pub(crate) fn trace(_: JobId, _: EventKind) {}

/// Sends the event to `tracing`, if anything there listens that closely; and closes the span of a job that has ended.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn trace(job: JobId, kind: EventKind) {
    use jobtree_base::user_code::{Place, call_user};
    use tracing::Level;
    use tracing::level_filters::{LevelFilter, STATIC_MAX_LEVEL};

    // A subscriber is user code: its panic must not end the job's worker.
    if Level::TRACE <= STATIC_MAX_LEVEL && Level::TRACE <= LevelFilter::current() {
        call_user(Place::Handler, || emit(job, kind));
    }
    if let EventKind::Finalize { state } = kind {
        super::spans::ended(job, state);
    }
}

#[cfg(feature = "tracing")]
#[cold]
#[inline(never)]
fn emit(job: JobId, kind: EventKind) {
    // The details differ in names, and `tracing` wants the names of fields when it compiles.
    macro_rules! emit {
        ($($details:tt)*) => {
            tracing::trace!(
                target: "jobtree",
                event = kind.name(),
                job = job.as_u64(),
                $($details)*
            )
        };
    }
    match kind {
        EventKind::Create { parent } => emit!(parent = parent.map(JobId::as_u64)),
        EventKind::State { to } => emit!(to = to.name()),
        EventKind::CancelRequest { cause } => emit!(cause = ?cause),
        EventKind::Finalize { state } => emit!(state = state.name()),
        EventKind::ChildAttach { child } => emit!(child = child.as_u64()),
        EventKind::WaitRegister | EventKind::WaitWake => emit!(),
        EventKind::Degraded { lacking } => emit!(lacking = lacking.name()),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_comes_to_the_ring_after_the_end_of_recording_is_left_out() {
        let recorder = Recorder::new(None);
        recorder.set_capacity(2);
        recorder.push(JobId(1), EventKind::WaitWake);
        recorder.set_capacity(0);
        // As by a thread that had asked before.
        recorder.push(JobId(2), EventKind::WaitWake);
        let Recorded { events, lost } = recorder.take();
        assert_eq!((events.len(), events[0].job, lost), (1, JobId(1), 0));
    }

    #[test]
    fn a_watcher_hears_of_everything_whether_or_not_events_are_kept() {
        let heard = std::sync::Arc::new(Mutex::new(Vec::new()));
        let tell = heard.clone();
        let recorder = Recorder::new(Some(std::sync::Arc::new(move |job, _| {
            tell.lock().unwrap().push(job);
        })));
        recorder.record(JobId(1), EventKind::WaitWake);
        recorder.set_capacity(1);
        recorder.record(JobId(2), EventKind::WaitWake);
        recorder.set_capacity(0);
        recorder.record(JobId(3), EventKind::WaitWake);
        assert_eq!(*heard.lock().unwrap(), [JobId(1), JobId(2), JobId(3)]);
        assert_eq!(recorder.take().events.len(), 1);
    }
}
