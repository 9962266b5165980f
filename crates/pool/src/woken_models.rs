//! loom models of the interrupt for woken fibers: whatever the worker does while one of its fibers is woken, its next fork is
//! no plain call, and sees the message; and so does its next tick.
//!
//! As in `stop_models.rs` the owner makes real forks, in a pool of one, which keeps no fork private.

use std::sync::Arc;

use crate::latch::Wake;
use crate::modelling::{Crew, Failure, Model, claim, pool, strand};
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::sync::Ordering;
use crate::sync::step::Step;
use crate::worker::Worker;

pub(crate) const MODELS: &[&Model] = &[&PUBLISHING, &TAKING_BACK, &TICKING];

/// A pool of one, the fiber that computes, and one that waits.
struct Scene {
    computes: Box<Strand>,
    waits: Box<Strand>,
    another: Box<Strand>,
    pool: Arc<Shared>,
}

// SAFETY: fibers are made for sharing, and what only the owner may do is done on one thread.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    /// The scene, and a crew of one that wakes the fiber that waits.
    fn new() -> (Arc<Scene>, Crew) {
        Scene::with_current(|scene| &scene.computes)
    }

    /// The same, while the worker still runs another fiber than the one that computes.
    fn new_on_another() -> (Arc<Scene>, Crew) {
        Scene::with_current(|scene| &scene.another)
    }

    fn with_current(current: impl FnOnce(&Scene) -> &Strand) -> (Arc<Scene>, Crew) {
        let pool = pool(1);
        let scene = Arc::new(Scene {
            computes: strand(&pool, 0),
            waits: strand(&pool, 0),
            another: strand(&pool, 0),
            pool,
        });
        // SAFETY: on the owner's thread.
        unsafe { scene.pool.workers[0].show_current(current(&scene)) };
        let crew = Crew::new();
        let waker = scene.clone();
        crew.spawn(move || {
            // SAFETY: the fiber waits by mail, and this is the only wake.
            unsafe { waker.waits.wake(Wake::ByMail) };
        });
        (scene, crew)
    }

    fn worker(&self) -> &Worker {
        Worker::of_strand(&self.computes)
    }

    /// Claims, when the fiber has been woken, that the next fork checks, and finds the message.
    fn claim_interrupted(&self, crew: Crew) {
        crew.wait();
        // SAFETY: on the owner's thread.
        let is_plain_call = unsafe { self.computes.forks.private_is_full() };
        claim(!is_plain_call, "the interrupt is not lost");
        claim(
            !self.pool.workers[0].inbox.is_empty(),
            "the message is there",
        );
    }
}

/// The worker publishes a fork, and with it writes the limit.
const PUBLISHING: Model = Model {
    name: "woken: while publishing",
    preemptions: None,
    needs: &[
        (Step::WokenFence, Failure::Assertion),
        (Step::SleepPostFence, Failure::Assertion),
        (Step::WokenPublishLook, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        // SAFETY: on the owner's thread; the fork is taken back below.
        unsafe { fork_and(&scene, |_| scene.claim_interrupted(crew)) };
    },
};

/// The worker has two public forks and takes back the second one, which writes the limit again.
const TAKING_BACK: Model = Model {
    name: "woken: while taking back",
    preemptions: Some(3),
    needs: &[
        (Step::WokenFence, Failure::Assertion),
        (Step::DequePopFence, Failure::Assertion),
        (Step::WokenTakenBackLook, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        // SAFETY: as above.
        unsafe {
            fork_and(&scene, |scene| {
                fork_and(scene, |_| ());
                scene.claim_interrupted(crew);
            });
        };
    },
};

/// The worker goes from another fiber to the one that computes, which ticks at once.
const TICKING: Model = Model {
    name: "woken: while ticking",
    preemptions: None,
    needs: &[
        (Step::WokenFence, Failure::Assertion),
        (Step::WokenTickFence, Failure::Assertion),
        (Step::InterruptSwitchAsk, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new_on_another();
        // SAFETY: on the owner's thread.
        unsafe { scene.pool.workers[0].show_current(&scene.computes) };
        let inbox = &scene.pool.workers[0].inbox;
        let marked = || scene.computes.woken_mark.load(Ordering::Relaxed);
        let tick_sees_it = marked() && {
            scene.computes.take_woken_mark();
            !inbox.is_empty()
        };
        crew.wait();
        claim(tick_sees_it || marked(), "a tick sees the message");
        claim(!inbox.is_empty(), "the message is there");
    },
};

/// Makes a fork that is published, as a thief would have it, calls `body`, and takes the fork back.
///
/// # Safety
/// On the owner's thread.
unsafe fn fork_and(scene: &Scene, body: impl FnOnce(&Scene) + Send) {
    scene.computes.forks.ask();
    scene.worker().join(|_| body(scene), |_| ());
}

#[test]
fn loom_a_wake_reaches_a_worker_that_publishes_a_fork() {
    PUBLISHING.check();
}

#[test]
fn loom_a_wake_reaches_a_worker_that_ticks() {
    TICKING.check();
}

#[test]
fn loom_a_wake_reaches_a_worker_that_takes_a_fork_back() {
    TAKING_BACK.check();
}
