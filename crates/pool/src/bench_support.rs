//! Lets `crates/bench` time the parts of the pool one by one. Not an API: anything here may change.

use std::hint::black_box;
use std::ptr::NonNull;

use crate::context::ContextRef;
use crate::deque::{Deque, Entry, Steal};
use crate::padded::Padded;

/// A deque full of entries that no worker runs.
pub struct BenchDeque {
    deque: Padded<Deque>,
    entry: Entry,
}

impl Default for BenchDeque {
    fn default() -> BenchDeque {
        BenchDeque::new()
    }
}

impl BenchDeque {
    /// An empty one.
    pub fn new() -> BenchDeque {
        BenchDeque {
            deque: Padded(Deque::new(usize::MAX, 1024)),
            entry: Entry {
                job: NonNull::dangling(),
                context: ContextRef::OUTERMOST,
            },
        }
    }

    /// Pushes an entry and takes it back while it is private, so often.
    pub fn push_pop_private(&mut self, times: u64) {
        for _ in 0..times {
            // SAFETY: `&mut self` makes us the owner; the entries are never run.
            unsafe {
                self.deque.push_private(black_box(self.entry));
                black_box(self.deque.pop_own());
            }
        }
    }

    /// Pushes an entry, publishes it and takes it back, so often.
    pub fn push_pop_public(&mut self, times: u64) {
        for _ in 0..times {
            // SAFETY: as above.
            unsafe {
                self.deque.push_private(black_box(self.entry));
                self.deque.publish_all();
                black_box(self.deque.pop_own());
            }
        }
    }

    /// Publishes so many entries.
    pub fn fill_public(&mut self, entries: u64) {
        for _ in 0..entries {
            // SAFETY: as above.
            unsafe { self.deque.push_private(self.entry) };
        }
        // SAFETY: as above.
        unsafe { self.deque.publish_all() };
    }

    /// Steals until there is nothing left; returns how many there were.
    pub fn steal_all(&self) -> u64 {
        let mut stolen = 0;
        loop {
            match self.deque.steal(|_| true) {
                Steal::Taken(entry) => {
                    black_box(entry);
                    stolen += 1;
                }
                Steal::Retry => {}
                Steal::Empty => return stolen,
            }
        }
    }
}

/// Resumes and suspends a stack so often: the switch itself, without a search and without a latch.
/// Does nothing where stacks cannot be switched.
pub fn resume_and_suspend(times: u64) {
    #[cfg(jobtree_stacks)]
    {
        use crate::stack::switch::Routine;
        use crate::stack::{DEFAULT_STACK_SIZE, StackCache, StackClass, StackSupply};
        let supply = StackSupply::new(DEFAULT_STACK_SIZE).expect("the default size is allowed");
        let cache = StackCache::new(&supply);
        let stack = cache
            .take(StackClass::Default)
            .expect("one stack can be had");
        let mut routine = Routine::new(stack, move |way| {
            for _ in 0..times {
                way.suspend();
            }
        });
        while routine.resume().is_none() {}
        cache.give(routine.into_stack());
    }
    #[cfg(not(jobtree_stacks))]
    black_box(times);
}
