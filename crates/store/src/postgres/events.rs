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
//! - Blocks that are never written leave gaps: their transaction was undone, or drew too many. A gap before an event that
//!   a snapshot shows is passed when all transactions have ended that may have drawn it. Which these are, the database
//!   knows: `nextval` locks the sequence before it draws, and the lock is kept until the transaction has ended.
//!
//! The argument that no event is missed. A snapshot shows an event at place *p*; then the locks on the sequence are listed
//! ([`DRAWING`]). A block before *p* was drawn before the block of *p*, so its transaction had its lock before the snapshot
//! was taken. Either it still has the lock, and is in the list; or it has ended, and since a transaction becomes visible
//! before it gives up its locks, each later snapshot shows what it wrote. So when a later list has none of the
//! transactions of the first one, a snapshot that is taken behind that list shows all events up to *p* that will ever be.
//! Blocks that are drawn after the first list have places behind *p*. Locks on relations are first kept in an array of
//! their process and may move from there to the shared table, which the list reads in that order: none is overlooked.
//!
//! Only transactions that draw places hold up a reader, for some milliseconds, and if their process stands still, until
//! the database ends them after some seconds. Other programs on the server do not, however long their transactions are.

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
/// How often, and after which time, it is asked again whether the transactions have ended that may precede an event:
/// they take some milliseconds. Picked by feel.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// The statement that draws blocks. The transaction must have its number: readers of older versions compare it.
pub(super) const DRAW: &str =
    "SELECT nextval('scheduler_event_blocks') FROM generate_series(1, $1::int)";

/// The transactions that have drawn blocks and not ended. Their names are not used again while the server runs.
const DRAWING: &str = "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' \
    AND relation = 'scheduler_event_blocks'::regclass \
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

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
    /// All up to here are final in the next snapshot.
    known: i64,
    /// A place that is final when none of these transactions runs.
    pending: Option<(i64, Vec<String>)>,
}

impl Horizon {
    /// Learns which transactions have drawn blocks and not ended, after a snapshot has shown the event at a place. It holds
    /// for snapshots that are taken later.
    fn learn(&mut self, shown: i64, drawing: Vec<String>) {
        if let Some((place, before)) = &mut self.pending {
            before.retain(|transaction| drawing.contains(transaction));
            if before.is_empty() {
                self.known = self.known.max(*place);
                self.pending = None;
            }
        }
        if shown <= self.known {
            return;
        }
        if drawing.is_empty() {
            self.known = shown;
            self.pending = None;
        } else {
            self.pending.get_or_insert((shown, drawing));
        }
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

impl PgTables {
    /// Gives up the snapshot, which showed the event at a place, waits a moment until all events before it are final, and
    /// takes a newer snapshot.
    fn renew_snapshot(&mut self, shown: i64) -> Result<()> {
        self.connection.execute("ROLLBACK")?;
        for tries in 1..=TRIES {
            let rows = self.connection.query(DRAWING, &[])?;
            let drawing = rows.iter().map(|row| row.get(0)).collect();
            self.horizon.learn(shown, drawing);
            if self.horizon.known >= shown {
                break;
            }
            if tries < TRIES {
                std::thread::sleep(BETWEEN_TRIES);
            }
        }
        self.begin_snapshot()
    }

    /// Returns `true` if the snapshot may be replaced by a newer one.
    fn can_renew(&self) -> bool {
        self.is_fresh && !self.writing
    }

    /// The trail after a place, and the last event that was found and left out because it is not final.
    pub(super) fn trail_after(
        &mut self,
        cursor: u64,
        limit: usize,
        only_final: bool,
    ) -> Result<(Vec<Recorded>, Option<i64>)> {
        let after = i64::try_from(cursor).unwrap_or(i64::MAX);
        let rows = self.query(
            "SELECT id, count, body, record FROM scheduler_job_events WHERE id > $1 ORDER BY id LIMIT $2",
            &[&after, &(limit as i64)],
        )?;
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        let count = if only_final {
            self.horizon.final_rows(after, &ids)
        } else {
            ids.len()
        };
        let mut found = Vec::new();
        for row in &rows[..count] {
            let events = events_of_row(row)?.into_iter().map(|(event, _)| event);
            found.extend(events.filter(|event| event.cursor > cursor));
            if found.len() >= limit {
                found.truncate(limit);
                return Ok((found, None));
            }
        }
        Ok((found, ids[count..].last().copied()))
    }

    /// The trail after a place, as far as it is final. What is not is given a moment, if the snapshot has shown nothing
    /// else yet and can be replaced by a newer one.
    pub(super) fn final_trail_after(&mut self, cursor: u64, limit: usize) -> Result<Vec<Recorded>> {
        let can_renew = self.can_renew();
        let (found, left_out) = self.trail_after(cursor, limit, !self.writing)?;
        match left_out {
            Some(shown) if can_renew => {
                self.renew_snapshot(shown)?;
                Ok(self.trail_after(cursor, limit, true)?.0)
            }
            _ => Ok(found),
        }
    }

    /// The place up to which the trail is final.
    pub(super) fn trail_end(&mut self) -> Result<u64> {
        let can_renew = self.can_renew();
        let rows = self.query("SELECT coalesce(max(id), 0) FROM scheduler_job_events", &[])?;
        let last: i64 = rows[0].get(0);
        if last > self.horizon.known && can_renew {
            self.renew_snapshot(last)?;
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

    fn names(transactions: &[&str]) -> Vec<String> {
        transactions.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn a_gap_is_passed_when_all_transactions_of_its_time_have_ended() {
        let mut horizon = Horizon::default();
        horizon.learn(500, names(&["3/1", "4/1"]));
        assert_eq!(horizon.final_rows(64, &[330, 500]), 0);
        // One has ended and another one has begun; 4/1 may have drawn a block before 500.
        horizon.learn(900, names(&["3/2", "4/1"]));
        assert_eq!(horizon.final_rows(64, &[330, 500]), 0);
        // All of that time have ended. Those that run now hold up what was shown now.
        horizon.learn(900, names(&["3/2", "4/2"]));
        assert_eq!(horizon.final_rows(64, &[330, 500, 900]), 2);
        horizon.learn(2000, names(&["4/2"]));
        assert_eq!(horizon.final_rows(64, &[330, 500, 900]), 2);
        horizon.learn(2000, names(&["4/3"]));
        assert_eq!(horizon.final_rows(64, &[330, 500, 900, 2000]), 3);
        horizon.learn(3000, Vec::new());
        assert_eq!(horizon.final_rows(64, &[330, 500, 900, 3000]), 4);
    }
}
