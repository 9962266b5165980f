//! The stacks that all workers of a pool share.
//!
//! A stack is always in one of three places: out (in a worker's cache, or with a coroutine on it), home
//! (in a shelf's list, its pages given back), or not cut yet. Shelves hand stacks out and take them back
//! several at a time, so that workers, which keep a few in their own caches, meet at the lock rarely.
//! System calls per stack happen outside of the lock.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::class::{SMALL_STACK_SIZE, StackClass, StackError, checked_stack_size};
use super::guard::GuardMethod;
use super::slab::{Slab, Stack, round_up_to_pages};
use crate::stats::StackStats;

/// Hands out stacks of both classes to the caches of a pool's workers.
///
/// Cloning gives another handle to the same supply; each [`StackCache`](super::StackCache) holds one.
/// When the last handle goes, every slab whose stacks are all home is unmapped. A slab with a stack that
/// never came home is leaked instead, since something may still be running or suspended there; in debug
/// builds a stack missing without a word to `expect_missing` is a panic.
#[derive(Clone)]
pub struct StackSupply {
    shared: Arc<Shared>,
}

struct Shared {
    default_size: usize,
    guard_method: GuardMethod,
    shelves: [Mutex<Shelf>; StackClass::ALL.len()],
    expected_missing: AtomicUsize,
    refusals: Mutex<Refusals>,
}

/// The requests that the system refused.
#[derive(Default)]
struct Refusals {
    count: u64,
    last: Option<StackError>,
    /// For tests: everything is refused.
    all: Option<StackError>,
}

/// All there is of one class.
#[derive(Default)]
struct Shelf {
    /// Ready to be handed out: guarded, and without pages.
    home: Vec<Stack>,
    /// Cut off, but the system refused the guard.
    unguarded: Vec<Stack>,
    /// Stacks are cut from the last one; the others are used up.
    slabs: Vec<Slab>,
}

impl StackSupply {
    /// A supply whose default stacks have `default_size` usable bytes, rounded up to pages.
    ///
    /// Reserves nothing yet: a class costs nothing until its first stack is taken.
    pub fn new(default_size: usize) -> Result<StackSupply, StackError> {
        StackSupply::with_guard_method(default_size, GuardMethod::best())
    }

    pub(super) fn with_guard_method(
        default_size: usize,
        guard_method: GuardMethod,
    ) -> Result<StackSupply, StackError> {
        let shared = Shared {
            default_size: round_up_to_pages(checked_stack_size(default_size)?),
            guard_method,
            shelves: Default::default(),
            expected_missing: AtomicUsize::new(0),
            refusals: Mutex::default(),
        };
        Ok(StackSupply {
            shared: Arc::new(shared),
        })
    }

    /// Usable bytes of this supply's stacks of a class.
    pub fn stack_size(&self, class: StackClass) -> usize {
        match class {
            StackClass::Small => round_up_to_pages(SMALL_STACK_SIZE),
            StackClass::Default => self.shared.default_size,
        }
    }

    /// Says that `count` more stacks will never come home, because what was suspended on them was leaked.
    #[cfg(test)]
    pub fn expect_missing(&self, count: usize) {
        // Relaxed: read only by the last handle's drop, which the reference count orders after this.
        self.shared
            .expected_missing
            .fetch_add(count, std::sync::atomic::Ordering::Relaxed);
    }

    /// Returns the number of stacks of a class that have come home, and have no pages.
    #[cfg(test)]
    pub fn at_home(&self, class: StackClass) -> usize {
        self.shelf(class).home.len()
    }

    /// Returns the state of the supply.
    pub fn stats(&self) -> StackStats {
        let refusals = self.refusals();
        StackStats {
            can_park: true,
            most: self.shared.guard_method.limit(),
            refused: refusals.count,
            last_refusal: refusals.last,
        }
    }

    /// From now on no stack is to be had, for this reason; `None` is as before. For tests.
    pub fn refuse_all(&self, error: Option<StackError>) {
        self.refusals().all = error;
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        let refusals = &self.shared.refusals;
        refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts between one and `want` stacks into `into`.
    pub(super) fn fetch(
        &self,
        class: StackClass,
        want: usize,
        into: &mut Vec<Stack>,
    ) -> Result<(), StackError> {
        let fetched = self.fetch_or_refuse(class, want, into);
        if let Err(error) = fetched {
            let mut refusals = self.refusals();
            refusals.count += 1;
            refusals.last = Some(error);
        }
        fetched
    }

    fn fetch_or_refuse(
        &self,
        class: StackClass,
        want: usize,
        into: &mut Vec<Stack>,
    ) -> Result<(), StackError> {
        debug_assert!(want > 0);
        if let Some(error) = self.refusals().all {
            return Err(error);
        }
        let first_new = into.len();
        {
            let mut shelf = self.shelf(class);
            let at_home = shelf.home.len();
            if at_home > 0 {
                // Fewer than wanted is enough: what is home has been cut and guarded already.
                into.extend(shelf.home.drain(at_home - want.min(at_home)..));
                return Ok(());
            }
            shelf.cut(
                class,
                self.stack_size(class),
                self.shared.guard_method,
                want,
                into,
            )?;
        }
        for place in first_new..into.len() {
            if let Err(error) = into[place].guard(self.shared.guard_method) {
                self.shelf(class).unguarded.extend(into.drain(place..));
                return if place > first_new {
                    Ok(())
                } else {
                    Err(error)
                };
            }
        }
        Ok(())
    }

    /// Takes the first `count` of `stacks` home, after giving their pages back to the system.
    pub(super) fn take_home(&self, class: StackClass, stacks: &mut Vec<Stack>, count: usize) {
        for stack in &mut stacks[..count] {
            debug_assert_eq!(stack.class(), class);
            stack.discard_contents();
        }
        self.shelf(class).home.extend(stacks.drain(..count));
    }

    fn shelf(&self, class: StackClass) -> MutexGuard<'_, Shelf> {
        // Nothing panics while a shelf is locked, short of running out of heap.
        self.shared.shelves[class.index()]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Cuts off between one and `want` stacks, which have no guards yet.
    fn cut(
        &mut self,
        class: StackClass,
        usable: usize,
        guard_method: GuardMethod,
        want: usize,
        into: &mut Vec<Stack>,
    ) -> Result<(), StackError> {
        let refused_before = self.unguarded.len().min(want);
        if refused_before > 0 {
            let rest = self.unguarded.len() - refused_before;
            into.extend(self.unguarded.drain(rest..));
            return Ok(());
        }
        let is_used_up = |slab: &Slab| slab.cut_count() == slab.capacity();
        if self.slabs.last().is_none_or(is_used_up) {
            let previous_capacity = self.slabs.last().map_or(0, Slab::capacity);
            self.slabs.push(Slab::reserve(
                class,
                usable,
                previous_capacity,
                guard_method,
            )?);
        }
        let slab = self
            .slabs
            .last_mut()
            .expect("pushed above if there was none");
        into.extend(std::iter::from_fn(|| slab.cut()).take(want));
        Ok(())
    }

    /// Unmaps the slabs whose stacks are all here, leaks the others, and returns how many stacks are missing.
    fn close(&mut self) -> usize {
        self.home.sort_unstable_by_key(Stack::lowest_address);
        let home = std::mem::take(&mut self.home);
        let unguarded = std::mem::take(&mut self.unguarded);
        let mut missing = 0;
        for slab in self.slabs.drain(..) {
            let slab_addresses = slab.addresses();
            let below = |address: usize| home.partition_point(|s| s.lowest_address() < address);
            let guarded = below(slab_addresses.end) - below(slab_addresses.start);
            let bare = unguarded
                .iter()
                .filter(|s| slab_addresses.contains(&s.lowest_address()))
                .count();
            let out = slab.cut_count() - guarded - bare;
            if out == 0 {
                // SAFETY: a stack is neither copied nor made but by cutting it from its slab, so as many
                // stacks here as were cut are all of them; they are dropped at the end of this function.
                unsafe { slab.unmap(guarded) };
            } else {
                missing += out;
                slab.leak();
            }
        }
        missing
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let shelves = self.shelves.iter_mut();
        let missing: usize = shelves
            .map(|shelf| {
                shelf
                    .get_mut()
                    .unwrap_or_else(PoisonError::into_inner)
                    .close()
            })
            .sum();
        let expected = *self.expected_missing.get_mut();
        debug_assert!(
            missing <= expected || std::thread::panicking(),
            "{missing} stacks did not come home, {expected} were expected to be missing; \
             their slabs are leaked"
        );
    }
}

impl fmt::Debug for StackSupply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackSupply")
            .field("default_size", &self.shared.default_size)
            .field("guard_method", &self.shared.guard_method)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::class::DEFAULT_STACK_SIZE;
    use super::super::testing::{assert_passes_in_child_process, is_mapped, mappings_within};
    use super::*;
    use corosensei::stack::Stack as _;

    fn fetch_exactly(supply: &StackSupply, class: StackClass, count: usize) -> Vec<Stack> {
        let mut stacks = Vec::new();
        while stacks.len() < count {
            let want = (count - stacks.len()).min(64);
            supply.fetch(class, want, &mut stacks).expect("a stack");
        }
        stacks
    }

    fn return_all(supply: &StackSupply, class: StackClass, mut stacks: Vec<Stack>) {
        let count = stacks.len();
        supply.take_home(class, &mut stacks, count);
    }

    fn slab_addresses(supply: &StackSupply, class: StackClass) -> Vec<std::ops::Range<usize>> {
        supply
            .shelf(class)
            .slabs
            .iter()
            .map(Slab::addresses)
            .collect()
    }

    #[test]
    fn a_supply_is_shared_between_threads() {
        fn shared<T: Send + Sync + 'static>() {}
        shared::<StackSupply>();
        fn sent<T: Send>() {}
        sent::<Stack>();
    }

    #[test]
    fn absurd_sizes_are_refused() {
        for size in [0, 4096, usize::MAX] {
            assert!(StackSupply::new(size).is_err(), "{size}");
        }
        let supply = StackSupply::new(20_001).expect("an odd size is rounded up");
        assert!(supply.stack_size(StackClass::Default) >= 20_001);
        assert_eq!(
            supply.stack_size(StackClass::Small),
            round_up_to_pages(SMALL_STACK_SIZE)
        );
    }

    #[test]
    fn a_stack_that_came_home_is_handed_out_again() {
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
        let first = fetch_exactly(&supply, StackClass::Default, 1);
        let limit = first[0].limit();
        return_all(&supply, StackClass::Default, first);
        let second = fetch_exactly(&supply, StackClass::Default, 1);
        assert_eq!(second[0].limit(), limit);
        return_all(&supply, StackClass::Default, second);
    }

    #[test]
    fn dropping_the_supply_unmaps_its_slabs() {
        // In a process of its own, where no other thread maps the addresses again at once.
        let name = concat!(module_path!(), "::dropping_the_supply_unmaps_its_slabs");
        assert_passes_in_child_process(name, || {
            let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
            for class in StackClass::ALL {
                let stacks = fetch_exactly(&supply, class, 100);
                return_all(&supply, class, stacks);
            }
            let slabs: Vec<_> = StackClass::ALL
                .iter()
                .flat_map(|&class| slab_addresses(&supply, class))
                .collect();
            assert_eq!(slabs.len(), 4, "two slabs, of 64 and 128 stacks, per class");
            assert!(slabs.iter().all(|slab| is_mapped(slab.start)));
            drop(supply);
            assert!(
                slabs
                    .iter()
                    .all(|slab| !is_mapped(slab.start) && !is_mapped(slab.end - 1))
            );
        });
    }

    #[test]
    fn a_slab_with_a_missing_stack_stays_mapped() {
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
        let mut stacks = fetch_exactly(&supply, StackClass::Small, 64 + 1);
        let missing = stacks.remove(10);
        let lost_slab = slab_addresses(&supply, StackClass::Small)[0].clone();
        return_all(&supply, StackClass::Small, stacks);
        supply.expect_missing(1);
        drop(supply);
        // SAFETY: the stack was never given back, so its memory is this test's own.
        unsafe { (missing.base().get() as *mut u8).sub(1).write_volatile(7) };
        assert!(lost_slab.contains(&missing.limit().get()));
        assert!(is_mapped(lost_slab.start) && is_mapped(lost_slab.end - 1));
    }

    #[test]
    #[cfg(debug_assertions)]
    fn an_undeclared_missing_stack_is_a_panic_in_debug_builds() {
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
        let missing = fetch_exactly(&supply, StackClass::Small, 1);
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(supply)));
        let message = dropped.expect_err("a panic");
        let message = message
            .downcast_ref::<String>()
            .expect("a formatted message");
        assert!(message.contains("1 stacks did not come home"), "{message}");
        drop(missing);
    }

    #[test]
    fn many_stacks_take_few_mappings() {
        if GuardMethod::best() == GuardMethod::Protection {
            // This kernel has no guards without mappings; the next test is about the other kind.
            return;
        }
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
        let stacks = fetch_exactly(&supply, StackClass::Default, 20_000);
        let slabs = slab_addresses(&supply, StackClass::Default);
        assert!(slabs.len() <= 9, "{} slabs", slabs.len());
        if cfg!(target_os = "linux") {
            let mappings: usize = slabs.into_iter().map(mappings_within).sum();
            assert!(mappings <= 9, "{mappings} mappings");
        }
        return_all(&supply, StackClass::Default, stacks);
    }

    /// Takes stacks until there are no more.
    fn exhaust(supply: &StackSupply, class: StackClass) -> (Vec<Stack>, StackError) {
        let mut stacks = Vec::new();
        loop {
            if let Err(error) = supply.fetch(class, 8, &mut stacks) {
                return (stacks, error);
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn guards_that_cost_mappings_are_rationed_and_the_ration_comes_back() {
        // In a process of its own, since the ration is the process's.
        let name = concat!(
            module_path!(),
            "::guards_that_cost_mappings_are_rationed_and_the_ration_comes_back"
        );
        assert_passes_in_child_process(name, || {
            let mut counts = Vec::new();
            for _ in 0..2 {
                let method = GuardMethod::Protection;
                let supply = StackSupply::with_guard_method(DEFAULT_STACK_SIZE, method);
                let supply = supply.expect("a supply");
                let (mut stacks, error) = exhaust(&supply, StackClass::Small);
                let StackError::TooManyGuards { limit } = error else {
                    panic!("{error}");
                };
                counts.push(stacks.len());
                assert!(stacks.len() <= limit);
                assert!(mappings_within(0..usize::MAX) <= 2 * limit + 1000);
                // One that comes home can be had again, refused ones stay refused.
                let last = stacks.split_off(stacks.len() - 1);
                return_all(&supply, StackClass::Small, last);
                let mut again = fetch_exactly(&supply, StackClass::Small, 1);
                let refused = supply.fetch(StackClass::Small, 1, &mut again);
                assert_eq!(refused, Err(error));
                stacks.append(&mut again);
                return_all(&supply, StackClass::Small, stacks);
            }
            assert_eq!(
                counts[0], counts[1],
                "the first supply gave its guards back"
            );
        });
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn where_address_space_is_short_slabs_shrink_before_there_is_an_error() {
        let name = concat!(
            module_path!(),
            "::where_address_space_is_short_slabs_shrink_before_there_is_an_error"
        );
        assert_passes_in_child_process(name, || {
            const SPARE: usize = 150 << 20;
            let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
            let pages: usize = statm.split(' ').next().unwrap().parse().expect("a number");
            let limit = (pages * super::super::slab::page_size() + SPARE) as libc::rlim_t;
            let limit = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            // SAFETY: only lowers a limit of this process.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);

            let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
            let (stacks, error) = exhaust(&supply, StackClass::Default);
            assert!(
                matches!(
                    error,
                    StackError::NoAddressSpace {
                        os_error: libc::ENOMEM,
                        ..
                    }
                ),
                "{error}"
            );
            // The first slab of 64 fits and one twice as large does not.
            assert!(stacks.len() > 64, "{} stacks", stacks.len());
            return_all(&supply, StackClass::Default, stacks);
        });
    }

    #[test]
    #[ignore = "touches a gigabyte of page tables; run by hand or in the long tests"]
    fn a_hundred_thousand_default_and_a_million_small_stacks_can_be_had() {
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("a supply");
        for (class, count) in [
            (StackClass::Default, 100_000),
            (StackClass::Small, 1_000_000),
        ] {
            let stacks = fetch_exactly(&supply, class, count);
            for stack in &stacks {
                // SAFETY: the topmost word of a stack that this test owns.
                unsafe { (stack.base().get() as *mut usize).sub(1).write_volatile(1) };
            }
            let slabs = slab_addresses(&supply, class);
            let mappings: usize = slabs.into_iter().map(mappings_within).sum();
            assert!(mappings <= 20, "{mappings} mappings for {count} stacks");
            return_all(&supply, class, stacks);
        }
    }
}
