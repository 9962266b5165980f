//! loom models of the deque: owner and thieves, growth, reclaim.
//!
//! Each entry points to a [`Parcel`] that the owner fills before it pushes and the winner opens: loom
//! sees a race if the winner was not given what the owner wrote, and the parcel sees a second winner.

use std::ptr::NonNull;
use std::sync::Arc;

use super::{Deque, Entry, Steal};
use crate::context::ContextRef;
use crate::job::Job;
use crate::modelling::{Crew, Failure, Model, Parcel, claim};
use crate::sync::step::Step;

pub(crate) const MODELS: &[&Model] = &[
    &OWNER_AND_TWO_THIEVES,
    &OWNER_AND_THIEF,
    &GROWTH,
    &RECLAIM_LATER,
    &OWNER_AT_THE_OLDEST,
];

/// A deque and what its entries stand for.
struct Scene<const N: usize> {
    deque: Deque,
    parcels: [Parcel; N],
}

// SAFETY: the deque and loom's cells look after themselves; owner methods are called on one thread.
unsafe impl<const N: usize> Sync for Scene<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Send for Scene<N> {}

impl<const N: usize> Scene<N> {
    fn new(capacity: usize) -> Arc<Scene<N>> {
        Arc::new(Scene {
            deque: Deque::new(usize::MAX / 2, capacity),
            parcels: std::array::from_fn(|_| Parcel::new()),
        })
    }

    fn spawn(self: &Arc<Self>, crew: &Crew, body: fn(&Scene<N>)) {
        let scene = self.clone();
        crew.spawn(move || body(&scene));
    }

    fn push(&self, number: usize) {
        let parcel = &self.parcels[number];
        parcel.fill();
        // SAFETY: called by the owner; the scene outlives all threads.
        unsafe {
            self.deque.push_private(Entry {
                job: NonNull::from(parcel).cast::<Job>(),
                context: ContextRef::OUTERMOST,
            })
        };
    }

    fn publish_all(&self) {
        // SAFETY: called by the owner.
        unsafe { self.deque.publish_all() };
    }

    fn take(entry: Entry) {
        // SAFETY: entries of a scene point to its parcels.
        unsafe { entry.job.cast::<Parcel>().as_ref() }.open();
    }

    /// The owner takes the newest entry, if it can.
    fn pop(&self) -> bool {
        // SAFETY: called by the owner.
        let entry = unsafe { self.deque.pop_newest() };
        if let Some(entry) = entry {
            Self::take(entry);
        }
        entry.is_some()
    }

    /// The owner takes the entry with this number, if it is the oldest.
    fn take_oldest_if(&self, number: usize) -> bool {
        let job = NonNull::from(&self.parcels[number]).cast::<Job>();
        // SAFETY: called by the owner.
        let entry = unsafe { self.deque.take_oldest_if(job) };
        if let Some(entry) = entry {
            Self::take(entry);
        }
        entry.is_some()
    }

    /// A thief's single try.
    fn try_steal(&self) {
        if let Steal::Taken(entry) = self.deque.steal(|_| true) {
            Self::take(entry);
        }
    }

    /// At the end, when all threads but the owner have ended.
    fn finish(&self) {
        while self.pop() {}
        claim(
            self.deque.public_len() == 0,
            "an emptied deque has no public entry",
        );
        for parcel in &self.parcels {
            claim(parcel.is_opened(), "no entry is lost");
        }
    }
}

/// Two entries, public at once; the owner pops both while two thieves try for one each.
const OWNER_AND_TWO_THIEVES: Model = Model {
    name: "deque: owner and two thieves",
    preemptions: Some(3),
    needs: &[
        (Step::DequePopFence, Failure::Race),
        (Step::DequeStealFence, Failure::Race),
        (Step::DequePublishRelease, Failure::Assertion),
    ],
    body: || {
        let scene = Scene::<2>::new(2);
        let crew = Crew::new();
        for _ in 0..2 {
            scene.spawn(&crew, |scene| scene.try_steal());
        }
        scene.push(0);
        scene.push(1);
        scene.publish_all();
        scene.pop();
        scene.pop();
        crew.wait();
        scene.finish();
    },
};

/// Private and public entries: the owner publishes one, takes back the other and pushes again in its
/// place, while a thief tries twice.
const OWNER_AND_THIEF: Model = Model {
    name: "deque: private and public part",
    preemptions: None,
    needs: &[
        (Step::DequePopFence, Failure::Race),
        (Step::DequeStealFence, Failure::Race),
        (Step::DequePublishRelease, Failure::Assertion),
    ],
    body: || {
        let scene = Scene::<3>::new(2);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.try_steal();
            scene.try_steal();
        });
        scene.push(0);
        scene.push(1);
        // SAFETY: this is the owner's thread.
        unsafe { scene.deque.publish_oldest() };
        claim(scene.pop(), "nobody can take a private entry");
        scene.push(2);
        // SAFETY: as above.
        unsafe { scene.deque.publish_oldest() };
        scene.pop();
        crew.wait();
        scene.finish();
    },
};

/// The third entry does not fit, unless the thief is quick: the owner moves to a larger buffer, and frees
/// the old one if it can, while the thief reads one or the other.
const GROWTH: Model = Model {
    name: "deque: growth under a thief",
    preemptions: None,
    needs: &[
        (Step::DequeBufferRelease, Failure::Race),
        (Step::DequeReclaimCheck, Failure::Race),
        (Step::DequeReclaimFence, Failure::Race),
        (Step::DequeStealFence, Failure::Race),
    ],
    body: || {
        let scene = Scene::<3>::new(2);
        scene.push(0);
        scene.push(1);
        scene.publish_all();
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.try_steal();
            scene.try_steal();
        });
        scene.push(2);
        scene.publish_all();
        scene.pop();
        crew.wait();
        scene.finish();
    },
};

/// The owner grows twice and tries to free what it has replaced in between, with two thieves about: one
/// who leaves must not make the owner forget the other.
const RECLAIM_LATER: Model = Model {
    name: "deque: reclaim with two thieves",
    preemptions: Some(2),
    needs: &[
        (Step::DequeReclaimCheck, Failure::Race),
        (Step::DequeReclaimFence, Failure::Race),
    ],
    body: || {
        let scene = Scene::<3>::new(1);
        scene.push(0);
        scene.publish_all();
        let crew = Crew::new();
        for _ in 0..2 {
            scene.spawn(&crew, |scene| scene.try_steal());
        }
        scene.push(1);
        scene.publish_all();
        scene.push(2);
        // SAFETY: this is the owner's thread.
        unsafe { scene.deque.reclaim() };
        crew.wait();
        // SAFETY: as above.
        unsafe {
            scene.deque.reclaim();
            claim(
                (*scene.deque.own_ring().retired.get()).is_empty(),
                "without thieves, everything is freed",
            );
        }
        scene.finish();
    },
};

/// Two entries: the owner takes the oldest, as it would in the order in which it pushed them, and then the newest, while a
/// thief tries twice.
const OWNER_AT_THE_OLDEST: Model = Model {
    name: "deque: the owner takes the oldest",
    preemptions: Some(3),
    needs: &[
        (Step::DequeStealFence, Failure::Race),
        (Step::DequePublishRelease, Failure::Race),
    ],
    body: || {
        let scene = Scene::<3>::new(2);
        let crew = Crew::new();
        scene.spawn(&crew, |scene| {
            scene.try_steal();
            scene.try_steal();
        });
        scene.push(0);
        scene.push(1);
        scene.publish_all();
        scene.take_oldest_if(0);
        // In place of the first, if that is gone.
        scene.push(2);
        scene.publish_all();
        scene.pop();
        scene.take_oldest_if(2);
        crew.wait();
        scene.finish();
    },
};

#[test]
fn loom_the_owner_takes_the_oldest_as_a_thief_does() {
    OWNER_AT_THE_OLDEST.check();
}

#[test]
fn loom_an_entry_goes_to_the_owner_or_to_one_of_two_thieves() {
    OWNER_AND_TWO_THIEVES.check();
}

#[test]
fn loom_the_private_part_is_out_of_reach() {
    OWNER_AND_THIEF.check();
}

#[test]
fn loom_a_thief_reads_a_live_buffer_while_the_owner_grows() {
    GROWTH.check();
}

#[test]
fn loom_a_buffer_is_freed_when_the_last_thief_has_left() {
    RECLAIM_LATER.check();
}
