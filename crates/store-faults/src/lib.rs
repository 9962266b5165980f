//! A file system for SQLite that loses power, for tests.
//!
//! A [`Machine`] holds files in memory under a vfs name of its own. It knows which writes were synced: after
//! [`Machine::power_cut`] any subset of the others is gone, in any order, torn at sector boundaries, and so are new and
//! deleted names that no sync of the folder confirmed. It can also run out of space, and fail to write, sync or read
//! ([`Machine::inject`]). The same seed gives the same loss.
//!
//! Connections use the real write-ahead log with shared memory, several of them at once, so a test runs the very
//! statements and settings that run in production. After a power cut all open handles are dead: every call on them
//! fails until the test has dropped the program that held them, called [`Machine::power_on`], and opened again.
//!
//! ```
//! use jobtree_store_faults::Machine;
//! # fn main() -> rusqlite::Result<()> {
//! let machine = Machine::new();
//! let db = machine.connect("a.db")?;
//! db.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE t (x)")?;
//! db.execute("INSERT INTO t VALUES (42)", [])?; // acknowledged, so synced
//!
//! machine.power_cut(7);
//! assert!(db.execute("INSERT INTO t VALUES (43)", []).is_err());
//! drop(db);
//! machine.power_on();
//!
//! let db = machine.connect("a.db")?;
//! assert_eq!(db.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0))?, 42);
//! # Ok(())
//! # }
//! ```
#![doc = include_str!("../README.md")]

mod inode;
mod locks;
mod machine;
mod rng;
mod shm;
mod vfs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::{Connection, OpenFlags};

pub use machine::Fault;
use vfs::{Registered, Shared};

/// How much a disk writes whole. Real disks say 512 or 4096; the smaller one allows more ways to tear a page.
const SECTOR: usize = 512;

/// A machine with a disk, whose files SQLite opens under [`Machine::vfs_name`].
pub struct Machine {
    shared: Arc<Shared>,
    name: String,
    _registered: Registered,
}

impl Machine {
    /// A machine with an empty disk, and its power on.
    #[expect(
        clippy::new_without_default,
        reason = "registers something for the whole process"
    )]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("store-faults-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let shared = Arc::new(Shared::new(machine::Machine::new(SECTOR)));
        Self {
            _registered: Registered::new(&name, Arc::clone(&shared)),
            shared,
            name,
        }
    }

    /// What to pass to SQLite as the name of the vfs.
    pub fn vfs_name(&self) -> &str {
        &self.name
    }

    /// A connection to a file of this machine, which is made if it is missing.
    pub fn connect(&self, file: &str) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        Connection::open_with_flags_and_vfs(file, flags, self.name.as_str())
    }

    /// Cuts the power now. What was not synced is lost as the seed decides; all handles are dead; nothing can be opened
    /// before [`power_on`](Self::power_on).
    pub fn power_cut(&self, seed: u64) {
        self.shared.machine().power_cut(seed);
    }

    /// Cuts the power when so many more operations (writes, syncs, changes of a file's length, new and deleted names)
    /// have been done: the next one fails, and it has not taken place.
    pub fn power_cut_after(&self, operations: u64, seed: u64) {
        self.shared.machine().plan_power_cut(operations, seed);
    }

    /// Kills all processes, as SIGKILL does: their handles are dead and their locks gone, while the system lives on with
    /// all that was written, synced or not. Files can be opened again at once.
    pub fn kill(&self) {
        self.shared.machine().kill();
    }

    /// Switches the power on again.
    pub fn power_on(&self) {
        self.shared.machine().power_on();
    }

    /// Whether the power is on.
    pub fn is_on(&self) -> bool {
        self.shared.machine().is_on()
    }

    /// Lets the operations that this fault can strike go well `after` times, and then fails `times` of them
    /// (`u64::MAX`: all until [`heal`](Self::heal)).
    pub fn inject(&self, fault: Fault, after: u64, times: u64) {
        assert!(times > 0, "a fault that never strikes tests nothing");
        self.shared.machine().plan(fault, after, times);
    }

    /// Takes back all faults that have not struck yet.
    pub fn heal(&self) {
        self.shared.machine().heal();
    }

    /// How often this fault has struck.
    pub fn struck(&self, fault: Fault) -> u64 {
        self.shared.machine().struck(fault)
    }

    /// How many operations have changed the disk so far, to choose a point for [`power_cut_after`](Self::power_cut_after).
    pub fn operations(&self) -> u64 {
        self.shared.machine().operations()
    }

    /// How many syncs have succeeded so far.
    pub fn syncs(&self) -> u64 {
        self.shared.machine().syncs()
    }

    /// How many writes a power cut could lose now.
    pub fn unsynced(&self) -> usize {
        self.shared.machine().unsynced()
    }

    /// The bytes of a file as a running program sees them; `None` if there is no such file.
    pub fn contents(&self, file: &str) -> Option<Vec<u8>> {
        self.shared.machine().contents(file)
    }
}
