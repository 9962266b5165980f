//! What a frame shows, asked for in one go.

use jiff::Timestamp;
use jobtree_client::{Client, LoadQuery};
use jobtree_protocol::{JobQuery, JobState, JobView, LoadSample, StatusView};

use crate::error::CliError;

/// Rows of each table that are asked for.
const ROWS: u32 = 200;
/// Measurements that are drawn.
const SAMPLES: u32 = 300;

pub struct View {
    pub status: StatusView,
    pub running: Vec<JobView>,
    pub waiting: Vec<JobView>,
    /// The oldest first.
    pub load: Vec<LoadSample>,
    /// When it was so, by this machine's clock.
    pub at: Timestamp,
    /// What is wrong since.
    pub error: Option<String>,
}

pub fn look(client: &Client) -> Result<View, CliError> {
    let jobs = |predicate: fn(JobState) -> bool| {
        client.jobs(&JobQuery {
            state: JobState::all_with(predicate),
            limit: Some(ROWS),
            ..JobQuery::default()
        })
    };
    let status = client.status()?;
    let running = jobs(JobState::is_running)?.jobs;
    let waiting = jobs(JobState::is_waiting)?.jobs;
    let mut query = LoadQuery::default();
    query.limit = Some(SAMPLES);
    let mut load = client.load(&query)?;
    load.sort_by_key(|sample| sample.at);
    Ok(View {
        status,
        running,
        waiting,
        load,
        at: Timestamp::now(),
        error: None,
    })
}

/// One that tests can draw.
#[cfg(test)]
pub fn example() -> View {
    let job = |state: &str, more: &str| -> JobView {
        let text = format!(
            r#"{{"job_id":"019a0000-0000-7000-8000-000000000000","addon_id":"photos","job_type":"index","cost_units":20,
            "priority":"NORMAL","constraints":{{}},"expected_duration_sec":null,"created_at":"2026-01-01T00:00:00Z",
            "state":"{state}","attempts":0,"max_attempts":1,"rescues":0,"next_earliest_start_at":null,"lease_id":null,
            "node_id":null,"time_sensitive":false,"deadline_at":null,"max_runtime_sec":null,"started_at":null,
            "ended_at":null{more}}}"#
        );
        serde_json::from_str(&text).expect("a job")
    };
    let status = r#"{"at":"2026-01-01T00:01:00Z","nodes":[{"node_id":"local","busy":3.5,"state":"NORMAL",
        "since":"2026-01-01T00:00:00Z","capacity":80,"used":20,"active_leases":1}],
        "jobs":{"QUEUED":2,"RUNNING":1},"oldest_queued_sec":12.0,"addons":{}}"#;
    let load =
        r#"{"at":"2026-01-01T00:01:00Z","busy":3.5,"state":"NORMAL","capacity":80,"used":20}"#;
    View {
        status: serde_json::from_str(status).expect("a status"),
        running: vec![job(
            "RUNNING",
            r#","progress":{"fraction":0.42,"message":"album 3"}"#,
        )],
        waiting: vec![job("QUEUED", ""), job("QUEUED", "")],
        load: vec![serde_json::from_str(load).expect("a sample"); 20],
        at: "2026-01-01T00:01:00Z".parse().expect("a time"),
        error: None,
    }
}
