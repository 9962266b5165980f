//! What the system knows of this process's threads: how often each was switched, and how much CPU time it used.
//!
//! Linux only, from `/proc`. Threads are known by their ids, or told apart by the moment they appear:
//! [`ThreadSet::started_by`] gives those that a closure starts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
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

    /// The one thread with this id.
    pub fn one(id: u32) -> Self {
        Self {
            ids: BTreeSet::from([id]),
        }
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

/// How often one thread has blocked, to be read again and again: the file stays open.
#[derive(Debug)]
pub struct BlockedCount {
    status: File,
}

impl BlockedCount {
    /// Of the thread with this id.
    pub fn of(id: u32) -> io::Result<Self> {
        let status = File::open(task_file(id, "status"))?;
        Ok(Self { status })
    }

    /// The count so far. A thread that gave way to another one and could have gone on has not blocked.
    pub fn get(&self) -> io::Result<u64> {
        // Some 1.5 KiB everywhere we looked; masks grow with the number of CPUs.
        let mut text = [0; 16 * 1024];
        let length = self.status.read_at(&mut text, 0)?;
        String::from_utf8_lossy(&text[..length])
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .and_then(|count| count.trim().parse().ok())
            .ok_or_else(|| io::Error::other("the system does not count how often a thread blocks"))
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
    fn a_thread_that_blocks_is_counted() {
        let (tell, told) = mpsc::channel();
        let (order, orders) = mpsc::channel::<()>();
        thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            orders.into_iter().for_each(drop);
        });
        let id = told.recv().unwrap().as_raw_nonzero().get();
        let blocked = BlockedCount::of(id.cast_unsigned()).unwrap();
        for _ in 0..10 {
            let before = blocked.get().unwrap();
            order.send(()).unwrap();
            // It takes the message and waits for the next one; if it never blocked, this would not end.
            while blocked.get().unwrap() == before {
                thread::yield_now();
            }
        }
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
