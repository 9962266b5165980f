//! What operators and dashboards read: status, statistics, decisions, load, workers.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::operations::{
    DEFAULT_ROWS, GetHistory, GetStats, GetStatus, ListDecisions, ListLoad, ListWorkers, LoadStep,
};
use jobtree_protocol::{
    DecisionList, DurationBucket, DurationStats, HistoryList, LoadList, StatsView, StatusView,
    WorkerList,
};
use jobtree_store::Histogram;

use super::route::{Call, routes};
use crate::daemon::Daemon;
use crate::problem::Answered;

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
    let mut history = daemon.scheduler.history().await?;
    history.retain(|stats| call.caller.sees(&stats.addon_id));
    Ok(HistoryList { history })
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
