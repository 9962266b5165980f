//! Who waits hears of a cancellation, wherever the body of the job has got to: on the stack on which it began, which the job
//! knows; on another one, where a part of it was taken to; and not inside of a shield, though the same stack is woken. And a
//! job whose wait is over goes on at the next tick of the one that has its worker.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jobtree_pool::{OnceLatch, join};
use jobtree_runtime::{
    BoxError, JobError, JobHandle, block_on, budget, channel, nursery, shield, tick, tick_async,
};
use support::{FAR, end, rounds, runtime, until, watch};

/// Waits for what only a cancellation ends.
fn wait_until_cancelled() -> Result<(), BoxError> {
    Ok(block_on(std::future::pending())?)
}

fn ends_cancelled(child: JobHandle<()>) {
    assert!(matches!(child.join(), Err(JobError::Cancelled(_))));
}

#[test]
fn a_body_that_begins_to_wait_when_it_is_cancelled_hears_of_it() {
    let _watchdog = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(500) {
        let begun = Arc::new(OnceLatch::new());
        let child = runtime.spawn({
            let begun = Arc::clone(&begun);
            move || {
                begun.set();
                wait_until_cancelled()
            }
        });
        begun.wait();
        child.cancel("at about the same time");
        ends_cancelled(child);
    }
    end(&runtime);
}

#[test]
fn each_of_several_waits_hears_of_it() {
    let _watchdog = watch();
    let runtime = runtime(1);
    let (sender, receiver) = channel::rendezvous::<u32>();
    let is_inside = Arc::new(OnceLatch::new());
    let child = runtime.spawn({
        let is_inside = Arc::clone(&is_inside);
        move || {
            for expected in 0..3 {
                assert_eq!(receiver.recv()?, expected);
            }
            // In a scope, whose body runs on the same stack.
            let inner = nursery(|_| {
                is_inside.set();
                wait_until_cancelled()
            });
            assert!(matches!(inner, Err(JobError::Cancelled(_))));
            assert!(receiver.recv().is_err());
            wait_until_cancelled()
        }
    });
    for number in 0..3 {
        sender.send(number).unwrap();
    }
    is_inside.wait();
    child.cancel("enough");
    ends_cancelled(child);
    end(&runtime);
}

#[test]
fn a_part_of_the_body_that_waits_on_another_stack_hears_of_it() {
    let _watchdog = watch();
    let runtime = runtime(2);
    for _ in 0..rounds(20) {
        let both_run = Arc::new((OnceLatch::new(), OnceLatch::new()));
        let both = Arc::clone(&both_run);
        let child = runtime.spawn(move || {
            let (here, there) = join(
                || {
                    // Only another worker can set it, so the second half was taken.
                    both.0.wait();
                    wait_until_cancelled()
                },
                || {
                    both.0.set();
                    both.1.set();
                    wait_until_cancelled()
                },
            );
            here.and(there)
        });
        both_run.1.wait();
        child.cancel("enough");
        ends_cancelled(child);
    }
    end(&runtime);
}

#[test]
fn a_shield_is_woken_in_vain() {
    let _watchdog = watch();
    let runtime = runtime(1);
    let (sender, receiver) = channel::rendezvous::<u32>();
    let is_sheltered = Arc::new(AtomicBool::new(false));
    let child = runtime.spawn({
        let is_sheltered = Arc::clone(&is_sheltered);
        move || {
            // The stack has been waited on before, so the cancellation wakes it.
            receiver.recv()?;
            shield(FAR, || {
                is_sheltered.store(true, Ordering::Release);
                assert_eq!(receiver.recv()?, 2);
                Ok(())
            })?;
            wait_until_cancelled()
        }
    });
    sender.send(1).unwrap();
    until(|| is_sheltered.load(Ordering::Acquire));
    child.cancel("while it is in the shield");
    sender
        .send(2)
        .expect("what waits in a shield goes on waiting");
    ends_cancelled(child);
    end(&runtime);
}

#[test]
fn a_tick_lets_a_job_go_on_whose_wait_is_over() {
    let _watchdog = watch();
    let forms: [(&str, fn()); 3] = [
        ("tick", tick),
        ("charge", || budget::charge(1)),
        ("tick_async", || block_on(tick_async()).unwrap()),
    ];
    for (form, tick) in forms {
        // On the only worker the child begins when its parent waits.
        let runtime = runtime(1);
        let went_on = Arc::new(AtomicBool::new(false));
        let parent = runtime.spawn(move || {
            let (sender, receiver) = channel::rendezvous::<u32>();
            let seen = nursery(|n| {
                let child = n.spawn({
                    let went_on = Arc::clone(&went_on);
                    move || {
                        tick();
                        sender.send(1)?;
                        let before = went_on.load(Ordering::Acquire);
                        tick();
                        Ok((before, went_on.load(Ordering::Acquire)))
                    }
                });
                receiver.recv()?;
                went_on.store(true, Ordering::Release);
                Ok(child.join()?)
            })?;
            Ok(seen)
        });
        assert_eq!(parent.join().unwrap(), (false, true), "{form}");
        end(&runtime);
    }
}
