//! Aging: over all who wait, from the first time they were queued, and with a bound that is a formula.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_lanes::{JobManager, Lane, LaneJob, Next, Priority, PumpLimit};
use jobtree_runtime::{BoxError, Runtime, sim, sleep};
use support::{FAR, Log, Random, World, note, watch};

const MS: Duration = Duration::from_millis(1);

#[test]
fn aging_looks_at_all_who_wait_and_counts_from_the_first_enqueue() {
    let _watchdog = watch();
    let report = sim::Runtime::new(1).run(|runtime: &Runtime| {
        // Two seconds, which is the default.
        let manager = JobManager::builder().runtime(runtime).build()?;
        let log = Log::new();
        let (noted, mut dispatches) = (log.clone(), 0);
        let old = LaneJob::coroutine(move |_| {
            dispatches += 1;
            if dispatches < 3 {
                return Ok(Next::NextDispatch);
            }
            noted.note("old");
            Ok(Next::Done(()))
        });
        let schedule = |what, priority| {
            drop(manager.schedule(note(&log, what).priority(priority).lane(Lane::Main)));
        };
        let old = manager.schedule(old.priority(Priority::Lowest).lane(Lane::Main));
        let pump = |jobs| manager.pump(&Lane::Main, PumpLimit::jobs(jobs));
        pump(1)?;
        sleep(1000 * MS)?;
        for _ in 0..3 {
            schedule("young", Priority::Lowest);
        }
        sleep(900 * MS)?;
        // It comes back to the end of its bucket, behind those that are younger.
        pump(1)?;
        for _ in 0..10 {
            schedule("urgent", Priority::Highest);
        }
        sleep(99 * MS)?;
        pump(2)?;
        assert_eq!(log.all(), ["urgent", "urgent"], "nobody is aged yet");
        sleep(MS)?;
        pump(2)?;
        let mut then = log.all().split_off(2);
        then.sort();
        assert_eq!(then, ["old", "urgent"], "by age and by priority in turn");
        old.join()?;
        manager.shutdown(FAR)?;
        Ok(())
    });
    report.outcome.unwrap();
}

/// A job as the test sees it.
struct Seen {
    queued_in_frame: u32,
    first_turn: Option<usize>,
    has_ended: bool,
    /// The last turn that may be its first.
    bound: Option<usize>,
}

#[derive(Default)]
struct Frames {
    turns: usize,
    jobs: Vec<Seen>,
}

const AGING_IN_FRAMES: u32 = 8;

/// Frames with random jobs, and in each of them as many turns; how many waited for longer than the aging time.
fn random_frames(runtime: &Runtime, seed: u64) -> Result<usize, BoxError> {
    let mut random = Random(seed);
    let turns_a_frame = 1 + random.below(3);
    let arrivals = 1 + random.below(2 * turns_a_frame);
    let manager = JobManager::builder()
        .runtime(runtime)
        .queue_limit(0)
        .aging(AGING_IN_FRAMES * MS)
        .build()?;
    let world = Arc::new(Mutex::new(Frames::default()));
    for frame in 0..30 {
        for _ in 0..random.below(arrivals + 1) {
            let priority = match random.below(5) {
                0 => Priority::Lowest,
                _ => Priority::ALL[1 + random.below(4) as usize],
            };
            let index = world.lock().unwrap().jobs.len();
            world.lock().unwrap().jobs.push(Seen {
                queued_in_frame: frame,
                first_turn: None,
                has_ended: false,
                bound: None,
            });
            let mut left = random.below(3);
            let inside = Arc::clone(&world);
            let job = LaneJob::coroutine(move |_| {
                let mut world = inside.lock().unwrap();
                world.turns += 1;
                let turn = world.turns;
                let seen = &mut world.jobs[index];
                seen.first_turn.get_or_insert(turn);
                seen.has_ended = left == 0;
                left = left.saturating_sub(1);
                Ok(match seen.has_ended {
                    true => Next::Done(()),
                    false => Next::NextDispatch,
                })
            });
            drop(manager.schedule(job.priority(priority).lane(Lane::Main)));
        }
        // Who is aged from now on has its turn after those that came first and still wait: `2 (O + 1)` turns.
        let mut now = world.lock().unwrap();
        for index in 0..now.jobs.len() {
            let job = &now.jobs[index];
            if job.first_turn.is_none() && job.queued_in_frame + AGING_IN_FRAMES == frame {
                let waits = |other: &&Seen| {
                    !other.has_ended && other.queued_in_frame <= job.queued_in_frame
                };
                let others = now.jobs.iter().filter(waits).count() - 1;
                now.jobs[index].bound = Some(now.turns + 2 * (others + 1));
            }
        }
        drop(now);
        manager.pump(&Lane::Main, PumpLimit::jobs(turns_a_frame as usize))?;
        sleep(MS)?;
    }
    let world = world.lock().unwrap();
    let mut waited_long = 0;
    for (index, job) in world.jobs.iter().enumerate() {
        let Some(bound) = job.bound else {
            continue;
        };
        let turn = job.first_turn.unwrap_or(world.turns + 1);
        let is_open = job.first_turn.is_none() && world.turns < bound;
        assert!(
            turn <= bound || is_open,
            "job {index}: turn {turn}, not {bound}"
        );
        waited_long += 1;
    }
    manager.shutdown(FAR)?;
    Ok(waited_long)
}

#[test]
fn nobody_waits_for_longer_than_the_formula_in_a_thousand_random_runs() {
    let _watchdog = watch();
    let (next, waited_long) = (Mutex::new(0), Mutex::new(0));
    sim::check(0..1000, |runtime| {
        let seed = {
            let mut next = next.lock().unwrap();
            *next += 1;
            *next
        };
        let count = random_frames(runtime, seed)?;
        *waited_long.lock().unwrap() += count;
        Ok(())
    });
    let waited_long = waited_long.into_inner().unwrap();
    assert!(waited_long > 1000, "{waited_long} had a bound to keep");
}

#[test]
fn under_a_flood_on_the_workers_the_lowest_has_its_turn() {
    let _watchdog = watch();
    let world = World::with(1, |builder| builder.workers(1).aging(MS));
    // Two that are always there: by priority alone nobody else would ever run.
    let floods: Vec<_> = (0..2)
        .map(|_| {
            let job = LaneJob::coroutine(|_| Ok(Next::<()>::NextDispatch));
            world.manager.schedule(job.priority(Priority::Highest))
        })
        .collect();
    let lowest = LaneJob::action(|| Ok(())).priority(Priority::Lowest);
    world.manager.schedule(lowest).join().unwrap();
    assert!(floods.iter().all(|flood| !flood.is_finished()));
    world.end();
}
