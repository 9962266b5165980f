//! What a search for work brings home, in two words.
//!
//! It is handed from function to function, and through memory to another strand, several times for each task. Two words
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
    /// The job or the strand, and in the bits that alignment leaves free what it is.
    tagged: NonNull<u8>,
    /// Of a job.
    context: ContextRef,
}

/// What was found.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// A fork, stolen.
    Fork(Entry),
    /// A task.
    Task(Entry),
    /// One of this worker's strands whose wait is over.
    Ready(*const Strand),
}

const FORK: usize = 0;
const TASK: usize = 1;
const READY: usize = 2;
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

    #[inline(always)]
    pub(crate) fn ready(strand: *const Strand) -> Found {
        // SAFETY: the address of a strand, which is never null.
        let strand = unsafe { NonNull::new_unchecked(strand.cast_mut()) };
        Found::tag(strand.cast(), READY, ContextRef::OUTERMOST)
    }

    #[inline(always)]
    fn tag(address: NonNull<u8>, tag: usize, context: ContextRef) -> Found {
        let tagged = address.map_addr(|address| address | tag);
        Found { tagged, context }
    }

    /// What it is.
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
            TASK => Work::Task(entry()),
            _ => Work::Ready(address.cast_const().cast()),
        }
    }

    /// The stack that it needs at least; a strand that is ready has its own.
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
        assert!(matches!(Found::ready(strand).work(), Work::Ready(same) if same == strand));
    }
}
