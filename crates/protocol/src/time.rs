//! Times as they are kept: whole microseconds.
//!
//! A disk keeps an `i64` of microseconds, a `Timestamp` has nanoseconds. What enters is cut here, so that a record read
//! again equals the one written.

use jiff::Timestamp;

/// Microseconds since 1970, as stores keep them.
pub fn to_micros(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// The time that [`to_micros`] was given. A value that no calendar knows becomes the nearest that it does.
pub fn from_micros(micros: i64) -> Timestamp {
    let end = if micros < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    };
    Timestamp::from_microsecond(micros).unwrap_or(end)
}

/// Cuts what a store would not keep.
pub fn whole_micros(at: Timestamp) -> Timestamp {
    from_micros(to_micros(at))
}
