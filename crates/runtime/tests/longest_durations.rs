//! `Duration::MAX`, wherever a time can be given: longer than the clock can count, so it never passes.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jobtree_pool::Pool;
use jobtree_runtime::supervision::{Backoff, RestartPolicy, Strategy, Supervisor};
use jobtree_runtime::{
    Dispatcher, JobError, Outcome, block_on, channel, future, nursery, select, select_async,
    shield, sim, sleep, with_timeout,
};
use support::{runtime, watch};

const MAX: Duration = Duration::MAX;
const SHORT: Duration = Duration::from_millis(1);

#[test]
fn a_pause_between_restarts_grows_to_the_longest_and_no_further() {
    let pause = |first, longest, restart| Backoff::exponential(first, longest).pause(restart);
    assert_eq!(Backoff::constant(MAX).pause(1), MAX);
    assert_eq!(Backoff::constant(MAX).pause(usize::MAX), MAX);
    assert_eq!(pause(MAX, MAX, 2), MAX);
    assert_eq!(pause(SHORT, MAX, usize::MAX), MAX);
    assert_eq!(pause(MAX, SHORT, 1), SHORT);
    assert_eq!(
        pause(Duration::ZERO, MAX, 1000),
        Duration::ZERO,
        "no pause does not grow"
    );
    // Smoothly, also where the number of times no longer fits into 32 bits.
    let nanos =
        |restart| pause(Duration::from_nanos(1), Duration::from_secs(3600), restart).as_nanos();
    assert_eq!(nanos(33), 1 << 32);
    assert_eq!(nanos(34), 1 << 33);
}

#[test]
fn a_child_whose_pause_never_ends_is_not_restarted() {
    let starts = AtomicUsize::new(0);
    let year = Duration::from_secs(365 * 24 * 3600);
    let report = sim::Runtime::new(1).run(|_| {
        let outcome = with_timeout(year, || {
            let mut supervisor =
                Supervisor::new(Strategy::OneForOne).backoff(Backoff::constant(MAX));
            supervisor.job("fails", RestartPolicy::OnFailure, || {
                starts.fetch_add(1, Ordering::Relaxed);
                Err("no luck".into())
            });
            Ok(supervisor.run()?)
        });
        assert!(matches!(outcome, Err(JobError::TimedOut(_))), "{outcome:?}");
        Ok(())
    });
    report.outcome.unwrap();
    assert_eq!(starts.into_inner(), 1);
}

#[test]
fn waits_with_the_longest_limit_wait_for_what_they_are_for() {
    let _watch = watch();
    let runtime = runtime(2);
    runtime
        .nursery(|n| {
            assert_eq!(with_timeout(MAX, || Ok(1))?, 1);
            assert_eq!(shield(MAX, || Ok(2))?, 2);
            let limited = n.job_options().timeout(MAX).spawn(|| Ok(sleep(SHORT)?));
            limited.join()?;
            // They wait: something else ends them.
            let is_over = |outcome: Outcome<()>| matches!(outcome, Err(JobError::TimedOut(_)));
            assert!(is_over(with_timeout(SHORT, || Ok(sleep(MAX)?))));
            assert!(is_over(with_timeout(SHORT, || Ok(block_on(
                future::sleep(MAX)
            )??))));
            let (sender, receiver) = channel::bounded::<u8>(1);
            sender.send_timeout(1, Some(MAX))?;
            assert!(is_over(with_timeout(SHORT, || Ok(
                sender.send_timeout(2, Some(MAX))?
            ))));
            assert_eq!(receiver.recv_timeout(Some(MAX))?, 1);
            assert!(is_over(with_timeout(SHORT, || {
                receiver.recv_timeout(Some(MAX))?;
                Ok(())
            })));
            let dispatcher = Dispatcher::new(1)?;
            dispatcher.run(|| Ok(()))?;
            dispatcher.drain(MAX)?;
            Ok(())
        })
        .unwrap();
    runtime.shutdown(MAX).unwrap();
    let pool = Pool::builder().workers(1).build().unwrap();
    pool.install(|| ());
    pool.shutdown(MAX).unwrap();
}

#[test]
fn a_clause_with_the_longest_time_is_never_chosen() {
    let _watch = watch();
    let chosen = nursery(|_| {
        let (sender, receiver) = channel::bounded(1);
        sender.send(7)?;
        let blocking = select! {
            after(MAX) => 0,
            recv(receiver) -> value => value.unwrap(),
        }?;
        sender.send(8)?;
        let awaited = block_on(async {
            select_async! {
                after(MAX) => 0,
                recv(receiver) -> value => value.unwrap(),
            }
        })??;
        Ok((blocking, awaited))
    });
    assert_eq!(chosen.unwrap(), (7, 8));
}
