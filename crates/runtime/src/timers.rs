//! Deadlines: one wheel and one thread for all of a runtime's, which sleeps until the next one, and for ever
//! if there is none.
//!
//! If the system has no room for that thread, a task on the workers keeps the deadlines until it has: see `degraded.rs`.
//!
//! In a simulation there is no such thread, and the clock stands still unless the simulator moves it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use jobtree_base::user_code::{Place, drop_user, wake_user};
use jobtree_pool::raw::{PoolRef, monotonic_nanos, set_before_sleep, start_service_thread};
use jobtree_pool::{Yield, yield_now};
use jobtree_tree::{Cause, Job, Lacking, TimerKey, Wheel};

use crate::degraded::Degraded;

/// What happens when a time has come.
pub(crate) enum Expiry {
    /// The job is cancelled as timed out.
    Cancel(Job),
    /// Somebody is woken.
    Wake(Waker),
}

impl Expiry {
    /// Cancels or wakes. Not to be called under a lock: callbacks and wakers may set other timers. They are user code; the
    /// thread that keeps deadlines must survive their panics, and so must those that wait for the next expiry.
    pub(crate) fn happen(self) {
        match self {
            Expiry::Cancel(job) => {
                job.cancel(Cause::Timeout.into());
                // Possibly the last handle: errors and locals of the job have destructors.
                drop(job);
            }
            Expiry::Wake(waker) => wake_user(waker),
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
    /// In a simulation: nanoseconds since the origin.
    virtual_nanos: Option<AtomicU64>,
    state: Mutex<State>,
    /// The driver has to look again.
    changed: Condvar,
    /// What keeps the deadlines if there is no thread, and what is told of it.
    fallback: OnceLock<(PoolRef, Arc<Degraded>)>,
}

struct State {
    wheel: Wheel<Expiry>,
    /// Expiries that a driver left to its successor; see [`Driving`].
    due: VecDeque<Expiry>,
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
                virtual_nanos,
                state: Mutex::new(State {
                    wheel: Wheel::new(),
                    due: VecDeque::new(),
                    driver: Driver::Absent,
                    is_closed: false,
                    wakes_at: u64::MAX,
                }),
                changed: Condvar::new(),
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
        let mut state = self.shared.lock();
        let key = state.wheel.insert(tick, expiry);
        let is_real = self.shared.virtual_nanos.is_none();
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
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
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
            let now = this.tick();
            let mut expired = std::mem::take(&mut state.due);
            while let Some((_, expiry)) = state.wheel.pop_expired(now) {
                expired.push_back(expiry);
            }
            if !expired.is_empty() {
                // Not under the lock: what happens may set other timers.
                drop(state);
                expired.into_iter().for_each(Expiry::happen);
                continue;
            }
            let has_deadlines = state.wheel.next_deadline().is_some();
            if state.is_closed || !has_deadlines || pool.waits_only_for_caller() {
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
        let driving = Driving::begin(&self);
        let mut state = self.lock();
        while !state.is_closed {
            let now = self.tick();
            let mut expired = std::mem::take(&mut state.due);
            while let Some((_, expiry)) = state.wheel.pop_expired(now) {
                expired.push_back(expiry);
            }
            if !expired.is_empty() {
                // Not under the lock: what happens may set other timers.
                drop(state);
                if driving.happen(expired) == Handed::Over {
                    return;
                }
                state = self.lock();
                continue;
            }
            let next = state.wheel.next_deadline();
            // A time that the clock cannot tell does not come.
            let wake = next.and_then(|tick| self.origin.checked_add(Duration::from_millis(tick)));
            state = match wake {
                Some(wake) => {
                    state.wakes_at = next.unwrap_or(u64::MAX);
                    let left = wake.saturating_duration_since(Instant::now());
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    state.wakes_at = u64::MAX;
                    let waited = self.changed.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

/// What the thread that keeps deadlines is about to do.
///
/// Callbacks and wakers that the thread calls are user code, and may wait: for a deadline that this very thread keeps, or
/// behind another expiry of the same moment. So before the thread sleeps in such a wait, it hands over what is left to a new
/// thread, and ends when the wait is over.
struct Driving {
    shared: Arc<Shared>,
    left: RefCell<VecDeque<Expiry>>,
    handed: Cell<Handed>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    /// Another thread keeps the deadlines now.
    Over,
    NotYet,
}

thread_local! {
    static DRIVING: RefCell<Option<Rc<Driving>>> = const { RefCell::new(None) };
}

impl Driving {
    fn begin(shared: &Arc<Shared>) -> Rc<Driving> {
        let driving = Rc::new(Driving {
            shared: Arc::clone(shared),
            left: RefCell::default(),
            handed: Cell::new(Handed::NotYet),
        });
        DRIVING.set(Some(Rc::clone(&driving)));
        set_before_sleep(|| {
            let driving = DRIVING.with_borrow(Clone::clone);
            if let Some(driving) = driving {
                driving.hand_over();
            }
        });
        driving
    }

    fn happen(&self, expired: VecDeque<Expiry>) -> Handed {
        self.left.replace(expired);
        loop {
            let next = self.left.borrow_mut().pop_front();
            match next {
                Some(expiry) => expiry.happen(),
                None => return self.handed.get(),
            }
        }
    }

    fn hand_over(&self) {
        if self.handed.replace(Handed::Over) == Handed::Over {
            return;
        }
        let mut left = self.left.take();
        self.shared.lock().due.append(&mut left);
        Shared::start_thread(&self.shared);
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
