//! Lists of jobs, filtered and page by page, in the order of ids.
//!
//! Filters need no indexes, which every job would pay for: a page looks at a bounded number of rows and stops there,
//! perhaps with few jobs or none, and says where to go on. What people look for most is found at once all the same:
//! dispatched, failed and canceled jobs, and tags, have small tables of their own, and those that workers have are known to leases.

use jobtree_protocol::{JobId, JobQuery, JobState, Outcome, Phase};
use jobtree_queue::JobRecord;
use rusqlite::{Connection, Row, params};

use super::codec::{
    Id, body_of, flags_of, is_quarantined, state_number, state_of, text_at, uuid_at,
};
use super::queries::{self, after_bytes};
use crate::search::{Searched, Text, ended_since};
use crate::tables::{Page, Result};

/// How many rows one page may look at in each place.
const BUDGET: usize = 10_000;

/// Ids that match, from one place, in order, and how far that place was searched (`None`: to its end).
struct Found {
    ids: Vec<JobId>,
    searched_to: Option<JobId>,
}

pub(crate) fn list(db: &Connection, query: &JobQuery, limit: usize) -> Result<Page> {
    list_within(db, query, limit, BUDGET)
}

fn list_within(db: &Connection, query: &JobQuery, limit: usize, budget: usize) -> Result<Page> {
    let limit = limit.max(1);
    let text = Text::of(query);
    let mut found = statements(query)
        .iter()
        .map(|sql| search(db, sql, query, text.as_ref(), limit, budget))
        .collect::<Result<Vec<_>>>()?;
    if query.tag.is_none() && query.state.iter().any(|state| state.holds_capacity()) {
        found.push(held(db, query, text.as_ref(), limit)?);
    }
    // Beyond this a place may have more that was not looked at.
    let sure_to = found.iter().filter_map(|found| found.searched_to).min();
    let mut ids: Vec<JobId> = found.into_iter().flat_map(|found| found.ids).collect();
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| sure_to.is_none_or(|end| *id <= end));
    let next = if ids.len() > limit {
        ids.truncate(limit);
        ids.last().copied()
    } else {
        sure_to
    };
    let mut jobs = Vec::with_capacity(ids.len());
    for id in ids {
        jobs.extend(queries::job(db, id)?.map(|stored| stored.job));
    }
    Ok(Page { jobs, next })
}

/// One statement for each place where jobs of the query can be. Parameters: after which id, and the budget.
#[doc(hidden)]
pub fn statements(query: &JobQuery) -> Vec<String> {
    let by_id = |from: &str| format!("SELECT * FROM {from} WHERE id > ?1 ORDER BY id LIMIT ?2");
    let not_done = |state: JobState| {
        format!(
            "SELECT job.* FROM scheduler_not_done AS ended CROSS JOIN scheduler_jobs_history AS job ON job.id = ended.id \
             WHERE ended.state = {} AND ended.id > ?1 ORDER BY ended.id LIMIT ?2",
            state_number(state)
        )
    };
    if query.tag.is_some() {
        let tagged = |table: &str| {
            format!(
                "SELECT job.* FROM scheduler_tags AS tagged \
                 CROSS JOIN {table} AS job ON job.id = tagged.id \
                 WHERE tagged.tag = ?3 AND tagged.id > ?1 ORDER BY tagged.id LIMIT ?2"
            )
        };
        return vec![tagged("scheduler_jobs"), tagged("scheduler_jobs_history")];
    }
    if query.quarantined && query.state.is_empty() {
        return vec![not_done(JobState::Failed)];
    }
    if query.state.is_empty() {
        return vec![by_id("scheduler_jobs"), by_id("scheduler_jobs_history")];
    }
    let place = |state: &JobState| {
        Some(match state.phase() {
            Phase::Queued => by_id("scheduler_jobs"),
            Phase::Reserved => "SELECT job.* FROM scheduler_dispatching AS waiting \
             CROSS JOIN scheduler_jobs AS job ON job.id = waiting.id \
             WHERE waiting.id > ?1 ORDER BY waiting.id LIMIT ?2"
                .to_owned(),
            // By their leases, as those that are claimed and not begun: see `held`.
            Phase::Running => return None,
            Phase::Ended(Outcome::Done) => by_id("scheduler_jobs_history"),
            Phase::Ended(Outcome::Failed | Outcome::Cancelled) => not_done(*state),
        })
    };
    query.state.iter().filter_map(place).collect()
}

/// Jobs that workers have, begun or not, found by the leases that hold. There are few of them, so all are looked at.
fn held(db: &Connection, query: &JobQuery, text: Option<&Text>, limit: usize) -> Result<Found> {
    let mut found = Found {
        ids: Vec::new(),
        searched_to: None,
    };
    let mut statement = db.prepare_cached("SELECT * FROM scheduler_jobs WHERE id = ?1")?;
    for id in queries::leased_after(db, query.after)? {
        let mut rows = statement.query([Id(&id.0)])?;
        let Some(row) = rows.next()? else { continue };
        if matches(query, row)? && searched(db, query, text, row)?.0 {
            found.ids.push(id);
            if found.ids.len() > limit {
                found.searched_to = Some(id);
                break;
            }
        }
    }
    Ok(found)
}

/// Whether a row with all columns is what the query asks for.
fn matches(query: &JobQuery, row: &Row<'_>) -> Result<bool> {
    let state = state_of(row.get(2)?)?;
    Ok((query.state.is_empty() || query.state.contains(&state))
        && is_or_any(query.addon_id.as_ref().map(AsRef::as_ref), text_at(row, 3)?)
        && is_or_any(query.job_type.as_ref().map(AsRef::as_ref), text_at(row, 4)?)
        && (!query.quarantined || is_quarantined(flags_of(body_of(row)?)?)))
}

/// Whether a row's job ended in time and has the text, and the job if it was searched for the text.
fn searched(
    db: &Connection,
    query: &JobQuery,
    text: Option<&Text>,
    row: &Row<'_>,
) -> Result<(bool, Option<JobRecord>)> {
    if text.is_none() && query.ended_since.is_none() {
        return Ok((true, None));
    }
    let (job, _) = queries::read_job(db, row)?;
    if !ended_since(query, &job) {
        return Ok((false, None));
    }
    match text {
        None => Ok((true, None)),
        Some(text) => Ok((text.is_of(&job), Some(job))),
    }
}

fn search(
    db: &Connection,
    sql: &str,
    query: &JobQuery,
    text: Option<&Text>,
    limit: usize,
    budget: usize,
) -> Result<Found> {
    let mut statement = db.prepare_cached(sql)?;
    let after = after_bytes(query.after);
    let budget_parameter = budget as i64;
    let mut rows = match &query.tag {
        Some(tag) => statement.query(params![after, budget_parameter, tag])?,
        None => statement.query(params![after, budget_parameter])?,
    };
    let mut ids = Vec::new();
    let mut looked_at = 0;
    let mut last = None;
    let mut room = Searched::nothing();
    while let Some(row) = rows.next()? {
        let id = JobId(uuid_at(row, 0)?);
        looked_at += 1;
        last = Some(id);
        if !matches(query, row)? {
            continue;
        }
        let (is_it, job) = searched(db, query, text, row)?;
        if is_it {
            ids.push(id);
        }
        // One more than asked for, to know whether there is another page.
        if ids.len() > limit || job.is_some_and(|job| !room.add(&job)) {
            return Ok(Found {
                ids,
                searched_to: last,
            });
        }
    }
    Ok(Found {
        ids,
        searched_to: last.filter(|_| looked_at >= budget),
    })
}

fn is_or_any(wanted: Option<&str>, found: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == found)
}

#[cfg(test)]
mod tests {
    use jobtree_protocol::{AddonId, Limits, SubmitRequest};
    use jobtree_queue::Now;
    use jobtree_queue::transitions::{self, Context, Rules, Submit};

    use super::*;
    use crate::sqlite::queries::Place;
    use crate::sqlite::rows::JobRows;

    /// Fifty jobs, of which the last alone is of the addon "rare".
    fn fifty() -> Connection {
        let db = Connection::open_in_memory().expect("memory");
        db.execute_batch(include_str!("schema.sql"))
            .expect("the tables");
        let now = Now {
            wall: "2026-01-01T00:00:00Z".parse().expect("a time"),
            mono: std::time::Duration::ZERO,
        };
        let cx = Context {
            now,
            roll: 0,
            rules: &Rules::default(),
        };
        let mut jobs = Vec::new();
        for number in 0..50_u8 {
            let addon = if number == 49 { "rare" } else { "common" };
            let intent = SubmitRequest::new(addon, "x", 1).validate(&Limits::default());
            let command = Submit {
                id: JobId::from_parts(now.wall, [0, number, 0, 0, 0, 0, 0, 0, 0, 0]),
                intent: intent.expect("valid"),
                same_id: None,
                same_key: None,
                same_unique: None,
                dependencies: &[],
            };
            let done = transitions::submit(&cx, command).expect("it is new");
            jobs.extend(done.changes.jobs);
        }
        let mut rows = JobRows::new(&db);
        for job in &jobs {
            rows.put(job, Place::Hot, true, None).expect("a row");
        }
        rows.finish().expect("the last rows");
        drop(rows);
        db
    }

    #[test]
    fn a_page_costs_no_more_than_its_budget_and_the_next_goes_on() {
        let db = fifty();
        let mut query = JobQuery {
            addon_id: Some(AddonId::new("rare").expect("a name")),
            ..JobQuery::default()
        };
        let mut pages = Vec::new();
        loop {
            let page = list_within(&db, &query, 5, 10).expect("a page");
            pages.push(page.jobs.len());
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(pages, [0, 0, 0, 0, 1, 0], "ten rows a page");
    }

    #[test]
    fn pages_meet_without_a_gap_or_a_double() {
        let db = fifty();
        for (limit, budget) in [(1, 7), (5, 10), (10, 3), (50, 1000), (7, 8)] {
            let (mut query, mut found) = (JobQuery::default(), Vec::new());
            loop {
                let page = list_within(&db, &query, limit, budget).expect("a page");
                assert!(page.jobs.len() <= limit);
                found.extend(page.jobs.iter().map(|job| job.id));
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            assert_eq!(found.len(), 50, "{limit} of {budget}");
            assert!(found.is_sorted_by(|a, b| a < b));
        }
    }
}
