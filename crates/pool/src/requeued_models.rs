//! loom models of the yield queue: its owner pushes, exchanges and pops while thieves steal.
//!
//! Each entry points to a [`Parcel`] that the owner fills before it queues the entry and that the worker which gets
//! the entry opens. loom reports a race if the entry arrives without what the owner wrote, and the parcel reports an
//! entry that two workers got.

use std::ptr::NonNull;
use std::sync::Arc;

use super::Requeued;
use crate::context::ContextRef;
use crate::deque::Entry;
use crate::job::Job;
use crate::modelling::{Crew, Failure, Meeting, Model, Parcel, claim, find_work, pool};
use crate::pool::shared::Shared;
use crate::sync::step::Step;

pub(crate) const MODELS: &[&Model] = &[
    &OWNER_AND_TWO_THIEVES,
    &EXCHANGE_AGAINST_THIEF,
    &FOR_TWO_SLEEPERS,
];

/// A yield queue, and the tasks that its entries stand for.
struct Scene<const N: usize> {
    queue: Requeued,
    tasks: [Parcel; N],
}

impl<const N: usize> Scene<N> {
    fn new() -> Arc<Scene<N>> {
        Arc::new(Scene {
            queue: Requeued::new(),
            tasks: std::array::from_fn(|_| Parcel::new()),
        })
    }

    fn spawn(self: &Arc<Self>, crew: &Crew, body: fn(&Scene<N>)) {
        let scene = self.clone();
        crew.spawn(move || body(&scene));
    }

    /// Fills task `number` and returns its entry.
    fn entry(&self, number: usize) -> Entry {
        filled(&self.tasks[number])
    }

    /// Opens the task of `entry` and returns its number.
    fn run(&self, entry: Entry) -> usize {
        number_of(&self.tasks, entry)
    }

    fn try_steal(&self) {
        if let Some(entry) = self.queue.steal(|_| true) {
            self.run(entry);
        }
    }

    /// Empties the queue when only the owner is left, and checks that every task has run.
    fn finish(&self) {
        while let Some(entry) = self.queue.pop() {
            self.run(entry);
        }
        for task in &self.tasks {
            claim(task.is_opened(), "no entry is lost");
        }
    }
}

/// The entry of a task that is filled here.
fn filled(task: &Parcel) -> Entry {
    task.fill();
    Entry {
        job: NonNull::from(task).cast::<Job>(),
        context: ContextRef::OUTERMOST,
    }
}

/// Opens the task of `entry`, which is one of `tasks`, and returns its number.
fn number_of(tasks: &[Parcel], entry: Entry) -> usize {
    let is_it = |task: &Parcel| std::ptr::eq(task, entry.job.cast::<Parcel>().as_ptr());
    let number = tasks.iter().position(is_it);
    let number = number.expect("every entry is of one of the tasks");
    tasks[number].open();
    number
}

/// The owner pushes two entries and pops one; two thieves try for one each.
const OWNER_AND_TWO_THIEVES: Model = Model {
    name: "yield queue: owner and two thieves",
    preemptions: Some(2),
    needs: &[
        (Step::YieldQueueLock, Failure::Race),
        (Step::YieldQueueAcquire, Failure::Race),
        (Step::YieldQueueRelease, Failure::Race),
        (Step::YieldQueueLength, Failure::Assertion),
    ],
    body: || {
        let scene = Scene::<2>::new();
        let crew = Crew::new();
        for _ in 0..2 {
            scene.spawn(&crew, Scene::try_steal);
        }
        scene.queue.push(scene.entry(0));
        scene.queue.push(scene.entry(1));
        if let Some(entry) = scene.queue.pop() {
            scene.run(entry);
        }
        crew.wait();
        scene.finish();
    },
};

/// The owner exchanges twice while a thief tries twice: each exchange gives the owner one entry, in the order in
/// which they came, and keeps the other.
const EXCHANGE_AGAINST_THIEF: Model = Model {
    name: "yield queue: exchange against a thief",
    preemptions: Some(4),
    needs: &[
        (Step::YieldQueueLock, Failure::Race),
        (Step::YieldQueueAcquire, Failure::Race),
        (Step::YieldQueueRelease, Failure::Race),
        (Step::YieldQueueKeeps, Failure::Assertion),
    ],
    body: || {
        let scene = Scene::<3>::new();
        scene.queue.push(scene.entry(0));
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.try_steal();
            scene.try_steal();
        });
        let first = scene.run(scene.queue.exchange(scene.entry(1)));
        let second = scene.run(scene.queue.exchange(scene.entry(2)));
        claim(first < second, "first in, first out");
        crew.wait();
        scene.finish();
    },
};

/// A pool of three workers, and two tasks that gave way on the first.
struct Workplace {
    tasks: [Parcel; 2],
    both_have_begun: Meeting,
    pool: Arc<Shared>,
}

impl Workplace {
    /// Worker `thief` takes an entry of the first worker's yield queue, sleeping until there is one, and runs it
    /// until the other task has begun.
    fn work(&self, thief: usize) {
        let queue = &self.pool.workers[0].requeued;
        let look = || queue.steal(|_| true);
        let sees_more = || !queue.looks_empty();
        let entry = find_work(&self.pool.sleep, thief, look, sees_more);
        number_of(&self.tasks, entry);
        self.both_have_begun.arrive();
    }
}

/// Two tasks gave way on a worker that is busy from then on, and each waits for the other: both of the other workers
/// must get one, though only one of them is woken by the post.
const FOR_TWO_SLEEPERS: Model = Model {
    name: "yield queue: two sleepers",
    preemptions: Some(2),
    needs: &[
        (Step::YieldQueueThiefWaits, Failure::Deadlock),
        (Step::SleepCascade, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::SleepRecheck, Failure::Deadlock),
    ],
    body: || {
        let place = Arc::new(Workplace {
            tasks: [Parcel::new(), Parcel::new()],
            both_have_begun: Meeting::new(),
            pool: pool(3),
        });
        let crew = Crew::new();
        for thief in 1..3 {
            let place = place.clone();
            crew.spawn(move || place.work(thief));
        }
        let own = &place.pool.workers[0];
        for task in &place.tasks {
            own.requeued.push(filled(task));
        }
        place.pool.sleep.new_work();
        crew.wait();
    },
};

#[test]
fn loom_an_entry_that_gave_way_goes_to_the_owner_or_to_one_of_two_thieves() {
    OWNER_AND_TWO_THIEVES.check();
}

#[test]
fn loom_an_exchange_keeps_the_entry_that_it_does_not_return() {
    EXCHANGE_AGAINST_THIEF.check();
}

#[test]
fn loom_two_entries_that_gave_way_reach_two_sleepers() {
    FOR_TWO_SLEEPERS.check();
}
