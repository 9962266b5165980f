//! The promises of the deque to its owner and its thieves, on the machine itself. Interleavings are the subject of
//! `deque_models.rs`; here are order, growth, wrap-around and the filter.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::context::{Context, ContextRef};

const ALL_PRIVATE: usize = usize::MAX / 2;

/// Entries that are only told apart, never run: each is a number in disguise.
fn entry(number: usize) -> Entry {
    in_context(number, ContextRef::OUTERMOST)
}

fn in_context(number: usize, context: ContextRef) -> Entry {
    let address = std::num::NonZero::new((number + 1) * align_of::<Job>()).expect("not zero");
    Entry {
        job: NonNull::without_provenance(address),
        context,
    }
}

fn number_of(entry: Entry) -> usize {
    entry.job.addr().get() / align_of::<Job>() - 1
}

/// A deque whose owner is the calling thread.
struct Owned(Deque);

impl Owned {
    fn new(private_limit: usize, capacity: usize) -> Owned {
        Owned(Deque::new(private_limit, capacity))
    }

    /// One that has seen so many entries come and go.
    fn after(entries: usize, capacity: usize) -> Owned {
        let Owned(deque) = Owned::new(ALL_PRIVATE, capacity);
        deque.owner.bottom.set(entries);
        deque.owner.public_end.set(entries);
        deque.owner.known_top.set(entries);
        deque.ring().unwrap().top.store(entries, Ordering::Relaxed);
        deque
            .ring()
            .unwrap()
            .public_end
            .store(entries, Ordering::Relaxed);
        Owned(deque)
    }

    fn push(&self, numbers: std::ops::Range<usize>) {
        for number in numbers {
            // SAFETY: the owner's thread; the entries are never run.
            unsafe { self.0.push_private(entry(number)) };
        }
    }

    fn publish_all(&self) {
        // SAFETY: the owner's thread.
        unsafe { self.0.publish_all() };
    }

    fn publish_oldest(&self) {
        // SAFETY: the owner's thread.
        unsafe { self.0.publish_oldest() };
    }

    fn pop(&self) -> Option<usize> {
        // SAFETY: the owner's thread.
        unsafe { self.0.pop_newest() }.map(number_of)
    }

    fn pop_own(&self) -> bool {
        // SAFETY: the owner's thread.
        unsafe { self.0.pop_own() }
    }

    fn pop_all(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.pop()).collect()
    }

    fn steal(&self) -> Option<usize> {
        steal(&self.0)
    }

    fn steal_all(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.steal()).collect()
    }

    fn is_full(&self) -> bool {
        // SAFETY: the owner's thread.
        unsafe { self.0.private_is_full() }
    }

    fn private_len(&self) -> usize {
        // SAFETY: the owner's thread.
        unsafe { self.0.private_len() }
    }

    fn retired(&self) -> usize {
        // SAFETY: the owner's thread.
        unsafe { (*self.0.ring().unwrap().retired.get()).len() }
    }
}

fn steal(deque: &Deque) -> Option<usize> {
    loop {
        match deque.steal(|_| true) {
            Steal::Taken(entry) => return Some(number_of(entry)),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}

#[test]
fn the_owner_takes_the_newest_first() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    deque.push(0..3);
    assert_eq!(deque.pop_all(), [2, 1, 0]);
    deque.push(3..6);
    deque.publish_all();
    assert_eq!(deque.pop_all(), [5, 4, 3]);
}

#[test]
fn thieves_take_the_oldest_first() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    deque.push(0..3);
    deque.publish_all();
    assert_eq!(deque.steal_all(), [0, 1, 2]);
}

#[test]
fn owner_and_thief_meet_in_the_middle() {
    let deque = Owned::new(ALL_PRIVATE, 8);
    deque.push(0..5);
    deque.publish_all();
    assert_eq!(deque.steal(), Some(0));
    assert_eq!(deque.pop(), Some(4));
    assert_eq!(deque.steal(), Some(1));
    assert_eq!(deque.pop(), Some(3));
    assert_eq!(deque.pop(), Some(2));
    assert_eq!(deque.pop(), None);
    assert_eq!(deque.steal(), None);
}

#[test]
fn a_thief_sees_what_was_published_and_no_more() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    deque.push(0..3);
    assert_eq!(deque.steal(), None);
    assert!(deque.0.looks_empty_to_thief());
    deque.publish_oldest();
    assert_eq!((deque.0.public_len(), deque.private_len()), (1, 2));
    assert_eq!(deque.steal(), Some(0));
    assert_eq!(deque.steal(), None);
    assert_eq!(deque.pop_all(), [2, 1]);
    deque.publish_oldest();
    assert!(
        deque.0.looks_empty_to_thief(),
        "there was nothing to publish"
    );
}

#[test]
fn private_jobs_are_named_oldest_first() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    deque.push(0..3);
    deque.publish_oldest();
    // SAFETY: the owner's thread.
    let jobs = unsafe { deque.0.private_jobs() };
    assert!(jobs.eq([entry(1).job, entry(2).job]));
}

#[test]
fn popping_an_own_entry_says_whether_it_was_stolen() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    deque.push(0..3);
    deque.publish_oldest();
    deque.publish_oldest();
    assert_eq!(deque.steal(), Some(0));
    assert!(deque.pop_own(), "private");
    assert!(deque.pop_own(), "public and still there");
    assert!(!deque.pop_own(), "stolen");
    assert_eq!(deque.pop(), None);
}

#[test]
fn a_filter_lets_the_oldest_entry_lie() {
    // SAFETY: there is nothing around them.
    let context = || unsafe { Context::inside(ContextRef::OUTERMOST, std::ptr::null(), None) };
    let contexts = [context(), context()];
    let [wanted, other] = contexts
        .each_ref()
        .map(|context| ContextRef::OUTERMOST.nesting(context));
    let deque = Owned::new(ALL_PRIVATE, 4);
    for (number, context) in [other, wanted].into_iter().enumerate() {
        // SAFETY: the owner's thread; the entries are never run.
        unsafe { deque.0.push_private(in_context(number, context)) };
    }
    deque.publish_all();
    let suits = |context: ContextRef| context == wanted;
    assert_eq!(
        deque.0.steal(suits),
        Steal::Empty,
        "the oldest does not suit"
    );
    assert_eq!(deque.0.public_len(), 2, "and stays where it is");
    assert_eq!(deque.steal(), Some(0));
    assert_eq!(deque.0.steal(suits), Steal::Taken(in_context(1, wanted)));
}

#[test]
fn a_deque_that_never_had_an_entry_takes_no_memory_for_thieves() {
    let deque = Owned(Deque::empty(2));
    deque.0.ask_unless_public();
    assert!(deque.0.is_asked(), "it can be asked all the same");
    assert_eq!(deque.steal(), None);
    assert_eq!(
        (deque.0.public_len(), deque.0.oldest_public_index()),
        (0, None)
    );
    assert!(deque.0.ring().is_none());
    deque.push(0..1);
    deque.publish_oldest();
    assert!(deque.0.ring().is_some());
    assert_eq!(deque.steal(), Some(0));
}

#[test]
fn enough_is_private_until_somebody_asks() {
    let deque = Owned::new(2, 4);
    deque.push(0..1);
    assert!(!deque.is_full());
    deque.push(1..2);
    assert!(deque.is_full());
    deque.0.ask();
    assert!(!deque.is_full());
    assert!(deque.0.is_asked());
    deque.publish_oldest();
    assert!(!deque.0.is_asked(), "answered");
    assert!(!deque.is_full(), "one is public now, one private");
    deque.push(2..3);
    assert!(deque.is_full());
    deque.0.ask_unless_public();
    assert!(deque.is_full(), "there is something to take already");
}

#[test]
fn growth_keeps_every_entry_in_its_place() {
    let deque = Owned::new(ALL_PRIVATE, 1);
    deque.push(0..100);
    deque.publish_all();
    deque.push(100..1000);
    let stolen: Vec<usize> = (0..50).filter_map(|_| deque.steal()).collect();
    assert!(stolen.into_iter().eq(0..50));
    assert!(deque.pop_all().into_iter().eq((50..1000).rev()));
    assert_eq!(
        deque.retired(),
        0,
        "with no thief about, replaced buffers are freed at once"
    );
}

#[test]
fn room_made_by_thieves_is_used_before_the_buffer_grows() {
    let deque = Owned::new(ALL_PRIVATE, 4);
    for round in 0..100 {
        deque.push(4 * round..4 * round + 4);
        deque.publish_all();
        assert!(deque.steal_all().into_iter().eq(4 * round..4 * round + 4));
    }
    assert_eq!(deque.0.owner.capacity.get(), 4);
}

#[test]
fn a_buffer_that_is_being_read_is_kept_until_the_reader_has_left() {
    let deque = Owned::new(ALL_PRIVATE, 1);
    deque.push(0..1);
    deque.publish_all();
    let result = deque.0.steal(|_| {
        // This thief has read its slot and not yet won it; the owner, elsewhere, needs room.
        deque.push(1..2);
        assert_eq!(deque.retired(), 1);
        true
    });
    assert_eq!(result, Steal::Taken(entry(0)));
    // SAFETY: the owner's thread.
    unsafe { deque.0.reclaim() };
    assert_eq!(deque.retired(), 0);
    assert_eq!(deque.pop_all(), [1]);
}

#[test]
fn indices_wrap_around() {
    for before in 0..10 {
        let deque = Owned::after(usize::MAX - before, 2);
        deque.push(0..8);
        deque.publish_all();
        deque.push(8..12);
        assert_eq!(deque.0.public_len(), 8);
        assert_eq!(deque.private_len(), 4);
        assert_eq!(deque.steal(), Some(0));
        assert_eq!(deque.steal(), Some(1));
        assert!(deque.pop_all().into_iter().eq((2..12).rev()));
        assert!(deque.0.looks_empty_to_thief());
    }
}

/// Takes every number down, and fails if one comes twice.
struct Ledger(Vec<AtomicBool>);

impl Ledger {
    fn new(numbers: usize) -> Ledger {
        Ledger((0..numbers).map(|_| AtomicBool::new(false)).collect())
    }

    fn note(&self, number: usize) {
        let again = self.0[number].swap(true, Ordering::Relaxed);
        assert!(!again, "{number} was taken twice");
    }

    fn is_complete(&self) -> bool {
        self.0.iter().all(|noted| noted.load(Ordering::Relaxed))
    }
}

#[test]
fn every_entry_is_taken_once_while_the_deque_grows_and_shrinks() {
    const THIEVES: usize = 3;
    let numbers = if cfg!(miri) { 400 } else { 200_000 };
    let deque = Owned::new(ALL_PRIVATE, 1);
    let ledger = Ledger::new(numbers);
    let is_over = AtomicBool::new(false);
    let stolen = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THIEVES {
            // The owner's side of the deque stays on this thread.
            let shared = &deque.0;
            let (ledger, is_over, stolen) = (&ledger, &is_over, &stolen);
            scope.spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    match steal(shared) {
                        Some(number) => {
                            ledger.note(number);
                            stolen.fetch_add(1, Ordering::Relaxed);
                        }
                        None => thread::yield_now(),
                    }
                }
            });
        }
        // Waves of growing length, each taken back in part: the deque grows, empties and wraps.
        let mut next = 0;
        let mut wave = 1;
        while next < numbers {
            let end = (next + wave).min(numbers);
            deque.push(next..end);
            deque.publish_all();
            while stolen.load(Ordering::Relaxed) == 0 {
                // Not before the thieves are at work.
                thread::yield_now();
            }
            for _ in 0..wave / 2 {
                deque
                    .pop()
                    .into_iter()
                    .for_each(|number| ledger.note(number));
            }
            next = end;
            wave = wave % 500 + 7;
        }
        deque
            .pop_all()
            .into_iter()
            .for_each(|number| ledger.note(number));
        is_over.store(true, Ordering::Release);
    });
    assert!(ledger.is_complete(), "no entry is lost");
    assert!(deque.0.looks_empty_to_thief());
    // SAFETY: the owner's thread.
    unsafe { deque.0.reclaim() };
    assert_eq!(deque.retired(), 0);
}
