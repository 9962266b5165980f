//! Frames through a socket, each within its time.
//!
//! A single call may block for as long as the socket's own limits say. On top of that a frame that has begun must be over
//! within a time: else a peer that sends or takes a byte now and then would hold a thread for ever.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::time::{Duration, Instant};

use super::RemoteError;
use super::codec::{HEADER, Header, decode};
use super::message::Message;

/// How much memory a peer gets before it has sent something.
const CHUNK: usize = 64 << 10;

/// Reads messages.
pub(super) struct FrameReader<R> {
    from: BufReader<R>,
}

/// Why there is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NoMessage {
    /// The peer has ended the conversation, between two frames.
    Ended,
    /// Nothing came for as long as the socket's limit.
    Silent,
    /// Anything else.
    Broken(RemoteError),
}

impl NoMessage {
    /// What those who wait for answers are told.
    pub(super) fn into_error(self) -> RemoteError {
        let why = match self {
            NoMessage::Ended => "the peer has ended it".to_owned(),
            NoMessage::Silent => "the peer is silent".to_owned(),
            NoMessage::Broken(RemoteError::ConnectionLost(why)) => why,
            NoMessage::Broken(error) => error.to_string(),
        };
        RemoteError::ConnectionLost(why)
    }
}

impl<R: Read> FrameReader<R> {
    pub(super) fn new(from: R) -> FrameReader<R> {
        FrameReader {
            from: BufReader::new(from),
        }
    }

    /// The next message; its frame has `max_frame` bytes at most, and comes within `limit`, once it has begun.
    pub(super) fn next(&mut self, max_frame: u32, limit: Duration) -> Result<Message, NoMessage> {
        let mut clock = Clock { limit, began: None };
        let mut header = [0; HEADER];
        self.fill(&mut header, &mut clock)?;
        let header = Header::parse(header, max_frame).map_err(NoMessage::Broken)?;
        let length = header.length as usize;
        let mut body = Vec::new();
        while body.len() < length {
            let had = body.len();
            // It grows with what comes, not with what is promised.
            body.resize(length.min(had + had.max(CHUNK)), 0);
            self.fill(&mut body[had..], &mut clock)?;
        }
        decode(header.kind, &body).map_err(NoMessage::Broken)
    }

    fn fill(&mut self, mut into: &mut [u8], clock: &mut Clock) -> Result<(), NoMessage> {
        while !into.is_empty() {
            match self.from.read(into) {
                Ok(0) if clock.began.is_none() => return Err(NoMessage::Ended),
                Ok(0) => return Err(lost("the peer ended it amid a frame")),
                Ok(count) => {
                    into = &mut into[count..];
                    if clock.is_over() && !into.is_empty() {
                        return Err(lost("a frame of the peer took too long"));
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_timeout(&error) => return Err(NoMessage::Silent),
                Err(error) if clock.began.is_none() && has_ended(&error) => {
                    return Err(NoMessage::Ended);
                }
                Err(error) => return Err(lost(error.to_string())),
            }
        }
        Ok(())
    }
}

fn lost(why: impl Into<String>) -> NoMessage {
    NoMessage::Broken(RemoteError::ConnectionLost(why.into()))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe
    )
}

/// How long a frame takes, from its first byte on.
struct Clock {
    limit: Duration,
    began: Option<Instant>,
}

impl Clock {
    fn is_over(&mut self) -> bool {
        self.began.get_or_insert_with(Instant::now).elapsed() > self.limit
    }
}

/// Writes a frame within `limit`.
pub(super) fn write_frame(
    mut to: impl Write,
    frame: &[u8],
    limit: Duration,
) -> Result<(), RemoteError> {
    let began = Instant::now();
    let mut left = frame;
    while !left.is_empty() {
        match to.write(left) {
            Ok(0) => return Err(RemoteError::ConnectionLost("nothing can be written".into())),
            Ok(count) => left = &left[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => return Err(too_slow()),
            Err(error) => return Err(RemoteError::ConnectionLost(error.to_string())),
        }
        if !left.is_empty() && began.elapsed() > limit {
            return Err(too_slow());
        }
    }
    Ok(())
}

fn too_slow() -> RemoteError {
    RemoteError::ConnectionLost("the peer takes too long to take a message".into())
}
