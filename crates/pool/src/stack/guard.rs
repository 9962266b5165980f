//! The guard region at the low end of every stack: touching it faults, whatever the code does.
//!
//! Two means exist. Linux 6.13 can mark pages as guards inside an ordinary mapping (`MADV_GUARD_INSTALL`),
//! which costs page-table entries but no mapping. Elsewhere `mprotect` takes the rights away, which splits
//! the mapping in two; Linux limits the mappings of a process, so those guards are rationed: they may use
//! half of the mappings at most, and the rest of the program keeps the other half.
//!
//! Callers pass page-aligned ranges inside a mapping that they own and that is not in use.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::class::StackError;
use super::slab::{last_os_error, page_size};

/// The way in which guard regions are made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GuardMethod {
    /// Guard markers in the page table, free of mappings.
    Marker,
    /// `mprotect(PROT_NONE)`.
    Protection,
}

impl GuardMethod {
    /// The cheapest method that works here. The kernel is asked once per process.
    pub(super) fn best() -> GuardMethod {
        static BEST: OnceLock<GuardMethod> = OnceLock::new();
        *BEST.get_or_init(probe)
    }

    /// Returns the number of guards of this method that the process may have; `None` if nothing but memory limits them.
    pub(super) fn limit(self) -> Option<usize> {
        match self {
            GuardMethod::Marker => None,
            GuardMethod::Protection => Some(ration::limit()).filter(|limit| *limit != usize::MAX),
        }
    }
}

/// Makes a guard region.
///
/// # Safety
///
/// `start..start + len` is page-aligned, lies in a private anonymous mapping that the caller owns, and
/// nothing in it is in use.
pub(super) unsafe fn install(
    method: GuardMethod,
    start: usize,
    len: usize,
) -> Result<(), StackError> {
    debug_assert!(start.is_multiple_of(page_size()) && len.is_multiple_of(page_size()));
    match method {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        GuardMethod::Marker => {
            // SAFETY: the caller owns the unused range; installing markers only discards its contents.
            let refused = unsafe { libc::madvise(start as *mut _, len, MADV_GUARD_INSTALL) } != 0;
            if refused {
                Err(StackError::NoGuard {
                    os_error: last_os_error(),
                })
            } else {
                Ok(())
            }
        }
        #[cfg(not(any(target_os = "linux", target_os = "android")))]
        GuardMethod::Marker => unreachable!("the probe never chooses markers here"),
        GuardMethod::Protection => {
            ration::take_one()?;
            // SAFETY: the caller owns the unused range, so no code loses rights it relies on.
            let refused = unsafe { libc::mprotect(start as *mut _, len, libc::PROT_NONE) } != 0;
            if refused {
                let os_error = last_os_error();
                ration::give_back(1);
                return Err(StackError::NoGuard { os_error });
            }
            Ok(())
        }
    }
}

/// Says that `count` guard regions of this method went away with their mapping.
pub(super) fn unmapped(method: GuardMethod, count: usize) {
    if method == GuardMethod::Protection {
        ration::give_back(count);
    }
}

/// `MADV_GUARD_INSTALL`, which the `libc` crate does not name yet.
#[cfg(any(target_os = "linux", target_os = "android"))]
const MADV_GUARD_INSTALL: libc::c_int = 102;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn probe() -> GuardMethod {
    GuardMethod::Protection
}

/// Marks a page and lets the kernel itself write to it. That the call succeeds is not enough: emulators
/// take unknown advice for a hint, answer "done", and leave the page writable.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn probe() -> GuardMethod {
    use super::slab::{map_anonymous, unmap};

    let page = page_size();
    let Ok(start) = map_anonymous(page) else {
        return GuardMethod::Protection;
    };
    // SAFETY: the page was mapped above and no other thread knows of it.
    let marked = unsafe { libc::madvise(start as *mut _, page, MADV_GUARD_INSTALL) } == 0;
    // The raw system call, since the C library may answer without entering the kernel, and would crash.
    // SAFETY: the kernel either writes a `timespec`, which fits into the page, or finds that it must not.
    let written = unsafe {
        libc::syscall(
            libc::SYS_clock_getres,
            libc::CLOCK_MONOTONIC,
            start as *mut libc::timespec,
        )
    } == 0;
    let fault = !written && last_os_error() == libc::EFAULT;
    // SAFETY: exactly the mapping made above, which nothing refers to any more.
    unsafe { unmap(start, page) };
    if marked && fault {
        GuardMethod::Marker
    } else {
        GuardMethod::Protection
    }
}

/// Rations guards that cost mappings.
mod ration {
    use super::*;

    static IN_USE: AtomicUsize = AtomicUsize::new(0);

    pub(super) fn take_one() -> Result<(), StackError> {
        let limit = limit();
        // Relaxed: a mere count; nothing is published through it.
        let taken = IN_USE.try_update(Ordering::Relaxed, Ordering::Relaxed, |in_use| {
            (in_use < limit).then_some(in_use + 1)
        });
        taken
            .map(|_| ())
            .map_err(|_| StackError::TooManyGuards { limit })
    }

    pub(super) fn give_back(count: usize) {
        IN_USE.fetch_sub(count, Ordering::Relaxed);
    }

    /// A guard costs two mappings (itself, and the stack it cuts off), and we leave half to the program.
    pub(super) fn limit() -> usize {
        static LIMIT: OnceLock<usize> = OnceLock::new();
        *LIMIT.get_or_init(|| mapping_limit().map_or(usize::MAX, |mappings| mappings / 4))
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    fn mapping_limit() -> Option<usize> {
        /// The value that Linux sets unless told otherwise; for when `/proc` is not mounted.
        const LINUX_DEFAULT: usize = 65530;
        let told = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        Some(
            told.ok()
                .and_then(|text| text.trim().parse().ok())
                .unwrap_or(LINUX_DEFAULT),
        )
    }

    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    fn mapping_limit() -> Option<usize> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::slab::{discard_pages, map_anonymous, unmap};
    use super::super::testing::readable;
    use super::*;

    /// Maps three pages, guards the middle one, and passes the addresses on.
    fn with_guarded_page(method: GuardMethod, test: impl FnOnce(usize, usize)) {
        let page = page_size();
        let start = map_anonymous(3 * page).expect("three pages");
        // SAFETY: the middle page of a mapping made above and not in use.
        unsafe { install(method, start + page, page) }.expect("a guard");
        test(start, page);
        // SAFETY: exactly the mapping made above.
        unsafe { unmap(start, 3 * page) };
        unmapped(method, 1);
    }

    #[test]
    fn every_method_guards_its_page_and_no_other() {
        for method in [GuardMethod::best(), GuardMethod::Protection] {
            with_guarded_page(method, |start, page| {
                assert!(readable(start), "{method:?}");
                assert!(!readable(start + page), "{method:?}");
                assert!(!readable(start + 2 * page - 1), "{method:?}");
                assert!(readable(start + 2 * page), "{method:?}");
            });
        }
    }

    #[test]
    fn guards_survive_giving_the_memory_back_to_the_system() {
        for method in [GuardMethod::best(), GuardMethod::Protection] {
            with_guarded_page(method, |start, page| {
                // SAFETY: a mapping of this test's own whose contents are not needed.
                unsafe { discard_pages(start, 3 * page) };
                assert!(!readable(start + page), "{method:?}");
                assert!(readable(start + 2 * page), "{method:?}");
            });
        }
    }

    #[test]
    fn a_refused_guard_is_an_error_with_the_systems_number() {
        // SAFETY: the lowest page is never mapped, so nothing can be harmed.
        let refused = unsafe { install(GuardMethod::Protection, 0, page_size()) };
        assert_eq!(
            refused,
            Err(StackError::NoGuard {
                os_error: libc::ENOMEM
            })
        );
    }
}
