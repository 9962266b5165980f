//! Ids that a worker draws: from the system, and in a simulation from its seed.

use jobtree_protocol::{InstanceId, LeaseId};
use jobtree_runtime::sim;

/// Draws the id of a lease that is asked for.
pub(crate) fn lease_id() -> LeaseId {
    simulated().map_or_else(LeaseId::generate, LeaseId::from_random)
}

/// Draws the id of a worker.
pub(crate) fn instance_id() -> InstanceId {
    simulated().map_or_else(InstanceId::generate, InstanceId::from_random)
}

fn simulated() -> Option<[u8; 16]> {
    let (high, low) = (sim::random()?, sim::random()?);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_le_bytes());
    bytes[8..].copy_from_slice(&low.to_le_bytes());
    Some(bytes)
}
