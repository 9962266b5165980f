//! What was decided, how jobs did, what was counted.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::Uri;
use axum::routing::get;
use jobtree_protocol::{
    DecisionList, DurationBucket, DurationStats, HistoryList, Scope, StatsView, paths,
};
use jobtree_store::Histogram;

use super::{MOST_ROWS, ROWS};
use crate::auth::Caller;
use crate::daemon::Daemon;
use crate::extract::{Params, Told};
use crate::problem::Answered;

pub(super) fn routes() -> Router<Arc<Daemon>> {
    Router::new()
        .route(paths::HISTORY, get(history))
        .route(paths::DECISIONS, get(decisions))
        .route(paths::STATS, get(stats))
}

async fn history(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<HistoryList>> {
    caller.needs(Scope::Read)?;
    let mut history = daemon.scheduler.history().await?;
    history.retain(|stats| caller.sees(&stats.addon_id));
    Ok(Told(HistoryList { history }))
}

async fn decisions(
    State(daemon): State<Arc<Daemon>>,
    caller: Caller,
    uri: Uri,
) -> Answered<Told<DecisionList>> {
    caller.needs(Scope::Read)?;
    let mut params = Params::of(uri.query())?;
    let limit = params.number("limit", 1, MOST_ROWS)?.unwrap_or(ROWS) as usize;
    // Narrowed before it is cut: others' decisions must not push the caller's off the page.
    let asked = caller.addon().map_or(limit, |_| usize::MAX);
    let mut decisions = daemon.scheduler.decisions(asked).await?;
    decisions.retain(|decision| caller.sees(&decision.addon_id));
    decisions.truncate(limit);
    Ok(Told(DecisionList { decisions }))
}

/// Of all addons together, and so for admins.
async fn stats(State(daemon): State<Arc<Daemon>>, caller: Caller) -> Answered<Told<StatsView>> {
    caller.needs(Scope::Admin)?;
    let stats = daemon.scheduler.stats().await?;
    let events = stats.events.into_iter();
    Ok(Told(StatsView {
        events: events
            .map(|(kind, count)| (kind.to_owned(), count))
            .collect(),
        denials: stats.denials,
        waited: told(&stats.waited),
        ran: told(&stats.ran),
        lost_proposals: stats.lost_proposals,
        store_failures: stats.store_failures,
        reads: stats.reads,
    }))
}

/// Of microseconds.
fn told(durations: &Histogram) -> DurationStats {
    let bucket = |(micros, count)| DurationBucket {
        sec: micros as f64 / 1e6,
        count,
    };
    DurationStats {
        count: durations.count(),
        sum_sec: durations.sum as f64 / 1e6,
        up_to: durations.cumulative().map(bucket).collect(),
    }
}
