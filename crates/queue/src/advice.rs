//! What a running job is told with its heartbeat, by the load of its node.
//!
//! Leases are not taken back by load: the worker is asked. In BUSY it should go slower; in PANIC it should save what it
//! has, and, when PANIC lasts for longer than the cool-down, give its lease back. A job that declared itself heavy is asked
//! one step earlier, if its own resource is what is short. Without samples nobody is asked for anything: the load is not
//! known, and no job should lose work over a sampler that died. Jobs that wait for no quiet (HIGH) are not asked to
//! yield.

use jobtree_protocol::{Advice, Constraints, Priority, QuietState};

use crate::admission::{Admission, View};
use crate::deadline::Waiver;
use crate::now::Now;

/// What to tell a running job; `draining` is said before all else.
pub fn advice(
    admission: &Admission,
    view: &View,
    priority: Priority,
    constraints: Constraints,
    draining: bool,
    now: Now,
) -> Advice {
    if draining {
        return Advice::Drain;
    }
    if view.stale.is_some() {
        return Advice::Continue;
    }
    let short = !admission
        .pressures(view, Waiver::Normal, constraints)
        .is_empty();
    let lasting = now.mono.saturating_sub(admission.quiet().since().mono);
    let lasts = lasting > admission.policy().quiet.panic_cooldown;
    match (view.state, short) {
        (QuietState::Quiet | QuietState::Normal, false) => Advice::Continue,
        (QuietState::Quiet | QuietState::Normal, true) | (QuietState::Busy, false) => Advice::Slow,
        (QuietState::Busy, true) => Advice::Checkpoint,
        (QuietState::Panic, _) if lasts && priority != Priority::High => Advice::Yield,
        (QuietState::Panic, _) => Advice::Checkpoint,
    }
}
