//! Locks that a command finds out that it needs while it runs.
//!
//! To wait for one of these could be to wait for a transaction that waits for this one, since it is taken out of order. So
//! it is taken only if it is free. Else the command fails with what it missed ([`Overlay::miss`]), and runs again in a
//! transaction that begins with that lock.
//!
//! [`Overlay::miss`]: super::overlay::Overlay::miss

use jobtree_protocol::{JobId, LeaseId};
use uuid::Uuid;

use super::connection::Call;
use super::locking::{EXISTING_JOBS, LEASED, WAITS, distinct};
use super::names::{HOLDERS_KIND, Questions, holders, lock_of, lock_of_holders, next};
use super::overlay::{ConcurrencyKey, Place};
use super::tables::PgTables;
use crate::ids::IdSet;
use crate::needs::{Name, Needs};
use crate::tables::Result;

const TRY_NAME: &str = "SELECT pg_try_advisory_xact_lock_shared(7306086967000000004) \
    AND pg_try_advisory_xact_lock(hashtextextended($1, $2))";
const TRY_HOLDERS: &str = "SELECT pg_try_advisory_xact_lock_shared(7306086967000000005) \
    AND pg_try_advisory_xact_lock(hashtextextended($1, $2))";
const LOCK_FREE_ENDED: &str = "SELECT id, record, last_event FROM scheduler_jobs_history WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
const LOCK_FREE_LEASE: &str =
    "SELECT id, record FROM scheduler_leases WHERE id = ANY($1) FOR UPDATE SKIP LOCKED";
const EXISTING_LEASE: &str = "SELECT id FROM scheduler_leases WHERE id = ANY($1)";

impl PgTables {
    /// Locks jobs that were not announced, if no other transaction has them; else the command is left for later.
    pub(super) fn lock_late(&mut self, ids: &[JobId]) -> Result<()> {
        self.overlay.events.draw_anew();
        let ids = distinct(ids.iter().map(|id| id.0));
        let calls = [
            self.lock_free_jobs(&ids),
            Call::new(LOCK_FREE_ENDED).with(ids.clone()),
            Call::new(EXISTING_JOBS).with(ids.clone()),
        ];
        let mut answers = self.connection.pipeline(None, calls, None)?.into_iter();
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
        self.overlay.events.draw_anew();
        let sought: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
        let rows = self.connection.query(LOCK_FREE_ENDED, &[&sought])?;
        self.take_jobs(&rows, Place::History)?;
        self.overlay.skipped.extend(ids);
        Ok(())
    }

    /// Locks a lease that was not announced, likewise.
    pub(super) fn lock_late_lease(&mut self, id: LeaseId) -> Result<()> {
        self.overlay.events.draw_anew();
        let calls = [
            Call::new(LOCK_FREE_LEASE).with(vec![id.0]),
            Call::new(EXISTING_LEASE).with(vec![id.0]),
            Call::new(LEASED).with(vec![id.0]),
        ];
        let mut answers = self.connection.pipeline(None, calls, None)?.into_iter();
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
        self.overlay.events.draw_anew();
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
        let questions = Questions::of(std::slice::from_ref(name));
        let mut calls = Vec::new();
        questions.ask(&mut calls);
        let answers = self.connection.pipeline(None, calls, None)?;
        questions.answer(&mut answers.into_iter(), self)
    }

    /// Locks a concurrency key that was not announced, likewise, and finds who holds it.
    pub(super) fn lock_late_holders(&mut self, key: &ConcurrencyKey) -> Result<()> {
        self.overlay.events.draw_anew();
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
        let answers = self.connection.pipeline(None, [holders(&keys)], None)?;
        self.take_holders(&keys, &answers.into_iter().next().unwrap_or_default());
        Ok(())
    }

    /// Finds the jobs that wait for one which was not announced to end.
    pub(super) fn read_late_waits(&mut self, dependency: JobId) -> Result<()> {
        self.overlay.events.draw_anew();
        self.settle()?;
        let rows = self.connection.query(WAITS, &[&vec![dependency.0]])?;
        self.overlay.waits.entry(dependency).or_default();
        self.take_waits(&rows);
        Ok(())
    }
}
