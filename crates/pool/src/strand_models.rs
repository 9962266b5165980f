//! loom models of fibers that take turns on one worker while a thief is after their forks.
//!
//! loom cannot switch stacks, and need not: what the fibers of a worker do, they do one after the other
//! on one thread. The models make the calls of `fork.rs`, `wait.rs` and `parking.rs` in the order in which
//! that thread makes them.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::ContextRef;
use crate::deque::Entry;
use crate::fork::ForkHeader;
use crate::inbox::MailContent;
use crate::job::Job;
use crate::latch::{Latch, Wake};
use crate::modelling::{Crew, Failure, Meeting, Model, Parcel, claim, find_work, pool, strand};
use crate::pool::shared::Shared;
use crate::strand::Strand;
use crate::sync::step::{Step, left_out};

pub(crate) const MODELS: &[&Model] = &[
    &TAKING_TURNS,
    &FORK_OF_A_PARKED_STRAND,
    &FORK_OF_A_RESUMED_STRAND,
];

const OWNER: usize = 0;
const THIEF: usize = 1;

/// A fork's record: as in `fork.rs`, with a latch beside the one that is private there.
#[repr(C)]
struct Fork {
    header: UnsafeCell<MaybeUninit<ForkHeader>>,
    body: Parcel,
    latch: Latch,
}

impl Fork {
    fn new() -> Fork {
        Fork {
            header: UnsafeCell::new(MaybeUninit::uninit()),
            body: Parcel::new(),
            latch: Latch::new(),
        }
    }
}

/// Two fibers of one worker, a fork for each, and a pool with a second worker.
struct Scene {
    forks: [Fork; 2],
    both_have_begun: Meeting,
    strands: [Box<Strand>; 2],
    pool: Arc<Shared>,
}

// SAFETY: fibers and latches are made for sharing, a fork's header is written before it is published,
// and loom watches the rest.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    fn new() -> Arc<Scene> {
        let pool = pool(2);
        Arc::new(Scene {
            forks: [Fork::new(), Fork::new()],
            both_have_begun: Meeting::new(),
            strands: [(); 2].map(|()| strand(&pool, OWNER)),
            pool,
        })
    }

    /// The fiber whose deque holds what is forked on fiber `number`.
    fn forks_on(&self, number: usize) -> &Strand {
        if left_out(Step::StrandOwnDeque) {
            &self.strands[0]
        } else {
            &self.strands[number]
        }
    }

    /// The owner begins with a fiber.
    fn begin(&self, number: usize) {
        // SAFETY: on the owner's thread.
        unsafe { self.pool.workers[OWNER].show_current(&self.strands[number]) };
    }

    /// The running fiber gives way to one that has not been parked.
    fn park(&self, from: usize, to: usize) {
        if !left_out(Step::StrandListed) {
            self.pool.workers[OWNER].parked.list(&self.strands[from]);
        }
        self.begin(to);
    }

    /// A parked fiber gets the thread back.
    fn resume(&self, number: usize) {
        self.begin(number);
        self.pool.workers[OWNER]
            .parked
            .unlist(&self.strands[number]);
        // A thief may have looked at the running fiber before and at the parked ones after.
        if self.strands[number].forks.public_len() > 0 && !left_out(Step::StrandResumedPost) {
            self.pool.sleep.new_work();
        }
    }

    /// The running fiber `number` forks, and lets others have it.
    fn fork(&self, number: usize) {
        let fork = &self.forks[number];
        fork.body.fill();
        let strand = self.forks_on(number);
        // SAFETY: on the owner's thread; the scene outlives the entry, which is a fork.
        unsafe {
            strand.forks.push_private(Entry {
                job: NonNull::from(fork).cast::<Job>(),
                context: ContextRef::OUTERMOST,
            });
            strand.share_oldest();
        }
    }

    /// The running fiber `number` takes its fork back, or waits for the thief.
    fn settle(&self, number: usize) {
        let fork = &self.forks[number];
        // SAFETY: on the owner's thread; it is this fork's turn.
        if unsafe { self.forks_on(number).forks.pop_own() } {
            fork.body.open();
        } else if fork.latch.register(&self.strands[number], Wake::ByNotice) {
            let look = || fork.latch.is_set().then_some(());
            find_work(&self.pool.sleep, OWNER, look, || false);
        }
        claim(
            fork.body.is_opened(),
            "a fork has run when its strand goes on",
        );
    }

    /// One look of the thief: at the running fiber, then at the parked ones.
    fn look(&self) -> Option<Entry> {
        let victim = &self.pool.workers[OWNER];
        let current = victim
            .current()
            .and_then(|strand| strand.steal(THIEF, |_| true));
        current.or_else(|| victim.parked.steal(THIEF, |_| true))
    }

    fn run_stolen(entry: Entry) {
        // SAFETY: only forks of the scene are in its deques, and their owner waits for the latch.
        let fork = unsafe { entry.job.cast::<Fork>().as_ref() };
        fork.body.open();
        // SAFETY: the scene keeps latch and pool alive.
        unsafe { Latch::set(&fork.latch) };
    }
}

/// Two fibers fork and settle in turns; the thief looks twice.
const TAKING_TURNS: Model = Model {
    name: "strands: taking turns",
    preemptions: Some(2),
    needs: &[
        (Step::StrandOwnDeque, Failure::Race),
        (Step::DequeRingRelease, Failure::Race),
    ],
    body: || {
        let scene = Scene::new();
        let crew = Crew::new();
        let thief = scene.clone();
        crew.spawn(move || {
            for _ in 0..2 {
                if let Some(entry) = thief.look() {
                    Scene::run_stolen(entry);
                }
            }
        });
        scene.begin(0);
        scene.fork(0);
        scene.park(0, 1);
        scene.fork(1);
        scene.resume(0);
        scene.settle(0);
        scene.begin(1);
        scene.settle(1);
        crew.wait();
    },
};

/// A fiber forks and waits for what only its fork brings about; its worker goes on with another fiber
/// that has nothing to give away. A thief that falls asleep meanwhile must get the fork.
const FORK_OF_A_PARKED_STRAND: Model = Model {
    name: "strands: fork of a parked one",
    preemptions: Some(3),
    needs: &[
        (Step::StrandListed, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::LatchRegisterCheck, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new();
        let crew = Crew::new();
        let thief = scene.clone();
        crew.spawn(move || {
            let look = || thief.look();
            let entry = find_work(&thief.pool.sleep, THIEF, look, || false);
            Scene::run_stolen(entry);
        });
        scene.begin(0);
        scene.fork(0);
        if scene.forks[0]
            .latch
            .register(&scene.strands[0], Wake::ByMail)
        {
            scene.park(0, 1);
            let inbox = &scene.pool.workers[OWNER].inbox;
            let look = || {
                let mut ready = None;
                // SAFETY: on the owner's thread; there are no boxed letters.
                unsafe {
                    inbox.take_all(|letter| match letter {
                        MailContent::Resume(strand) => ready = Some(strand),
                        MailContent::Run(_) => claim(false, "nobody has sent a task"),
                    })
                };
                ready
            };
            let ready = find_work(&scene.pool.sleep, OWNER, look, || false);
            claim(
                std::ptr::eq(ready, &*scene.strands[0]),
                "the strand that waited goes on",
            );
            scene.resume(0);
        }
        claim(scene.forks[0].body.is_opened(), "the fork has run");
        crew.wait();
    },
};

/// A fiber forks, is parked, and is resumed before any thief has taken the fork; then it does not end
/// before a thief has. A thief that looks for it all the while must get it.
const FORK_OF_A_RESUMED_STRAND: Model = Model {
    name: "strands: fork of a resumed one",
    preemptions: Some(3),
    needs: &[(Step::StrandResumedPost, Failure::Deadlock)],
    body: || {
        let scene = Scene::new();
        let crew = Crew::new();
        let thief = scene.clone();
        crew.spawn(move || {
            let look = || thief.look();
            let entry = find_work(&thief.pool.sleep, THIEF, look, || false);
            thief.both_have_begun.arrive();
            Scene::run_stolen(entry);
        });
        scene.begin(0);
        scene.fork(0);
        scene.park(0, 1);
        scene.resume(0);
        scene.both_have_begun.arrive();
        scene.settle(0);
        crew.wait();
    },
};

#[test]
fn loom_forks_of_interleaved_strands_are_settled_on_their_own() {
    TAKING_TURNS.check();
}

#[test]
fn loom_a_fork_of_a_parked_strand_is_found() {
    FORK_OF_A_PARKED_STRAND.check();
}

#[test]
fn loom_a_fork_of_a_resumed_strand_is_found() {
    FORK_OF_A_RESUMED_STRAND.check();
}
