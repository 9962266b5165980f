//! One reserved piece of address space that many stacks of a class are cut from.
//!
//! Reserving is cheap and touching is not: a slab is a single mapping, large enough for many stacks,
//! whose pages come into being when a stack first uses them. So the number of mappings stays tiny
//! however many stacks there are.
//!
//! ```text
//!  slab.start                                                                    slab.end()
//!  | guard |  stack 0  ........ | guard |  stack 1  ........ | guard |  stack 2 ... |
//!  ^ limit of stack 0           ^ base of stack 0 = limit of stack 1
//! ```
//!
//! A slab cuts stacks off from low to high and never takes one back: who has them is the business of
//! `supply`, which also decides when the slab may be unmapped.

use std::num::NonZeroUsize;
use std::ptr;
use std::sync::OnceLock;

use super::class::{StackClass, StackError};
use super::guard::{self, GuardMethod};
use super::registry::{Registration, SlabRecord};

/// Bytes of guard below each stack, rounded up to a page. One page would do for Rust, which probes every
/// page of a large frame; foreign code compiled without probes may step over one.
///
/// An odd number of small pages, since stacks have an even one: so the pages in use, the uppermost of each stack, do not
/// lie a multiple of four pages apart, and spread over all sets of the processor's cache of addresses instead of a few.
const GUARD_SIZE: usize = 20 * 1024;

/// The first frames of stacks do not all lie at the same place of their pages, but at one of so many, so far apart: a cache
/// finds its lines by the lower part of their addresses, and a thousand stacks that are in use by turns would else share a
/// fifth of it. Not over the whole page: what little a waiting task has on its stack should fit into one.
#[cfg(jobtree_direct_switch)]
const COLOURS: usize = 8;
#[cfg(jobtree_direct_switch)]
const COLOUR_STEP: usize = 256;

/// Stacks in the first slab of a class; each further slab has twice as many as the one before.
const FIRST_CAPACITY: usize = 64;

/// No slab is larger than this, nor the first one larger than an eighth of it. With the largest stacks
/// a slab still holds dozens, and a hundred thousand default stacks take fewer than twenty slabs.
const LARGEST_SLAB: usize = 64 << 30;
const LARGEST_FIRST_SLAB: usize = LARGEST_SLAB / 8;

/// The memory of one stack.
///
/// Handed out by a [`StackCache`](super::StackCache), to which it must be given back. Dropping it instead
/// loses it: its memory, and that of all stacks of the same slab, then stays mapped until the process ends.
#[derive(Debug)]
#[must_use = "a stack that is not given back to a cache is lost, with its slab"]
pub struct Stack {
    base: NonZeroUsize,
    /// The limit, which is page-aligned, with the class in its lowest bit: every parked fiber has one of these.
    limit_and_class: NonZeroUsize,
}

const CLASS_BIT: usize = 1;

impl Stack {
    /// Returns the class of this stack.
    #[inline]
    pub fn class(&self) -> StackClass {
        StackClass::ALL[self.limit_and_class.get() & CLASS_BIT]
    }

    /// The lowest address of the stack, which is also that of its guard.
    #[inline]
    pub(super) fn lowest_address(&self) -> usize {
        self.limit_and_class.get() & !CLASS_BIT
    }

    /// Returns the address at which its first frame begins: somewhat below its base.
    #[cfg(jobtree_direct_switch)]
    #[inline]
    pub(super) fn first_frame(&self) -> usize {
        // Bases are an odd number of small pages apart, so neighbours differ.
        let colour = self.base.get() / 4096 % COLOURS;
        self.base.get() - colour * COLOUR_STEP
    }

    /// Makes the guard region of a stack that has just been cut off.
    pub(super) fn guard(&self, method: GuardMethod) -> Result<(), StackError> {
        // SAFETY: the guard region is page-aligned by the slab's layout; it lies in the slab's private
        // anonymous mapping, which is not unmapped while this stack exists; owning the stack means
        // owning its guard region, in which nothing ever lives.
        unsafe { guard::install(method, self.lowest_address(), guard_len()) }
    }

    /// Gives the pages of a stack that nothing runs on back to the system. Its next user finds zeroes.
    pub(super) fn discard_contents(&mut self) {
        let lowest_usable = self.lowest_address() + guard_len();
        // SAFETY: page-aligned by the slab's layout; inside the slab's mapping; the exclusive borrow of
        // an owned stack shows that no coroutine is running on it, so its contents are dead.
        unsafe { discard_pages(lowest_usable, self.base.get() - lowest_usable) };
    }
}

// SAFETY: `base` and `limit` are page-aligned, hence aligned for every architecture's stack. The guard
// region starts at `limit` and was installed before the stack left the supply. Between guard and base lie
// at least `MINIMUM_STACK_SIZE` readable and writable bytes, more than corosensei's minimum. The memory
// stays mapped as long as the value exists, since a supply unmaps only slabs whose stacks are all home.
unsafe impl corosensei::stack::Stack for Stack {
    #[inline]
    fn base(&self) -> corosensei::stack::StackPointer {
        self.base
    }

    #[inline]
    fn limit(&self) -> corosensei::stack::StackPointer {
        match NonZeroUsize::new(self.lowest_address()) {
            Some(limit) => limit,
            None => unreachable!("the system never maps the lowest page unasked"),
        }
    }
}

/// A reserved mapping and how much of it has been cut into stacks.
pub(super) struct Slab {
    start: NonZeroUsize,
    class: StackClass,
    stride: usize,
    capacity: usize,
    cut: usize,
    guard_method: GuardMethod,
    /// Tells the fault handler about this slab; none if the table is full.
    registration: Option<Registration>,
}

impl Slab {
    /// Reserves the slab after one of `previous_capacity` stacks, or the first (0).
    ///
    /// Where address space is short the slab becomes smaller, down to a single stack.
    pub(super) fn reserve(
        class: StackClass,
        usable: usize,
        previous_capacity: usize,
        guard_method: GuardMethod,
    ) -> Result<Slab, StackError> {
        let usable = round_up_to_pages(usable);
        let stride = usable + guard_len();
        let mut capacity = match previous_capacity {
            0 => FIRST_CAPACITY.min(LARGEST_FIRST_SLAB / stride),
            previous => (2 * previous).min(LARGEST_SLAB / stride),
        }
        .max(1);
        let start = loop {
            match map_anonymous(capacity * stride) {
                Ok(start) => break start,
                Err(_) if capacity > 1 => capacity /= 2,
                Err(os_error) => {
                    return Err(StackError::NoAddressSpace {
                        bytes: stride,
                        os_error,
                    });
                }
            }
        };
        let start =
            NonZeroUsize::new(start).expect("the system never maps the lowest page unasked");
        let record = SlabRecord {
            start: start.get(),
            end: start.get() + capacity * stride,
            stride,
            guard: guard_len(),
            class,
        };
        Ok(Slab {
            start,
            class,
            stride,
            capacity,
            cut: 0,
            guard_method,
            registration: Registration::new(record),
        })
    }

    /// Cuts off the next stack, which has no guard yet, or `None` if the slab is used up.
    pub(super) fn cut(&mut self) -> Option<Stack> {
        if self.cut == self.capacity {
            return None;
        }
        let limit = self.start.saturating_add(self.cut * self.stride);
        self.cut += 1;
        Some(Stack {
            base: limit.saturating_add(self.stride),
            limit_and_class: limit | self.class.index(),
        })
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of stacks that were cut off so far.
    pub(super) fn cut_count(&self) -> usize {
        self.cut
    }

    /// The addresses of the slab.
    pub(super) fn addresses(&self) -> std::ops::Range<usize> {
        self.start.get()..self.start.get() + self.capacity * self.stride
    }

    /// Unmaps the slab, `guarded` of whose stacks had their guard installed.
    ///
    /// # Safety
    ///
    /// All stacks cut from it have come home, and the caller does not hand them out again.
    pub(super) unsafe fn unmap(mut self, guarded: usize) {
        // First out of the table, so that no other mapping is taken for a slab of ours.
        drop(self.registration.take());
        let addresses = self.addresses();
        // SAFETY: exactly the mapping that `reserve` made; by the caller's word no stack in it is in use,
        // and none will be.
        unsafe { unmap(addresses.start, addresses.len()) };
        guard::unmapped(self.guard_method, guarded);
    }

    /// Keeps the slab mapped and known to the fault handler until the process ends.
    pub(super) fn leak(mut self) {
        if let Some(registration) = self.registration.take() {
            registration.keep_for_ever();
        }
    }
}

/// The system's page size.
pub(super) fn page_size() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    *PAGE.get_or_init(|| {
        // SAFETY: `sysconf` only reads a system constant.
        let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(answer).expect("every Unix knows its page size");
        assert!(page.is_power_of_two(), "a page of {page} bytes");
        page
    })
}

pub(super) fn round_up_to_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(page_size())
}

fn guard_len() -> usize {
    round_up_to_pages(GUARD_SIZE)
}

/// Maps private, zeroed memory that becomes real page by page as it is touched.
pub(super) fn map_anonymous(bytes: usize) -> Result<usize, i32> {
    // Linux: no swap reserved for what may never be touched. Some BSDs accept a stack pointer only in
    // memory mapped as a stack; FreeBSD's flag of that name means a mapping that grows, which we don't want.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const EXTRA: libc::c_int = libc::MAP_NORESERVE | libc::MAP_STACK;
    #[cfg(any(target_os = "openbsd", target_os = "netbsd"))]
    const EXTRA: libc::c_int = libc::MAP_STACK;
    #[cfg(not(any(
        target_os = "linux",
        target_os = "android",
        target_os = "openbsd",
        target_os = "netbsd"
    )))]
    const EXTRA: libc::c_int = 0;

    // SAFETY: a new mapping at an address of the system's choice touches no existing memory.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANON | EXTRA,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(last_os_error());
    }
    // A huge page would make the first touch of a stack cost 2 MiB. A kernel without huge pages refuses
    // the advice, which is just as well.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    // SAFETY: the mapping made above; the advice does not change what it contains.
    let _ = unsafe { libc::madvise(address, bytes, libc::MADV_NOHUGEPAGE) };
    Ok(address as usize)
}

/// Removes a mapping.
///
/// # Safety
///
/// Exactly a mapping made by [`map_anonymous`] with this length, which nothing uses any more.
pub(super) unsafe fn unmap(start: usize, bytes: usize) {
    // SAFETY: the caller's contract is that of `munmap`.
    let refused = unsafe { libc::munmap(start as *mut _, bytes) } != 0;
    debug_assert!(!refused, "unmapping a whole mapping cannot fail");
}

/// Gives pages back to the system; reading them again finds zeroes (or, beside Linux, possibly what was there).
///
/// The system may refuse, as it does for locked memory. Then the pages stay, which is harmless.
///
/// # Safety
///
/// The page-aligned range lies in a mapping made by [`map_anonymous`], and its contents are dead.
pub(super) unsafe fn discard_pages(start: usize, bytes: usize) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const ADVICE: libc::c_int = libc::MADV_DONTNEED;
    // Elsewhere "don't need" is only a hint about the near future; "free" releases the pages.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const ADVICE: libc::c_int = libc::MADV_FREE;
    // SAFETY: by the caller's word the range is ours and its contents are dead.
    let _ = unsafe { libc::madvise(start as *mut _, bytes, ADVICE) };
}

pub(super) fn last_os_error() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::class::{MAXIMUM_STACK_SIZE, SMALL_STACK_SIZE};
    use super::super::testing::{readable, resident_pages};
    use super::*;
    use corosensei::stack::Stack as _;

    fn slab(usable: usize, previous_capacity: usize) -> Slab {
        Slab::reserve(
            StackClass::Default,
            usable,
            previous_capacity,
            GuardMethod::best(),
        )
        .expect("address space")
    }

    #[cfg(jobtree_direct_switch)]
    #[test]
    fn first_frames_begin_at_each_colour_in_turn_and_in_the_uppermost_page() {
        for size in [SMALL_STACK_SIZE, 2 << 20, MAXIMUM_STACK_SIZE] {
            let mut slab = slab(size, 0);
            let below_base = |stack: Stack| stack.base().get() - stack.first_frame();
            let distances: Vec<_> = std::iter::from_fn(|| slab.cut())
                .map(below_base)
                .take(3 * COLOURS)
                .collect();
            for neighbours in distances.windows(COLOURS) {
                let mut colours = neighbours.to_vec();
                colours.sort_unstable();
                let all = (0..COLOURS).map(|colour| colour * COLOUR_STEP);
                assert!(colours.into_iter().eq(all), "{distances:?}");
            }
            // SAFETY: the stacks are gone, and nothing ran on them.
            unsafe { slab.unmap(0) };
        }
    }

    #[test]
    fn stacks_lie_side_by_side_each_above_its_own_guard() {
        let mut slab = slab(SMALL_STACK_SIZE, 0);
        let addresses = slab.addresses();
        let mut expected_limit = addresses.start;
        let mut guarded = 0;
        while let Some(stack) = slab.cut() {
            assert_eq!(stack.limit().get(), expected_limit);
            assert_eq!(
                stack.base().get() - stack.limit().get(),
                SMALL_STACK_SIZE + guard_len()
            );
            stack.guard(GuardMethod::best()).expect("a guard");
            guarded += 1;
            assert!(!readable(stack.limit().get()));
            assert!(!readable(stack.limit().get() + guard_len() - 1));
            assert!(readable(stack.limit().get() + guard_len()));
            assert!(readable(stack.base().get() - 1));
            expected_limit = stack.base().get();
        }
        assert_eq!(guarded, FIRST_CAPACITY);
        assert_eq!(expected_limit, addresses.end);
        // SAFETY: the stacks were only looked at and are gone.
        unsafe { slab.unmap(guarded) };
    }

    #[test]
    fn sizes_are_rounded_up_to_pages() {
        let mut slab = slab(SMALL_STACK_SIZE + 1, 0);
        let stack = slab.cut().expect("a first stack");
        let usable = stack.base().get() - stack.limit().get() - guard_len();
        assert_eq!(usable, SMALL_STACK_SIZE + page_size());
        // SAFETY: the stack was only looked at.
        unsafe { slab.unmap(0) };
    }

    #[test]
    fn slabs_double_up_to_the_largest() {
        for (usable, previous, expected) in [
            (SMALL_STACK_SIZE, 64, 128),
            (
                SMALL_STACK_SIZE,
                usize::MAX / 2,
                LARGEST_SLAB / (SMALL_STACK_SIZE + guard_len()),
            ),
            (
                MAXIMUM_STACK_SIZE,
                0,
                LARGEST_FIRST_SLAB / (MAXIMUM_STACK_SIZE + guard_len()),
            ),
        ] {
            let slab = slab(usable, previous);
            assert_eq!(slab.capacity(), expected, "{usable} after {previous}");
            // SAFETY: nothing was cut from it.
            unsafe { slab.unmap(0) };
        }
    }

    #[test]
    fn reserving_and_guarding_touches_no_page_and_discarding_returns_them() {
        let mut slab = slab(SMALL_STACK_SIZE, 0);
        let mut stack = slab.cut().expect("a first stack");
        stack.guard(GuardMethod::best()).expect("a guard");
        let usable = stack.limit().get() + guard_len()..stack.base().get();
        assert_eq!(resident_pages(usable.clone()), 0);
        for address in usable.clone().step_by(page_size()) {
            // SAFETY: usable memory of a stack that this test owns.
            unsafe { (address as *mut u8).write_volatile(1) };
        }
        assert_eq!(resident_pages(usable.clone()), usable.len() / page_size());
        stack.discard_contents();
        if cfg!(target_os = "linux") {
            assert_eq!(resident_pages(usable), 0);
        }
        assert!(!readable(stack.limit().get()), "the guard is still there");
        // SAFETY: the stack is not used below.
        unsafe { slab.unmap(1) };
    }
}
