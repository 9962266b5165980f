//! Memory as part of a budget. A program of its own, because it needs the allocator that counts.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use jobtree_runtime::budget::{self, Budget, Counter, CountingAllocator, Decision, JobBudget};
use jobtree_runtime::{Job, JobError, Profile, Runtime, WaitingFor, nursery, sleep, tick};
use support::{end, runtime_of, until, watch};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

const MEGABYTE: usize = 1 << 20;

fn own() -> JobBudget {
    budget::of(&Job::current().unwrap()).unwrap()
}

fn block(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

#[test]
fn what_is_allocated_counts_for_the_job_and_those_above_until_it_is_freed() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let scope = n.job().clone();
            let above = move || budget::of(&scope).unwrap().memory_used;
            // What a thread needs to wait, it gets with its first wait: not while the job below counts.
            sleep(Duration::from_millis(1))?;
            let job = n.spawn(move || {
                let (before, before_above) = (own().memory_used, above());
                let mut buffer = block(100_000);
                assert_eq!(own().memory_used, before + 100_000);
                assert_eq!(above(), before_above + 100_000);
                buffer.reserve_exact(150_000);
                assert_eq!(own().memory_used, before + 150_000);
                drop(buffer);
                assert_eq!(own().memory_used, before);
                assert_eq!(above(), before_above);
                assert_eq!(own().exhaustions, 0);
                Ok(())
            });
            Ok(job.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn what_a_job_leaves_behind_counts_for_nobody_when_it_has_ended() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let used = || budget::of(n.job()).unwrap().memory_used;
            let mut kept = Vec::with_capacity(20);
            n.spawn(|| Ok(())).join()?;
            let before = used();
            for _ in 0..20 {
                // Twenty times the quota of one, twice that of the scope.
                kept.push(n.spawn(|| Ok(block(MEGABYTE))).join()?);
            }
            assert!(
                used() < before + MEGABYTE as u64,
                "{} after {before}",
                used()
            );
            drop(kept);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn freeing_what_others_allocated_is_no_gain() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    runtime
        .nursery(|n| {
            let gift = block(MEGABYTE / 2);
            let job = n.spawn(move || {
                let own_block = block(1_000);
                let before = own().memory_used;
                assert!(before >= 1_000);
                drop(gift);
                // Its own use is down to nothing, not below; a new block counts in full.
                assert_eq!(own().memory_used, 0);
                let next = block(5_000);
                assert_eq!(own().memory_used, 5_000);
                drop((own_block, next));
                Ok(())
            });
            Ok(job.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn above_its_quota_a_job_gives_way_at_its_next_tick() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let (others, are_queued) = (&AtomicBool::new(false), &AtomicBool::new(false));
    runtime
        .nursery(|n| {
            let job = n.spawn(move || {
                // Keeps the one worker, so that they cannot have run before.
                while !are_queued.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                let kept = block(MEGABYTE + 1);
                assert_eq!(own().exhaustions, 0, "nothing happens before the tick");
                tick();
                assert_eq!(own().exhaustions, 1);
                assert!(others.load(Ordering::Acquire), "they had the worker");
                // A tick without a new allocation costs nothing special.
                tick();
                assert_eq!(own().exhaustions, 1);
                drop(kept);
                tick();
                assert_eq!(own().exhaustions, 1);
                Ok(())
            });
            n.launch(|| {
                others.store(true, Ordering::Release);
                Ok(())
            });
            are_queued.store(true, Ordering::Release);
            Ok(job.join()?)
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn at_twice_its_quota_a_job_is_cancelled() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Service, 1);
    let outcome = runtime.nursery(|n| {
        let flood = n.spawn(|| {
            let mut kept = Vec::new();
            loop {
                kept.push(block(MEGABYTE / 8));
                tick();
                assert!(kept.len() < 100, "nobody stops it");
            }
            #[expect(unreachable_code, reason = "names the type")]
            Ok(())
        });
        let error = flood.join().unwrap_err();
        assert!(matches!(error, JobError::Cancelled(_)));
        assert!(error.to_string().contains("bytes of memory"), "{error}");
        // The others are none the worse for it.
        Ok(n.spawn(|| Ok(block(10).capacity())).join()?)
    });
    assert_eq!(outcome.unwrap(), 10);
    end(&runtime);
}

#[test]
fn a_job_whose_supervisor_has_memory_to_give_goes_on() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            n.supervise_budgets(|exhausted| {
                assert_eq!(exhausted.lacking(), Counter::Memory);
                Decision::Recharge(Budget {
                    memory: 4 << 20,
                    ..Budget::NONE
                })
            });
            let hungry = n.spawn(|| {
                let kept = block(3 * MEGABYTE);
                tick();
                drop(kept);
                Ok(own().recharges)
            });
            assert_eq!(hungry.join()?, 1);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn no_operation_is_lost_when_an_allocation_ends_the_turn() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Cluster, 1);
    runtime
        .nursery(|n| {
            let hungry = n.spawn(|| {
                tick();
                let kept = block(2 * MEGABYTE);
                tick();
                drop(kept);
                Ok(budget::remaining().ops)
            });
            until(|| hungry.job().waiting_for() == Some(WaitingFor::Budget));
            n.exhausted()[0]
                .recharge(Budget {
                    memory: 2 << 20,
                    ..Budget::NONE
                })
                .unwrap();
            assert_eq!(hungry.join()?, Budget::CHILD.ops - 2);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}

#[test]
fn threads_and_jobs_without_a_budget_are_not_counted() {
    let _watch = watch();
    let runtime = runtime_of(Profile::Open, 1);
    let (sender, blocks) = channel();
    runtime
        .spawn(move || {
            sender.send(block(64 * MEGABYTE))?;
            tick();
            assert_eq!(budget::remaining().memory, u64::MAX);
            Ok(())
        })
        .join()
        .unwrap();
    drop(blocks.recv().unwrap());
    std::thread::spawn(|| drop(block(MEGABYTE))).join().unwrap();
    assert_eq!(runtime.statistics().exhaustions, 0);
    end(&runtime);
}

#[test]
fn jobs_that_have_ended_use_none_of_the_memory_of_the_job_that_spawned_them() {
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .build()
        .unwrap();
    let used = runtime.supervisor(|n| {
        let budget = Budget {
            spawns: 40,
            ..Budget::CHILD
        };
        let job = n.job_options().budget(budget).spawn(|| {
            let own = Job::current().unwrap();
            let used = || budget::of(&own).unwrap().memory_used;
            let mut all = vec![used()];
            nursery(|n| {
                for _ in 0..5 {
                    for _ in 0..1000 {
                        n.spawn(|| Ok(1)).join()?;
                    }
                    all.push(used());
                }
                Ok(())
            })?;
            Ok(all)
        });
        Ok(job.join()?)
    });
    let used = used.unwrap();
    assert!(used[5] < used[1] + 10_000, "{used:?}");
}
