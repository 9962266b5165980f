//! The audit trail as it lies in the file: many events a row, since a row of its own would cost more than all else that
//! is written for an event.
//!
//! A row holds events with places that follow each other; its id is the place of the last. Within a row an event says
//! only what differs from the one before it: of a batch they have the time, the lease, the node and mostly the reason in
//! common. Each names the place of the one before it of the same job, and a job knows its last: so a job's trail is
//! found without an index that every event would have to pay for.
//!
//! [`Scroll`] collects the events of a transaction until they are written. What an operation added can be taken back.

use jobtree_protocol::{Event, JobId, LeaseId, from_micros, to_micros};
use rusqlite::{Connection, params};

use super::codec::{damaged, state_of};
use super::pack::{Unpack, put_bytes, put_id, put_number, put_signed};
use crate::disk_numbers;
use crate::tables::{Recorded, Result};

/// With this many bytes a row is full: one page of the file holds it.
const FULL: usize = 3600;

// What an event has.
const JOB: u64 = 1;
const STATE: u64 = 1 << 1;
const LEASE: u64 = 1 << 2;
const SAME_LEASE: u64 = 1 << 3;
const NODE: u64 = 1 << 4;
const SAME_NODE: u64 = 1 << 5;
const REASON: u64 = 1 << 6;
const SAME_REASON: u64 = 1 << 7;
const ATTEMPT: u64 = 1 << 8;
const REVISION: u64 = 1 << 9;
const PREVIOUS: u64 = 1 << 10;
/// It is about the job of the event before it. Not in rows of older versions, which could not read it.
const SAME_JOB: u64 = 1 << 11;

/// What the next event of a row is compared with. Texts are where they were written.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    at: i64,
    job: Option<JobId>,
    lease: Option<LeaseId>,
    node: (usize, usize),
    reason: (usize, usize),
}

/// How much of a scroll there was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    bytes: usize,
    rows: usize,
    begun: usize,
    next: i64,
    first: i64,
    last: Last,
}

/// Events that are not in the file yet.
#[derive(Debug)]
pub(crate) struct Scroll {
    bytes: Vec<u8>,
    /// Rows that are full: where each ends, its first place and its last.
    rows: Vec<(usize, i64, i64)>,
    /// Where the row begins that is not full.
    begun: usize,
    /// The place of its first event.
    first: i64,
    /// The place of the next event. Counted here and not by SQLite, which would use the place of a pruned one again.
    next: i64,
    last: Last,
}

impl Scroll {
    pub(crate) fn new(next: i64) -> Self {
        Self {
            bytes: Vec::new(),
            rows: Vec::new(),
            begun: 0,
            first: next,
            next,
            last: Last::default(),
        }
    }

    /// The place of the next event.
    pub(crate) fn next(&self) -> i64 {
        self.next
    }

    pub(crate) fn mark(&self) -> Mark {
        Mark {
            bytes: self.bytes.len(),
            rows: self.rows.len(),
            begun: self.begun,
            next: self.next,
            first: self.first,
            last: self.last,
        }
    }

    /// Takes back what was added since, if it was not written meanwhile.
    pub(crate) fn take_back(&mut self, mark: Mark) {
        self.bytes.truncate(mark.bytes);
        self.rows.truncate(mark.rows);
        self.begun = mark.begun;
        self.next = mark.next;
        self.first = mark.first;
        self.last = mark.last;
    }

    /// Forgets all that is not written. Its places are left out.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.begun = 0;
        self.first = self.next;
        self.last = Last::default();
    }

    /// Adds an event, which follows the one at `previous` of the same job, and gives its place.
    pub(crate) fn push(&mut self, event: &Event, previous: Option<i64>) -> i64 {
        let place = self.next;
        self.next += 1;
        let at = to_micros(event.at);
        let same = |part: (usize, usize), text: &str| {
            part.1 > 0 && self.bytes[part.0..part.0 + part.1] == *text.as_bytes()
        };
        let node = event.node_id.as_ref().map(AsRef::<str>::as_ref);
        let reason = event.reason.as_deref();
        let same_lease = event.lease_id.is_some() && event.lease_id == self.last.lease;
        let same_node = node.is_some_and(|node| same(self.last.node, node));
        let same_reason = reason.is_some_and(|reason| same(self.last.reason, reason));
        let bit = |set: bool, bit: u64| if set { bit } else { 0 };
        let same_job = event.job_id.is_some() && event.job_id == self.last.job;
        let bits = bit(event.job_id.is_some() && !same_job, JOB)
            | bit(same_job, SAME_JOB)
            | bit(event.state.is_some(), STATE)
            | bit(event.lease_id.is_some() && !same_lease, LEASE)
            | bit(same_lease, SAME_LEASE)
            | bit(node.is_some() && !same_node, NODE)
            | bit(same_node, SAME_NODE)
            | bit(reason.is_some() && !same_reason, REASON)
            | bit(same_reason, SAME_REASON)
            | bit(event.attempt.is_some(), ATTEMPT)
            | bit(event.revision.is_some(), REVISION)
            | bit(previous.is_some(), PREVIOUS);
        let bytes = &mut self.bytes;
        put_number(bytes, bits);
        bytes.push(disk_numbers::kind_number(event.kind));
        put_signed(bytes, at - self.last.at);
        self.last.at = at;
        if let Some(job) = event.job_id.filter(|_| !same_job) {
            put_id(bytes, &job.0);
        }
        self.last.job = event.job_id;
        if let Some(state) = event.state {
            bytes.push(disk_numbers::state_number(state));
        }
        if bits & LEASE != 0 {
            put_id(bytes, &event.lease_id.expect("its bit is set").0);
            self.last.lease = event.lease_id;
        }
        for (wanted, text, part) in [
            (NODE, node, &mut self.last.node),
            (REASON, reason, &mut self.last.reason),
        ] {
            if let Some(text) = text.filter(|_| bits & wanted != 0) {
                put_bytes(bytes, text.as_bytes());
                *part = (bytes.len() - text.len(), text.len());
            }
        }
        if let Some(attempt) = event.attempt {
            put_number(bytes, attempt.into());
        }
        if let Some(revision) = event.revision {
            put_number(bytes, revision);
        }
        if let Some(previous) = previous {
            put_number(bytes, (place - previous) as u64);
        }
        if self.bytes.len() - self.begun >= FULL {
            self.end_row();
        }
        place
    }

    fn end_row(&mut self) {
        if self.bytes.len() > self.begun {
            self.rows
                .push((self.bytes.len(), self.first, self.next - 1));
            self.begun = self.bytes.len();
        }
        self.first = self.next;
        self.last = Last::default();
    }

    /// Takes all rows: of each the place of its last event, how many it has, and the events.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_rows(&mut self) -> Vec<(i64, i32, Vec<u8>)> {
        self.end_row();
        let mut begin = 0;
        let rows = self.rows.iter().map(|(end, first, last)| {
            let bytes = self.bytes[std::mem::replace(&mut begin, *end)..*end].to_vec();
            (*last, (last - first + 1) as i32, bytes)
        });
        let rows = rows.collect();
        self.clear();
        rows
    }

    /// Writes everything into the file.
    pub(crate) fn write(&mut self, db: &Connection) -> Result<()> {
        self.end_row();
        if !self.rows.is_empty() {
            let mut statement =
                db.prepare_cached("INSERT INTO scheduler_job_events VALUES (?1, ?2, ?3)")?;
            let mut begin = 0;
            for (end, first, last) in &self.rows {
                statement.execute(params![last, last - first + 1, &self.bytes[begin..*end]])?;
                begin = *end;
            }
        }
        self.clear();
        Ok(())
    }
}

/// The events of a row, each with the place of the one before it of the same job.
pub(crate) fn unroll(last: i64, count: i64, body: &[u8]) -> Result<Vec<(Recorded, Option<i64>)>> {
    let mut unpack = Unpack::new(body);
    let (mut at, mut job, mut lease, mut node, mut reason) = (0_i64, None, None, None, None);
    let mut events = Vec::new();
    let first = last.saturating_sub(count).saturating_add(1);
    for place in first..=last {
        let bits = unpack.raw_number()?;
        let kind =
            disk_numbers::kind_of(unpack.byte()?).ok_or_else(|| damaged("an event's kind"))?;
        at = at.wrapping_add(unpack.signed()?);
        let has = |bit: u64| bits & bit != 0;
        if !has(SAME_JOB) {
            job = has(JOB).then(|| unpack.id().map(JobId)).transpose()?;
        }
        let state = has(STATE)
            .then(|| state_of(unpack.byte()?.into()))
            .transpose()?;
        if has(LEASE) {
            lease = Some(LeaseId(unpack.id()?));
        }
        if has(NODE) {
            node = Some(unpack.text()?.parse().map_err(|_| damaged("a name"))?);
        }
        if has(REASON) {
            reason = Some(unpack.text()?.to_owned());
        }
        let event = Event {
            job_id: job,
            at: from_micros(at),
            kind,
            state,
            lease_id: lease.filter(|_| has(LEASE | SAME_LEASE)),
            node_id: node.clone().filter(|_| has(NODE | SAME_NODE)),
            reason: reason.clone().filter(|_| has(REASON | SAME_REASON)),
            attempt: has(ATTEMPT).then(|| unpack.number()).transpose()?,
            revision: has(REVISION).then(|| unpack.number()).transpose()?,
        };
        let previous = has(PREVIOUS)
            .then(|| unpack.number::<i64>().map(|back| place - back))
            .transpose()?;
        let cursor = u64::try_from(place).map_err(|_| damaged("an event's place"))?;
        events.push((Recorded { cursor, event }, previous));
    }
    if unpack.is_empty() {
        Ok(events)
    } else {
        Err(damaged("a row of events"))
    }
}

fn unroll_row(row: &rusqlite::Row<'_>) -> Result<Vec<(Recorded, Option<i64>)>> {
    let body = row
        .get_ref(2)?
        .as_blob()
        .map_err(|_| damaged("a row of events"))?;
    unroll(row.get(0)?, row.get(1)?, body)
}

pub(crate) const EVENT_COLUMNS: &str = "id, count, body";

/// The row that holds the event at a place, or the next one.
pub(crate) const EVENT: &str =
    "SELECT * FROM scheduler_job_events WHERE id >= ?1 ORDER BY id LIMIT 1";

/// Follows the chain from a job's last event back to its first, or to where the trail was pruned.
pub(crate) fn events_before(db: &Connection, last: Option<i64>) -> Result<Vec<Recorded>> {
    let mut statement = db.prepare_cached(EVENT)?;
    let (mut found, mut next) = (Vec::new(), last);
    let mut row_at_hand: Vec<(Recorded, Option<i64>)> = Vec::new();
    while let Some(place) = next {
        let is_it = |(event, _): &&(Recorded, Option<i64>)| event.cursor as i64 == place;
        if !row_at_hand.iter().any(|event| is_it(&event)) {
            let mut rows = statement.query([place])?;
            let Some(row) = rows.next()? else { break };
            row_at_hand = unroll_row(row)?;
        }
        let Some((event, previous)) = row_at_hand.iter().find(is_it) else {
            break;
        };
        found.push(event.clone());
        next = previous.filter(|previous| *previous < place);
    }
    found.reverse();
    Ok(found)
}

/// Rows with events after a place. A row has at least one of them.
pub(crate) const EVENTS_AFTER: &str =
    "SELECT * FROM scheduler_job_events WHERE id > ?1 ORDER BY id LIMIT ?2";

pub(crate) fn events_after(db: &Connection, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
    let mut statement = db.prepare_cached(EVENTS_AFTER)?;
    let after = i64::try_from(cursor).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![after, limit as i64])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let events = unroll_row(row)?.into_iter().map(|(event, _)| event);
        found.extend(events.filter(|event| event.cursor > cursor));
        if found.len() >= limit {
            found.truncate(limit);
            break;
        }
    }
    Ok(found)
}

pub(crate) const LAST_EVENT: &str = "SELECT max(id) FROM scheduler_job_events";

pub(crate) fn last_event(db: &Connection) -> Result<i64> {
    let last: Option<i64> = db
        .prepare_cached(LAST_EVENT)?
        .query_row([], |row| row.get(0))?;
    Ok(last.unwrap_or(0))
}

/// Deletes events before a time, oldest first, up to so many. A row of which a part is left is written anew.
pub(crate) fn prune(db: &Connection, before: jiff::Timestamp, limit: usize) -> Result<u64> {
    let mut statement =
        db.prepare_cached("SELECT * FROM scheduler_job_events ORDER BY id LIMIT ?1")?;
    let mut rows = statement.query([limit as i64])?;
    let (mut whole, mut part, mut count) = (None, None, 0);
    while let Some(row) = rows.next()? {
        let last: i64 = row.get(0)?;
        let events = unroll_row(row)?;
        let old = events
            .iter()
            .take(limit - count)
            .take_while(|(recorded, _)| recorded.event.at < before)
            .count();
        count += old;
        if old < events.len() {
            part = (old > 0).then(|| (last, events[old..].to_vec()));
            break;
        }
        whole = Some(last);
        if count >= limit {
            break;
        }
    }
    drop(rows);
    if let Some(last) = whole {
        db.prepare_cached("DELETE FROM scheduler_job_events WHERE id <= ?1")?
            .execute([last])?;
    }
    if let Some((last, left)) = part {
        let mut scroll = Scroll::new(last - left.len() as i64 + 1);
        for (recorded, previous) in &left {
            scroll.push(&recorded.event, *previous);
        }
        db.prepare_cached("DELETE FROM scheduler_job_events WHERE id = ?1")?
            .execute([last])?;
        scroll.write(db)?;
    }
    Ok(count as u64)
}

#[cfg(test)]
mod tests {
    use jobtree_protocol::{EventKind, JobState};

    use super::*;

    fn file() -> Connection {
        let db = Connection::open_in_memory().expect("memory");
        db.execute_batch(include_str!("schema.sql"))
            .expect("the tables");
        db
    }

    /// All kinds of events, some like the one before and some not.
    fn event(number: u64) -> Event {
        let lease = LeaseId(uuid::Uuid::from_u128((number / 7).into()));
        Event {
            job_id: (!number.is_multiple_of(5))
                .then(|| JobId(uuid::Uuid::from_u128(number.into()))),
            at: from_micros(1_700_000_000_000_000 + (number as i64 % 11 - 5) * 1000),
            kind: EventKind::ALL[number as usize % EventKind::ALL.len()],
            state: (!number.is_multiple_of(3)).then_some(JobState::Running),
            lease_id: (number % 7 > 1).then_some(lease),
            node_id: (!number.is_multiple_of(4))
                .then(|| format!("node{}", number / 9).parse().expect("a name")),
            attempt: number.is_multiple_of(2).then_some(number as u32),
            revision: (!number.is_multiple_of(6)).then_some(number * 1000),
            reason: (!number.is_multiple_of(3)).then(|| "x".repeat(number as usize / 5 % 40)),
        }
    }

    fn all(db: &Connection) -> Vec<(u64, Event)> {
        let found = events_after(db, 0, 10_000).expect("the trail");
        found
            .into_iter()
            .map(|recorded| (recorded.cursor, recorded.event))
            .collect()
    }

    #[test]
    fn what_was_written_is_read_in_many_rows_and_from_any_place() {
        let db = file();
        let mut scroll = Scroll::new(1);
        for number in 1..=1000 {
            assert_eq!(scroll.push(&event(number), None), number as i64);
            if number == 400 {
                scroll.write(&db).expect("a write in between");
            }
        }
        scroll.write(&db).expect("written");
        let rows: i64 = db
            .query_row("SELECT count(*) FROM scheduler_job_events", [], |row| {
                row.get(0)
            })
            .expect("a count");
        assert!((5..100).contains(&rows), "{rows} rows");
        let wanted: Vec<_> = (1..=1000).map(|number| (number, event(number))).collect();
        assert_eq!(all(&db), wanted);
        for after in [0, 1, 57, 399, 400, 401, 998] {
            let page = events_after(&db, after, 2).expect("a page");
            let places: Vec<u64> = page.iter().map(|recorded| recorded.cursor).collect();
            assert_eq!(places, [after + 1, after + 2]);
        }
        assert_eq!(last_event(&db), Ok(1000));
    }

    #[test]
    fn a_chain_is_followed_through_rows_to_where_it_was_pruned() {
        let db = file();
        let mut scroll = Scroll::new(1);
        let mut previous = None;
        for number in 1..=600 {
            let place = scroll.push(&event(number), previous.filter(|_| number % 3 == 0));
            if number % 3 == 0 {
                previous = Some(place);
            }
        }
        scroll.write(&db).expect("written");
        let places = |found: Vec<Recorded>| -> Vec<u64> {
            found.iter().map(|recorded| recorded.cursor).collect()
        };
        let chain = places(events_before(&db, previous).expect("a trail"));
        assert_eq!(chain, (1..=200).map(|third| third * 3).collect::<Vec<_>>());
        let future = from_micros(i64::MAX / 4);
        assert_eq!(prune(&db, future, 100), Ok(100));
        let chain = places(events_before(&db, previous).expect("a trail"));
        assert_eq!(chain, (34..=200).map(|third| third * 3).collect::<Vec<_>>());
        assert_eq!(
            all(&db).first(),
            Some(&(101, event(101))),
            "the rest of a row is whole"
        );
        assert_eq!(all(&db).len(), 500);
        assert_eq!(
            prune(&db, from_micros(0), 100),
            Ok(0),
            "none is as old as that"
        );
    }

    #[test]
    fn what_is_taken_back_leaves_no_trace() {
        let db = file();
        let mut scroll = Scroll::new(1);
        scroll.push(&event(1), None);
        let mark = scroll.mark();
        for number in 2..300 {
            scroll.push(&event(number), None);
        }
        scroll.take_back(mark);
        assert_eq!(scroll.next(), 2);
        scroll.push(&event(2), Some(1));
        scroll.write(&db).expect("written");
        assert_eq!(all(&db), [(1, event(1)), (2, event(2))]);
        scroll.push(&event(3), None);
        scroll.clear();
        assert_eq!(
            scroll.push(&event(4), None),
            4,
            "a place is never used twice"
        );
        scroll.write(&db).expect("written");
        assert_eq!(all(&db).last(), Some(&(4, event(4))));
    }

    /// Each claimed job has an event that says why it was admitted, and another one that it runs: the second one is about
    /// the same job, and the first has what the others of the claim have. Together they are hardly more than one.
    #[test]
    fn the_admission_of_a_claimed_job_takes_few_bytes() {
        let lease = LeaseId(uuid::Uuid::from_u128(7));
        let event = |kind, job: u128| Event {
            job_id: Some(JobId(uuid::Uuid::from_u128(job << 80 | 0xfeed_beef))),
            at: from_micros(1_700_000_000_000_000),
            kind,
            state: Some(JobState::Running),
            lease_id: Some(lease),
            node_id: Some("local".parse().expect("a name")),
            attempt: (kind == EventKind::Running).then_some(1),
            revision: Some(2),
            reason: (kind == EventKind::Admitted)
                .then(|| "Admitted in QUIET: busy=1.2, used=10, requested=1, capacity=80".into()),
        };
        let bytes = |kinds: &[EventKind]| {
            let mut scroll = Scroll::new(100);
            let granted = Event {
                job_id: None,
                ..event(EventKind::Admitted, 0)
            };
            scroll.push(&granted, None);
            for job in 1..=32 {
                for (number, kind) in kinds.iter().enumerate() {
                    let previous = scroll.next() - if number == 0 { 40 } else { 1 };
                    scroll.push(&event(*kind, job), Some(previous));
                }
            }
            scroll.bytes.len() as f64
        };
        let without = bytes(&[EventKind::Running]);
        let with = bytes(&[EventKind::Admitted, EventKind::Running]);
        let each = (with - without) / 32.0;
        assert!(each < 9.0, "{each} bytes a job");
    }

    #[test]
    fn a_damaged_row_is_an_error() {
        let mut scroll = Scroll::new(1);
        scroll.push(&event(1), None);
        let bytes = scroll.bytes.clone();
        assert!(unroll(1, 1, &bytes).is_ok());
        assert!(unroll(2, 2, &bytes).is_err(), "one too few");
        assert!(
            unroll(1, 1, &bytes[..bytes.len() - 1]).is_err(),
            "cut short"
        );
        assert!(
            unroll(1, 1, &[bytes, vec![0]].concat()).is_err(),
            "too long"
        );
    }
}
