//! Very many children that are blocked on everything one can be blocked on are cancelled at once: all end, none is left,
//! and it takes no longer than to start them.
//!
//! A program of its own, because it counts every byte.
#![cfg(not(miri))]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::pending;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::time::{Duration, Instant};

use jobtree_runtime::channel::rendezvous;
use jobtree_runtime::{Job, JobHandle, JobState, Runtime, sleep, sync};
use support::{Census, FAR, end, time_on_processors, until, watch};

struct Counting;

static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

// SAFETY: everything is the system allocator's; only the sizes are added up.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE_BYTES.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many are blocked on each of the four.
fn count_of_each() -> usize {
    let is_thorough = !cfg!(debug_assertions) || std::env::var_os("JOBTREE_STRESS").is_some();
    if is_thorough { 25_000 } else { 5_000 }
}

/// What one round took.
struct Times {
    to_block: Duration,
    to_end: Duration,
    /// How long the process had processors while the children ended.
    busy: Duration,
}

/// Blocks `each` children on channels, timers, locks and joins, and cancels them.
fn block_and_cancel(runtime: &Runtime, each: usize) -> Times {
    let census = Census::default();
    let before = runtime.counters();
    let (sender, receiver) = rendezvous::<u8>();
    let lock = sync::Mutex::new(());
    let held = lock.lock().unwrap();
    let (receiver, lock) = (&receiver, &lock);
    let began = Instant::now();
    let mut times = None;
    let mut jobs: Vec<Job> = Vec::with_capacity(4 * each);
    let outcome = runtime.nursery(|n| {
        let mut keep = |handle: JobHandle<()>| jobs.push(handle.job().clone());
        for _ in 0..each {
            let value = census.value();
            keep(n.spawn(move || {
                let _kept = value;
                receiver.recv()?;
                Ok(())
            }));
            let value = census.value();
            keep(n.spawn(move || {
                let _kept = value;
                Ok(sleep(FAR)?)
            }));
            let value = census.value();
            keep(n.spawn(move || {
                let _kept = value;
                drop(lock.lock()?);
                Ok(())
            }));
            let (value, of_future) = (census.value(), census.value());
            let endless = n.spawn_future(async move {
                let _kept = of_future;
                pending::<()>().await;
                Ok(())
            });
            keep(n.spawn(move || {
                let _kept = value;
                Ok(endless.join()?)
            }));
        }
        for job in &jobs {
            until(|| job.waiting_for().is_some());
        }
        until(|| sender.stats().receivers_waiting == each);
        times = Some((began.elapsed(), time_on_processors(), Instant::now()));
        n.cancel("all of you");
        Ok(())
    });
    let (to_block, busy_before, cancelled_at) = times.expect("the body has come to its end");
    let (to_end, busy) = (cancelled_at.elapsed(), time_on_processors() - busy_before);
    assert!(outcome.unwrap_err().is_cancelled());
    assert!(jobs.iter().all(|job| job.state() == JobState::Cancelled));
    census.assert_all_gone(5 * each);
    // The children, the futures that some of them waited for, and the scope, which counts itself right after its end.
    let all = 5 * each as u64 + 1;
    until(|| runtime.counters().cancelled - before.cancelled >= all);
    let after = runtime.counters();
    assert_eq!(after.cancelled - before.cancelled, all);
    assert_eq!(after.created - before.created, all);
    assert_eq!(sender.stats().receivers_waiting, 0);
    drop(held);
    assert!(!lock.is_locked());
    Times {
        to_block,
        to_end,
        busy,
    }
}

/// The best of a few rounds in one life of a runtime.
fn live(each: usize) -> Times {
    let runtime = Runtime::builder()
        .workers(2)
        .small_stacks()
        .build()
        .unwrap();
    // Stacks are made in the first round, and machines have bad moments.
    let rounds = [(); 3].map(|()| block_and_cancel(&runtime, each));
    end(&runtime);
    let best = rounds.into_iter().min_by_key(|times| times.busy);
    best.expect("there were rounds")
}

#[test]
fn a_hundred_thousand_blocked_children_are_cancelled_and_none_is_left() {
    let _watch = watch();
    let each = count_of_each();
    // What a process has only once is made, and the memory that is kept for the next jobs is full.
    live(each);
    let before = LIVE_BYTES.load(Ordering::Relaxed);
    let Times {
        to_block,
        to_end,
        busy,
    } = live(each);
    println!(
        "{} children: blocked after {to_block:?}; ended {to_end:?} after the cancellation, for which {busy:?} on \
         processors were needed",
        4 * each
    );
    // Less than half of a job for each child: whatever one of them leaves behind would be more. Threads that have ended
    // may still be about to give back theirs.
    let left = || LIVE_BYTES.load(Ordering::Relaxed) - before;
    let is_little = || left() < 4 * each as isize * 64;
    let since = Instant::now();
    until(|| is_little() || since.elapsed() > Duration::from_secs(30));
    assert!(is_little(), "{} bytes are left", left());
    // Linear in their number, as blocking them is.
    let ratio = to_end.as_secs_f64() / to_block.as_secs_f64();
    assert!(
        ratio < 30.0,
        "ending takes {ratio:.1} times as long as blocking"
    );
    if !cfg!(debug_assertions) {
        // A second of two processors, however many others want them.
        assert!(busy < Duration::from_secs(2), "busy for {busy:?}");
    }
}
