//! The process-wide table of slabs, readable in a signal handler.
//!
//! The fault handler has an address and asks: is that the guard of one of our stacks? It may not lock,
//! allocate or wait, so the table is a fixed array. Each entry is a sequence lock: its version is odd while
//! the entry changes, and a reader that sees the version odd or changed passes the entry over.
//! Passing over is right, not only safe: the slab of a stack that a thread is running on was entered before
//! the stack was handed out and leaves only after it came home, so the entry a fault is looking for is quiet.
//!
//! Writers are ordinary threads and exclude each other by a mutex.

use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::class::StackClass;

/// Slabs that can be known at once: enough for hundreds of pools. A slab beyond that works and is guarded,
/// but its overflow is a bare segmentation fault.
const ENTRIES: usize = 1024;

/// The place of a slab and its division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlabRecord {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The distance from one stack's limit to the next one's.
    pub(super) stride: usize,
    /// Length of the guard at the low end of each stack.
    pub(super) guard: usize,
    pub(super) class: StackClass,
}

/// A stack whose guard was touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OverflownStack {
    pub(super) usable: usize,
    pub(super) class: StackClass,
}

struct Entry {
    version: AtomicUsize,
    /// 0 while the entry is free.
    start: AtomicUsize,
    end: AtomicUsize,
    stride: AtomicUsize,
    guard: AtomicUsize,
    class: AtomicUsize,
}

static TABLE: [Entry; ENTRIES] = [const {
    Entry {
        version: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        stride: AtomicUsize::new(0),
        guard: AtomicUsize::new(0),
        class: AtomicUsize::new(0),
    }
}; ENTRIES];

/// Entries from here on were never used, so that the handler need not look at them.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

static WRITERS: Mutex<()> = Mutex::new(());

fn exclude_writers() -> MutexGuard<'static, ()> {
    // A panic while the lock is held is impossible; if it happened, the entry would stay odd and be passed over.
    WRITERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The guard region that contains this address, if it is one of ours. Safe in a signal handler.
pub(super) fn guard_at(address: usize) -> Option<OverflownStack> {
    // Acquire pairs with the release in `Registration::new`: entries below the mark are initialised.
    let used = HIGH_WATER.load(Ordering::Acquire);
    TABLE[..used]
        .iter()
        .filter_map(Entry::read)
        .find_map(|record| record.guard_at(address))
}

impl SlabRecord {
    fn guard_at(&self, address: usize) -> Option<OverflownStack> {
        let in_slab = (self.start..self.end).contains(&address);
        let in_guard = in_slab && (address - self.start) % self.stride < self.guard;
        in_guard.then_some(OverflownStack {
            usable: self.stride - self.guard,
            class: self.class,
        })
    }
}

impl Entry {
    fn read(&self) -> Option<SlabRecord> {
        // Acquire: the fields read below are at least as new as this version.
        let before = self.version.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let record = SlabRecord {
            start,
            end: self.end.load(Ordering::Relaxed),
            stride: self.stride.load(Ordering::Relaxed),
            guard: self.guard.load(Ordering::Relaxed),
            class: StackClass::ALL[self.class.load(Ordering::Relaxed) % StackClass::ALL.len()],
        };
        // Pairs with the fence in `write`: had a field come from a later write, this load would see its
        // version too.
        fence(Ordering::Acquire);
        let after = self.version.load(Ordering::Relaxed);
        let quiet = before == after && before.is_multiple_of(2);
        (quiet && start != 0).then_some(record)
    }

    /// Replaces the entry's contents. `_exclusive` shows that no other writer is at it.
    fn write(&self, record: Option<SlabRecord>, _exclusive: &MutexGuard<'static, ()>) {
        let version = self.version.load(Ordering::Relaxed);
        self.version
            .store(version.wrapping_add(1), Ordering::Relaxed);
        // The odd version becomes visible before any of the fields does.
        fence(Ordering::Release);
        self.start
            .store(record.map_or(0, |r| r.start), Ordering::Relaxed);
        if let Some(record) = record {
            self.end.store(record.end, Ordering::Relaxed);
            self.stride.store(record.stride, Ordering::Relaxed);
            self.guard.store(record.guard, Ordering::Relaxed);
            self.class.store(record.class.index(), Ordering::Relaxed);
        }
        // Release: the thread that sees the even version sees the fields.
        self.version
            .store(version.wrapping_add(2), Ordering::Release);
    }
}

/// Keeps a slab in the table; dropping it takes the slab out.
#[derive(Debug)]
pub(super) struct Registration {
    entry: usize,
}

impl Registration {
    /// Enters a slab, or returns `None` if the table is full.
    pub(super) fn new(record: SlabRecord) -> Option<Registration> {
        let exclusive = exclude_writers();
        let entry = TABLE
            .iter()
            .position(|entry| entry.start.load(Ordering::Relaxed) == 0)?;
        TABLE[entry].write(Some(record), &exclusive);
        HIGH_WATER.fetch_max(entry + 1, Ordering::Release);
        Some(Registration { entry })
    }

    /// Leaves the slab in the table until the process ends.
    pub(super) fn keep_for_ever(self) {
        std::mem::forget(self);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let exclusive = exclude_writers();
        TABLE[self.entry].write(None, &exclusive);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Records of addresses that no mapping of this process can have, apart from one another.
    fn record(place: usize, class: StackClass) -> SlabRecord {
        let start = usize::MAX / 2 + 1 + place * 0x10_0000;
        SlabRecord {
            start,
            end: start + 3 * 0x1000,
            stride: 0x1000,
            guard: 0x100,
            class,
        }
    }

    #[test]
    fn guards_are_found_and_usable_memory_is_not() {
        let record = record(0, StackClass::Small);
        let registration = Registration::new(record).expect("room in the table");
        let found = Some(OverflownStack {
            usable: 0xf00,
            class: StackClass::Small,
        });
        for stack in 0..3 {
            let limit = record.start + stack * record.stride;
            assert_eq!(guard_at(limit), found);
            assert_eq!(guard_at(limit + 0xff), found);
            assert_eq!(guard_at(limit + 0x100), None);
            assert_eq!(guard_at(limit + 0xfff), None);
        }
        assert_eq!(guard_at(record.start - 1), None);
        assert_eq!(guard_at(record.end), None);
        drop(registration);
        assert_eq!(guard_at(record.start), None);
    }

    #[test]
    fn a_reader_never_mixes_two_records_of_one_entry() {
        // Two records that could be mixed up: the second's guards lie where the first has usable memory.
        let first = record(1, StackClass::Small);
        let second = SlabRecord {
            start: first.start + 0x800,
            ..first
        };
        let second = SlabRecord {
            end: second.start + 3 * 0x1000,
            class: StackClass::Default,
            ..second
        };
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..20_000 {
                    drop(Registration::new(if round % 2 == 0 {
                        first
                    } else {
                        second
                    }));
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let seen = guard_at(first.start).map(|stack| stack.class);
                assert!(matches!(seen, None | Some(StackClass::Small)));
                let seen = guard_at(second.start).map(|stack| stack.class);
                assert!(matches!(seen, None | Some(StackClass::Default)));
            }
        });
    }
}
