//! What waits to be written to a peer: frames in order, bounded by their bytes.
//!
//! Whoever has something large to say first gets room for it, and waits if there is none; the thread that writes gives the
//! room back. What is small and comes at most once for each request that is on its way ([`Outbox::put_now`]) needs no room,
//! so that it can be said where nobody can wait, such as in a destructor.

use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::channel::{self, Receiver, RecvTimeoutError, Sender};
use jobtree_runtime::sync::{AcquireError, Semaphore};

use super::RemoteError;
use super::codec::encode;
use super::frame::write_frame;
use super::message::Message;
use super::stream::Stream;

/// The end for those who have something to say. Clones are the same.
#[derive(Clone)]
pub(super) struct Outbox {
    queue: Sender<Outgoing>,
    room: Arc<Semaphore>,
    capacity: usize,
}

/// The end of the thread that writes.
pub(super) struct Outgoings {
    queue: Receiver<Outgoing>,
    room: Arc<Semaphore>,
}

struct Outgoing {
    frame: Vec<u8>,
    room: usize,
}

/// The connection has ended, and the frame was not taken: here it is.
#[derive(Debug)]
pub(super) struct HasEnded(pub(super) Vec<u8>);

/// Why there is no room.
#[derive(Debug)]
pub(super) enum NoRoom {
    Ended,
    /// The job that waited was cancelled.
    Cancelled,
}

impl From<AcquireError> for NoRoom {
    fn from(error: AcquireError) -> NoRoom {
        match error {
            AcquireError::Closed => NoRoom::Ended,
            AcquireError::Cancelled(_) => NoRoom::Cancelled,
        }
    }
}

/// Room for one frame.
pub(super) struct Room<'a> {
    outbox: &'a Outbox,
    size: usize,
}

impl Outbox {
    pub(super) fn new(capacity: usize) -> (Outbox, Outgoings) {
        let capacity = capacity.max(1);
        let room = Arc::new(Semaphore::new(capacity));
        let (sender, receiver) = channel::unbounded();
        let outbox = Outbox {
            queue: sender,
            room: Arc::clone(&room),
            capacity,
        };
        let outgoings = Outgoings {
            queue: receiver,
            room,
        };
        (outbox, outgoings)
    }

    /// A frame that is larger than all the room there is gets it all.
    fn share(&self, size: usize) -> usize {
        size.min(self.capacity)
    }

    /// Waits for room.
    pub(super) async fn room(&self, size: usize) -> Result<Room<'_>, NoRoom> {
        let size = self.share(size);
        self.room.acquire_async(size).await?.forget();
        Ok(Room { outbox: self, size })
    }

    /// [`room`](Outbox::room), as a call that blocks.
    pub(super) fn wait_for_room(&self, size: usize) -> Result<Room<'_>, NoRoom> {
        let size = self.share(size);
        self.room.acquire(size)?.forget();
        Ok(Room { outbox: self, size })
    }

    /// Says something small; see the module's head. After the end it is lost.
    pub(super) fn put_now(&self, message: &Message) {
        if let Ok(frame) = encode(message, u32::MAX) {
            let _ = self.queue.try_send(Outgoing { frame, room: 0 });
        }
    }

    /// Nothing more is taken; what was taken is still written, if the peer takes it.
    pub(super) fn close(&self) {
        self.queue.close();
        self.room.close();
    }
}

impl Room<'_> {
    /// Has `frame` written.
    pub(super) fn put(mut self, frame: Vec<u8>) -> Result<(), HasEnded> {
        let room = self.size;
        match self.outbox.queue.try_send(Outgoing { frame, room }) {
            Ok(()) => {
                // The one who writes gives it back.
                self.size = 0;
                Ok(())
            }
            Err(unsent) => Err(HasEnded(unsent.into_inner().frame)),
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.outbox.room.add_permits(self.size);
    }
}

impl Outgoings {
    /// Writes what comes until there is nothing more to come; and a sign of life whenever nothing came for `heartbeat`.
    pub(super) fn write(
        &self,
        stream: &Stream,
        heartbeat: Duration,
        limit: Duration,
    ) -> Result<(), RemoteError> {
        let ping = encode(&Message::Ping, u32::MAX)?;
        loop {
            match self.queue.recv_timeout(Some(heartbeat)) {
                Ok(Outgoing { frame, room }) => {
                    write_frame(stream, &frame, limit)?;
                    drop(frame);
                    self.room.add_permits(room);
                }
                Err(RecvTimeoutError::TimedOut) => write_frame(stream, &ping, limit)?,
                Err(RecvTimeoutError::Closed) => return Ok(()),
                Err(RecvTimeoutError::Cancelled(_)) => return Err(RemoteError::Cancelled),
            }
        }
    }
}
