//! Memory for jobs: each thread keeps a few freed blocks of each size for the next jobs.
//!
//! A job is made and freed in some tens of nanoseconds, of which the system's allocator would take half. Blocks
//! are freed where the job's last reference goes, which may be another thread than the one that made it; then
//! they serve that thread's jobs, and what it has no room for goes back to the system.

use std::alloc::{self, Layout};
use std::cell::Cell;
use std::ptr::NonNull;

/// Blocks are multiples of this.
const STEP: usize = 64;
/// The largest block that is kept, in steps: larger ones are rare, and the system's allocator is good enough.
const MOST_STEPS: usize = 8;
/// The alignment of all blocks that are kept: a cache line, so that a job is two of them and not parts of three.
const ALIGN: usize = 64;
/// What a thread keeps of one size at most, in bytes.
const MOST_KEPT: usize = 32 * 1024;

/// A block that nobody uses.
struct FreeBlock {
    next: Option<NonNull<FreeBlock>>,
}

/// The free blocks of one size.
struct Shelf {
    first: Cell<Option<NonNull<FreeBlock>>>,
    len: Cell<u32>,
}

struct Shelves([Shelf; MOST_STEPS + 1]);

thread_local! {
    static SHELVES: Shelves = const {
        Shelves(
            [const {
                Shelf {
                    first: Cell::new(None),
                    len: Cell::new(0),
                }
            }; MOST_STEPS + 1],
        )
    };
}

/// Which shelf blocks for `layout` are on; `None` if they are not kept. Neither are they where tools look for
/// uses after the end, which would see a block's next life instead.
#[inline(always)]
fn steps_of(layout: Layout) -> Option<usize> {
    let steps = layout.size().div_ceil(STEP);
    let is_kept = (1..=MOST_STEPS).contains(&steps) && layout.align() <= ALIGN;
    (is_kept && !cfg!(any(miri, loom, jobtree_plain_memory))).then_some(steps)
}

/// How many blocks of a size are kept.
#[inline(always)]
const fn most_kept(steps: usize) -> u32 {
    (MOST_KEPT / (steps * STEP)) as u32
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
        let kept = SHELVES.try_with(|shelves| {
            let shelf = &shelves.0[steps];
            let block = shelf.first.get()?;
            // SAFETY: a block on a shelf is free, and this thread's alone.
            shelf.first.set(unsafe { block.as_ref() }.next);
            shelf.len.set(shelf.len.get() - 1);
            Some(block)
        });
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
/// It came from [`allocate`] with the same layout, and nobody uses it any more.
#[inline]
pub(crate) unsafe fn free(block: NonNull<u8>, layout: Layout) {
    let Some(steps) = steps_of(layout) else {
        // SAFETY: by contract; it was not kept, so it has the layout it was asked with.
        return unsafe { alloc::dealloc(block.as_ptr(), layout) };
    };
    let is_kept = SHELVES.try_with(|shelves| {
        let shelf = &shelves.0[steps];
        if shelf.len.get() >= most_kept(steps) {
            return false;
        }
        let free = block.cast::<FreeBlock>();
        // SAFETY: the block is ours, and large and aligned enough.
        unsafe {
            free.write(FreeBlock {
                next: shelf.first.get(),
            });
        }
        shelf.first.set(Some(free));
        shelf.len.set(shelf.len.get() + 1);
        true
    });
    if !matches!(is_kept, Ok(true)) {
        // SAFETY: by contract; blocks of a shelf have that layout.
        unsafe { alloc::dealloc(block.as_ptr(), block_layout(steps)) };
    }
}

impl Drop for Shelves {
    fn drop(&mut self) {
        for (steps, shelf) in self.0.iter().enumerate() {
            let mut next = shelf.first.take();
            while let Some(block) = next {
                // SAFETY: a block on a shelf is free, this thread's alone, and of this layout.
                unsafe {
                    next = block.as_ref().next;
                    alloc::dealloc(block.as_ptr().cast(), block_layout(steps));
                }
            }
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
    fn no_more_than_a_few_are_kept_and_unusual_ones_are_not() {
        std::thread::spawn(|| {
            let layout = Layout::new::<[u64; 16]>();
            let blocks: Vec<_> = (0..2 * most_kept(2)).map(|_| allocate(layout)).collect();
            for block in blocks {
                // SAFETY: just allocated with this layout.
                unsafe { free(block, layout) };
            }
            let kept = SHELVES.with(|shelves| shelves.0[2].len.get());
            assert_eq!(kept, most_kept(2));
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
        })
        .join()
        .unwrap();
    }
}
