//! What operations cost: each one passes here once, at its beginning.

use crate::sim;

/// A channel operation begins: a send, a receive, a select. This is where it is charged, and where in a simulation others
/// may act first.
#[inline(always)]
pub(crate) fn charge_channel_operation() {
    sim::point();
}
