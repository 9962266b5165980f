//! Whether two stores hold the same: asked for everything that can be asked, they must answer the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobtree_protocol::{JobId, JobQuery, JobState, Json};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};

use crate::logs::{LogEnd, read_log};
use crate::moving::{Fired, PRUNED_EVENTS};
use crate::store::Store;
use crate::tables::{Count, Pause, Reading, Recorded, Result, ScheduleRecord};

#[derive(Debug, PartialEq)]
struct Everything {
    jobs: Vec<Arc<JobRecord>>,
    by_state: Vec<Vec<JobId>>,
    queued: Vec<Arc<JobRecord>>,
    dispatching: Vec<Arc<JobRecord>>,
    live: Vec<LeaseRecord>,
    leases: Vec<LeaseRecord>,
    keys: Vec<KeyRecord>,
    events: Vec<Recorded>,
    trails: BTreeMap<JobId, Vec<Recorded>>,
    waiting: BTreeMap<JobId, Vec<JobId>>,
    counts: Vec<Count>,
    logs: BTreeMap<JobId, (LogEnd, String)>,
    schedules: Vec<ScheduleRecord>,
    firings: Vec<Fired>,
    pauses: Vec<Pause>,
    notes: Vec<(String, Json)>,
}

const MOST: usize = 100_000;

fn everything(tables: &mut dyn Reading) -> Result<Everything> {
    let list = |tables: &mut dyn Reading, query: JobQuery| tables.list(&query, MOST);
    let jobs = list(tables, JobQuery::default())?.jobs;
    let mut by_state = Vec::new();
    for state in JobState::ALL {
        let query = JobQuery {
            state: vec![state],
            ..JobQuery::default()
        };
        let page = list(tables, query)?;
        by_state.push(page.jobs.iter().map(|job| job.id).collect());
    }
    let (mut trails, mut waiting) = (BTreeMap::new(), BTreeMap::new());
    for job in &jobs {
        trails.insert(job.id, tables.events_of(job.id)?);
        waiting.insert(job.id, tables.waiting_for(job.id)?);
    }
    let mut logs = BTreeMap::new();
    for (job, end) in tables.all_logs(None, MOST)? {
        let mut text = String::new();
        while (text.len() as u64) < end.kept {
            text.push_str(&read_log(tables, job, text.len() as u64, MOST)?.text);
        }
        logs.insert(job, (end, text));
    }
    let mut keys = tables.all_keys(None, MOST)?;
    keys.sort_by(|a, b| (&a.addon_id, &a.key).cmp(&(&b.addon_id, &b.key)));
    let mut counts = tables.counts(true)?;
    counts.sort_by(|a, b| (&a.addon_id, a.state).cmp(&(&b.addon_id, b.state)));
    let mut notes = tables.notes("")?;
    notes.retain(|(name, _)| name != PRUNED_EVENTS);
    Ok(Everything {
        jobs,
        by_state,
        queued: tables.queued(None, MOST)?,
        dispatching: tables.dispatching()?,
        live: tables.live_leases()?,
        leases: tables.all_leases(None, MOST)?,
        keys,
        events: tables.shown_events_after(0, MOST)?,
        trails,
        waiting,
        counts,
        logs,
        schedules: tables.schedules()?,
        firings: tables.all_firings(None, MOST)?,
        pauses: tables.pauses()?,
        notes,
    })
}

/// Panics if the two stores do not hold the same. For stores that fit into memory.
pub fn assert_same(one: &Store, other: &Store) {
    let stores = [one, other];
    let ask = |store: &Store| store.read(everything).wait().expect("all of it");
    let (one, other) = (ask(one), ask(other));
    macro_rules! same {
        ($($what:ident)*) => {
            // One after the other, so that what differs is told.
            $(assert_eq!(one.$what, other.$what, "{}", stringify!($what));)*
        };
    }
    same!(jobs by_state queued dispatching live leases keys events trails waiting counts logs);
    same!(schedules firings pauses notes);
    assert_eq!(one, other);
    // A store may go on a little further on: PostgreSQL gives places in blocks of 64.
    let next = |store: &Store| store.read(|tables| tables.next_event()).wait();
    let places = stores.map(|store| next(store).expect("a place"));
    assert!(places[0].abs_diff(places[1]) < 64, "{places:?}");
    let last = one.events.last().map_or(0, |recorded| recorded.cursor);
    assert!(places.iter().all(|next| *next > last), "{places:?}");
}
