//! Processes that workers register over HTTP: which of them count as our own load, on the machine that runs this.
#![cfg(target_os = "linux")]

mod support;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use jobtree_protocol::paths;
use jobtree_scheduler::sampler::{SampleError, Sampler};
use jobtree_scheduler::workers::process_origin;
use serde_json::{Value, json};
use support::House;

/// A process that loads one core until it is dropped.
struct Burner(Child);

impl Burner {
    fn start() -> Burner {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while :; do :; done"]);
        Burner(shell.stdin(Stdio::null()).spawn().expect("a shell"))
    }

    /// Returns the CPU time that it has used, in ticks of the kernel.
    fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).expect("it runs");
        // The name in parentheses may hold blanks; `utime` and `stime` are fields 14 and 15.
        let (_, fields) = stat.rsplit_once(") ").expect("a name");
        let fields = fields.split(' ').skip(11).take(2);
        fields
            .map(|ticks| ticks.parse::<u64>().expect("a number"))
            .sum()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A daemon, a lease of it, and the load that a sampler of this machine takes for our own.
struct Measured {
    house: House,
    lease: String,
    sampler: Sampler,
    began: Instant,
}

impl Measured {
    fn with_units(units: u32) -> Self {
        let house = House::new();
        let ask = json!({"addon_id": "a", "job_type": "t", "cost_units": units});
        let granted = house.admin().post(paths::LEASE_REQUEST, &ask).expect(200);
        assert_eq!(granted["approved"], true, "{granted}");
        Self {
            lease: granted["lease_id"].as_str().expect("a lease").to_owned(),
            house,
            sampler: Sampler::new("."),
            began: Instant::now(),
        }
    }

    /// Registers processes with the lease.
    fn register(&mut self, body: &Value) {
        let path = paths::at(paths::PID, &self.lease);
        assert_eq!(self.house.admin().post(&path, body).status, 204);
        // The commit is told to the engine, which publishes it.
        let scheduler = self.house.server.scheduler();
        let is_told = || {
            let mut leases = scheduler.processes().into_iter();
            leases.any(|lease| {
                json!(lease.pids) == body["pids"] && json!(lease.origin) == body["process_origin"]
            })
        };
        while !is_told() {
            sleep(Duration::from_millis(5));
        }
    }

    /// Returns the part of the machine that is our own load in the next interval.
    fn own_cpu(&mut self) -> f64 {
        loop {
            let processes = self.house.server.scheduler().processes();
            let units = self.house.server.scheduler().policy().capacity.units;
            self.sampler.register(&processes, units);
            match self.sampler.sample(self.began.elapsed()) {
                Ok(sample) => return sample.own_cpu,
                Err(error @ SampleError::Unreadable(_)) => panic!("{error}"),
                Err(_) => sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Asserts that none of what a process uses counts as our own load, until it has used enough for a mistake to show.
    fn counts_nothing_of(&mut self, process: &Burner, why: &str) {
        let before = process.cpu_ticks();
        let mut samples = 0;
        while samples < 3 || process.cpu_ticks() < before + 10 {
            assert_eq!(self.own_cpu(), 0.0, "{why}");
            samples += 1;
        }
    }

    /// Returns the first own load that is not nothing.
    fn own_cpu_that_counts(&mut self) -> f64 {
        // The support's watchdog ends a test that waits in vain.
        loop {
            let own = self.own_cpu();
            if own > 0.0 {
                return own;
            }
        }
    }
}

#[test]
fn a_process_counts_only_with_what_makes_it_unambiguous() {
    let mut measured = Measured::with_units(100);
    let burner = Burner::start();
    let pid = burner.0.id();
    let origin = process_origin(&[pid]).expect("it runs");

    measured.register(&json!({"pids": [pid]}));
    measured.counts_nothing_of(&burner, "a worker of the first release");
    let [mut boot, mut container, mut reused] = [(); 3].map(|()| origin.clone());
    boot.boot_id.replace_range(..1, "x");
    container.pid_namespace += 1;
    reused.started[0] += 1;
    let wrong = [
        (boot, "a worker before the last boot, or on another machine"),
        (container, "a worker in another container"),
        (reused, "a process that had this pid before"),
    ];
    for (wrong, why) in wrong {
        // In between it counts: what does not count afterwards is not only unknown yet.
        measured.register(&json!({"pids": [pid], "process_origin": origin}));
        measured.own_cpu_that_counts();
        measured.register(&json!({"pids": [pid], "process_origin": wrong}));
        measured.counts_nothing_of(&burner, why);
    }
}

#[test]
fn the_daemon_and_the_processes_above_it_never_count() {
    let mut measured = Measured::with_units(100);
    // It is below each of these, as nearly everything is.
    let burner = Burner::start();
    for pid in [1, std::process::id(), std::os::unix::process::parent_id()] {
        measured.register(&json!({"pids": [pid], "process_origin": process_origin(&[pid])}));
        measured.counts_nothing_of(&burner, &format!("process {pid}"));
    }
}

#[test]
fn a_local_worker_that_lies_takes_out_the_share_of_its_lease() {
    let mut measured = Measured::with_units(3);
    let foreign = Burner::start();
    let pid = foreign.0.id();
    measured.register(&json!({"pids": [pid], "process_origin": process_origin(&[pid])}));
    for _ in 0..3 {
        let own = measured.own_cpu_that_counts();
        assert!(own <= 0.03 + 1e-9, "{own}");
    }
}

#[test]
fn an_origin_that_does_not_fit_the_pids_is_refused() {
    let measured = Measured::with_units(1);
    let path = paths::at(paths::PID, &measured.lease);
    let origin = json!({"boot_id": "b", "pid_namespace": 1, "started": [5]});
    let body = json!({"pids": [7, 8], "process_origin": origin});
    let refused = measured.house.admin().post(&path, &body);
    refused.problem(422, "invalid");
    assert!(refused.text().contains("process_origin.started"));
}
