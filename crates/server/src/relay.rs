//! Output of commands on its way from a runner to the one reader that waits for it: `jobtree run`.
//!
//! Protocol. A relay is made by its reader, with the first read of a job that has not ended. The reader confirms what it has
//! printed with its next read, and that makes room. A writer (the runner, under the job's lease) asks whether anyone reads before
//! it starts the command, and then waits for room: that is the backpressure. So a relay holds at most [`ROOM`] bytes and a piece,
//! however fast the command writes, and nothing is left out.
//!
//! - A reader that has neither a read under way nor begun one for [`SILENCE`] is gone: its relay is forgotten, and the
//!   writer is told that nobody reads. The command then goes on, and its kept log is all there is.
//! - A writer repeats a request whose answer got lost: pieces are counted for each run, and known ones are not passed on twice.
//! - Another lease is another run: pieces of it are given to the reader after those of the run before, in pages of their own.
//! - A job that ends is noticed by the reader's request, which also waits for that.
//!
//! It lives in memory: after a restart of the daemon the reader makes a new one, and the runner's next run finds it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree_protocol::{JobId, LeaseId, OutputAppend, OutputAppendAnswer, OutputPage, OutputPiece};
use tokio::sync::Notify;

/// Bytes that wait to be read; picked by feel, some pieces.
const ROOM: usize = 1 << 20;
/// Bytes of a page, and one piece.
const PAGE: usize = 1 << 18;
/// A reader that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(20);
/// Relays at once.
const MOST: usize = 256;

/// All relays.
#[derive(Default)]
pub(crate) struct Relays(Mutex<HashMap<JobId, Arc<Relay>>>);

/// The relay of one job.
pub(crate) struct Relay {
    state: Mutex<State>,
    /// Told when pieces came.
    came: Notify,
    /// Told when there is room.
    room: Notify,
}

struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// How many pieces were given out and confirmed before the first that waits.
    confirmed: u64,
    /// How many pieces were given out. A reader may confirm more if it had another relay before, of a daemon that was restarted.
    given: u64,
    /// The lease and number of the run that writes, and how many of its pieces were accepted.
    writer: Option<(LeaseId, u32)>,
    accepted: u64,
    readers: usize,
    last_read: Instant,
}

struct Waiting {
    run: u32,
    piece: OutputPiece,
}

impl Waiting {
    fn bytes(&self) -> usize {
        self.piece.text.len() + self.piece.base64.len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Relays {
    /// The relay of a job for its reader, made if there is none. None if there are too many.
    pub(crate) fn to_read(&self, job: JobId) -> Option<Arc<Relay>> {
        let mut relays = lock(&self.0);
        relays.retain(|id, relay| *id == job || relay.has_reader());
        if let Some(relay) = relays.get(&job) {
            return Some(Arc::clone(relay));
        }
        if relays.len() >= MOST {
            return None;
        }
        let relay = Arc::new(Relay::new());
        relays.insert(job, Arc::clone(&relay));
        Some(relay)
    }

    /// The relay of a job for its writer; none if nobody reads.
    pub(crate) fn to_write(&self, job: JobId) -> Option<Arc<Relay>> {
        let relays = lock(&self.0);
        let relay = relays.get(&job)?;
        relay.has_reader().then(|| Arc::clone(relay))
    }

    /// Forgets the relay of a job: all of it was read.
    pub(crate) fn forget(&self, job: JobId) {
        lock(&self.0).remove(&job);
    }
}

impl Relay {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                bytes: 0,
                confirmed: 0,
                given: 0,
                writer: None,
                accepted: 0,
                readers: 0,
                last_read: Instant::now(),
            }),
            came: Notify::new(),
            room: Notify::new(),
        }
    }

    fn has_reader(&self) -> bool {
        let state = lock(&self.state);
        state.readers > 0 || state.last_read.elapsed() < SILENCE
    }

    /// Begins a read, which counts as a reader until it is dropped. What was given out up to `after` is confirmed.
    pub(crate) fn read(self: &Arc<Self>, after: u64) -> Read {
        {
            let mut state = lock(&self.state);
            state.readers += 1;
            while state.confirmed < after.min(state.given)
                && let Some(gone) = state.waiting.pop_front()
            {
                state.confirmed += 1;
                state.bytes -= gone.bytes();
            }
        }
        self.room.notify_waiters();
        Read(Arc::clone(self))
    }

    /// Takes pieces of a run, as far as there is room; waits for some, but no longer than `wait`.
    pub(crate) async fn append(&self, append: OutputAppend, wait: Duration) -> OutputAppendAnswer {
        let until = tokio::time::Instant::now() + wait;
        let (lease_id, run) = (append.lease_id, append.run);
        let mut pieces = append.pieces.into_iter();
        let mut place = append.offset;
        let mut next: Option<OutputPiece> = None;
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Before the look, so that nothing is missed in between.
            room.as_mut().enable();
            let accepted = {
                let mut state = lock(&self.state);
                if state.writer != Some((lease_id, run)) {
                    (state.writer, state.accepted) = (Some((lease_id, run)), 0);
                }
                while let Some(piece) = next.take().or_else(|| pieces.next()) {
                    if place < state.accepted {
                        place += 1;
                        continue;
                    }
                    if state.bytes >= ROOM {
                        next = Some(piece);
                        break;
                    }
                    let waiting = Waiting { run, piece };
                    state.bytes += waiting.bytes();
                    state.waiting.push_back(waiting);
                    state.accepted = place + 1;
                    place += 1;
                }
                state.accepted
            };
            self.came.notify_waiters();
            let answer = OutputAppendAnswer {
                is_read: self.has_reader(),
                next_offset: accepted,
            };
            if next.is_none() || !answer.is_read {
                return answer;
            }
            let patience = until.min(tokio::time::Instant::now() + Duration::from_secs(1));
            let over = tokio::time::timeout_at(patience, room).await.is_err();
            if over && tokio::time::Instant::now() >= until {
                return answer;
            }
        }
    }
}

/// A read under way.
pub(crate) struct Read(Arc<Relay>);

impl Read {
    /// What waits to be read, of one run.
    pub(crate) fn page(&self) -> OutputPage {
        let mut state = lock(&self.0.state);
        let Some(first) = state.waiting.front() else {
            return OutputPage {
                run: state.writer.map_or(0, |(_, run)| run),
                pieces: Vec::new(),
                next: state.confirmed,
                ended: false,
            };
        };
        let (run, mut bytes) = (first.run, 0);
        let of_run = state
            .waiting
            .iter()
            .take_while(|waiting| waiting.run == run);
        let fits = |waiting: &&Waiting| {
            let before = bytes;
            bytes += waiting.bytes();
            before < PAGE
        };
        let pieces: Vec<_> = of_run
            .take_while(fits)
            .map(|waiting| waiting.piece.clone())
            .collect();
        let next = state.confirmed + pieces.len() as u64;
        state.given = state.given.max(next);
        OutputPage {
            run,
            pieces,
            next,
            ended: false,
        }
    }

    /// Returns when something came; perhaps too early.
    pub(crate) async fn came(&self) {
        let came = self.0.came.notified();
        tokio::pin!(came);
        came.as_mut().enable();
        if self.page().pieces.is_empty() {
            came.await;
        }
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.readers -= 1;
        state.last_read = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jobtree_protocol::OutputStream;

    fn piece(text: &str) -> OutputPiece {
        OutputPiece {
            stream: OutputStream::Stdout,
            text: text.to_owned(),
            base64: String::new(),
        }
    }

    fn append(lease: u8, run: u32, offset: u64, pieces: &[&str]) -> OutputAppend {
        OutputAppend {
            lease_id: LeaseId::from_random([lease; 16]),
            run,
            offset,
            pieces: pieces.iter().map(|text| piece(text)).collect(),
        }
    }

    fn texts(page: &OutputPage) -> Vec<&str> {
        page.pieces
            .iter()
            .map(|piece| piece.text.as_str())
            .collect()
    }

    #[tokio::test]
    async fn pieces_come_once_in_order_and_run_by_run() {
        let (relays, job) = (Relays::default(), JobId::generate());
        assert!(relays.to_write(job).is_none(), "nobody reads");
        let relay = relays.to_read(job).unwrap();
        let read = relay.read(0);
        let writer = relays.to_write(job).unwrap();
        let none = Duration::ZERO;
        let answer = writer.append(append(1, 1, 0, &["a", "b"]), none).await;
        assert_eq!((answer.is_read, answer.next_offset), (true, 2));
        // Its answer got lost, and it goes on.
        writer.append(append(1, 1, 1, &["b", "c"]), none).await;
        writer.append(append(2, 2, 0, &["d"]), none).await;
        let page = read.page();
        assert_eq!(
            (page.run, texts(&page), page.next),
            (1, vec!["a", "b", "c"], 3)
        );
        // The same until it is confirmed.
        assert_eq!(relay.read(0).page(), page);
        let page = relay.read(page.next).page();
        assert_eq!((page.run, texts(&page), page.next), (2, vec!["d"], 4));
        assert_eq!(relay.read(4).page().pieces, []);
        // A daemon that was restarted has another relay, of which nothing is confirmed yet.
        let (relays, none) = (Relays::default(), Duration::ZERO);
        let relay = relays.to_read(job).unwrap();
        relay.append(append(3, 3, 0, &["e"]), none).await;
        let page = relay.read(4).page();
        assert_eq!((page.run, texts(&page), page.next), (3, vec!["e"], 1));
    }

    #[tokio::test]
    async fn a_writer_waits_for_room_and_no_longer_than_for_its_reader() {
        let (relays, job) = (Relays::default(), JobId::generate());
        let relay = relays.to_read(job).unwrap();
        let reading = relay.read(0);
        let large = "x".repeat(ROOM);
        let some = [large.as_str(), "y"];
        let answer = relay.append(append(1, 1, 0, &some), Duration::ZERO).await;
        assert_eq!(answer.next_offset, 1, "there was room for one");
        let writing = {
            let relay = Arc::clone(&relay);
            let rest = append(1, 1, 1, &["y"]);
            tokio::spawn(async move { relay.append(rest, Duration::from_secs(600)).await })
        };
        let page = reading.page();
        assert_eq!((page.pieces.len(), page.next), (1, 1));
        let next = relay.read(page.next);
        assert_eq!(writing.await.unwrap().next_offset, 2);
        assert_eq!(texts(&next.page()), ["y"]);
        drop((reading, next));
        lock(&relay.state).last_read = Instant::now() - SILENCE;
        let answer = relay
            .append(append(1, 1, 2, &[&large, "z"]), Duration::from_secs(600))
            .await;
        assert!(!answer.is_read, "the reader is gone");
        assert!(relays.to_write(job).is_none());
    }
}
