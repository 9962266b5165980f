//! The user code that deadlines bring about: wakers of the program's own, and callbacks of jobs whose time is over.
//!
//! Such code may wait, or block its thread for as long as it likes. So the driver, which keeps deadlines (`timers.rs`), never
//! calls it: it wakes the library's own waiters, and leaves the rest to a *caller*, a thread that takes one expiry after the
//! other. A caller that makes no progress is *retired*: another takes its place, with all that waits, and the retired one ends
//! when its call returns. That happens
//!
//! * at once, if the caller is about to sleep in a wait of the library;
//! * by the driver, if others wait and the caller has been inside the same call for [`PATIENCE`]. That is counted and reported
//!   (`degraded.rs`), because the program loses a thread for as long as its code blocks.
//!
//! So user code delays no wait of the library's, and other user code by at most [`PATIENCE`] for each call that blocks. If the
//! system has no room for another thread, a task on the workers is the caller.
//!
//! Only the state is here; the timers keep it under their lock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::timers::Expiry;

/// How long a call may keep others waiting. Picked by feel: longer than a thread that computes is kept from its processor,
/// shorter than what a program would call an outage.
pub(crate) const PATIENCE: Duration = Duration::from_millis(100);

/// The time that a caller without work stays.
pub(crate) const KEEP: Duration = Duration::from_secs(10);

/// The name of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallerId(u64);

/// See the module's head.
#[derive(Default)]
pub(crate) struct ExpiryCalls {
    waiting: VecDeque<Expiry>,
    /// The caller that takes what waits.
    current: Option<Current>,
    /// The number of callers so far.
    started: u64,
}

struct Current {
    id: CallerId,
    /// When it was started or took its last expiry; `None` if it has nothing to do.
    busy_since: Option<Instant>,
}

/// What is to be done, without the lock, after expiries were added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Nothing,
    /// Notify the caller, which sleeps.
    Notify,
    /// Start this caller.
    Start(CallerId),
}

/// The next step of a caller.
pub(crate) enum Turn {
    Call(Expiry),
    /// Sleep until more comes, or leave.
    Idle,
    /// End: another caller has taken its place.
    Retired,
}

impl ExpiryCalls {
    /// Adds an expiry.
    pub(crate) fn add(&mut self, expiry: Expiry) {
        self.waiting.push_back(expiry);
    }

    /// Decides what is to be done for what waits.
    pub(crate) fn after_adding(&mut self, now: Instant) -> Then {
        if self.waiting.is_empty() {
            return Then::Nothing;
        }
        match &mut self.current {
            None => Then::Start(self.appoint(now)),
            Some(current) if current.busy_since.is_none() => {
                current.busy_since = Some(now);
                Then::Notify
            }
            Some(_) => Then::Nothing,
        }
    }

    /// Takes the next expiry for `caller`.
    pub(crate) fn take(&mut self, caller: CallerId, now: Instant) -> Turn {
        let Some(current) = self.current.as_mut().filter(|it| it.id == caller) else {
            return Turn::Retired;
        };
        match self.waiting.pop_front() {
            Some(expiry) => {
                current.busy_since = Some(now);
                Turn::Call(expiry)
            }
            None => {
                current.busy_since = None;
                Turn::Idle
            }
        }
    }

    /// Retires `caller`, unless it is; returns the caller to be started in its place, if anything waits.
    pub(crate) fn retire(&mut self, caller: CallerId, now: Instant) -> Option<CallerId> {
        self.current.take_if(|current| current.id == caller)?;
        (!self.waiting.is_empty()).then(|| self.appoint(now))
    }

    /// Retires the caller if others have waited for too long; returns the caller to be started in its place.
    pub(crate) fn retire_if_stuck(&mut self, now: Instant) -> Option<CallerId> {
        let stuck = self.stuck_at().is_some_and(|stuck_at| stuck_at <= now);
        stuck.then(|| self.appoint(now))
    }

    /// When those that wait have waited for too long, unless the caller takes one before.
    pub(crate) fn stuck_at(&self) -> Option<Instant> {
        if self.waiting.is_empty() {
            return None;
        }
        let since = self.current.as_ref()?.busy_since?;
        since.checked_add(PATIENCE)
    }

    /// Takes out all that waits.
    pub(crate) fn take_all(&mut self) -> VecDeque<Expiry> {
        std::mem::take(&mut self.waiting)
    }

    fn appoint(&mut self, now: Instant) -> CallerId {
        self.started += 1;
        let id = CallerId(self.started);
        self.current = Some(Current {
            id,
            busy_since: Some(now),
        });
        id
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::task::Waker;

    fn expiry() -> Expiry {
        Expiry::WakeUser(Waker::noop().clone())
    }

    fn start(calls: &mut ExpiryCalls, now: Instant) -> CallerId {
        calls.add(expiry());
        match calls.after_adding(now) {
            Then::Start(caller) => caller,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_caller_is_started_once_and_notified_when_it_sleeps() {
        let (mut calls, now) = (ExpiryCalls::default(), Instant::now());
        assert_eq!(calls.after_adding(now), Then::Nothing);
        let caller = start(&mut calls, now);
        calls.add(expiry());
        assert_eq!(calls.after_adding(now), Then::Nothing);
        assert!(matches!(calls.take(caller, now), Turn::Call(_)));
        assert!(matches!(calls.take(caller, now), Turn::Call(_)));
        assert!(matches!(calls.take(caller, now), Turn::Idle));
        calls.add(expiry());
        assert_eq!(calls.after_adding(now), Then::Notify);
    }

    #[test]
    fn a_caller_is_stuck_only_if_others_wait() {
        let (mut calls, now) = (ExpiryCalls::default(), Instant::now());
        let caller = start(&mut calls, now);
        assert!(matches!(calls.take(caller, now), Turn::Call(_)));
        let later = now + 2 * PATIENCE;
        assert_eq!(calls.retire_if_stuck(later), None);
        calls.add(expiry());
        assert_eq!(calls.retire_if_stuck(now), None);
        assert_eq!(calls.stuck_at(), Some(now + PATIENCE));
        let next = calls.retire_if_stuck(later).expect("another caller");
        assert!(matches!(calls.take(caller, later), Turn::Retired));
        assert!(matches!(calls.take(next, later), Turn::Call(_)));
        // The one before has nothing to say any more.
        assert_eq!(calls.retire(caller, later), None);
        assert!(matches!(calls.take(next, later), Turn::Idle));
    }

    #[test]
    fn a_caller_that_retires_leaves_what_waits_to_another() {
        let (mut calls, now) = (ExpiryCalls::default(), Instant::now());
        let caller = start(&mut calls, now);
        let next = calls.retire(caller, now).expect("another caller");
        assert!(matches!(calls.take(next, now), Turn::Call(_)));
        assert_eq!(calls.retire(next, now), None);
        // And what comes later to a third.
        assert_ne!(start(&mut calls, now), next);
    }
}
