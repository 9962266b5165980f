//! The standard input of commands on its way from `jobtree run` to the runner.
//!
//! Protocol. An input is made by its sender, which goes on sending (nothing, if it has nothing) while the job has not ended. The
//! runner reads under the job's lease, and confirms with each read what it has passed on; that makes room. So an input holds at
//! most [`ROOM`] bytes and one request, however fast its sender is and however long the command does not read.
//!
//! What was given to a run is gone: a second run (another lease) can begin to read only if the first was given nothing. Else its
//! input is lost, as it is when its sender is silent for [`SILENCE`] before the end, or when the daemon was restarted after
//! something was sent. A command whose input is lost is stopped, since a part must not pass for the whole.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree_protocol::{INPUT_AT_ONCE, InputAppend, InputAppendAnswer, InputPage, JobId, LeaseId};
use tokio::sync::Notify;

/// Bytes that wait to be read; picked by feel, some requests.
const ROOM: usize = 1 << 20;
/// A sender that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Inputs at once.
const MOST: usize = 256;

/// All inputs.
#[derive(Default)]
pub(crate) struct Inputs(Mutex<HashMap<JobId, Arc<Input>>>);

/// The input of one job.
pub(crate) struct Input {
    state: Mutex<State>,
    /// Told when bytes came, or the end.
    came: Notify,
    /// Told when there is room.
    room: Notify,
}

struct State {
    /// Bytes that were not confirmed.
    waiting: VecDeque<u8>,
    /// How many bytes were confirmed before these.
    confirmed: u64,
    /// How many bytes were given to the reader.
    given: u64,
    reader: Option<LeaseId>,
    ended: bool,
    lost: bool,
    last_sent: Instant,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inputs {
    /// The input of a job for its sender, made if there is none. None if there are too many.
    pub(crate) fn to_send(&self, job: JobId) -> Option<Arc<Input>> {
        let mut inputs = lock(&self.0);
        inputs.retain(|id, input| *id == job || !input.is_abandoned());
        if let Some(input) = inputs.get(&job) {
            return Some(Arc::clone(input));
        }
        if inputs.len() >= MOST {
            return None;
        }
        let input = Arc::new(Input::new());
        inputs.insert(job, Arc::clone(&input));
        Some(input)
    }

    /// The input of a job for its reader.
    pub(crate) fn to_read(&self, job: JobId) -> Option<Arc<Input>> {
        lock(&self.0).get(&job).map(Arc::clone)
    }

    /// Forgets the input of a job that has ended.
    pub(crate) fn forget(&self, job: JobId) {
        lock(&self.0).remove(&job);
    }
}

impl Input {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                confirmed: 0,
                given: 0,
                reader: None,
                ended: false,
                lost: false,
                last_sent: Instant::now(),
            }),
            came: Notify::new(),
            room: Notify::new(),
        }
    }

    /// Returns `true` if neither side has used it for long.
    fn is_abandoned(&self) -> bool {
        lock(&self.state).last_sent.elapsed() > 4 * SILENCE
    }

    /// Takes bytes as far as there is room; waits for some, but no longer than `wait`.
    pub(crate) async fn append(
        &self,
        append: &InputAppend,
        bytes: &[u8],
        wait: Duration,
    ) -> InputAppendAnswer {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let room_made = self.room.notified();
            tokio::pin!(room_made);
            // Before the look, so that nothing is missed in between.
            room_made.as_mut().enable();
            let (answer, all, has_news) = {
                let mut state = lock(&self.state);
                state.last_sent = Instant::now();
                let accepted = state.confirmed + state.waiting.len() as u64;
                // The bytes before these went to a daemon that was restarted.
                state.lost |= append.offset > accepted;
                let known = usize::try_from(accepted.saturating_sub(append.offset));
                let rest = bytes.get(known.unwrap_or(usize::MAX)..).unwrap_or_default();
                let room = ROOM.saturating_sub(state.waiting.len());
                let (fits, behind) = rest.split_at(room.min(rest.len()));
                if !state.lost {
                    state.waiting.extend(fits);
                    state.ended |= append.ended && behind.is_empty();
                }
                let next_offset = state.confirmed + state.waiting.len() as u64;
                let closed = state.lost;
                let answer = InputAppendAnswer {
                    next_offset,
                    closed,
                };
                let has_news = !fits.is_empty() || append.ended || closed;
                (answer, behind.is_empty() || closed, has_news)
            };
            // Only with news: two sides that wake each other for nothing never rest.
            if has_news {
                self.came.notify_waiters();
            }
            if all || tokio::time::timeout_at(until, room_made).await.is_err() {
                return answer;
            }
        }
    }

    /// What waits to be read by the run under this lease, behind what it confirms by `after`.
    fn page(&self, lease: LeaseId, after: u64) -> InputPage {
        let mut state = lock(&self.state);
        if state.reader != Some(lease) {
            // A run before this one was given a part of it.
            state.lost |= state.given > 0;
            state.reader = Some(lease);
        }
        let confirmed = after.min(state.given).saturating_sub(state.confirmed);
        let count = usize::try_from(confirmed).unwrap_or(usize::MAX);
        let count = count.min(state.waiting.len());
        state.waiting.drain(..count);
        state.confirmed += count as u64;
        if count > 0 {
            self.room.notify_waiters();
        }
        state.lost |= !state.ended && state.last_sent.elapsed() > SILENCE;
        if state.lost {
            return InputPage {
                lost: true,
                ..InputPage::default()
            };
        }
        let size = state.waiting.len().min(INPUT_AT_ONCE);
        let bytes: Vec<u8> = state.waiting.iter().take(size).copied().collect();
        let next = state.confirmed + size as u64;
        state.given = state.given.max(next);
        InputPage {
            base64: jobtree_protocol::base64::encode(&bytes),
            next,
            ended: state.ended && size == state.waiting.len(),
            lost: false,
        }
    }

    /// Waits for bytes or the end, but no longer than `wait`.
    pub(crate) async fn read(&self, lease: LeaseId, after: u64, wait: Duration) -> InputPage {
        let until = tokio::time::Instant::now() + wait;
        loop {
            let came = self.came.notified();
            tokio::pin!(came);
            came.as_mut().enable();
            let page = self.page(lease, after);
            if !page.base64.is_empty() || page.ended || page.lost {
                return page;
            }
            let look = until.min(tokio::time::Instant::now() + Duration::from_secs(1));
            let over = tokio::time::timeout_at(look, came).await.is_err();
            if over && tokio::time::Instant::now() >= until {
                return page;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(number: u8) -> LeaseId {
        LeaseId::from_random([number; 16])
    }

    async fn send(input: &Input, offset: u64, bytes: &[u8]) -> InputAppendAnswer {
        let append = InputAppend::of(offset, bytes);
        input.append(&append, bytes, Duration::ZERO).await
    }

    #[tokio::test]
    async fn bytes_come_once_in_order_and_make_room_when_they_are_confirmed() {
        let (inputs, job) = (Inputs::default(), JobId::generate());
        assert!(inputs.to_read(job).is_none());
        let input = inputs.to_send(job).unwrap();
        let large = vec![b'x'; ROOM + 10];
        assert_eq!(send(&input, 0, &large).await.next_offset, ROOM as u64);
        // Its answer got lost.
        assert_eq!(send(&input, 0, &large).await.next_offset, ROOM as u64);
        let (mut after, mut count) = (0, 0);
        while count < large.len() {
            let page = input.read(lease(1), after, Duration::ZERO).await;
            assert_eq!(page, input.read(lease(1), after, Duration::ZERO).await);
            count += page.bytes().unwrap().len();
            after = page.next;
            input.read(lease(1), after, Duration::ZERO).await;
            send(&input, ROOM as u64, &large[ROOM..]).await;
        }
        assert_eq!(count, large.len());
        let end = InputAppend {
            offset: large.len() as u64,
            ended: true,
            ..InputAppend::default()
        };
        input.append(&end, &[], Duration::ZERO).await;
        assert!(input.read(lease(1), after, Duration::ZERO).await.ended);
    }

    #[tokio::test]
    async fn a_second_run_can_read_only_what_no_run_was_given() {
        let input = Input::new();
        assert!(!input.read(lease(1), 0, Duration::ZERO).await.lost);
        send(&input, 0, b"abc").await;
        assert_eq!(
            input
                .read(lease(2), 0, Duration::ZERO)
                .await
                .bytes()
                .unwrap(),
            b"abc"
        );
        assert!(input.read(lease(3), 0, Duration::ZERO).await.lost);
        assert!(send(&input, 3, b"d").await.closed);
    }

    #[tokio::test]
    async fn a_part_that_a_restarted_daemon_has_lost_does_not_pass_for_the_whole() {
        let input = Input::new();
        assert!(send(&input, 3, b"def").await.closed);
        assert!(input.read(lease(1), 0, Duration::ZERO).await.lost);
        let silent = Input::new();
        send(&silent, 0, b"abc").await;
        lock(&silent.state).last_sent -= 2 * SILENCE;
        assert!(silent.read(lease(1), 0, Duration::ZERO).await.lost);
    }
}
