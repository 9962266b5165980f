//! The atomics, cells and blocking primitives every other module uses, so that the same code runs on
//! the machine and under loom's model checker.
//!
//! Two rules follow from the model checker: sequential consistency is written as explicit
//! `fence(SeqCst)` (loom treats `SeqCst` loads and stores as acquire/release), and blocking goes
//! through [`Futex`], of which loom gets a version made of its own `park` and `unpark`.

#[cfg(not(loom))]
mod real {
    pub(crate) use std::cell::UnsafeCell;
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    pub(crate) use std::sync::{Mutex, MutexGuard};

    /// One pause of a spin loop.
    #[inline]
    pub(crate) fn spin_pause() {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
mod real {
    pub(crate) use loom::sync::RwLockWriteGuard as MutexGuard;
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
    use std::sync::LockResult;

    /// loom's own mutex, 0.7.2, prints a line whenever it is locked, millions in a model. Its lock for
    /// writers does not, and is a mutex if no thread reads.
    pub(crate) struct Mutex<T>(loom::sync::RwLock<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Mutex<T> {
            Mutex(loom::sync::RwLock::new(value))
        }

        pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
            self.0.write()
        }

        pub(crate) fn get_mut(&mut self) -> LockResult<&mut T> {
            self.0.get_mut()
        }
    }

    /// Under loom a spinning thread must let others run, or the model never ends.
    pub(crate) fn spin_pause() {
        loom::thread::yield_now();
    }

    /// A cell whose accesses loom checks for races: each call of [`UnsafeCell::get`] counts as a write.
    pub(crate) struct UnsafeCell<T>(loom::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(loom::cell::UnsafeCell::new(value))
        }

        pub(crate) fn get(&self) -> *mut T {
            self.0.with_mut(|pointer| pointer)
        }
    }
}

pub(crate) use real::*;

/// A sequentially consistent fence.
///
/// On x86-64 a locked instruction on the stack: a full barrier like `mfence`, which the compiler would
/// choose, at half its price.
#[inline(always)]
pub(crate) fn full_fence() {
    #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
    // SAFETY: changes no byte (or with 0) of memory that the current frame owns. Without `nomem` the
    // compiler moves no memory access across it, and the processor drains its stores first.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
    {
        #[cfg(loom)]
        use loom::sync::atomic::fence;
        #[cfg(not(loom))]
        use std::sync::atomic::fence;
        fence(Ordering::SeqCst);
    }
}

/// Locks `mutex`; a poisoned lock is taken over, since no code of ours panics while it holds one.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.lock() {
        Ok(guard) => guard,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// Returns the value that `mutex` guards, when no other thread has it any more.
pub(crate) fn get_mut<T>(mutex: &mut Mutex<T>) -> &mut T {
    match mutex.get_mut() {
        Ok(value) => value,
        Err(poisoned) => poisoned.into_inner(),
    }
}

/// The threads that wait for a spin lock: on the machine they spin, and this is nothing. In a model they block, since
/// loom lets two threads that spin take turns for ever.
pub(crate) struct Spinners {
    #[cfg(loom)]
    waiting: Mutex<Vec<loom::thread::Thread>>,
}

impl Spinners {
    pub(crate) fn new() -> Spinners {
        Spinners {
            #[cfg(loom)]
            waiting: Mutex::new(Vec::new()),
        }
    }

    /// Waits while the lock is taken; on the machine with reads only, so that the holder keeps its cache line.
    #[cfg(not(loom))]
    pub(crate) fn wait_while(&self, is_locked: &AtomicBool) {
        while is_locked.load(Ordering::Relaxed) {
            spin_pause();
        }
    }

    /// Must follow each unlock.
    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) fn unlocked(&self) {}

    #[cfg(loom)]
    pub(crate) fn wait_while(&self, is_locked: &AtomicBool) {
        let mut waiting = lock(&self.waiting);
        if is_locked.load(Ordering::Relaxed) {
            waiting.push(loom::thread::current());
            drop(waiting);
            loom::thread::park();
        }
    }

    #[cfg(loom)]
    pub(crate) fn unlocked(&self) {
        let woken = std::mem::take(&mut *lock(&self.waiting));
        for thread in woken {
            thread.unpark();
        }
    }
}

/// A word that one thread can sleep on until another changes it.
///
/// `wait` may return early; callers loop. `wake_one` only uses the address of the word, so it may be
/// called after the word has been changed in a way that lets its owner go on and free it.
pub(crate) struct Futex {
    word: AtomicU32,
    #[cfg(loom)]
    waiting: Mutex<Vec<loom::thread::Thread>>,
    #[cfg(not(any(target_os = "linux", loom)))]
    blocked: Mutex<()>,
    #[cfg(not(any(target_os = "linux", loom)))]
    changed: std::sync::Condvar,
}

impl Futex {
    pub(crate) fn new(value: u32) -> Futex {
        Futex {
            word: AtomicU32::new(value),
            #[cfg(loom)]
            waiting: Mutex::new(Vec::new()),
            #[cfg(not(any(target_os = "linux", loom)))]
            blocked: Mutex::new(()),
            #[cfg(not(any(target_os = "linux", loom)))]
            changed: std::sync::Condvar::new(),
        }
    }

    /// The word itself; every change that a sleeper waits for must be followed by [`Futex::wake_one`].
    #[inline]
    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
impl Futex {
    /// Sleeps while the word is `expected`.
    pub(crate) fn wait(&self, expected: u32) {
        self.wait_for(expected, None);
    }

    /// Sleeps while the word is `expected`, at most `limit` long if one is given.
    pub(crate) fn wait_for(&self, expected: u32, limit: Option<std::time::Duration>) {
        let timeout = limit.map(|limit| libc::timespec {
            tv_sec: limit.as_secs().min(i32::MAX as u64) as libc::time_t,
            tv_nsec: limit.subsec_nanos() as libc::c_long,
        });
        let timeout_pointer = timeout
            .as_ref()
            .map_or(std::ptr::null(), |t| t as *const libc::timespec);
        // SAFETY: FUTEX_WAIT reads the word at this address, which `self` keeps alive for the call,
        // and the timespec, which lives in this frame.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                timeout_pointer,
            );
        }
    }

    /// Wakes one thread that sleeps on the word. `this` need not be alive any more.
    pub(crate) fn wake_one(this: *const Futex) {
        // The field is first and the only one on Linux, so the addresses agree.
        // SAFETY: FUTEX_WAKE uses the address as a key and does not read through it; waking a
        // stranger who sleeps on a reused address is allowed, since every waiter of ours loops.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                this.cast::<u32>(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1u32,
            );
        }
    }
}

#[cfg(loom)]
impl Futex {
    /// Sleeps while the word is `expected`.
    pub(crate) fn wait(&self, expected: u32) {
        let mut waiting = lock(&self.waiting);
        // Relaxed: as in the kernel, the lock sees to it that a change before `wake_one` is seen.
        if self.word.load(Ordering::Relaxed) == expected {
            waiting.push(loom::thread::current());
            drop(waiting);
            loom::thread::park();
        }
    }

    /// Sleeps while the word is `expected`. Models have no clock: nothing in them ends by time.
    pub(crate) fn wait_for(&self, expected: u32, _limit: Option<std::time::Duration>) {
        self.wait(expected);
    }

    /// Wakes one thread that sleeps on the word, which must still be alive here.
    pub(crate) fn wake_one(this: *const Futex) {
        // SAFETY: models keep their futexes alive until all their threads have ended.
        let woken = lock(unsafe { &(*this).waiting }).pop();
        if let Some(thread) = woken {
            thread.unpark();
        }
    }
}

#[cfg(not(any(target_os = "linux", loom)))]
impl Futex {
    /// Sleeps while the word is `expected`.
    pub(crate) fn wait(&self, expected: u32) {
        let mut guard = lock(&self.blocked);
        while self.word.load(Ordering::Relaxed) == expected {
            guard = match self.changed.wait(guard) {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            };
        }
    }

    /// Sleeps while the word is `expected`, at most `limit` long if one is given.
    pub(crate) fn wait_for(&self, expected: u32, limit: Option<std::time::Duration>) {
        let Some(limit) = limit else {
            return self.wait(expected);
        };
        let guard = lock(&self.blocked);
        if self.word.load(Ordering::Relaxed) == expected {
            drop(self.changed.wait_timeout(guard, limit));
        }
    }

    /// Wakes one thread that sleeps on the word.
    ///
    /// Here, unlike on Linux, the word must still be alive: owners that may free it at once keep it
    /// in memory that outlives the waker (a worker's own record, or a thread-local).
    pub(crate) fn wake_one(this: *const Futex) {
        // SAFETY: by this platform's contract above, the futex is alive.
        let this = unsafe { &*this };
        drop(lock(&this.blocked));
        this.changed.notify_one();
    }
}

/// Steps of the protocols that a model can leave out, to show that it notices.
///
/// Outside of loom `left_out` is a constant `false` and costs nothing.
pub(crate) mod step {
    use super::Ordering;

    macro_rules! steps {
        ($($(#[$doc:meta])+ $name:ident,)+) => {
            /// A fence, check or order without which a protocol is wrong.
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[cfg_attr(not(all(test, loom)), allow(dead_code))]
            pub(crate) enum Step {
                $($(#[$doc])+ $name,)+
            }

            impl Step {
                /// Every step, so that a test can see to it that each has its model.
                #[cfg(all(test, loom))]
                pub(crate) const ALL: &[Step] = &[$(Step::$name),+];
            }
        };
    }

    steps! {
        /// `Deque::pop_public`: the fence between retracting the end and reading the top.
        DequePopFence,
        /// `Deque::steal`: the fence between reading the top and reading the end, and between counting
        /// oneself as a reader and loading the buffer.
        DequeStealFence,
        /// `Deque::publish`: the release order of the end.
        DequePublishRelease,
        /// `Deque::make_room`: the release order of the new buffer's address.
        DequeBufferRelease,
        /// `Deque::make_ring`: the release order of the ring's address.
        DequeRingRelease,
        /// `Deque::reclaim`: the fence between replacing the buffer and looking for readers.
        DequeReclaimFence,
        /// `Deque::reclaim`: the check that no thief is reading an old buffer before it is freed.
        DequeReclaimCheck,
        /// `Latch::register`: the check that the latch was not set in the meantime.
        LatchRegisterCheck,
        /// `Latch::set`: the release order, which hands over what was written before.
        LatchSetRelease,
        /// `Latch::reset`: the acquire order, so that a `set` that is wiped out has been heard.
        LatchResetAcquire,
        /// `ThreadLatch::wait`: the check that the latch was not set in the meantime.
        ThreadLatchCheck,
        /// `Sleep::announce_sleepy`: moving the event counter to sleepy.
        SleepAnnounce,
        /// `Sleep::announce_sleepy`: the fence between announcing and the last look.
        SleepAnnounceFence,
        /// `Sleep::new_work`: the fence between posting and reading the counters.
        SleepPostFence,
        /// `Sleep::no_work_found`: the last look at the queues after announcing.
        SleepRecheck,
        /// `AtomicCounters::try_add_sleeping`: the check that nothing was posted since announcing.
        SleepEventCheck,
        /// `Sleep::fall_asleep`: entering the roster before counting oneself as sleeping.
        SleepRosterFirst,
        /// `Roster::take_one`: looking again after clearing a bit of the summary.
        RosterLookAgain,
        /// `Sleeper::sleep` and `sleep_alone`: noticing a notice that came while sleepy.
        SleeperNotice,
        /// `Sleeper::wake_if_drowsy`: keeping a worker awake that is sleepy, not only waking sleepers.
        SleeperDrowsy,
        /// `Sleep::sleep_alone`: the fence between being sleepy and the last look.
        SleepAloneFence,
        /// `Sleep::wake_alone`: the fence between posting and looking for those who sleep alone.
        SleepAlonePostFence,
        /// `Sleeper::wake_if_alone`: keeping a worker awake that is sleepy, not only waking one that sleeps alone.
        SleeperDrowsyAlone,
        /// `Sleep::work_found`: the last searcher wakes another if there is more work.
        SleepCascade,
        /// `Sleep::work_found`: the fence between leaving the searchers and looking for more work.
        SleepCascadeFence,
        /// `steal_task`: telling of tasks that were taken along, which no thread could see for a moment.
        TakenAlongPost,
        /// `Requeued`: taking the lock before touching the entries.
        YieldQueueLock,
        /// `Requeued::try_lock`: the acquire order of taking the lock.
        YieldQueueAcquire,
        /// `Requeued::locked`: the release order of giving the lock back.
        YieldQueueRelease,
        /// `Requeued::locked`: writing the new length, which decides whether any thread looks inside.
        YieldQueueLength,
        /// `Requeued::exchange`: keeping the new entry when the old one is taken out.
        YieldQueueKeeps,
        /// `Requeued::steal`: waiting for the lock instead of taking the queue for empty.
        YieldQueueThiefWaits,
        /// `Injector::push`: raising the length.
        InjectorLength,
        /// `Inbox::push`: the release order of the newest letter.
        InboxRelease,
        /// `Sleep::notify`: after putting mail into an inbox, telling its owner.
        InboxNotify,
        /// `Strand`: a stack's records stay in its own deque when another stack runs.
        StrandOwnDeque,
        /// `park_in_favour_of`: the forks of a parked fiber stay within reach of thieves.
        StrandListed,
        /// `park_in_favour_of`: telling of the forks of a resumed fiber, which are in another place now.
        StrandResumedPost,
        /// `Shared::interrupt_forks`: the fence between setting the stop signal, by the caller, and asking.
        InterruptFence,
        /// `Strand::tell_of_forks`: the look at the stop signal after publishing.
        InterruptPublishLook,
        /// `Worker::fork`: the look at the stop signal after taking a fork back.
        InterruptTakenBackLook,
        /// `context::change`: the look at the stop signal of another context.
        InterruptContextLook,
        /// `WorkerShared::show_current`: making the next fork of another fiber look at its stop signal.
        InterruptSwitchAsk,
        /// `Strand::interrupt_worker`: the fence between putting a message into the inbox, by the caller, and asking.
        WokenFence,
        /// `Strand::tell_of_forks`: the look into the inbox after publishing.
        WokenPublishLook,
        /// `Worker::fork`: the look into the inbox after taking a fork back.
        WokenTakenBackLook,
        /// `Strand::take_woken_mark`: the fence between taking the mark away and the look into the inbox, by the caller.
        WokenTickFence,
        /// `Shared::offer`: notifying the worker that stands by.
        OfferNotify,
        /// `OfferSlot::leave`: noticing a task that was offered meanwhile.
        OfferLeaveSwap,
    }

    #[cfg(not(loom))]
    #[inline(always)]
    pub(crate) const fn left_out(_step: Step) -> bool {
        false
    }

    /// A sequentially consistent fence that is a `step`.
    #[inline(always)]
    pub(crate) fn fence_at(step: Step) {
        if !left_out(step) {
            super::full_fence();
        }
    }

    /// [`fence_at`] right after a read-modify-write by the same thread. On x86-64 that is a full barrier by itself, and only the
    /// compiler has to be told.
    #[inline(always)]
    pub(crate) fn fence_after_update_at(step: Step) {
        #[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
        {
            let _ = step;
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
        fence_at(step);
    }

    /// `order`, which is a `step`.
    #[inline(always)]
    pub(crate) fn order_at(step: Step, order: Ordering) -> Ordering {
        if left_out(step) {
            Ordering::Relaxed
        } else {
            order
        }
    }

    #[cfg(loom)]
    std::thread_local! {
        // loom runs all threads of a model on one OS thread, so this reaches all of them.
        static LEFT_OUT: std::cell::Cell<Option<Step>> = const { std::cell::Cell::new(None) };
    }

    #[cfg(loom)]
    pub(crate) fn left_out(step: Step) -> bool {
        LEFT_OUT.get() == Some(step)
    }

    #[cfg(all(test, loom))]
    impl jobtree_base::modelling::Step for Step {
        fn leave_out(step: Option<Step>) {
            LEFT_OUT.set(step);
        }
    }
}
