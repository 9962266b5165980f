//! What operations cost: each one passes here once, at its beginning.

use crate::{budget, sim};

/// A channel operation begins: a send, a receive, a select. This is where it is charged, and where in a simulation others
/// may act first.
#[inline(always)]
pub(crate) fn charge_channel_operation() {
    sim::point_or_unwind();
    budget::charge_channel_op();
}
