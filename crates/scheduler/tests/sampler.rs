//! The sampler on the machine that runs this: a foreign load counts, the same load of a registered process does not.
//!
//! Others may load the machine meanwhile. So a load is never compared with an absolute figure: two samplers look at the
//! same interval, and differ in whom they take for ours.
#![cfg(target_os = "linux")]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use jobtree_queue::busy::Reading;
use jobtree_queue::capacity::capacity;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::{HostSignals, Sample};
use jobtree_scheduler::LeaseProcesses;
use jobtree_scheduler::sampler::{SampleError, Sampler};
use jobtree_worker::process_origin;
use watchdog::Watchdog;

/// A process that loads one core until it is dropped.
struct Burner(Child);

const SPIN: &str = "while :; do :; done";

impl Burner {
    fn start() -> Burner {
        Burner::running(SPIN)
    }

    /// The load is not the process itself but a child of it, which ends with it.
    fn as_a_child() -> Burner {
        Burner::running(
            "sh -c 'while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; done' & wait",
        )
    }

    fn running(script: &str) -> Burner {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::null());
        Burner(shell.spawn().expect("a shell"))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two samplers of the same intervals.
struct Pair {
    began: Instant,
    blind: Sampler,
    knowing: Sampler,
}

impl Pair {
    fn knowing(pids: &[u32]) -> Pair {
        Pair::with_share(pids, CAPACITY)
    }

    /// The lease of these processes has so many units.
    fn with_share(pids: &[u32], units: u32) -> Pair {
        let mut pair = Pair {
            began: Instant::now(),
            blind: Sampler::new("."),
            knowing: Sampler::new("."),
        };
        let lease = LeaseProcesses {
            units,
            pids: pids.to_vec(),
            origin: process_origin(pids),
        };
        pair.knowing.register(&[Arc::new(lease)], CAPACITY);
        pair
    }

    /// The next interval, of a fifth of a second or more, as both see it.
    fn next(&mut self) -> (Sample, Sample) {
        loop {
            sleep(Duration::from_millis(200));
            let at = self.began.elapsed();
            match (self.blind.sample(at), self.knowing.sample(at)) {
                (Ok(blind), Ok(knowing)) => return (blind, knowing),
                (Err(error @ SampleError::Unreadable(_)), _) => panic!("{error}"),
                _ => {}
            }
        }
    }
}

/// Busy and capacity by the processors alone: pressure and disks are as others make them.
fn judged(sample: Sample) -> (f64, u32) {
    let policy = Policy::default();
    let processors = Sample {
        cpu_idle: sample.cpu_idle,
        own_cpu: sample.own_cpu,
        ..Sample::idle()
    };
    let reading = Reading::of(&policy, &processors, &HostSignals::default());
    let busy = reading.busy.max(reading.cpu);
    (busy, capacity(&policy.capacity, busy))
}

/// Looks at interval after interval until one shows what is expected.
fn until_seen(pair: &mut Pair, shows: impl Fn(Sample, Sample) -> bool) -> (Sample, Sample) {
    let watchdog = Watchdog::watching("a load that shows");
    loop {
        let (blind, knowing) = pair.next();
        if shows(blind, knowing) {
            drop(watchdog);
            return (blind, knowing);
        }
    }
}

/// The units of the whole machine.
const CAPACITY: u32 = 100;

/// What a core is of this machine, and half of it: what a load gets in spite of others.
fn half_a_core() -> f64 {
    0.5 / std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

#[test]
fn a_foreign_load_counts_and_the_same_load_of_a_registered_process_does_not() {
    let burner = Burner::start();
    let mut pair = Pair::knowing(&[burner.pid()]);
    until_seen(&mut pair, |blind, knowing| {
        assert_eq!(blind.own_cpu, 0.0);
        let less = judged(blind).0 > judged(knowing).0 && judged(blind).1 < judged(knowing).1;
        let ours = blind.foreign_cpu() - knowing.foreign_cpu();
        // Both read the counters one after the other: some ticks of difference are theirs.
        let all_of_it = (ours - knowing.own_cpu).abs() < 0.1;
        less && all_of_it && knowing.own_cpu > half_a_core() * 0.5
    });
}

#[test]
fn busy_rises_and_capacity_falls_when_a_foreign_process_begins() {
    let mut pair = Pair::knowing(&[]);
    // Without a free core there is nothing that could rise: then the machine must be seen as full, and that is that.
    let free = |sample: Sample| sample.foreign_cpu() < 0.45;
    let patience = Instant::now();
    let mut before = pair.next().0;
    while !free(before) && patience.elapsed() < Duration::from_secs(5) {
        before = pair.next().0;
    }
    let _burner = Burner::start();
    if !free(before) {
        until_seen(&mut pair, |full, _| judged(full).1 < 100);
        return;
    }
    let (busy, capacity) = judged(before);
    until_seen(&mut pair, |after, _| {
        let (busy_now, capacity_now) = judged(after);
        busy_now > busy && capacity_now < capacity.max(1)
    });
}

#[test]
fn children_of_a_registered_process_are_ours_too() {
    let burner = Burner::as_a_child();
    let mut pair = Pair::knowing(&[burner.pid()]);
    until_seen(&mut pair, |blind, knowing| {
        knowing.own_cpu > half_a_core() * 0.5 && judged(blind).0 > judged(knowing).0
    });
}

#[test]
fn a_process_that_is_registered_no_longer_is_foreign() {
    let burner = Burner::start();
    let mut pair = Pair::knowing(&[burner.pid()]);
    until_seen(&mut pair, |_, knowing| {
        knowing.own_cpu > half_a_core() * 0.5
    });
    pair.knowing.register(&[], CAPACITY);
    let (_, first) = pair.next();
    assert_eq!(first.own_cpu, 0.0, "{first:?}");
}

#[test]
fn a_lease_takes_out_at_most_its_share() {
    let burner = Burner::start();
    // Less than the burner uses, however many cores there are.
    let units = ((half_a_core() * f64::from(CAPACITY)) as u32).max(1);
    let share = f64::from(units) / f64::from(CAPACITY);
    let mut pair = Pair::with_share(&[burner.pid()], units);
    until_seen(&mut pair, |_, knowing| {
        assert!(knowing.own_cpu <= share + 1e-9, "{knowing:?}");
        // Whole ticks are shared out: a little less than the share is all of it.
        knowing.own_cpu > share * 0.5
    });
}

#[test]
fn this_process_and_those_above_it_are_foreign() {
    let parent = std::os::unix::process::parent_id();
    let mut pair = Pair::knowing(&[std::process::id(), parent, 1]);
    let _burner = Burner::start();
    until_seen(&mut pair, |blind, knowing| {
        assert_eq!(knowing.own_cpu, 0.0, "the burner is below this process");
        blind.foreign_cpu() > half_a_core() * 0.5
    });
}

#[test]
fn a_process_that_does_not_exist_is_foreign() {
    let mut pair = Pair::knowing(&[u32::MAX - 7]);
    assert_eq!(pair.next().1.own_cpu, 0.0);
}

#[test]
fn this_machine_tells_what_a_linux_tells() {
    let mut pair = Pair::knowing(&[std::process::id()]);
    let (sample, _) = pair.next();
    assert!(
        sample
            .memory_available
            .is_some_and(|part| part > 0.0 && part <= 1.0)
    );
    assert!(
        sample
            .disk_free
            .is_some_and(|part| (0.0..=1.0).contains(&part))
    );
    // Pressure, or word that there is none and the load average instead.
    let missing = pair.blind.missing();
    match sample.psi_cpu {
        Some(pressure) => {
            assert!((0.0..=100.0).contains(&pressure) && sample.load_per_core.is_none());
        }
        None => {
            assert!(sample.load_per_core.is_some());
            assert!(missing.iter().any(|missing| missing.signal == "psi_cpu"));
        }
    }
}
