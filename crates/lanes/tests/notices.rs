//! What the manager says of its own accord, and how often, by the clock of a simulation.

mod support;

use std::future::ready;
use std::time::Duration;

use jobtree_lanes::{JobManager, JobManagerBuilder, Lane, LaneJob, Notice, Priority, PumpLimit};
use jobtree_runtime::{BoxError, Runtime, future, nursery, sim, sleep};
use support::{FAR, Log, watch};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs `test` in a simulation, with a manager whose notices are kept.
fn simulated(
    describe: impl FnOnce(JobManagerBuilder) -> JobManagerBuilder + Send,
    test: impl FnOnce(&JobManager, &Log<Notice>) -> Result<(), BoxError> + Send,
) {
    let report = sim::Runtime::new(7).run(|runtime: &Runtime| {
        let log = Log::new();
        let heard = log.clone();
        let manager = describe(JobManager::builder().runtime(runtime))
            .on_notice(move |notice| heard.note(notice.clone()))
            .build()?;
        test(&manager, &log)?;
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

fn on_main(manager: &JobManager, priority: Priority, label: &'static str) {
    let job = LaneJob::action(|| Ok(())).label(label);
    drop(manager.schedule(job.priority(priority).lane(Lane::Main)));
}

fn long_queue(queued: usize, threshold: usize, priority: Priority) -> Notice {
    Notice::LongQueue {
        lane: Lane::Main,
        priority,
        queued,
        threshold,
    }
}

#[test]
fn a_long_bucket_is_told_of_from_the_threshold_on_and_once_a_second() {
    let _watchdog = watch();
    simulated(
        |builder| builder.queue_warning(3),
        |manager, log| {
            let schedule = |priority| on_main(manager, priority, "job");
            schedule(Priority::Normal);
            schedule(Priority::Normal);
            // Each priority has a bucket of its own.
            schedule(Priority::High);
            assert_eq!(log.all(), []);
            schedule(Priority::Normal);
            let mut expected = vec![long_queue(3, 3, Priority::Normal)];
            assert_eq!(log.all(), expected);
            schedule(Priority::Normal);
            sleep(SECOND - MS)?;
            schedule(Priority::Normal);
            assert_eq!(log.all(), expected, "not again in the same second");
            sleep(MS)?;
            schedule(Priority::Normal);
            expected.push(long_queue(6, 3, Priority::Normal));
            assert_eq!(log.all(), expected);
            Ok(())
        },
    );
}

#[test]
fn the_warning_threshold_is_clamped_to_the_queue_limit() {
    let _watchdog = watch();
    simulated(
        |builder| builder.queue_limit(4).queue_warning(2048),
        |manager, log| {
            for _ in 0..4 {
                assert_eq!(log.all(), []);
                on_main(manager, Priority::Low, "job");
            }
            assert_eq!(log.all(), [long_queue(4, 4, Priority::Low)]);
            Ok(())
        },
    );
}

/// Labels and numbers of those left out, of all jobs that were said to starve.
fn starved(log: &Log<Notice>) -> Vec<(String, u64)> {
    let of = |notice| match notice {
        Notice::Starved {
            label, left_out, ..
        } => Some((label, left_out)),
        _ => None,
    };
    log.all().into_iter().filter_map(of).collect()
}

#[test]
fn starvation_is_told_of_from_2_s_on_and_rate_limited_by_label() {
    let _watchdog = watch();
    simulated(
        |builder| builder,
        |manager, log| {
            let pump = || manager.pump(&Lane::Main, PumpLimit::unlimited());
            on_main(manager, Priority::Normal, "in time");
            sleep(2 * SECOND - MS)?;
            pump()?;
            assert_eq!(starved(log), []);
            for _ in 0..5 {
                on_main(manager, Priority::Normal, "same");
            }
            on_main(manager, Priority::Normal, "other");
            sleep(2 * SECOND)?;
            pump()?;
            let mut expected = vec![("same".to_owned(), 0), ("other".to_owned(), 0)];
            assert_eq!(starved(log), expected);
            on_main(manager, Priority::Normal, "same");
            sleep(10 * SECOND)?;
            pump()?;
            expected.push(("same".to_owned(), 4));
            assert_eq!(starved(log), expected);
            Ok(())
        },
    );
}

#[test]
fn a_job_that_waits_for_something_does_not_starve() {
    let _watchdog = watch();
    simulated(
        |builder| builder,
        |manager, log| {
            let job = LaneJob::future(async |context| {
                future::sleep(60 * SECOND).await?;
                context.next_dispatch().await?;
                Ok(())
            });
            manager.schedule(job).join()?;
            assert_eq!(log.all(), []);
            Ok(())
        },
    );
}

#[test]
fn average_wait_is_the_mean_of_a_priority() {
    let _watchdog = watch();
    simulated(
        |builder| builder,
        |manager, _| {
            assert_eq!(manager.average_wait(Priority::Low), None);
            on_main(manager, Priority::Low, "early");
            sleep(SECOND)?;
            on_main(manager, Priority::Low, "late");
            on_main(manager, Priority::High, "urgent");
            sleep(500 * MS)?;
            manager.pump(&Lane::Main, PumpLimit::unlimited())?;
            assert_eq!(manager.average_wait(Priority::Low), Some(SECOND));
            assert_eq!(manager.average_wait(Priority::High), Some(500 * MS));
            assert_eq!(manager.average_wait(Priority::Lowest), None);
            Ok(())
        },
    );
}

#[test]
fn futures_that_wait_for_a_slot_are_told_of_once_a_second_however_many() {
    let _watchdog = watch();
    simulated(
        |builder| builder.queue_limit(1).queue_warning(0),
        |manager, log| {
            let sleeps = LaneJob::future(async |_| Ok(future::sleep(3 * SECOND + MS).await?));
            drop(manager.schedule(sleeps));
            nursery(|n| {
                let waiting: Vec<_> = (0..3)
                    .map(|_| {
                        n.spawn_future(async {
                            let job = LaneJob::future(|_| ready(Ok(())));
                            manager.schedule_async(job).await.await?;
                            Ok(())
                        })
                    })
                    .collect();
                for waits in waiting {
                    waits.join()?;
                }
                Ok(())
            })?;
            let blocked: Vec<_> = log
                .all()
                .into_iter()
                .map(|notice| match notice {
                    Notice::Backpressure { capacity, blocked } => (capacity, blocked),
                    other => panic!("{other}"),
                })
                .collect();
            assert_eq!(blocked, [(1, SECOND), (1, 2 * SECOND), (1, 3 * SECOND)]);
            Ok(())
        },
    );
}
