//! A scope can launch jobs for months: nothing of them is left. A program of its own, because it counts every byte.

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_runtime::{BoxError, Nursery, sleep};
use support::{FAR, end, rounds, runtime, until, watch};

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

/// How many may be on their way at once: else one would measure the queue.
const MOST_AT_ONCE: usize = 64;

type Body = fn(usize) -> Result<(), BoxError>;

/// Launches `count` jobs and returns when all have ended.
fn launch_many<'scope>(
    n: &'scope Nursery<'scope, '_>,
    running: &'scope AtomicUsize,
    count: usize,
    limit: Option<Duration>,
    body: Body,
) {
    for number in 0..count {
        until(|| running.load(Ordering::Acquire) < MOST_AT_ONCE);
        running.fetch_add(1, Ordering::Relaxed);
        let guarded = move || {
            struct Ended<'a>(&'a AtomicUsize);
            impl Drop for Ended<'_> {
                fn drop(&mut self) {
                    self.0.fetch_sub(1, Ordering::Release);
                }
            }
            let _ended = Ended(running);
            body(number)
        };
        match limit {
            Some(limit) => n
                .job_options()
                .label("limited")
                .timeout(limit)
                .launch(guarded),
            None => n.launch(guarded),
        }
    }
    until(|| running.load(Ordering::Acquire) == 0);
    until(|| n.job().children().is_empty());
}

#[test]
fn ten_times_as_many_launches_take_no_more_memory() {
    let _watch = watch();
    let cases: [(&str, Option<Duration>, Body); 4] = [
        ("that return", None, |_| Ok(())),
        ("that fail", None, |number| {
            Err(format!("number {number} failed").into())
        }),
        ("with a limit that is far away", Some(FAR), |_| Ok(())),
        ("that sleep", None, |number| {
            let some = Duration::from_micros(if number % 100 == 0 { 1 } else { 0 });
            Ok(sleep(some)?)
        }),
    ];
    let few = 2000 * rounds(1).min(10);
    for (what, limit, body) in cases {
        let runtime = runtime(2);
        let running = AtomicUsize::new(0);
        runtime
            .supervisor(|n| {
                launch_many(n, &running, few, limit, body);
                let after_few = LIVE_BYTES.load(Ordering::Relaxed);
                launch_many(n, &running, 10 * few, limit, body);
                let grown = LIVE_BYTES.load(Ordering::Relaxed) - after_few;
                println!("{} jobs {what}: {grown} bytes more", 10 * few);
                // Less than a pointer for each: caches and queues that had not reached their size.
                let most = 10 * few * size_of::<usize>();
                assert!(grown < most as isize, "jobs {what}: {grown} bytes");
                Ok(())
            })
            .unwrap();
        end(&runtime);
    }
}
