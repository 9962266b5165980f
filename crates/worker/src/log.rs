//! What a run printed and is yet to be sent.
//!
//! It is bounded: a run that prints faster than it can be sent, and does not ask for room, loses lines, and is told so in its log. A piece is kept until
//! it was answered for, and sent again with the same offset if it was not: whoever keeps the log knows it by that.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_protocol::{ApiError, ErrorCode, LeaseId, LogAppend, LogAppendAnswer};

use crate::reply::{Promise, Reply, promise};

/// Pieces are sent this often at most, but for those that are full.
const EVERY: Duration = Duration::from_millis(250);
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// What may wait to be sent.
const MOST_WAITING: usize = 256 * 1024;
const LARGEST_PIECE: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct RunLog(Mutex<State>);

#[derive(Default)]
struct State {
    /// What was not answered for, from `sent` on.
    text: String,
    sent: u64,
    flying: bool,
    not_before: Duration,
    left_out: u64,
    /// Nobody keeps more.
    full: bool,
    /// Who waits until all of it is sent.
    waiting: Option<Promise<()>>,
}

impl RunLog {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line. Whether there was nothing to send before.
    pub(crate) fn add(&self, line: &str) -> bool {
        let mut state = self.lock();
        if state.full {
            return false;
        }
        if state.text.len() + line.len() + 1 > MOST_WAITING {
            state.left_out += line.len() as u64 + 1;
            return false;
        }
        let first = state.text.is_empty();
        state.text.push_str(line);
        if !line.ends_with('\n') {
            state.text.push('\n');
        }
        first
    }

    /// Returns `true` if so many bytes may be added now, or none of what is added is kept.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let state = self.lock();
        state.full || state.text.is_empty() || state.text.len() + bytes < MOST_WAITING
    }

    /// Returns how many bytes were answered for.
    pub(crate) fn sent(&self) -> u64 {
        self.lock().sent
    }

    /// When there is something to be done about it.
    pub(crate) fn next(&self) -> Option<Duration> {
        let state = self.lock();
        let idle = state.text.is_empty() || state.flying;
        (!idle).then_some(state.not_before)
    }

    /// The piece to send now, if one is due; it is then on its way.
    pub(crate) fn due(&self, lease_id: LeaseId, now: Duration) -> Option<LogAppend> {
        let mut state = self.lock();
        if state.flying || state.text.is_empty() || now < state.not_before {
            return None;
        }
        state.flying = true;
        state.not_before = now + EVERY;
        let end = state.text.floor_char_boundary(LARGEST_PIECE);
        Some(LogAppend {
            lease_id,
            offset: state.sent,
            text: state.text[..end].to_owned(),
        })
    }

    /// The piece was kept, or that much of it.
    pub(crate) fn answered(&self, answer: LogAppendAnswer) {
        let mut state = self.lock();
        state.flying = false;
        if answer.full {
            return state.end();
        }
        let taken = answer.next_offset.saturating_sub(state.sent);
        let taken = usize::try_from(taken).unwrap_or(usize::MAX);
        let taken = taken.min(state.text.len());
        let taken = state.text.floor_char_boundary(taken);
        state.text.drain(..taken);
        state.sent += taken as u64;
        let left_out = std::mem::take(&mut state.left_out);
        if left_out > 0 {
            state.text.push_str(&format!(
                "[{left_out} bytes left out: they came faster than they could be sent]\n"
            ));
        }
        if state.waiting.is_some() || state.text.len() >= LARGEST_PIECE {
            state.not_before = Duration::ZERO;
        }
        state.tell_if_empty();
    }

    /// The piece was not kept.
    pub(crate) fn refused(&self, error: &ApiError, now: Duration) {
        let mut state = self.lock();
        state.flying = false;
        state.not_before = now + AGAIN_AFTER;
        if !matches!(
            error.code,
            ErrorCode::Unavailable | ErrorCode::NotNow | ErrorCode::TooMany
        ) {
            state.end();
        }
    }

    /// Nothing of it is sent any more.
    pub(crate) fn give_up(&self) {
        self.lock().end();
    }

    /// Ready when all of it is sent; nothing if it is already.
    pub(crate) fn flush(&self) -> Option<Reply<()>> {
        let mut state = self.lock();
        if state.text.is_empty() {
            return None;
        }
        if !state.flying {
            state.not_before = Duration::ZERO;
        }
        let (sent, promised) = promise();
        state.waiting = Some(sent);
        Some(Reply::new(promised))
    }
}

impl State {
    fn end(&mut self) {
        self.full = true;
        self.text.clear();
        self.tell_if_empty();
    }

    fn tell_if_empty(&mut self) {
        if self.text.is_empty()
            && let Some(waiting) = self.waiting.take()
        {
            // Whoever waited may have gone.
            let _ = waiting.keep(Ok(()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(1);

    fn kept(next_offset: u64) -> LogAppendAnswer {
        LogAppendAnswer {
            next_offset,
            full: false,
        }
    }

    fn piece(log: &RunLog, now: Duration) -> Option<(u64, String)> {
        let piece = log.due(LeaseId::generate(), now)?;
        Some((piece.offset, piece.text))
    }

    #[test]
    fn pieces_follow_each_other_and_are_paced() {
        let log = RunLog::default();
        assert!(log.next().is_none() && log.flush().is_none());
        assert!(log.add("one") && !log.add("two\n"));
        assert_eq!(piece(&log, SOON), Some((0, "one\ntwo\n".to_owned())));
        assert!(log.next().is_none(), "it is on its way");
        log.add("three");
        assert_eq!(piece(&log, SOON * 2), None);
        log.answered(kept(8));
        assert_eq!(piece(&log, SOON), None, "not so soon");
        assert_eq!(piece(&log, SOON * 2), Some((8, "three\n".to_owned())));
    }

    #[test]
    fn full_pieces_follow_each_other_at_once_and_make_room() {
        let log = RunLog::default();
        let line = "x".repeat(LARGEST_PIECE - 1);
        for _ in 0..3 {
            log.add(&line);
        }
        assert!(log.has_room(LARGEST_PIECE - 1) && !log.has_room(LARGEST_PIECE));
        let size = LARGEST_PIECE as u64;
        for sent in 0..3 {
            assert_eq!(log.sent(), sent * size);
            let found = piece(&log, SOON).expect("it is due");
            assert_eq!((found.0, found.1.len()), (sent * size, LARGEST_PIECE));
            log.answered(kept((sent + 1) * size));
        }
        assert!(log.has_room(2 * MOST_WAITING), "nothing waits");
        log.add("one");
        assert_eq!(piece(&log, SOON), None, "not so soon, since it is small");
    }

    #[test]
    fn what_was_not_answered_for_is_sent_again() {
        let log = RunLog::default();
        log.add("one");
        let first = piece(&log, SOON);
        log.refused(&ApiError::new(ErrorCode::Unavailable, "later"), SOON);
        assert_eq!(piece(&log, SOON), None);
        assert_eq!(piece(&log, SOON * 2), first);
        // Half of it was kept.
        log.answered(kept(2));
        assert_eq!(piece(&log, SOON * 3), Some((2, "e\n".to_owned())));
    }

    #[test]
    fn whoever_waits_hears_when_all_is_sent() {
        let log = RunLog::default();
        log.add("one");
        piece(&log, SOON);
        log.add("two");
        let flushed = log.flush().unwrap();
        log.answered(kept(4));
        assert_eq!(
            log.next(),
            Some(Duration::ZERO),
            "at once, since somebody waits"
        );
        assert_eq!(piece(&log, SOON), Some((4, "two\n".to_owned())));
        log.answered(kept(8));
        flushed.wait().unwrap();
        log.add("three");
        let flushed = log.flush().unwrap();
        log.give_up();
        flushed.wait().unwrap();
        assert!(!log.add("four") && log.next().is_none());
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let log = RunLog::default();
        let line = "x".repeat(MOST_WAITING / 2);
        log.add(&line);
        log.add(&line);
        let mut text = String::new();
        let mut now = SOON;
        while let Some((offset, piece)) = piece(&log, now) {
            assert_eq!(offset, text.len() as u64);
            assert!(piece.len() <= LARGEST_PIECE);
            text.push_str(&piece);
            log.answered(kept(text.len() as u64));
            now += SOON;
        }
        let note = format!("[{} bytes left out", line.len() + 1);
        assert!(text.lines().nth(1).unwrap().starts_with(&note));
    }

    #[test]
    fn a_log_that_is_full_takes_no_more() {
        let log = RunLog::default();
        log.add("one");
        piece(&log, SOON);
        log.answered(LogAppendAnswer {
            next_offset: 4,
            full: true,
        });
        assert!(!log.add("two") && log.next().is_none());
    }
}
