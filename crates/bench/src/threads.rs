//! What the system knows of this process's threads: how often each was switched, and how much CPU time it used.
//!
//! Linux only, from `/proc`. Threads are told apart by the moment they appear: [`ThreadSet::started_by`] gives those
//! that a closure starts.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Some threads of this process.
#[derive(Clone, Debug)]
pub struct ThreadSet {
    ids: BTreeSet<u32>,
}

impl ThreadSet {
    /// Every thread there is now.
    fn all() -> io::Result<Self> {
        let mut ids = BTreeSet::new();
        for entry in fs::read_dir("/proc/self/task")? {
            ids.extend(
                entry?
                    .file_name()
                    .to_str()
                    .and_then(|name| name.parse::<u32>().ok()),
            );
        }
        Ok(Self { ids })
    }

    /// Runs `start`, and gives what it returns with the threads that are there after it and were not before.
    ///
    /// Waits until there are `count` of them, since a thread may show up after the call that started it.
    pub fn started_by<T>(count: usize, start: impl FnOnce() -> T) -> io::Result<(T, Self)> {
        let before = Self::all()?;
        let started = start();
        loop {
            let ids: BTreeSet<u32> = Self::all()?.ids.difference(&before.ids).copied().collect();
            if ids.len() >= count {
                return Ok((started, Self { ids }));
            }
            thread::yield_now();
        }
    }

    /// How often these threads were switched away from, of their own will or not.
    pub fn context_switches(&self) -> io::Result<u64> {
        let mut switches = 0;
        for id in &self.ids {
            let status = fs::read_to_string(task_file(*id, "status"))?;
            switches += status
                .lines()
                .filter_map(|line| line.split_once("ctxt_switches:"))
                .filter_map(|(_, count)| count.trim().parse::<u64>().ok())
                .sum::<u64>();
        }
        Ok(switches)
    }

    /// How long these threads were on a CPU, to the nanosecond.
    pub fn cpu_time(&self) -> io::Result<Duration> {
        let mut nanoseconds = 0;
        for id in &self.ids {
            let schedstat = fs::read_to_string(task_file(*id, "schedstat"))?;
            let on_cpu = schedstat
                .split_whitespace()
                .next()
                .and_then(|field| field.parse::<u64>().ok());
            nanoseconds += on_cpu.ok_or_else(|| {
                io::Error::other(format!("schedstat without a time: {schedstat}"))
            })?;
        }
        Ok(Duration::from_nanos(nanoseconds))
    }
}

fn task_file(id: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/task/{id}/{name}"))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thread that does `work` for each message, and answers.
    fn servant(work: fn()) -> (mpsc::Sender<()>, mpsc::Receiver<()>) {
        let (order, orders) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        thread::spawn(move || {
            for () in orders {
                work();
                let _ = answer.send(());
            }
        });
        (order, answers)
    }

    #[test]
    fn switches_are_counted() {
        let ((order, answers), threads) = ThreadSet::started_by(1, || servant(|| ())).unwrap();
        let before = threads.context_switches().unwrap();
        for _ in 0..100 {
            order.send(()).unwrap();
            answers.recv().unwrap();
        }
        // Another test may start a thread at the same moment and be counted too; nobody can make the count smaller.
        assert!(threads.context_switches().unwrap() > before);
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let work = || {
            std::hint::black_box(
                (0..20_000_000u64).fold(1u64, |state, step| state.wrapping_mul(31) ^ step),
            );
        };
        let ((order, answers), threads) = ThreadSet::started_by(1, || servant(work)).unwrap();
        let before = threads.cpu_time().unwrap();
        order.send(()).unwrap();
        answers.recv().unwrap();
        assert!(threads.cpu_time().unwrap() > before);
    }
}
