//! Where there is no `/proc`: what `sysinfo` can tell.
//!
//! That is less. There is no pressure, so the load average stands in for it where there is one; no disk tells how long it
//! was at work; the time of children that have ended is lost with them, so that short ones count as foreign; and processes of
//! workers cannot be recognised, so that only jobs of this very process are our own load.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sysinfo::{Disks, Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::counters::Counters;
use super::family::Process;
use super::machine::{Census, Gauges, Machine, Missing};
use super::ownership::Place;

pub(crate) struct Elsewhere {
    /// Absent on a system that is not supported.
    system: Option<System>,
    disk: PathBuf,
    /// Counters are kept here, in milliseconds: `sysinfo` only tells parts.
    counted: Counters,
}

impl Elsewhere {
    pub(crate) fn new(disk: &Path) -> Self {
        Elsewhere {
            system: System::new().ok(),
            disk: disk.to_owned(),
            counted: Counters::default(),
        }
    }
}

impl Machine for Elsewhere {
    fn counters(&mut self, at: Duration) -> Result<Counters, String> {
        let unknown =
            || "the operating system does not tell how busy its processors are".to_owned();
        let system = self.system.as_mut().ok_or_else(unknown)?;
        system.refresh_cpu_usage();
        let usage = f64::from(system.global_cpu_usage()) / 100.0;
        if !usage.is_finite() || system.cpus().is_empty() {
            return Err(unknown());
        }
        let passed = at.saturating_sub(self.counted.at).as_millis() as f64;
        let passed = passed * self.processors() as f64;
        self.counted.at = at;
        self.counted.total += passed as u64;
        self.counted.idle += (passed * (1.0 - usage.clamp(0.0, 1.0))) as u64;
        Ok(self.counted.clone())
    }

    fn gauges(&mut self) -> Gauges {
        let mut missing = Vec::new();
        let mut lacks = |signal, why: &str| {
            let why = why.to_owned();
            missing.push(Missing { signal, why });
        };
        for signal in ["psi_cpu", "psi_io", "psi_memory"] {
            lacks(
                signal,
                "this operating system has no pressure; the load average stands in for it",
            );
        }
        lacks("disk_busy", "disks do not tell how long they were at work");
        lacks(
            "network",
            "network interfaces do not tell their speed; network_heavy goes by the host's signals alone",
        );
        let memory_available = self.system.as_mut().and_then(|system| {
            system.refresh_memory();
            let total = system.total_memory();
            (total > 0).then(|| system.available_memory() as f64 / total as f64)
        });
        if memory_available.is_none() {
            lacks("memory_available", "the operating system does not tell");
        }
        let load = System::load_average().ok().map(|load| load.one);
        if load.is_none() {
            lacks("load_per_core", "the operating system has none");
        }
        let disk_free = free_part(&self.disk);
        if disk_free.is_none() {
            lacks("disk_free", "the store lies on no disk that is known");
        }
        Gauges {
            memory_available,
            disk_free,
            load,
            missing,
            ..Gauges::default()
        }
    }

    fn census(&mut self) -> Census {
        let Some(system) = &mut self.system else {
            return Census::default();
        };
        let kind = ProcessRefreshKind::nothing().with_cpu();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        let processes = system.processes().iter();
        // Linux lists threads, too; their time is in their process's.
        let processes = processes.filter(|(_, process)| process.thread_kind().is_none());
        let processes = processes.map(|(pid, process)| process_of(*pid, process));
        let since_1970 = std::time::SystemTime::UNIX_EPOCH.elapsed();
        Census {
            processes: processes.collect(),
            now: since_1970.ok().map(|time| time.as_secs()),
        }
    }

    fn process(&self, pid: u32) -> Option<Process> {
        let pid = Pid::from_u32(pid);
        let mut system = System::new().ok()?;
        let kind = ProcessRefreshKind::nothing();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, kind);
        system.process(pid).map(|process| process_of(pid, process))
    }

    fn own_pid(&self) -> u32 {
        std::process::id()
    }

    /// There is no boot id and no namespace here.
    fn place(&self) -> Option<Place> {
        None
    }

    fn processors(&self) -> usize {
        self.system
            .as_ref()
            .map_or(1, |system| system.cpus().len().max(1))
    }
}

fn process_of(pid: Pid, process: &sysinfo::Process) -> Process {
    Process {
        pid: pid.as_u32(),
        parent: process.parent().map_or(0, Pid::as_u32),
        started: process.start_time(),
        own: process.accumulated_cpu_time(),
        reaped: 0,
    }
}

/// Of the disk with the longest mount point above `path`.
fn free_part(path: &Path) -> Option<f64> {
    let path = std::path::absolute(path).ok()?;
    let there = path.ancestors().find_map(|path| path.canonicalize().ok())?;
    let disks = Disks::new_with_refreshed_list().ok()?;
    let above = disks
        .iter()
        .filter(|disk| there.starts_with(disk.mount_point()) && disk.total_space() > 0);
    let disk = above.max_by_key(|disk| disk.mount_point().as_os_str().len())?;
    Some(disk.available_space() as f64 / disk.total_space() as f64)
}
