//! A sampler on a machine that is told what to say; and what measures elsewhere, here.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::sampler::elsewhere::Elsewhere;
use crate::sampler::family::Process;
use crate::sampler::machine::Census;
use crate::sampler::ownership::Place;
use jobtree_protocol::ProcessOrigin;

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
            interfaces: Vec::new(),
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

    fn process(&self, pid: u32) -> Option<Process> {
        let said = self.0.lock().unwrap();
        let mut processes = said.processes.iter();
        processes.find(|process| process.pid == pid).copied()
    }

    fn own_pid(&self) -> u32 {
        OWN
    }

    fn place(&self) -> Option<Place> {
        Some(Place {
            boot_id: BOOT.to_owned(),
            pid_namespace: NAMESPACE,
        })
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

const BOOT: &str = "6f0d1fc7-7b4e-4f5d-a1a8-0a4e1c1f8f11";
const NAMESPACE: u64 = 4_026_531_836;
/// The sampler's own process, and the one above it.
const OWN: u32 = 77;
const SHELL: u32 = 70;
/// The units of the whole machine.
const CAPACITY: u32 = 100;

/// A lease with one process of this machine.
fn lease(pid: u32, started: u64, units: u32) -> LeaseProcesses {
    LeaseProcesses {
        units,
        pids: vec![pid],
        origin: Some(Box::new(ProcessOrigin {
            boot_id: BOOT.to_owned(),
            pid_namespace: NAMESPACE,
            started: vec![started],
        })),
    }
}

/// Returns the part of the machine that counts as our own, if process 9, which started at 3, uses half of the machine, and
/// these leases are there.
fn own_cpu_with(leases: Vec<LeaseProcesses>) -> f64 {
    own_cpu_of(process(9, 3, 0), leases)
}

/// As [`own_cpu_with`], if this is the process that uses half of the machine.
fn own_cpu_of(user: Process, leases: Vec<LeaseProcesses>) -> f64 {
    let using = |own: u64| {
        let this = Process {
            parent: SHELL,
            ..process(OWN, 3, 0)
        };
        let mut all = vec![process(1, 3, 0), process(SHELL, 3, 0), this];
        all[0].parent = 0;
        all.retain(|other| other.pid != user.pid);
        all.push(Process { own, ..user });
        all
    };
    let script = Script::default();
    script.say(|said| said.processes = using(0));
    let mut sampler = Sampler::of(script.clone());
    let leases: Vec<_> = leases.into_iter().map(Arc::new).collect();
    sampler.register(&leases, CAPACITY);
    sampler.sample(SECOND).unwrap_err();
    script.say(|said| {
        said.total += 1000;
        said.processes = using(500);
    });
    sampler.register(&leases, CAPACITY);
    sampler.sample(2 * SECOND).unwrap().own_cpu
}

#[test]
fn a_process_that_is_recognised_counts() {
    assert_eq!(own_cpu_with(vec![lease(9, 3, 100)]), 0.5);
}

#[test]
fn a_pid_alone_counts_nothing() {
    let first_release = LeaseProcesses {
        origin: None,
        ..lease(9, 3, 100)
    };
    assert_eq!(own_cpu_with(vec![first_release]), 0.0);
}

#[test]
fn a_process_of_another_boot_namespace_or_time_counts_nothing() {
    let told = |change: fn(&mut ProcessOrigin)| {
        let mut lease = lease(9, 3, 100);
        change(lease.origin.as_mut().unwrap());
        own_cpu_with(vec![lease])
    };
    assert_eq!(told(|_| {}), 0.5);
    assert_eq!(told(|origin| origin.boot_id.replace_range(..1, "0")), 0.0);
    assert_eq!(told(|origin| origin.pid_namespace += 1), 0.0);
    assert_eq!(told(|origin| origin.started = vec![4]), 0.0);
    assert_eq!(told(|origin| origin.started.clear()), 0.0);
}

#[test]
fn process_1_the_sampler_itself_and_what_is_above_it_never_count() {
    for (pid, parent) in [(1, 0), (SHELL, 1), (OWN, SHELL)] {
        let user = Process {
            parent,
            ..process(pid, 3, 0)
        };
        let own = own_cpu_of(user, vec![lease(pid, 3, 100)]);
        assert_eq!(own, 0.0, "process {pid}");
    }
}

/// A daemon that was started in a container from outside (`docker exec`) has no parent that it can see: the way up does not
/// lead to process 1.
#[test]
fn process_1_does_not_count_where_it_is_not_above_the_sampler() {
    let using = |own: u64| {
        let [mut first, mut this] = [process(1, 3, own), process(OWN, 3, 0)];
        (first.parent, this.parent) = (0, 0);
        vec![first, this]
    };
    let script = Script::default();
    let mut sampler = Sampler::of(script.clone());
    let lease = [Arc::new(lease(1, 3, 100))];
    let mut own_cpu = |second, own| {
        script.say(|said| {
            said.total += 1000;
            said.processes = using(own);
        });
        sampler.register(&lease, CAPACITY);
        sampler.sample(SECOND * second).map(|sample| sample.own_cpu)
    };
    own_cpu(1, 0).unwrap_err();
    assert_eq!(own_cpu(2, 500), Ok(0.0));
}

#[test]
fn a_lease_takes_out_at_most_its_share_of_the_capacity() {
    assert_eq!(own_cpu_with(vec![lease(9, 3, 20)]), 0.2);
    let two = vec![lease(9, 3, 20), lease(9, 3, 10)];
    assert!((own_cpu_with(two) - 0.3).abs() < 1e-9, "the share of both");
    let in_vain = LeaseProcesses {
        origin: None,
        ..lease(9, 3, 30)
    };
    let one = own_cpu_with(vec![in_vain, lease(9, 3, 10)]);
    assert_eq!(one, 0.1, "the share of the lease that is believed");
    let named_twice = LeaseProcesses {
        pids: vec![9, 9],
        origin: Some(Box::new(ProcessOrigin {
            started: vec![3, 3],
            ..*lease(9, 3, 20).origin.unwrap()
        })),
        ..lease(9, 3, 20)
    };
    assert_eq!(own_cpu_with(vec![named_twice]), 0.2, "one share, not two");
}

#[test]
fn a_reused_pid_ends_the_counting() {
    let script = Script::default();
    let lease = [Arc::new(lease(9, 3, 100))];
    let mut sampler = Sampler::of(script.clone());
    let mut at = SECOND;
    let mut own_cpu = |process: Process| {
        script.say(|said| {
            said.total += 100;
            said.processes = vec![process];
        });
        sampler.register(&lease, CAPACITY);
        at += SECOND;
        sampler.sample(at).map(|sample| sample.own_cpu)
    };
    own_cpu(process(9, 3, 0)).unwrap_err();
    assert_eq!(own_cpu(process(9, 3, 30)), Ok(0.3));
    assert_eq!(own_cpu(process(9, 8, 90)), Ok(0.0));
    assert_eq!(own_cpu(process(9, 8, 150)), Ok(0.0));
}

#[test]
fn what_a_recognised_process_has_left_behind_counts_while_its_lease_holds() {
    let script = Script::default();
    let lease = [Arc::new(lease(9, 3, 100))];
    let left_behind = |parent, own| Process {
        parent,
        ..process(10, 4, own)
    };
    let steps = [
        (vec![process(9, 3, 0), left_behind(9, 0)], None),
        (vec![process(9, 3, 0), left_behind(9, 10)], Some(0.1)),
        (vec![left_behind(1, 40)], Some(0.3)),
    ];
    let mut sampler = Sampler::of(script.clone());
    for (second, (processes, expected)) in (1..).zip(steps) {
        script.say(|said| {
            said.total += 100;
            said.processes = processes;
        });
        sampler.register(&lease, CAPACITY);
        let sampled = sampler.sample(SECOND * second);
        assert_eq!(sampled.ok().map(|sample| sample.own_cpu), expected);
    }
}

#[test]
fn in_process_its_own_load_counts_while_a_lease_names_it() {
    let script = Script::default();
    let lease = LeaseProcesses {
        units: 10,
        pids: vec![OWN],
        origin: None,
    };
    let mut sampler = Sampler::of(script.clone()).in_process();
    let mut own_cpu = |second, own, leases: &[Arc<LeaseProcesses>]| {
        script.say(|said| {
            said.total += 100;
            said.processes = vec![process(OWN, 2, own)];
        });
        sampler.register(leases, CAPACITY);
        sampler.sample(SECOND * second).map(|sample| sample.own_cpu)
    };
    let leases = [Arc::new(lease)];
    own_cpu(1, 0, &leases).unwrap_err();
    assert_eq!(own_cpu(2, 60, &leases), Ok(0.6), "all of it, not a share");
    assert_eq!(own_cpu(3, 120, &[]), Ok(0.0));
}

#[test]
fn our_own_time_is_told_apart() {
    let script = Script::default();
    script.say(|said| said.processes = vec![process(9, 3, 500)]);
    let mut sampler = Sampler::of(script.clone());
    sampler.register(&[Arc::new(lease(9, 3, 100))], CAPACITY);
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
    sampler.register(&[Arc::new(lease(9, 3, 100))], CAPACITY);
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
    sampler.register(&[Arc::new(lease(9, 3, 100))], CAPACITY);
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
        sampler.register(&[Arc::new(lease(9, 3, 100))], CAPACITY);
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
    let mut sampler = Sampler::of(Elsewhere::new(Path::new("."))).in_process();
    let this = LeaseProcesses {
        units: 1,
        pids: vec![std::process::id()],
        origin: None,
    };
    sampler.register(&[Arc::new(this)], CAPACITY);
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
