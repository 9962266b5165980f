//! Handles: numbers that stand for objects, and a table that knows which of them still do.
//!
//! A handle holds a *generation* (its upper 32 bits), the *kind* of its object (4 bits) and the place of a slot (28
//! bits). A slot's generation goes up when its object is taken out, so a handle that was destroyed is never mistaken for
//! its successor; a slot whose generations are used up is never used again. No handle is 0: generations begin at 1.
//!
//! Slots lie in shards, each behind a lock that is held for a few instructions and never while anything of the
//! object's own runs. Who looks a handle up gets a clone of the object (an `Arc`, mostly): so it stays there for a
//! call that is under way while another one destroys it.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

const SHARD_BITS: u32 = 4;
const SHARDS: usize = 1 << SHARD_BITS;
const PLACE_BITS: u32 = 28;
const KIND_BITS: u32 = 4;
/// What one shard can hold.
const MOST_SLOTS: usize = 1 << (PLACE_BITS - SHARD_BITS);

/// The kind of an object; from 1 to 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(u8);

impl Kind {
    pub(crate) const fn new(number: u8) -> Kind {
        assert!(number > 0 && number < 1 << KIND_BITS);
        Kind(number)
    }
}

/// Objects of type `T` by their handles.
pub(crate) struct Table<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
}

struct Shard<T> {
    slots: Vec<Slot<T>>,
    /// Slots without an object that may get one.
    free: Vec<u32>,
}

struct Slot<T> {
    /// Of the object in it, or of the next one.
    generation: u32,
    object: Option<(Kind, T)>,
}

/// A handle, taken apart.
#[derive(Clone, Copy)]
struct Parts {
    generation: u32,
    kind: u8,
    shard: usize,
    slot: usize,
}

impl Parts {
    fn of(handle: u64) -> Parts {
        let place = (handle & ((1 << PLACE_BITS) - 1)) as usize;
        Parts {
            generation: (handle >> 32) as u32,
            kind: ((handle >> PLACE_BITS) & ((1 << KIND_BITS) - 1)) as u8,
            shard: place % SHARDS,
            slot: place / SHARDS,
        }
    }

    fn handle(self) -> u64 {
        let place = self.slot * SHARDS + self.shard;
        u64::from(self.generation) << 32 | u64::from(self.kind) << PLACE_BITS | place as u64
    }
}

/// The shard that this thread puts objects into: threads that make many do not meet.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<Option<usize>> = const { Cell::new(None) };
    }
    OWN.try_with(|own| {
        let shard = own
            .get()
            .unwrap_or_else(|| NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        own.set(Some(shard));
        shard
    })
    .unwrap_or(0)
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table {
            shards: [const {
                Mutex::new(Shard {
                    slots: Vec::new(),
                    free: Vec::new(),
                })
            }; SHARDS],
        }
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard<T>> {
        // Nothing in here panics half-way.
        self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an object in and returns its handle, or gives it back if the table is full.
    pub(crate) fn insert(&self, kind: Kind, object: T) -> Result<u64, T> {
        let first = own_shard();
        for step in 0..SHARDS {
            let shard = (first + step) % SHARDS;
            let mut locked = self.lock(shard);
            let slot = match locked.free.pop() {
                Some(slot) => slot as usize,
                None if locked.slots.len() < MOST_SLOTS => {
                    locked.slots.push(Slot {
                        generation: 1,
                        object: None,
                    });
                    locked.slots.len() - 1
                }
                None => continue,
            };
            let place = &mut locked.slots[slot];
            place.object = Some((kind, object));
            let parts = Parts {
                generation: place.generation,
                kind: kind.0,
                shard,
                slot,
            };
            return Ok(parts.handle());
        }
        Err(object)
    }

    /// The object of a handle, if it still stands for one.
    pub(crate) fn get(&self, handle: u64) -> Option<T> {
        let parts = Parts::of(handle);
        self.lock(parts.shard).find(parts).cloned()
    }

    /// Whether a handle still stands for an object.
    pub(crate) fn holds(&self, handle: u64) -> bool {
        let parts = Parts::of(handle);
        self.lock(parts.shard).find(parts).is_some()
    }

    /// Takes the object of a handle out. Of several callers one gets it.
    pub(crate) fn remove(&self, handle: u64) -> Option<T> {
        let parts = Parts::of(handle);
        let mut locked = self.lock(parts.shard);
        locked.find(parts)?;
        locked.vacate(parts.slot)
    }

    /// All objects in it.
    pub(crate) fn all(&self) -> Vec<T> {
        let mut all = Vec::new();
        for shard in 0..SHARDS {
            let locked = self.lock(shard);
            let objects = locked.slots.iter().filter_map(|slot| slot.object.as_ref());
            all.extend(objects.map(|(_, object)| object.clone()));
        }
        all
    }

    /// Takes all objects out.
    pub(crate) fn clear(&self) -> Vec<T> {
        let mut all = Vec::new();
        for shard in 0..SHARDS {
            let mut locked = self.lock(shard);
            for slot in 0..locked.slots.len() {
                all.extend(locked.vacate(slot));
            }
        }
        all
    }
}

impl<T> Shard<T> {
    fn find(&self, parts: Parts) -> Option<&T> {
        let slot = self.slots.get(parts.slot)?;
        match &slot.object {
            Some((kind, object)) if slot.generation == parts.generation && kind.0 == parts.kind => {
                Some(object)
            }
            _ => None,
        }
    }

    /// Ends the generation of a slot that has an object.
    fn vacate(&mut self, slot: usize) -> Option<T> {
        let place = &mut self.slots[slot];
        let (_, object) = place.object.take()?;
        // If its generations are used up, it stays empty.
        if let Some(next) = place.generation.checked_add(1) {
            place.generation = next;
            self.free.push(slot as u32);
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Barrier};

    use super::*;

    const THING: Kind = Kind::new(1);
    const OTHER: Kind = Kind::new(15);

    #[test]
    fn a_handle_stands_for_its_object_until_it_is_removed() {
        let table = Table::new();
        let handle = table.insert(THING, "thing").unwrap();
        assert_eq!(table.get(handle), Some("thing"));
        assert!(table.holds(handle));
        assert_eq!(table.remove(handle), Some("thing"));
        assert_eq!(table.remove(handle), None, "a second time");
        assert_eq!(table.get(handle), None);
        assert!(!table.holds(handle));
    }

    #[test]
    fn what_never_was_a_handle_stands_for_nothing() {
        let table = Table::new();
        let handle = table.insert(THING, ()).unwrap();
        for wrong in [
            0,
            1,
            u64::MAX,
            handle + 1,
            handle ^ 1 << 32,
            handle | 1 << 63,
        ] {
            assert_eq!(table.get(wrong), None, "{wrong:#x}");
            assert_eq!(table.remove(wrong), None, "{wrong:#x}");
        }
        assert!(table.holds(handle));
    }

    #[test]
    fn a_handle_with_another_kind_is_another_handle() {
        let table = Table::new();
        let handle = table.insert(THING, ()).unwrap();
        let forged = Parts {
            kind: OTHER.0,
            ..Parts::of(handle)
        };
        assert_eq!(table.get(forged.handle()), None);
        assert_eq!(table.remove(forged.handle()), None);
    }

    #[test]
    fn a_slot_is_used_again_under_another_handle() {
        let table = Table::new();
        let mut handles = HashSet::new();
        for round in 0..100 {
            let handle = table.insert(THING, round).unwrap();
            assert!(handles.insert(handle), "{handle:#x} for the second time");
            assert_eq!(table.remove(handle), Some(round));
        }
        let slots: HashSet<_> = handles.iter().map(|handle| *handle as u32).collect();
        assert_eq!(slots.len(), 1, "one slot was enough");
    }

    #[test]
    fn a_slot_whose_generations_are_used_up_is_not_used_again() {
        let table = Table::new();
        let first = Parts::of(table.insert(THING, 1).unwrap());
        table.remove(first.handle()).unwrap();
        table.lock(first.shard).slots[first.slot].generation = u32::MAX;
        let last = Parts::of(table.insert(THING, 2).unwrap());
        assert_eq!((last.slot, last.generation), (first.slot, u32::MAX));
        assert_eq!(table.remove(last.handle()), Some(2));
        let next = Parts::of(table.insert(THING, 3).unwrap());
        assert_ne!((next.shard, next.slot), (first.shard, first.slot));
        assert_eq!(table.get(first.handle()), None);
        assert_eq!(table.get(last.handle()), None);
    }

    #[test]
    fn clearing_makes_every_handle_stale() {
        let table = Table::new();
        let handles: Vec<_> = (0..50)
            .map(|thing| table.insert(THING, thing).unwrap())
            .collect();
        assert_eq!(table.all().len(), 50);
        assert_eq!(table.clear().len(), 50);
        assert!(handles.iter().all(|handle| !table.holds(*handle)));
        let again = table.insert(THING, 0).unwrap();
        assert!(!handles.contains(&again));
    }

    #[test]
    fn of_many_that_destroy_one_does() {
        let threads = 4;
        let table = Table::new();
        let barrier = Barrier::new(threads);
        for _ in 0..200 {
            let object = Arc::new(());
            let handle = table.insert(THING, Arc::clone(&object)).unwrap();
            let removed: usize = std::thread::scope(|scope| {
                let remover = || {
                    barrier.wait();
                    usize::from(table.remove(handle).is_some())
                };
                let removers: Vec<_> = (0..threads).map(|_| scope.spawn(remover)).collect();
                removers.into_iter().map(|one| one.join().unwrap()).sum()
            });
            assert_eq!(removed, 1);
            assert_eq!(Arc::strong_count(&object), 1);
        }
    }

    #[test]
    fn an_object_in_use_outlives_its_handle() {
        let table = Table::new();
        let done = AtomicBool::new(false);
        let handle = table.insert(THING, Arc::new(AtomicUsize::new(0))).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while let Some(counter) = table.get(handle) {
                        counter.fetch_add(1, Ordering::Relaxed);
                    }
                    assert!(done.load(Ordering::SeqCst), "gone before it was removed");
                });
            }
            let kept = table.get(handle).unwrap();
            while kept.load(Ordering::Relaxed) < 1000 {
                std::hint::spin_loop();
            }
            done.store(true, Ordering::SeqCst);
            drop(table.remove(handle).unwrap());
            kept.fetch_add(1, Ordering::Relaxed);
        });
    }
}
