//! What a frame shows, asked for in one go, and what its keys ask the daemon to do.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_client::{Client, LoadQuery};
use jobtree_protocol::{
    AddonId, Explain, JobId, JobQuery, JobState, JobView, LiveTree, LoadSample, PauseRequest,
    StatusView,
};

use crate::commands::logs::Follower;
use crate::error::CliError;
use crate::filter;
use crate::names;
use crate::why;

/// Rows of each table that are asked for.
const ROWS: u32 = 200;
/// Jobs of a table whose reasons are asked for: more rows than a terminal has.
const EXPLAINED: usize = 100;
/// Failures that are asked for.
const FAILURES: u32 = 50;
/// Measurements that are drawn.
const SAMPLES: u32 = 300;
/// Bytes of a log that are kept: its end.
const LOG: usize = 64 << 10;

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// Which jobs, in the language of `ls`.
    pub filter: String,
    /// The job that is open.
    pub open: Option<JobId>,
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Cancel(JobId),
    Retry(JobId),
    /// Pauses an addon, or resumes it if it is paused.
    Pause(AddonId),
}

pub struct View {
    pub status: StatusView,
    pub running: Vec<JobView>,
    pub waiting: Vec<JobView>,
    /// Jobs that failed, the newest first.
    pub failed: Vec<JobView>,
    /// The first reason why each job that waits or stands still does, as `ls` and `explain` tell it.
    pub reasons: HashMap<JobId, String>,
    /// The oldest first.
    pub load: Vec<LoadSample>,
    pub opened: Option<Opened>,
    /// When it was so, by this machine's clock.
    pub at: Timestamp,
    /// What is wrong since.
    pub error: Option<String>,
}

/// All about one job.
pub struct Opened {
    pub job: JobView,
    pub explained: Option<Explain>,
    pub tree: Option<LiveTree>,
    /// The end of what it printed.
    pub log: String,
}

pub fn look(client: &Client, subject: &Subject) -> Result<View, CliError> {
    let query = filter::parse(std::slice::from_ref(&subject.filter)).map_err(CliError::usage)?;
    let jobs = |predicate: fn(JobState) -> bool| {
        let mut states = JobState::all_with(predicate);
        if !query.state.is_empty() {
            states.retain(|state| query.state.contains(state));
        }
        if states.is_empty() {
            return Ok(Vec::new());
        }
        let query = JobQuery {
            state: states,
            limit: Some(ROWS),
            ..query.clone()
        };
        client.jobs(&query).map(|list| list.jobs)
    };
    let status = client.status()?;
    let running = jobs(JobState::is_running)?;
    let waiting = jobs(JobState::is_waiting)?;
    let failures = RecentQuery {
        state: vec![JobState::Failed],
        addon_id: query.addon_id.clone(),
        job_type: query.job_type.clone(),
        tag: query.tag.clone(),
        text: query.text.clone(),
        quarantined: query.quarantined,
        ended_since: query.ended_since,
        limit: Some(FAILURES),
        ..RecentQuery::default()
    };
    let failed = match query.state.is_empty() || query.state.contains(&JobState::Failed) {
        true => client.recent_jobs(&failures)?.jobs,
        false => Vec::new(),
    };
    let mut samples = LoadQuery::default();
    samples.limit = Some(SAMPLES);
    let mut load = client.load(&samples)?;
    load.sort_by_key(|sample| sample.at);
    let opened = subject.open.map(|id| open(client, id)).transpose()?;
    let mut reasons = HashMap::new();
    for jobs in [&running, &waiting] {
        reasons.extend(why::of_jobs(client, &jobs[..jobs.len().min(EXPLAINED)]));
    }
    Ok(View {
        reasons,
        status,
        running,
        waiting,
        failed,
        load,
        opened,
        at: Timestamp::now(),
        error: None,
    })
}

fn open(client: &Client, id: JobId) -> Result<Opened, CliError> {
    let mut log = String::new();
    let mut from = Follower::new(id);
    loop {
        let page = from.next(client, Duration::ZERO)?;
        log += &page.text;
        let surplus = log.len().saturating_sub(LOG);
        let cut = log.ceil_char_boundary(surplus);
        log.drain(..cut);
        if page.text.is_empty() || page.ended {
            break;
        }
    }
    Ok(Opened {
        job: client.job(id)?,
        explained: client.explain(id).ok(),
        // Only workers in Rust tell of one.
        tree: client.tree(id).ok().map(|view| view.tree),
        log,
    })
}

/// Does what a key asks for; returns what to tell.
pub fn act(client: &Client, action: &Action) -> Result<String, CliError> {
    match action {
        Action::Cancel(id) => {
            let state = client.cancel(*id, Some("cancelled in jobtree top"))?;
            Ok(match state.is_ended() {
                true => format!("{} is {state}", names::short(*id)),
                false => format!("{} is asked to stop", names::short(*id)),
            })
        }
        Action::Retry(id) => {
            let state = client.retry(*id, Some("retried in jobtree top"))?;
            Ok(format!("{} is {state}", names::short(*id)))
        }
        Action::Pause(addon) => {
            let paused = client.pauses()?;
            let whole = |pause: &jobtree_protocol::PauseView| {
                pause.addon_id == *addon && pause.job_type.is_none()
            };
            let request = PauseRequest {
                addon_id: addon.clone(),
                job_type: None,
                reason: Some("paused in jobtree top".into()),
            };
            if paused.iter().any(whole) {
                client.resume(&request)?;
                Ok(format!("resumed {addon}"))
            } else {
                client.pause(&request)?;
                Ok(format!("paused {addon}; what runs goes on"))
            }
        }
    }
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
        failed: vec![job(
            "FAILED",
            r#","last_error":"exit code 3: no disk","tags":["nightly"]"#,
        )],
        load: vec![serde_json::from_str(load).expect("a sample"); 20],
        reasons: HashMap::new(),
        opened: None,
        at: "2026-01-01T00:01:00Z".parse().expect("a time"),
        error: None,
    }
}
