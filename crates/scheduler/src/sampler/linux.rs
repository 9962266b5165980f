//! Linux: everything is text under `/proc`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs::process::Stat;
use procfs::{
    DiskStats, FromBufReadSI, FromRead, KernelStats, LoadAverage, Meminfo, ProcResult, SystemInfo,
    Uptime,
};

use super::counters::{Counters, Interface};
use super::family::Process;
use super::machine::{Census, Gauges, Machine, Missing};
use super::ownership::Place;

pub(crate) struct Linux {
    proc: PathBuf,
    /// Where the speeds of network interfaces are.
    sys: PathBuf,
    /// Where free space is asked for.
    disk: PathBuf,
    processors: usize,
    place: Option<Place>,
    /// The last counters had a network interface whose speed is known.
    has_network: bool,
}

impl Linux {
    pub(crate) fn new(disk: &Path) -> Self {
        Self::at("/proc", disk)
    }

    /// With the files somewhere else.
    pub(crate) fn at(proc: impl Into<PathBuf>, disk: &Path) -> Self {
        let proc = proc.into();
        Linux {
            place: place_in(&proc),
            sys: proc.with_file_name("sys"),
            proc,
            disk: disk.to_owned(),
            has_network: false,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }

    fn read(&self, file: &str) -> Result<String, String> {
        let path = self.proc.join(file);
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    fn parsed<T>(
        &self,
        file: &str,
        parse: impl FnOnce(&str) -> ProcResult<T>,
    ) -> Result<T, String> {
        let text = self.read(file)?;
        parse(&text).map_err(|error| format!("{}: {error}", self.proc.join(file).display()))
    }

    /// The interfaces whose speed the kernel knows: virtual ones and those without a cable have none.
    fn interfaces(&self) -> Vec<Interface> {
        let Ok(text) = self.read("net/dev") else {
            return Vec::new();
        };
        let speed = |name: &str| {
            let file = self.sys.join("class/net").join(name).join("speed");
            let megabits: i64 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
            let megabits = u64::try_from(megabits).ok().filter(|speed| *speed > 0)?;
            Some(megabits * 1_000_000 / 8)
        };
        let all = text.lines().filter_map(traffic);
        let known = all.filter_map(|interface| {
            let speed = speed(&interface.name)?;
            Some(Interface { speed, ..interface })
        });
        known.collect()
    }

    fn pressure(&self, file: &str) -> Result<f64, String> {
        self.parsed(&format!("pressure/{file}"), some_avg10)
    }
}

impl Machine for Linux {
    fn counters(&mut self, at: Duration) -> Result<Counters, String> {
        let (processors, total, idle) = self.parsed("stat", |text| {
            cpu_times(text, procfs::current_system_info())
        })?;
        self.processors = processors.max(1);
        let disks = self.parsed("diskstats", |text| disk_times(text, is_whole_disk));
        let interfaces = self.interfaces();
        self.has_network = !interfaces.is_empty();
        Ok(Counters {
            at,
            total,
            idle,
            disks: disks.unwrap_or_default(),
            interfaces,
        })
    }

    fn gauges(&mut self) -> Gauges {
        let mut missing = Vec::new();
        let mut kept = |signal, without: &str, value: Result<f64, String>| match value {
            Ok(value) => Some(value),
            Err(why) => {
                let why = format!("{why}; {without}");
                missing.push(Missing { signal, why });
                None
            }
        };
        if let Err(why) = self.read("diskstats") {
            kept("disk_busy", "the disks' time goes unseen", Err(why));
        }
        if !self.has_network {
            let why = match self.read("net/dev") {
                Err(why) => why,
                Ok(_) => "the kernel knows the speed of no network interface".to_owned(),
            };
            kept(
                "network",
                "network_heavy goes by the host's signals alone",
                Err(why),
            );
        }
        let instead = "the load average stands in for CPU pressure";
        let nothing = "its pressure goes unseen";
        Gauges {
            psi_cpu: kept("psi_cpu", instead, self.pressure("cpu")),
            psi_io: kept(
                "psi_io",
                "the disks' time alone counts",
                self.pressure("io"),
            ),
            psi_memory: kept(
                "psi_memory",
                "available memory alone counts",
                self.pressure("memory"),
            ),
            memory_available: kept(
                "memory_available",
                nothing,
                self.parsed("meminfo", available_memory),
            ),
            disk_free: kept("disk_free", nothing, free_part(&self.disk)),
            load: kept(
                "load_per_core",
                nothing,
                self.parsed("loadavg", |text| {
                    LoadAverage::from_read(text.as_bytes()).map(|load| f64::from(load.one))
                }),
            ),
            missing,
        }
    }

    fn census(&mut self) -> Census {
        let now = self.parsed("uptime", |text| Uptime::from_read(text.as_bytes()));
        let ticks = procfs::ticks_per_second() as f64;
        let pids = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        Census {
            processes: pids.filter_map(|pid| self.process(pid)).collect(),
            now: now.ok().map(|uptime| (uptime.uptime * ticks) as u64),
        }
    }

    fn process(&self, pid: u32) -> Option<Process> {
        let text = fs::read(self.proc.join(pid.to_string()).join("stat")).ok()?;
        process_of(&text)
    }

    fn own_pid(&self) -> u32 {
        std::process::id()
    }

    fn place(&self) -> Option<Place> {
        self.place.clone()
    }

    fn processors(&self) -> usize {
        self.processors
    }
}

fn place_in(proc: &Path) -> Option<Place> {
    let boot_id = fs::read_to_string(proc.join("sys/kernel/random/boot_id")).ok()?;
    let namespace = fs::metadata(proc.join("self/ns/pid")).ok()?;
    Some(Place {
        boot_id: boot_id.trim().to_owned(),
        pid_namespace: namespace.ino(),
    })
}

/// Processors, time of all of them, idle time. Waiting for a disk is idle; time that a hypervisor gave to others is not.
fn cpu_times(text: &str, system: &SystemInfo) -> ProcResult<(usize, u64, u64)> {
    let stats = KernelStats::from_buf_read(text.as_bytes(), system)?;
    let times = &stats.total;
    let idle = times.idle + times.iowait.unwrap_or(0);
    // A guest's time is in `user` already.
    let others = [times.irq, times.softirq, times.steal];
    let busy = times.user + times.nice + times.system + others.iter().flatten().sum::<u64>();
    Ok((stats.cpu_time.len(), busy + idle, idle))
}

/// The first line alone: old kernels have no other for the CPU.
fn some_avg10(text: &str) -> ProcResult<f64> {
    let line = text.lines().next().unwrap_or_default();
    procfs::parse_pressure_record(line).map(|record| f64::from(record.avg10))
}

fn available_memory(text: &str) -> ProcResult<f64> {
    let memory = Meminfo::from_read(text.as_bytes())?;
    // Kernels before 3.14 do not say what is available.
    let guessed = memory.mem_free + memory.buffers + memory.cached;
    let available = memory.mem_available.unwrap_or(guessed);
    Ok(available as f64 / memory.mem_total.max(1) as f64)
}

fn disk_times(text: &str, counts: impl Fn(&str) -> bool) -> ProcResult<Vec<(String, u64)>> {
    let disks = DiskStats::from_read(text.as_bytes())?.0;
    let disks = disks.into_iter().filter(|disk| counts(&disk.name));
    Ok(disks
        .map(|disk| (disk.name, disk.time_in_progress))
        .collect())
}

/// Not a partition, whose disk counts already; nor memory that looks like a disk, nor one made of others.
fn is_whole_disk(name: &str) -> bool {
    let made_up = ["loop", "ram", "zram", "dm-", "md"];
    // Slashes in names are written as exclamation marks there.
    !made_up.iter().any(|prefix| name.starts_with(prefix))
        && Path::new("/sys/block")
            .join(name.replace('/', "!"))
            .exists()
}

fn process_of(text: &[u8]) -> Option<Process> {
    let stat = Stat::from_read(text).ok()?;
    let reaped = u64::try_from(stat.cutime).unwrap_or(0) + u64::try_from(stat.cstime).unwrap_or(0);
    Some(Process {
        pid: u32::try_from(stat.pid).ok()?,
        parent: u32::try_from(stat.ppid).ok()?,
        started: stat.starttime,
        own: stat.utime + stat.stime,
        reaped,
    })
}

fn free_part(path: &Path) -> Result<f64, String> {
    // A store that is not there yet lies on the disk of its directory.
    let there = path.ancestors().find(|path| path.exists());
    let there = there.unwrap_or(Path::new("."));
    let volume =
        rustix::fs::statvfs(there).map_err(|error| format!("{}: {error}", there.display()))?;
    if volume.f_blocks == 0 {
        return Err(format!("{}: a disk without a size", there.display()));
    }
    Ok(volume.f_bavail as f64 / volume.f_blocks as f64)
}

/// Reads a line of `/proc/net/dev`: `eth0: received … (7 more) sent …`. The headings have no colon.
fn traffic(line: &str) -> Option<Interface> {
    let (name, rest) = line.split_once(':')?;
    let mut numbers = rest.split_ascii_whitespace().map(str::parse::<u64>);
    let received = numbers.next()?.ok()?;
    let sent = numbers.nth(7)?.ok()?;
    Some(Interface {
        name: name.trim().to_owned(),
        received,
        sent,
        speed: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use procfs::ExplicitSystemInfo;

    const SYSTEM: ExplicitSystemInfo = ExplicitSystemInfo {
        boot_time_secs: 0,
        ticks_per_second: 100,
        page_size: 4096,
        is_little_endian: true,
    };

    #[test]
    fn cpu_times_of_all_processors() {
        let text = "cpu  400 20 100 5000 60 7 3 10 30 0\n\
                    cpu0 200 10 50 2500 30 7 3 5 15 0\n\
                    cpu1 200 10 50 2500 30 0 0 5 15 0\n\
                    intr 12 0 0\nctxt 99\nbtime 1700000000\nprocesses 77\nprocs_running 1\nprocs_blocked 0\n\
                    softirq 3 0 1\n";
        assert_eq!(cpu_times(text, &SYSTEM).unwrap(), (2, 5600, 5060));
    }

    #[test]
    fn cpu_times_of_an_old_kernel() {
        let text = "cpu  400 20 100 5000\ncpu0 400 20 100 5000\nctxt 9\nbtime 17\nprocesses 7\n";
        assert_eq!(cpu_times(text, &SYSTEM).unwrap(), (1, 5520, 5000));
        assert!(cpu_times("intr 5\n", &SYSTEM).is_err());
    }

    #[test]
    fn pressure_with_and_without_a_second_line() {
        let both = "some avg10=12.34 avg60=1.00 avg300=0.10 total=555\n\
                    full avg10=2.00 avg60=0.00 avg300=0.00 total=44\n";
        assert!((some_avg10(both).unwrap() - 12.34).abs() < 1e-4);
        let one = "some avg10=0.50 avg60=1.00 avg300=0.10 total=555\n";
        assert!((some_avg10(one).unwrap() - 0.5).abs() < 1e-6);
        assert!(some_avg10("").is_err());
        assert!(some_avg10("some avg10=much").is_err());
    }

    #[test]
    fn memory_with_and_without_what_is_available() {
        let common = "MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 50 kB\nCached: 250 kB\nSwapCached: 0 kB\n\
                      Active: 1 kB\nInactive: 1 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\nDirty: 0 kB\n\
                      Writeback: 0 kB\nMapped: 0 kB\nSlab: 0 kB\nCommitted_AS: 0 kB\nVmallocTotal: 1 kB\n\
                      VmallocUsed: 0 kB\nVmallocChunk: 0 kB\n";
        assert_eq!(available_memory(common).unwrap(), 0.4);
        let new = format!("{common}MemAvailable: 700 kB\n");
        assert_eq!(available_memory(&new).unwrap(), 0.7);
        assert!(available_memory("MemFree: 5 kB\n").is_err());
    }

    #[test]
    fn time_of_whole_disks() {
        let text = " 252 0 vda 100 0 800 40 50 0 400 60 0 1234 100 0 0 0 0 5 1\n \
                    252 1 vda1 90 0 700 40 50 0 400 60 0 1200 100 0 0 0 0\n \
                    7 0 loop0 0 0 0 0 0 0 0 0 0 9999 0\n";
        let disks = disk_times(text, |name| name == "vda").unwrap();
        assert_eq!(disks, [("vda".to_owned(), 1234)]);
        assert!(!is_whole_disk("loop0") && !is_whole_disk("no-such-disk"));
    }

    #[test]
    fn a_process_whose_name_is_a_trap() {
        let text = b"42 (a) R 7 (b c) S 17 42 42 0 -1 4194304 97 0 0 0 120 30 400 5 20 0 1 0 \
                     3769558 3133440 412 18446744073709551615 1 1 1 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 1 1 1 1 1 1 1 0\n";
        let process = process_of(text).unwrap();
        let expected = Process {
            pid: 42,
            parent: 17,
            started: 3_769_558,
            own: 150,
            reaped: 405,
        };
        assert_eq!(process, expected);
        assert_eq!(process_of(b"42 (half"), None);
    }

    #[test]
    fn what_is_missing_is_said() {
        let mut machine = Linux::at("/nowhere/at/all", Path::new("/"));
        let gauges = machine.gauges();
        assert_eq!(
            (gauges.psi_cpu, gauges.psi_io, gauges.load),
            (None, None, None)
        );
        assert!(gauges.disk_free.is_some(), "which is no file of /proc");
        let missing: Vec<_> = gauges
            .missing
            .iter()
            .map(|missing| missing.signal)
            .collect();
        let expected = [
            "disk_busy",
            "network",
            "psi_cpu",
            "psi_io",
            "psi_memory",
            "memory_available",
            "load_per_core",
        ];
        assert_eq!(missing, expected);
        let network = &gauges.missing[1].why;
        assert!(network.contains("/nowhere/at/all/net/dev"), "{network}");
        assert!(gauges.missing[2].why.contains("load average stands in"));
        let error = machine.counters(Duration::ZERO).unwrap_err();
        assert!(error.contains("/nowhere/at/all/stat"), "{error}");
    }

    #[test]
    fn network_interfaces_count_whose_speed_the_kernel_knows() {
        let folder = std::env::temp_dir().join(format!("jobtree-sysfs-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let write = |file: &str, text: &str| {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/stat",
            "cpu  400 20 100 5000 60 7 3 10 30 0\ncpu0 400 20 100 5000 60 7 3 10 30 0\nintr 12\nctxt 99\nbtime 17\nprocesses 7\nprocs_running 1\nprocs_blocked 0\nsoftirq 3\n",
        );
        write(
            "proc/net/dev",
            "Inter-|   Receive                            |  Transmit\n \
             face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed\n\
             lo: 9999 1 0 0 0 0 0 0 9999 1 0 0 0 0 0 0\n  \
             eth0: 1000 1 0 0 0 0 0 0 2000 1 0 0 0 0 0 0\n  \
             eth1: 5000 1 0 0 0 0 0 0 6000 1 0 0 0 0 0 0\n",
        );
        // A virtual interface has no such file, one without a cable says -1.
        write("sys/class/net/eth1/speed", "-1\n");
        let mut machine = Linux::at(folder.join("proc"), Path::new("/"));
        let lacks = |machine: &mut Linux| {
            let missing = machine.gauges().missing;
            let network = missing.into_iter().find(|it| it.signal == "network");
            network.map(|it| it.why)
        };
        assert_eq!(machine.counters(Duration::ZERO).unwrap().interfaces, []);
        let why = lacks(&mut machine).expect("no interface has a speed");
        assert_eq!(
            why,
            "the kernel knows the speed of no network interface; network_heavy goes by the host's signals alone"
        );
        write("sys/class/net/eth0/speed", "1000\n");
        let counters = machine.counters(Duration::ZERO).unwrap();
        let eth0 = Interface {
            name: "eth0".to_owned(),
            received: 1000,
            sent: 2000,
            speed: 125_000_000,
        };
        assert_eq!(counters.interfaces, [eth0]);
        assert_eq!(lacks(&mut machine), None);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_disk_of_a_file_that_is_not_there_yet() {
        let part = free_part(Path::new("/not/there/yet.db")).unwrap();
        assert!((0.0..=1.0).contains(&part));
    }
}
