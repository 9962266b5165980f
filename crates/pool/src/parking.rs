//! Parking: how one OS thread runs many strands in turn.
//!
//! ```text
//!   hub (the thread's own stack)
//!    |  resume          suspend
//!    +----> strand A ----+      A waits, work was found: A says who is next, and suspends
//!    |                   |
//!    +<------------------+
//!    |  resume
//!    +----> strand B            a spare: its loop takes the work that A handed over
//! ```
//!
//! Every strand with a stack runs the worker's loop at its bottom. A strand that parks hands what it
//! found to a spare one; a loop that finds a strand whose wait is over gives the thread to it and
//! becomes a spare itself. The hub does nothing but pass the thread on, so a parked strand is fully
//! suspended before anybody can resume it: only the loop of its own worker does, and that runs on
//! another strand.
//!
//! Rules: never suspend while panicking (the count of panics is the thread's, not the strand's); a
//! started stack is never dropped, it is resumed until its loop ends.

use std::cell::{Cell, RefCell, UnsafeCell};

use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::pool::shared::Shared;
use crate::stack::{Stack, StackCache, StackClass, StackError};
use crate::strand::Strand;
use crate::worker::{Found, TaskName, Worker, WorkerThread, no_strand_is_current};

/// Loops kept ready for the next strand that parks; further ones end and return their stacks.
const MOST_SPARES: usize = 16;

type Loop = Coroutine<(), (), (), Stack>;

/// A strand's stack and the way off it.
pub(crate) struct StrandStack {
    coroutine: UnsafeCell<Option<Loop>>,
    yielder: Cell<*const Yielder<(), ()>>,
}

impl StrandStack {
    pub(crate) fn new() -> StrandStack {
        StrandStack {
            coroutine: UnsafeCell::new(None),
            yielder: Cell::new(std::ptr::null()),
        }
    }
}

/// A worker thread's strands that are not running, as far as they are not waiting.
pub(crate) struct ParkingLot {
    stacks: StackCache,
    /// Loops that may be given work.
    spares: RefCell<Vec<*const Strand>>,
    /// Strands without a stack, to be used again.
    bare: RefCell<Vec<*const Strand>>,
    /// Who the hub resumes next.
    next: Cell<*const Strand>,
    /// What the next strand's loop shall run first.
    handoff: Cell<Option<Found>>,
    /// Whether this thread has a hub: not so if it is the user's own.
    has_hub: Cell<bool>,
}

impl ParkingLot {
    pub(crate) fn new(pool: &Shared) -> ParkingLot {
        ParkingLot {
            stacks: StackCache::new(&pool.stacks),
            spares: RefCell::new(Vec::new()),
            bare: RefCell::new(Vec::new()),
            next: Cell::new(std::ptr::null()),
            handoff: Cell::new(None),
            has_hub: Cell::new(false),
        }
    }

    pub(crate) fn take_handoff(&self) -> Option<Found> {
        self.handoff.take()
    }
}

impl WorkerThread {
    /// Whether the current strand may be parked now: there is a hub, no panic under way, and a strand
    /// to go on with.
    pub(crate) fn can_park(&self) -> bool {
        self.parking.has_hub.get() && !std::thread::panicking() && self.ensure_spare().is_ok()
    }

    fn ensure_spare(&self) -> Result<(), StackError> {
        if !self.parking.spares.borrow().is_empty() {
            return Ok(());
        }
        let stack = self.parking.stacks.take(StackClass::Default)?;
        let strand = match self.parking.bare.borrow_mut().pop() {
            // SAFETY: strands live as long as their pool, which this thread keeps alive.
            Some(strand) => unsafe { &*strand },
            None => self.new_strand(),
        };
        let thread: *const WorkerThread = self;
        let strand_address: *const Strand = strand;
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            // SAFETY: the hub, which runs this, borrows the thread's state for longer, and strands
            // live as long as their pool.
            let (thread, strand) = unsafe { (&*thread, &*strand_address) };
            strand.stack.yielder.set(yielder);
            let first = thread.parking.take_handoff();
            let worker = Worker::of_strand(strand);
            thread.work_loop(worker, first, |ready| thread.give_way(strand, ready));
        });
        // SAFETY: a bare or new strand has no coroutine, and only its own worker touches it.
        unsafe { *strand.stack.coroutine.get() = Some(coroutine) };
        self.parking.spares.borrow_mut().push(strand);
        Ok(())
    }

    /// Runs the worker's loop on strands until the pool ends.
    pub(crate) fn run_hub(&self) -> Result<(), StackError> {
        self.ensure_spare()?;
        self.parking.has_hub.set(true);
        // Spares are woken at the end, so that their loops see that the pool has ended.
        while let Some(strand) = self.next_strand() {
            self.resume(strand);
        }
        self.parking.has_hub.set(false);
        Ok(())
    }

    fn next_strand(&self) -> Option<*const Strand> {
        let next = self.parking.next.replace(std::ptr::null());
        if next.is_null() {
            self.parking.spares.borrow_mut().pop()
        } else {
            Some(next)
        }
    }

    fn resume(&self, strand: *const Strand) {
        // SAFETY: strands live as long as their pool.
        let strand = unsafe { &*strand };
        self.set_current(strand);
        // SAFETY: only this thread touches the coroutine, and it is suspended: the hub runs.
        let coroutine = unsafe { &mut *strand.stack.coroutine.get() };
        let running = coroutine
            .as_mut()
            .expect("only strands with a stack are resumed");
        let result = running.resume(());
        no_strand_is_current();
        if let CoroutineResult::Return(()) = result
            && let Some(ended) = coroutine.take()
        {
            strand.stack.yielder.set(std::ptr::null());
            self.parking.stacks.give(ended.into_stack());
            self.parking.bare.borrow_mut().push(strand);
        }
    }

    /// Suspends the running strand in favour of `next`. Returns when it is resumed.
    ///
    /// While it is suspended, others can take its public forks from the list of parked strands.
    fn switch(&self, from: &Strand, next: *const Strand) {
        assert!(
            !std::thread::panicking(),
            "a strand is never suspended while panicking"
        );
        // SAFETY: we are on the strand.
        let has_forks = unsafe { from.forks.outstanding() > 0 };
        if has_forks {
            self.shared().parked.list(from);
        }
        self.parking.next.set(next);
        let named = TaskName::put_aside();
        // SAFETY: set when the strand's coroutine started; we are running on it.
        unsafe { (*from.stack.yielder.get()).suspend(()) };
        drop(named);
        from.begin_turn();
        if has_forks {
            self.shared().parked.unlist(from);
            if !from.forks.looks_empty_to_thief() {
                // Who looked at the running strand before the switch and at the list after it has seen
                // the forks in neither place.
                self.pool.sleep.new_work();
            }
        }
    }

    /// Parks `strand`, which waits by mail, and has `found` run instead.
    pub(crate) fn park_in_favour_of(&self, strand: &Strand, found: Found) {
        self.shared().stats.parks.add(1);
        let next = match found {
            Found::Ready(next) => next,
            found => {
                self.parking.handoff.set(Some(found));
                let spare = self.parking.spares.borrow_mut().pop();
                spare.expect("`can_park` has seen to a spare strand")
            }
        };
        self.switch(strand, next);
    }

    /// Lets `ready` have the thread; `strand` goes on after what is ready now.
    pub(crate) fn let_run(&self, strand: &Strand, ready: *const Strand) {
        if std::thread::panicking() || !self.parking.has_hub.get() {
            // It has to wait until the panic is over.
            self.ready.borrow_mut().push_back(ready);
            return crate::sync::spin_pause();
        }
        self.ready.borrow_mut().push_back(strand);
        self.switch(strand, ready);
    }

    /// Runs `found` on another strand, and this one again after what is ready now.
    pub(crate) fn yield_to(&self, strand: &Strand, found: Found) {
        match found {
            Found::Ready(ready) => self.let_run(strand, ready),
            found => {
                self.ready.borrow_mut().push_back(strand);
                self.park_in_favour_of(strand, found);
            }
        }
    }

    /// A loop without work hands the thread to `ready`, and becomes a spare, or ends if there are
    /// enough of them: then it returns `false`.
    fn give_way(&self, strand: &Strand, ready: *const Strand) -> bool {
        let keep = self.parking.spares.borrow().len() < MOST_SPARES;
        if keep {
            self.parking.spares.borrow_mut().push(strand);
            self.switch(strand, ready);
        } else {
            self.parking.next.set(ready);
        }
        keep
    }
}
