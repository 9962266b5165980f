//! loom models of the interrupt: whatever the owner of a fiber does while it is interrupted, its next fork
//! in the stopped context is no plain call.
//!
//! The owner makes real forks. The pool has one worker, which keeps no fork private: there every fork is a
//! plain call unless the interrupt has left its mark, so the claim is as strong as can be. The owner asks
//! itself where a thief would, to be sent on the way that is looked at.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use super::{StopSignal, Stopped};
use crate::context::{Context, ContextRef, Installed};
use crate::modelling::{Crew, Failure, Model, claim, pool, strand};
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::sync::step::Step;
use crate::sync::{AtomicU64, Ordering};
use crate::worker::Worker;

pub(crate) const MODELS: &[&Model] = &[
    &PUBLISHING,
    &TAKING_BACK,
    &LEAVING_A_SHIELD,
    &SWITCHING_STRANDS,
];

/// A pool of one, two fibers of its worker, and a word that says when to stop.
struct Scene {
    strands: [Box<Strand>; 2],
    word: AtomicU64,
    pool: Arc<Shared>,
}

// SAFETY: fibers are made for sharing, and the rest looks after itself; what only the owner may do is done on
// one thread.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    /// The scene, and a crew of one that stops what runs in it.
    fn new() -> (Arc<Scene>, Crew) {
        let pool = pool(1);
        let scene = Arc::new(Scene {
            strands: [(); 2].map(|()| strand(&pool, 0)),
            word: AtomicU64::new(0),
            pool,
        });
        scene.show(0);
        let crew = Crew::new();
        let stopper = scene.clone();
        crew.spawn(move || {
            stopper.word.store(1, Ordering::Relaxed);
            stopper.pool.interrupt_forks();
        });
        (scene, crew)
    }

    /// The owner goes on with this fiber.
    fn show(&self, number: usize) {
        // SAFETY: on the owner's thread.
        unsafe { self.pool.workers[0].show_current(&self.strands[number]) };
    }

    fn worker(&self, number: usize) -> &Worker {
        Worker::of_strand(&self.strands[number])
    }

    /// A context that can be stopped.
    fn context(&self) -> Context {
        let stop = StopSignal::new(&self.word, 1);
        // SAFETY: there is no outer one, and the scene outlives it.
        unsafe { Context::inside(ContextRef::OUTERMOST, std::ptr::null(), Some(stop)) }
    }

    /// Claims, when the thread that stops has done so, that the next fork on the fiber checks, and finds that it must stop.
    fn claim_interrupted(&self, number: usize, crew: Crew) {
        crew.wait();
        // SAFETY: on the owner's thread.
        let is_plain_call = unsafe { self.strands[number].forks.private_is_full() };
        claim(!is_plain_call, "the interrupt is not lost");
        let next = stopped(|| self.worker(number).join(|_| (), |_| ()));
        claim(next, "the next fork stops");
    }
}

/// Returns `true` if `body` is stopped; other panics continue.
fn stopped<R>(body: impl FnOnce() -> R) -> bool {
    match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(_) => false,
        Err(payload) if Stopped::is_payload(&*payload) => true,
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// The owner publishes a fork, and with it writes the limit.
const PUBLISHING: Model = Model {
    name: "stop: while publishing",
    preemptions: None,
    needs: &[
        (Step::InterruptFence, Failure::Assertion),
        (Step::SleepPostFence, Failure::Assertion),
        (Step::InterruptPublishLook, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        let context = scene.context();
        let worker = scene.worker(0);
        let _installed = Installed::new(Some(worker), ContextRef::OUTERMOST.nesting(&context));
        worker.strand().forks.ask();
        let mut crew = Some(crew);
        stopped(|| {
            worker.join(
                |_| {
                    let crew = crew.take().expect("called once");
                    scene.claim_interrupted(0, crew);
                },
                |_| (),
            )
        });
        if let Some(crew) = crew {
            scene.claim_interrupted(0, crew);
        }
    },
};

/// The owner has two public forks and takes back the second one, which writes the limit again.
const TAKING_BACK: Model = Model {
    name: "stop: while taking back",
    preemptions: Some(3),
    needs: &[
        (Step::InterruptFence, Failure::Assertion),
        (Step::DequePopFence, Failure::Assertion),
        (Step::InterruptTakenBackLook, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        let context = scene.context();
        let worker = scene.worker(0);
        let _installed = Installed::new(Some(worker), ContextRef::OUTERMOST.nesting(&context));
        let mut crew = Some(crew);
        let forks = &worker.strand().forks;
        stopped(|| {
            forks.ask();
            worker.join(
                |worker| {
                    worker.strand().forks.ask();
                    worker.join(
                        |_| (),
                        |_| {
                            let crew = crew.take().expect("called once");
                            scene.claim_interrupted(0, crew);
                        },
                    )
                },
                |_| (),
            )
        });
        if let Some(crew) = crew {
            scene.claim_interrupted(0, crew);
        }
    },
};

/// The owner forks in a context that is shielded, where the interrupt does not count, then leaves it.
const LEAVING_A_SHIELD: Model = Model {
    name: "stop: while shielded",
    preemptions: None,
    needs: &[
        (Step::InterruptFence, Failure::Assertion),
        (Step::SleepPostFence, Failure::Assertion),
        (Step::InterruptContextLook, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        let context = scene.context();
        let worker = scene.worker(0);
        let _installed = Installed::new(Some(worker), ContextRef::OUTERMOST.nesting(&context));
        let shield = context.shielding();
        let shielded = Installed::new(Some(worker), ContextRef::OUTERMOST.nesting(&shield));
        let was_stopped = stopped(|| worker.join(|_| (), |_| ()));
        claim(!was_stopped, "nothing is stopped behind a shield");
        drop(shielded);
        scene.claim_interrupted(0, crew);
    },
};

/// The worker goes on with a fiber that was parked in the stopped context.
const SWITCHING_STRANDS: Model = Model {
    name: "stop: while switching strands",
    preemptions: None,
    needs: &[
        (Step::InterruptFence, Failure::Assertion),
        (Step::InterruptSwitchAsk, Failure::Assertion),
        (Step::SleepPostFence, Failure::Assertion),
    ],
    body: || {
        let (scene, crew) = Scene::new();
        let context = scene.context();
        // As it was left when it parked.
        scene.strands[1]
            .context()
            .set(ContextRef::OUTERMOST.nesting(&context));
        scene.show(1);
        let worker = scene.worker(1);
        let mut crew = Some(crew);
        // Asked, so its next fork is published, and looks behind the fence of that.
        stopped(|| {
            worker.join(
                |_| {
                    let crew = crew.take().expect("called once");
                    scene.claim_interrupted(1, crew);
                },
                |_| (),
            )
        });
        if let Some(crew) = crew {
            scene.claim_interrupted(1, crew);
        }
        scene.strands[1].context().set(ContextRef::OUTERMOST);
    },
};

#[test]
fn loom_an_interrupt_survives_the_publishing_of_a_fork() {
    PUBLISHING.check();
}

#[test]
fn loom_an_interrupt_survives_the_taking_back_of_a_fork() {
    TAKING_BACK.check();
}

#[test]
fn loom_an_interrupt_survives_a_shield() {
    LEAVING_A_SHIELD.check();
}

#[test]
fn loom_an_interrupt_reaches_a_strand_that_was_parked() {
    SWITCHING_STRANDS.check();
}
