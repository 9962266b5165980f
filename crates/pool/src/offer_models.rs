//! loom models of offers: a task that is offered to an idle worker is run once, whatever that worker does at the moment.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::ContextRef;
use crate::deque::Entry;
use crate::job::Job;
use crate::modelling::{Crew, Failure, Model, Parcel, claim, pool};
use crate::pool::shared::Shared;
use crate::sleep::SpinMemory;
use crate::sync::step::Step;

pub(crate) const MODELS: &[&Model] = &[&ASLEEP, &FOUND_OTHER_WORK];

/// A pool of two without threads of its own, and two tasks.
struct Scene {
    tasks: [Parcel; 2],
    pool: Arc<Shared>,
}

impl Scene {
    fn new() -> Arc<Scene> {
        let scene = Scene {
            tasks: [Parcel::new(), Parcel::new()],
            pool: pool(2),
        };
        // The worker's thread begins later.
        scene.pool.workers[1].offers.stand_by();
        Arc::new(scene)
    }

    /// Makes task `number` ready to be sent.
    fn entry(&self, number: usize) -> Entry {
        self.tasks[number].fill();
        Entry {
            job: NonNull::from(&self.tasks[number]).cast::<Job>(),
            context: ContextRef::OUTERMOST,
        }
    }

    fn run(&self, entry: Entry) {
        let task = self
            .tasks
            .iter()
            .find(|task| std::ptr::eq(*task, entry.job.cast::<Parcel>().as_ptr()));
        task.expect("every entry is of one of the tasks").open();
    }

    /// Worker 1, which stands by, does so until it is offered a task, or finds one in the injector if `looks_elsewhere`; runs what it has then.
    fn idle(&self, looks_elsewhere: bool) {
        let Scene { pool, .. } = self;
        let memory = SpinMemory::new();
        let mut searching = pool.sleep.start_searching(1, &memory);
        let slot = &pool.workers[1].offers;
        let found = loop {
            if slot.has_task() {
                break None;
            }
            if looks_elsewhere && let Some(entry) = pool.injector.pop() {
                break Some(entry);
            }
            pool.sleep.no_work_found(&mut searching, None);
        };
        let offered = slot.leave();
        let _ = pool.sleep.work_found(searching, &memory);
        for entry in found.into_iter().chain(offered) {
            self.run(entry);
        }
    }
}

/// A worker falls asleep while a task is offered to it.
const ASLEEP: Model = Model {
    name: "offer: to a worker that falls asleep",
    preemptions: Some(3),
    needs: &[(Step::OfferNotify, Failure::Deadlock)],
    body: || {
        let scene = Scene::new();
        let crew = Crew::new();
        let idle = scene.clone();
        crew.spawn(move || idle.idle(false));
        claim(
            scene.pool.offer(0, scene.entry(0)),
            "the worker stands by until it has a task",
        );
        crew.wait();
        claim(scene.tasks[0].is_opened(), "the task has run");
    },
};

/// A worker finds other work while a task is offered to it.
const FOUND_OTHER_WORK: Model = Model {
    name: "offer: to a worker that finds other work",
    preemptions: Some(3),
    needs: &[(Step::OfferLeaveSwap, Failure::Assertion)],
    body: || {
        let scene = Scene::new();
        let crew = Crew::new();
        let idle = scene.clone();
        crew.spawn(move || idle.idle(true));
        scene.pool.inject(scene.entry(1));
        let entry = scene.entry(0);
        if !scene.pool.offer(0, entry) {
            scene.run(entry);
        }
        crew.wait();
        claim(
            scene.tasks[0].is_opened(),
            "the task has run, here or there",
        );
    },
};

#[test]
fn loom_an_offer_finds_a_worker_that_falls_asleep() {
    ASLEEP.check();
}

#[test]
fn loom_an_offer_is_not_lost_by_a_worker_that_finds_other_work() {
    FOUND_OTHER_WORK.check();
}
