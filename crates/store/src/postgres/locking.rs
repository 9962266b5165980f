//! Locks, in one order for all transactions of all processes, and the records under them.
//!
//! A transaction takes its locks in this order, and waits for them only in this order, so no two wait for each other:
//!
//! 1. the lock on settings (schedules and pauses),
//! 2. names that may be given to something new ([`Name`]), by number,
//! 3. rows of jobs, by id; then those of ended jobs, by id,
//! 4. rows of leases, by id,
//! 5. concurrency keys, by number,
//! 6. when it writes: rows that are new, in the order of their unique keys.
//!
//! All of a group's commands announce what they need ([`Needs`]), and [`begin`](PgTables::begin_with) takes all of it
//! with the BEGIN, in one round trip. What a command finds out that it needs besides is locked only if no other
//! transaction has it (`SKIP LOCKED`, `pg_try_…`): else the command is left to the next transaction, which begins with
//! that lock, too. Claims take what is free, and wait for no job.
//!
//! Names and concurrency keys are advisory locks on their hashes. The server has room for some thousands of them, so a
//! transaction that wants more than [`MOST_NAMES`] takes one lock on all of them instead.

use std::collections::HashSet;
use std::sync::Arc;

use jobtree_protocol::{JobId, JobState, LeaseId, from_micros};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, LeasedJob};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::Call;
use super::events::{DRAW, blocks_for};
use super::overlay::{ConcurrencyKey, Place};
use super::tables::{PgTables, read, request_text, state_of};
use crate::ids::{IdMap, IdSet};
use crate::needs::{Name, Needs};
use crate::tables::Result;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";
/// More names than these are one lock on all names.
const MOST_NAMES: usize = 512;

/// It also gives the transaction its number, which it must have before it draws places for events.
const CLOCK: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_current_xact_id()::text";
const LOCK_SETTINGS: &str = "SELECT pg_advisory_xact_lock(7306086967000000003)";
const SHARE_NAMES: &str = "SELECT pg_advisory_xact_lock_shared(7306086967000000004)";
const LOCK_ALL_NAMES: &str = "SELECT pg_advisory_xact_lock(7306086967000000004)";
const SHARE_HOLDERS: &str = "SELECT pg_advisory_xact_lock_shared(7306086967000000005)";
const LOCK_ALL_HOLDERS: &str = "SELECT pg_advisory_xact_lock(7306086967000000005)";
const LOCK_NAMES: &str = "SELECT pg_advisory_xact_lock(number) FROM (SELECT DISTINCT hashtextextended(name, kind) \
    AS number FROM unnest($1::text[], $2::bigint[]) AS name (name, kind) ORDER BY 1) AS sorted";
const TRY_NAME: &str = "SELECT pg_try_advisory_xact_lock_shared(7306086967000000004) \
    AND pg_try_advisory_xact_lock(hashtextextended($1, $2))";
const TRY_HOLDERS: &str = "SELECT pg_try_advisory_xact_lock_shared(7306086967000000005) \
    AND pg_try_advisory_xact_lock(hashtextextended($1, $2))";

/// The record is left out if it has the revision that is remembered here.
const LOCK_JOBS: &str = "SELECT job.id, CASE WHEN job.revision = known.revision THEN NULL ELSE job.record END, \
    job.last_event \
    FROM unnest($1::uuid[], $2::bigint[]) AS known (id, revision) JOIN scheduler_jobs AS job ON job.id = known.id \
    ORDER BY job.id FOR UPDATE OF job";
const LOCK_JOBS_AND_LEASED: &str = "SELECT job.id, job.record, job.last_event FROM (SELECT unnest($1::uuid[]) UNION \
    SELECT id FROM scheduler_jobs WHERE lease_id = ANY($2)) AS known (id) \
    JOIN scheduler_jobs AS job ON job.id = known.id ORDER BY job.id FOR UPDATE OF job";
const LOCK_FREE_JOBS: &str = "SELECT job.id, CASE WHEN job.revision = known.revision THEN NULL ELSE job.record END, \
    job.last_event \
    FROM unnest($1::uuid[], $2::bigint[]) AS known (id, revision) JOIN scheduler_jobs AS job ON job.id = known.id \
    FOR UPDATE OF job SKIP LOCKED";
const LOCK_ENDED: &str = "SELECT id, record, last_event FROM scheduler_jobs_history WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_FREE_ENDED: &str = "SELECT id, record, last_event FROM scheduler_jobs_history WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
/// In one statement, so of one snapshot: a job that moves from one table to the other is in one of them.
const EXISTING_JOBS: &str = "SELECT id FROM scheduler_jobs WHERE id = ANY($1) UNION ALL \
    SELECT id FROM scheduler_jobs_history WHERE id = ANY($1)";

const LOCK_LEASES: &str =
    "SELECT id, record FROM scheduler_leases WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_LEASES_AND_THOSE_OF: &str = "SELECT lease.id, lease.record FROM (SELECT unnest($1::uuid[]) UNION \
    SELECT lease_id FROM scheduler_jobs WHERE id = ANY($2) AND lease_id IS NOT NULL) AS known (id) \
    JOIN scheduler_leases AS lease ON lease.id = known.id ORDER BY lease.id FOR UPDATE OF lease";
const LOCK_FREE_LEASE: &str =
    "SELECT id, record FROM scheduler_leases WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
const EXISTING_LEASE: &str = "SELECT id FROM scheduler_leases WHERE id = ANY($1)";
const LEASED: &str = "SELECT lease_id, id, lease_position, state, cost, max_runtime_sec, cancel, \
    CASE WHEN cost IS NULL THEN record END FROM scheduler_jobs \
    WHERE lease_id = ANY($1) ORDER BY lease_id, lease_position";
const LEASED_OF: &str = "SELECT lease_id, id, lease_position, state, cost, max_runtime_sec, cancel, \
    CASE WHEN cost IS NULL THEN record END FROM scheduler_jobs WHERE lease_id IN \
    (SELECT lease_id FROM scheduler_jobs WHERE id = ANY($1) AND lease_id IS NOT NULL) \
    ORDER BY lease_id, lease_position";

const KEYS: &str = "SELECT known.record FROM unnest($1::text[], $2::text[]) AS name (addon_id, key) \
    JOIN scheduler_keys AS known ON known.addon_id = name.addon_id AND known.key = name.key";
const UNIQUE: &str = "SELECT name.place, job.id, job.state \
    FROM unnest($1::text[], $2::text[], $3::text[], $4::int[]) AS name (addon_id, job_type, key, place) \
    JOIN scheduler_jobs AS job ON job.addon_id = name.addon_id AND job.job_type = name.job_type \
    AND job.unique_key = name.key WHERE job.unique_key IS NOT NULL";
const REQUESTS: &str = "SELECT name.place, lease.id FROM unnest($1::text[], $2::int[]) AS name (request, place) \
    JOIN scheduler_leases AS lease ON lease.request = name.request WHERE lease.live AND lease.request IS NOT NULL";
const WAITS: &str =
    "SELECT dependency, id FROM scheduler_waits WHERE dependency = ANY($1) ORDER BY dependency, id";
const WAITS_FOR_LEASED: &str = "SELECT wait.dependency, wait.id FROM scheduler_jobs AS job \
    JOIN scheduler_waits AS wait ON wait.dependency = job.id WHERE job.lease_id = ANY($1) \
    ORDER BY wait.dependency, wait.id";
const HOLDERS: &str = "SELECT name.place, job.id, coalesce(job.lease_id, job.id) \
    FROM unnest($1::text[], $2::text[], $3::int[]) AS name (addon_id, key, place) \
    JOIN scheduler_jobs AS job ON job.addon_id = name.addon_id AND job.concurrency_key = name.key \
    WHERE job.concurrency_key IS NOT NULL AND job.state <> 0";

/// A name as it is locked: a text, and a number for its kind.
fn lock_of(name: &Name) -> (String, i64) {
    match name {
        Name::Request(request) => (request_text(request), 7307),
        Name::Key(addon, key) => (format!("{addon} {key}"), 7308),
        Name::Unique(addon, job_type, key) => (format!("{addon} {job_type} {key}"), 7309),
        Name::Job(id) => (id.to_string(), 7310),
        Name::Lease(id) => (id.to_string(), 7311),
    }
}

const HOLDERS_KIND: i64 = 7306;

fn lock_of_holders((addon, key): &ConcurrencyKey) -> String {
    format!("{addon}/{key}")
}

/// Each once, in their order.
fn distinct(ids: impl IntoIterator<Item = Uuid>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

fn places(count: usize) -> Vec<i32> {
    (0..count as i32).collect()
}

/// Answers by the place of their questions.
type Answers = std::vec::IntoIter<Vec<Row>>;

fn next(answers: &mut Answers) -> Vec<Row> {
    answers.next().unwrap_or_default()
}

impl PgTables {
    /// Begins a transaction with the locks and the records of all that was announced.
    pub(super) fn begin_with(&mut self, needs: &Needs) -> Result<()> {
        let names: HashSet<&Name> = needs.names.iter().collect();
        let given: IdSet<JobId> = names
            .iter()
            .filter_map(|name| match name {
                Name::Job(id) => Some(*id),
                _ => None,
            })
            .collect();
        let jobs = distinct(needs.jobs.iter().map(|id| id.0));
        let waited: IdSet<JobId> = needs.jobs.iter().copied().collect();
        let free = distinct(
            needs
                .free_jobs
                .iter()
                .filter(|id| !waited.contains(id))
                .map(|id| id.0),
        );
        let whole = distinct(needs.whole_leases.iter().map(|id| id.0));
        let leases = distinct(
            needs
                .leases
                .iter()
                .chain(&needs.whole_leases)
                .map(|id| id.0),
        );
        let leases_of = distinct(needs.leases_of.iter().map(|id| id.0));
        let ending = distinct(needs.ending.iter().map(|id| id.0));

        let mut calls = Vec::new();
        if needs.settings {
            calls.push(Call::new(LOCK_SETTINGS));
        }
        let has_all_names = names.len() > MOST_NAMES;
        lock_names(&names, &mut calls);
        let before_jobs = calls.len();
        if !whole.is_empty() {
            calls.push(
                Call::new(LOCK_JOBS_AND_LEASED)
                    .with(jobs.clone())
                    .with(whole.clone()),
            );
        } else if !jobs.is_empty() {
            calls.push(
                Call::new(LOCK_JOBS)
                    .with(jobs.clone())
                    .with(self.revisions(&jobs)),
            );
        }
        if !free.is_empty() {
            calls.push(
                Call::new(LOCK_FREE_JOBS)
                    .with(free.clone())
                    .with(self.revisions(&free)),
            );
        }
        if !given.is_empty() {
            let ids = distinct(given.iter().map(|id| id.0));
            calls.push(Call::new(LOCK_ENDED).with(ids.clone()));
            calls.push(Call::new(EXISTING_JOBS).with(ids));
        }
        if !leases_of.is_empty() {
            calls.push(
                Call::new(LOCK_LEASES_AND_THOSE_OF)
                    .with(leases.clone())
                    .with(leases_of.clone()),
            );
            calls.push(Call::new(LEASED_OF).with(leases_of.clone()));
        } else if !leases.is_empty() {
            calls.push(Call::new(LOCK_LEASES).with(leases.clone()));
        }
        if !leases.is_empty() {
            calls.push(Call::new(LEASED).with(leases.clone()));
        }
        let questions = Questions::of(&names);
        questions.ask(&mut calls);
        if !ending.is_empty() {
            calls.push(Call::new(WAITS).with(ending.clone()));
        }
        if !whole.is_empty() {
            calls.push(Call::new(WAITS_FOR_LEASED).with(whole.clone()));
        }
        // Last: after whatever had to be waited for.
        calls.push(Call::new(CLOCK));
        let blocks = blocks_for(needs.likely_events());
        if blocks > 0 {
            calls.push(Call::new(DRAW).with(blocks));
        }

        let answers = self.connection.pipeline(Some(BEGIN), &calls, None)?;
        let mut answers = answers.into_iter();
        (0..before_jobs).for_each(|_| drop(answers.next()));

        if !whole.is_empty() || !jobs.is_empty() {
            self.take_jobs(&next(&mut answers), Place::Hot)?;
        }
        if !free.is_empty() {
            self.take_jobs(&next(&mut answers), Place::Hot)?;
        }
        if !given.is_empty() {
            self.take_jobs(&next(&mut answers), Place::History)?;
            let existing = next(&mut answers);
            let existing: IdSet<JobId> = existing.iter().map(|row| JobId(row.get(0))).collect();
            for id in given.iter().filter(|id| !existing.contains(id)) {
                self.overlay.no_job(*id);
            }
        }
        let (mut locked, mut listed) = (Vec::new(), Vec::new());
        if !leases_of.is_empty() {
            locked = next(&mut answers);
            listed = next(&mut answers);
        } else if !leases.is_empty() {
            locked = next(&mut answers);
        }
        if !leases.is_empty() {
            listed.extend(next(&mut answers));
        }
        self.take_leases(&locked, &listed)?;
        for id in &leases {
            // What was not found there does not exist.
            self.overlay.read_lease(LeaseId(*id), None);
        }
        questions.answer(&mut answers, self)?;
        if !ending.is_empty() {
            for id in &ending {
                self.overlay.waits.entry(JobId(*id)).or_default();
            }
            self.take_waits(&next(&mut answers));
        }
        if !whole.is_empty() {
            for id in &needs.whole_leases {
                let lease = self.overlay.lease(*id).and_then(|it| it.lease.as_ref());
                let jobs = lease.map(|lease| lease.jobs.iter().map(|job| job.id).collect());
                let jobs: Vec<JobId> = jobs.unwrap_or_default();
                for job in jobs {
                    self.overlay.waits.entry(job).or_default();
                }
            }
            self.take_waits(&next(&mut answers));
        }
        self.take_clock(&next(&mut answers));
        self.overlay.events.drawn(&next(&mut answers));
        self.overlay.names = names.into_iter().cloned().collect();
        self.overlay.has_all_names = has_all_names;
        self.lock_holders_of(needs)
    }

    /// Locks the concurrency keys of jobs that may be started, which are known when the jobs are.
    fn lock_holders_of(&mut self, needs: &Needs) -> Result<()> {
        let mut keys: HashSet<ConcurrencyKey> = needs.holders.iter().cloned().collect();
        for id in needs.free_jobs.iter().chain(&needs.keyed_jobs) {
            let job = self.overlay.job(*id).and_then(|known| known.job.as_ref());
            if let Some(job) = job
                && let Some(key) = &job.intent.concurrency_key
            {
                keys.insert((job.intent.addon_id.clone(), key.clone()));
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        let keys: Vec<ConcurrencyKey> = keys.into_iter().collect();
        let mut calls = Vec::new();
        if keys.len() > MOST_NAMES {
            self.overlay.has_all_holders = true;
            calls.push(Call::new(LOCK_ALL_HOLDERS));
        } else {
            let names: Vec<String> = keys.iter().map(lock_of_holders).collect();
            let kinds = vec![HOLDERS_KIND; names.len()];
            calls.push(Call::new(SHARE_HOLDERS));
            calls.push(Call::new(LOCK_NAMES).with(names).with(kinds));
        }
        calls.push(holders(&keys));
        // These locks may have been waited for, too.
        calls.push(Call::new(CLOCK));
        let answers = self.connection.pipeline(None, &calls, None)?;
        let mut answers = answers.into_iter().skip(calls.len() - 2);
        self.take_holders(&keys, &answers.next().unwrap_or_default());
        self.take_clock(&answers.next().unwrap_or_default());
        Ok(())
    }

    /// Draws places for so many more events.
    pub(super) fn draw_places(&mut self, events: usize) -> Result<()> {
        let blocks = self.overlay.events.lacking(events);
        if blocks > 0 {
            let rows = self.connection.query(DRAW, &[&blocks])?;
            self.overlay.events.drawn(&rows);
        }
        Ok(())
    }

    /// Locks jobs that were not announced, if no other transaction has them; else the command is left for later.
    pub(super) fn lock_late(&mut self, ids: &[JobId]) -> Result<()> {
        let ids = distinct(ids.iter().map(|id| id.0));
        let calls = [
            Call::new(LOCK_FREE_JOBS)
                .with(ids.clone())
                .with(self.revisions(&ids)),
            Call::new(LOCK_FREE_ENDED).with(ids.clone()),
            Call::new(EXISTING_JOBS).with(ids.clone()),
        ];
        let mut answers = self.connection.pipeline(None, &calls, None)?.into_iter();
        self.take_jobs(&next(&mut answers), Place::Hot)?;
        self.take_jobs(&next(&mut answers), Place::History)?;
        let existing = next(&mut answers);
        let existing: IdSet<JobId> = existing.iter().map(|row| JobId(row.get(0))).collect();
        let mut missed = Vec::new();
        for id in ids.into_iter().map(JobId) {
            if self.overlay.job(id).is_some() {
                continue;
            }
            if existing.contains(&id) {
                missed.push(id);
            } else {
                self.overlay.no_job(id);
            }
        }
        if missed.is_empty() {
            return Ok(());
        }
        self.overlay.miss(Needs {
            jobs: missed,
            ..Needs::default()
        })
    }

    /// Finds those of the jobs that have ended, for a claim that found the others locked or gone.
    pub(super) fn lock_free_ended(&mut self, ids: &[JobId]) -> Result<()> {
        let sought: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = self.connection.query(LOCK_FREE_ENDED, &[&sought])?;
        self.take_jobs(&rows, Place::History)?;
        self.overlay.skipped.extend(ids);
        Ok(())
    }

    /// Locks a lease that was not announced, likewise.
    pub(super) fn lock_late_lease(&mut self, id: LeaseId) -> Result<()> {
        let calls = [
            Call::new(LOCK_FREE_LEASE).with(vec![id.0]),
            Call::new(EXISTING_LEASE).with(vec![id.0]),
            Call::new(LEASED).with(vec![id.0]),
        ];
        let mut answers = self.connection.pipeline(None, &calls, None)?.into_iter();
        let (locked, existing, listed) =
            (next(&mut answers), next(&mut answers), next(&mut answers));
        self.take_leases(&locked, &listed)?;
        if self.overlay.lease(id).is_some() {
            return Ok(());
        }
        if existing.is_empty() {
            self.overlay.read_lease(id, None);
            return Ok(());
        }
        self.overlay.miss(Needs {
            leases: vec![id],
            ..Needs::default()
        })
    }

    /// Locks a name that was not announced, likewise, and finds what has it.
    pub(super) fn lock_late_name(&mut self, name: &Name) -> Result<()> {
        if !self.overlay.has_name(name) {
            let (text, kind) = lock_of(name);
            let locked = self.connection.query(TRY_NAME, &[&text, &kind])?;
            if !locked[0].get::<_, bool>(0) {
                return self.overlay.miss(Needs {
                    names: vec![name.clone()],
                    ..Needs::default()
                });
            }
            self.overlay.names.insert(name.clone());
        }
        self.settle()?;
        let names = HashSet::from([name]);
        let questions = Questions::of(&names);
        let mut calls = Vec::new();
        questions.ask(&mut calls);
        let answers = self.connection.pipeline(None, &calls, None)?;
        questions.answer(&mut answers.into_iter(), self)
    }

    /// Locks a concurrency key that was not announced, likewise, and finds who holds it.
    pub(super) fn lock_late_holders(&mut self, key: &ConcurrencyKey) -> Result<()> {
        if !self.overlay.has_all_holders {
            let name = lock_of_holders(key);
            let locked = self
                .connection
                .query(TRY_HOLDERS, &[&name, &HOLDERS_KIND])?;
            if !locked[0].get::<_, bool>(0) {
                return self.overlay.miss(Needs {
                    holders: vec![key.clone()],
                    ..Needs::default()
                });
            }
        }
        self.settle()?;
        let keys = [key.clone()];
        let answers = self.connection.pipeline(None, &[holders(&keys)], None)?;
        self.take_holders(&keys, &answers.into_iter().next().unwrap_or_default());
        Ok(())
    }

    /// Finds the jobs that wait for one which was not announced to end.
    pub(super) fn read_late_waits(&mut self, dependency: JobId) -> Result<()> {
        self.settle()?;
        let rows = self.connection.query(WAITS, &[&vec![dependency.0]])?;
        self.overlay.waits.entry(dependency).or_default();
        self.take_waits(&rows);
        Ok(())
    }

    /// The revisions of jobs that are remembered; 0 for the others, which no job has.
    fn revisions(&mut self, ids: &[Uuid]) -> Vec<i64> {
        let revision = |id: &Uuid| {
            let job = self.remembered.get_mut(JobId(*id));
            job.map_or(0, |job| job.revision as i64)
        };
        ids.iter().map(revision).collect()
    }

    fn take_clock(&mut self, rows: &[Row]) {
        if self.database_time {
            self.overlay.clock = rows.first().map(|row| from_micros(row.get(0)));
        }
    }

    fn take_jobs(&mut self, rows: &[Row], place: Place) -> Result<()> {
        for row in rows {
            let id = JobId(row.get(0));
            let job = match row.get::<_, Option<&str>>(1) {
                Some(record) => Arc::new(read::<JobRecord>(record)?),
                None => {
                    let known = self.remembered.get_mut(id).map(|job| Arc::clone(job));
                    known.expect("its revision was asked for, and nothing is forgotten meanwhile")
                }
            };
            self.overlay.read_job(job, place, row.get(2));
        }
        Ok(())
    }

    /// Takes leases that were locked, with the lists of their jobs.
    fn take_leases(&mut self, locked: &[Row], listed: &[Row]) -> Result<()> {
        let mut jobs: IdMap<LeaseId, Vec<LeasedJob>> = IdMap::default();
        for row in listed {
            let list = jobs.entry(LeaseId(row.get(0))).or_default();
            list.push(leased_job(row)?);
        }
        for list in jobs.values_mut() {
            // A lease that was named and is also a job's is listed twice.
            list.sort_by_key(|job| job.position);
            list.dedup_by_key(|job| job.id);
        }
        for row in locked {
            let id = LeaseId(row.get(0));
            let mut lease: LeaseRecord = read(row.get(1))?;
            lease.jobs = jobs.remove(&id).unwrap_or_default();
            self.overlay.read_lease(id, Some(lease));
        }
        Ok(())
    }

    fn take_waits(&mut self, rows: &[Row]) {
        for row in rows {
            let waiting = self.overlay.waits.entry(JobId(row.get(0))).or_default();
            let id = JobId(row.get(1));
            if !waiting.contains(&id) {
                waiting.push(id);
            }
        }
    }

    fn take_holders(&mut self, keys: &[ConcurrencyKey], rows: &[Row]) {
        for key in keys {
            self.overlay.holders.entry(key.clone()).or_default();
        }
        for row in rows {
            let key = &keys[row.get::<_, i32>(0) as usize];
            let holders = self.overlay.holders.entry(key.clone()).or_default();
            holders.insert(JobId(row.get(1)), LeaseId(row.get(2)));
        }
    }
}

/// What a lease knows of a job: of a row of the lease, the job, its position, its state and what its record says.
fn leased_job(row: &Row) -> Result<LeasedJob> {
    let Some(cost) = row.get::<_, Option<i32>>(4) else {
        // As older versions wrote it.
        return Ok(LeasedJob::of(&read::<JobRecord>(row.get(7))?));
    };
    Ok(LeasedJob {
        id: JobId(row.get(1)),
        position: row.get::<_, i32>(2) as u32,
        cost: cost as u32,
        max_runtime_sec: row.get::<_, Option<i64>>(5).map(|limit| limit as u32),
        cancel: row.get::<_, Option<bool>>(6).unwrap_or_default(),
        begun: state_of(row.get(3))? == JobState::Running,
    })
}

fn lock_names(names: &HashSet<&Name>, calls: &mut Vec<Call>) {
    if names.len() > MOST_NAMES {
        calls.push(Call::new(LOCK_ALL_NAMES));
    } else if !names.is_empty() {
        let (texts, kinds): (Vec<String>, Vec<i64>) =
            names.iter().map(|name| lock_of(name)).unzip();
        calls.push(Call::new(SHARE_NAMES));
        calls.push(Call::new(LOCK_NAMES).with(texts).with(kinds));
    }
}

fn holders(keys: &[ConcurrencyKey]) -> Call {
    let addons: Vec<String> = keys.iter().map(|(addon, _)| addon.to_string()).collect();
    let texts: Vec<String> = keys.iter().map(|(_, key)| key.clone()).collect();
    Call::new(HOLDERS)
        .with(addons)
        .with(texts)
        .with(places(keys.len()))
}

/// What has these names. A job and a lease are found by their ids.
struct Questions<'a> {
    keys: Vec<&'a Name>,
    unique: Vec<&'a Name>,
    requests: Vec<&'a Name>,
}

impl<'a> Questions<'a> {
    fn of(names: &HashSet<&'a Name>) -> Self {
        let these = |is: fn(&Name) -> bool| names.iter().copied().filter(|it| is(it)).collect();
        Self {
            keys: these(|name| matches!(name, Name::Key(..))),
            unique: these(|name| matches!(name, Name::Unique(..))),
            requests: these(|name| matches!(name, Name::Request(_))),
        }
    }

    fn ask(&self, calls: &mut Vec<Call>) {
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

    fn answer(&self, answers: &mut Answers, tables: &mut PgTables) -> Result<()> {
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
