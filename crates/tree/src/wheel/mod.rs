//! The deadlines of many timers, in order: what the one thread that waits for time asks what comes next.
//!
//! It is pure: no thread, no clock. Time comes in as a number of *ticks* since an origin that the caller
//! chose; a tick is meant to be a millisecond.
//!
//! # Where a timer lies
//!
//! Think of ticks as numbers of eleven digits, each from 0 to 63. The wheel stands at one tick, its
//! *position*. A timer lies on the level of the highest digit in which its deadline differs from the
//! position, in the slot that has its deadline's digit there:
//!
//! ```text
//!   level   a slot spans        the level spans
//!     0     1 ms                64 ms
//!     1     64 ms               4 s
//!     2     4 s                 4.4 min
//!     3     4.4 min             4.7 h
//!     4     4.7 h               12.4 days
//!     5     12.4 days           2.2 years
//!   6..11   the rest of 64 bits: there is no deadline too far away to have a slot
//! ```
//!
//! When the position comes to the start of a slot of a higher level, its timers are filed anew, each at
//! least one level lower. A timer therefore moves at most ten times; as long as the clock has not run for
//! two years, at most five times.
//!
//! # Why this is enough
//!
//! * Timers on a level have the position's digits above it and a higher digit on it (level 0: the same or
//!   a higher one). So the lowest bit in a level's bitmap is its earliest slot, and everything on a level
//!   comes before everything on the levels above: the next slot is two bit scans away, however much time
//!   passes in between.
//! * Where a timer lies depends on its deadline and the position only. So timers with the same deadline
//!   are always in the same slot, and since slots are queues and are filed anew from the front, they stay
//!   in the order in which they came.

#[cfg(all(test, not(loom)))]
mod tests;

use std::num::NonZero;

const DIGIT_BITS: u32 = 6;
const SLOTS_PER_LEVEL: usize = 1 << DIGIT_BITS;
/// As many as the digits of a tick.
const LEVELS: usize = u64::BITS.div_ceil(DIGIT_BITS) as usize;
/// No timer; as an index it is beyond any.
const NONE: u32 = u32::MAX;

/// Names a timer in the wheel that it was inserted into. Of one that has fired or was cancelled it names
/// nothing any more, even if its memory is used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: u32,
    /// The serial number of the timer: no two have the same.
    number: NonZero<u64>,
}

struct Timer<T> {
    deadline: u64,
    number: NonZero<u64>,
    slot: usize,
    previous: u32,
    /// The next one in the slot; of memory without a timer, the next free one.
    next: u32,
    /// `None` while no timer is here.
    value: Option<T>,
}

/// A slot's first and last timer.
#[derive(Clone, Copy)]
struct Queue {
    first: u32,
    last: u32,
}

const EMPTY: Queue = Queue {
    first: NONE,
    last: NONE,
};

/// A timer wheel: keeps values until their time comes.
///
/// Inserting and cancelling take constant time. Nothing is allocated but the timers' own memory, which is
/// used again: it grows with the largest number of timers at one time.
///
/// ```
/// use jobtree_tree::Wheel;
///
/// let mut wheel = Wheel::new();
/// wheel.insert(250, "late");
/// let early = wheel.insert(20, "early");
/// wheel.insert(20, "early too");
///
/// assert_eq!(wheel.next_deadline(), Some(20));
/// assert_eq!(wheel.cancel(early), Some("early"));
/// let fired = |(_, value)| value;
/// assert_eq!(wheel.pop_expired(300).map(fired), Some("early too"));
/// assert_eq!(wheel.pop_expired(300).map(fired), Some("late"));
/// assert_eq!(wheel.pop_expired(300), None);
/// ```
pub struct Wheel<T> {
    /// The position of the wheel: no slot that starts before it has timers.
    position: u64,
    /// The latest time that the caller has told; never before `position`.
    now: u64,
    /// The levels that have timers, and which slots of each.
    used_levels: u32,
    used_slots: [u64; LEVELS],
    queues: Box<[Queue]>,
    timers: Vec<Timer<T>>,
    first_free: u32,
    len: usize,
    last_number: u64,
    /// Slots looked into: the tests' measure of work.
    #[cfg(all(test, not(loom)))]
    visited: u64,
}

impl<T> Wheel<T> {
    /// An empty wheel that stands at tick 0.
    pub fn new() -> Wheel<T> {
        Wheel {
            position: 0,
            now: 0,
            used_levels: 0,
            used_slots: [0; LEVELS],
            queues: vec![EMPTY; LEVELS * SLOTS_PER_LEVEL].into_boxed_slice(),
            timers: Vec::new(),
            first_free: NONE,
            len: 0,
            last_number: 0,
            #[cfg(all(test, not(loom)))]
            visited: 0,
        }
    }

    /// Returns the number of timers that wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if no timer waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a timer. One whose deadline has passed counts as due at the tick the wheel stands at, so it
    /// comes with the next [`Wheel::pop_expired`], after those that are due at that tick already.
    ///
    /// # Panics
    /// If 2³² − 1 timers wait.
    pub fn insert(&mut self, deadline: u64, value: T) -> TimerKey {
        self.last_number += 1;
        let number =
            NonZero::new(self.last_number).expect("2^64 timers are more than a life of them");
        let timer = Timer {
            deadline: deadline.max(self.position),
            number,
            slot: 0,
            previous: NONE,
            next: NONE,
            value: Some(value),
        };
        let index = self.store(timer);
        self.len += 1;
        self.file(index);
        TimerKey { index, number }
    }

    /// Takes a timer out; `None` if it has fired or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let timer = self.timers.get(key.index as usize)?;
        if timer.number != key.number || timer.value.is_none() {
            return None;
        }
        Some(self.remove(key.index))
    }

    /// Returns the time until which nothing fires: never later than the earliest timer, and `None` without timers.
    ///
    /// It is the earliest deadline itself if that is within the present 64 ticks or alone in its slot, else
    /// the start of its slot. The thread that waits for it, calls [`Wheel::pop_expired`] with it until that is
    /// `None`, and asks again comes closer each time: either something has fired, or the answer is later
    /// than it was. No caller waits more often for a timer than there are levels.
    pub fn next_deadline(&self) -> Option<u64> {
        let slot = self.next_slot()?;
        let Queue { first, last } = self.queues[slot];
        Some(if first == last {
            self.timers[first as usize].deadline
        } else {
            self.start_of(slot)
        })
    }

    /// Takes out the earliest timer whose deadline is `now` or before; `None` if there is none (any more).
    ///
    /// Timers come in the order of their deadlines, and those with the same deadline in the order in which
    /// they were inserted. Timers may be inserted and cancelled in between. Time does not go back: a `now`
    /// before the latest one counts as the latest one.
    pub fn pop_expired(&mut self, now: u64) -> Option<(TimerKey, T)> {
        self.now = self.now.max(now);
        loop {
            let slot = match self.next_slot() {
                Some(slot) if self.start_of(slot) <= self.now => slot,
                _ => {
                    // No slot starts before `now`, so where timers lie does not change.
                    self.position = self.now;
                    return None;
                }
            };
            self.note_visit();
            self.position = self.start_of(slot);
            if slot < SLOTS_PER_LEVEL {
                let index = self.queues[slot].first;
                let number = self.timers[index as usize].number;
                return Some((TimerKey { index, number }, self.remove(index)));
            }
            self.file_anew(slot);
        }
    }

    /// The slot with the earliest timers.
    fn next_slot(&self) -> Option<usize> {
        let level = self.used_levels.trailing_zeros() as usize;
        let slots = self.used_slots.get(level)?;
        Some(level * SLOTS_PER_LEVEL + slots.trailing_zeros() as usize)
    }

    /// The first tick of a slot: no timer in it is due before. Asked only of slots with timers, which
    /// differ from the position in nothing above their level.
    fn start_of(&self, slot: usize) -> u64 {
        let shift = DIGIT_BITS * (slot / SLOTS_PER_LEVEL) as u32;
        // Above the highest level there is nothing to shift.
        let above = self.position.checked_shr(shift + DIGIT_BITS).unwrap_or(0);
        (above << DIGIT_BITS | (slot % SLOTS_PER_LEVEL) as u64) << shift
    }

    /// The slot of a deadline, from where the wheel stands.
    fn slot_of(&self, deadline: u64) -> usize {
        // A difference in the last digit, or none, is level 0.
        let differing = self.position ^ deadline | (SLOTS_PER_LEVEL as u64 - 1);
        let level = differing.ilog2() / DIGIT_BITS;
        let digit = (deadline >> (DIGIT_BITS * level)) as usize % SLOTS_PER_LEVEL;
        level as usize * SLOTS_PER_LEVEL + digit
    }

    /// Files all timers of a slot from where the wheel stands now, in their order.
    fn file_anew(&mut self, slot: usize) {
        let mut index = self.queues[slot].first;
        self.queues[slot] = EMPTY;
        self.mark_unused(slot);
        while index != NONE {
            let next = self.timers[index as usize].next;
            self.file(index);
            index = next;
        }
    }

    /// Puts a timer that is in no slot at the end of the one where it belongs.
    fn file(&mut self, index: u32) {
        let slot = self.slot_of(self.timers[index as usize].deadline);
        let last = self.queues[slot].last;
        let timer = &mut self.timers[index as usize];
        timer.slot = slot;
        timer.previous = last;
        timer.next = NONE;
        self.queues[slot].last = index;
        match self.timers.get_mut(last as usize) {
            Some(last) => last.next = index,
            None => {
                self.queues[slot].first = index;
                self.mark_used(slot);
            }
        }
    }

    /// Takes a timer out of its slot and out of memory.
    fn remove(&mut self, index: u32) -> T {
        let timer = &mut self.timers[index as usize];
        let value = timer.value.take().expect("a timer in a slot has a value");
        let (slot, previous, next) = (timer.slot, timer.previous, timer.next);
        timer.next = self.first_free;
        self.first_free = index;
        self.len -= 1;
        match self.timers.get_mut(previous as usize) {
            Some(previous) => previous.next = next,
            None => self.queues[slot].first = next,
        }
        match self.timers.get_mut(next as usize) {
            Some(next) => next.previous = previous,
            None => self.queues[slot].last = previous,
        }
        if self.queues[slot].first == NONE {
            self.mark_unused(slot);
        }
        value
    }

    /// Finds memory for a timer.
    fn store(&mut self, timer: Timer<T>) -> u32 {
        let index = self.first_free;
        if let Some(free) = self.timers.get_mut(index as usize) {
            self.first_free = free.next;
            *free = timer;
            return index;
        }
        let index = u32::try_from(self.timers.len()).unwrap_or(NONE);
        assert!(index != NONE, "a timer wheel holds at most 2^32 - 1 timers");
        self.timers.push(timer);
        index
    }

    fn mark_used(&mut self, slot: usize) {
        let level = slot / SLOTS_PER_LEVEL;
        self.used_slots[level] |= 1 << (slot % SLOTS_PER_LEVEL);
        self.used_levels |= 1 << level;
    }

    fn mark_unused(&mut self, slot: usize) {
        let level = slot / SLOTS_PER_LEVEL;
        self.used_slots[level] &= !(1 << (slot % SLOTS_PER_LEVEL));
        if self.used_slots[level] == 0 {
            self.used_levels &= !(1 << level);
        }
    }

    #[cfg(all(test, not(loom)))]
    fn note_visit(&mut self) {
        self.visited += 1;
    }

    #[cfg(not(all(test, not(loom))))]
    fn note_visit(&self) {}
}

impl<T> Default for Wheel<T> {
    fn default() -> Wheel<T> {
        Wheel::new()
    }
}

impl<T> std::fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wheel")
            .field("position", &self.position)
            .field("len", &self.len)
            .field("next_deadline", &self.next_deadline())
            .finish_non_exhaustive()
    }
}
