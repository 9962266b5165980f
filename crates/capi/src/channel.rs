//! Channels of 64-bit values.
//!
//! A handle stands for both ends. Destroying it closes the channel, so whoever waits in it returns.

use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::channel::{
    self as channels, Kind, RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError,
};

use crate::border::{required, running};
use crate::objects::{self, ChannelObject, OBJECTS, Object, jt_channel_t};
use crate::runtime::{Waiter, limit, waiting};
use crate::status::CallError;
use crate::status::jt_status::{self, *};

/// What happens when a channel is full.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_channel_kind {
    /// Holds nothing: a sender waits until somebody receives its value.
    JT_CHANNEL_RENDEZVOUS = 0,
    /// Holds `capacity` values: a sender waits for room.
    JT_CHANNEL_BOUNDED = 1,
    /// Holds any number of values.
    JT_CHANNEL_UNBOUNDED = 2,
    /// Holds the newest value: a sender replaces the one that is there.
    JT_CHANNEL_CONFLATED = 3,
    /// Holds the newest `capacity` values: a sender drops the oldest one.
    JT_CHANNEL_DROPPING_OLDEST = 4,
    /// Holds the first `capacity` values: a sender drops what it sends.
    JT_CHANNEL_DROPPING_NEWEST = 5,
}

/// What a channel has counted, and how it is just now.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct jt_channel_stats_t {
    /// Values that were sent, those that were dropped among them.
    pub sent: u64,
    /// Values that were received.
    pub received: u64,
    /// Values that were dropped for want of room.
    pub dropped: u64,
    /// Values that lie in it.
    pub length: u64,
    /// Values that may lie in it; UINT64_MAX if there is no bound.
    pub capacity: u64,
    /// Senders that wait for room.
    pub senders_waiting: u64,
    /// Receivers that wait for a value.
    pub receivers_waiting: u64,
    /// 1 if it is closed, else 0.
    pub closed: i32,
}

const CLOSED: &str = "the channel is closed";
const FULL: &str = "the channel has no room now";
const EMPTY: &str = "the channel is empty now";

/// Makes a channel of one of the kinds of jt_channel_kind. `capacity` is at least 1 for those kinds that have one, and
/// does not count for the others.
///
/// Returns JT_EREFUSED if the current job may not have such a channel.
///
/// Values are numbers. Pointers go through it, too (jt_channel_send_ptr), but what they point to is never freed here.
///
/// # Safety
/// `channel_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_channel_create(
    kind: i32,
    capacity: usize,
    channel_out: *mut jt_channel_t,
) -> jt_status {
    use jt_channel_kind::*;
    const RENDEZVOUS: i32 = JT_CHANNEL_RENDEZVOUS as i32;
    const BOUNDED: i32 = JT_CHANNEL_BOUNDED as i32;
    const UNBOUNDED: i32 = JT_CHANNEL_UNBOUNDED as i32;
    const CONFLATED: i32 = JT_CHANNEL_CONFLATED as i32;
    const DROPPING_OLDEST: i32 = JT_CHANNEL_DROPPING_OLDEST as i32;
    const DROPPING_NEWEST: i32 = JT_CHANNEL_DROPPING_NEWEST as i32;
    running(|| {
        let channel_out = required(channel_out, "channel_out")?;
        let has_capacity = matches!(kind, BOUNDED | DROPPING_OLDEST | DROPPING_NEWEST);
        if has_capacity && capacity == 0 {
            return Err(JT_EINVAL.because("a channel of this kind needs a capacity of 1 at least"));
        }
        let kind = match kind {
            RENDEZVOUS => Kind::Rendezvous,
            BOUNDED => Kind::Bounded(capacity),
            UNBOUNDED => Kind::Unbounded,
            CONFLATED => Kind::Conflated,
            DROPPING_OLDEST => Kind::DroppingOldest(capacity),
            DROPPING_NEWEST => Kind::DroppingNewest(capacity),
            _ => return Err(JT_EINVAL.because(format!("there is no kind {kind} of channels"))),
        };
        let (sender, receiver) =
            channels::try_new(kind).map_err(|refused| JT_EREFUSED.because(refused.to_string()))?;
        let channel = ChannelObject { sender, receiver };
        let channel = objects::insert(Object::Channel(Arc::new(channel)))?;
        // SAFETY: as this function's contract.
        unsafe { channel_out.write(channel) };
        Ok(())
    })
}

/// Sends a value, and waits for room if there is none; in a rendezvous, for somebody who receives it.
///
/// Returns JT_ECLOSED, or JT_ECANCELED if the current job is cancelled; the value was not sent then.
#[unsafe(no_mangle)]
pub extern "C" fn jt_channel_send(channel: jt_channel_t, value: u64) -> jt_status {
    jt_channel_send_timeout(channel, value, -1)
}

/// Sends a value if that needs no waiting. Returns JT_EFULL or JT_ECLOSED if it was not sent.
#[unsafe(no_mangle)]
pub extern "C" fn jt_channel_try_send(channel: jt_channel_t, value: u64) -> jt_status {
    running(|| {
        let channel = objects::channel(channel)?;
        channel
            .sender
            .try_send(value)
            .map_err(|refused| match refused {
                TrySendError::Full(_) => JT_EFULL.because(FULL),
                TrySendError::Closed(_) => JT_ECLOSED.because(CLOSED),
            })
    })
}

/// Sends a value, and waits for room no longer than `timeout_ms` milliseconds: not at all if that is 0, for ever if it is
/// negative.
///
/// Returns JT_ECLOSED, JT_ECANCELED, JT_ETIMEDOUT, or JT_EFULL if it was not to wait; the value was not sent then.
#[unsafe(no_mangle)]
pub extern "C" fn jt_channel_send_timeout(
    channel: jt_channel_t,
    value: u64,
    timeout_ms: i64,
) -> jt_status {
    running(|| {
        let channel = objects::channel(channel)?;
        let send = |limit, waiter: Waiter| {
            channel
                .sender
                .send_timeout(value, limit)
                .map_err(|refused| match refused {
                    SendTimeoutError::TimedOut(_) if timeout_ms == 0 => JT_EFULL.because(FULL),
                    SendTimeoutError::TimedOut(_) => {
                        JT_ETIMEDOUT.because("the channel had no room within the time")
                    }
                    SendTimeoutError::Closed(_) => JT_ECLOSED.because(CLOSED),
                    SendTimeoutError::Cancelled(_, cancelled) => waiter.is_cancelled(&cancelled),
                })
        };
        // Mostly there is no need to wait.
        match send(Some(Duration::ZERO), Waiter::Job) {
            Err(error) if error.is_worth_waiting() && timeout_ms != 0 => {
                waiting(|waiter| send(limit(timeout_ms), waiter))
            }
            result => result,
        }
    })
}

/// Receives a value, and waits for one if there is none.
///
/// Returns JT_ECLOSED if the channel is closed and everything in it was received, or JT_ECANCELED if the current job is
/// cancelled; nothing was received then.
///
/// # Safety
/// `value_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_channel_recv(channel: jt_channel_t, value_out: *mut u64) -> jt_status {
    // SAFETY: as this function's contract.
    unsafe { jt_channel_recv_timeout(channel, value_out, -1) }
}

/// Receives a value if there is one. Returns JT_EEMPTY or JT_ECLOSED if not.
///
/// # Safety
/// `value_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_channel_try_recv(
    channel: jt_channel_t,
    value_out: *mut u64,
) -> jt_status {
    running(|| {
        let value_out = required(value_out, "value_out")?;
        let channel = objects::channel(channel)?;
        let value = channel
            .receiver
            .try_recv()
            .map_err(|nothing| match nothing {
                TryRecvError::Empty => JT_EEMPTY.because(EMPTY),
                TryRecvError::Closed => JT_ECLOSED.because(CLOSED),
            })?;
        // SAFETY: as this function's contract.
        unsafe { value_out.write(value) };
        Ok(())
    })
}

/// Receives a value, and waits for one no longer than `timeout_ms` milliseconds: not at all if that is 0, for ever if it
/// is negative.
///
/// Returns JT_ECLOSED, JT_ECANCELED, JT_ETIMEDOUT, or JT_EEMPTY if it was not to wait.
///
/// # Safety
/// `value_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_channel_recv_timeout(
    channel: jt_channel_t,
    value_out: *mut u64,
    timeout_ms: i64,
) -> jt_status {
    running(|| {
        let value_out = required(value_out, "value_out")?;
        let channel = objects::channel(channel)?;
        let receive = |limit, waiter: Waiter| {
            channel
                .receiver
                .recv_timeout(limit)
                .map_err(|nothing| match nothing {
                    RecvTimeoutError::TimedOut if timeout_ms == 0 => JT_EEMPTY.because(EMPTY),
                    RecvTimeoutError::TimedOut => {
                        JT_ETIMEDOUT.because("nothing was sent within the time")
                    }
                    RecvTimeoutError::Closed => JT_ECLOSED.because(CLOSED),
                    RecvTimeoutError::Cancelled(cancelled) => waiter.is_cancelled(&cancelled),
                })
        };
        // Mostly there is no need to wait.
        let value = match receive(Some(Duration::ZERO), Waiter::Job) {
            Err(error) if error.is_worth_waiting() && timeout_ms != 0 => {
                waiting(|waiter| receive(limit(timeout_ms), waiter))
            }
            result => result,
        }?;
        // SAFETY: as this function's contract.
        unsafe { value_out.write(value) };
        Ok(())
    })
}

impl CallError {
    /// Whether a try found no room or no value.
    fn is_worth_waiting(&self) -> bool {
        matches!(self.status, JT_ETIMEDOUT | JT_EFULL | JT_EEMPTY)
    }
}

/// Closes a channel: nothing can be sent any more, and what is in it can still be received. JT_ECLOSED if it was closed
/// before.
#[unsafe(no_mangle)]
pub extern "C" fn jt_channel_close(channel: jt_channel_t) -> jt_status {
    running(|| match objects::channel(channel)?.sender.close() {
        true => Ok(()),
        false => Err(JT_ECLOSED.because("the channel was closed before")),
    })
}

/// What a channel has counted.
///
/// # Safety
/// `stats_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_channel_stats(
    channel: jt_channel_t,
    stats_out: *mut jt_channel_stats_t,
) -> jt_status {
    running(|| {
        let stats_out = required(stats_out, "stats_out")?;
        let channel = objects::channel(channel)?;
        let counted = channel.sender.stats();
        let stats = jt_channel_stats_t {
            sent: counted.sent,
            received: counted.received,
            dropped: counted.dropped,
            length: channel.sender.len() as u64,
            capacity: channel
                .sender
                .capacity()
                .map_or(u64::MAX, |room| room as u64),
            senders_waiting: counted.senders_waiting as u64,
            receivers_waiting: counted.receivers_waiting as u64,
            closed: i32::from(channel.sender.is_closed()),
        };
        // SAFETY: as this function's contract.
        unsafe { stats_out.write(stats) };
        Ok(())
    })
}

/// Closes a channel and releases its handle. Whoever waits in it returns; values that are left are forgotten.
#[unsafe(no_mangle)]
pub extern "C" fn jt_channel_destroy(channel: jt_channel_t) -> jt_status {
    running(|| {
        let found = objects::channel(channel)?;
        if OBJECTS.remove(channel).is_none() {
            return Err(objects::stale(channel));
        }
        found.sender.close();
        Ok(())
    })
}
