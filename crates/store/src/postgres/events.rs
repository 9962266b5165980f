//! The audit trail in the database: many events a row, as SQLite has it (`sqlite/trail.rs`), and how a reader follows it
//! while several processes write.
//!
//! **Places.** A transaction draws blocks of [`BLOCK`] places from a sequence and numbers its events from the begin of a
//! block: so it knows the places before it writes, and no transaction waits for another. Blocks are drawn in one order and
//! committed in another one: a reader that has read up to a place may later find an event before it.
//!
//! **Cause before effect.** An event has a place behind all events that its command could see: a transaction draws places
//! after it has read what it decides by, and draws others if it reads more ([`NewEvents::draw_anew`]). So the end of a job
//! that held a concurrency key comes before the start of the next one with that key, on whichever node either happened.
//!
//! **Reading.** So a reader passes on only what is *final*: no event can appear before it any more.
//!
//! - All events of a block are written by one transaction, and appear at once. If a reader has read a block, what it finds
//!   in the next one is final.
//! - A transaction has its number before it draws a block. So when all transactions have ended that had a number at the
//!   time when a reader saw an event, all blocks before that event were written, or never will be. The snapshot says
//!   which is the oldest transaction that has not ended (`pg_snapshot_xmin`), and `age` the number that comes next.
//!
//! Blocks that are never written (the transaction was undone, or drew too many) delay a reader until the transactions of
//! that time have ended. That includes those of other programs on the same server, if they write.

use std::time::Duration;

use jobtree_protocol::{Event, JobId, to_micros};
use tokio_postgres::Row;

use super::connection::Call;
use super::tables::{PgTables, read};
use crate::error::StoreError;
use crate::sqlite::trail::{Scroll, unroll};
use crate::tables::{Recorded, Result};

/// Places in a block.
const BLOCK: i64 = 64;
/// How often, and after which time, a newer snapshot is asked for events that are not final: transactions take some
/// milliseconds. Picked by feel.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// The statement that draws blocks. The transaction must have its number.
pub(super) const DRAW: &str =
    "SELECT nextval('scheduler_event_blocks') FROM generate_series(1, $1::int)";

pub(super) fn blocks_for(events: usize) -> i32 {
    events.div_ceil(BLOCK as usize) as i32
}

/// The events of a transaction that are to be written.
#[derive(Default)]
pub(super) struct NewEvents {
    /// Blocks that were drawn and not begun, the next one last.
    blocks: Vec<i64>,
    begun: Option<(Scroll, i64)>,
    rows: Vec<(i64, i32, Vec<u8>)>,
    /// When the newest of all happened: a row is pruned when all of its events are old.
    newest: i64,
}

impl NewEvents {
    /// Takes blocks that were drawn.
    pub(super) fn drawn(&mut self, rows: &[Row]) {
        let blocks = rows.iter().rev().map(|row| row.get::<_, i64>(0));
        self.blocks.splice(0..0, blocks);
    }

    /// Leaves what is left of the places that were drawn, because something was read since: events that the reader's
    /// decisions follow from may have places behind these.
    pub(super) fn draw_anew(&mut self) {
        self.end_block();
        self.blocks.clear();
    }

    /// How many blocks are lacking for so many more events.
    pub(super) fn lacking(&self, events: usize) -> i32 {
        let room = self.begun.as_ref().map_or(0, |(_, room)| *room) as usize;
        let blocks = blocks_for(events.saturating_sub(room));
        (blocks - self.blocks.len() as i32).max(0)
    }

    /// Adds an event, which follows the one at `previous` of the same job, and gives its place. There must be room.
    pub(super) fn push(&mut self, event: &Event, previous: Option<i64>) -> Result<i64> {
        if self.begun.as_ref().is_none_or(|(_, room)| *room == 0) {
            self.end_block();
            let block = self.blocks.pop().ok_or_else(|| StoreError::Database {
                message: "an event has no place; this is a defect".into(),
            })?;
            self.begun = Some((Scroll::new(block * BLOCK), BLOCK));
        }
        let (scroll, room) = self.begun.as_mut().expect("it was just begun");
        *room -= 1;
        self.newest = self.newest.max(to_micros(event.at));
        Ok(scroll.push(event, previous))
    }

    fn end_block(&mut self) {
        if let Some((mut scroll, _)) = self.begun.take() {
            self.rows.extend(scroll.take_rows());
        }
    }

    /// The statement that writes all of them, if there are any.
    pub(super) fn write(&mut self) -> Option<Call> {
        self.end_block();
        let rows = std::mem::take(&mut self.rows);
        (!rows.is_empty()).then(|| insert(rows, self.newest))
    }
}

fn insert(rows: Vec<(i64, i32, Vec<u8>)>, newest: i64) -> Call {
    let ids: Vec<i64> = rows.iter().map(|row| row.0).collect();
    let counts: Vec<i32> = rows.iter().map(|row| row.1).collect();
    let bodies: Vec<Vec<u8>> = rows.into_iter().map(|row| row.2).collect();
    let sql = "INSERT INTO scheduler_job_events (id, count, at, body) \
               SELECT id, count, $3, body FROM unnest($1::bigint[], $2::int[], $4::bytea[]) AS new (id, count, body)";
    Call::new(sql)
        .with(ids)
        .with(counts)
        .with(newest)
        .with(bodies)
}

/// An event, with the place of the one before it of the same job.
type Chained = (Recorded, Option<i64>);

/// The events of a row of `id, count, body, record`.
fn events_of_row(row: &Row) -> Result<Vec<Chained>> {
    let last: i64 = row.get(0);
    let Some(body) = row.get::<_, Option<&[u8]>>(2) else {
        // As older versions wrote it.
        let recorded = Recorded {
            cursor: last as u64,
            event: read(row.get(3))?,
        };
        return Ok(vec![(recorded, None)]);
    };
    let count = row.get::<_, Option<i32>>(1).unwrap_or(1);
    unroll(last, count.into(), body)
}

/// What a reader knows of places. Of one connection, whose snapshots follow each other.
#[derive(Default)]
pub(super) struct Horizon {
    /// All up to here are final.
    known: i64,
    /// A place that is final when the transactions below a number have ended.
    pending: Option<(i64, i64)>,
}

impl Horizon {
    /// Learns from a snapshot: its last event, the oldest transaction that has not ended, and the number that comes next.
    fn learn(&mut self, last: i64, oldest: i64, coming: i64) {
        if oldest >= coming {
            // None runs.
            self.known = self.known.max(last);
            self.pending = None;
        }
        if let Some((place, bound)) = self.pending
            && oldest >= bound
        {
            self.known = self.known.max(place);
            self.pending = None;
        }
        self.pending.get_or_insert((last, coming));
    }

    /// How many of these rows, which follow each other after a place, are final.
    fn final_rows(&self, after: i64, rows: &[i64]) -> usize {
        let mut end = after.max(0);
        let mut count = 0;
        for row in rows {
            // Blocks begin with the first.
            let follows = row / BLOCK <= end / BLOCK + 1;
            if *row > self.known && !follows {
                break;
            }
            end = *row;
            count += 1;
        }
        count
    }
}

/// The whole number of a transaction of which the lower half is known, and a smaller one.
fn widened(lower: u32, smaller: i64) -> i64 {
    let whole = (smaller & !0xffff_ffff) | i64::from(lower);
    if whole < smaller {
        whole + (1 << 32)
    } else {
        whole
    }
}

impl PgTables {
    fn learn_horizon(&mut self) -> Result<()> {
        let rows = self.query(
            "SELECT coalesce((SELECT max(id) FROM scheduler_job_events), 0), \
             pg_snapshot_xmin(pg_current_snapshot())::text::bigint, age('3'::xid)",
            &[],
        )?;
        let (last, oldest): (i64, i64) = (rows[0].get(0), rows[0].get(1));
        let coming = (rows[0].get::<_, i32>(2) as u32).wrapping_add(3);
        self.horizon.learn(last, oldest, widened(coming, oldest));
        Ok(())
    }

    /// How many of these rows, which follow each other after a place, are final.
    fn final_rows(&mut self, after: i64, ids: &[i64]) -> Result<usize> {
        let mut count = self.horizon.final_rows(after, ids);
        if count < ids.len() && !self.writing {
            self.learn_horizon()?;
            count = self.horizon.final_rows(after, ids);
        }
        Ok(count)
    }

    /// The trail after a place, and whether that is all that was asked for.
    pub(super) fn trail_after(
        &mut self,
        cursor: u64,
        limit: usize,
        only_final: bool,
    ) -> Result<(Vec<Recorded>, bool)> {
        let after = i64::try_from(cursor).unwrap_or(i64::MAX);
        let rows = self.query(
            "SELECT id, count, body, record FROM scheduler_job_events WHERE id > $1 ORDER BY id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        let count = if only_final {
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            self.final_rows(after, &ids)?
        } else {
            rows.len()
        };
        let mut found = Vec::new();
        for row in &rows[..count] {
            let events = events_of_row(row)?.into_iter().map(|(event, _)| event);
            found.extend(events.filter(|event| event.cursor > cursor));
            if found.len() >= limit {
                found.truncate(limit);
                return Ok((found, true));
            }
        }
        Ok((found, count == rows.len()))
    }

    /// The trail after a place, as far as it is final. What is not is given a moment, if the snapshot has shown nothing
    /// else yet and can be replaced by a newer one.
    pub(super) fn final_trail_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        let can_renew = self.is_fresh && !self.writing;
        let mut tries = if can_renew { TRIES } else { 0 };
        loop {
            let (found, is_whole) = self.trail_after(cursor, limit, !self.writing)?;
            if is_whole || tries == 0 {
                return Ok(found);
            }
            tries -= 1;
            self.connection.execute("ROLLBACK")?;
            std::thread::sleep(BETWEEN_TRIES);
            self.begin_snapshot()?;
        }
    }

    /// The place up to which the trail is final.
    pub(super) fn trail_end(&mut self) -> Result<u64> {
        let mut tries = if self.is_fresh { TRIES } else { 0 };
        self.learn_horizon()?;
        while self
            .horizon
            .pending
            .is_some_and(|(last, _)| last > self.horizon.known)
            && tries > 0
        {
            tries -= 1;
            self.connection.execute("ROLLBACK")?;
            std::thread::sleep(BETWEEN_TRIES);
            self.begin_snapshot()?;
            self.learn_horizon()?;
        }
        let mut end = self.horizon.known;
        loop {
            let rows = self.query(
                "SELECT id FROM scheduler_job_events WHERE id > $1 ORDER BY id LIMIT 1000",
                &[&end],
            )?;
            let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
            let count = self.horizon.final_rows(end, &ids);
            let Some(last) = ids[..count].last() else {
                return Ok(end as u64);
            };
            end = *last;
        }
    }

    /// The trail of a job: rows of older versions by their index, and then the chain from its last event back.
    pub(super) fn trail_of(&mut self, job: JobId) -> Result<Vec<Recorded>> {
        let rows = self.query(
            "SELECT id, count, body, record FROM scheduler_job_events WHERE job_id = $1 ORDER BY id",
            &[&job.0],
        )?;
        let mut found = Vec::new();
        for row in &rows {
            found.extend(events_of_row(row)?.into_iter().map(|(event, _)| event));
        }
        let rows = self.query(
            "SELECT last_event FROM scheduler_jobs WHERE id = $1 \
             UNION ALL SELECT last_event FROM scheduler_jobs_history WHERE id = $1",
            &[&job.0],
        )?;
        let mut next = rows.first().and_then(|row| row.get::<_, Option<i64>>(0));
        let (mut chain, mut at_hand): (Vec<Recorded>, Vec<Chained>) = Default::default();
        while let Some(place) = next {
            let is_it = |(event, _): &&Chained| event.cursor as i64 == place;
            if !at_hand.iter().any(|event| is_it(&event)) {
                let rows = self.query(
                    "SELECT id, count, body, record FROM scheduler_job_events WHERE id >= $1 ORDER BY id LIMIT 1",
                    &[&place],
                )?;
                let Some(row) = rows.first() else { break };
                at_hand = events_of_row(row)?;
            }
            let Some((event, previous)) = at_hand.iter().find(is_it) else {
                // It was pruned.
                break;
            };
            chain.push(event.clone());
            next = previous.filter(|previous| *previous < place);
        }
        found.extend(chain.into_iter().rev());
        Ok(found)
    }

    /// Writes events at places of their own, each with the place of the one before it of the same job.
    pub(super) fn put_trail(&mut self, events: &[(Recorded, Option<u64>)]) -> Result<()> {
        let mut rows = Vec::new();
        let mut newest = i64::MIN;
        let mut scroll = Scroll::new(0);
        for (recorded, previous) in events {
            let place = recorded.cursor as i64;
            if scroll.next() != place {
                rows.extend(scroll.take_rows());
                scroll = Scroll::new(place);
            }
            newest = newest.max(to_micros(recorded.event.at));
            scroll.push(&recorded.event, previous.map(|place| place as i64));
        }
        rows.extend(scroll.take_rows());
        if rows.is_empty() {
            return Ok(());
        }
        self.change_all([insert(rows, newest)])
    }

    /// Deletes events before a time, oldest first, up to so many. A row of which a part is left is written anew; only that one is
    /// read whole.
    pub(super) fn prune_trail(&mut self, before: jiff::Timestamp, limit: usize) -> Result<u64> {
        let from = self.pruned.trail_from();
        let rows = self.query(
            "SELECT id, coalesce(count, 1), at FROM scheduler_job_events WHERE id > $1 ORDER BY id LIMIT $2",
            &[&from, &(limit as i64)],
        )?;
        let (mut whole, mut cut, mut count) = (Vec::new(), None, 0);
        for row in &rows {
            let events = row.get::<_, i32>(1) as usize;
            if row.get::<_, i64>(2) >= to_micros(before) || count + events > limit {
                cut = Some((row.get::<_, i64>(0), row.get::<_, i64>(2)));
                break;
            }
            whole.push(row.get::<_, i64>(0));
            count += events;
        }
        if let Some(last) = whole.last() {
            self.pruned.trail_until(*last);
            self.change(
                "DELETE FROM scheduler_job_events WHERE id = ANY($1)",
                &[&whole],
            )?;
        }
        if let Some((id, newest)) = cut
            && count < limit
        {
            count += self.prune_row(id, newest, before, limit - count)?;
        }
        Ok(count as u64)
    }

    /// Deletes up to so many of the first events of a row, if they happened before a time.
    fn prune_row(
        &mut self,
        id: i64,
        newest: i64,
        before: jiff::Timestamp,
        most: usize,
    ) -> Result<usize> {
        let rows = self.query(
            "SELECT id, count, body, record FROM scheduler_job_events WHERE id = $1",
            &[&id],
        )?;
        let events = rows.first().map(events_of_row).transpose()?;
        let events = events.unwrap_or_default();
        let is_old = |it: &&Chained| it.0.event.at < before;
        let old = events.iter().take(most).take_while(is_old).count();
        if old == 0 {
            return Ok(0);
        }
        self.change("DELETE FROM scheduler_job_events WHERE id = $1", &[&id])?;
        if let Some((first, _)) = events.get(old) {
            let mut scroll = Scroll::new(first.cursor as i64);
            for (recorded, previous) in &events[old..] {
                scroll.push(&recorded.event, *previous);
            }
            self.change_all([insert(scroll.take_rows(), newest)])?;
        }
        Ok(old)
    }

    /// The place that the next block begins with.
    pub(super) fn next_place(&mut self) -> Result<u64> {
        let rows = self.query(
            "SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM scheduler_event_blocks",
            &[],
        )?;
        // Where no event has been, the first place is free, as in every store.
        Ok(match rows[0].get::<_, i64>(0) {
            1 => 1,
            block => (block * BLOCK) as u64,
        })
    }

    /// No event gets a place below this one from now on.
    pub(super) fn begin_places_at(&mut self, place: u64) -> Result<()> {
        let block = (place as i64).div_euclid(BLOCK) + 1;
        self.change(
            "SELECT setval('scheduler_event_blocks', greatest($1, \
             (SELECT CASE WHEN is_called THEN last_value + 1 ELSE last_value END FROM scheduler_event_blocks)), false)",
            &[&block],
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_follow_each_other_are_final() {
        let horizon = Horizon::default();
        // From a place that was read on: the rest of its block, the next ones, and not beyond a block that is missing.
        assert_eq!(horizon.final_rows(64, &[70, 127, 128, 200, 330]), 4);
        assert_eq!(horizon.final_rows(64, &[200]), 0);
        assert_eq!(horizon.final_rows(0, &[64, 130, 256]), 2);
    }

    #[test]
    fn a_gap_is_passed_when_all_transactions_of_its_time_have_ended() {
        let mut horizon = Horizon::default();
        horizon.learn(500, 10, 20);
        assert_eq!(horizon.final_rows(64, &[330, 500]), 0);
        // Later ones run, and transaction 19 may be among those that drew a block before 500.
        horizon.learn(900, 19, 40);
        assert_eq!(horizon.final_rows(64, &[330, 500]), 0);
        horizon.learn(900, 20, 40);
        assert_eq!(horizon.final_rows(64, &[330, 500, 900]), 2);
        horizon.learn(1000, 50, 50);
        assert_eq!(horizon.final_rows(64, &[330, 500, 900]), 3);
    }

    #[test]
    fn a_number_of_a_transaction_is_widened() {
        assert_eq!(widened(7, 5), 7);
        assert_eq!(widened(7, (3 << 32) + 5), (3 << 32) + 7);
        assert_eq!(widened(7, (3 << 32) + 0xffff_fff0), (4 << 32) + 7);
    }
}
