//! Loom models of the states of a future that runs as a job: wakes from outside and from its own poll, cancellation,
//! and the end.
//!
//! The pool's queue is a counter behind a lock here. The future is ready when it has seen all messages that it waits
//! for; a message is written without any order of its own, so that only the wake hands it over.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

use super::state::TaskState;
use crate::atomics::Mutex;
use crate::modelling::{Crew, Failure, check, claim};
use crate::step::Step;

/// How many things the future waits for.
const MESSAGES: usize = 2;
/// The message of a thread that does what the future waits for.
const VALUE: usize = 0;
/// The message of a thread that cancels the job: a wake like any other.
const CANCELLATION: usize = 1;

/// A task, the queue that it is put into, and what it waits for.
struct Scene {
    state: TaskState,
    queue: Mutex<Queue>,
    messages: [AtomicBool; MESSAGES],
    /// The future itself: how often it was polled.
    polls: UnsafeCell<usize>,
}

struct Queue {
    entries: usize,
    has_ended: bool,
    sleeping: Vec<thread::Thread>,
}

// SAFETY: the state is made for sharing, and loom checks the cells.
unsafe impl Sync for Scene {}
// SAFETY: as above.
unsafe impl Send for Scene {}

impl Scene {
    /// A task in the queue that waits for the messages whose place in `awaited` is `true`.
    fn new(awaited: [bool; MESSAGES]) -> Arc<Scene> {
        Arc::new(Scene {
            state: TaskState::queued(),
            queue: Mutex::new(Queue {
                entries: 1,
                has_ended: false,
                sleeping: Vec::new(),
            }),
            messages: awaited.map(|is_awaited| AtomicBool::new(!is_awaited)),
            polls: UnsafeCell::new(0),
        })
    }

    fn change_queue<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let (result, sleeping) = {
            let mut queue = self.queue.lock().expect("no panic");
            let result = change(&mut queue);
            let is_news = queue.entries > 0 || queue.has_ended;
            let sleeping = if is_news {
                std::mem::take(&mut queue.sleeping)
            } else {
                Vec::new()
            };
            (result, sleeping)
        };
        for thread in sleeping {
            thread.unpark();
        }
        result
    }

    fn enqueue(&self) {
        let (entries, has_ended) = self.change_queue(|queue| {
            queue.entries += 1;
            (queue.entries, queue.has_ended)
        });
        claim(!has_ended, "a task that has ended is not queued");
        claim(entries == 1, "a task is in the queue once");
    }

    /// Takes the task out of the queue; `false` when it has ended.
    fn take(&self) -> bool {
        loop {
            let mut queue = self.queue.lock().expect("no panic");
            if queue.entries > 0 {
                queue.entries -= 1;
                return true;
            }
            if queue.has_ended {
                return false;
            }
            queue.sleeping.push(thread::current());
            drop(queue);
            thread::park();
        }
    }

    /// Runs the task whenever it is in the queue, until it has ended. `stack` stands for the worker's stack.
    fn work(&self, stack: usize, wakes_itself: bool) {
        while self.take() {
            self.state.begin_run();
            self.state.begin_poll(name_of(stack));
            let is_ready = self.poll(stack, wakes_itself);
            self.state.end_poll();
            if is_ready {
                self.state.end();
                self.change_queue(|queue| queue.has_ended = true);
            } else if !self.state.comes_to_rest() {
                self.enqueue();
            }
        }
    }

    /// One poll. With `wakes_itself` the future gives way once before it checks its messages.
    fn poll(&self, stack: usize, wakes_itself: bool) -> bool {
        // SAFETY: loom checks that no other worker polls it meanwhile.
        let polls = self.polls.with_mut(|polls| unsafe {
            *polls += 1;
            *polls
        });
        if wakes_itself && polls == 1 {
            claim(
                !self.state.wake(|| name_of(stack)),
                "the worker that polls a task queues it",
            );
            return false;
        }
        self.messages
            .iter()
            .all(|message| message.load(Ordering::Relaxed))
    }

    /// Another thread, which runs on no stack of a worker, writes a message and wakes the task.
    fn send(&self, message: usize) {
        self.messages[message].store(true, Ordering::Relaxed);
        self.wake();
    }

    fn wake(&self) {
        if self.state.wake(std::ptr::null) {
            self.enqueue();
        }
    }

    fn spawn(self: &Arc<Scene>, crew: &Crew, body: fn(&Scene)) {
        let scene = Arc::clone(self);
        crew.spawn(move || body(&scene));
    }
}

/// A name for the stack of worker `number`.
fn name_of(number: usize) -> *const () {
    std::ptr::without_provenance(number)
}

/// A wake from outside meets a poll that is about to rest, and one more wake comes late.
#[test]
fn loom_a_wake_from_outside_reaches_a_task_that_comes_to_rest() {
    const NEEDS: &[(Step, Failure)] = &[
        (Step::TaskWakeReleases, Failure::Deadlock),
        (Step::TaskRunAcquires, Failure::Deadlock),
        (Step::TaskRestLooks, Failure::Deadlock),
        (Step::TaskRequeueKeepsWord, Failure::Deadlock),
        (Step::TaskRunnerQueues, Failure::Assertion),
        (Step::TaskDoneStays, Failure::Assertion),
    ];
    check(4, NEEDS, || {
        let scene = Scene::new([true, false]);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.send(VALUE);
            scene.wake();
        });
        scene.work(1, false);
        crew.wait();
    });
}

/// A task that gives way on its own stack, while another thread wakes it.
#[test]
fn loom_a_task_that_wakes_itself_runs_again() {
    const NEEDS: &[(Step, Failure)] = &[
        (Step::TaskSelfWakeCounts, Failure::Deadlock),
        (Step::TaskOwnStackOnly, Failure::Race),
    ];
    check(4, NEEDS, || {
        let scene = Scene::new([true, false]);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| scene.send(VALUE));
        scene.work(1, true);
        crew.wait();
    });
}

/// Two workers take turns with the task while another thread does what it waits for and then cancels the job: the task
/// needs both wakes, is polled by one worker at a time, and ends once.
#[test]
fn loom_a_wake_and_a_cancellation_with_two_workers() {
    const NEEDS: &[(Step, Failure)] = &[
        (Step::TaskRestReleases, Failure::Race),
        (Step::TaskRestLooks, Failure::Deadlock),
        (Step::TaskWakeReleases, Failure::Deadlock),
        (Step::TaskRunnerQueues, Failure::Assertion),
    ];
    check(2, NEEDS, || {
        let scene = Scene::new([true, true]);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.send(VALUE);
            scene.send(CANCELLATION);
        });
        scene.spawn(&crew, |scene| scene.work(2, false));
        scene.work(1, false);
        crew.wait();
    });
}
