//! What was recorded: measurements and jobs, a line of JSON each.

use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, Constraints, JobId, JobType, LoadSample, Priority, Start};
use jobtree_queue::candidate::Candidate;
use jobtree_queue::signals::Sample;
use serde::Deserialize;

/// How long a job runs of which nobody knows.
const UNKNOWN: Duration = Duration::from_secs(60);

/// A measurement, and when it was made.
#[derive(Clone, Debug)]
pub struct Measured {
    pub at: Timestamp,
    pub sample: Sample,
}

/// A line as the stream of events has it, as a list has it, or bare.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Streamed { load: LoadSample },
    Listed { samples: Vec<LoadSample> },
    Bare(LoadSample),
}

/// All measurements, in order. Lines about something else are passed over, so that a recorded stream of events will do.
pub fn samples_in(text: &str) -> Result<Vec<Measured>, String> {
    let mut all = Vec::new();
    for (number, line) in lines(text) {
        match serde_json::from_str(line) {
            Ok(Line::Streamed { load } | Line::Bare(load)) => all.push(measured(&load)),
            Ok(Line::Listed { samples }) => all.extend(samples.iter().map(measured)),
            Err(_)
                if serde_json::from_str::<serde_json::Value>(line)
                    .is_ok_and(|json| json.is_object()) => {}
            Err(error) => return Err(format!("load, line {number}: {error}")),
        }
    }
    all.sort_by_key(|measured: &Measured| measured.at);
    Ok(all)
}

/// What others used. What our own jobs used then is not what they would have used now, so it counts as idle.
fn measured(load: &LoadSample) -> Measured {
    let foreign = load.foreign_cpu.unwrap_or(load.busy / 10.0);
    Measured {
        at: load.at,
        sample: Sample {
            cpu_idle: (1.0 - foreign).clamp(0.0, 1.0),
            own_cpu: 0.0,
            psi_cpu: load.psi_cpu,
            psi_io: load.psi_io,
            psi_memory: load.psi_memory,
            memory_available: load.memory_available,
            load_per_core: load.load_per_core,
            disk_busy: load.disk_busy,
            disk_free: load.disk_free,
            network: load.network,
        },
    }
}

/// A job as a list shows it, as far as it matters.
#[derive(Deserialize)]
struct Written {
    job_id: Option<JobId>,
    addon_id: AddonId,
    job_type: JobType,
    cost_units: u32,
    #[serde(default)]
    priority: Priority,
    #[serde(default)]
    constraints: Constraints,
    #[serde(default)]
    expected_duration_sec: Option<u32>,
    #[serde(alias = "at")]
    created_at: Timestamp,
    #[serde(default)]
    time_sensitive: bool,
    #[serde(default)]
    start: Start,
    /// As it was submitted; a list of a job that has failed tells also when its next attempt may start.
    #[serde(default)]
    earliest_start_at: Option<Timestamp>,
    #[serde(default)]
    next_earliest_start_at: Option<Timestamp>,
    #[serde(default)]
    deadline_at: Option<Timestamp>,
    #[serde(default)]
    started_at: Option<Timestamp>,
    #[serde(default)]
    ended_at: Option<Timestamp>,
}

/// A job, and how long it runs.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub candidate: Candidate,
    pub takes: Duration,
}

/// Fields of jobs that say when a job may start or how long it runs, and that the simulation does not go by.
const IGNORED: [&str; 7] = [
    "waiting_for",
    "depends_on",
    "concurrency_key",
    "required_node",
    "required_labels",
    "max_runtime_sec",
    "backoff",
];

/// Returns what is recorded of jobs and load and has no effect on the simulation, in words.
pub fn ignored_in(jobs: &str, load: &str) -> Vec<String> {
    let has = |line: &str, field: &str| {
        let json = serde_json::from_str::<serde_json::Value>(line).unwrap_or_default();
        match json.get(field) {
            None | Some(serde_json::Value::Null) => false,
            Some(serde_json::Value::Array(all)) => !all.is_empty(),
            Some(_) => true,
        }
    };
    let fields = IGNORED.into_iter().filter_map(|field| {
        let count = lines(jobs).filter(|(_, line)| has(line, field)).count();
        (count > 0).then(|| format!("{field} of jobs ({count})"))
    });
    let unmeasured = lines(load).filter(|(_, line)| has(line, "busy") && !has(line, "foreign_cpu"));
    let unmeasured = unmeasured.count();
    let load = (unmeasured > 0).then(|| {
        format!(
            "signals that busy was made of, where a measurement tells busy alone ({unmeasured})"
        )
    });
    fields.chain(load).collect()
}

/// All jobs, in the order of their submission.
pub fn jobs_in(text: &str) -> Result<Vec<Recorded>, String> {
    let mut all = Vec::new();
    for (number, line) in lines(text) {
        let written: Written =
            serde_json::from_str(line).map_err(|error| format!("jobs, line {number}: {error}"))?;
        all.push(written.recorded(number));
    }
    all.sort_by_key(|job: &Recorded| job.candidate.enqueued_at);
    Ok(all)
}

impl Written {
    fn recorded(self, number: usize) -> Recorded {
        let ran = self.started_at.zip(self.ended_at);
        let ran = ran.and_then(|(from, to)| Duration::try_from(to.duration_since(from)).ok());
        let expected = self
            .expected_duration_sec
            .map(|sec| Duration::from_secs(sec.into()));
        let number = (number as u64).to_be_bytes();
        let mut random = [0; 10];
        random[2..].copy_from_slice(&number);
        // The same file gives the same ids.
        let id = self
            .job_id
            .unwrap_or_else(|| JobId::from_parts(self.created_at, random));
        let mut candidate = Candidate::new(
            id,
            self.addon_id,
            self.job_type,
            self.cost_units,
            self.created_at,
        );
        candidate.priority = self.priority;
        candidate.constraints = self.constraints;
        candidate.time_sensitive = self.time_sensitive;
        candidate.start = self.start;
        candidate.not_before = self.earliest_start_at.or(self.next_earliest_start_at);
        candidate.deadline = self.deadline_at;
        candidate.expected_duration = expected;
        Recorded {
            candidate,
            takes: ran.or(expected).unwrap_or(UNKNOWN),
        }
    }
}

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let numbered = text.lines().enumerate();
    numbered
        .map(|(number, line)| (number + 1, line.trim()))
        .filter(|(_, line)| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_in_all_their_forms() {
        let bare = r#"{"at":"2026-01-01T00:00:01Z","busy":5,"state":"NORMAL","capacity":50,"used":0,"foreign_cpu":0.25}"#;
        let text = format!(
            "{{\"load\":{bare}}}\n\n{bare}\n{{\"version\":1,\"samples\":[{bare},{bare}]}}\n{{\"event\":\"DONE\"}}\n"
        );
        let samples = samples_in(&text).unwrap();
        assert_eq!(samples.len(), 4);
        assert!((samples[0].sample.cpu_idle - 0.75).abs() < 1e-9);
        assert!(samples_in("{").unwrap_err().contains("line 1"));
    }

    #[test]
    fn a_job_runs_as_long_as_it_ran() {
        let job = |more: &str| {
            let text = format!(
                r#"{{"addon_id":"a","job_type":"t","cost_units":5,"created_at":"2026-01-01T00:00:00Z"{more}}}"#
            );
            jobs_in(&text).unwrap().remove(0).takes
        };
        assert_eq!(job(""), UNKNOWN);
        assert_eq!(job(r#","expected_duration_sec":7"#), Duration::from_secs(7));
        let ran = r#","expected_duration_sec":7,"started_at":"2026-01-01T00:00:05Z","ended_at":"2026-01-01T00:00:25Z""#;
        assert_eq!(job(ran), Duration::from_secs(20));
        let ignored = r#"{"waiting_for":[],"required_labels":["gpu"],"max_runtime_sec":null}"#;
        let load = r#"{"at":"2026-01-01T00:00:00Z","busy":3}"#;
        assert_eq!(
            ignored_in(ignored, load),
            [
                "required_labels of jobs (1)",
                "signals that busy was made of, where a measurement tells busy alone (1)",
            ]
        );
        assert!(jobs_in("{}").unwrap_err().contains("line 1"));
    }
}
