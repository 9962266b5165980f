//! The end of a process that was forked after its pool was made, and needs the threads of that pool.
//!
//! `fork(2)` copies the memory of a process and the one thread that calls it. A pool's other threads are not there, so its work
//! would never be done: `join`, `install` and scopes would wait for ever, and `spawn` would be lost without a word. Instead,
//! whatever needs the threads of such a pool ends the process, with a message and by `abort`: giving work to the pool from
//! another thread than its workers, and the sleep of a worker that waits.
//!
//! No panic: it would unwind through scopes that wait for the same threads, and run handlers that the copied state of a process
//! with several threads does not allow. Between `fork` and `exec` almost nothing is allowed; `std::process::Command` calls
//! nothing of ours there.
//!
//! A pool that the forked process makes itself is one as any other.

use std::sync::atomic::{AtomicU32, Ordering};

/// The number of forks between the first process and this one: counted in each new process, and there alone.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    forks: u32,
}

impl Process {
    /// Returns this process. Forks from now on are noticed.
    pub fn current() -> Process {
        count_forks();
        Process {
            forks: FORKS.load(Ordering::Relaxed),
        }
    }

    /// Returns `true` if the calling process was forked from this one.
    #[inline]
    pub fn is_left(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.forks
    }

    /// Ends the calling process if it was forked from this one.
    #[inline]
    pub fn must_be_current(self) {
        if self.is_left() {
            end();
        }
    }
}

const MESSAGE: &str = "jobtree: this process was forked after its pool was made, and the pool's threads do not exist here; call `exec` \
                       after `fork`, or make another pool in the forked process; aborting\n";

/// Ends the process. It allocates nothing and takes no lock: the thread that held it may not exist here.
#[cold]
#[inline(never)]
fn end() -> ! {
    #[cfg(unix)]
    {
        // SAFETY: reads as many bytes as there are; the call is allowed after a fork.
        let _ = unsafe { libc::write(2, MESSAGE.as_ptr().cast(), MESSAGE.len()) };
    }
    std::process::abort();
}

#[cfg(all(unix, not(miri)))]
fn count_forks() {
    extern "C" fn in_new_process() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    static REGISTERED: std::sync::Once = std::sync::Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the function does what a handler may: an atomic operation. Without memory for it forks are not noticed.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_new_process)) };
    });
}

#[cfg(not(all(unix, not(miri))))]
fn count_forks() {}
