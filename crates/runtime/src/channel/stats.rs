//! What a channel has counted.

/// Counts of a channel, taken at one moment; see [`Sender::stats`](crate::channel::Sender::stats).
///
/// As long as there are receivers, `sent` is `received`, `dropped` and what lies in the channel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Values that were sent, those dropped for want of room among them.
    pub sent: u64,
    /// Values that were received.
    pub received: u64,
    /// Values that were dropped for want of room: the policy of the channel was to drop.
    pub dropped: u64,
    /// Senders that wait for room. (A `select!` may be counted a moment longer, until it has noticed that it is over.)
    pub senders_waiting: usize,
    /// Receivers that wait for a value.
    pub receivers_waiting: usize,
}
