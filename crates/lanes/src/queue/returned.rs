//! The jobs that wait for another dispatch.
//!
//! Each of them has a place in two orders: among those of its priority by when it came back, and among all by when it is
//! aged. Both orders take a job out wherever it stands, so the jobs lie in numbered slots, and the first order is a list
//! that is linked through them. The second has two parts. A job that was aged already when it came back is aged from
//! that moment on: these, too, are a list, in the order in which they came. Of the others the moments come in any order:
//! these are in a heap, from which nothing is taken but its top. What leaves by the first order stays in the heap as a
//! stale number, until it comes up or until half the heap is stale.
//!
//! A heap's step goes with the logarithm of its length; but a job that comes back was mostly enqueued after those already
//! there, so it stays near the bottom, and a job comes up in it at most once in its life.
//!
//! Slots are given back when a quarter of them is used: all are then numbered anew.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::steps::step;
use crate::moment::Moment;
use crate::priority::Priority;

/// No slot.
const NONE: u32 = u32::MAX;
/// Fewer slots than this are never given back; in tests few, so that short runs do so, too.
pub(super) const KEPT: usize = if cfg!(test) { 8 } else { 1024 };
/// So many stale numbers may be in the heap in any case.
const STALE_KEPT: usize = if cfg!(test) { 2 } else { 32 };

/// Which list a link belongs to.
#[derive(Clone, Copy)]
enum Order {
    Rank,
    Age,
}

#[derive(Clone, Copy)]
struct Links {
    previous: u32,
    next: u32,
}

const UNLINKED: Links = Links {
    previous: NONE,
    next: NONE,
};

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

const EMPTY: List = List {
    first: NONE,
    last: NONE,
};

/// A job that came back, and what is known of it.
pub(super) struct Returnee<J> {
    pub(super) job: J,
    pub(super) priority: Priority,
    pub(super) first_enqueued: Moment,
    /// When it came back.
    pub(super) enqueued: Moment,
    /// From when on it is aged.
    pub(super) aged_at: Moment,
    /// How many new jobs of its priority came before it.
    pub(super) new_before: u64,
    /// In which order they came back, over all priorities.
    pub(super) number: u64,
}

struct Slot<J> {
    /// None, if the slot is free; `links[0].next` is then the next free one.
    returnee: Option<Returnee<J>>,
    is_in_heap: bool,
    links: [Links; 2],
}

/// When the job with this number in this slot is aged.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Aging {
    aged_at: Moment,
    number: u64,
    slot: u32,
}

impl Ord for Aging {
    fn cmp(&self, other: &Aging) -> Ordering {
        step();
        (self.aged_at, self.number).cmp(&(other.aged_at, other.number))
    }
}

impl PartialOrd for Aging {
    fn partial_cmp(&self, other: &Aging) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

pub(super) struct Returned<J> {
    slots: Vec<Slot<J>>,
    free: u32,
    used: usize,
    by_rank: [List; Priority::COUNT],
    aged: List,
    aging: BinaryHeap<Reverse<Aging>>,
    stale: usize,
    next_number: u64,
}

impl<J> Returned<J> {
    pub(super) fn new() -> Returned<J> {
        Returned {
            slots: Vec::new(),
            free: NONE,
            used: 0,
            by_rank: [EMPTY; Priority::COUNT],
            aged: EMPTY,
            aging: BinaryHeap::new(),
            stale: 0,
            next_number: 0,
        }
    }

    /// The number of the next one that comes back.
    #[inline]
    pub(super) fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Adds a job that came back at `enqueued` and is aged at `ages`, or was so before.
    pub(super) fn push(
        &mut self,
        job: J,
        priority: Priority,
        [first_enqueued, enqueued, ages]: [Moment; 3],
        new_before: u64,
    ) {
        step();
        let number = self.next_number;
        self.next_number += 1;
        let is_in_heap = ages > enqueued;
        let aged_at = ages.max(enqueued);
        let slot = self.store(Slot {
            returnee: Some(Returnee {
                job,
                priority,
                first_enqueued,
                enqueued,
                aged_at,
                new_before,
                number,
            }),
            is_in_heap,
            links: [UNLINKED; 2],
        });
        self.link(Order::Rank, priority, slot);
        if is_in_heap {
            self.aging.push(Reverse(Aging {
                aged_at,
                number,
                slot,
            }));
        } else {
            self.link(Order::Age, priority, slot);
        }
    }

    /// The slot of the job of this priority that came back first.
    #[inline]
    pub(super) fn first_of(&self, priority: Priority) -> Option<u32> {
        step();
        let first = self.by_rank[priority.index()].first;
        (first != NONE).then_some(first)
    }

    /// The slot of the job that was aged when it came back, and did so first.
    #[inline]
    pub(super) fn first_aged(&self) -> Option<u32> {
        step();
        (self.aged.first != NONE).then_some(self.aged.first)
    }

    /// When the next job in the heap is aged, or an earlier moment.
    #[inline]
    pub(super) fn soonest(&self) -> Option<Moment> {
        step();
        self.aging.peek().map(|Reverse(top)| top.aged_at)
    }

    /// The slot of the first job in the heap, if that is aged at `now`.
    pub(super) fn first_that_aged(&mut self, now: Moment) -> Option<u32> {
        while let Some(&Reverse(top)) = self.aging.peek() {
            step();
            if top.aged_at > now {
                break;
            }
            if self.is_current(&top) {
                return Some(top.slot);
            }
            self.aging.pop();
            self.stale -= 1;
        }
        None
    }

    /// What is in a slot that one of the others named.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> &Returnee<J> {
        let returnee = &self.slots[slot as usize].returnee;
        returnee.as_ref().expect("lists and heap name used slots")
    }

    /// Takes what is in a slot that one of the others named.
    pub(super) fn take(&mut self, slot: u32) -> Returnee<J> {
        step();
        let priority = self.get(slot).priority;
        self.unlink(Order::Rank, priority, slot);
        if !self.slots[slot as usize].is_in_heap {
            self.unlink(Order::Age, priority, slot);
        } else if self.aging.peek().is_some_and(|top| top.0.slot == slot) && self.top_is_current() {
            self.aging.pop();
        } else {
            self.stale += 1;
        }
        let freed = &mut self.slots[slot as usize];
        let returnee = freed.returnee.take();
        freed.links[0].next = self.free;
        self.free = slot;
        self.used -= 1;
        self.tidy();
        returnee.expect("lists and heap name used slots")
    }

    fn store(&mut self, slot: Slot<J>) -> u32 {
        self.used += 1;
        if self.free == NONE {
            let index = u32::try_from(self.slots.len()).ok().filter(|&i| i != NONE);
            self.slots.push(slot);
            return index.expect("four thousand million jobs do not wait at once");
        }
        let index = self.free;
        self.free = self.slots[index as usize].links[0].next;
        self.slots[index as usize] = slot;
        index
    }

    fn is_current(&self, aging: &Aging) -> bool {
        let returnee = self.slots.get(aging.slot as usize);
        let returnee = returnee.and_then(|slot| slot.returnee.as_ref());
        returnee.is_some_and(|returnee| returnee.number == aging.number)
    }

    fn top_is_current(&self) -> bool {
        let top = self.aging.peek();
        top.is_some_and(|Reverse(top)| self.is_current(top))
    }

    fn list(&mut self, order: Order, priority: Priority) -> &mut List {
        match order {
            Order::Rank => &mut self.by_rank[priority.index()],
            Order::Age => &mut self.aged,
        }
    }

    fn links(&mut self, order: Order, slot: u32) -> &mut Links {
        step();
        &mut self.slots[slot as usize].links[order as usize]
    }

    /// Puts a slot at the end of a list.
    fn link(&mut self, order: Order, priority: Priority, slot: u32) {
        let last = std::mem::replace(&mut self.list(order, priority).last, slot);
        self.links(order, slot).previous = last;
        if last == NONE {
            self.list(order, priority).first = slot;
        } else {
            self.links(order, last).next = slot;
        }
    }

    /// Takes a slot out of a list, wherever it stands.
    fn unlink(&mut self, order: Order, priority: Priority, slot: u32) {
        let Links { previous, next } = std::mem::replace(self.links(order, slot), UNLINKED);
        if previous == NONE {
            self.list(order, priority).first = next;
        } else {
            self.links(order, previous).next = next;
        }
        if next == NONE {
            self.list(order, priority).last = previous;
        } else {
            self.links(order, next).previous = previous;
        }
    }

    /// Forgets stale numbers when they are most of the heap, and gives slots back when most are free. Each time at least
    /// half of what is looked at goes, so that this costs each job a constant.
    fn tidy(&mut self) {
        if self.used == 0 {
            self.slots.clear();
            self.free = NONE;
            self.aging.clear();
            self.stale = 0;
        } else if self.stale > STALE_KEPT && self.stale * 2 > self.aging.len() {
            self.forget_stale();
        }
        if self.slots.capacity() > KEPT && self.used * 4 < self.slots.capacity() {
            self.number_anew();
        }
        if self.aging.capacity() > KEPT && self.aging.len() * 4 < self.aging.capacity() {
            self.aging.shrink_to(self.aging.len() * 2);
        }
    }

    fn forget_stale(&mut self) {
        let mut aging = std::mem::take(&mut self.aging);
        aging.retain(|Reverse(aging)| {
            step();
            self.is_current(aging)
        });
        self.aging = aging;
        self.stale = 0;
    }

    fn number_anew(&mut self) {
        self.forget_stale();
        let mut anew = vec![NONE; self.slots.len()];
        let mut slots = Vec::with_capacity((self.used * 2).max(KEPT / 2));
        for (old, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            step();
            if slot.returnee.is_some() {
                anew[old] = slots.len() as u32;
                slots.push(slot);
            }
        }
        let renumber = |slot: &mut u32| {
            if *slot != NONE {
                *slot = anew[*slot as usize];
            }
        };
        for slot in &mut slots {
            for links in &mut slot.links {
                renumber(&mut links.previous);
                renumber(&mut links.next);
            }
        }
        for list in self.by_rank.iter_mut().chain([&mut self.aged]) {
            renumber(&mut list.first);
            renumber(&mut list.last);
        }
        let aging = std::mem::take(&mut self.aging).into_iter();
        self.aging = aging
            .map(|Reverse(mut aging)| {
                renumber(&mut aging.slot);
                Reverse(aging)
            })
            .collect();
        self.slots = slots;
        self.free = NONE;
    }

    /// How many slots and heap entries there is memory for.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> (usize, usize) {
        (self.slots.capacity(), self.aging.capacity())
    }

    /// How many bytes a job takes here.
    #[cfg(test)]
    pub(super) const BYTES: usize = size_of::<Slot<J>>() + size_of::<Reverse<Aging>>();
}
