//! Locks among the connections of one machine: those of the file (SHARED to EXCLUSIVE), and the eight slots of the
//! shared memory that a write-ahead log needs. They live as long as the power is on.

use std::collections::HashMap;

use rusqlite::ffi;

/// Names an open file handle; never used twice.
pub(crate) type HandleId = u64;

/// SQLite's five levels: NONE, SHARED, RESERVED, PENDING, EXCLUSIVE.
pub(crate) type Level = std::os::raw::c_int;

/// Who holds which level of one file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    held: HashMap<HandleId, Level>,
}

impl FileLocks {
    pub(crate) fn level(&self, of: HandleId) -> Level {
        self.held.get(&of).copied().unwrap_or(ffi::SQLITE_LOCK_NONE)
    }

    fn highest_of_others(&self, than: HandleId) -> Level {
        let others = self.held.iter().filter(|(id, _)| **id != than);
        others
            .map(|(_, level)| *level)
            .max()
            .unwrap_or(ffi::SQLITE_LOCK_NONE)
    }

    /// Whether somebody is writing, or about to.
    pub(crate) fn reserved(&self) -> bool {
        self.held
            .values()
            .any(|level| *level >= ffi::SQLITE_LOCK_RESERVED)
    }

    /// Raises the level; false if somebody stands in the way. On the way to EXCLUSIVE a handle may stop at PENDING,
    /// which keeps new readers out while the old ones leave.
    pub(crate) fn raise(&mut self, of: HandleId, to: Level) -> bool {
        if self.level(of) >= to {
            return true;
        }
        let others = self.highest_of_others(of);
        let granted = match to {
            ffi::SQLITE_LOCK_SHARED => others < ffi::SQLITE_LOCK_PENDING,
            ffi::SQLITE_LOCK_RESERVED => others < ffi::SQLITE_LOCK_RESERVED,
            _ => {
                if others >= ffi::SQLITE_LOCK_RESERVED {
                    return false;
                }
                self.held.insert(of, ffi::SQLITE_LOCK_PENDING);
                others == ffi::SQLITE_LOCK_NONE
            }
        };
        if granted {
            self.held.insert(of, to);
        }
        granted
    }

    pub(crate) fn lower(&mut self, of: HandleId, to: Level) {
        if to == ffi::SQLITE_LOCK_NONE {
            self.held.remove(&of);
        } else if self.level(of) > to {
            self.held.insert(of, to);
        }
    }
}

const SLOTS: usize = ffi::SQLITE_SHM_NLOCK as usize;

/// Who holds which slots of the shared memory, as bit sets.
#[derive(Debug, Default)]
pub(crate) struct ShmLocks {
    shared: HashMap<HandleId, u32>,
    exclusive: HashMap<HandleId, u32>,
}

impl ShmLocks {
    fn of_others(map: &HashMap<HandleId, u32>, than: HandleId) -> u32 {
        let others = map.iter().filter(|(id, _)| **id != than);
        others.fold(0, |all, (_, slots)| all | slots)
    }

    fn mask(first: usize, count: usize) -> u32 {
        assert!(first + count <= SLOTS, "SQLite has {SLOTS} slots");
        ((1 << count) - 1) << first
    }

    pub(crate) fn lock(
        &mut self,
        of: HandleId,
        first: usize,
        count: usize,
        exclusive: bool,
    ) -> bool {
        let mask = Self::mask(first, count);
        let mut in_the_way = Self::of_others(&self.exclusive, of);
        if exclusive {
            in_the_way |= Self::of_others(&self.shared, of);
        }
        if in_the_way & mask != 0 {
            return false;
        }
        let map = if exclusive {
            &mut self.exclusive
        } else {
            &mut self.shared
        };
        *map.entry(of).or_default() |= mask;
        true
    }

    pub(crate) fn unlock(&mut self, of: HandleId, first: usize, count: usize) {
        let mask = Self::mask(first, count);
        for map in [&mut self.shared, &mut self.exclusive] {
            if let Some(slots) = map.get_mut(&of) {
                *slots &= !mask;
            }
        }
    }

    pub(crate) fn forget(&mut self, of: HandleId) {
        self.shared.remove(&of);
        self.exclusive.remove(&of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_readers_and_keeps_new_ones_out() {
        let mut locks = FileLocks::default();
        assert!(locks.raise(1, ffi::SQLITE_LOCK_SHARED));
        assert!(locks.raise(2, ffi::SQLITE_LOCK_SHARED));
        assert!(locks.raise(1, ffi::SQLITE_LOCK_RESERVED));
        assert!(!locks.raise(2, ffi::SQLITE_LOCK_RESERVED));
        assert!(!locks.raise(1, ffi::SQLITE_LOCK_EXCLUSIVE));
        assert!(
            !locks.raise(3, ffi::SQLITE_LOCK_SHARED),
            "pending keeps it out"
        );
        locks.lower(2, ffi::SQLITE_LOCK_NONE);
        assert!(locks.raise(1, ffi::SQLITE_LOCK_EXCLUSIVE));
    }

    #[test]
    fn an_exclusive_slot_excludes_all_others() {
        let mut locks = ShmLocks::default();
        assert!(locks.lock(1, 3, 1, false));
        assert!(locks.lock(2, 3, 1, false));
        assert!(!locks.lock(1, 3, 1, true));
        locks.unlock(2, 3, 1);
        locks.unlock(1, 3, 1);
        assert!(locks.lock(1, 3, 2, true));
        assert!(!locks.lock(2, 4, 1, false));
        locks.forget(1);
        assert!(locks.lock(2, 4, 1, false));
    }
}
