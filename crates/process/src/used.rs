//! What a program and all below it used, as the supervisor can tell: from `/proc`, so on Linux alone.
//!
//! The kernel adds CPU time and disk traffic of a process to its parent's when the parent waits for it. The supervisor waits
//! for everything that the program started, so its own sums are the program's once nothing is left. Memory is no sum, and
//! gone with the process: it is read while the program runs, less and less often, of the program alone; or of the whole
//! control group, if there is one.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a program used. Each part is absent if the system does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    /// CPU time of the program and of all that it started.
    pub cpu: Option<Duration>,
    /// The most memory at once, in bytes: of its control group, else of the program's own process.
    pub peak_memory_bytes: Option<u64>,
    /// Bytes read from disks and written to them.
    pub io_bytes: Option<u64>,
}

/// When memory is read first, and how seldom at last.
const FIRST: Duration = Duration::from_millis(20);
const LAST: Duration = Duration::from_secs(1);

/// Measures one program, from before its start.
pub(crate) struct Meter {
    before: Sums,
    program: u32,
    peak_memory: Option<u64>,
    next: Instant,
    pause: Duration,
}

impl Meter {
    /// Call it before the program has ended: what it has used so far counts.
    pub(crate) fn new(before: Sums, program: u32) -> Self {
        Self {
            before,
            program,
            peak_memory: None,
            next: Instant::now() + FIRST,
            pause: FIRST,
        }
    }

    /// Returns how long to wait until memory is to be read.
    pub(crate) fn wait(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Reads the memory, if it is time.
    pub(crate) fn look(&mut self) {
        if !self.wait().is_zero() {
            return;
        }
        let status = fs::read_to_string(format!("/proc/{}/status", self.program));
        self.peak_memory = status
            .ok()
            .as_deref()
            .and_then(peak_in)
            .max(self.peak_memory);
        self.pause = (self.pause * 2).min(LAST);
        self.next = Instant::now() + self.pause;
    }

    /// Returns what was used, when everything has been waited for.
    pub(crate) fn used(&self, cgroup: Option<&Path>) -> Used {
        let now = Sums::read();
        let grown = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let ticks = grown(now.ticks, self.before.ticks);
        let per_second = rustix::param::clock_ticks_per_second().max(1);
        let of_group = cgroup.and_then(|folder| {
            let peak = fs::read_to_string(folder.join("memory.peak")).ok()?;
            peak.trim().parse().ok()
        });
        Used {
            cpu: ticks.map(|ticks| Duration::from_millis(ticks * 1000 / per_second)),
            peak_memory_bytes: of_group.or(self.peak_memory),
            io_bytes: grown(now.io_bytes, self.before.io_bytes),
        }
    }
}

/// What this process has inherited from those that it waited for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    ticks: Option<u64>,
    io_bytes: Option<u64>,
}

impl Sums {
    pub(crate) fn read() -> Self {
        let read = |file: &str| fs::read_to_string(format!("/proc/self/{file}")).ok();
        Self {
            ticks: read("stat").as_deref().and_then(waited_ticks_in),
            io_bytes: read("io").as_deref().and_then(io_in),
        }
    }
}

/// Returns fields 16 and 17 together. Field 2 is the program's name in parentheses, which may hold anything, so that
/// counting begins behind the last one.
fn waited_ticks_in(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut fields = behind.split_whitespace().skip(13);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

fn peak_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn io_in(io: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().parse::<u64>().ok()
    };
    Some(value("read_bytes:")? + value("write_bytes:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_the_kernel_are_read() {
        let stat =
            "42 (a) R 7 (b c) S 17 42 42 0 -1 4194304 97 0 0 0 120 30 400 5 20 0 1 0 3769558";
        assert_eq!(waited_ticks_in(stat), Some(405));
        assert_eq!(waited_ticks_in("42 (half"), None);
        let status = "Name:\tsh\nVmPeak:\t 9000 kB\nVmHWM:\t    1024 kB\nVmRSS:\t 900 kB\n";
        assert_eq!(peak_in(status), Some(1 << 20));
        assert_eq!(peak_in("Name:\tsh\nState:\tZ (zombie)\n"), None);
        let io = "rchar: 5\nwchar: 6\nsyscr: 1\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 1\n";
        assert_eq!(io_in(io), Some(12_288));
    }

    #[test]
    fn the_memory_of_a_control_group_goes_before_that_of_the_program() {
        let folder = std::env::temp_dir().join(format!("jobtree-peak-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        fs::write(folder.join("memory.peak"), "123456\n").expect("a file");
        let meter = Meter {
            peak_memory: Some(7),
            ..Meter::new(Sums::read(), std::process::id())
        };
        assert_eq!(meter.used(Some(&folder)).peak_memory_bytes, Some(123_456));
        assert_eq!(meter.used(None).peak_memory_bytes, Some(7));
        fs::remove_dir_all(folder).expect("ours");
    }
}
