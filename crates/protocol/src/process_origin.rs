//! How a process is recognised from another process.

use serde::{Deserialize, Serialize};

use crate::check::Check;

/// The machine, the pid namespace and the start times that make registered pids unambiguous.
///
/// A pid alone names another process on another machine, in another container and at another time. The scheduler takes
/// a registered process out of the foreign load only if all of this agrees with its own view. Linux tells it; a worker
/// on another system or another machine sends it in vain, or not at all, and its load counts as foreign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct ProcessOrigin {
    /// The boot of the machine: `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
    /// The pid namespace: the inode of `/proc/self/ns/pid`.
    pub pid_namespace: u64,
    /// The start time of each registered process, in the order of `pids`: field 22 of `/proc/PID/stat`.
    pub started: Vec<u64>,
}

/// The longest boot id: a UUID has 36 bytes.
const BOOT_ID_BYTES: usize = 64;

impl ProcessOrigin {
    /// Checks that this belongs to so many processes.
    pub(crate) fn check(&self, check: &mut Check, pids: usize) {
        check.text("process_origin.boot_id", &self.boot_id, BOOT_ID_BYTES);
        let count = self.started.len();
        if count != pids {
            check.refuse(
                "process_origin.started",
                format!("has {count} entries for {pids} pids: write one start time for each pid"),
            );
        }
    }
}
