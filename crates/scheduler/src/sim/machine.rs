//! The processes of a simulated machine, as the real sampler reads them, and what workers say of them.
//!
//! One foreign process uses whatever the machine is not idle of; the workers' own processes use nothing. So all load that
//! counts as our own is a lie that was believed. Workers lie in every way there is: a pid alone, another boot, another
//! namespace, another start time, process 1. And some are on this machine and name the foreign process as it is: they may
//! take out the share of their lease, and no more.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_protocol::ProcessOrigin;

use crate::core::LeaseProcesses;
use crate::sampler::{Census, Counters, Gauges, Machine, Place, Process};

const BOOT: &str = "00000000-0000-4000-8000-000000000001";
const NAMESPACE: u64 = 1;
const SCHEDULER: u32 = 70;
const FOREIGN: u32 = 500;
/// The pid of the first worker.
const WORKERS: u32 = 1000;
/// All processes began then.
const STARTED: u64 = 9;
/// CPU time between two samples.
const TICKS: u64 = 1000;

/// See the module's head.
#[derive(Clone, Debug)]
pub(super) struct SimMachine {
    workers: u32,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    total: u64,
    idle: u64,
    foreign: u64,
}

impl SimMachine {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers: u32::try_from(workers).expect("some workers"),
            used: Arc::default(),
        }
    }

    /// Lets time pass until the next sample, of which this part is idle.
    pub(super) fn pass(&self, idle: f64) {
        let mut used = self.used();
        let idle = (idle * TICKS as f64).round() as u64;
        used.total += TICKS;
        used.idle += idle;
        used.foreign += TICKS - idle;
    }

    /// Returns the most of this machine that may count as our own load: the shares of the leases that name the foreign
    /// process as it is.
    pub(super) fn most_own(leases: &[Arc<LeaseProcesses>], capacity: u32) -> f64 {
        let true_origin = origin(&[FOREIGN]);
        let named = |lease: &&Arc<LeaseProcesses>| {
            lease.pids == [FOREIGN] && lease.origin.as_ref() == Some(&true_origin)
        };
        let units = leases.iter().filter(named).map(|lease| lease.units);
        f64::from(units.sum::<u32>()) / f64::from(capacity)
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn processes(&self) -> Vec<Process> {
        let foreign = self.used().foreign;
        let workers = WORKERS..WORKERS + self.workers;
        let pids = [1, SCHEDULER, FOREIGN].into_iter().chain(workers);
        let process = |pid| Process {
            pid,
            parent: u32::from(pid != 1),
            started: STARTED,
            own: if pid == FOREIGN { foreign } else { 0 },
            reaped: 0,
        };
        pids.map(process).collect()
    }
}

fn origin(pids: &[u32]) -> Box<ProcessOrigin> {
    Box::new(ProcessOrigin {
        boot_id: BOOT.to_owned(),
        pid_namespace: NAMESPACE,
        started: vec![STARTED; pids.len()],
    })
}

/// Returns the processes that a worker registers in one of its turns, and what it says of them.
pub(super) fn registered(worker: usize, turn: u64) -> (Vec<u32>, Option<Box<ProcessOrigin>>) {
    let lie = |change: fn(&mut ProcessOrigin)| {
        let mut origin = origin(&[FOREIGN]);
        change(&mut origin);
        (vec![FOREIGN], Some(origin))
    };
    match (worker as u64 + turn) % 8 {
        0 => (vec![FOREIGN], None),
        1 => lie(|origin| origin.boot_id.clear()),
        2 => lie(|origin| origin.pid_namespace += 1),
        3 => lie(|origin| origin.started[0] += 1),
        4 => (vec![1], Some(origin(&[1]))),
        5 => lie(|_| {}),
        _ => {
            let pids = vec![WORKERS + worker as u32];
            let origin = origin(&pids);
            (pids, Some(origin))
        }
    }
}

impl Machine for SimMachine {
    fn counters(&mut self, at: Duration) -> Result<Counters, String> {
        let used = self.used();
        Ok(Counters {
            interfaces: Vec::new(),
            at,
            total: used.total,
            idle: used.idle,
            disks: Vec::new(),
        })
    }

    fn gauges(&mut self) -> Gauges {
        Gauges::default()
    }

    fn census(&mut self) -> Census {
        Census {
            processes: self.processes(),
            now: None,
        }
    }

    fn process(&self, pid: u32) -> Option<Process> {
        let processes = self.processes().into_iter();
        processes.rev().find(|process| process.pid == pid)
    }

    fn own_pid(&self) -> u32 {
        SCHEDULER
    }

    fn place(&self) -> Option<Place> {
        Some(Place {
            boot_id: BOOT.to_owned(),
            pid_namespace: NAMESPACE,
        })
    }

    fn processors(&self) -> usize {
        1
    }
}
