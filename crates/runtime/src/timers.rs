//! Deadlines: one wheel and one thread for all of a runtime's, which sleeps until the next one, and for ever
//! if there is none.
//!
//! If the system has no room for that thread, a task on the workers keeps the deadlines until it has: see `degraded.rs`.
//! Neither calls user code, which could keep it from the next deadline: see `expiry_calls.rs`.
//!
//! In a simulation there is no such thread, and the clock stands still unless the simulator moves it.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use jobtree_base::user_code::{Place, drop_user, wake_user};
use jobtree_pool::raw::{
    PoolRef, Process, is_bell, monotonic_nanos, set_before_sleep, start_service_thread,
};
use jobtree_pool::{Yield, yield_now};
use jobtree_tree::raw::putting_jobs_aside;
use jobtree_tree::{Cause, Job, Lacking, TimerKey, Wheel};

use crate::budget::later::waker_for_later;
use crate::degraded::Degraded;
use crate::expiry_calls::{CallerId, ExpiryCalls, KEEP, Then, Turn};
use crate::future::task::is_told_of_cancellation;

/// What happens when a time has come.
pub(crate) enum Expiry {
    /// The job is cancelled as timed out.
    Cancel(Job),
    /// A waiter of the library's is woken, which runs no user code. Dropping the waker may: see [`Shared::happen`].
    Wake(Waker),
    /// The last handle to a job is dropped, and with it errors and locals of the job.
    Free(Job),
    /// A waker of the program's is called.
    WakeUser(Waker),
}

impl Expiry {
    /// The wake of whatever polls a future of the library's by `waker`.
    pub(crate) fn wake(waker: &Waker) -> Expiry {
        let later = waker_for_later(waker);
        match is_bell(waker) || is_told_of_cancellation(waker) {
            true => Expiry::Wake(later),
            false => Expiry::WakeUser(later),
        }
    }

    /// Returns `true` if user code may run when it happens. A job's end may call callbacks and wakers.
    fn calls_user_code(&self) -> bool {
        !matches!(self, Expiry::Wake(_))
    }

    /// Cancels or wakes. Not to be called under a lock: callbacks and wakers may set other timers. They are user code; the
    /// thread that calls them must survive their panics, and so must those that wait for the next expiry.
    pub(crate) fn happen(self) {
        match self {
            Expiry::Cancel(job) => {
                job.cancel(Cause::Timeout);
                // Possibly the last handle: errors and locals of the job have destructors.
                drop(job);
            }
            Expiry::Free(job) => drop(job),
            Expiry::Wake(waker) | Expiry::WakeUser(waker) => wake_user(waker),
        }
    }
}

/// See the module's head.
#[derive(Clone)]
pub(crate) struct Timers {
    shared: Arc<Shared>,
}

struct Shared {
    origin: Instant,
    /// The process that has the thread.
    process: Process,
    /// In a simulation: nanoseconds since the origin.
    virtual_nanos: Option<AtomicU64>,
    state: Mutex<State>,
    /// The driver has to look again.
    changed: Condvar,
    /// There is user code to be called, or nothing happens any more.
    calls_changed: Condvar,
    /// What keeps the deadlines if there is no thread, and what is told of it.
    fallback: OnceLock<(PoolRef, Arc<Degraded>)>,
}

struct State {
    wheel: Wheel<Expiry>,
    /// The user code to be called.
    calls: ExpiryCalls,
    driver: Driver,
    is_closed: bool,
    /// The tick at which the driver wakes by itself.
    wakes_at: u64,
}

/// What looks at the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// Nothing yet, or nothing any more.
    Absent,
    /// A thread, which was started or is being started.
    Thread,
    /// A task of the pool, because there was no thread to be had. The thread is tried again at this time.
    Workers { retry: Instant },
}

/// How long after a failure the thread is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// A tick is a millisecond.
const TICK: Duration = Duration::from_millis(1);

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers::with_clock(None)
    }

    /// Deadlines by a clock that [`Timers::pass_time`] and [`Timers::jump`] move.
    pub(crate) fn virtual_ones() -> Timers {
        Timers::with_clock(Some(AtomicU64::new(0)))
    }

    fn with_clock(virtual_nanos: Option<AtomicU64>) -> Timers {
        Timers {
            shared: Arc::new(Shared {
                origin: Instant::now(),
                process: Process::current(),
                virtual_nanos,
                state: Mutex::new(State {
                    wheel: Wheel::new(),
                    calls: ExpiryCalls::default(),
                    driver: Driver::Absent,
                    is_closed: false,
                    wakes_at: u64::MAX,
                }),
                changed: Condvar::new(),
                calls_changed: Condvar::new(),
                fallback: OnceLock::new(),
            }),
        }
    }

    /// The time by the clock that deadlines are kept by.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self.virtual_time() {
            // Beyond what an `Instant` can tell, time stands still.
            Some(passed) => {
                let origin = self.shared.origin;
                origin.checked_add(passed).unwrap_or(origin)
            }
            None => Instant::now(),
        }
    }

    /// The same time as a number: nanoseconds since some moment in the past.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        match &self.shared.virtual_nanos {
            Some(nanos) => nanos.load(Ordering::Relaxed),
            None => monotonic_nanos(),
        }
    }

    /// In a simulation: how much time has passed.
    #[inline]
    pub(crate) fn virtual_time(&self) -> Option<Duration> {
        let nanos = self.shared.virtual_nanos.as_ref()?;
        Some(Duration::from_nanos(nanos.load(Ordering::Relaxed)))
    }

    /// In a simulation: lets time pass without looking at deadlines.
    pub(crate) fn pass_time(&self, passed: Duration) {
        if let Some(nanos) = &self.shared.virtual_nanos {
            let passed = u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX);
            let now = nanos.load(Ordering::Relaxed).saturating_add(passed);
            nanos.store(now, Ordering::Relaxed);
        }
    }

    /// In a simulation: whether a deadline seems to have come. It may be wrong about those that lie far ahead; then
    /// [`Timers::take_due`] has none.
    pub(crate) fn seems_due(&self) -> bool {
        let next = self.shared.lock().wheel.next_deadline();
        next.is_some_and(|next| next <= self.shared.virtual_tick())
    }

    /// In a simulation: takes the first expiry whose time has come.
    pub(crate) fn take_due(&self) -> Option<Expiry> {
        let now = self.shared.virtual_tick();
        let expired = self.shared.lock().wheel.pop_expired(now);
        expired.map(|(_, expiry)| expiry)
    }

    /// In a simulation: lets the time be that of the next deadline, and takes that one's expiry.
    pub(crate) fn jump(&self) -> Option<Expiry> {
        let mut state = self.shared.lock();
        loop {
            let next = state.wheel.next_deadline()?;
            // A time that the clock cannot tell does not come.
            let nanos = next.checked_mul(TICK.as_nanos() as u64)?;
            // The wheel tells of far deadlines roughly at first, and never too late.
            if let Some((_, expiry)) = state.wheel.pop_expired(next) {
                if let Some(now) = &self.shared.virtual_nanos {
                    now.fetch_max(nanos, Ordering::Relaxed);
                }
                return Some(expiry);
            }
        }
    }

    /// Lets `expiry` happen at `deadline`, unless what is returned is dropped before.
    pub(crate) fn add(&self, deadline: Instant, expiry: Expiry) -> Timer {
        let since_origin = deadline.saturating_duration_since(self.shared.origin);
        // Rounded up: never too early.
        let ticks = since_origin.as_nanos().div_ceil(TICK.as_nanos());
        let tick = u64::try_from(ticks).unwrap_or(u64::MAX);
        let is_real = self.shared.virtual_nanos.is_none();
        if is_real {
            self.shared.process.must_be_current();
        }
        let mut state = self.shared.lock();
        let key = state.wheel.insert(tick, expiry);
        let is_first = is_real && state.driver == Driver::Absent && !state.is_closed;
        if is_first {
            state.driver = Driver::Thread;
        }
        if tick < state.wakes_at {
            self.shared.changed.notify_one();
        }
        drop(state);
        if is_first {
            Shared::start_thread(&self.shared);
        }
        Timer {
            timers: self.clone(),
            key: Some(key),
        }
    }

    /// Has the workers of `pool` keep the deadlines while there is no thread for it, and `degraded` told of that.
    pub(crate) fn fall_back_on(&self, pool: PoolRef, degraded: Arc<Degraded>) {
        // Timers belong to one runtime.
        let _ = self.shared.fallback.set((pool, degraded));
    }

    /// Whether workers keep the deadlines now, because there is no thread for it.
    pub(crate) fn are_on_workers(&self) -> bool {
        matches!(self.shared.lock().driver, Driver::Workers { .. })
    }

    /// Ends the thread; what is left never happens.
    pub(crate) fn close(&self) {
        let mut state = self.shared.lock();
        state.is_closed = true;
        let never_called = state.calls.take_all();
        drop(state);
        self.shared.changed.notify_one();
        self.shared.calls_changed.notify_all();
        for expiry in never_called {
            drop_user(Place::Waker, expiry);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn virtual_tick(&self) -> u64 {
        let nanos = self.virtual_nanos.as_ref();
        nanos.map_or(0, |nanos| nanos.load(Ordering::Relaxed)) / TICK.as_nanos() as u64
    }

    /// The tick that it is now.
    fn tick(&self) -> u64 {
        (self.origin.elapsed().as_nanos() / TICK.as_nanos()) as u64
    }

    /// Starts the thread; if there is none to be had, a task of the pool does its work. The driver in the state is no longer
    /// `Absent`, so that nothing else starts one. Not to be called under the lock.
    fn start_thread(this: &Arc<Shared>) {
        let shared = Arc::clone(this);
        let started = start_service_thread("jobtree-timers".to_owned(), move || shared.drive());
        let mut state = this.lock();
        let before = state.driver;
        if started.is_ok() {
            // A task that did the work sees this, and ends.
            state.driver = Driver::Thread;
            return;
        }
        state.driver = Driver::Workers {
            retry: Instant::now() + RETRY,
        };
        drop(state);
        let Some((pool, degraded)) = this.fallback.get() else {
            return;
        };
        degraded.add(Lacking::TimerThread);
        if !matches!(before, Driver::Workers { .. }) {
            let (shared, on) = (Arc::clone(this), pool.clone());
            pool.spawn(move || Shared::drive_on_worker(&shared, &on));
        }
    }

    /// Does the work of the thread as a task, which lets others run before each look; it ends when there is nothing to wait
    /// for, so that the pool can end.
    fn drive_on_worker(this: &Arc<Shared>, pool: &PoolRef) {
        loop {
            let mut state = this.lock();
            let Driver::Workers { retry } = state.driver else {
                return;
            };
            let due = this.take_due(&mut state);
            if !due.is_empty() {
                // Not under the lock: what happens may set other timers.
                drop(state);
                Shared::happen(this, due);
                continue;
            }
            let is_done = state.wheel.next_deadline().is_none() && state.calls.stuck_at().is_none();
            if state.is_closed || is_done || pool.waits_only_for_caller() {
                state.driver = Driver::Absent;
                return;
            }
            drop(state);
            if Instant::now() >= retry {
                Shared::start_thread(this);
                continue;
            }
            if yield_now() != Some(Yield::Executed) {
                let waited = this.changed.wait_timeout(this.lock(), TICK);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    fn drive(self: Arc<Shared>) {
        let mut state = self.lock();
        while !state.is_closed {
            let due = self.take_due(&mut state);
            if !due.is_empty() {
                // Not under the lock: what happens may set other timers.
                drop(state);
                Shared::happen(&self, due);
                state = self.lock();
                continue;
            }
            let next = state.wheel.next_deadline();
            // A time that the clock cannot tell does not come.
            let deadline =
                next.and_then(|tick| self.origin.checked_add(Duration::from_millis(tick)));
            let wake = [deadline, state.calls.stuck_at()]
                .into_iter()
                .flatten()
                .min();
            state.wakes_at = deadline.and(next).unwrap_or(u64::MAX);
            state = match wake {
                Some(wake) => {
                    let left = wake.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Takes the expiries whose time has come, and decides who calls the user code among them.
    fn take_due(&self, state: &mut State) -> Due {
        let (tick, now) = (self.tick(), Instant::now());
        let mut wakes = Vec::new();
        while let Some((_, expiry)) = state.wheel.pop_expired(tick) {
            match expiry.calls_user_code() {
                true => state.calls.add(expiry),
                false => wakes.push(expiry),
            }
        }
        let replaced = state.calls.retire_if_stuck(now);
        Due {
            wakes,
            then: state.calls.after_adding(now),
            replaced,
        }
    }

    /// Lets what is due happen, except for the user code, and has that called. Not to be called under the lock.
    ///
    /// A future that is woken may have ended before its waker is dropped, which is then the last reference to its job. The
    /// destructors in that job are user code, too, and may wait for a deadline.
    fn happen(this: &Arc<Shared>, mut due: Due) {
        let wakes = std::mem::take(&mut due.wakes);
        let to_free = putting_jobs_aside(|| wakes.into_iter().for_each(Expiry::happen));
        if !to_free.is_empty() {
            this.free_later(to_free, &mut due);
        }
        if let Some(caller) = due.replaced {
            if let Some((_, degraded)) = this.fallback.get() {
                degraded.add(Lacking::CallbackThread);
            }
            Shared::start_caller(this, caller);
        }
        match due.then {
            Then::Nothing => {}
            Then::Notify => this.calls_changed.notify_all(),
            Then::Start(caller) => Shared::start_caller(this, caller),
        }
    }

    /// Leaves jobs to be freed to the caller of user code.
    #[cold]
    fn free_later(&self, jobs: Vec<Job>, due: &mut Due) {
        let mut state = self.lock();
        if state.is_closed {
            // Nothing waits for the driver any more.
            drop(state);
            return drop(jobs);
        }
        jobs.into_iter()
            .for_each(|job| state.calls.add(Expiry::Free(job)));
        if due.then == Then::Nothing {
            due.then = state.calls.after_adding(Instant::now());
        }
    }

    /// Starts the thread of a caller; if there is none to be had, a task of the pool does its work.
    fn start_caller(this: &Arc<Shared>, caller: CallerId) {
        let shared = Arc::clone(this);
        let name = "jobtree-timers-callbacks".to_owned();
        let started = start_service_thread(name, move || {
            CALLING.set(Some((Arc::clone(&shared), caller)));
            set_before_sleep(retire_calling);
            shared.call(caller, KEEP);
        });
        if started.is_ok() {
            return;
        }
        let shared = Arc::clone(this);
        // A worker has other things to do than to be idle here.
        let call = move || shared.call(caller, Duration::ZERO);
        match this.fallback.get() {
            Some((pool, degraded)) => {
                degraded.add(Lacking::TimerThread);
                pool.spawn(call);
            }
            None => call(),
        }
    }

    /// The life of a caller, which stays for `keep` when it has nothing to do.
    fn call(&self, caller: CallerId, keep: Duration) {
        let mut state = self.lock();
        let mut is_over = keep.is_zero();
        loop {
            match state.calls.take(caller, Instant::now()) {
                Turn::Call(expiry) => {
                    drop(state);
                    expiry.happen();
                    state = self.lock();
                }
                Turn::Idle if !is_over && !state.is_closed => {
                    let waited = self.calls_changed.wait_timeout(state, keep);
                    let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    (state, is_over) = (guard, timeout.timed_out());
                }
                Turn::Idle => {
                    // Nothing waits, so there is none to be started instead.
                    let _ = state.calls.retire(caller, Instant::now());
                    break;
                }
                Turn::Retired => break,
            }
        }
    }
}

/// The expiries whose time has come, taken out of the wheel.
struct Due {
    /// Of the library's own waiters.
    wakes: Vec<Expiry>,
    /// The step that the user code among them needs.
    then: Then,
    /// The caller to be started in the place of one that is stuck.
    replaced: Option<CallerId>,
}

impl Due {
    fn is_empty(&self) -> bool {
        self.wakes.is_empty() && self.then == Then::Nothing && self.replaced.is_none()
    }
}

thread_local! {
    /// The caller that this thread is, if it is one.
    static CALLING: RefCell<Option<(Arc<Shared>, CallerId)>> = const { RefCell::new(None) };
}

/// Retires the caller that the calling thread is: it is about to sleep in user code, perhaps for a deadline that is behind
/// the one that it was called for.
fn retire_calling() {
    let calling = CALLING.with_borrow(Clone::clone);
    if let Some((shared, caller)) = calling {
        let next = shared.lock().calls.retire(caller, Instant::now());
        if let Some(next) = next {
            Shared::start_caller(&shared, next);
        }
    }
}

/// Something that will happen, unless this is dropped before.
pub(crate) struct Timer {
    timers: Timers,
    key: Option<TimerKey>,
}

impl Timer {
    /// Lets it happen even if nobody keeps this.
    pub(crate) fn detach(mut self) {
        self.key = None;
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let cancelled = self.timers.shared.lock().wheel.cancel(key);
            // Not under the lock: it may be the last handle of a job, or a waker with a destructor.
            drop_user(Place::Waker, cancelled);
        }
    }
}
