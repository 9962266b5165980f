//! Questions to the database. In a transaction that writes, what commands decide by is locked until its end and comes from
//! the overlay; whatever else is asked there is asked after what is pending was written.

use std::sync::Arc;

use jiff::Timestamp;
use jobtree_protocol::{
    AddonId, JobId, JobQuery, JobState, JobType, Json, LeaseId, ScheduleId, from_micros, to_micros,
};
use jobtree_queue::{JobRecord, KeyRecord, LeaseRecord, LeasedJob, RequestName};
use uuid::Uuid;

use super::tables::{
    PgTables, job_records, read, records, request_text, state_number, state_of, uuids,
};
use crate::error::StoreError;
use crate::ids::{IdMap, IdSet};
use crate::needs::Name;
use crate::search::{Searched, Text};
use crate::tables::{Count, Page, Pause, Reading, Recorded, Result, ScheduleRecord};

/// Jobs that are fetched at once to be searched for a text: their payloads come with them.
const SEARCHED_AT_ONCE: usize = 200;

impl Reading for PgTables {
    fn wall(&mut self) -> Result<Option<Timestamp>> {
        if !self.database_time {
            return Ok(None);
        }
        if self.writing && self.overlay.clock.is_some() {
            return Ok(self.overlay.clock);
        }
        let rows = self.query(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            &[],
        )?;
        Ok(Some(from_micros(rows[0].get(0))))
    }

    fn jobs(&mut self, ids: &[JobId]) -> Result<Vec<Arc<JobRecord>>> {
        if self.writing {
            let unknown = |id: &&JobId| self.overlay.job(**id).is_none();
            let late: Vec<JobId> = ids.iter().filter(unknown).copied().collect();
            if !late.is_empty() {
                self.lock_late(&late)?;
            }
            let known = ids.iter().filter_map(|id| self.overlay.job(*id));
            return Ok(known.filter_map(|known| known.job.clone()).collect());
        }
        // Of one snapshot: a job is in one of the two.
        let mut found = self.hot(&uuids(ids))?;
        if found.len() < ids.len() {
            let known: IdSet<JobId> = found.iter().map(|job| job.id).collect();
            let mut missing = ids.to_vec();
            missing.retain(|id| !known.contains(id));
            found.extend(self.ended(&uuids(&missing))?);
        }
        Ok(found)
    }

    fn lease(&mut self, id: LeaseId) -> Result<Option<LeaseRecord>> {
        if self.writing {
            if self.overlay.lease(id).is_none() {
                self.lock_late_lease(id)?;
            }
            let known = self.overlay.lease(id);
            return Ok(known.and_then(|known| known.lease.clone()));
        }
        let rows = self.query(
            "SELECT record FROM scheduler_leases WHERE id = $1",
            &[&id.0],
        )?;
        match records(&rows)?.pop() {
            None => Ok(None),
            Some(lease) => self.with_jobs(lease).map(Some),
        }
    }

    fn requested_lease(&mut self, request: &RequestName) -> Result<Option<LeaseId>> {
        if self.writing {
            if !self.overlay.requests.contains_key(request) {
                self.lock_late_name(&Name::Request(request.clone()))?;
            }
            return Ok(self.overlay.requests.get(request).copied().flatten());
        }
        let rows = self.query(
            "SELECT id FROM scheduler_leases WHERE live AND request = $1",
            &[&request_text(request)],
        )?;
        Ok(rows.first().map(|row| LeaseId(row.get(0))))
    }

    fn live_leases(&mut self) -> Result<Vec<LeaseRecord>> {
        let rows = self.query(
            "SELECT record FROM scheduler_leases WHERE live ORDER BY id",
            &[],
        )?;
        let mut leases: Vec<LeaseRecord> = records(&rows)?;
        let ids: Vec<Uuid> = leases.iter().map(|lease| lease.id.0).collect();
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE lease_id = ANY($1) ORDER BY lease_id, lease_position",
            &[&ids],
        )?;
        let mut jobs: IdMap<LeaseId, Vec<LeasedJob>> = IdMap::default();
        for job in records::<JobRecord>(&rows)? {
            if let Some(lease) = job.lease_id {
                jobs.entry(lease).or_default().push(LeasedJob::of(&job));
            }
        }
        for lease in &mut leases {
            lease.jobs = jobs.remove(&lease.id).unwrap_or_default();
        }
        Ok(leases)
    }

    fn dispatching(&mut self) -> Result<Vec<Arc<JobRecord>>> {
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE state = 1 AND lease_id IS NULL ORDER BY id",
            &[],
        )?;
        job_records(&rows)
    }

    fn queued(&mut self, after: Option<JobId>, limit: usize) -> Result<Vec<Arc<JobRecord>>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let rows = self.query(
            "SELECT record FROM scheduler_jobs WHERE id > $1 AND state = 0 ORDER BY id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        job_records(&rows)
    }

    fn list(&mut self, query: &JobQuery, limit: usize) -> Result<Page> {
        let limit = limit.max(1);
        let Some(text) = Text::of(query) else {
            let mut jobs = self.list_some(query, query.after, limit + 1)?;
            let more = jobs.len() > limit;
            jobs.truncate(limit);
            let next = jobs.last().map(|job| job.id).filter(|_| more);
            return Ok(Page { jobs, next });
        };
        let (mut page, mut searched) = (Page::default(), Searched::nothing());
        page.next = query.after;
        loop {
            let some = self.list_some(query, page.next, SEARCHED_AT_ONCE)?;
            let is_last = some.len() < SEARCHED_AT_ONCE;
            for job in some {
                if page.jobs.len() == limit {
                    return Ok(page);
                }
                page.next = Some(job.id);
                let room = searched.add(&job);
                if text.is_of(&job) {
                    page.jobs.push(job);
                }
                if !room {
                    return Ok(page);
                }
            }
            if is_last {
                page.next = None;
                return Ok(page);
            }
        }
    }

    fn counts(&mut self, ended: bool) -> Result<Vec<Count>> {
        let rows = self.query(
            "SELECT addon_id, state, count(*) FROM (SELECT addon_id, state FROM scheduler_jobs UNION ALL \
             SELECT addon_id, state FROM scheduler_jobs_history WHERE $1) AS job GROUP BY addon_id, state",
            &[&ended],
        )?;
        rows.iter()
            .map(|row| {
                Ok(Count {
                    addon_id: row
                        .get::<_, &str>(0)
                        .parse()
                        .map_err(|_| StoreError::Database {
                            message: "an addon's name is none".into(),
                        })?,
                    state: state_of(row.get(1))?,
                    jobs: row.get::<_, i64>(2) as u64,
                })
            })
            .collect()
    }

    fn key(&mut self, addon: &AddonId, key: &str) -> Result<Option<KeyRecord>> {
        if self.writing {
            let name = (addon.clone(), key.to_owned());
            if !self.overlay.keys.contains_key(&name) {
                self.lock_late_name(&Name::Key(name.0.clone(), name.1.clone()))?;
            }
            return Ok(self.overlay.keys.get(&name).cloned().flatten());
        }
        let rows = self.query(
            "SELECT record FROM scheduler_keys WHERE addon_id = $1 AND key = $2",
            &[&addon.as_str(), &key],
        )?;
        Ok(records(&rows)?.pop())
    }

    fn unique_holder(
        &mut self,
        addon: &AddonId,
        job_type: &JobType,
        key: &str,
    ) -> Result<Option<(JobId, JobState)>> {
        if self.writing {
            let name = (addon.clone(), job_type.clone(), key.to_owned());
            if !self.overlay.unique.contains_key(&name) {
                let (addon, job_type, key) = name.clone();
                self.lock_late_name(&Name::Unique(addon, job_type, key))?;
            }
            return Ok(self.overlay.unique.get(&name).copied().flatten());
        }
        let rows = self.query(
            "SELECT id, state FROM scheduler_jobs WHERE addon_id = $1 AND job_type = $2 AND unique_key = $3",
            &[&addon.as_str(), &job_type.as_str(), &key],
        )?;
        match rows.first() {
            None => Ok(None),
            Some(row) => Ok(Some((JobId(row.get(0)), state_of(row.get(1))?))),
        }
    }

    fn key_holders(&mut self, addon: &AddonId, key: &str) -> Result<u32> {
        if self.writing {
            let name = (addon.clone(), key.to_owned());
            if !self.overlay.holders.contains_key(&name) {
                self.lock_late_holders(&name)?;
            }
            let holders = self.overlay.holders.get(&name).into_iter();
            let distinct: IdSet<LeaseId> = holders.flat_map(|it| it.values()).copied().collect();
            return Ok(distinct.len() as u32);
        }
        let rows = self.query(
            "SELECT count(DISTINCT coalesce(lease_id, id)) FROM scheduler_jobs \
             WHERE addon_id = $1 AND concurrency_key = $2 AND state <> 0",
            &[&addon.as_str(), &key],
        )?;
        Ok(rows[0].get::<_, i64>(0) as u32)
    }

    fn waiting_for(&mut self, dependency: JobId) -> Result<Vec<JobId>> {
        if self.writing {
            if !self.overlay.waits.contains_key(&dependency) {
                self.read_late_waits(dependency)?;
            }
            let waiting = self.overlay.waits.get(&dependency);
            return Ok(waiting.cloned().unwrap_or_default());
        }
        let rows = self.query(
            "SELECT id FROM scheduler_waits WHERE dependency = $1 ORDER BY id",
            &[&dependency.0],
        )?;
        Ok(rows.iter().map(|row| JobId(row.get(0))).collect())
    }

    fn events_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        self.trail_of(job)
    }

    fn events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        self.final_trail_after(cursor, limit)
    }

    fn shown_events_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        let (found, _) = self.trail_after(cursor, limit, false)?;
        Ok(found)
    }

    fn last_event(&mut self) -> Result<u64> {
        self.trail_end()
    }

    fn schedules(&mut self) -> Result<Vec<ScheduleRecord>> {
        let rows = if self.writing {
            // In the order of ids: two that lock all of them do not wait for each other.
            self.query(
                "SELECT record FROM scheduler_schedules ORDER BY id FOR UPDATE",
                &[],
            )?
        } else {
            self.query(
                "SELECT record FROM scheduler_schedules ORDER BY name COLLATE \"C\"",
                &[],
            )?
        };
        records(&rows)
    }

    fn schedule(&mut self, id: ScheduleId) -> Result<Option<ScheduleRecord>> {
        let rows = if self.writing {
            self.query(
                "SELECT record FROM scheduler_schedules WHERE id = $1 FOR UPDATE",
                &[&id.0],
            )?
        } else {
            self.query(
                "SELECT record FROM scheduler_schedules WHERE id = $1",
                &[&id.0],
            )?
        };
        Ok(records(&rows)?.pop())
    }

    fn pauses(&mut self) -> Result<Vec<Pause>> {
        let rows = self.query(
            "SELECT record FROM scheduler_pauses ORDER BY addon_id COLLATE \"C\", job_type COLLATE \"C\"",
            &[],
        )?;
        records(&rows)
    }

    fn note(&mut self, name: &str) -> Result<Option<Json>> {
        let rows = self.query(
            "SELECT value FROM scheduler_notes WHERE name = $1",
            &[&name],
        )?;
        Ok(records(&rows)?.pop())
    }

    fn notes(&mut self, prefix: &str) -> Result<Vec<(String, Json)>> {
        let rows = self.query(
            "SELECT value, name FROM scheduler_notes WHERE starts_with(name, $1) ORDER BY name COLLATE \"C\"",
            &[&prefix],
        )?;
        rows.iter()
            .map(|row| Ok((row.get(1), read(row.get(0))?)))
            .collect()
    }
}

impl PgTables {
    /// Jobs that a query finds but for its text, from a place on.
    fn list_some(
        &mut self,
        query: &JobQuery,
        after: Option<JobId>,
        most: usize,
    ) -> Result<Vec<Arc<JobRecord>>> {
        let after = after.map_or(Uuid::nil(), |id| id.0);
        let states: Vec<i16> = query.state.iter().copied().map(state_number).collect();
        let rows = self.query(
            "SELECT record FROM (SELECT id, state, addon_id, job_type, quarantined, ended_at, record FROM scheduler_jobs \
             UNION ALL SELECT id, state, addon_id, job_type, quarantined, ended_at, record FROM scheduler_jobs_history) AS job \
             WHERE id > $1 AND (cardinality($2::smallint[]) = 0 OR state = ANY($2)) \
             AND ($3::text IS NULL OR addon_id = $3) AND ($4::text IS NULL OR job_type = $4) \
             AND (NOT $5 OR quarantined) AND ($8::bigint IS NULL OR ended_at >= $8) AND ($6::text IS NULL OR EXISTS \
             (SELECT 1 FROM scheduler_tags WHERE tag = $6 AND scheduler_tags.id = job.id)) ORDER BY id LIMIT $7",
            &[
                &after,
                &states,
                &query.addon_id.as_ref().map(AddonId::as_str),
                &query.job_type.as_ref().map(JobType::as_str),
                &query.quarantined,
                &query.tag,
                &(most as i64),
                &query.ended_since.map(to_micros),
            ],
        )?;
        job_records(&rows)
    }
}
