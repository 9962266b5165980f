//! What jobs print, as it is kept: text in chunks, one behind the other whichever run printed them, and for each job how
//! far its log has come.
//!
//! A place in a log is the number of bytes before it that were kept. A chunk is written once and never changed; what
//! changes with each append is the [`LogEnd`], a row of a few numbers. A run says where in its own output a text
//! belongs, so the same text sent twice is kept once: the end remembers how far the last run has come. There is no other
//! run to remember, since only the lease that a job runs under may append to its log.
//!
//! Each run has a limit of its own: a first attempt that fills it leaves the next one its room. So that a job which is
//! given back and claimed again for ever does not fill the disk, all runs together have a limit, too ([`Room`]).

use jiff::Timestamp;
use jobtree_protocol::{JobId, LeaseId, LogAppend, LogPage, LogTime, whole_micros};
use jobtree_queue::record::JobRecord;
use jobtree_queue::transitions::Rules;

use crate::error::StoreError;
use crate::tables::{Reading, Result};

/// A chunk has at most so many bytes; longer texts are kept in several.
pub const CHUNK_BYTES: usize = 64 << 10;

/// A page has at most so many bytes of text.
const PAGE_BYTES: usize = 256 << 10;

/// Where a job's log ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnd {
    /// The lease of the run that printed last.
    pub lease_id: LeaseId,
    /// How many bytes of that run's output are dealt with, kept or not.
    pub offset: u64,
    /// How many bytes are kept, of all runs.
    pub kept: u64,
    /// How many bytes are kept of the run that printed last.
    pub run_kept: u64,
    /// How many are not.
    pub left_out: u64,
    /// Nothing more is kept of this run.
    pub full: bool,
}

/// How many bytes of a log are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Of one run.
    pub run: u64,
    /// Of all runs of the job.
    pub total: u64,
}

impl Room {
    /// Returns the room of a job's log: so much for each run that is counted, which are attempts and rescues. Runs that
    /// are not counted (given back, snoozed) share it.
    pub(crate) fn of(job: &JobRecord, rules: &Rules) -> Self {
        let run = rules.log_bytes as u64;
        let counted = u64::from(job.intent.max_attempts) + u64::from(rules.quarantine_after);
        let counted = counted.saturating_mul(u64::from(job.redrives) + 1);
        Self {
            run,
            total: run.saturating_mul(counted),
        }
    }
}

/// A piece of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogChunk {
    /// Where it ends.
    pub end: u64,
    /// The text.
    pub text: String,
    /// The time at which it was kept; none of what an older version wrote.
    pub at: Option<Timestamp>,
}

impl LogChunk {
    fn start(&self) -> u64 {
        self.end.saturating_sub(self.text.len() as u64)
    }
}

/// What a snapshot can answer of logs.
pub trait ReadLogs {
    /// Where a job's log ends; none if it never printed anything.
    fn log_end(&mut self, job: JobId) -> Result<Option<LogEnd>>;

    /// The chunks with text between these places, in order.
    fn log_chunks(&mut self, job: JobId, from: u64, to: u64) -> Result<Vec<LogChunk>>;
}

/// What a transaction can do to logs. They go with their jobs when history is pruned.
pub trait WriteLogs {
    /// Adds chunks to a job's log, and moves its end.
    fn append_log(&mut self, job: JobId, end: &LogEnd, chunks: &[LogChunk]) -> Result<()>;
}

/// What an append at this time does: the new end, and what is kept of it.
pub(crate) fn appended(
    before: Option<LogEnd>,
    append: &LogAppend,
    at: Timestamp,
    room: Room,
) -> (LogEnd, Vec<LogChunk>) {
    let mut end = match before {
        Some(end) if end.lease_id == append.lease_id => end,
        // Another run begins to print.
        before => LogEnd {
            lease_id: append.lease_id,
            offset: 0,
            kept: before.as_ref().map_or(0, |end| end.kept),
            run_kept: 0,
            left_out: before.as_ref().map_or(0, |end| end.left_out),
            full: false,
        },
    };
    let known = end.offset.saturating_sub(append.offset);
    let known = usize::try_from(known).map_or(append.text.len(), |it| it.min(append.text.len()));
    // A worker that counts otherwise than it sends may point into a character.
    let new = &append.text[append.text.ceil_char_boundary(known)..];
    if new.is_empty() {
        return (end, Vec::new());
    }
    end.left_out += append.offset.saturating_sub(end.offset);
    end.offset = append.offset + append.text.len() as u64;
    let left = |room: Room, end: &LogEnd| {
        let (run, total) = (room.run, room.total);
        (run.saturating_sub(end.run_kept)).min(total.saturating_sub(end.kept))
    };
    let most = if end.full { 0 } else { left(room, &end) };
    let kept = &new[..new.floor_char_boundary(usize::try_from(most).unwrap_or(usize::MAX))];
    let chunks = split(kept, end.kept, at);
    end.kept += kept.len() as u64;
    end.run_kept += kept.len() as u64;
    end.left_out += (new.len() - kept.len()) as u64;
    end.full |= kept.len() < new.len() || left(room, &end) == 0;
    (end, chunks)
}

/// A text that begins at a place, in chunks.
fn split(text: &str, from: u64, at: Timestamp) -> Vec<LogChunk> {
    let (mut rest, mut end, mut chunks) = (text, from, Vec::new());
    while !rest.is_empty() {
        let (chunk, behind) = rest.split_at(rest.floor_char_boundary(CHUNK_BYTES));
        end += chunk.len() as u64;
        chunks.push(LogChunk {
            end,
            text: chunk.to_owned(),
            at: Some(whole_micros(at)),
        });
        rest = behind;
    }
    chunks
}

/// The text after a place, at most so many bytes, and the place behind it. Characters are never split.
fn joined(chunks: &[LogChunk], after: u64, most: usize) -> (String, u64) {
    let (mut text, mut next) = (String::new(), after);
    for chunk in chunks.iter().filter(|chunk| chunk.end > after) {
        let known = next.saturating_sub(chunk.start()) as usize;
        let known = chunk.text.ceil_char_boundary(known);
        let room = most - text.len();
        let part = &chunk.text[known..];
        let part = &part[..part.floor_char_boundary(room)];
        text.push_str(part);
        next = chunk.start() + (known + part.len()) as u64;
        if next < chunk.end {
            break;
        }
    }
    (text, next)
}

/// Returns the times at which the parts of the text between two places were kept.
fn times(chunks: &[LogChunk], from: u64, to: u64) -> Vec<LogTime> {
    let within = chunks
        .iter()
        .filter(|chunk| chunk.end > from && chunk.start() < to);
    let known = within.filter_map(|chunk| {
        let place = chunk.start().max(from);
        chunk.at.map(|at| LogTime { place, at })
    });
    known.collect()
}

/// A page of a job's log: what [`Store::log`](crate::Store::log) answers, of a snapshot at hand.
pub fn read_log(
    tables: &mut dyn Reading,
    job_id: JobId,
    after: u64,
    most: usize,
) -> Result<LogPage> {
    // Less than a character would never come to an end.
    let most = most.clamp(4, PAGE_BYTES);
    let job = tables.jobs(&[job_id])?.pop();
    let job = job.ok_or(StoreError::NoJob(job_id))?;
    let end = tables.log_end(job_id)?;
    let kept = end.as_ref().map_or(0, |end| end.kept);
    let after = after.min(kept);
    let chunks = match after < kept {
        true => tables.log_chunks(job_id, after, kept.min(after.saturating_add(most as u64)))?,
        false => Vec::new(),
    };
    let (text, next) = joined(&chunks, after, most);
    Ok(LogPage {
        job_id,
        times: times(&chunks, after, next),
        text,
        next,
        ended: job.state.is_ended() && next >= kept,
        left_out: end.map_or(0, |end| end.left_out),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: Timestamp = Timestamp::constant(1_767_268_800, 1);

    fn room(run: u64) -> Room {
        let total = run.saturating_mul(3);
        Room { run, total }
    }

    fn append(offset: u64, text: &str) -> LogAppend {
        LogAppend {
            lease_id: LeaseId::from_random([1; 16]),
            offset,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_into_chunks_and_joined_again() {
        let text = "aé€𝄞".repeat(40_000);
        let (end, chunks) = appended(None, &append(0, &text), NOON, room(u64::MAX));
        assert_eq!(end.kept, text.len() as u64);
        assert!(chunks.len() > 5);
        assert!(chunks.iter().all(|chunk| chunk.text.len() <= CHUNK_BYTES));
        for most in [4, 7, 1000, CHUNK_BYTES + 1, text.len()] {
            let (mut whole, mut at) = (String::new(), 0);
            while at < end.kept && whole.len() < 300_000 {
                let (part, next) = joined(&chunks, at, most);
                assert!(next > at && part.len() <= most);
                whole.push_str(&part);
                at = next;
                if most < 100 && whole.len() > 2000 {
                    break;
                }
            }
            assert!(text.starts_with(&whole) && !whole.is_empty(), "{most}");
        }
        let (part, next) = joined(&chunks, 2, 4);
        assert_eq!((part.as_str(), next), ("€", 6), "from the middle of é");
    }

    #[test]
    fn what_is_known_is_not_kept_twice_and_a_gap_is_counted() {
        let (end, first) = appended(None, &append(0, "one "), NOON, room(100));
        assert_eq!(first[0].text, "one ");
        let (again, nothing) = appended(Some(end.clone()), &append(0, "one "), NOON, room(100));
        assert_eq!((again, nothing), (end.clone(), Vec::new()));
        let (end, more) = appended(Some(end), &append(0, "one two "), NOON, room(100));
        assert_eq!((more[0].text.as_str(), more[0].end), ("two ", 8));
        let (end, after) = appended(Some(end), &append(18, "three"), NOON, room(100));
        assert_eq!((after[0].text.as_str(), after[0].end), ("three", 13));
        assert_eq!((end.offset, end.kept, end.left_out), (23, 13, 10));
    }

    #[test]
    fn a_page_tells_when_its_parts_were_kept() {
        let (end, first) = appended(None, &append(0, "one "), NOON, room(100));
        let later = Timestamp::constant(1_767_268_801, 0);
        let (_, second) = appended(Some(end), &append(4, "two "), later, room(100));
        let old = LogChunk {
            end: 10,
            text: "x ".to_owned(),
            at: None,
        };
        let chunks = [first, second, vec![old]].concat();
        let told = |from, to| -> Vec<_> {
            let times = times(&chunks, from, to);
            times.iter().map(|time| (time.place, time.at)).collect()
        };
        let noon = whole_micros(NOON);
        assert_eq!(told(0, 10), [(0, noon), (4, later)]);
        assert_eq!(told(2, 4), [(2, noon)]);
        assert_eq!(told(5, 10), [(5, later)]);
    }

    #[test]
    fn a_full_log_counts_and_keeps_nothing_more() {
        let (end, kept) = appended(None, &append(0, "ééé"), NOON, room(5));
        assert_eq!(kept[0].text, "éé", "no half character");
        assert!(end.full);
        assert_eq!((end.offset, end.kept, end.left_out), (6, 4, 2));
        let (end, kept) = appended(Some(end), &append(6, "x"), NOON, room(5));
        assert_eq!(kept, [], "nothing behind a hole");
        assert_eq!((end.offset, end.kept, end.left_out), (7, 4, 3));
    }

    #[test]
    fn each_run_has_its_room_until_all_of_them_have_used_theirs() {
        let of_run = |run: u8, offset, text: &str| LogAppend {
            lease_id: LeaseId::from_random([run; 16]),
            ..append(offset, text)
        };
        let room = Room { run: 5, total: 12 };
        let (mut end, mut kept) = (None, Vec::new());
        for run in 1..=4 {
            let (next, chunks) = appended(end, &of_run(run, 0, "123456"), NOON, room);
            assert!(next.full, "run {run}");
            kept.push((
                chunks.iter().map(|chunk| chunk.text.len()).sum(),
                next.run_kept,
            ));
            end = Some(next);
        }
        assert_eq!(kept, [(5, 5), (5, 5), (2, 2), (0, 0)]);
        let end = end.expect("four runs");
        assert_eq!((end.kept, end.left_out), (12, 1 + 1 + 4 + 6));
    }
}
