//! loom models of the latches: a setter against a waiter that registers, falls asleep, and frees the
//! latch as soon as it may.

use std::sync::Arc;

use super::{Latch, ThreadLatch, Wake};
use crate::inbox::MailContent;
use crate::modelling::{Crew, Failure, Model, Parcel, find_work, pool, strand};
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::sync::step::Step;
use crate::sync::{AtomicU32, Ordering};

pub(crate) const MODELS: &[&Model] = &[&BY_MAIL, &BY_NOTICE, &BY_THREAD, &AGAIN];

/// A fiber of a pool's only worker, and what it waits for.
struct Scene {
    latch: std::cell::UnsafeCell<Latch>,
    result: Parcel,
    strand: Box<Strand>,
    pool: Arc<Shared>,
}

// SAFETY: the latch is shared by its own protocol until the waiter ends it, which loom checks.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    fn new() -> Arc<Scene> {
        let pool = pool(1);
        Arc::new(Scene {
            latch: std::cell::UnsafeCell::new(Latch::new()),
            result: Parcel::new(),
            strand: strand(&pool, 0),
            pool,
        })
    }

    /// Sets the latch beside a worker that does `wait`, then uses the result and frees the latch.
    fn play(wait: fn(&Scene, &Latch)) {
        let scene = Scene::new();
        let crew = Crew::new();
        let worker = scene.clone();
        crew.spawn(move || {
            // SAFETY: not freed before the end of this closure.
            wait(&worker, unsafe { &*worker.latch.get() });
            worker.result.open();
            // To loom this is what freeing is: an access that all others must come before.
            // SAFETY: as far as the model is right, the setter is done with the latch.
            unsafe { (*worker.latch.get()).state.with_mut(|_| ()) };
        });
        scene.result.fill();
        // SAFETY: the latch is freed only after it is set; the scene keeps the pool alive.
        unsafe { Latch::set(scene.latch.get()) };
        crew.wait();
    }

    /// Returns `true` if the worker's inbox says that the fiber may continue.
    fn has_mail(&self) -> bool {
        let mut is_ready = false;
        // SAFETY: called by the worker; there are no boxed letters.
        unsafe {
            self.pool.workers[0].inbox.take_all(|content| {
                is_ready |= matches!(content, MailContent::Resume(strand) if std::ptr::eq(strand, &*self.strand));
            })
        };
        is_ready
    }
}

/// The waiter can be parked: having registered, it hears of the latch from its inbox alone.
const BY_MAIL: Model = Model {
    name: "latch: by mail",
    preemptions: None,
    needs: &[
        (Step::LatchRegisterCheck, Failure::Deadlock),
        (Step::LatchSetRelease, Failure::Race),
        (Step::InboxRelease, Failure::Race),
        (Step::InboxNotify, Failure::Deadlock),
    ],
    body: || {
        Scene::play(|scene, latch| {
            if latch.register(&scene.strand, Wake::ByMail) {
                find_work(
                    &scene.pool.sleep,
                    0,
                    || scene.has_mail().then_some(()),
                    || false,
                );
            }
        });
    },
};

/// The waiter stays on its thread, and looks at the latch whenever it is awake.
const BY_NOTICE: Model = Model {
    name: "latch: by notice",
    preemptions: None,
    needs: &[
        (Step::LatchRegisterCheck, Failure::Deadlock),
        (Step::LatchSetRelease, Failure::Race),
        (Step::SleeperNotice, Failure::Deadlock),
        (Step::InboxNotify, Failure::Deadlock),
    ],
    body: || {
        Scene::play(|scene, latch| {
            if latch.register(&scene.strand, Wake::ByNotice) {
                let look = || latch.is_set().then_some(());
                find_work(&scene.pool.sleep, 0, look, || false);
            }
        });
    },
};

/// A thread that is no worker waits.
const BY_THREAD: Model = Model {
    name: "latch: of a thread",
    preemptions: None,
    needs: &[(Step::ThreadLatchCheck, Failure::Deadlock)],
    body: || {
        let scene = Arc::new((ThreadLatch::new(), Parcel::new()));
        let crew = Crew::new();
        let setter = scene.clone();
        crew.spawn(move || {
            let (latch, result) = &*setter;
            result.fill();
            // SAFETY: the scene keeps the latch alive.
            unsafe { ThreadLatch::set(latch) };
        });
        let (latch, result) = &*scene;
        latch.wait();
        result.open();
        crew.wait();
    },
};

/// The latch is used again and again: the thread that resets it and then finds nothing changed is notified.
const AGAIN: Model = Model {
    name: "latch: reset",
    preemptions: None,
    needs: &[
        (Step::LatchResetAcquire, Failure::Deadlock),
        (Step::LatchRegisterCheck, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new();
        let change = Arc::new(AtomicU32::new(0));
        let crew = Crew::new();
        let (worker, seen) = (scene.clone(), change.clone());
        crew.spawn(move || {
            // SAFETY: the scene keeps the latch alive, and no thread frees it in this model.
            let latch = unsafe { &*worker.latch.get() };
            loop {
                latch.reset();
                if seen.load(Ordering::Relaxed) == 1 {
                    break;
                }
                if latch.register(&worker.strand, Wake::ByNotice) {
                    let look = || latch.is_set().then_some(());
                    find_work(&worker.pool.sleep, 0, look, || false);
                }
            }
        });
        change.store(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { Latch::set(scene.latch.get()) };
        crew.wait();
    },
};

#[test]
fn loom_a_latch_that_is_reset_loses_nothing() {
    AGAIN.check();
}

#[test]
fn loom_a_latch_wakes_its_waiter_by_mail() {
    BY_MAIL.check();
}

#[test]
fn loom_a_latch_wakes_its_waiter_by_notice() {
    BY_NOTICE.check();
}

#[test]
fn loom_a_latch_wakes_a_thread() {
    BY_THREAD.check();
}
