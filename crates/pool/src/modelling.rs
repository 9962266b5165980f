//! The parts that the loom models of this crate are made of. `jobtree_base::modelling` tells how a model is run, and how its
//! failures are told apart. A test below checks that every step has a model.

use std::sync::Arc;
use std::sync::atomic::Ordering;

pub(crate) use jobtree_base::modelling::{Crew, Failure, claim};

use crate::pool::shared::{Handlers, Shared};
use crate::sleep::{Sleep, SpinMemory};
use crate::strand::Strand;
use crate::sync::Futex;
use crate::sync::step::Step;

/// A model of this crate.
pub(crate) type Model = jobtree_base::modelling::Model<Step>;

/// Makes the shared state of a pool with this many workers that has been at work: the event counter says that no worker is
/// sleepy. (In the state it is made in, a post changes the counter anyway.)
pub(crate) fn pool(workers: usize) -> Arc<Shared> {
    let shared = Shared::new(workers, 1, 0, Handlers::default());
    shared.sleep.new_work();
    Arc::new(shared)
}

/// A fiber of a worker of `pool`, to be dropped before it.
pub(crate) fn strand(pool: &Arc<Shared>, worker: usize) -> Box<Strand> {
    // SAFETY: freshly made by `Box::into_raw`, and not given to the pool to keep.
    unsafe { Box::from_raw(Strand::allocate(pool, worker, 1).cast::<Strand>()) }
}

/// Finds work as a worker does: looks, announces itself, looks, sleeps; at last leaves the search and
/// wakes another if it is the last to search and `sees_more`.
pub(crate) fn find_work<T>(
    sleep: &Sleep,
    worker: usize,
    mut look: impl FnMut() -> Option<T>,
    sees_more: impl FnOnce() -> bool,
) -> T {
    let memory = SpinMemory::new();
    let mut searching = sleep.start_searching(worker, &memory);
    let found = loop {
        if let Some(found) = look() {
            break found;
        }
        sleep.no_work_found(&mut searching, None);
    };
    if sleep.work_found(searching, &memory) && sees_more() {
        sleep.wake_one_sleeper();
    }
    found
}

/// Lets two threads go on when both have come.
pub(crate) struct Meeting(Futex);

impl Meeting {
    pub(crate) fn new() -> Meeting {
        Meeting(Futex::new(0))
    }

    /// Returns when the other one has come too.
    pub(crate) fn arrive(&self) {
        if self.0.word().fetch_add(1, Ordering::AcqRel) == 1 {
            Futex::wake_one(&self.0);
        } else {
            // The futex returns early only in other places than a model.
            self.0.wait(1);
        }
    }
}

/// A value that is handed from one thread to another: loom sees to it that they do not meet.
pub(crate) struct Parcel(loom::cell::UnsafeCell<u32>);

const EMPTY: u32 = 0;
const FILLED: u32 = 1;
const OPENED: u32 = 2;

// SAFETY: loom's cell tells of every access that is not ordered with the others.
unsafe impl Sync for Parcel {}

impl Parcel {
    pub(crate) fn new() -> Parcel {
        Parcel(loom::cell::UnsafeCell::new(EMPTY))
    }

    /// Done by the sender, before the parcel goes out.
    pub(crate) fn fill(&self) {
        self.replace(EMPTY, FILLED, "a parcel is sent once");
    }

    /// Done by the thread that gets it.
    pub(crate) fn open(&self) {
        self.replace(FILLED, OPENED, "a parcel comes filled, and is opened once");
    }

    /// Returns `true` if it has been opened, by a thread that is done with it.
    pub(crate) fn is_opened(&self) -> bool {
        // SAFETY: loom checks that no other thread writes meanwhile.
        self.0.with(|state| unsafe { *state == OPENED })
    }

    #[track_caller]
    fn replace(&self, expected: u32, state: u32, why: &str) {
        // SAFETY: loom checks that no other thread is there.
        let before = self
            .0
            .with_mut(|cell| unsafe { std::mem::replace(&mut *cell, state) });
        claim(before == expected, why);
    }
}

#[test]
fn loom_every_step_has_a_model() {
    let models = [
        crate::deque::models::MODELS,
        crate::latch::models::MODELS,
        crate::sleep::models::MODELS,
        crate::handoff_models::MODELS,
        crate::stop::models::MODELS,
        crate::requeued::models::MODELS,
        crate::strand_models::MODELS,
        crate::woken::models::MODELS,
        crate::offer::models::MODELS,
    ];
    for step in Step::ALL {
        let mut needs = models
            .iter()
            .copied()
            .flatten()
            .flat_map(|model| model.needs);
        assert!(
            needs.any(|(needed, _)| needed == step),
            "no model needs {step:?}"
        );
    }
}
