//! A store in words: all that its users can ask of it, as JSON in the protocol's types, so that a file can be compared with
//! what was in it when an earlier release wrote it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jobtree_protocol::{AddonId, JobQuery, LeaseId};
use jobtree_queue::JobRecord;
use jobtree_store::Store;
use serde_json::{Value, json};

const ALL: usize = 10_000;

fn value(of: impl serde::Serialize) -> Value {
    serde_json::to_value(of).expect("it is made of plain values")
}

/// Everything that is in it. Idempotency keys are looked up by name: nobody can list them.
pub fn describe(store: &Store, keys: &[(String, String)]) -> Value {
    let records = all_jobs(store);
    let jobs: Vec<Value> = records.iter().map(|job| a_job(store, job)).collect();
    let events = store.events_after(0, ALL).wait().expect("the trail");
    let leases: BTreeSet<LeaseId> = events
        .iter()
        .filter_map(|recorded| recorded.event.lease_id)
        .collect();
    let leases = leases
        .into_iter()
        // A reservation has an id of the same kind, and is no lease.
        .filter_map(|id| store.lease(id).wait().ok())
        .map(|lease| value(lease.view()));
    let schedules = store.schedules().wait().expect("the schedules");
    json!({
        "jobs": jobs,
        "leases": leases.collect::<Vec<_>>(),
        "events": events
            .iter()
            .map(|recorded| json!({"place": recorded.cursor, "event": value(&recorded.event)}))
            .collect::<Vec<_>>(),
        "keys": keys.iter().map(|key| a_key(store, key)).collect::<Vec<_>>(),
        "schedules": schedules.iter().map(value).collect::<Vec<_>>(),
        "pauses": value(store.pauses().wait().expect("the pauses")),
        "notes": value(store.notes(String::new()).wait().expect("the notes")),
        "usage": store.usage().wait().expect("the usage").iter().map(|usage| json!({
            "node_id": usage.node_id,
            "addon_id": usage.addon_id,
            "units": usage.units,
            "leases": usage.leases,
            "reservations": usage.reservations,
        })).collect::<Vec<_>>(),
    })
}

fn all_jobs(store: &Store) -> Vec<Arc<JobRecord>> {
    let mut jobs = Vec::new();
    let mut query = JobQuery::default();
    loop {
        let page = store.list(query.clone(), 100).wait().expect("a page");
        jobs.extend(page.jobs);
        query.after = page.next;
        if query.after.is_none() {
            return jobs;
        }
    }
}

fn a_job(store: &Store, job: &JobRecord) -> Value {
    let told = store.job(job.id).wait().expect("it was listed");
    assert_eq!(&*told.job, job, "a list and a look show the same");
    let log = store.log(job.id, 0, usize::MAX).wait().expect("its log");
    let trail = store.events_of(job.id).wait().expect("its trail");
    let holders = job.intent.concurrency_key.as_ref().map(|key| {
        let asked = store.key_holders(job.intent.addon_id.clone(), key.clone());
        asked.wait().expect("the holders of its key")
    });
    json!({
        "view": value(job.view(told.lease.as_ref())),
        "intent": value(&*job.intent),
        "enqueued_at": job.enqueued_at,
        "redrives": job.redrives,
        "denial": value(&job.denial),
        "completions": value(&job.completions),
        "log": value(&log),
        "trail": trail.iter().map(|recorded| recorded.cursor).collect::<Vec<_>>(),
        "key_holders": holders,
    })
}

fn a_key(store: &Store, (addon, key): &(String, String)) -> Value {
    let (addon_id, name) = (AddonId::new(addon).expect("a name"), key.clone());
    let found = store.read(move |tables| tables.key(&addon_id, &name));
    let found = found.wait().expect("an answer");
    json!({
        "addon_id": addon,
        "key": key,
        "job_id": found.as_ref().map(|key| key.job_id),
        "state": found.as_ref().map(|key| key.state),
        "created_at": found.as_ref().map(|key| key.created_at),
    })
}
