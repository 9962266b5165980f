//! What operators and dashboards read: status, statistics, decisions, load, workers.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::operations::{
    DEFAULT_ROWS, GetHistory, GetStats, GetStatus, HistoryWindow, ListDecisions, ListLoad,
    ListLoadHours, ListWorkers, LoadStep,
};
use jobtree_protocol::{
    DecisionList, DurationBucket, DurationStats, HistoryList, JobQuery, JobState, LoadHours,
    LoadList, StatsView, StatusView, WorkerList,
};
use jobtree_queue::history::{History, Run};
use jobtree_store::Histogram;

use super::ownership;
use super::route::{Call, routes};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::problem::Answered;

/// Jobs that one page of a history reads.
const PAGE: usize = 500;

jobtree_protocol::observing_operations!(routes);

async fn get_status(daemon: Arc<Daemon>, call: Call<GetStatus>) -> Answered<StatusView> {
    let mut status = daemon.scheduler.status().await?;
    if let Some(own) = call.caller.addon() {
        status.addons.retain(|addon, _| addon == own);
        let counts = status.addons.get(own).cloned().unwrap_or_default();
        status.jobs = counts.jobs().collect();
        status.oldest_queued_sec = None;
    }
    Ok(status)
}

async fn get_history(daemon: Arc<Daemon>, call: Call<GetHistory>) -> Answered<HistoryList> {
    if call.query != HistoryWindow::default() {
        return history_of(&daemon, &call.query, &call.caller).await;
    }
    let mut history = daemon.scheduler.history().await?;
    history.retain(|stats| call.caller.sees(&stats.addon_id));
    Ok(HistoryList { history })
}

/// Counts the ended jobs of a window or a machine. They are read page by page, in the order of their ids: no index leads to
/// the time of an end.
async fn history_of(
    daemon: &Daemon,
    window: &HistoryWindow,
    caller: &Caller,
) -> Answered<HistoryList> {
    let capacity = daemon.scheduler.policy().capacity.units;
    let mut history = History::default();
    let mut query = JobQuery {
        state: vec![JobState::Done, JobState::Failed],
        addon_id: caller.addon().cloned(),
        ..JobQuery::default()
    };
    loop {
        let page = daemon.store().list(query.clone(), PAGE).await;
        let page = page.map_err(ownership::unreadable)?;
        for job in &page.jobs {
            let is_in_time = job.ended_at.is_some_and(|ended| {
                window.since.is_none_or(|since| ended >= since)
                    && window.until.is_none_or(|until| ended < until)
            });
            let is_there = window.node_id.is_none() || job.node_id == window.node_id;
            if let Some(run) = Run::of(job, capacity).filter(|_| is_in_time && is_there) {
                history.add(&job.intent.addon_id, &job.intent.job_type, &run);
            }
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(HistoryList {
                history: history.stats(),
            });
        }
    }
}

async fn list_decisions(daemon: Arc<Daemon>, call: Call<ListDecisions>) -> Answered<DecisionList> {
    let limit = call.query.limit.unwrap_or(DEFAULT_ROWS) as usize;
    // Narrowed before it is cut: other addons' decisions must not push the caller's off the page.
    let asked = call.caller.addon().map_or(limit, |_| usize::MAX);
    let mut decisions = daemon.scheduler.decisions(asked).await?;
    decisions.retain(|decision| call.caller.sees(&decision.addon_id));
    decisions.truncate(limit);
    Ok(DecisionList { decisions })
}

async fn get_stats(daemon: Arc<Daemon>, _: Call<GetStats>) -> Answered<StatsView> {
    let stats = daemon.scheduler.stats().await?;
    let events = stats.events.into_iter();
    Ok(StatsView {
        events: events
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect(),
        denials: stats.denials,
        waited: durations(&stats.waited),
        ran: durations(&stats.ran),
        lost_proposals: stats.lost_proposals,
        store_failures: stats.store_failures,
        reads: stats.reads,
    })
}

/// Converts a histogram of microseconds.
fn durations(histogram: &Histogram) -> DurationStats {
    let bucket = |(micros, count)| DurationBucket {
        sec: micros as f64 / 1e6,
        count,
    };
    DurationStats {
        count: histogram.count(),
        sum_sec: histogram.sum as f64 / 1e6,
        up_to: histogram.cumulative().map(bucket).collect(),
    }
}

async fn list_workers(daemon: Arc<Daemon>, call: Call<ListWorkers>) -> Answered<WorkerList> {
    let workers = call
        .caller
        .narrowed(call.query.addon_id)
        .map(|addon| daemon.observing.live.workers(addon.as_ref()));
    Ok(WorkerList {
        workers: workers.unwrap_or_default(),
    })
}

/// As many as a chart is wide.
const DEFAULT_SAMPLES: u32 = 500;

async fn list_load(daemon: Arc<Daemon>, call: Call<ListLoad>) -> Answered<LoadList> {
    let since = call.query.since.unwrap_or(Timestamp::UNIX_EPOCH);
    let limit = call.query.limit.unwrap_or(DEFAULT_SAMPLES) as usize;
    let log = &daemon.observing.load;
    let samples = match call.query.by.unwrap_or_default() {
        LoadStep::Sample => log.recent(since, limit),
        LoadStep::Minute => log.minutes(since, limit),
    };
    Ok(LoadList { samples })
}

async fn list_load_hours(daemon: Arc<Daemon>, call: Call<ListLoadHours>) -> Answered<LoadHours> {
    let since = call.query.since.unwrap_or(Timestamp::UNIX_EPOCH);
    let hours = daemon.observing.load.hours(since);
    Ok(LoadHours { hours })
}
