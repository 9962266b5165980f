//! Jobs on small stacks: very many can wait at once, and others do not notice.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_pool::{CountLatch, OnceLatch, join};
use jobtree_runtime::{Runtime, nursery};
use support::{end, runtime, watch};

/// Needs more than 64 KiB of stack.
#[inline(never)]
fn deep(levels: usize) -> usize {
    let room = std::hint::black_box([levels as u8; 4096]);
    match levels {
        0 => usize::from(room[17]),
        _ => deep(levels - 1) + usize::from(room[levels] != room[0]) + 1,
    }
}

#[test]
fn a_job_on_a_small_stack_waits_and_others_next_to_it_have_room() {
    let _watch = watch();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let ran_deep = AtomicUsize::new(0);
        let gate = OnceLatch::new();
        let outcome = runtime.nursery(|n| {
            let mut waiting = Vec::new();
            for _ in 0..100 {
                waiting.push(n.job_options().small_stack().spawn(|| {
                    gate.wait();
                    Ok(1)
                }));
                n.launch(|| {
                    ran_deep.fetch_add(deep(40), Ordering::Relaxed);
                    Ok(())
                });
            }
            n.launch(|| {
                gate.set();
                Ok(())
            });
            let mut sum = 0;
            for handle in waiting {
                sum += handle.join()?;
            }
            Ok(sum)
        });
        assert_eq!(outcome.unwrap(), 100);
        assert_eq!(ran_deep.into_inner(), 100 * 40);
        end(&runtime);
    }
}

#[test]
fn forks_and_scopes_of_a_job_on_a_small_stack_run_where_there_is_room() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(2)
        .small_stacks()
        .build()
        .unwrap();
    let outcome = runtime.nursery(|n| {
        let handles: Vec<_> = (0..50)
            .map(|_| {
                n.spawn(|| {
                    let (a, b) = join(|| 1, || 2);
                    let inner = nursery(|n| {
                        let children: Vec<_> = (0..10).map(|_| n.spawn(|| Ok(1))).collect();
                        let mut sum = 0;
                        for child in children {
                            sum += child.join()?;
                        }
                        Ok(sum)
                    })?;
                    Ok(a + b + inner)
                })
            })
            .collect();
        let mut sum = 0;
        for handle in handles {
            sum += handle.join()?;
        }
        Ok(sum)
    });
    assert_eq!(outcome.unwrap(), 50 * 13);
    end(&runtime);
}

#[test]
fn many_thousands_wait_at_once() {
    let _watch = watch();
    let count = if cfg!(miri) { 50 } else { 20_000 };
    let runtime = Runtime::builder()
        .workers(2)
        .small_stacks()
        .build()
        .unwrap();
    let (arrived, gate) = (CountLatch::new(count), OnceLatch::new());
    let outcome = runtime.nursery(|n| {
        for _ in 0..count {
            n.launch(|| {
                arrived.count_down();
                gate.wait();
                Ok(())
            });
        }
        arrived.wait();
        // All of them are in the middle of their bodies.
        gate.set();
        Ok(())
    });
    outcome.unwrap();
    end(&runtime);
}

#[test]
fn a_pool_may_have_256_workers() {
    let _watch = watch();
    let workers = if cfg!(miri) { 8 } else { 256 };
    let runtime = runtime(workers);
    let (arrived, gate) = (CountLatch::new(workers), OnceLatch::new());
    let outcome = runtime.nursery(|n| {
        for _ in 0..workers {
            n.launch(|| {
                arrived.count_down();
                gate.wait();
                Ok(())
            });
        }
        arrived.wait();
        gate.set();
        Ok(())
    });
    outcome.unwrap();
    end(&runtime);
}
