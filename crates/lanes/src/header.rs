//! What the manager remembers of a job, in the job's own memory.
//!
//! What few jobs have (callbacks, payloads, a token, a kind of its own) is in [`Extra`], which is made when it is needed.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock};

use jobtree_base::user_code::{Place, drop_user};
use jobtree_runtime::scheduled::{Header, Schedule, Turn};
use jobtree_runtime::{CancelCallback, JobState};

use crate::Priority;
use crate::callbacks::{CallbackSet, Ends};
use crate::cells::LaneRef;
use crate::lock::lock;
use crate::moment::Moment;
use crate::progress::{Payload, Progress};
use crate::shared::Shared;

/// A job of the manager, as long as anybody wants to know of it.
pub(crate) type JobHeader = Header<LaneHeader>;

/// A dispatch that a job of the manager waits for.
pub(crate) type JobTurn = Turn<LaneHeader>;

/// Not put into a queue yet.
const NEVER: u64 = u64::MAX;

/// It did not say yet how far it is: no number, so it is the bits of none.
const UNSAID: u32 = u32::MAX;

/// What a job that has not ended is doing, as far as the manager knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Activity {
    Queued,
    Running,
    Waiting,
}

/// See the module's head.
pub(crate) struct LaneHeader {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lane: LaneRef,
    pub(crate) priority: Priority,
    /// Whether it took a slot: what jobs do on the way takes none of its own.
    holds_slot: bool,
    kind: &'static str,
    first_enqueued: AtomicU64,
    steps_left: AtomicU32,
    /// The bits of an `f32`.
    progress: AtomicU32,
    activity: AtomicU8,
    has_label: bool,
    /// Whether it was said that it starves.
    is_known_to_starve: AtomicBool,
    /// Whether the tracker has it.
    pub(crate) is_tracked: AtomicBool,
    /// When the tracker saw a change last; 0 as long as nobody tracks it.
    updated: AtomicU64,
    extra: OnceLock<Box<Extra>>,
}

/// What few jobs have.
#[derive(Default)]
pub(crate) struct Extra {
    pub(crate) kind: Option<Cow<'static, str>>,
    pub(crate) callbacks: OnceLock<CallbackSet>,
    payload: Mutex<Option<Payload>>,
    /// It is below a job that is none of the manager's.
    pub(crate) is_guest: bool,
    /// What the tokens call that cancel it; gone with its end.
    pub(crate) tokens: Mutex<Vec<CancelCallback>>,
}

impl Extra {
    /// Shows `payload` instead of the one before, which is dropped without the lock: its destructor may ask for it.
    fn show(&self, payload: Payload) {
        let replaced = lock(&self.payload).replace(payload);
        drop_user(Place::Value, replaced);
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        let last = lock(&self.payload).take();
        drop_user(Place::Value, last);
    }
}

impl LaneHeader {
    pub(crate) fn new(
        shared: Arc<Shared>,
        lane: LaneRef,
        priority: Priority,
        holds_slot: bool,
        kind: &'static str,
        has_label: bool,
        extra: Option<Box<Extra>>,
    ) -> LaneHeader {
        LaneHeader {
            shared,
            lane,
            priority,
            holds_slot,
            kind,
            first_enqueued: AtomicU64::new(NEVER),
            steps_left: AtomicU32::new(0),
            progress: AtomicU32::new(UNSAID),
            activity: AtomicU8::new(Activity::Queued as u8),
            has_label,
            is_known_to_starve: AtomicBool::new(false),
            is_tracked: AtomicBool::new(false),
            updated: AtomicU64::new(0),
            extra: extra.map(OnceLock::from).unwrap_or_default(),
        }
    }

    /// Whether it has a label, or a kind of its own.
    pub(crate) fn has_name(&self) -> bool {
        self.has_label || self.extra.get().is_some()
    }

    /// The kind of those that have none of their own.
    pub(crate) fn static_kind(&self) -> &'static str {
        self.kind
    }

    /// What sort of job it is, for reports.
    pub(crate) fn kind(&self) -> &str {
        let own = self.extra.get().and_then(|extra| extra.kind.as_deref());
        own.unwrap_or(self.kind)
    }

    /// Whether it is one that the program scheduled.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.holds_slot
    }

    /// When it was first put into a queue; `None` before.
    pub(crate) fn first_enqueued(&self) -> Option<Moment> {
        match self.first_enqueued.load(Ordering::Relaxed) {
            NEVER => None,
            nanos => Some(Moment::from_nanos(nanos)),
        }
    }

    /// Whether it is being put into a queue for the first time, which is at `now`.
    pub(crate) fn is_new_at(&self, now: Moment) -> bool {
        // Only whoever has the turn puts it into a queue, so there is no race.
        let is_new = self.first_enqueued.load(Ordering::Relaxed) == NEVER;
        if is_new {
            self.came_first_at(now);
        }
        is_new
    }

    /// Its age counts from there.
    pub(crate) fn came_first_at(&self, moment: Moment) {
        self.first_enqueued
            .store(moment.as_nanos(), Ordering::Relaxed);
    }

    /// A dispatch begins: it may take so many steps.
    pub(crate) fn begin_dispatch(&self, steps: u32) {
        self.steps_left.store(steps, Ordering::Relaxed);
    }

    /// Takes a step of this dispatch; `false` if there is none left.
    pub(crate) fn take_step(&self) -> bool {
        // Only the job's own code takes steps, one at a time.
        let left = self.steps_left.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        self.steps_left.store(left - 1, Ordering::Relaxed);
        true
    }

    /// How far it is, if it said so.
    pub(crate) fn said_progress(&self) -> Option<f32> {
        match self.progress.load(Ordering::Relaxed) {
            UNSAID => None,
            bits => Some(f32::from_bits(bits)),
        }
    }

    pub(crate) fn progress(&self) -> f32 {
        self.said_progress().unwrap_or(0.0)
    }

    pub(crate) fn has_label(&self) -> bool {
        self.has_label
    }

    pub(crate) fn activity(&self) -> Activity {
        match self.activity.load(Ordering::Relaxed) {
            running if running == Activity::Running as u8 => Activity::Running,
            waiting if waiting == Activity::Waiting as u8 => Activity::Waiting,
            _ => Activity::Queued,
        }
    }

    pub(crate) fn set_activity(&self, activity: Activity) {
        self.activity.store(activity as u8, Ordering::Relaxed);
        self.touch();
    }

    /// After a dispatch that left it waiting, unless it was woken meanwhile.
    pub(crate) fn began_to_wait(&self) {
        let (running, waiting) = (Activity::Running as u8, Activity::Waiting as u8);
        let relaxed = Ordering::Relaxed;
        let _ = self
            .activity
            .compare_exchange(running, waiting, relaxed, relaxed);
        self.touch();
    }

    /// Something changed, for whoever tracks it.
    fn touch(&self) {
        if self.is_tracked.load(Ordering::Relaxed) {
            let now = self.shared.now();
            self.updated.store(now.as_nanos(), Ordering::Relaxed);
        }
    }

    /// When something changed last that the tracker shows.
    pub(crate) fn updated(&self) -> Moment {
        Moment::from_nanos(self.updated.load(Ordering::Relaxed))
    }

    /// Whether it is the first time that it starves.
    pub(crate) fn begins_to_starve(&self) -> bool {
        !self.is_known_to_starve.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn payload(&self) -> Option<Payload> {
        lock(&self.extra.get()?.payload).clone()
    }

    fn extra(&self) -> &Extra {
        self.extra.get_or_init(Box::default)
    }

    pub(crate) fn known_extra(&self) -> Option<&Extra> {
        self.extra.get().map(|extra| &**extra)
    }

    /// The job is that far now, and shows its payload.
    pub(crate) fn report(&self, progress: Progress) {
        let bits = progress.fraction().to_bits();
        self.progress.store(bits, Ordering::Relaxed);
        if let Some(payload) = progress.payload() {
            self.extra().show(Arc::clone(payload));
        }
        self.touch();
        self.tell_progress(progress);
    }

    /// The job is as far as it was, and shows something.
    pub(crate) fn show(&self, payload: Payload) {
        self.extra().show(Arc::clone(&payload));
        self.touch();
        self.tell_progress(Progress::new(self.progress()).with_shared_payload(payload));
    }

    fn tell_progress(&self, progress: Progress) {
        let callbacks = self.known_extra().and_then(|e| e.callbacks.get());
        if let Some(callbacks) = callbacks {
            callbacks.progress(&self.shared, progress);
        }
    }
}

impl Schedule for LaneHeader {
    fn due(turn: JobTurn) {
        let shared = Arc::clone(&turn.shared);
        shared.enqueue(turn);
    }

    fn ending(&self, completed: bool) {
        if completed {
            let before = self.progress.swap(1f32.to_bits(), Ordering::Relaxed);
            if before != 1f32.to_bits() {
                self.tell_progress(Progress::new(1.0));
            }
        }
        if self.holds_slot {
            self.shared.slots.give();
        }
    }

    fn ended(header: &JobHeader) {
        if header.is_scheduled() {
            header.shared.note_end(header);
        }
        // See `callbacks.rs`.
        fence(Ordering::SeqCst);
        let Some(extra) = header.known_extra() else {
            return;
        };
        if extra.is_guest {
            header.shared.guests.leaves(header.job());
        }
        // Not dropped under the lock: each takes the lock of its token.
        let tokens = std::mem::take(&mut *lock(&extra.tokens));
        drop(tokens);
        call_ends(header);
    }
}

/// Adds a callback for the end of the job, which is called at once if that has come.
pub(crate) fn subscribe(header: &JobHeader, add: impl FnOnce(&mut Ends)) {
    let callbacks = header.extra().callbacks.get_or_init(CallbackSet::default);
    add(&mut lock(&callbacks.ends));
    fence(Ordering::SeqCst);
    if header.job().is_ended() {
        call_ends(header);
    }
}

/// Calls what is to be called now that the job has ended.
fn call_ends(header: &JobHeader) {
    let callbacks = header.known_extra().and_then(|extra| extra.callbacks.get());
    if let Some(callbacks) = callbacks {
        match header.job().state() {
            JobState::Completed => callbacks.completed(&header.shared),
            JobState::Cancelled => callbacks.cancelled(&header.shared),
            _ => match header.job().error() {
                Some(error) => callbacks.faulted(&header.shared, error),
                None => unreachable!("{header:?} has ended without a value or an error"),
            },
        }
    }
}
