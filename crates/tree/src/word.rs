//! The state of a job, and every way in which it changes: no other code writes it.
//!
//! A job's state is one packed word. The functions here say what a change makes of a word, or that it is
//! not allowed; [`AtomicWord`] tries them against the word in memory until no other thread was faster.
//!
//! # The phases
//!
//! ```text
//!              start                      body and children ended
//!   Pending ─────────▶ Active ──────────────────────────────────────▶ Completed
//!      │                 │ │ └── body failed, no children ─────────▶ Failed
//!      │ cancel          │ │ cancel, body or child failed
//!      └──────────────┐  │ │
//!                     ▼  ▼ ▼            body and children ended
//!                   Cancelling ──────────────────────────────────▶ Cancelled | Failed | TimedOut
//! ```
//!
//! | phase      | meaning                                     | leaves it by                              |
//! | ---------- | ------------------------------------------- | ----------------------------------------- |
//! | Pending    | the body has not begun, or has begun on a   | start, end, cancel, failure of body or    |
//! |            | stack (then called *Active*, see `stack`)   | child                                     |
//! | Active     | the body runs, or has returned (then called | end, cancel, failure of body or child     |
//! |            | *Completing*) and children still run        |                                           |
//! | Cancelling | asked to end: whatever looks, sees it       | end                                       |
//! | Completed  | terminal: there is a value                  | never                                     |
//! | Failed     | terminal: the body or a child failed        | never                                     |
//! | Cancelled  | terminal: cancelled, and nothing failed     | never                                     |
//! | TimedOut   | terminal: a deadline came first             | never                                     |
//!
//! A job ends when its body has returned (a bit beside the phase) *and* no child is active, whichever
//! comes last. A body that never began counts as returned when the thread that would have run it finds out. The
//! end has two steps: it is decided (a bit), which fixes the outcome and closes the job to new children;
//! then a value that no handle will take is dropped; then it becomes visible.
//!
//! # Which end
//!
//! * A failure beats cancellation, in either order, except that a deadline which came first stays one:
//!   then the later failure is attached to it.
//! * The first cause of cancelling stays the cause.
//! * A cancelled body that returns a value is Cancelled all the same.
//!
//! # A timeline
//!
//! ```text
//!   parent   Active ......................... Completing ........ Completed
//!   body     |==== spawns a and b =====| returns                  ^
//!   child a      Pending | Active |=====| Completed               |
//!   child b          Pending | Active |===========================| Completed: the last one, so the
//!                                                                   parent ends on b's thread
//! ```
//!
//! # Why the leaf is quick
//!
//! A job that has never had a child, a waiter or an error is not *involved*: no thread but its body's knows
//! it, so it ends by one compare-and-swap. Setting [`INVOLVED`] is the first thing that any other thread
//! does, under the job's lock, and fails if the job has ended; from then on the end, too, is decided under
//! the lock.

use std::fmt;

use crate::step::{Step, left_out};
use crate::sync::{AtomicU64, Ordering};

const PHASE: u64 = 0b111;
/// The body has returned, or will never begin.
const BODY_RETURNED: u64 = 1 << 3;
/// A child's failure is none of this job's.
const SUPERVISOR: u64 = 1 << 4;
/// A thread other than the body's knows the job: it ends under its lock.
const INVOLVED: u64 = 1 << 5;
/// The body or a child has failed.
const FAILED: u64 = 1 << 6;
/// No handle will take the value.
const UNWANTED: u64 = 1 << 7;
/// A parent's cancellation does not reach it.
const SHIELDED: u64 = 1 << 8;
/// Set together with Cancelling, and never cleared: what forks and loops look at.
pub const STOP: u64 = 1 << 9;
/// The outcome goes to the code that made the job and waits for it, not to the parent.
const CONTAINED: u64 = 1 << 10;
/// The end of the job is decided: no child can be attached, nothing can change the outcome.
const ENDING: u64 = 1 << 11;
const CAUSE_SHIFT: u32 = 12;
const CAUSE: u64 = 0b111 << CAUSE_SHIFT;
/// The body has a stack, and a cancellation wakes it there.
const ON_STACK: u64 = 1 << 15;
/// The job has had a child that must be told when the body returns.
const HAS_SCOPES: u64 = 1 << 16;
const REFERENCE_SHIFT: u32 = 32;
const ONE_REFERENCE: u64 = 1 << REFERENCE_SHIFT;
/// More handles than any program has; beyond it the count would run over, so the process ends.
const MOST_REFERENCES: u64 = 1 << 31;

/// The phase of a job's life, as the word stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Active,
    Cancelling,
    Completed,
    Failed,
    Cancelled,
    TimedOut,
}

impl Phase {
    const ALL: [Phase; 7] = [
        Phase::Pending,
        Phase::Active,
        Phase::Cancelling,
        Phase::Completed,
        Phase::Failed,
        Phase::Cancelled,
        Phase::TimedOut,
    ];
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JobState {
    /// Waits to begin.
    Pending,
    /// Runs its body.
    Active,
    /// Waits for its children after its body has returned.
    Completing,
    /// Asked to end.
    Cancelling,
    /// Ended with a value.
    Completed,
    /// Ended because its body or a child failed.
    Failed,
    /// Ended because it was cancelled.
    Cancelled,
    /// Ended because its time was over.
    TimedOut,
}

impl JobState {
    /// Returns `true` if the job has ended; such a state never changes again.
    pub fn is_terminal(self) -> bool {
        !matches!(
            self,
            JobState::Pending | JobState::Active | JobState::Completing | JobState::Cancelling
        )
    }

    /// The state's name, as dumps and events show it.
    pub fn name(self) -> &'static str {
        match self {
            JobState::Pending => "pending",
            JobState::Active => "active",
            JobState::Completing => "completing",
            JobState::Cancelling => "cancelling",
            JobState::Completed => "completed",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::TimedOut => "timed out",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The reason why a job was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cause {
    /// A caller requested it.
    Explicit,
    /// The job's deadline came.
    Timeout,
    /// A job above it was asked to.
    Parent,
    /// The job's body or one of its children failed.
    Failure,
    /// The runtime ends.
    Shutdown,
    /// The handle that wanted the job's value is gone.
    Abandoned,
}

impl Cause {
    const ALL: [Cause; 6] = [
        Cause::Explicit,
        Cause::Timeout,
        Cause::Parent,
        Cause::Failure,
        Cause::Shutdown,
        Cause::Abandoned,
    ];
}

/// The way in which a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEnd {
    /// The body returned a value.
    Value,
    /// The body saw its own job's cancellation, or never began.
    Cancelled,
    /// The body returned an error or panicked.
    Failed,
}

/// The bits with which a job's first word begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beginning(u64);

impl Beginning {
    /// A child's failure is none of its.
    pub(crate) const SUPERVISOR: Beginning = Beginning(SUPERVISOR);
    /// A parent's cancellation does not reach it.
    pub(crate) const SHIELDED: Beginning = Beginning(SHIELDED);
    /// The job's outcome does not concern the parent.
    pub(crate) const CONTAINED: Beginning = Beginning(CONTAINED);
    /// No handle will take the value.
    pub(crate) const UNWANTED: Beginning = Beginning(UNWANTED);
    /// Active at once: the body is running already.
    pub(crate) const STARTED: Beginning = Beginning(Phase::Active as u64);

    #[inline]
    pub(crate) fn and(self, other: Beginning) -> Beginning {
        Beginning(self.0 | other.0)
    }

    #[inline]
    pub(crate) fn is_shielded(self) -> bool {
        self.0 & SHIELDED != 0
    }
}

/// A job's state at one moment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// A new job's word, with one reference for its execution and one for its handle.
    #[inline]
    pub(crate) fn new(beginning: Beginning) -> Word {
        Word((2 * ONE_REFERENCE) | beginning.0)
    }

    #[inline]
    pub(crate) fn phase(self) -> Phase {
        // 7 is never written; naming it as the last one saves a panic.
        Phase::ALL[((self.0 & PHASE) as usize).min(Phase::ALL.len() - 1)]
    }

    #[inline]
    pub(crate) fn is_terminal(self) -> bool {
        self.0 & PHASE >= Phase::Completed as u64
    }

    #[inline]
    pub(crate) fn is_cancelling_or_was(self) -> bool {
        self.0 & STOP != 0
    }

    #[inline]
    pub(crate) fn is_involved(self) -> bool {
        self.0 & INVOLVED != 0
    }

    #[inline]
    pub(crate) fn is_supervisor(self) -> bool {
        self.0 & SUPERVISOR != 0
    }

    #[inline]
    pub(crate) fn is_shielded(self) -> bool {
        self.0 & SHIELDED != 0
    }

    #[inline]
    pub(crate) fn is_contained(self) -> bool {
        self.0 & CONTAINED != 0
    }

    /// Returns `true` if the value that the body left, if it left one, will not be taken by any handle.
    #[inline]
    pub(crate) fn drops_value(self) -> bool {
        self.0 & (UNWANTED | STOP) != 0
    }

    /// Returns `true` if the job has ended, or its end is decided.
    #[inline]
    pub(crate) fn is_ending(self) -> bool {
        self.0 & ENDING != 0
    }

    #[inline]
    pub(crate) fn body_returned(self) -> bool {
        self.0 & BODY_RETURNED != 0
    }

    /// Returns the reason why the job was asked to end, if it was.
    #[inline]
    pub(crate) fn cause(self) -> Option<Cause> {
        let stored = ((self.0 & CAUSE) >> CAUSE_SHIFT) as usize;
        (stored > 0).then(|| Cause::ALL[(stored - 1).min(Cause::ALL.len() - 1)])
    }

    #[inline]
    pub(crate) fn references(self) -> u64 {
        self.0 >> REFERENCE_SHIFT
    }

    pub(crate) fn state(self) -> JobState {
        match self.phase() {
            Phase::Pending | Phase::Active if self.body_returned() => JobState::Completing,
            Phase::Pending => JobState::Pending,
            Phase::Active => JobState::Active,
            Phase::Cancelling => JobState::Cancelling,
            Phase::Completed => JobState::Completed,
            Phase::Failed => JobState::Failed,
            Phase::Cancelled => JobState::Cancelled,
            Phase::TimedOut => JobState::TimedOut,
        }
    }

    #[inline]
    fn with_phase(self, phase: Phase) -> Word {
        Word(self.0 & !PHASE | phase as u64)
    }

    fn begin_cancelling(self, cause: Cause) -> Word {
        let cause = (cause as u64 + 1) << CAUSE_SHIFT;
        Word(self.0 & !CAUSE | cause | STOP).with_phase(Phase::Cancelling)
    }

    /// Returns `true` if the body may begin: no thread has cancelled the job before.
    #[inline]
    pub(crate) fn may_start(self) -> bool {
        self.phase() == Phase::Pending
    }

    /// Says that from now on a cancellation wakes the body on its stack.
    #[inline]
    pub(crate) fn wait_on_stack(self) -> Word {
        Word(self.0 | ON_STACK)
    }

    /// Returns `true` if a cancellation wakes the body on its stack.
    #[inline]
    pub(crate) fn is_on_stack(self) -> bool {
        self.0 & ON_STACK != 0
    }

    /// The body begins; `None` if it must not, because the job was cancelled first.
    #[inline]
    pub(crate) fn start(self) -> Option<Word> {
        self.may_start().then(|| self.with_phase(Phase::Active))
    }

    /// Asked to end; `None` if it was asked before or has ended.
    #[inline]
    pub(crate) fn cancel(self, cause: Cause) -> Option<Word> {
        let was_asked = self.phase() == Phase::Cancelling && !left_out(Step::FirstCauseStays);
        (self.may_change() && !was_asked).then(|| self.begin_cancelling(cause))
    }

    #[inline]
    fn may_change(self) -> bool {
        self.0 & ENDING == 0
    }

    /// A child has failed and this job minds.
    pub(crate) fn child_failed(self) -> Word {
        debug_assert!(self.may_change(), "a child outlived its parent");
        let failed = Word(self.0 | FAILED);
        failed.cancel(Cause::Failure).unwrap_or(failed)
    }

    /// The body has returned. The job has not ended yet: see [`Word::end`].
    #[inline]
    pub(crate) fn return_body(self, end: BodyEnd) -> Word {
        debug_assert!(!self.body_returned(), "a body returned twice");
        let returned = Word(self.0 | BODY_RETURNED);
        match end {
            BodyEnd::Value | BodyEnd::Cancelled => returned,
            BodyEnd::Failed => {
                let failed = Word(returned.0 | FAILED);
                failed.cancel(Cause::Failure).unwrap_or(failed)
            }
        }
    }

    /// The body has returned and no child is active: from now on nothing changes the outcome.
    #[inline]
    pub(crate) fn begin_end(self) -> Word {
        debug_assert!(self.body_returned() && !self.is_terminal());
        Word(self.0 | ENDING)
    }

    /// The end, visible to every thread; after [`Word::begin_end`].
    #[inline]
    pub(crate) fn end(self) -> Word {
        debug_assert!(self.is_ending() && !self.is_terminal());
        let timed_out = self.cause() == Some(Cause::Timeout);
        let has_failed = self.0 & FAILED != 0;
        let phase = match self.phase() {
            _ if timed_out && !(has_failed && left_out(Step::TimeoutStays)) => Phase::TimedOut,
            Phase::Cancelling if left_out(Step::FailureBeatsCancellation) => Phase::Cancelled,
            _ if has_failed => Phase::Failed,
            Phase::Cancelling => Phase::Cancelled,
            _ => Phase::Completed,
        };
        self.with_phase(phase)
    }

    /// Says that a thread wants to learn of the end or of cancellation; `None` if the job has ended.
    #[inline]
    pub(crate) fn involve(self) -> Option<Word> {
        (!self.is_terminal()).then_some(Word(self.0 | INVOLVED))
    }

    /// Under the job's lock: no thread but its body's knows it any more. `None` if it is too late for that to matter.
    #[inline]
    pub(crate) fn forget_others(self) -> Option<Word> {
        let is_plain = self.0 & (STOP | BODY_RETURNED | ENDING) == 0;
        is_plain.then_some(Word(self.0 & !INVOLVED))
    }

    /// Under the job's lock: a child is attached that must be told when the body returns.
    #[inline]
    pub(crate) fn add_scope(self) -> Word {
        Word(self.0 | HAS_SCOPES)
    }

    /// Returns `true` if there may be children that must be told when the body returns.
    #[inline]
    pub(crate) fn has_scopes(self) -> bool {
        self.0 & HAS_SCOPES != 0
    }

    /// A child is attached; `None` if it is too late for that.
    #[inline]
    pub(crate) fn adopt(self) -> Option<Word> {
        (!self.is_ending()).then_some(Word(self.0 | INVOLVED))
    }

    /// A job that no thread but its body's knows ends with a value that is wanted: the body returns, the end is decided and
    /// visible, and the execution gives back its reference, all at once. `None` if another thread knows it, or it was
    /// cancelled, or no handle wants the value.
    #[inline]
    pub(crate) fn end_as_leaf(self) -> Option<Word> {
        if self.0 & (INVOLVED | STOP | UNWANTED) != 0 {
            return None;
        }
        let returned = Word(self.0 | BODY_RETURNED | ENDING);
        let ended = returned.with_phase(Phase::Completed);
        debug_assert!(ended == self.return_body(BodyEnd::Value).begin_end().end());
        Some(Word(ended.0 - ONE_REFERENCE))
    }

    /// Says that no handle will take the value.
    #[inline]
    pub(crate) fn lose_interest(self) -> Word {
        Word(self.0 | UNWANTED)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("state", &self.state())
            .field("cause", &self.cause())
            .field("failed", &(self.0 & FAILED != 0))
            .field("involved", &self.is_involved())
            .field("references", &self.references())
            .finish_non_exhaustive()
    }
}

/// A change of the word in memory: what it was, and what it is now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changed {
    pub(crate) before: Word,
    pub(crate) after: Word,
}

/// A job's state in memory.
pub(crate) struct AtomicWord(AtomicU64);

impl AtomicWord {
    pub(crate) fn new(word: Word) -> AtomicWord {
        AtomicWord(AtomicU64::new(word.0))
    }

    /// Loads the word. Everything written before its last change is visible afterwards.
    #[inline]
    pub(crate) fn load(&self) -> Word {
        Word(self.0.load(Ordering::Acquire))
    }

    /// Loads the word without any promise.
    #[inline]
    pub(crate) fn load_relaxed(&self) -> Word {
        Word(self.0.load(Ordering::Relaxed))
    }

    /// The word as forks look at it: stop if [`STOP`] is set.
    pub(crate) fn as_atomic(&self) -> &AtomicU64 {
        &self.0
    }

    /// Makes a change, or says in which state it is not allowed.
    #[inline]
    pub(crate) fn change(&self, change: impl Fn(Word) -> Option<Word>) -> Result<Changed, Word> {
        let mut before = self.load();
        loop {
            let Some(after) = change(before) else {
                return Err(before);
            };
            if after == before {
                return Ok(Changed { before, after });
            }
            // Release: what the change makes readable was written first. Acquire: what others wrote
            // before theirs is seen by who decides here.
            match self.0.compare_exchange_weak(
                before.0,
                after.0,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(Changed { before, after }),
                Err(now) => before = Word(now),
            }
        }
    }

    /// [`AtomicWord::change`] for changes that are always allowed.
    #[inline]
    pub(crate) fn change_always(&self, change: impl Fn(Word) -> Word) -> Changed {
        match self.change(|word| Some(change(word))) {
            Ok(changed) => changed,
            Err(word) => Changed {
                before: word,
                after: word,
            },
        }
    }

    /// One reference more.
    #[inline]
    pub(crate) fn add_reference(&self) {
        // Relaxed: the thread that adds one holds one.
        let before = Word(self.0.fetch_add(ONE_REFERENCE, Ordering::Relaxed));
        if before.references() >= MOST_REFERENCES {
            eprintln!("jobtree: a job has more than 2^31 handles; aborting");
            std::process::abort();
        }
    }

    /// One reference less; `true` if it was the last one: no other thread can reach the word then.
    #[inline]
    pub(crate) fn drop_reference(&self) -> bool {
        // Who holds the only reference need not tell anybody.
        if self.load().references() == 1 {
            return true;
        }
        Word(self.0.fetch_sub(ONE_REFERENCE, Ordering::AcqRel)).references() == 1
    }

    /// Takes back that the last reference was dropped. Only for the one whose [`drop_reference`](Self::drop_reference) said
    /// so.
    pub(crate) fn renew_last_reference(&self) {
        if self.load().references() == 0 {
            self.add_reference();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn active() -> Word {
        Word::new(Beginning::STARTED)
    }

    #[test]
    fn a_body_that_returns_completes() {
        let word = Word::new(Beginning::default());
        assert_eq!(word.state(), JobState::Pending);
        let word = word.start().unwrap();
        assert_eq!(word.state(), JobState::Active);
        let word = word.return_body(BodyEnd::Value);
        assert_eq!(word.state(), JobState::Completing);
        assert_eq!(word.begin_end().end().state(), JobState::Completed);
    }

    #[test]
    fn a_cancelled_job_does_not_start() {
        let word = Word::new(Beginning::default())
            .cancel(Cause::Explicit)
            .unwrap();
        assert_eq!(word.start(), None);
        let ended = word.return_body(BodyEnd::Cancelled).begin_end().end();
        assert_eq!(ended.state(), JobState::Cancelled);
    }

    #[test]
    fn failure_beats_cancellation_in_either_order() {
        let cancelled_first = active().cancel(Cause::Explicit).unwrap();
        let failed = cancelled_first
            .return_body(BodyEnd::Failed)
            .begin_end()
            .end();
        assert_eq!(failed.state(), JobState::Failed);
        let failed_first = active().child_failed();
        assert_eq!(failed_first.cancel(Cause::Explicit), None);
        let ended = failed_first.return_body(BodyEnd::Value).begin_end().end();
        assert_eq!(ended.state(), JobState::Failed);
    }

    #[test]
    fn a_timeout_that_came_first_stays_one() {
        let timed_out = active().cancel(Cause::Timeout).unwrap();
        let failed = timed_out.child_failed().return_body(BodyEnd::Failed);
        assert_eq!(failed.begin_end().end().state(), JobState::TimedOut);
        let failed_first = active().child_failed();
        assert_eq!(failed_first.cancel(Cause::Timeout), None);
        let ended = failed_first.return_body(BodyEnd::Value).begin_end().end();
        assert_eq!(ended.state(), JobState::Failed);
    }

    #[test]
    fn the_first_cause_stays() {
        let word = active().cancel(Cause::Explicit).unwrap();
        assert_eq!(word.cancel(Cause::Timeout), None);
        assert_eq!(word.cause(), Some(Cause::Explicit));
    }

    #[test]
    fn no_change_leads_out_of_an_end() {
        for word in [
            active().return_body(BodyEnd::Value).begin_end().end(),
            active().return_body(BodyEnd::Failed).begin_end().end(),
            active()
                .cancel(Cause::Explicit)
                .unwrap()
                .return_body(BodyEnd::Value)
                .begin_end()
                .end(),
        ] {
            assert!(word.is_terminal() && word.state().is_terminal());
            assert_eq!(word.start(), None);
            assert_eq!(word.cancel(Cause::Explicit), None);
            assert_eq!(word.involve(), None);
            assert_eq!(word.adopt(), None);
        }
    }

    #[test]
    fn once_the_end_is_decided_nothing_changes_it() {
        let word = active().return_body(BodyEnd::Value).begin_end();
        assert_eq!(word.state(), JobState::Completing);
        assert_eq!((word.cancel(Cause::Explicit), word.adopt()), (None, None));
        // But one may still wait for it.
        assert!(word.involve().is_some());
        assert_eq!(word.end().state(), JobState::Completed);
    }

    #[test]
    fn references_are_counted_beside_the_state() {
        let word = AtomicWord::new(active());
        word.add_reference();
        assert_eq!(word.load().references(), 3);
        assert!(!word.drop_reference() && !word.drop_reference() && word.drop_reference());
        assert_eq!(word.load().state(), JobState::Active);
    }
}
