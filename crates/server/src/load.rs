//! How busy the machine was: each measurement of the last hour, and averages by the minute for some weeks.
//!
//! The minutes are also written to a file beside the database, one line of JSON each, so that they outlive the process and
//! can be played against another policy (`jobtree simulate`). The file is this machine's, also where the store is shared.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use jobtree_protocol::{LoadHour, LoadSample, QuietState};

/// Measurements that are kept one by one.
const RECENT: SignedDuration = SignedDuration::from_hours(1);
/// Minutes that are kept.
const MINUTES: SignedDuration = SignedDuration::from_hours(24 * 28);
const MINUTE: i64 = 60;
const HOUR: i64 = 3600;

/// What was measured.
pub struct LoadLog {
    state: Mutex<State>,
    path: Option<PathBuf>,
}

#[derive(Default)]
struct State {
    recent: VecDeque<LoadSample>,
    minutes: VecDeque<LoadSample>,
    /// Measurements of the minute that is not over.
    open: Vec<LoadSample>,
    file: Option<File>,
}

impl LoadLog {
    /// One that remembers nothing beyond this process.
    pub fn in_memory() -> Self {
        LoadLog {
            state: Mutex::default(),
            path: None,
        }
    }

    /// One that goes on with what the file has, if there is one. Lines that cannot be read are left out: the machine may
    /// have lost power in the midst of one.
    ///
    /// # Errors
    /// If the file cannot be read or written.
    pub fn open(path: &Path, now: Timestamp) -> io::Result<Self> {
        let mut state = State::default();
        match File::open(path) {
            Ok(file) => {
                for line in BufReader::new(file).lines() {
                    if let Ok(sample) = serde_json::from_str::<LoadSample>(&line?) {
                        state.minutes.push_back(sample);
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        state.forget(now);
        // Written anew without what is old; the rename makes it all or nothing.
        let beside = path.with_extension("new");
        let mut file = File::create(&beside)?;
        for minute in &state.minutes {
            write_line(&mut file, minute)?;
        }
        file.sync_all()?;
        fs::rename(&beside, path)?;
        state.file = Some(OpenOptions::new().append(true).open(path)?);
        Ok(LoadLog {
            state: Mutex::new(state),
            path: Some(path.to_owned()),
        })
    }

    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a measurement. A file that cannot be written any more is no reason to stop: the minutes stay in memory.
    ///
    /// # Errors
    /// If a minute is over and its line cannot be written.
    pub fn add(&self, sample: LoadSample) -> io::Result<()> {
        let mut state = self.lock();
        let minute = |sample: &LoadSample| sample.at.as_second().div_euclid(MINUTE);
        let over = state
            .open
            .first()
            .is_some_and(|first| minute(first) != minute(&sample));
        let mut written = Ok(());
        if over && let Some(average) = average(&std::mem::take(&mut state.open)) {
            if let Some(file) = &mut state.file {
                written = write_line(file, &average);
            }
            state.minutes.push_back(average);
        }
        let now = sample.at;
        state.open.push(sample.clone());
        state.recent.push_back(sample);
        state.forget(now);
        written
    }

    /// Measurements after a time, one by one, oldest first; the newest `limit` of them.
    pub fn recent(&self, since: Timestamp, limit: usize) -> Vec<LoadSample> {
        newest(&self.lock().recent, since, limit)
    }

    /// Returns the newest measurement, and since when the machine is in its state; none if nothing was measured in the last hour.
    pub fn newest(&self) -> Option<(LoadSample, Timestamp)> {
        let state = self.lock();
        let newest = state.recent.back()?.clone();
        let same = state.recent.iter().rev();
        let same = same.take_while(|sample| sample.state == newest.state);
        let since = same.last().map_or(newest.at, |first| first.at);
        Some((newest, since))
    }

    /// Averages by the minute after a time, oldest first; the newest `limit` of them.
    pub fn minutes(&self, since: Timestamp, limit: usize) -> Vec<LoadSample> {
        newest(&self.lock().minutes, since, limit)
    }

    /// Returns the hours after a time in which something was measured, the oldest first.
    pub fn hours(&self, since: Timestamp) -> Vec<LoadHour> {
        // By their number: the wall clock may have been set back.
        let mut hours: BTreeMap<i64, (u32, f64, u32)> = BTreeMap::new();
        for minute in self.lock().minutes.iter().filter(|it| it.at > since) {
            let number = minute.at.as_second().div_euclid(HOUR);
            let (count, busy, quiet) = hours.entry(number).or_default();
            *count += 1;
            *busy += minute.busy;
            *quiet += u32::from(minute.state == QuietState::Quiet);
        }
        let hours = hours.into_iter();
        let read = hours.filter_map(|(number, (minutes, busy, quiet))| {
            Some(LoadHour {
                at: Timestamp::from_second(number * HOUR).ok()?,
                minutes,
                busy: busy / f64::from(minutes),
                quiet,
            })
        });
        read.collect()
    }
}

impl State {
    fn forget(&mut self, now: Timestamp) {
        let older = |samples: &mut VecDeque<LoadSample>, limit: SignedDuration| {
            while samples
                .front()
                .is_some_and(|first| now.duration_since(first.at) > limit)
            {
                samples.pop_front();
            }
        };
        older(&mut self.recent, RECENT);
        older(&mut self.minutes, MINUTES);
    }
}

fn newest(samples: &VecDeque<LoadSample>, since: Timestamp, limit: usize) -> Vec<LoadSample> {
    // The wall clock may have been set back, so the order of times is no order to search by.
    let after: Vec<_> = samples.iter().filter(|sample| sample.at > since).collect();
    let skipped = after.len().saturating_sub(limit);
    after.into_iter().skip(skipped).cloned().collect()
}

fn write_line(file: &mut File, sample: &LoadSample) -> io::Result<()> {
    let mut line = serde_json::to_vec(sample)?;
    line.push(b'\n');
    file.write_all(&line)
}

/// The mean of measurements, at the time of the last; its state is the worst there was.
fn average(samples: &[LoadSample]) -> Option<LoadSample> {
    let last = samples.last()?;
    let count = samples.len() as f64;
    let mean = |of: fn(&LoadSample) -> f64| samples.iter().map(of).sum::<f64>() / count;
    let mean_of_some = |of: fn(&LoadSample) -> Option<f64>| {
        let some: Vec<f64> = samples.iter().filter_map(of).collect();
        (!some.is_empty()).then(|| some.iter().sum::<f64>() / some.len() as f64)
    };
    let worst = samples.iter().map(|sample| sample.state).max();
    Some(LoadSample {
        at: last.at,
        busy: mean(|sample| sample.busy),
        state: worst.unwrap_or(QuietState::Normal),
        capacity: mean(|sample| f64::from(sample.capacity)).round() as u32,
        used: mean(|sample| f64::from(sample.used)).round() as u32,
        foreign_cpu: mean_of_some(|sample| sample.foreign_cpu),
        own_cpu: mean_of_some(|sample| sample.own_cpu),
        memory_available: mean_of_some(|sample| sample.memory_available),
        psi_cpu: mean_of_some(|sample| sample.psi_cpu),
        psi_io: mean_of_some(|sample| sample.psi_io),
        psi_memory: mean_of_some(|sample| sample.psi_memory),
        load_per_core: mean_of_some(|sample| sample.load_per_core),
        disk_busy: mean_of_some(|sample| sample.disk_busy),
        disk_free: mean_of_some(|sample| sample.disk_free),
        network: mean_of_some(|sample| sample.network),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(second: i64, busy: f64, state: QuietState) -> LoadSample {
        LoadSample {
            at: Timestamp::from_second(second).unwrap(),
            busy,
            state,
            capacity: 100,
            used: 0,
            foreign_cpu: (busy > 1.0).then_some(busy / 10.0),
            own_cpu: None,
            memory_available: None,
            psi_cpu: None,
            psi_io: None,
            psi_memory: None,
            load_per_core: None,
            disk_busy: None,
            disk_free: None,
            network: None,
        }
    }

    #[test]
    fn a_minute_is_the_average_of_its_measurements() {
        let log = LoadLog::in_memory();
        for (second, busy, state) in [
            (0, 1.0, QuietState::Quiet),
            (30, 3.0, QuietState::Normal),
            (61, 9.0, QuietState::Panic),
        ] {
            log.add(sample(second, busy, state)).unwrap();
        }
        let minutes = log.minutes(Timestamp::UNIX_EPOCH, 10);
        assert_eq!(minutes.len(), 1, "the second minute is not over");
        assert_eq!(minutes[0].busy, 2.0);
        assert_eq!(minutes[0].state, QuietState::Normal);
        assert_eq!(
            minutes[0].foreign_cpu,
            Some(0.3),
            "only where it was measured"
        );
        assert_eq!(log.recent(Timestamp::from_second(10).unwrap(), 1).len(), 1);
        assert_eq!(log.recent(Timestamp::from_second(10).unwrap(), 9).len(), 2);
    }

    #[test]
    fn hours_count_minutes() {
        let log = LoadLog::in_memory();
        for (minute, busy, state) in [
            (0, 1.0, QuietState::Quiet),
            (59, 3.0, QuietState::Normal),
            (60, 9.0, QuietState::Panic),
            // It ends the minute before.
            (61, 0.0, QuietState::Quiet),
        ] {
            log.add(sample(minute * 60, busy, state)).unwrap();
        }
        let hours = log.hours(Timestamp::UNIX_EPOCH - SignedDuration::from_secs(1));
        let seen: Vec<_> = hours
            .iter()
            .map(|hour| (hour.at.as_second(), hour.minutes, hour.busy, hour.quiet))
            .collect();
        assert_eq!(seen, [(0, 2, 2.0, 1), (3600, 1, 9.0, 0)]);
        assert_eq!(log.hours(Timestamp::from_second(3599).unwrap()).len(), 1);
    }

    #[test]
    fn minutes_outlive_the_process_and_a_torn_line() {
        let folder = std::env::temp_dir().join(format!("jobtree-load-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("load.ndjson");
        let start = Timestamp::from_second(1_000_000_000).unwrap();
        let log = LoadLog::open(&path, start).unwrap();
        for step in 0..5 {
            log.add(sample(1_000_000_000 + step * 60, 1.0, QuietState::Quiet))
                .unwrap();
        }
        drop(log);
        let mut torn = fs::read(&path).unwrap();
        assert_eq!(torn.iter().filter(|byte| **byte == b'\n').count(), 4);
        torn.extend_from_slice(b"{\"at\":\"20");
        fs::write(&path, torn).unwrap();

        let log = LoadLog::open(&path, start).unwrap();
        assert_eq!(log.minutes(Timestamp::UNIX_EPOCH, 10).len(), 4);
        let much_later = Timestamp::from_second(1_100_000_000).unwrap();
        drop(log);
        let log = LoadLog::open(&path, much_later).unwrap();
        assert!(log.minutes(Timestamp::UNIX_EPOCH, 10).is_empty());
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::remove_dir_all(&folder).unwrap();
    }
}
