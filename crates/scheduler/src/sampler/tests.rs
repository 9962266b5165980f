//! A sampler on a machine that is told what to say; and what measures elsewhere, here.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::sampler::elsewhere::Elsewhere;
use crate::sampler::family::Process;
use crate::sampler::machine::Census;

#[derive(Clone, Default)]
struct Script(Arc<Mutex<Said>>);

#[derive(Default)]
struct Said {
    total: u64,
    idle: u64,
    processes: Vec<Process>,
    clock: u64,
    gauges: Gauges,
    broken: bool,
}

impl Script {
    fn say(&self, change: impl FnOnce(&mut Said)) {
        change(&mut self.0.lock().unwrap());
    }
}

impl Machine for Script {
    fn counters(&mut self, at: Duration) -> Result<Counters, String> {
        let said = self.0.lock().unwrap();
        if said.broken {
            return Err("no such file".to_owned());
        }
        Ok(Counters {
            at,
            total: said.total,
            idle: said.idle,
            disks: Vec::new(),
        })
    }

    fn gauges(&mut self) -> Gauges {
        self.0.lock().unwrap().gauges.clone()
    }

    fn census(&mut self) -> Census {
        let said = self.0.lock().unwrap();
        Census {
            processes: said.processes.clone(),
            now: Some(said.clock),
        }
    }

    fn started(&self, pid: u32) -> Option<u64> {
        let said = self.0.lock().unwrap();
        let mut processes = said.processes.iter();
        processes
            .find(|process| process.pid == pid)
            .map(|process| process.started)
    }

    fn processors(&self) -> usize {
        2
    }
}

fn process(pid: u32, started: u64, own: u64) -> Process {
    Process {
        pid,
        parent: 1,
        started,
        own,
        reaped: 0,
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn our_own_time_is_told_apart() {
    let script = Script::default();
    script.say(|said| said.processes = vec![process(9, 3, 500)]);
    let mut sampler = Sampler::of(script.clone());
    sampler.register(&[9]);
    assert_eq!(
        sampler.sample(SECOND),
        Err(SampleError::TooSoon),
        "the first"
    );
    script.say(|said| {
        said.total += 200;
        said.idle += 50;
        said.processes = vec![process(9, 3, 600)];
    });
    let sample = sampler.sample(2 * SECOND).unwrap();
    assert_eq!((sample.cpu_idle, sample.own_cpu), (0.25, 0.5));
    assert_eq!(sample.foreign_cpu(), 0.25);
}

#[test]
fn own_time_that_a_pair_too_soon_saw_is_not_lost() {
    let script = Script::default();
    script.say(|said| said.processes = vec![process(9, 3, 0)]);
    let mut sampler = Sampler::of(script.clone());
    sampler.register(&[9]);
    sampler.sample(SECOND).unwrap_err();
    script.say(|said| {
        said.total += 4;
        said.processes = vec![process(9, 3, 4)];
    });
    assert_eq!(sampler.sample(SECOND * 2), Err(SampleError::TooSoon));
    script.say(|said| said.total += 96);
    assert_eq!(sampler.sample(SECOND * 3).unwrap().own_cpu, 0.04);
}

#[test]
fn own_time_is_never_more_than_what_was_used() {
    let script = Script::default();
    script.say(|said| said.processes = vec![process(9, 3, 0)]);
    let mut sampler = Sampler::of(script.clone());
    sampler.register(&[9]);
    sampler.sample(SECOND).unwrap_err();
    script.say(|said| {
        said.total += 100;
        said.idle += 90;
        said.processes = vec![process(9, 3, 60)];
    });
    let sample = sampler.sample(SECOND * 2).unwrap();
    assert!((sample.own_cpu - 0.1).abs() < 1e-9 && sample.foreign_cpu() < 1e-9);
}

#[test]
fn after_a_jump_the_next_pair_counts() {
    let script = Script::default();
    let mut sampler = Sampler::of(script.clone());
    script.say(|said| (said.total, said.idle) = (10_000, 9_000));
    sampler.sample(SECOND).unwrap_err();
    script.say(|said| (said.total, said.idle) = (100, 100));
    assert_eq!(sampler.sample(SECOND * 2), Err(SampleError::Jumped));
    script.say(|said| (said.total, said.idle) = (300, 200));
    assert_eq!(sampler.sample(SECOND * 3).unwrap().cpu_idle, 0.5);
}

#[test]
fn what_cannot_be_read_is_no_idle_machine() {
    let script = Script::default();
    script.say(|said| said.broken = true);
    let mut sampler = Sampler::of(script);
    let error = sampler.sample(SECOND).unwrap_err();
    assert!(matches!(error, SampleError::Unreadable(_)));
    assert!(error.to_string().contains("nothing is admitted"));
}

#[test]
fn the_load_average_stands_in_where_there_is_no_pressure_less_our_own() {
    let sample_with = |psi_cpu, own| {
        let script = Script::default();
        script.say(|said| {
            said.processes = vec![process(9, 3, 0)];
            said.gauges.load = Some(3.0);
            said.gauges.psi_cpu = psi_cpu;
            said.gauges.missing = vec![Missing {
                signal: "psi_cpu",
                why: "not there".to_owned(),
            }];
        });
        let mut sampler = Sampler::of(script.clone());
        sampler.register(&[9]);
        sampler.sample(SECOND).unwrap_err();
        script.say(|said| {
            said.total += 200_000;
            said.processes = vec![process(9, 3, own)];
        });
        // So long that the average has forgotten what was before.
        let sample = sampler.sample(SECOND * 1000).unwrap();
        assert_eq!(sampler.missing()[0].signal, "psi_cpu");
        sample.load_per_core
    };
    assert_eq!(sample_with(Some(1.0), 0), None);
    assert_eq!(sample_with(None, 0), Some(1.5));
    let less = sample_with(None, 100_000).unwrap();
    assert!((less - 1.0).abs() < 1e-6, "one of three is ours: {less}");
}

#[test]
fn elsewhere_gives_samples_too() {
    let began = Instant::now();
    let mut sampler = Sampler::of(Elsewhere::new(Path::new(".")));
    sampler.register(&[std::process::id()]);
    let mut spun = 0u64;
    let sample = loop {
        assert!(began.elapsed() < 60 * SECOND, "no sample in a minute");
        match sampler.sample(began.elapsed()) {
            // The first percentages are of nothing; and what we do has to show.
            Ok(sample) if sample.own_cpu > 0.0 => break sample,
            Ok(_) | Err(SampleError::TooSoon) => {}
            Err(error) => panic!("{error}"),
        }
        let until = Instant::now() + SECOND / 4;
        while Instant::now() < until {
            spun += 1;
        }
    };
    assert!(spun > 0 && sample.cpu_idle < 1.0);
    assert!(sample.memory_available.is_some() && sample.disk_free.is_some());
    let missing: Vec<_> = sampler
        .missing()
        .iter()
        .map(|missing| missing.signal)
        .collect();
    assert!(missing.contains(&"psi_io") && missing.contains(&"disk_busy"));
}
