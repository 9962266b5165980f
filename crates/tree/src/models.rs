//! Loom models of the tree's protocol: every interleaving of a few threads, within a bound on
//! interruptions.
//!
//! Each model must hold, and must fail when any of the steps that it names is left out, with the failure named beside
//! the step (`jobtree_base::modelling`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use jobtree_base::modelling::{Failure, check};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::body::{Body, BodyResult};
use crate::job::Job;
use crate::options::JobOptions;
use crate::stack::{StackName, is_woken_on, set_waker_of_stack, start_on};
use crate::step::Step;
use crate::tree::Tree;
use crate::word::JobState;

fn child(parent: &Job) -> (Job, Body) {
    parent
        .attach(JobOptions::new().started())
        .expect("the parent has not ended")
}

#[test]
fn loom_complete_against_cancel_against_attach() {
    check(
        2,
        &[
            (Step::AttachInvolves, Failure::Assertion),
            (Step::BornCancelled, Failure::Assertion),
            (Step::Broadcast, Failure::Assertion),
        ],
        || {
            let tree = Tree::new();
            let (job, body) = child(tree.root());
            let canceller = {
                let job = job.clone();
                thread::spawn(move || job.cancel("stop"))
            };
            let attacher = {
                let job = job.clone();
                thread::spawn(move || match job.attach(JobOptions::new()) {
                    Ok((child, child_body)) => {
                        assert!(!job.is_ended(), "a job ended before its child");
                        // Level-triggered: once the parent's cancellation is seen, so is the child's,
                        // as soon as the one who cancels has returned.
                        Some((child, child_body))
                    }
                    Err(_) => {
                        assert!(
                            job.state() != JobState::Active,
                            "refused by a job that runs"
                        );
                        None
                    }
                })
            };
            body.end(BodyResult::Value);
            let cancelled = canceller.join().expect("no panic");
            if let Some((child, child_body)) = attacher.join().expect("no panic") {
                assert!(!job.is_ended(), "a job ended before its child");
                assert_eq!(child.is_cancelled(), cancelled, "the child was not told");
                assert_eq!(child_body.start(), !cancelled);
                child_body.end(BodyResult::Value);
            }
            let expected = if cancelled {
                JobState::Cancelled
            } else {
                JobState::Completed
            };
            assert_eq!(job.state(), expected);
        },
    );
}

#[test]
fn loom_last_child_against_body_return() {
    check(
        2,
        &[
            (Step::Lock, Failure::Race),
            (Step::EndAwaitsBody, Failure::Invariant),
            (Step::EndAwaitsChildren, Failure::Invariant),
        ],
        || {
            let tree = Tree::new();
            let (job, body) = child(tree.root());
            let (last, last_body) = child(&job);
            let ender = {
                let job = job.clone();
                thread::spawn(move || {
                    assert!(!job.is_ended(), "a job ended before its child");
                    last_body.end(BodyResult::Failed("no".into()));
                })
            };
            assert!(!job.is_ended(), "a job ended before its body");
            body.end(BodyResult::Value);
            ender.join().expect("no panic");
            assert_eq!(
                job.state(),
                JobState::Failed,
                "nobody ended the job, or too early"
            );
            assert!(last.is_ended());
            assert_eq!(tree.counters().failed, 2, "each job ends once");
        },
    );
}

/// Counts, and wakes the thread that waits, if it sleeps.
struct Parked {
    thread: Option<thread::Thread>,
    rings: AtomicUsize,
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, Ordering::AcqRel);
        if let Some(thread) = &self.thread {
            thread.unpark();
        }
    }
}

/// A waiter whose entry is known to the job; `None` if it has ended.
fn wait(
    job: &Job,
    thread: Option<thread::Thread>,
) -> (Arc<Parked>, Option<Pin<Box<crate::wait::Ended>>>) {
    let parked = Arc::new(Parked {
        thread,
        rings: AtomicUsize::new(0),
    });
    let mut ended = Box::pin(job.ended());
    let waker = Waker::from(parked.clone());
    match ended.as_mut().poll(&mut Context::from_waker(&waker)) {
        Poll::Ready(()) => (parked, None),
        Poll::Pending => (parked, Some(ended)),
    }
}

/// Drops a waiter, but keeps its memory: a list that still has its entry then fails an assertion, and does not make
/// loom use memory that was freed.
fn take_back(waiter: Option<Pin<Box<crate::wait::Ended>>>) {
    if let Some(waiter) = waiter {
        // SAFETY: the box is given up without being freed, so the waiter stays where it is, and is dropped once.
        unsafe { std::ptr::drop_in_place(Box::into_raw(Pin::into_inner_unchecked(waiter))) };
    }
}

#[test]
fn loom_waiter_against_completion() {
    check(
        2,
        &[
            (Step::WaiterInvolves, Failure::Deadlock),
            (Step::Lock, Failure::Race),
        ],
        || {
            let tree = Tree::new();
            let (job, body) = child(tree.root());
            let worker = thread::spawn(move || body.end(BodyResult::Value));
            let (parked, entry) = wait(&job, Some(thread::current()));
            if entry.is_some() {
                while parked.rings.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
            }
            assert_eq!(job.state(), JobState::Completed);
            worker.join().expect("no panic");
            let counters = tree.counters();
            assert_eq!(counters.waiters_woken, counters.waiters_registered);
        },
    );
}

#[test]
fn loom_cancel_against_waiter_removal() {
    check(
        2,
        &[
            (Step::RemovalLooks, Failure::Assertion),
            (Step::Lock, Failure::Race),
        ],
        || {
            let tree = Tree::new();
            let (job, body) = child(tree.root());
            let (stays, entry) = wait(&job, None);
            let (stays_too, entry_too) = wait(&job, None);
            let (goes, going) = wait(&job, None);
            let ender = {
                let job = job.clone();
                thread::spawn(move || {
                    job.cancel("stop");
                    body.end(BodyResult::Cancelled);
                })
            };
            take_back(going);
            // The entry is gone: the thread that wakes must not touch it any more, and must not have lost the others.
            ender.join().expect("no panic");
            take_back(entry);
            take_back(entry_too);
            for stays in [stays, stays_too] {
                assert_eq!(stays.rings.load(Ordering::Acquire), 1, "woken once");
            }
            assert!(goes.rings.load(Ordering::Acquire) <= 1);
            assert_eq!(job.state(), JobState::Cancelled);
        },
    );
}

/// A stack with a bell, on which a body runs.
struct Stack {
    bell: Arc<Parked>,
    is_in_use: UnsafeCell<bool>,
}

/// Makes a waker of the name of a [`Stack`], as a cancellation does.
unsafe fn waker_of(name: *const ()) -> Waker {
    // SAFETY: models keep their stacks until all threads have ended.
    let stack = unsafe { &*name.cast::<Stack>() };
    // SAFETY: loom looks whether any thread writes meanwhile.
    let is_in_use = stack.is_in_use.with(|is_in_use| unsafe { *is_in_use });
    assert!(is_in_use, "rung after the body has returned");
    Waker::from(Arc::clone(&stack.bell))
}

#[test]
fn loom_cancel_against_a_body_that_waits_on_its_stack() {
    // SAFETY: a body that has not returned still uses its stack.
    unsafe { set_waker_of_stack(waker_of) };
    const STEPS: &[(Step, Failure)] = &[
        (Step::WaitIsAnnounced, Failure::Deadlock),
        (Step::BodyIsWoken, Failure::Deadlock),
        (Step::StackIsLocked, Failure::Race),
    ];
    check(2, STEPS, || {
        let tree = Tree::new();
        let (parent, parent_body) = child(tree.root());
        let (job, body) = parent.attach(JobOptions::new()).expect("it runs");
        let stack = Arc::new(Stack {
            bell: Arc::new(Parked {
                thread: Some(thread::current()),
                rings: AtomicUsize::new(0),
            }),
            is_in_use: UnsafeCell::new(true),
        });
        // From above: no waiter is entered in the job's lists, so it is the stack that makes it worth telling.
        let canceller = thread::spawn(move || parent.cancel("stop"));
        let name = StackName::new(Arc::as_ptr(&stack).cast()).expect("not null");
        if start_on(&body, name) {
            assert!(is_woken_on(&job, Some(name)), "it runs there");
            loop {
                stack.bell.rings.swap(0, Ordering::AcqRel);
                if job.is_cancelled() {
                    break;
                }
                while stack.bell.rings.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
            }
        }
        body.end(BodyResult::Cancelled);
        // SAFETY: loom looks whether any thread reads meanwhile.
        stack
            .is_in_use
            .with_mut(|is_in_use| unsafe { *is_in_use = false });
        assert!(canceller.join().expect("no panic"), "it ran until then");
        parent_body.end(BodyResult::Cancelled);
        assert_eq!(job.state(), JobState::Cancelled);
    });
}

#[test]
fn loom_reading_a_cancellation_against_the_end_of_its_origin() {
    const STEPS: &[(Step, Failure)] = &[
        (Step::OriginIsSettled, Failure::Invariant),
        (Step::Lock, Failure::Race),
    ];
    check(2, STEPS, || {
        let tree = Tree::new();
        let (above, above_body) = child(tree.root());
        let (below, below_body) = child(&above);
        assert!(above.cancel("stop"));
        let origin = above.id();
        let reader = {
            let below = below.clone();
            thread::spawn(move || {
                let cancelled = below.cancellation().expect("it was cancelled");
                assert_eq!(cancelled.origin(), origin);
                let message = cancelled.reason().message();
                assert!(message.is_none_or(|message| message == "stop"));
            })
        };
        below_body.end(BodyResult::Cancelled);
        above_body.end(BodyResult::Cancelled);
        reader.join().expect("no panic");
        let cancelled = below.cancellation().expect("it was cancelled");
        assert_eq!(cancelled.origin(), origin, "the id is known after the end");
    });
}

#[test]
fn loom_a_cancellation_from_above_against_the_end_of_the_job() {
    const STEPS: &[(Step, Failure)] = &[
        (Step::OriginIsSettled, Failure::Invariant),
        (Step::OriginIsSettledLast, Failure::Invariant),
    ];
    check(2, STEPS, || {
        let tree = Tree::new();
        let (above, above_body) = child(tree.root());
        let (below, below_body) = child(&above);
        // Without a waiter, it would end as a leaf, which a cancelled job never does.
        let _waits = below.on_cancel(|_| {});
        let origin = above.id();
        let canceller = thread::spawn(move || above.cancel("stop"));
        below_body.end(BodyResult::Value);
        above_body.end(BodyResult::Value);
        if let Some(cancelled) = below.cancellation() {
            assert_eq!(cancelled.origin(), origin);
        }
        canceller.join().expect("no panic");
    });
}
