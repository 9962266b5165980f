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
//! All of a group's commands announce what they need ([`Needs`]), and [`plan_begin`](PgTables::plan_begin) takes all
//! of it with the BEGIN, in one round trip. What a command finds out that it needs besides is locked only if no other
//! transaction has it (`SKIP LOCKED`, `pg_try_…`): else the command is left to the next transaction, which begins with
//! that lock, too. Claims take what is free, and wait for no job.

use std::collections::HashSet;
use std::sync::Arc;

use jobtree_protocol::{JobId, JobState, LeaseId, from_micros, to_micros};
use jobtree_queue::{JobRecord, LeaseRecord, LeasedJob};
use tokio_postgres::Row;
use uuid::Uuid;

use super::connection::{Call, Sent};
use super::events::{DRAW, blocks_for};
use super::names::{
    HOLDERS_KIND, LOCK_NAMES, MOST_NAMES, Questions, holders, lock_names, lock_of_holders, next,
};
use super::overlay::{ConcurrencyKey, Place};
use super::tables::{PgTables, read, state_of};
use crate::ids::{IdMap, IdSet};
use crate::needs::{Name, Needs};
use crate::tables::Result;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// It also gives the transaction its number, which it must have before it draws places for events.
const CLOCK: &str =
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_current_xact_id()::text";
const LOCK_SETTINGS: &str = "SELECT pg_advisory_xact_lock(7306086967000000003)";
const SHARE_HOLDERS: &str = "SELECT pg_advisory_xact_lock_shared(7306086967000000005)";
const LOCK_ALL_HOLDERS: &str = "SELECT pg_advisory_xact_lock(7306086967000000005)";

/// Locks jobs that are all remembered here: their records are not sent, and the revisions say which of them are stale. An
/// id may be used again when its first job was forgotten, so the time of its submission is compared, too.
const LOCK_REMEMBERED: &str = "SELECT id, NULL::text, last_event, revision, created_at FROM scheduler_jobs \
    WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_FREE_REMEMBERED: &str = "SELECT id, NULL::text, last_event, revision, created_at FROM scheduler_jobs \
    WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
/// The records of jobs that are locked already.
const LOCKED_RECORDS: &str = "SELECT id, record, last_event FROM scheduler_jobs WHERE id = ANY($1)";
/// Locks jobs of which some are not remembered. Joining the revisions to the rows doubles the cost of the statement, so it
/// is kept for this case.
const LOCK_JOBS: &str = "SELECT job.id, CASE WHEN job.revision = known.revision AND job.created_at = known.created_at \
    THEN NULL ELSE job.record END, job.last_event, job.revision, job.created_at \
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS known (id, revision, created_at) \
    JOIN scheduler_jobs AS job ON job.id = known.id \
    ORDER BY job.id FOR UPDATE OF job";
const LOCK_JOBS_AND_LEASED: &str = "SELECT job.id, job.record, job.last_event FROM (SELECT unnest($1::uuid[]) UNION \
    SELECT id FROM scheduler_jobs WHERE lease_id = ANY($2)) AS known (id) \
    JOIN scheduler_jobs AS job ON job.id = known.id ORDER BY job.id FOR UPDATE OF job";
const LOCK_FREE_JOBS: &str = "SELECT job.id, CASE WHEN job.revision = known.revision AND job.created_at = known.created_at \
    THEN NULL ELSE job.record END, job.last_event, job.revision, job.created_at \
    FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS known (id, revision, created_at) \
    JOIN scheduler_jobs AS job ON job.id = known.id \
    FOR UPDATE OF job SKIP LOCKED";
const LOCK_ENDED: &str = "SELECT id, record, last_event FROM scheduler_jobs_history WHERE id = ANY($1) ORDER BY id FOR UPDATE";
/// In one statement, so of one snapshot: a job that moves from one table to the other is in one of them.
pub(super) const EXISTING_JOBS: &str = "SELECT id FROM scheduler_jobs WHERE id = ANY($1) UNION ALL \
    SELECT id FROM scheduler_jobs_history WHERE id = ANY($1)";

const LOCK_LEASES: &str =
    "SELECT id, record FROM scheduler_leases WHERE id = ANY($1) ORDER BY id FOR UPDATE";
const LOCK_LEASES_AND_THOSE_OF: &str = "SELECT lease.id, lease.record FROM (SELECT unnest($1::uuid[]) UNION \
    SELECT lease_id FROM scheduler_jobs WHERE id = ANY($2) AND lease_id IS NOT NULL) AS known (id) \
    JOIN scheduler_leases AS lease ON lease.id = known.id ORDER BY lease.id FOR UPDATE OF lease";
pub(super) const LEASED: &str = "SELECT lease_id, id, lease_position, state, cost, max_runtime_sec, cancel, \
    CASE WHEN cost IS NULL THEN record END FROM scheduler_jobs \
    WHERE lease_id = ANY($1) ORDER BY lease_id, lease_position";
const LEASED_OF: &str = "SELECT lease_id, id, lease_position, state, cost, max_runtime_sec, cancel, \
    CASE WHEN cost IS NULL THEN record END FROM scheduler_jobs WHERE lease_id IN \
    (SELECT lease_id FROM scheduler_jobs WHERE id = ANY($1) AND lease_id IS NOT NULL) \
    ORDER BY lease_id, lease_position";

pub(super) const WAITS: &str =
    "SELECT dependency, id FROM scheduler_waits WHERE dependency = ANY($1) ORDER BY dependency, id";
const WAITS_FOR_LEASED: &str = "SELECT wait.dependency, wait.id FROM scheduler_jobs AS job \
    JOIN scheduler_waits AS wait ON wait.dependency = job.id WHERE job.lease_id = ANY($1) \
    ORDER BY wait.dependency, wait.id";

/// Each once, in their order.
pub(super) fn distinct(ids: impl IntoIterator<Item = Uuid>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// What a transaction is begun with: the statements, and what their answers mean.
pub(super) struct Begin {
    calls: Vec<Call>,
    /// Each once.
    names: Vec<Name>,
    /// Ids that submitters chose.
    given: IdSet<JobId>,
    leases: Vec<Uuid>,
    ending: Vec<Uuid>,
    /// Answers before those of jobs, which say nothing.
    before_jobs: usize,
    has_jobs: bool,
    has_free: bool,
    has_leases_of: bool,
    has_whole: bool,
}

impl PgTables {
    /// Returns what begins a transaction with the locks and the records of all that was announced.
    pub(super) fn plan_begin(&mut self, needs: &Needs) -> Begin {
        let names: HashSet<&Name> = needs.names.iter().collect();
        let names: Vec<Name> = names.into_iter().cloned().collect();
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
        let mut begin = Begin {
            calls: Vec::new(),
            before_jobs: 0,
            has_jobs: !whole.is_empty() || !jobs.is_empty(),
            has_free: !free.is_empty(),
            has_leases_of: !leases_of.is_empty(),
            has_whole: !whole.is_empty(),
            names,
            given,
            leases,
            ending,
        };

        let calls = &mut begin.calls;
        if needs.settings {
            calls.push(Call::new(LOCK_SETTINGS));
        }
        lock_names(&begin.names, calls);
        begin.before_jobs = calls.len();
        if !whole.is_empty() {
            calls.push(
                Call::new(LOCK_JOBS_AND_LEASED)
                    .with(jobs)
                    .with(whole.clone()),
            );
        } else if !jobs.is_empty() {
            calls.push(self.lock_jobs(&jobs));
        }
        if !free.is_empty() {
            calls.push(self.lock_free_jobs(&free));
        }
        if !begin.given.is_empty() {
            let ids = distinct(begin.given.iter().map(|id| id.0));
            calls.push(Call::new(LOCK_ENDED).with(ids.clone()));
            calls.push(Call::new(EXISTING_JOBS).with(ids));
        }
        if !leases_of.is_empty() {
            calls.push(
                Call::new(LOCK_LEASES_AND_THOSE_OF)
                    .with(begin.leases.clone())
                    .with(leases_of.clone()),
            );
            calls.push(Call::new(LEASED_OF).with(leases_of));
        } else if !begin.leases.is_empty() {
            calls.push(Call::new(LOCK_LEASES).with(begin.leases.clone()));
        }
        if !begin.leases.is_empty() {
            calls.push(Call::new(LEASED).with(begin.leases.clone()));
        }
        Questions::of(&begin.names).ask(calls);
        if !begin.ending.is_empty() {
            calls.push(Call::new(WAITS).with(begin.ending.clone()));
        }
        if !whole.is_empty() {
            calls.push(Call::new(WAITS_FOR_LEASED).with(whole));
        }
        // Last: after whatever had to be waited for.
        calls.push(Call::new(CLOCK));
        let blocks = blocks_for(needs.likely_events());
        if blocks > 0 {
            calls.push(Call::new(DRAW).with(blocks));
        }
        begin
    }

    /// Sends what begins a transaction, without waiting for an answer.
    pub(super) fn send_begin_of(&mut self, begin: &mut Begin) -> Result<Sent> {
        let calls = std::mem::take(&mut begin.calls);
        self.connection.send(Some(BEGIN), calls, None)
    }

    /// Returns `true` if the statements can be sent behind others.
    pub(super) fn can_be_sent(&self, begin: &Begin) -> bool {
        self.connection.are_prepared(&begin.calls)
    }

    /// Takes the answers to what began a transaction.
    pub(super) fn take_begin(&mut self, begin: Begin, sent: &Sent, needs: &Needs) -> Result<()> {
        let mut answers = self.connection.receive(sent)?.into_iter();
        (0..begin.before_jobs).for_each(|_| drop(answers.next()));

        if begin.has_jobs {
            self.take_jobs(&next(&mut answers), Place::Hot)?;
        }
        if begin.has_free {
            self.take_jobs(&next(&mut answers), Place::Hot)?;
        }
        if !begin.given.is_empty() {
            self.take_jobs(&next(&mut answers), Place::History)?;
            let existing = next(&mut answers);
            let existing: IdSet<JobId> = existing.iter().map(|row| JobId(row.get(0))).collect();
            for id in begin.given.iter().filter(|id| !existing.contains(id)) {
                self.overlay.no_job(*id);
            }
        }
        let (mut locked, mut listed) = (Vec::new(), Vec::new());
        if begin.has_leases_of {
            locked = next(&mut answers);
            listed = next(&mut answers);
        } else if !begin.leases.is_empty() {
            locked = next(&mut answers);
        }
        if !begin.leases.is_empty() {
            listed.extend(next(&mut answers));
        }
        self.take_leases(&locked, &listed)?;
        for id in &begin.leases {
            // What was not found there does not exist.
            self.overlay.read_lease(LeaseId(*id), None);
        }
        Questions::of(&begin.names).answer(&mut answers, self)?;
        if !begin.ending.is_empty() {
            for id in &begin.ending {
                self.overlay.waits.entry(JobId(*id)).or_default();
            }
            self.take_waits(&next(&mut answers));
        }
        if begin.has_whole {
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
        self.overlay.has_all_names = begin.names.len() > MOST_NAMES;
        self.overlay.names = begin.names.into_iter().collect();
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
        let behind_locks = calls.len() - 2;
        let blocks = blocks_for(needs.likely_events());
        if blocks > 0 {
            self.overlay.events.draw_anew();
            calls.push(Call::new(DRAW).with(blocks));
        }
        let answers = self.connection.pipeline(None, calls, None)?;
        let mut answers = answers.into_iter();
        (0..behind_locks).for_each(|_| drop(answers.next()));
        self.take_holders(&keys, &next(&mut answers));
        self.take_clock(&next(&mut answers));
        self.overlay.events.drawn(&next(&mut answers));
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

    /// Returns the statement that locks jobs, in the order of their ids.
    fn lock_jobs(&mut self, ids: &[Uuid]) -> Call {
        self.lock_by(ids, LOCK_REMEMBERED, LOCK_JOBS)
    }

    /// Returns the statement that locks those of the jobs that no other transaction has.
    pub(super) fn lock_free_jobs(&mut self, ids: &[Uuid]) -> Call {
        self.lock_by(ids, LOCK_FREE_REMEMBERED, LOCK_FREE_JOBS)
    }

    /// Takes the first statement if all jobs are remembered, else the second one with what is remembered of each; with
    /// revision 0, which no job has, for the others.
    fn lock_by(&mut self, ids: &[Uuid], remembered: &'static str, others: &'static str) -> Call {
        let known = |id: &Uuid| {
            let job = self.remembered.get_mut(JobId(*id));
            job.map_or((0, 0), |job| {
                (job.revision as i64, to_micros(job.created_at))
            })
        };
        let (revisions, times): (Vec<i64>, Vec<i64>) = ids.iter().map(known).unzip();
        if revisions.contains(&0) {
            let call = Call::new(others).with(ids.to_vec());
            call.with(revisions).with(times)
        } else {
            Call::new(remembered).with(ids.to_vec())
        }
    }

    fn take_clock(&mut self, rows: &[Row]) {
        if self.database_time {
            self.overlay.clock = rows.first().map(|row| from_micros(row.get(0)));
        }
    }

    pub(super) fn take_jobs(&mut self, rows: &[Row], place: Place) -> Result<()> {
        let mut stale = Vec::new();
        for row in rows {
            let id = JobId(row.get(0));
            let job = match row.get::<_, Option<&str>>(1) {
                Some(record) => Arc::new(read::<JobRecord>(record)?),
                None => {
                    // The transaction before may have ended after this was asked, and have changed what is remembered.
                    let known = self.remembered.get_mut(id).map(|job| Arc::clone(job));
                    let is_of = |known: &Arc<JobRecord>| {
                        known.revision as i64 == row.get::<_, i64>(3)
                            && to_micros(known.created_at) == row.get::<_, i64>(4)
                    };
                    let Some(known) = known.filter(is_of) else {
                        stale.push(id.0);
                        continue;
                    };
                    known
                }
            };
            self.overlay.read_job(job, place, row.get(2));
        }
        if stale.is_empty() {
            return Ok(());
        }
        // Another scheduler changed them. They are locked now, so what is read later is what was locked.
        let rows = self.connection.query(LOCKED_RECORDS, &[&stale])?;
        self.take_jobs(&rows, place)
    }

    /// Takes leases that were locked, with the lists of their jobs.
    pub(super) fn take_leases(&mut self, locked: &[Row], listed: &[Row]) -> Result<()> {
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

    pub(super) fn take_waits(&mut self, rows: &[Row]) {
        for row in rows {
            let waiting = self.overlay.waits.entry(JobId(row.get(0))).or_default();
            let id = JobId(row.get(1));
            if !waiting.contains(&id) {
                waiting.push(id);
            }
        }
    }

    pub(super) fn take_holders(&mut self, keys: &[ConcurrencyKey], rows: &[Row]) {
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
