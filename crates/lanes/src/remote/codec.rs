//! Messages as bytes: little-endian, no padding, every length checked against what is there before anything is allocated.
//!
//! ```text
//! frame     version u8 (1), kind u8, length u32 of the body, body
//! string    length u32, UTF-8            bytes     length u32, bytes
//! map       count u32, then key and value as strings
//! option    0 | 1 and the thing
//!
//! 1 Hello, 2 Welcome   "jobtree", id string, heartbeat u32 ms, largest frame u32
//! 3 Refused            error
//! 4 Request            call u64, id u64, operation string, mode u8, priority u8, timeout option<u64 ms>, sender option<string>,
//!                      target option<string>, metadata map, payload bytes
//! 5 Response           call u64, id u64, sender string, target string, error option<error>, metadata map, payload bytes
//! 6 Cancel             call u64
//! 7 Ping, 8 Goodbye    nothing
//! error                code u8, first u64, second u64, text string
//! ```
//!
//! A body that is longer than what is said in it is refused, too, as is anything that is not exactly one of these.

use std::collections::BTreeMap;
use std::time::Duration;

use super::message::{Greeting, Message};
use super::request::TransferMode;
use super::{RemoteError, RemoteRequest, RemoteResponse};
use crate::Priority;

/// The version of all this.
pub(super) const VERSION: u8 = 1;

/// Bytes before the body.
pub(super) const HEADER: usize = 6;

const MAGIC: &[u8] = b"jobtree";

/// What stands before a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) kind: u8,
    pub(super) length: u32,
}

fn protocol(what: impl Into<String>) -> RemoteError {
    RemoteError::Protocol(what.into())
}

impl Header {
    /// Reads a header, and refuses bodies for which there is no room.
    pub(super) fn parse(bytes: [u8; HEADER], max_frame: u32) -> Result<Header, RemoteError> {
        let [version, kind, a, b, c, d] = bytes;
        if version != VERSION {
            return Err(protocol(format!("version {version}, here it is {VERSION}")));
        }
        if !(1..=8).contains(&kind) {
            return Err(protocol(format!("a message of kind {kind}")));
        }
        let length = u32::from_le_bytes([a, b, c, d]);
        match u64::from(length) + HEADER as u64 {
            size if size > u64::from(max_frame) => Err(RemoteError::TooLarge {
                size,
                limit: max_frame.into(),
            }),
            _ => Ok(Header { kind, length }),
        }
    }
}

/// A message as a whole frame.
///
/// # Errors
/// If the frame would be larger than `max_frame`; nothing of that size is allocated then.
pub(super) fn encode(message: &Message, max_frame: u32) -> Result<Vec<u8>, RemoteError> {
    let mut length = Length(0);
    write_body(message, &mut length);
    let size = length.0 + HEADER as u64;
    if size > u64::from(max_frame) {
        return Err(RemoteError::TooLarge {
            size,
            limit: max_frame.into(),
        });
    }
    let mut frame = Vec::with_capacity(size as usize);
    frame.extend([VERSION, kind_of(message)]);
    frame.extend((length.0 as u32).to_le_bytes());
    write_body(message, &mut frame);
    Ok(frame)
}

/// Where a body goes: first to something that only counts.
trait Sink {
    fn put(&mut self, bytes: &[u8]);

    fn u8(&mut self, number: u8) {
        self.put(&[number]);
    }

    fn u32(&mut self, number: u32) {
        self.put(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    /// More than 4 GiB never gets here: it was counted before, and is too large.
    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.put(bytes);
    }

    fn string(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn optional(&mut self, text: Option<&str>) {
        self.u8(text.is_some().into());
        if let Some(text) = text {
            self.string(text);
        }
    }

    fn map(&mut self, map: &BTreeMap<String, String>) {
        self.u32(map.len() as u32);
        for (key, value) in map {
            self.string(key);
            self.string(value);
        }
    }
}

struct Length(u64);

impl Sink for Length {
    fn put(&mut self, bytes: &[u8]) {
        self.0 += bytes.len() as u64;
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

fn kind_of(message: &Message) -> u8 {
    match message {
        Message::Hello(_) => 1,
        Message::Welcome(_) => 2,
        Message::Refused(_) => 3,
        Message::Request(..) => 4,
        Message::Response(..) => 5,
        Message::Cancel(_) => 6,
        Message::Ping => 7,
        Message::Goodbye => 8,
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn write_body(message: &Message, to: &mut impl Sink) {
    match message {
        Message::Hello(greeting) | Message::Welcome(greeting) => {
            to.put(MAGIC);
            to.string(&greeting.id);
            to.u32(u32::try_from(millis(greeting.heartbeat)).unwrap_or(u32::MAX));
            to.u32(greeting.max_frame);
        }
        Message::Refused(error) => write_error(error, to),
        Message::Request(call, request) => {
            to.u64(*call);
            to.u64(request.id);
            to.string(&request.operation);
            to.u8(match request.mode {
                TransferMode::RequestFromRemote => 0,
                TransferMode::PushDataToRemote => 1,
            });
            to.u8(match request.priority {
                Priority::Lowest => 0,
                Priority::Low => 1,
                Priority::Normal => 2,
                Priority::High => 3,
                Priority::Highest => 4,
            });
            to.u8(request.timeout.is_some().into());
            if let Some(timeout) = request.timeout {
                to.u64(millis(timeout));
            }
            to.optional(request.sender.as_deref());
            to.optional(request.target.as_deref());
            to.map(&request.metadata);
            to.bytes(&request.payload);
        }
        Message::Response(call, response) => {
            to.u64(*call);
            to.u64(response.id);
            to.string(&response.sender);
            to.string(&response.target);
            to.u8(response.error.is_some().into());
            if let Some(error) = &response.error {
                write_error(error, to);
            }
            to.map(&response.metadata);
            to.bytes(&response.payload);
        }
        Message::Cancel(call) => to.u64(*call),
        Message::Ping | Message::Goodbye => {}
    }
}

fn write_error(error: &RemoteError, to: &mut impl Sink) {
    let (code, first, second, text) = match error {
        RemoteError::NoTransport => (1, 0, 0, ""),
        RemoteError::NotConnected(text) => (2, 0, 0, text.as_str()),
        RemoteError::DuplicateId(id) => (3, *id, 0, ""),
        RemoteError::TimedOut => (4, 0, 0, ""),
        RemoteError::Cancelled => (5, 0, 0, ""),
        RemoteError::UnknownOperation(text) => (6, 0, 0, text.as_str()),
        RemoteError::WrongTarget(text) => (7, 0, 0, text.as_str()),
        RemoteError::TooLarge { size, limit } => (8, *size, *limit, ""),
        RemoteError::ConnectionLost(text) => (9, 0, 0, text.as_str()),
        RemoteError::Protocol(text) => (10, 0, 0, text.as_str()),
        RemoteError::Busy => (11, 0, 0, ""),
        RemoteError::NoThread => (12, 0, 0, ""),
        RemoteError::Io(text) => (13, 0, 0, text.as_str()),
        RemoteError::Remote(text) => (14, 0, 0, text.as_str()),
    };
    to.u8(code);
    to.u64(first);
    to.u64(second);
    to.string(text);
}

/// The message of a body.
///
/// # Errors
/// If it is none.
pub(super) fn decode(kind: u8, body: &[u8]) -> Result<Message, RemoteError> {
    let mut from = Source(body);
    let message = match kind {
        1 => Message::Hello(from.greeting()?),
        2 => Message::Welcome(from.greeting()?),
        3 => Message::Refused(from.error()?),
        4 => Message::Request(from.u64()?, from.request()?),
        5 => Message::Response(from.u64()?, from.response()?),
        6 => Message::Cancel(from.u64()?),
        7 => Message::Ping,
        8 => Message::Goodbye,
        _ => return Err(protocol(format!("a message of kind {kind}"))),
    };
    match from.0.len() {
        0 => Ok(message),
        more => Err(protocol(format!("{more} bytes after a message"))),
    }
}

/// What is left of a body.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], RemoteError> {
        match self.0.split_at_checked(count) {
            Some((taken, left)) => {
                self.0 = left;
                Ok(taken)
            }
            None => Err(protocol("a message that ends too early")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], RemoteError> {
        let taken = self.take(N)?;
        taken
            .try_into()
            .map_err(|_| protocol("a message that ends too early"))
    }

    fn u8(&mut self) -> Result<u8, RemoteError> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, RemoteError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, RemoteError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], RemoteError> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn string(&mut self) -> Result<String, RemoteError> {
        match std::str::from_utf8(self.bytes()?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(protocol("a text that is not UTF-8")),
        }
    }

    fn is_there(&mut self) -> Result<bool, RemoteError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(protocol(format!("{other} where 0 or 1 belongs"))),
        }
    }

    fn optional(&mut self) -> Result<Option<String>, RemoteError> {
        Ok(match self.is_there()? {
            true => Some(self.string()?),
            false => None,
        })
    }

    fn map(&mut self) -> Result<BTreeMap<String, String>, RemoteError> {
        let mut map = BTreeMap::new();
        // A count that lies is found out where the bytes end.
        for _ in 0..self.u32()? {
            let key = self.string()?;
            if map.insert(key, self.string()?).is_some() {
                return Err(protocol("a key that comes twice"));
            }
        }
        Ok(map)
    }

    fn greeting(&mut self) -> Result<Greeting, RemoteError> {
        if self.take(MAGIC.len())? != MAGIC {
            return Err(protocol("a greeting of something else than jobtree"));
        }
        Ok(Greeting {
            id: self.string()?,
            heartbeat: Duration::from_millis(self.u32()?.into()),
            max_frame: self.u32()?,
        })
    }

    fn request(&mut self) -> Result<RemoteRequest, RemoteError> {
        let id = self.u64()?;
        let operation = self.string()?;
        let mode = match self.u8()? {
            0 => TransferMode::RequestFromRemote,
            1 => TransferMode::PushDataToRemote,
            other => return Err(protocol(format!("transfer mode {other}"))),
        };
        let priority = match self.u8()? {
            0 => Priority::Lowest,
            1 => Priority::Low,
            2 => Priority::Normal,
            3 => Priority::High,
            4 => Priority::Highest,
            other => return Err(protocol(format!("priority {other}"))),
        };
        let timeout = match self.is_there()? {
            true => Some(Duration::from_millis(self.u64()?)),
            false => None,
        };
        Ok(RemoteRequest {
            id,
            operation,
            mode,
            sender: self.optional()?,
            target: self.optional()?,
            metadata: self.map()?,
            payload: self.bytes()?.to_vec(),
            priority,
            timeout,
        })
    }

    fn response(&mut self) -> Result<RemoteResponse, RemoteError> {
        Ok(RemoteResponse {
            id: self.u64()?,
            sender: self.string()?,
            target: self.string()?,
            error: match self.is_there()? {
                true => Some(self.error()?),
                false => None,
            },
            metadata: self.map()?,
            payload: self.bytes()?.to_vec(),
        })
    }

    fn error(&mut self) -> Result<RemoteError, RemoteError> {
        let (code, first, second) = (self.u8()?, self.u64()?, self.u64()?);
        let text = self.string()?;
        Ok(match code {
            1 => RemoteError::NoTransport,
            2 => RemoteError::NotConnected(text),
            3 => RemoteError::DuplicateId(first),
            4 => RemoteError::TimedOut,
            5 => RemoteError::Cancelled,
            6 => RemoteError::UnknownOperation(text),
            7 => RemoteError::WrongTarget(text),
            8 => RemoteError::TooLarge {
                size: first,
                limit: second,
            },
            9 => RemoteError::ConnectionLost(text),
            10 => RemoteError::Protocol(text),
            11 => RemoteError::Busy,
            12 => RemoteError::NoThread,
            13 => RemoteError::Io(text),
            14 => RemoteError::Remote(text),
            other => return Err(protocol(format!("error {other}"))),
        })
    }
}
