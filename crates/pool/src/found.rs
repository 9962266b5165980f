//! The work item that a search returns, in two words.
//!
//! It is handed from function to function, and through memory to another fiber, several times for each task. Two words
//! travel in registers. As an enum of three it would be written word by word and read back as a whole, for which the
//! processor has to wait: some 5 ns each time, a twentieth of a small task.

use std::ptr::NonNull;

use crate::context::ContextRef;
use crate::deque::Entry;
use crate::job::Job;
use crate::stack::StackClass;
use crate::strand::Strand;

/// Work that a search has found; [`Found::work`] says which.
#[derive(Clone, Copy)]
pub(crate) struct Found {
    /// The job or the fiber, and in the bits that alignment leaves free what it is.
    tagged: NonNull<u8>,
    /// The context of a job.
    context: ContextRef,
}

/// The kinds of work items.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// A fork, stolen.
    Fork(Entry),
    /// A task.
    Task(Entry),
    /// One of this worker's fibers whose wait is over.
    Ready(*const Strand),
}

const FORK: usize = 0;
const TASK: usize = 1;
const READY: usize = 2;
/// A task that was sent to this very worker.
const BOUND_TASK: usize = 3;
const TAGS: usize = 3;

const _: () = assert!(align_of::<Job>() > TAGS && align_of::<Strand>() > TAGS);
const _: () = assert!(size_of::<Option<Found>>() == 2 * size_of::<usize>());

impl Found {
    #[inline(always)]
    pub(crate) fn fork(entry: Entry) -> Found {
        Found::tag(entry.job.cast(), FORK, entry.context)
    }

    #[inline(always)]
    pub(crate) fn task(entry: Entry) -> Found {
        Found::tag(entry.job.cast(), TASK, entry.context)
    }

    /// A task that must run on this very worker.
    #[inline(always)]
    pub(crate) fn bound_task(entry: Entry) -> Found {
        Found::tag(entry.job.cast(), BOUND_TASK, entry.context)
    }

    /// Returns `true` if it is a task.
    #[inline(always)]
    pub(crate) fn is_task(self) -> bool {
        matches!(self.tagged.addr().get() & TAGS, TASK | BOUND_TASK)
    }

    /// Returns `true` if it must run on this very worker.
    #[inline(always)]
    pub(crate) fn is_bound(self) -> bool {
        self.tagged.addr().get() & TAGS == BOUND_TASK
    }

    #[inline(always)]
    pub(crate) fn ready(strand: *const Strand) -> Found {
        // SAFETY: the address of a fiber, which is never null.
        let strand = unsafe { NonNull::new_unchecked(strand.cast_mut()) };
        Found::tag(strand.cast(), READY, ContextRef::OUTERMOST)
    }

    #[inline(always)]
    fn tag(address: NonNull<u8>, tag: usize, context: ContextRef) -> Found {
        let tagged = address.map_addr(|address| address | tag);
        Found { tagged, context }
    }

    /// Returns the work itself.
    #[inline(always)]
    pub(crate) fn work(self) -> Work {
        let address = self.tagged.as_ptr().map_addr(|address| address & !TAGS);
        let entry = || Entry {
            // SAFETY: without its tag it is what `tag` was given, which is not null.
            job: unsafe { NonNull::new_unchecked(address.cast()) },
            context: self.context,
        };
        match self.tagged.addr().get() & TAGS {
            FORK => Work::Fork(entry()),
            TASK | BOUND_TASK => Work::Task(entry()),
            _ => Work::Ready(address.cast_const().cast()),
        }
    }

    /// The stack that it needs at least; a fiber that is ready has its own.
    ///
    /// # Safety
    /// It was found by the caller and has not run.
    #[cfg_attr(not(jobtree_stacks), allow(dead_code))]
    #[inline(always)]
    pub(crate) unsafe fn stack_class(self) -> StackClass {
        match self.work() {
            // SAFETY: taken out of its queue, not run, and so alive.
            Work::Task(entry) => unsafe { entry.job.as_ref().kind.stack },
            Work::Fork(_) | Work::Ready(_) => StackClass::Default,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_in_comes_out() {
        let (mut job, strand) = (0u64, std::ptr::dangling::<Strand>());
        let entry = Entry {
            job: NonNull::from(&mut job).cast(),
            context: ContextRef::OUTERMOST,
        };
        assert!(matches!(Found::fork(entry).work(), Work::Fork(same) if same == entry));
        assert!(matches!(Found::task(entry).work(), Work::Task(same) if same == entry));
        let bound = Found::bound_task(entry);
        assert!(matches!(bound.work(), Work::Task(same) if same == entry));
        assert!(bound.is_bound() && !Found::task(entry).is_bound());
        assert!(matches!(Found::ready(strand).work(), Work::Ready(same) if same == strand));
    }
}
