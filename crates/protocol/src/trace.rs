//! Which trace a job belongs to: the `traceparent` of the W3C's Trace Context.
//!
//! Whoever submits a job may name the trace that it is a part of. It is kept with the job, and whatever tells of the job
//! later (the queue, its worker, the tree of jobs below it) tells it there. A job without one has a trace of its own,
//! whose name is the job's id, so that everything about a job is together in any case.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::JobId;

/// The name of a trace and of the step in it that others are below; `00-<32 hex>-<16 hex>-<2 hex>` in writing.
///
/// ```
/// use jobtree_protocol::TraceParent;
///
/// let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let parent: TraceParent = text.parse()?;
/// assert_eq!(parent.to_string(), text);
/// assert_eq!(parent.trace_id()[0], 0x4b);
/// assert!(parent.is_sampled());
///
/// let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
/// assert!(zeros.parse::<TraceParent>().unwrap_err().to_string().contains("only zeros"));
/// # Ok::<(), jobtree_protocol::InvalidTraceParent>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, min_length = 55, max_length = 55, pattern = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"))]
pub struct TraceParent([u8; TraceParent::BYTES]);

impl TraceParent {
    /// The length of [`to_bytes`](Self::to_bytes).
    pub const BYTES: usize = 26;

    /// The length in writing.
    pub const CHARS: usize = 55;

    /// Where the dashes are.
    const DASHES: [usize; 3] = [2, 35, 52];

    /// The trace of a job that was submitted without one: its id is the job's.
    pub fn of_job(id: JobId) -> Self {
        let id = id.0.as_bytes();
        let mut bytes = [0; Self::BYTES];
        bytes[1..17].copy_from_slice(id);
        bytes[17..25].copy_from_slice(&id[8..]);
        // So that it is not zero, whatever was drawn; ids of our own have this bit anyway.
        bytes[17] |= 0x80;
        bytes[25] = 1;
        Self(bytes)
    }

    /// The trace.
    pub fn trace_id(&self) -> [u8; 16] {
        self.part(1)
    }

    /// The step in it that what follows is below.
    pub fn parent_id(&self) -> [u8; 8] {
        self.part(17)
    }

    /// Whether whoever began the trace keeps it.
    pub fn is_sampled(&self) -> bool {
        self.flags() & 1 != 0
    }

    /// All flags.
    pub fn flags(&self) -> u8 {
        self.0[25]
    }

    /// The same in fewer bytes: version, trace, step, flags.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        self.0
    }

    /// What [`to_bytes`](Self::to_bytes) gave.
    ///
    /// # Errors
    /// If it names no trace or no step.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Result<Self, InvalidTraceParent> {
        let read = Self(bytes);
        if read.0[0] == 0xff {
            return Err(InvalidTraceParent("has version ff, which is not allowed"));
        }
        if read.trace_id() == [0; 16] {
            return Err(InvalidTraceParent("names a trace of only zeros"));
        }
        if read.parent_id() == [0; 8] {
            return Err(InvalidTraceParent("names a parent of only zeros"));
        }
        Ok(read)
    }

    /// What a span of OpenTelemetry is below that is a part of this trace.
    #[cfg(feature = "otel")]
    pub fn context(&self) -> opentelemetry::Context {
        use opentelemetry::trace::{
            SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState,
        };
        let remote = SpanContext::new(
            TraceId::from_bytes(self.trace_id()),
            SpanId::from_bytes(self.parent_id()),
            TraceFlags::new(self.flags()),
            true,
            TraceState::default(),
        );
        opentelemetry::Context::new().with_remote_span_context(remote)
    }

    fn part<const N: usize>(&self, from: usize) -> [u8; N] {
        let mut part = [0; N];
        part.copy_from_slice(&self.0[from..from + N]);
        part
    }
}

/// A text that is no `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidTraceParent(&'static str);

impl fmt::Display for InvalidTraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: write 00-<32 hex digits>-<16 hex digits>-<2 hex digits> in lower case, or leave it out",
            self.0
        )
    }
}

impl std::error::Error for InvalidTraceParent {}

impl FromStr for TraceParent {
    type Err = InvalidTraceParent;

    fn from_str(text: &str) -> Result<Self, InvalidTraceParent> {
        let text = text.as_bytes();
        if text.len() != Self::CHARS {
            return Err(InvalidTraceParent("does not have 55 characters"));
        }
        if Self::DASHES.iter().any(|place| text[*place] != b'-') {
            return Err(InvalidTraceParent("does not have its dashes in place"));
        }
        let mut bytes = [0; Self::BYTES];
        let digits = (0..Self::CHARS).filter(|place| !Self::DASHES.contains(place));
        for (count, place) in digits.enumerate() {
            let digit = match text[place] {
                digit @ b'0'..=b'9' => digit - b'0',
                digit @ b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(InvalidTraceParent("holds what is no hex digit")),
            };
            bytes[count / 2] = bytes[count / 2] << 4 | digit;
        }
        Self::from_bytes(bytes)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            if [1, 17, 25].contains(&place) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceParent({self})")
    }
}

impl Serialize for TraceParent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceParent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|wrong| serde::de::Error::custom(format!("traceparent {wrong}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn wrong(text: &str) -> String {
        text.parse::<TraceParent>().unwrap_err().to_string()
    }

    #[test]
    fn it_is_written_as_it_was_read() {
        for text in [
            GOOD,
            &GOOD.replace("00-4b", "cc-4b"),
            &GOOD.replace("-01", "-00"),
        ] {
            let read: TraceParent = text.parse().unwrap();
            assert_eq!(read.to_string(), text);
            assert_eq!(TraceParent::from_bytes(read.to_bytes()), Ok(read));
            let json = serde_json::to_string(&read).unwrap();
            assert_eq!(json, format!("{text:?}"));
            assert_eq!(serde_json::from_str::<TraceParent>(&json).unwrap(), read);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(wrong("").starts_with("does not have 55"));
        assert!(wrong(&GOOD[1..]).starts_with("does not have 55"));
        assert!(wrong(&GOOD.replace("-4b", "a4b")).contains("dashes"));
        assert!(wrong(&GOOD.replace("4bf9", "4BF9")).contains("no hex digit"));
        assert!(wrong(&GOOD.replace("4bf9", "4bü")).contains("no hex digit"));
        assert!(wrong(&GOOD.replace("00-4", "ff-4")).contains("version ff"));
        let zeros = GOOD.replace("00f067aa0ba902b7", &"0".repeat(16));
        assert!(wrong(&zeros).contains("parent of only zeros"));
    }

    #[test]
    fn every_job_has_a_trace() {
        let id = JobId::generate();
        let own = TraceParent::of_job(id);
        assert_eq!(own.trace_id(), *id.0.as_bytes());
        assert_eq!(own.to_string().parse(), Ok(own));
    }
}
