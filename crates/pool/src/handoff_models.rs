//! loom models of the ways in which work reaches a worker that may be falling asleep: the injector, its
//! inbox, and another worker's deque.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::ContextRef;
use crate::deque::{Entry, Steal};
use crate::inbox::MailContent;
use crate::job::Job;
use crate::latch::Wake;
use crate::modelling::{Crew, Failure, Meeting, Model, Parcel, claim, find_work, pool, strand};
use crate::pool::shared::{Shared, WorkerShared};
use crate::strand::Strand;
use crate::sync::step::{Step, left_out};

pub(crate) const MODELS: &[&Model] = &[
    &INJECTOR,
    &INJECTOR_TWO_WORKERS,
    &INBOX,
    &INBOX_TWO_SENDERS,
    &DEQUE,
    &TAKEN_ALONG,
    &SHUTDOWN,
];

/// A pool without threads of its own, and two jobs for it.
struct Scene {
    jobs: [Parcel; 2],
    both_have_begun: Meeting,
    strand: Box<Strand>,
    pool: Arc<Shared>,
}

impl Scene {
    fn new(workers: usize) -> Arc<Scene> {
        let pool = pool(workers);
        Arc::new(Scene {
            jobs: [Parcel::new(), Parcel::new()],
            both_have_begun: Meeting::new(),
            strand: strand(&pool, 0),
            pool,
        })
    }

    fn spawn(self: &Arc<Scene>, crew: &Crew, body: fn(&Scene)) {
        let scene = self.clone();
        crew.spawn(move || body(&scene));
    }

    /// Makes job `number` ready to be sent.
    fn entry(&self, number: usize) -> Entry {
        let job = &self.jobs[number];
        job.fill();
        Entry {
            job: NonNull::from(job).cast::<Job>(),
            context: ContextRef::OUTERMOST,
        }
    }

    /// Does the work of an entry and says which it was.
    fn run(&self, entry: Entry) -> usize {
        let job = self
            .jobs
            .iter()
            .position(|job| std::ptr::eq(job, entry.job.cast::<Parcel>().as_ptr()));
        let number = job.expect("every entry is of one of the jobs");
        self.jobs[number].open();
        number
    }

    /// Worker `index` takes an entry out of the injector, sleeping until there is one.
    fn run_injected(&self, index: usize) -> usize {
        let injector = &self.pool.injector;
        let look = || injector.pop();
        let entry = find_work(&self.pool.sleep, index, look, || !injector.is_empty());
        self.run(entry)
    }

    /// Worker 0 takes its mail, sleeping until there is some; a fiber to resume counts as `None`.
    fn take_mail(&self) -> Vec<Option<usize>> {
        let inbox = &self.pool.workers[0].inbox;
        let look = || {
            let mut letters = Vec::new();
            if !inbox.is_empty() {
                // SAFETY: called by the owner; `Shared::send` boxes its letters.
                unsafe { inbox.take_all(|letter| letters.push(letter)) };
            }
            (!letters.is_empty()).then_some(letters)
        };
        let letters = find_work(&self.pool.sleep, 0, look, || false);
        let read = |letter| match letter {
            MailContent::Run(entry) => Some(self.run(entry)),
            MailContent::Resume(strand) => {
                claim(
                    std::ptr::eq(strand, &*self.strand),
                    "it is the strand that waits",
                );
                None
            }
        };
        letters.into_iter().map(read).collect()
    }
}

/// Work from outside for a worker that falls asleep, twice: it comes in order.
const INJECTOR: Model = Model {
    name: "hand-off: injector",
    preemptions: Some(3),
    needs: &[
        (Step::InjectorLength, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::SleepAnnounceFence, Failure::Deadlock),
        (Step::SleepRecheck, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new(1);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            for number in 0..2 {
                claim(scene.run_injected(0) == number, "first in, first out");
            }
        });
        scene.pool.inject(scene.entry(0));
        scene.pool.inject(scene.entry(1));
        crew.wait();
    },
};

/// The same with a worker for each.
const INJECTOR_TWO_WORKERS: Model = Model {
    name: "hand-off: injector, two workers",
    preemptions: Some(2),
    needs: &[
        (Step::InjectorLength, Failure::Deadlock),
        (Step::SleepPostFence, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new(2);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.run_injected(0);
        });
        scene.spawn(&crew, |scene| {
            scene.run_injected(1);
        });
        scene.pool.inject(scene.entry(0));
        scene.pool.inject(scene.entry(1));
        crew.wait();
        claim(
            scene.jobs.iter().all(Parcel::is_opened),
            "both jobs have run",
        );
    },
};

/// Two letters from one sender: they come in order.
const INBOX: Model = Model {
    name: "hand-off: inbox",
    preemptions: Some(3),
    needs: &[
        (Step::InboxRelease, Failure::Race),
        (Step::InboxNotify, Failure::Deadlock),
        (Step::SleeperNotice, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new(1);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            let mut read = Vec::new();
            while read.len() < 2 {
                read.extend(scene.take_mail());
            }
            claim(
                read == [Some(0), Some(1)],
                "letters come in order, each once",
            );
        });
        scene.pool.send(0, scene.entry(0));
        scene.pool.send(0, scene.entry(1));
        crew.wait();
    },
};

/// A task and a fiber's own letter, from two senders.
const INBOX_TWO_SENDERS: Model = Model {
    name: "hand-off: inbox, two senders",
    preemptions: Some(2),
    needs: &[
        (Step::InboxRelease, Failure::Race),
        (Step::InboxNotify, Failure::Deadlock),
        (Step::SleeperNotice, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new(1);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            let mut read = Vec::new();
            while read.len() < 2 {
                read.extend(scene.take_mail());
            }
            claim(read.contains(&Some(0)), "the task has come");
            claim(read.contains(&None), "the strand may go on");
            // What the fiber waits for has happened before it was woken.
            scene.jobs[1].open();
        });
        scene.spawn(&crew, |scene| {
            scene.jobs[1].fill();
            // SAFETY: the fiber waits by mail, and this is the only wake.
            unsafe { scene.strand.wake(Wake::ByMail) };
        });
        scene.pool.send(0, scene.entry(0));
        crew.wait();
    },
};

/// A worker spawns two tasks and takes one back; another, which falls asleep, steals what it can until it
/// has had one or hears that both are done.
const DEQUE: Model = Model {
    name: "hand-off: deque",
    preemptions: Some(3),
    needs: &[
        (Step::SleepPostFence, Failure::Deadlock),
        (Step::SleepAnnounceFence, Failure::Deadlock),
        (Step::SleepRecheck, Failure::Deadlock),
    ],
    body: || {
        let scene = Scene::new(2);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            let tasks = &scene.pool.workers[0].tasks;
            let look = || loop {
                match tasks.steal(|_| true) {
                    Steal::Taken(entry) => return Some(entry),
                    Steal::Empty => return None,
                    Steal::Retry => {}
                }
            };
            let more = || scene.pool.workers[0].has_public_work();
            let entry = find_work(&scene.pool.sleep, 1, look, more);
            scene.run(entry);
        });
        let tasks = &scene.pool.workers[0].tasks;
        let entries = [scene.entry(0), scene.entry(1)];
        // SAFETY: this is worker 0's thread; the scene outlives the entries.
        unsafe {
            for entry in entries {
                tasks.push_private(entry);
                tasks.publish_all();
                scene.pool.sleep.new_work();
            }
            if let Some(entry) = tasks.pop_newest() {
                scene.run(entry);
            }
        }
        crew.wait();
        // SAFETY: as above.
        if let Some(entry) = unsafe { tasks.pop_newest() } {
            scene.run(entry);
        }
        claim(
            scene.jobs.iter().all(Parcel::is_opened),
            "both tasks have run",
        );
    },
};

/// Two tasks that end only when both have begun. A thief takes the first and the other along, and for a
/// moment no other thread can see that one: who falls asleep then must hear of it.
const TAKEN_ALONG: Model = Model {
    name: "hand-off: tasks taken along",
    preemptions: Some(2),
    needs: &[(Step::TakenAlongPost, Failure::Deadlock)],
    body: || {
        fn steal(scene: &Scene, victim: usize) -> Option<Entry> {
            loop {
                match scene.pool.workers[victim].tasks.steal(|_| true) {
                    Steal::Taken(entry) => return Some(entry),
                    Steal::Empty => return None,
                    Steal::Retry => {}
                }
            }
        }
        fn worker(scene: &Scene, index: usize) {
            let own = &scene.pool.workers[index].tasks;
            let look = || {
                let first = steal(scene, 0)?;
                if let Some(along) = steal(scene, 0) {
                    // SAFETY: this is that worker's own thread, and the entry is its to pass on.
                    unsafe {
                        own.push_private(along);
                        own.publish_all();
                    }
                    if !left_out(Step::TakenAlongPost) {
                        scene.pool.sleep.new_work();
                    }
                }
                Some(first)
            };
            let look = || look().or_else(|| steal(scene, 3 - index));
            let more = || scene.pool.workers.iter().any(WorkerShared::has_public_work);
            let entry = find_work(&scene.pool.sleep, index, look, more);
            scene.run(entry);
            scene.both_have_begun.arrive();
        }
        let scene = Scene::new(3);
        let crew = Crew::new();
        let tasks = &scene.pool.workers[0].tasks;
        for number in 0..2 {
            // SAFETY: this is worker 0's thread; the scene outlives the entries.
            unsafe { tasks.push_private(scene.entry(number)) };
        }
        scene.spawn(&crew, |scene| worker(scene, 1));
        scene.spawn(&crew, |scene| worker(scene, 2));
        // SAFETY: as above.
        unsafe { tasks.publish_all() };
        scene.pool.sleep.new_work();
        crew.wait();
    },
};

/// A pool is told to end while a task is under way, which makes another: the pool ends, and not before
/// both have run.
const SHUTDOWN: Model = Model {
    name: "hand-off: shutdown",
    preemptions: Some(1),
    needs: &[(Step::InboxNotify, Failure::Deadlock)],
    body: || {
        fn worker(scene: &Scene, index: usize) {
            let Scene { pool, .. } = scene;
            let own = &pool.workers[index];
            let look = || {
                if pool.has_ended() {
                    return Some(None);
                }
                // SAFETY: this is that worker's own thread.
                let found = unsafe { own.tasks.pop_newest() }.or_else(|| pool.injector.pop());
                match found {
                    Some(entry) => Some(Some(entry)),
                    None => pool.end_if_quiescent().then_some(None),
                }
            };
            let more = || !pool.injector.is_empty();
            while let Some(entry) = find_work(&pool.sleep, index, look, more) {
                if scene.run(entry) == 0 {
                    own.stats.made_tasks.add_release(1);
                    // SAFETY: as above; the scene outlives the entry.
                    unsafe {
                        own.tasks.push_private(scene.entry(1));
                        own.tasks.publish_all();
                    }
                    pool.sleep.new_work();
                }
                own.stats.finished_tasks.add_release(1);
            }
            claim(
                scene.jobs.iter().all(Parcel::is_opened),
                "a pool ends after its tasks",
            );
        }
        let scene = Scene::new(2);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| worker(scene, 0));
        scene.spawn(&crew, |scene| worker(scene, 1));
        scene.pool.inject(scene.entry(0));
        scene.pool.terminate();
        crew.wait();
    },
};

#[test]
fn loom_injected_work_finds_a_sleepy_worker() {
    INJECTOR.check();
}

#[test]
fn loom_injected_work_finds_one_of_two_workers() {
    INJECTOR_TWO_WORKERS.check();
}

#[test]
fn loom_mail_finds_its_worker_in_order() {
    INBOX.check();
}

#[test]
fn loom_mail_from_two_senders_finds_its_worker() {
    INBOX_TWO_SENDERS.check();
}

#[test]
fn loom_a_public_task_finds_a_sleepy_thief() {
    DEQUE.check();
}

#[test]
fn loom_tasks_taken_along_are_found() {
    TAKEN_ALONG.check();
}

#[test]
fn loom_a_pool_ends_after_its_last_task() {
    SHUTDOWN.check();
}
