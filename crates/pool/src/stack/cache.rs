//! The few stacks that one worker keeps at hand.
//!
//! A stack that was just left still has its pages and, with luck, its lines in the cache, so the next one
//! taken should be the one given back last. A worker therefore keeps a small pile per class and takes from
//! its top. Only when the pile is empty or too high does it meet the other workers at the shared supply,
//! and then for half a pile at once.

use std::cell::RefCell;

use super::class::{StackClass, StackError};
use super::slab::Stack;
use super::supply::StackSupply;

/// Stacks kept per class: enough that a worker which parks and resumes in waves seldom meets the lock, at
/// worst 16 used stacks whose pages stay. Picked by feel.
const HOT: usize = 16;

/// Stacks that move between a cache and the supply at once.
const BATCH: usize = HOT / 2;

/// A worker's own stacks; not shared between threads.
///
/// Its methods take `&self` because they are called from any of the stacks that take turns on the worker;
/// none of them runs foreign code or switches stacks.
#[derive(Debug)]
pub struct StackCache {
    supply: StackSupply,
    /// Per class, coldest first.
    hot: RefCell<[Vec<Stack>; StackClass::ALL.len()]>,
}

impl StackCache {
    /// An empty cache on a supply.
    pub fn new(supply: &StackSupply) -> StackCache {
        let hot = RefCell::new([const { Vec::new() }; StackClass::ALL.len()]);
        for pile in hot.borrow_mut().iter_mut() {
            pile.reserve_exact(HOT);
        }
        StackCache {
            supply: supply.clone(),
            hot,
        }
    }

    /// A stack to run on: the one given back last, else one from the supply.
    ///
    /// What it contains is unspecified. An error means that the system has no more; the caller must do
    /// without a new stack.
    #[inline]
    pub fn take(&self, class: StackClass) -> Result<Stack, StackError> {
        let pile = &mut self.hot.borrow_mut()[class.index()];
        match pile.pop() {
            Some(stack) => Ok(stack),
            None => self.refill(class, pile),
        }
    }

    #[cold]
    fn refill(&self, class: StackClass, pile: &mut Vec<Stack>) -> Result<Stack, StackError> {
        self.supply.fetch(class, BATCH, pile)?;
        Ok(pile
            .pop()
            .expect("the supply delivers at least one or an error"))
    }

    /// Takes back a stack that nothing runs on any more.
    ///
    /// Stacks come from a cache of the same supply. One of another supply is accepted but then missing there.
    #[inline]
    pub fn give(&self, stack: Stack) {
        let class = stack.class();
        let pile = &mut self.hot.borrow_mut()[class.index()];
        if pile.len() == HOT {
            self.shed(class, pile);
        }
        pile.push(stack);
    }

    #[cold]
    fn shed(&self, class: StackClass, pile: &mut Vec<Stack>) {
        self.supply.take_home(class, pile, BATCH);
    }

    /// Gives all stacks and their pages back to the supply, as for a long idle time.
    pub fn clear(&self) {
        let mut hot = self.hot.borrow_mut();
        for class in StackClass::ALL {
            let pile = &mut hot[class.index()];
            let count = pile.len();
            if count > 0 {
                self.supply.take_home(class, pile, count);
            }
        }
    }
}

impl Drop for StackCache {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::DEFAULT_STACK_SIZE;
    use super::super::guard::GuardMethod;
    use super::super::slab::page_size;
    use super::super::testing::{readable, resident_pages};
    use super::*;
    use corosensei::stack::Stack as _;
    use std::collections::HashSet;

    fn supply() -> StackSupply {
        StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply")
    }

    fn take_many(cache: &StackCache, class: StackClass, count: usize) -> Vec<Stack> {
        (0..count)
            .map(|_| cache.take(class).expect("a stack"))
            .collect()
    }

    /// Writes to the `pages` highest pages of a stack, as deep calls would.
    fn use_pages(stack: &Stack, pages: usize) {
        for page in 1..=pages {
            // SAFETY: usable memory of a stack that the test owns and nothing runs on.
            unsafe {
                (stack.base().get() as *mut u8)
                    .sub(page * page_size())
                    .write_volatile(1)
            };
        }
    }

    fn resident(stack: &Stack) -> usize {
        resident_pages(stack.limit().get()..stack.base().get())
    }

    #[test]
    fn the_stack_given_last_is_taken_first_and_keeps_its_pages() {
        let cache = StackCache::new(&supply());
        for class in StackClass::ALL {
            let stack = cache.take(class).expect("a stack");
            let base = stack.base();
            use_pages(&stack, 5);
            cache.give(stack);
            let again = cache.take(class).expect("the same stack");
            assert_eq!((again.base(), again.class()), (base, class));
            assert_eq!(resident(&again), 5);
            cache.give(again);
        }
    }

    #[test]
    fn no_stack_is_handed_out_twice_and_all_are_guarded() {
        for method in [GuardMethod::best(), GuardMethod::Protection] {
            let supply =
                StackSupply::with_guard_method(DEFAULT_STACK_SIZE, method).expect("a supply");
            let caches = [StackCache::new(&supply), StackCache::new(&supply)];
            let mut stacks = Vec::new();
            for round in 0..300 {
                stacks.push(caches[round % 2].take(StackClass::Small).expect("a stack"));
                if round % 3 == 0 {
                    caches[(round / 3) % 2].give(stacks.swap_remove(round / 3 % stacks.len()));
                }
            }
            assert!(stacks.iter().all(|stack| !readable(stack.limit().get())));
            let distinct: HashSet<_> = stacks.iter().map(|stack| stack.base()).collect();
            assert_eq!(distinct.len(), stacks.len());
            stacks.into_iter().for_each(|stack| caches[0].give(stack));
        }
    }

    #[test]
    fn a_cache_stays_bounded_and_what_it_sheds_loses_its_pages() {
        let supply = supply();
        let cache = StackCache::new(&supply);
        let stacks = take_many(&cache, StackClass::Default, 100);
        let ranges: Vec<_> = stacks
            .iter()
            .map(|s| s.limit().get()..s.base().get())
            .collect();
        stacks.iter().for_each(|stack| use_pages(stack, 10));
        let resident_now = || ranges.iter().cloned().map(resident_pages).sum::<usize>();
        assert_eq!(resident_now(), 100 * 10);
        stacks.into_iter().for_each(|stack| cache.give(stack));
        assert!(
            cache
                .hot
                .borrow()
                .iter()
                .all(|pile| pile.len() <= HOT && pile.capacity() == HOT)
        );
        if cfg!(target_os = "linux") {
            assert!(resident_now() <= HOT * 10, "{} pages", resident_now());
            assert!(resident_now() > 0, "hot stacks keep their pages");
            cache.clear();
            assert_eq!(resident_now(), 0);
        }
    }

    #[test]
    fn a_dropped_cache_sends_its_stacks_home() {
        let supply = supply();
        let first = StackCache::new(&supply);
        let bases: HashSet<_> = take_many(&first, StackClass::Small, BATCH)
            .into_iter()
            .map(|stack| {
                let base = stack.base();
                first.give(stack);
                base
            })
            .collect();
        drop(first);
        let second = StackCache::new(&supply);
        let stack = second.take(StackClass::Small).expect("a stack");
        assert!(
            bases.contains(&stack.base()),
            "taken from home, not cut anew"
        );
        second.give(stack);
    }

    #[test]
    fn workers_exchange_stacks_through_the_supply() {
        // One side only takes, the other only gives; the supply must neither lose nor double any.
        let supply = supply();
        let (sender, receiver) = std::sync::mpsc::sync_channel(32);
        std::thread::scope(|scope| {
            let supply = &supply;
            scope.spawn(move || {
                let cache = StackCache::new(supply);
                for _ in 0..2_000 {
                    let stack = cache.take(StackClass::Small).expect("a stack");
                    use_pages(&stack, 1);
                    sender.send(stack).expect("the receiver takes all");
                }
            });
            scope.spawn(move || {
                let cache = StackCache::new(supply);
                receiver.into_iter().for_each(|stack| cache.give(stack));
            });
        });
        // Had one been lost, the supply's drop would panic.
        drop(supply);
    }

    #[test]
    fn a_stack_given_to_a_foreign_cache_is_leaked_not_unmapped() {
        let (home, foreign) = (supply(), supply());
        let stack = StackCache::new(&home)
            .take(StackClass::Small)
            .expect("a stack");
        let limit = stack.limit().get();
        StackCache::new(&foreign).give(stack);
        home.expect_missing(1);
        drop((home, foreign));
        assert!(super::super::testing::is_mapped(limit));
    }
}
