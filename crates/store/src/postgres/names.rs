//! Names as locks, and what has them.
//!
//! Names and concurrency keys are advisory locks on their hashes, taken by number. The server has room for some thousands of
//! them, so a transaction that wants more than [`MOST_NAMES`] takes one lock on all of them instead; every other one
//! shares that lock.

use jobtree_protocol::{JobId, JobState, LeaseId};
use jobtree_queue::KeyRecord;
use tokio_postgres::Row;

use super::connection::Call;
use super::overlay::ConcurrencyKey;
use super::tables::{PgTables, read, request_text, state_of};
use crate::needs::Name;
use crate::tables::Result;

/// More names than these are one lock on all names.
pub(super) const MOST_NAMES: usize = 512;
pub(super) const SHARE_NAMES: &str = "SELECT pg_advisory_xact_lock_shared(7306086967000000004)";
pub(super) const LOCK_ALL_NAMES: &str = "SELECT pg_advisory_xact_lock(7306086967000000004)";
pub(super) const LOCK_NAMES: &str = "SELECT pg_advisory_xact_lock(number) FROM (SELECT DISTINCT hashtextextended(name, kind) \
    AS number FROM unnest($1::text[], $2::bigint[]) AS name (name, kind) ORDER BY 1) AS sorted";
pub(super) const KEYS: &str = "SELECT known.record FROM unnest($1::text[], $2::text[]) AS name (addon_id, key) \
    JOIN scheduler_keys AS known ON known.addon_id = name.addon_id AND known.key = name.key";
pub(super) const UNIQUE: &str = "SELECT name.place, job.id, job.state \
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS name (addon_id, job_type, key, place) \
    JOIN scheduler_jobs AS job ON job.addon_id = name.addon_id AND job.job_type = name.job_type \
    AND job.unique_key = name.key WHERE job.unique_key IS NOT NULL";
pub(super) const REQUESTS: &str = "SELECT name.place, lease.id FROM unnest($1::text[], $2::int[]) AS name (request, place) \
    JOIN scheduler_leases AS lease ON lease.request = name.request WHERE lease.live AND lease.request IS NOT NULL";
pub(super) const HOLDERS: &str = "SELECT name.place, job.id, coalesce(job.lease_id, job.id) \
    FROM unnest($1::text[], $2::text[], $3::int[]) AS name (addon_id, key, place) \
    JOIN scheduler_jobs AS job ON job.addon_id = name.addon_id AND job.concurrency_key = name.key \
    WHERE job.concurrency_key IS NOT NULL AND job.state <> 0";
pub(super) const HOLDERS_KIND: i64 = 7306;

/// A name as it is locked: a text, and a number for its kind.
pub(super) fn lock_of(name: &Name) -> (String, i64) {
    match name {
        Name::Request(request) => (request_text(request), 7307),
        Name::Key(addon, key) => (format!("{addon} {key}"), 7308),
        Name::Unique(addon, job_type, key) => (format!("{addon} {job_type} {key}"), 7309),
        Name::Job(id) => (id.to_string(), 7310),
        Name::Lease(id) => (id.to_string(), 7311),
    }
}

pub(super) fn lock_of_holders((addon, key): &ConcurrencyKey) -> String {
    format!("{addon}/{key}")
}

fn places(count: usize) -> Vec<i32> {
    (0..count as i32).collect()
}

/// Answers by the place of their questions.
pub(super) type Answers = std::vec::IntoIter<Vec<Row>>;

pub(super) fn next(answers: &mut Answers) -> Vec<Row> {
    answers.next().unwrap_or_default()
}

pub(super) fn lock_names(names: &[Name], calls: &mut Vec<Call>) {
    if names.len() > MOST_NAMES {
        calls.push(Call::new(LOCK_ALL_NAMES));
    } else if !names.is_empty() {
        let (texts, kinds): (Vec<String>, Vec<i64>) = names.iter().map(lock_of).unzip();
        calls.push(Call::new(SHARE_NAMES));
        calls.push(Call::new(LOCK_NAMES).with(texts).with(kinds));
    }
}

pub(super) fn holders(keys: &[ConcurrencyKey]) -> Call {
    let addons: Vec<String> = keys.iter().map(|(addon, _)| addon.to_string()).collect();
    let texts: Vec<String> = keys.iter().map(|(_, key)| key.clone()).collect();
    Call::new(HOLDERS)
        .with(addons)
        .with(texts)
        .with(places(keys.len()))
}

/// What has these names. A job and a lease are found by their ids.
pub(super) struct Questions<'a> {
    keys: Vec<&'a Name>,
    unique: Vec<&'a Name>,
    requests: Vec<&'a Name>,
}

impl<'a> Questions<'a> {
    pub(super) fn of(names: &'a [Name]) -> Self {
        let these = |is: fn(&Name) -> bool| names.iter().filter(|it| is(it)).collect();
        Self {
            keys: these(|name| matches!(name, Name::Key(..))),
            unique: these(|name| matches!(name, Name::Unique(..))),
            requests: these(|name| matches!(name, Name::Request(_))),
        }
    }

    pub(super) fn ask(&self, calls: &mut Vec<Call>) {
        let (mut addons, mut texts) = (Vec::new(), Vec::new());
        for name in &self.keys {
            if let Name::Key(addon, key) = name {
                addons.push(addon.to_string());
                texts.push(key.clone());
            }
        }
        if !addons.is_empty() {
            calls.push(Call::new(KEYS).with(addons).with(texts));
        }
        let (mut addons, mut types, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        for name in &self.unique {
            if let Name::Unique(addon, job_type, key) = name {
                addons.push(addon.to_string());
                types.push(job_type.to_string());
                texts.push(key.clone());
            }
        }
        if !addons.is_empty() {
            let places = places(addons.len());
            let call = Call::new(UNIQUE).with(addons).with(types);
            calls.push(call.with(texts).with(places));
        }
        let requests: Vec<String> = self.requests.iter().map(|name| lock_of(name).0).collect();
        if !requests.is_empty() {
            let places = places(requests.len());
            calls.push(Call::new(REQUESTS).with(requests).with(places));
        }
    }

    pub(super) fn answer(&self, answers: &mut Answers, tables: &mut PgTables) -> Result<()> {
        let overlay = &mut tables.overlay;
        for name in &self.keys {
            if let Name::Key(addon, key) = name {
                overlay
                    .keys
                    .entry((addon.clone(), key.clone()))
                    .or_default();
            }
        }
        if !self.keys.is_empty() {
            for row in &next(answers) {
                let key: KeyRecord = read(row.get(0))?;
                let name = (key.addon_id.clone(), key.key.clone());
                overlay.keys.insert(name, Some(key));
            }
        }
        let mut found: Vec<Option<(JobId, JobState)>> = vec![None; self.unique.len()];
        if !self.unique.is_empty() {
            for row in &next(answers) {
                let holder = (JobId(row.get(1)), state_of(row.get(2))?);
                found[row.get::<_, i32>(0) as usize] = Some(holder);
            }
        }
        for (name, holder) in self.unique.iter().zip(found) {
            if let Name::Unique(addon, job_type, key) = name {
                let name = (addon.clone(), job_type.clone(), key.clone());
                overlay.unique.insert(name, holder);
            }
        }
        let mut found: Vec<Option<LeaseId>> = vec![None; self.requests.len()];
        if !self.requests.is_empty() {
            for row in &next(answers) {
                found[row.get::<_, i32>(0) as usize] = Some(LeaseId(row.get(1)));
            }
        }
        for (name, lease) in self.requests.iter().zip(found) {
            if let Name::Request(request) = name {
                overlay.requests.insert(request.clone(), lease);
            }
        }
        Ok(())
    }
}
