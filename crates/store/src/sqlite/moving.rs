//! Moving from and to the file.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{AddonId, JobId, LeaseId, ScheduleId, from_micros, to_micros};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord};
use rusqlite::{Connection, params};

use super::codec::{optional_uuid_at, uuid_at};
use super::queries::{self, Place};
use super::rows::JobRows;
use super::snapshot::Snapshot;
use super::tables::SqliteTables;
use super::trail::Scroll;
use super::{beside, leases, logs, prune, trail};
use crate::logs::LogEnd;
use crate::moving::{Fired, PRUNED_EVENTS, ReadAll, TakeIn};
use crate::tables::{Recorded, Result};

fn all_leases(db: &Connection, after: Option<LeaseId>, limit: usize) -> Result<Vec<LeaseRecord>> {
    let mut statement =
        db.prepare_cached("SELECT * FROM scheduler_leases WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    let after = after.map_or(Vec::new(), |id| id.0.as_bytes().to_vec());
    let mut rows = statement.query(params![after, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(queries::lease_of_row(db, row)?);
    }
    Ok(found)
}

fn all_keys(
    db: &Connection,
    after: Option<(AddonId, String)>,
    limit: usize,
) -> Result<Vec<KeyRecord>> {
    let mut statement = db.prepare_cached(
        "SELECT fingerprint, job_id, state, created_at, addon_id, key FROM scheduler_keys \
         WHERE (addon_id, key) > (?1, ?2) ORDER BY addon_id, key LIMIT ?3",
    )?;
    let (addon, key) = after.map_or_else(Default::default, |(addon, key)| (addon.to_string(), key));
    let mut rows = statement.query(params![addon, key, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let addon = queries::addon_at(row, 4)?;
        found.push(queries::key_of(row, addon, row.get(5)?)?);
    }
    Ok(found)
}

fn all_firings(
    db: &Connection,
    after: Option<(ScheduleId, Timestamp)>,
    limit: usize,
) -> Result<Vec<Fired>> {
    let mut statement = db.prepare_cached(
        "SELECT schedule_id, at, job_id FROM scheduler_firings WHERE (schedule_id, at) > (?1, ?2) \
         ORDER BY schedule_id, at LIMIT ?3",
    )?;
    let (schedule, at) = after.map_or((Vec::new(), 0), |(schedule, at)| {
        (schedule.0.as_bytes().to_vec(), to_micros(at))
    });
    let mut rows = statement.query(params![schedule, at, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Fired {
            schedule_id: ScheduleId(uuid_at(row, 0)?),
            at: from_micros(row.get(1)?),
            job_id: optional_uuid_at(row, 2)?.map(JobId),
        });
    }
    Ok(found)
}

fn all_logs(db: &Connection, after: Option<JobId>, limit: usize) -> Result<Vec<(JobId, LogEnd)>> {
    let mut statement = db.prepare_cached(
        "SELECT * FROM scheduler_log_ends WHERE job_id > ?1 ORDER BY job_id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![queries::after_bytes(after), limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((JobId(uuid_at(row, 0)?), logs::end_of(row)?));
    }
    Ok(found)
}

macro_rules! read_all {
    ($tables:ty, $self:ident => $db:expr) => {
        impl ReadAll for $tables {
            fn all_leases(
                &mut $self,
                after: Option<LeaseId>,
                limit: usize,
            ) -> Result<Vec<LeaseRecord>> {
                all_leases($db, after, limit)
            }

            fn all_keys(
                &mut $self,
                after: Option<(AddonId, String)>,
                limit: usize,
            ) -> Result<Vec<KeyRecord>> {
                all_keys($db, after, limit)
            }

            fn all_firings(
                &mut $self,
                after: Option<(ScheduleId, Timestamp)>,
                limit: usize,
            ) -> Result<Vec<Fired>> {
                all_firings($db, after, limit)
            }

            fn all_logs(
                &mut $self,
                after: Option<JobId>,
                limit: usize,
            ) -> Result<Vec<(JobId, LogEnd)>> {
                all_logs($db, after, limit)
            }

            fn next_event(&mut $self) -> Result<u64> {
                Ok(prune::next_event($db)? as u64)
            }
        }
    };
}

read_all!(Snapshot<'_>, self => self.0);
read_all!(SqliteTables, self => self.settled()?);

impl TakeIn for SqliteTables {
    fn take_in_jobs(&mut self, jobs: &[(Option<u64>, Arc<JobRecord>)]) -> Result<()> {
        self.touch()?;
        let mut granted: BTreeMap<LeaseId, Vec<JobId>> = BTreeMap::new();
        let db = self.db();
        let mut rows = JobRows::new(db);
        for (last_event, job) in jobs {
            let last_event = last_event.map(|place| place as i64);
            rows.put(job, Place::of(job.state), true, last_event)?;
            beside::write(db, None, job)?;
            if let Some(lease) = job.lease_id {
                granted.entry(lease).or_default().push(job.id);
            }
        }
        rows.finish()?;
        for (lease, jobs) in granted {
            leases::write_leased(db, lease, &jobs)?;
        }
        drop(rows);
        if let Some(newest) = jobs.iter().map(|(_, job)| job.id).max() {
            self.took_in(newest);
        }
        Ok(())
    }

    fn take_in_events(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()> {
        self.touch()?;
        // A row's places follow each other, so each gap begins another.
        let follow =
            |one: &(Recorded, _), other: &(Recorded, _)| one.0.cursor + 1 == other.0.cursor;
        for run in events.chunk_by(follow) {
            let mut scroll = Scroll::new(run[0].0.cursor as i64);
            for (recorded, previous) in run {
                scroll.push(&recorded.event, previous.map(|place| place as i64));
            }
            scroll.write(self.db())?;
        }
        if let Some((last, _)) = events.last() {
            self.write_events_from(last.cursor as i64 + 1);
        }
        Ok(())
    }

    fn go_on_from(&mut self, next_event: u64) -> Result<()> {
        self.touch()?;
        let last = next_event as i64 - 1;
        if last > trail::last_event(self.db())? {
            self.db()
                .prepare_cached("INSERT OR REPLACE INTO scheduler_notes VALUES (?1, ?2)")?
                .execute(params![PRUNED_EVENTS, last.to_string()])?;
        }
        self.write_events_from(next_event as i64);
        Ok(())
    }
}
