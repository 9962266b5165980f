//! How leases lie in columns. Which jobs a lease has is not written with it: the list of those it was granted for is
//! written once, and each job that runs names its lease and its place in it, so the end of one job of a batch does not
//! rewrite the list.

use jobtree_protocol::{InstanceId, JobId, LeaseId, NodeId, ProcessOrigin, from_micros, to_micros};
use jobtree_queue::{LeaseRecord, LeasedJob};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use super::codec::{
    Id, Maybe, constraints_bits, constraints_of, damaged, json_text, meaning, micros, number,
    optional_number, optional_text_at, optional_uuid_at, priority_of, text_at, time, uuid_at,
};
use crate::disk_numbers;
use crate::tables::Result;

pub(crate) const LEASE_COLUMNS: &str = "id, revision, addon_id, job_type, node_id, instance_id, priority, flags, \
     expected_duration_sec, own_cost, ttl_sec, granted_at, renewed_at, expires_at, named_current, current_since, pids, \
     lease_end, ended_at, end_reason, renewals, asked_back, request_key";

// The bits of a lease's `flags` beside those of its constraints. The first release wrote none of them: of its leases the
// first job began with the grant.
const REPORTS_BEGIN: i64 = 1 << 4;
const RETURNS_UNBEGUN: i64 = 1 << 5;
const NOT_BEGUN: i64 = 1 << 6;
const IN_PROCESS: i64 = 1 << 7;

fn flags(lease: &LeaseRecord) -> i64 {
    let bit = |set: bool, bit: i64| if set { bit } else { 0 };
    constraints_bits(&lease.constraints)
        | bit(lease.reports_begin, REPORTS_BEGIN)
        | bit(lease.returns_unbegun, RETURNS_UNBEGUN)
        | bit(!lease.begun, NOT_BEGUN)
        | bit(lease.in_process, IN_PROCESS)
}

/// The column `pids` of processes that can be recognised. The first release wrote the list of pids alone; so are those of a
/// worker that does not say more.
#[derive(Default, Serialize, Deserialize)]
struct Processes {
    pids: Vec<u32>,
    origin: Option<Box<ProcessOrigin>>,
}

fn processes_text(lease: &LeaseRecord) -> Option<String> {
    match &lease.process_origin {
        _ if lease.pids.is_empty() => None,
        None => Some(json_text(&lease.pids)),
        Some(_) => Some(json_text(&Processes {
            pids: lease.pids.clone(),
            origin: lease.process_origin.clone(),
        })),
    }
}

fn processes_of(text: Option<&str>) -> Result<Processes> {
    let Some(text) = text else {
        return Ok(Processes::default());
    };
    let read = if text.starts_with('[') {
        serde_json::from_str(text).map(|pids| Processes { pids, origin: None })
    } else {
        serde_json::from_str(text)
    };
    read.map_err(|_| damaged("a list of processes"))
}

pub(crate) fn write_lease(db: &Connection, lease: &LeaseRecord) -> Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT OR REPLACE INTO scheduler_leases VALUES \
         (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, \
         ?22, ?23)",
    )?;
    statement.execute(params![
        Id(&lease.id.0),
        lease.revision as i64,
        lease.addon_id.as_str(),
        lease.job_type.as_str(),
        lease.node_id.as_str(),
        Maybe(lease.instance_id.as_ref().map(|id| Id(&id.0))),
        disk_numbers::priority_number(lease.priority),
        flags(lease),
        lease.expected_duration_sec,
        lease.own_cost,
        lease.ttl_sec,
        to_micros(lease.granted_at),
        to_micros(lease.renewed_at),
        to_micros(lease.expires_at),
        Maybe(lease.named_current.as_ref().map(|id| Id(&id.0))),
        to_micros(lease.current_since),
        Maybe(processes_text(lease)),
        lease.end.map(disk_numbers::lease_end_number),
        micros(lease.ended_at),
        lease.end_reason,
        lease.renewals as i64,
        Maybe((!lease.asked_back.is_empty()).then(|| json_text(&lease.asked_back))),
        lease.request_key,
    ])?;
    Ok(())
}

/// A lease of a row with all columns, and of its jobs.
pub(crate) fn lease_of(row: &Row<'_>, jobs: Vec<LeasedJob>) -> Result<LeaseRecord> {
    let name = |_| damaged("a name");
    let end: Option<i64> = row.get(17)?;
    let end = end
        .map(|number| meaning(number, disk_numbers::lease_end_of, "a lease's end"))
        .transpose()?;
    let flags: i64 = row.get(7)?;
    let processes = processes_of(optional_text_at(row, 16)?)?;
    Ok(LeaseRecord {
        id: LeaseId(uuid_at(row, 0)?),
        revision: number(row.get(1)?)?,
        addon_id: text_at(row, 2)?.parse().map_err(name)?,
        job_type: text_at(row, 3)?.parse().map_err(name)?,
        node_id: text_at(row, 4)?.parse::<NodeId>().map_err(name)?,
        instance_id: optional_uuid_at(row, 5)?.map(InstanceId),
        request_key: row.get(22)?,
        priority: priority_of(row.get(6)?)?,
        constraints: constraints_of(flags),
        expected_duration_sec: optional_number(row.get(8)?)?,
        own_cost: number(row.get(9)?)?,
        ttl_sec: number(row.get(10)?)?,
        granted_at: from_micros(row.get(11)?),
        renewed_at: from_micros(row.get(12)?),
        expires_at: from_micros(row.get(13)?),
        jobs,
        named_current: optional_uuid_at(row, 14)?.map(JobId),
        current_since: from_micros(row.get(15)?),
        reports_begin: flags & REPORTS_BEGIN != 0,
        returns_unbegun: flags & RETURNS_UNBEGUN != 0,
        begun: flags & NOT_BEGUN == 0,
        in_process: flags & IN_PROCESS != 0,
        asked_back: match optional_text_at(row, 21)? {
            None => Vec::new(),
            Some(text) => serde_json::from_str(text).map_err(|_| damaged("a list of jobs"))?,
        },
        pids: processes.pids,
        process_origin: processes.origin,
        end,
        ended_at: time(row.get(18)?),
        end_reason: row.get(19)?,
        renewals: number(row.get(20)?)?,
    })
}

/// Notes for which jobs a lease was granted.
pub(crate) fn write_leased(db: &Connection, lease: LeaseId, jobs: &[JobId]) -> Result<()> {
    let Some(first) = jobs.first() else {
        return Ok(());
    };
    let ids: Vec<u8> = jobs.iter().flat_map(|job| *job.0.as_bytes()).collect();
    db.prepare_cached("INSERT OR REPLACE INTO scheduler_leased VALUES (?1, ?2, ?3)")?
        .execute(params![Id(&lease.0), Id(&first.0), ids])?;
    Ok(())
}

/// The list of a lease that has ended is of no use.
pub(crate) fn delete_leased(db: &Connection, lease: LeaseId) -> Result<()> {
    db.prepare_cached("DELETE FROM scheduler_leased WHERE lease_id = ?1")?
        .execute([Id(&lease.0)])?;
    Ok(())
}

/// The jobs in a list of a lease.
pub(crate) fn leased_of(row: &Row<'_>, column: usize) -> Result<Vec<JobId>> {
    let bytes = row.get_ref(column)?.as_blob().ok();
    let (ids, rest) = bytes
        .ok_or_else(|| damaged("a list of jobs"))?
        .as_chunks::<16>();
    if !rest.is_empty() {
        return Err(damaged("a list of jobs"));
    }
    Ok(ids
        .iter()
        .map(|id| JobId(uuid::Uuid::from_bytes(*id)))
        .collect())
}
