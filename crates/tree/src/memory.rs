//! Memory for jobs: freed blocks are kept for the next jobs, by each thread and by all together.
//!
//! A job is made and freed in some tens of nanoseconds, of which the system's allocator would take more than half. A
//! thread has two stacks of blocks of each size, of at most [`BATCH`] each, so that one that makes and frees by
//! turns never needs any other thread. Jobs are often made by one thread and freed by another: whole stacks go from those
//! who have too many to those who have none through a depot, which is locked once for a batch. What the depot has
//! no room for goes back to the system.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks are multiples of this.
const STEP: usize = 64;
/// The largest block that is kept, in steps: larger ones are rare, and the system's allocator is good enough.
const MOST_STEPS: usize = 8;
/// The alignment of all blocks that are kept: a cache line, so that a job is two of them and not parts of three.
const ALIGN: usize = 64;
/// Blocks that change hands at once.
const BATCH: u32 = 64;
/// The most bytes that the depot keeps of one size: a million jobs, so that a burst is cheap when it comes again.
const MOST_KEPT: usize = 256 * 1024 * 1024;

/// A block that is not in use.
struct FreeBlock {
    next: Option<NonNull<FreeBlock>>,
}

/// Free blocks of one size, the newest first.
#[derive(Clone, Copy)]
struct Pile {
    first: Option<NonNull<FreeBlock>>,
    len: u32,
}

// SAFETY: the blocks of a pile belong to the thread that has the pile.
unsafe impl Send for Pile {}

impl Pile {
    const EMPTY: Pile = Pile {
        first: None,
        len: 0,
    };

    #[inline(always)]
    fn pop(&mut self) -> Option<NonNull<FreeBlock>> {
        let block = self.first?;
        // SAFETY: a block on a pile is free, and ours with the pile.
        self.first = unsafe { block.as_ref() }.next;
        self.len -= 1;
        Some(block)
    }

    /// # Safety
    /// The block is the caller's to give, and large and aligned enough.
    #[inline(always)]
    unsafe fn push(&mut self, block: NonNull<FreeBlock>) {
        // SAFETY: by contract.
        unsafe { block.write(FreeBlock { next: self.first }) };
        self.first = Some(block);
        self.len += 1;
    }

    /// Gives all blocks back to the system.
    fn dissolve(mut self, steps: usize) {
        while let Some(block) = self.pop() {
            // SAFETY: a block of this size, free, and ours.
            unsafe { alloc::dealloc(block.as_ptr().cast(), block_layout(steps)) };
        }
    }
}

/// The blocks of one size that a thread keeps.
struct Shelf {
    /// Blocks are taken from here and put here.
    current: Cell<Pile>,
    /// Empty or full.
    spare: Cell<Pile>,
}

struct Shelves([Shelf; MOST_STEPS + 1]);

thread_local! {
    static SHELVES: Shelves = const {
        Shelves(
            [const {
                Shelf {
                    current: Cell::new(Pile::EMPTY),
                    spare: Cell::new(Pile::EMPTY),
                }
            }; MOST_STEPS + 1],
        )
    };
}

/// Full piles of each size, for all threads.
static DEPOT: [Mutex<Vec<Pile>>; MOST_STEPS + 1] =
    [const { Mutex::new(Vec::new()) }; MOST_STEPS + 1];

fn depot(steps: usize) -> MutexGuard<'static, Vec<Pile>> {
    DEPOT[steps].lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shelf {
    #[inline(always)]
    fn take(&self, steps: usize) -> Option<NonNull<FreeBlock>> {
        let mut current = self.current.get();
        let block = match current.pop() {
            Some(block) => block,
            None => {
                current = self.next_pile(steps)?;
                current.pop()?
            }
        };
        self.current.set(current);
        Some(block)
    }

    #[cold]
    #[inline(never)]
    fn next_pile(&self, steps: usize) -> Option<Pile> {
        let spare = self.spare.replace(Pile::EMPTY);
        match spare.len {
            0 => depot(steps).pop(),
            _ => Some(spare),
        }
    }

    /// # Safety
    /// The block is free, the caller's, and of this size.
    #[inline(always)]
    unsafe fn put(&self, block: NonNull<FreeBlock>, steps: usize) {
        let mut current = self.current.get();
        if current.len == BATCH {
            self.put_away(current, steps);
            current = Pile::EMPTY;
        }
        // SAFETY: by contract.
        unsafe { current.push(block) };
        self.current.set(current);
    }

    #[cold]
    #[inline(never)]
    fn put_away(&self, full: Pile, steps: usize) {
        let spare = self.spare.replace(full);
        if spare.len == 0 {
            return;
        }
        let mut depot = depot(steps);
        if depot.len() < most_kept(steps) {
            return depot.push(spare);
        }
        drop(depot);
        spare.dissolve(steps);
    }
}

/// Returns the shelf of blocks for `layout`; `None` if they are not kept. They are not kept either where tools look for uses
/// after the end, which would see a block's next life instead.
#[inline(always)]
fn steps_of(layout: Layout) -> Option<usize> {
    let steps = layout.size().div_ceil(STEP);
    let is_kept = (1..=MOST_STEPS).contains(&steps) && layout.align() <= ALIGN;
    (is_kept && !cfg!(any(miri, loom, jobtree_plain_memory))).then_some(steps)
}

/// Returns the number of piles of a size that the depot keeps.
const fn most_kept(steps: usize) -> usize {
    MOST_KEPT / (steps * STEP * BATCH as usize)
}

fn block_layout(steps: usize) -> Layout {
    match Layout::from_size_align(steps * STEP, ALIGN) {
        Ok(layout) => layout,
        Err(_) => unreachable!("a few hundred bytes"),
    }
}

/// Memory for a `layout` that is not empty.
#[inline]
pub(crate) fn allocate(layout: Layout) -> NonNull<u8> {
    if let Some(steps) = steps_of(layout) {
        let kept = SHELVES.try_with(|shelves| shelves.0[steps].take(steps));
        return match kept {
            Ok(Some(block)) => block.cast(),
            _ => allocate_anew(block_layout(steps)),
        };
    }
    allocate_anew(layout)
}

#[cold]
#[inline(never)]
fn allocate_anew(layout: Layout) -> NonNull<u8> {
    // SAFETY: the layout is not empty: callers have something to put there.
    let block = unsafe { alloc::alloc(layout) };
    NonNull::new(block).unwrap_or_else(|| alloc::handle_alloc_error(layout))
}

/// Gives back memory.
///
/// # Safety
/// It came from [`allocate`] with the same layout, and it is no longer in use.
#[inline]
pub(crate) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    let Some(steps) = steps_of(layout) else {
        // SAFETY: by contract; it was not kept, so it has the layout it was asked with.
        return unsafe { alloc::dealloc(block.as_ptr(), layout) };
    };
    let is_kept = SHELVES.try_with(|shelves| {
        // SAFETY: by contract; blocks for such a layout are of this size.
        unsafe { shelves.0[steps].put(block.cast(), steps) };
    });
    if is_kept.is_err() {
        // SAFETY: by contract; blocks of a shelf have that layout.
        unsafe { alloc::dealloc(block.as_ptr(), block_layout(steps)) };
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for (steps, shelf) in self.0.iter().enumerate() {
            shelf.current.replace(Pile::EMPTY).dissolve(steps);
            shelf.spare.replace(Pile::EMPTY).dissolve(steps);
        }
    }
}

#[cfg(all(test, not(any(loom, miri, jobtree_plain_memory))))]
mod tests {
    use super::*;

    #[test]
    fn a_freed_block_serves_the_next_one_of_its_size() {
        std::thread::spawn(|| {
            let (small, large) = (Layout::new::<[u64; 16]>(), Layout::new::<[u64; 17]>());
            let first = allocate(small);
            let other = allocate(large);
            // SAFETY: just allocated with these layouts.
            unsafe {
                free(first, small);
                free(other, large);
            }
            let again = allocate(small);
            assert_eq!(again, first);
            let beside = allocate(small);
            assert_ne!(beside, first);
            // SAFETY: as above.
            unsafe {
                free(again, small);
                free(beside, small);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn what_one_thread_frees_serves_another() {
        // A size that nothing else in this program has.
        let layout = Layout::new::<[u64; 60]>();
        let count = 4 * BATCH as usize;
        let made: Vec<usize> = (0..count)
            .map(|_| allocate(layout).as_ptr().expose_provenance())
            .collect();
        let addresses = made.clone();
        std::thread::spawn(move || {
            for address in addresses {
                let block = NonNull::new(std::ptr::with_exposed_provenance_mut(address)).unwrap();
                // SAFETY: allocated above with this layout, and given to this thread.
                unsafe { free(block, layout) };
            }
        })
        .join()
        .unwrap();
        let again: Vec<_> = (0..count).map(|_| allocate(layout)).collect();
        let known = again
            .iter()
            .filter(|block| made.contains(&block.addr().get()));
        // All but what the other thread had on its own shelf when it ended.
        assert!(known.count() >= count - 2 * BATCH as usize);
        for block in again {
            // SAFETY: just allocated with this layout.
            unsafe { free(block, layout) };
        }
    }

    #[test]
    fn unusual_blocks_are_not_kept() {
        for layout in [
            Layout::new::<[u8; 4096]>(),
            Layout::from_size_align(128, 128).unwrap(),
        ] {
            assert_eq!(steps_of(layout), None);
            let block = allocate(layout);
            assert!(block.addr().get().is_multiple_of(layout.align()));
            // SAFETY: just allocated with this layout.
            unsafe { free(block, layout) };
        }
    }
}
