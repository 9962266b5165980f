//! Jobs that take what they can get, beside one that does not: on one worker, in the profile `service`.
//!
//! The neighbour works in units and lets others run after each. Its units are counted over a short window, alone and
//! beside the hostile job, by the time that the worker's thread had a processor; what counts is the median of the ratios.
//! `JOBTREE_HOSTILE_FIGURES=1` has all of them measured and printed.
//!
//! The discipline itself is tested without a clock, in `pool/src/preempted/tests.rs` and `pool/src/fair_share/tests.rs`.
//!
//! A program of its own, because floods of memory are only seen with the allocator that counts.

mod support;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use jobtree_macros::budgeted;
use jobtree_pool::yield_now;
use jobtree_runtime::budget::{Budget, CountingAllocator};
use jobtree_runtime::{
    BoxError, Nursery, Profile, Runtime, channel, future, nursery, sleep, supervisor, tick,
    tick_async,
};
use support::{end, until, watch};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator::system();

/// How long one measurement takes.
const WINDOW: Duration = Duration::from_millis(60);
/// The percentage of its throughput that a neighbour must keep. Without optimisation, where a switch of stacks costs more
/// than the neighbour's work, less will do.
const ENOUGH: u64 = if cfg!(debug_assertions) { 80 } else { 90 };
/// The same in the cases that README names as exceptions: a neighbour that spawns and joins a job for every unit, beside a spawn
/// bomb of empty jobs (the worker finds other work before the joined job), and any neighbour beside a loop of sleeps for no time.
const ENOUGH_OF_EXCEPTION: u64 = ENOUGH - 10;
/// Measurements, an odd number; as soon as more than half are good, or bad, the median is known.
const ATTEMPTS: usize = if cfg!(debug_assertions) { 5 } else { 11 };

/// Readings at most: on a busy machine a window of the worker's own time takes many of the clock's.
const READINGS: usize = 16;

/// What both sides of a measurement know.
#[derive(Default)]
struct Arena {
    units: AtomicU64,
    is_over: AtomicBool,
    hostile_began: AtomicBool,
    neighbour_ended: AtomicBool,
    /// How many readings the neighbour shall have made.
    wanted: AtomicUsize,
    readings: [OnceLock<Reading>; READINGS],
}

/// How far the neighbour is, made by itself.
struct Reading {
    units: u64,
    time: Duration,
}

impl Arena {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Begins a unit of the neighbour's work, and returns its number.
    fn next_unit(&self) -> u64 {
        let units = self.units.fetch_add(1, Ordering::Relaxed);
        for reading in &self.readings[..self.wanted.load(Ordering::Relaxed)] {
            reading.get_or_init(|| Reading {
                units,
                time: time_on_processor(),
            });
        }
        units
    }

    /// Has the neighbour make its reading number `index`.
    fn read(&self, index: usize) -> &Reading {
        self.wanted.store(index + 1, Ordering::Relaxed);
        let has_ended = || self.neighbour_ended.load(Ordering::Relaxed);
        until(|| self.readings[index].get().is_some() || has_ended());
        let reading = self.readings[index].get();
        reading.expect("the neighbour works until the arena is closed")
    }
}

/// How long the calling thread has had a processor, where that is known; elsewhere any clock.
fn time_on_processor() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    let known = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = known.and_then(|text| text.split(' ').next()?.parse().ok());
    match nanoseconds {
        Some(nanoseconds) => Duration::from_nanos(nanoseconds),
        None => START.get_or_init(Instant::now).elapsed(),
    }
}

/// What a job does until the arena is closed.
type Player = fn(&Arena) -> Result<(), BoxError>;

/// A unit of the neighbour's work: some microseconds.
#[budgeted(crate = jobtree_runtime)]
fn unit(seed: u64) -> u64 {
    let mut value = seed;
    for _ in 0..200 {
        value = value
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    std::hint::black_box(value)
}

/// Works, and lets others run after each unit.
fn polite(arena: &Arena) -> Result<(), BoxError> {
    while !arena.is_over() {
        unit(arena.next_unit());
        yield_now();
    }
    Ok(())
}

/// Has each unit done by a job of its own.
fn delegating(arena: &Arena) -> Result<(), BoxError> {
    nursery(|n| {
        while !arena.is_over() {
            let next = arena.next_unit();
            n.spawn(move || Ok(unit(next))).join()?;
        }
        Ok(())
    })?;
    Ok(())
}

/// A loop that gives nobody a chance.
#[budgeted(crate = jobtree_runtime)]
fn busy(arena: &Arena) -> Result<(), BoxError> {
    let mut value = 0_u64;
    while !arena.is_over() {
        value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(7));
    }
    Ok(())
}

/// Spawns whatever it may, again and again; the jobs do nothing.
fn bomb_of_duds(arena: &Arena) -> Result<(), BoxError> {
    supervisor(|n| {
        while !arena.is_over() {
            drop(n.try_spawn(|| Ok(())));
        }
        Ok(())
    })?;
    Ok(())
}

/// Spawns whatever it may, again and again; the jobs take what they can get.
fn bomb_of_bombs(arena: &Arena) -> Result<(), BoxError> {
    supervisor(|n: &Nursery<'_, '_>| {
        while !arena.is_over() {
            drop(n.try_spawn(|| busy(arena)));
        }
        Ok(())
    })?;
    Ok(())
}

/// Sends to itself as fast as it can.
fn channel_flood(arena: &Arena) -> Result<(), BoxError> {
    let (sender, receiver) = channel::bounded(100);
    while !arena.is_over() {
        for _ in 0..100 {
            sender.send([0_u8; 32])?;
        }
        for _ in 0..100 {
            receiver.recv()?;
        }
    }
    Ok(())
}

/// Two that keep each other busy: each wakes the other with every value.
fn channel_ping_pong(arena: &Arena) -> Result<(), BoxError> {
    nursery(|n| {
        let (there, from_here) = channel::rendezvous();
        let (back, from_there) = channel::rendezvous();
        n.launch(move || {
            while let Ok(value) = from_here.recv() {
                let value: u64 = value;
                if back.send(value + 1).is_err() {
                    break;
                }
            }
            Ok(())
        });
        while !arena.is_over() {
            there.send(1)?;
            from_there.recv()?;
        }
        drop(there);
        Ok(())
    })?;
    Ok(())
}

/// A future that is always ready to go on.
fn busy_future(arena: &Arena) -> Result<(), BoxError> {
    nursery(|n| {
        let busy = n.spawn_future(async {
            let mut value = 0_u64;
            while !arena.is_over() {
                tick_async().await;
                value = std::hint::black_box(value.wrapping_mul(31).wrapping_add(7));
            }
            Ok(())
        });
        Ok(busy.join()?)
    })?;
    Ok(())
}

/// A future that wakes itself, over and over.
fn restless_future(arena: &Arena) -> Result<(), BoxError> {
    nursery(|n| {
        let restless = n.spawn_future(async {
            while !arena.is_over() {
                future::yield_now().await;
            }
            Ok(())
        });
        Ok(restless.join()?)
    })?;
    Ok(())
}

/// Gives way all the time, and does nothing else.
fn yielder(arena: &Arena) -> Result<(), BoxError> {
    while !arena.is_over() {
        yield_now();
    }
    Ok(())
}

/// Sleeps for no time, again and again.
fn zero_sleeper(arena: &Arena) -> Result<(), BoxError> {
    while !arena.is_over() {
        sleep(Duration::ZERO)?;
    }
    Ok(())
}

/// Yields just before its time slice is used up.
fn nearly_busy(arena: &Arena) -> Result<(), BoxError> {
    while !arena.is_over() {
        for _ in 0..Budget::CHILD.ops - 100 {
            tick();
        }
        yield_now();
    }
    Ok(())
}

/// Thirty jobs that all do the same.
fn family(arena: &Arena, member: Player) -> Result<(), BoxError> {
    nursery(|n: &Nursery<'_, '_>| {
        for _ in 0..30 {
            n.launch(move || member(arena));
        }
        Ok(())
    })?;
    Ok(())
}

fn family_of_busy_loops(arena: &Arena) -> Result<(), BoxError> {
    family(arena, busy)
}

fn family_of_yielders(arena: &Arena) -> Result<(), BoxError> {
    family(arena, yielder)
}

/// Uses more memory than it may, and just less than it would be cancelled for.
fn allocation_flood(arena: &Arena) -> Result<(), BoxError> {
    const BLOCK: usize = 16 * 1024;
    let most = Budget::CHILD.memory as usize * 7 / 4 / BLOCK;
    while !arena.is_over() {
        let mut kept = Vec::new();
        for _ in 0..most {
            kept.push(vec![1_u8; BLOCK]);
            tick();
        }
    }
    Ok(())
}

/// How many units the neighbour does in a second, beside the hostile job if there is one.
fn throughput(neighbour: Player, hostile: Option<Player>) -> f64 {
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .build()
        .unwrap();
    let arena = &Arena::default();
    let counted = runtime.supervisor(|n| {
        let budget = Budget {
            spawns: 40,
            ..Budget::CHILD
        };
        n.job_options().budget(budget).launch(|| {
            let result = neighbour(arena);
            if let Err(error) = &result {
                eprintln!("the neighbour has failed: {error}");
            }
            arena.neighbour_ended.store(true, Ordering::Relaxed);
            result
        });
        until(|| arena.units.load(Ordering::Relaxed) > 0);
        let hostile = hostile.map(|hostile| {
            let spawner = n.job_options().budget(budget);
            spawner.spawn(move || {
                arena.hostile_began.store(true, Ordering::Relaxed);
                hostile(arena)
            })
        });
        if hostile.is_some() {
            until(|| arena.hostile_began.load(Ordering::Relaxed));
        }
        // Both are in full swing after a moment.
        std::thread::sleep(WINDOW / 4);
        let before = arena.read(0);
        let mut windows = (1..READINGS).map(|index| {
            std::thread::sleep(WINDOW);
            arena.read(index)
        });
        let after = windows
            .find(|after| after.time - before.time >= WINDOW * 4 / 5)
            .unwrap_or_else(|| arena.read(READINGS - 1));
        arena.is_over.store(true, Ordering::Relaxed);
        if let Some(hostile) = hostile {
            // It was there all the time.
            hostile.join()?;
        }
        let time = after.time - before.time;
        Ok((after.units - before.units) as f64 / time.as_secs_f64())
    });
    end(&runtime);
    counted.unwrap()
}

#[track_caller]
fn assert_neighbours_live(hostile: Player) {
    assert_neighbours_keep(hostile, ENOUGH, ENOUGH);
}

/// Asserts what a polite neighbour keeps, and what one keeps that delegates.
#[track_caller]
fn assert_neighbours_keep(hostile: Player, enough: u64, enough_to_delegate: u64) {
    for (name, neighbour, enough) in [
        ("polite", polite as Player, enough),
        ("delegating", delegating, enough_to_delegate),
    ] {
        let wants_figures = std::env::var_os("JOBTREE_HOSTILE_FIGURES").is_some();
        let mut percents = Vec::new();
        let good = |percents: &[u64]| percents.iter().filter(|kept| **kept >= enough).count();
        for _ in 0..ATTEMPTS {
            let alone = throughput(neighbour, None);
            let beside = throughput(neighbour, Some(hostile));
            percents.push((beside / alone * 100.0).round() as u64);
            let good = good(&percents);
            let is_decided = good > ATTEMPTS / 2 || percents.len() - good > ATTEMPTS / 2;
            if is_decided && !wants_figures {
                break;
            }
        }
        percents.sort_unstable();
        eprintln!("{name}: {percents:?} %");
        if std::env::var_os("JOBTREE_SANITIZED").is_some() {
            // A sanitizer makes a switch of stacks dearer than anything else: the shares are not meant for that.
            continue;
        }
        assert!(
            good(&percents) > ATTEMPTS / 2,
            "a {name} neighbour does not keep {enough} % of its throughput: {percents:?}"
        );
    }
}

#[test]
fn a_busy_loop() {
    let _watch = watch();
    assert_neighbours_live(busy);
}

#[test]
fn a_spawn_bomb_of_duds() {
    let _watch = watch();
    assert_neighbours_keep(bomb_of_duds, ENOUGH, ENOUGH_OF_EXCEPTION);
}

#[test]
fn a_spawn_bomb_of_busy_loops() {
    let _watch = watch();
    assert_neighbours_live(bomb_of_bombs);
}

#[test]
fn a_flood_of_channel_operations() {
    let _watch = watch();
    assert_neighbours_live(channel_flood);
}

#[test]
fn two_that_wake_each_other_over_channels() {
    let _watch = watch();
    assert_neighbours_live(channel_ping_pong);
}

#[test]
fn a_busy_loop_in_a_future() {
    let _watch = watch();
    assert_neighbours_live(busy_future);
}

#[test]
fn a_future_that_wakes_itself() {
    let _watch = watch();
    assert_neighbours_live(restless_future);
}

#[test]
fn a_flood_of_allocations() {
    let _watch = watch();
    assert_neighbours_live(allocation_flood);
}

#[test]
fn a_yielder() {
    let _watch = watch();
    assert_neighbours_live(yielder);
}

#[test]
fn a_sleeper_that_never_sleeps() {
    let _watch = watch();
    assert_neighbours_keep(zero_sleeper, ENOUGH_OF_EXCEPTION, ENOUGH_OF_EXCEPTION);
}

#[test]
fn a_loop_that_yields_just_in_time() {
    let _watch = watch();
    assert_neighbours_live(nearly_busy);
}

#[test]
fn a_family_of_busy_loops() {
    let _watch = watch();
    assert_neighbours_live(family_of_busy_loops);
}

#[test]
fn a_family_of_yielders() {
    let _watch = watch();
    assert_neighbours_live(family_of_yielders);
}

/// The other way round: what takes much gets something, too.
#[test]
fn a_busy_loop_is_not_starved_by_polite_neighbours() {
    let _watch = watch();
    let runtime = Runtime::builder()
        .workers(1)
        .profile(Profile::Service)
        .build()
        .unwrap();
    let arena = &Arena::default();
    runtime
        .supervisor(|n| {
            for _ in 0..5 {
                n.launch(|| polite(arena));
            }
            // More than a turn: it has to come back, although there is always somebody else.
            let rounds = 50 * Budget::CHILD.ops;
            let busy = n.spawn(move || {
                (0..rounds).for_each(|_| tick());
                Ok(())
            });
            busy.join()?;
            arena.is_over.store(true, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    end(&runtime);
}
