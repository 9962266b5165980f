//! The output of a command on its way to `jobtree run`, whole and in order.
//!
//! The threads that read the command's pipes put what they read into a bounded buffer, and wait while it is full; a thread sends
//! it to the daemon, which waits for the reader. So the command is as fast as the reader of its output. When the reader is gone,
//! all of this is switched off, and the command goes on.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use jobtree_client::Client;
use jobtree_protocol::{JobId, LeaseId, OutputAppend, OutputPiece, OutputStream};
use jobtree_scheduler::workers::Run;

/// Bytes that wait to be sent.
const ROOM: usize = 1 << 20;
/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// Pieces of a request.
const AT_ONCE: usize = 4;
/// How long a daemon that does not answer is waited for before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long the reader is waited for, and how often it is looked for.
const WAIT_FOR_READER: Duration = Duration::from_secs(5);
const LOOK_FOR_READER: Duration = Duration::from_millis(20);

/// The output of one run.
pub struct Relay {
    shared: Arc<Shared>,
    sender: Option<JoinHandle<()>>,
}

#[derive(Default)]
pub struct Shared {
    buffer: Mutex<Buffer>,
    changed: Condvar,
}

#[derive(Default)]
struct Buffer {
    pieces: VecDeque<(OutputStream, Vec<u8>)>,
    bytes: usize,
    /// Nothing more comes.
    done: bool,
    /// Nobody reads.
    off: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, buffer: MutexGuard<'a, Buffer>) -> MutexGuard<'a, Buffer> {
        let waited = self.changed.wait(buffer);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what was read. Waits while there is no room.
    pub fn write(&self, stream: OutputStream, bytes: &[u8]) {
        let mut buffer = self.lock();
        while buffer.bytes >= ROOM && !buffer.off {
            buffer = self.wait(buffer);
        }
        if buffer.off {
            return;
        }
        buffer.bytes += bytes.len();
        match buffer.pieces.back_mut() {
            Some((last, piece)) if *last == stream && piece.len() + bytes.len() <= PIECE => {
                piece.extend_from_slice(bytes);
            }
            _ => buffer.pieces.push_back((stream, bytes.to_vec())),
        }
        self.changed.notify_all();
    }

    /// The next pieces, as soon as there are some; none at the end.
    fn take(&self) -> Vec<(OutputStream, Vec<u8>)> {
        let mut buffer = self.lock();
        while buffer.pieces.is_empty() && !buffer.done {
            buffer = self.wait(buffer);
        }
        let count = buffer.pieces.len().min(AT_ONCE);
        let taken: Vec<_> = buffer.pieces.drain(..count).collect();
        buffer.bytes -= taken.iter().map(|(_, piece)| piece.len()).sum::<usize>();
        self.changed.notify_all();
        taken
    }

    fn switch_off(&self) {
        let mut buffer = self.lock();
        buffer.off = true;
        buffer.pieces.clear();
        buffer.bytes = 0;
        self.changed.notify_all();
    }
}

impl Relay {
    /// Begins when the reader of the output is there. Its submitter begins to read right after the submission; if it does not,
    /// it was killed, or reads from another daemon on the same store, and the command starts without it.
    pub fn begin(client: &Client, run: &Run) -> Option<Self> {
        let sending = Sending {
            client: client.clone(),
            job: run.id(),
            lease_id: run.job().lease_id?,
            run: run.attempt(),
            sent: 0,
        };
        let begun = Instant::now();
        while !sending.is_read() {
            if begun.elapsed() > WAIT_FOR_READER {
                return None;
            }
            thread::sleep(LOOK_FOR_READER);
        }
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let sender = thread::spawn(move || sending.run(&theirs));
        Some(Self {
            shared,
            sender: Some(sender),
        })
    }

    /// Where the command's output is put.
    pub fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }
}

/// Returns when all of it was passed on, or nobody reads.
impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.lock().done = true;
        self.shared.changed.notify_all();
        if let Some(sender) = self.sender.take() {
            // A panic in there was told by its message.
            let _ = sender.join();
        }
    }
}

struct Sending {
    client: Client,
    job: JobId,
    lease_id: LeaseId,
    run: u32,
    /// How many pieces were accepted.
    sent: u64,
}

impl Sending {
    fn request(&self, pieces: Vec<OutputPiece>) -> OutputAppend {
        OutputAppend {
            lease_id: self.lease_id,
            run: self.run,
            offset: self.sent,
            pieces,
        }
    }

    fn is_read(&self) -> bool {
        let asked = self
            .client
            .append_output(self.job, &self.request(Vec::new()));
        asked.is_ok_and(|answer| answer.is_read)
    }

    fn run(mut self, shared: &Shared) {
        loop {
            let taken = shared.take();
            if taken.is_empty() {
                return;
            }
            let pieces = taken
                .iter()
                .map(|(stream, bytes)| OutputPiece::of(*stream, bytes));
            if !self.send(pieces.collect()) {
                return shared.switch_off();
            }
        }
    }

    /// Sends pieces until all are accepted. Returns `false` if nobody reads, or the daemon refuses.
    fn send(&mut self, mut pieces: Vec<OutputPiece>) -> bool {
        while !pieces.is_empty() {
            match self
                .client
                .append_output(self.job, &self.request(pieces.clone()))
            {
                Ok(answer) if !answer.is_read => return false,
                Ok(answer) => {
                    let accepted = answer.next_offset.saturating_sub(self.sent);
                    let accepted = usize::try_from(accepted).unwrap_or(usize::MAX);
                    pieces.drain(..accepted.min(pieces.len()));
                    self.sent = answer.next_offset;
                }
                Err(error) if error.is_passing() => thread::sleep(AGAIN_AFTER),
                Err(_) => return false,
            }
        }
        true
    }
}
