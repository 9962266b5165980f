//! What operations cost: each one passes here once, at its beginning.

/// A channel operation begins: a send, a receive, a select. This is where it is charged.
#[inline(always)]
pub(crate) fn charge_channel_operation() {}
