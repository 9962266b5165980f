//! Keeps a searching worker off the processor of a working one.
//!
//! A kernel that knows little of the processor's caches (in many virtual machines) wakes a thread where
//! it last ran, even if another worker computes there now and the next processor idles. The searcher
//! would then take half of the time of the very worker it wants to help. So each worker shows on which
//! processor it works, and a searcher that finds itself on the same one moves away: it forbids itself
//! that processor, which makes the kernel move it at once, and allows it again.
//!
//! Only on Linux; elsewhere nothing happens. The set of processors that the thread may use is the same
//! afterwards as it was before.

use crate::sync::{AtomicU32, Ordering};

/// The worker is not working.
const NOWHERE: u32 = u32::MAX;

/// The processor that a worker works on, as far as other workers need to know.
pub(crate) struct Workplace(AtomicU32);

impl Workplace {
    pub(crate) fn new() -> Workplace {
        Workplace(AtomicU32::new(NOWHERE))
    }

    /// The calling worker starts to work.
    #[inline]
    pub(crate) fn enter(&self) {
        self.0
            .store(current_processor().unwrap_or(NOWHERE), Ordering::Relaxed);
    }

    /// The calling worker has nothing to do.
    #[inline]
    pub(crate) fn leave(&self) {
        self.0.store(NOWHERE, Ordering::Relaxed);
    }

    fn is_on(&self, processor: u32) -> bool {
        self.0.load(Ordering::Relaxed) == processor
    }
}

/// Moves the calling thread to another processor if one of `workplaces` is on its own.
pub(crate) fn make_way<'a>(mut workplaces: impl Iterator<Item = &'a Workplace>) {
    if let Some(here) = current_processor()
        && workplaces.any(|workplace| workplace.is_on(here))
    {
        leave_processor(here);
    }
}

#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod linux {
    use std::mem::{size_of, zeroed};

    pub(super) fn current_processor() -> Option<u32> {
        // SAFETY: takes nothing and changes nothing.
        u32::try_from(unsafe { libc::sched_getcpu() }).ok()
    }

    #[cold]
    pub(super) fn leave_processor(here: u32) {
        // SAFETY: an all-zero set is a valid, empty one.
        let mut allowed: libc::cpu_set_t = unsafe { zeroed() };
        let size = size_of::<libc::cpu_set_t>();
        // SAFETY: the kernel writes at most `size` bytes into a set of that size.
        if unsafe { libc::sched_getaffinity(0, size, &mut allowed) } != 0 {
            return;
        }
        let mut elsewhere = allowed;
        // SAFETY: the kernel's processor numbers are below the size of the set, or the call above would
        // have failed; the set is a plain value.
        let others = unsafe {
            libc::CPU_CLR(here as usize, &mut elsewhere);
            libc::CPU_COUNT(&elsewhere)
        };
        if others == 0 {
            return;
        }
        // SAFETY: both are sets of the given size. If the first call fails, nothing has changed; the
        // second one puts back what was there.
        unsafe {
            if libc::sched_setaffinity(0, size, &elsewhere) == 0 {
                libc::sched_setaffinity(0, size, &allowed);
            }
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri), not(loom))))]
mod linux {
    pub(super) fn current_processor() -> Option<u32> {
        None
    }

    pub(super) fn leave_processor(_here: u32) {}
}

use linux::{current_processor, leave_processor};

#[cfg(all(test, target_os = "linux", not(miri), not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_moves_off_the_processor_of_a_working_one_and_keeps_its_set() {
        std::thread::spawn(|| {
            let processors = std::thread::available_parallelism().unwrap();
            let working = Workplace::new();
            working.enter();
            let before = current_processor().unwrap();
            leave_processor(before);
            if processors.get() > 1 {
                // The scheduler may move it back later, but it has been moved.
                assert_eq!(std::thread::available_parallelism().unwrap(), processors);
            }
            working.leave();
            // No worker works anywhere: stays where it is, which cannot be seen, but must not fail.
            make_way([&working].into_iter());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_workplace_is_where_its_worker_works_and_nowhere_else() {
        let workplace = Workplace(AtomicU32::new(3));
        assert!(workplace.is_on(3) && !workplace.is_on(4));
        workplace.leave();
        assert!(!workplace.is_on(3));
    }
}
