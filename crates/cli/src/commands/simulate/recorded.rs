//! What was recorded: measurements and jobs, a line of JSON each.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, Constraints, JobId, JobType, LoadSample, Priority, Start};
use jobtree_queue::candidate::Candidate;
use jobtree_queue::simulate::{Measured, Recorded, UNKNOWN, running_time};
use serde::Deserialize;

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
            Ok(Line::Streamed { load } | Line::Bare(load)) => all.push(Measured::of(&load)),
            Ok(Line::Listed { samples }) => all.extend(samples.iter().map(Measured::of)),
            Err(_)
                if serde_json::from_str::<serde_json::Value>(line)
                    .is_ok_and(|json| json.is_object()) => {}
            Err(error) => return Err(format!("load, line {number}: {error}")),
        }
    }
    all.sort_by_key(|measured: &Measured| measured.at);
    Ok(all)
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

/// Fields of jobs that the simulation goes by: those of [`Written`].
const HONOURED: [&str; 16] = [
    "job_id",
    "addon_id",
    "job_type",
    "cost_units",
    "priority",
    "constraints",
    "expected_duration_sec",
    "created_at",
    "at",
    "time_sensitive",
    "start",
    "earliest_start_at",
    "next_earliest_start_at",
    "deadline_at",
    "started_at",
    "ended_at",
];

/// Fields of jobs that say neither when a job may start nor how long it runs: names, contents, and what became of the job, which
/// the simulation tells anew. Any other field is told as ignored.
const NO_MATTER: [&str; 23] = [
    "version",
    "state",
    "lease_id",
    "position",
    "node_id",
    "dispatch_until",
    "payload",
    "tags",
    "pids",
    "progress",
    "metrics",
    "result",
    "last_error",
    "deadline_at_risk",
    "quarantined",
    "schedule_id",
    "traceparent",
    "idempotency_key",
    "unique_key",
    "concurrency_limit",
    "on_dependency_failure",
    "why",
    "usage",
];

/// Measurements that the simulation goes by, or makes itself: `busy` counts where what it was made of was not recorded.
const MEASURED: [&str; 15] = [
    "at",
    "busy",
    "state",
    "capacity",
    "used",
    "foreign_cpu",
    "own_cpu",
    "memory_available",
    "psi_cpu",
    "psi_io",
    "psi_memory",
    "load_per_core",
    "disk_busy",
    "disk_free",
    "network",
];

/// Returns what is recorded of jobs and load and has no effect on the simulation, in words.
pub fn ignored_in(jobs: &str, load: &str) -> Vec<String> {
    let jobs = objects(jobs).filter_map(|json| json.as_object().cloned());
    let mut fields = BTreeMap::<String, usize>::new();
    for (name, value) in jobs.flatten() {
        if !HONOURED.contains(&&*name)
            && !NO_MATTER.contains(&&*name)
            && says_something(&name, &value)
        {
            *fields.entry(name).or_default() += 1;
        }
    }
    let of_jobs = fields
        .into_iter()
        .map(|(name, count)| format!("{name} of jobs ({count})"));
    let mut fields = BTreeMap::<String, usize>::new();
    let mut unmeasured = 0;
    for mut json in objects(load) {
        // As the stream of events has it, as a list has it, or bare.
        let mut take = |name: &str| json.get_mut(name).map(serde_json::Value::take);
        let all = match (take("load"), take("samples")) {
            (Some(one), _) => vec![one],
            (None, Some(serde_json::Value::Array(all))) => all,
            _ => vec![json],
        };
        let samples = all.into_iter().filter_map(|json| match json {
            serde_json::Value::Object(sample) if sample.contains_key("busy") => Some(sample),
            _ => None,
        });
        for sample in samples {
            let cpu = sample.get("foreign_cpu").is_some_and(|it| !it.is_null());
            unmeasured += usize::from(!cpu);
            for (name, value) in sample {
                if !MEASURED.contains(&&*name) && says_something(&name, &value) {
                    *fields.entry(name).or_default() += 1;
                }
            }
        }
    }
    let of_load = fields
        .into_iter()
        .map(|(name, count)| format!("{name} of load ({count})"));
    let unmeasured = (unmeasured > 0).then(|| {
        format!(
            "signals that busy was made of, where a measurement tells busy alone ({unmeasured})"
        )
    });
    of_jobs.chain(of_load).chain(unmeasured).collect()
}

/// Returns `false` for a value that a field has if nothing was said.
fn says_something(name: &str, value: &serde_json::Value) -> bool {
    use serde_json::Value::{Array, Bool, Null, Number, Object, String};
    match value {
        Null | Bool(false) => false,
        Array(all) => !all.is_empty(),
        Object(all) => !all.is_empty(),
        Number(number) => match name {
            // Of a job that runs once, or ran once.
            "max_attempts" | "attempts" => number.as_u64() != Some(1),
            _ => number.as_f64().is_none_or(|number| number.abs() > 0.0),
        },
        Bool(true) => true,
        // What a job is recorded with that says nothing of it.
        String(text) => (name, text.as_str()) != ("late", "run"),
    }
}

fn objects(text: &str) -> impl Iterator<Item = serde_json::Value> {
    lines(text).filter_map(|(_, line)| serde_json::from_str(line).ok())
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
        let ran = running_time(self.started_at, self.ended_at);
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

    #[test]
    fn whatever_the_simulation_does_not_go_by_is_told() {
        let job = r#"{"addon_id":"a","state":"DONE","attempts":1,"max_attempts":3,"late":"fail","some_new_field":{"x":1},"payload":{"y":2}}"#;
        let load = r#"{"load":{"at":"2026-01-01T00:00:00Z","busy":3,"foreign_cpu":0.1,"gpu_busy":0.5,"network":0.1}}"#;
        assert_eq!(
            ignored_in(
                &format!("{job}\n{job}"),
                &format!("{load}\n{{\"event\":\"DONE\"}}")
            ),
            [
                "late of jobs (2)",
                "max_attempts of jobs (2)",
                "some_new_field of jobs (2)",
                "gpu_busy of load (1)",
            ]
        );
    }

    /// Each field that a list shows of a job is gone by, without effect, or told: a new one must be thought of.
    #[test]
    fn every_field_of_a_job_is_known() {
        let fields = include_str!("../../../../protocol/src/job.rs");
        let view = fields
            .split_once("pub struct JobView {")
            .expect("the view")
            .1;
        let view = view.split_once("\n}").expect("its end").0;
        let names = view
            .lines()
            .filter_map(|line| line.trim().strip_prefix("pub "));
        let told: Vec<&str> = names
            .filter_map(|line| Some(line.split_once(':')?.0))
            .filter(|name| !HONOURED.contains(name) && !NO_MATTER.contains(name))
            .collect();
        assert_eq!(
            told,
            [
                "attempts",
                "max_attempts",
                "rescues",
                "max_runtime_sec",
                "waiting_for",
                "cancel_requested",
                "late",
                "backoff",
                "concurrency_key",
                "depends_on",
                "required_node",
                "required_labels",
            ]
        );
    }
}
