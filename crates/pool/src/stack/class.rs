//! The sizes of stacks, and the ways in which one cannot be had.
//!
//! Assumes nothing of the platform, so that a pool refuses an absurd size alike where stacks switch and
//! where they do not. Rounding to pages happens in `slab`, which knows the page.

use std::error::Error;
use std::fmt;
use std::io;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Usable bytes of a [`StackClass::Small`] stack.
pub const SMALL_STACK_SIZE: usize = 64 * KIB;

/// Usable bytes of a [`StackClass::Default`] stack unless the pool was told otherwise: as much as the
/// standard library gives a thread.
pub const DEFAULT_STACK_SIZE: usize = 2 * MIB;

/// The least that may be asked for. A worker's loop and a short task fit; printing a panic's backtrace
/// does not (see the table of sizes in this module's README).
pub const MINIMUM_STACK_SIZE: usize = 16 * KIB;

/// The most that may be asked for. Address space is plentiful but not endless: a hundred parked stacks
/// of this size take as much of it as a hundred thousand default ones.
pub const MAXIMUM_STACK_SIZE: usize = 1024 * MIB;

/// The class of a stack: one of a pool's two sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StackClass {
    /// 64 KiB, for very many tasks that wait with little on their stack.
    Small,
    /// The size that the pool was built with, by default that of a thread's stack.
    Default,
}

impl StackClass {
    /// Both classes, in the order of [`index`](Self::index).
    pub const ALL: [StackClass; 2] = [StackClass::Small, StackClass::Default];

    /// The place of this class in a table with one entry per class.
    #[inline]
    pub const fn index(self) -> usize {
        match self {
            StackClass::Small => 0,
            StackClass::Default => 1,
        }
    }
}

/// Checks a stack size that a user asked for, and returns it unchanged if stacks can have it.
///
/// The size handed out in the end is rounded up to whole pages.
pub const fn checked_stack_size(requested: usize) -> Result<usize, StackError> {
    if requested < MINIMUM_STACK_SIZE {
        return Err(StackError::TooSmall { requested });
    }
    if requested > MAXIMUM_STACK_SIZE {
        return Err(StackError::TooLarge { requested });
    }
    Ok(requested)
}

/// The reason why there is no stack.
///
/// The first two come from a pool's configuration. The others come from the system when very many
/// stacks are in use; the pool then goes on without parking, which is slower but correct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackError {
    /// Less than 16 KiB was asked for.
    TooSmall {
        /// The requested size in bytes.
        requested: usize,
    },
    /// More than 1 GiB was asked for.
    TooLarge {
        /// The requested size in bytes.
        requested: usize,
    },
    /// The system refused address space for even one more stack.
    NoAddressSpace {
        /// The size of the last request, in bytes.
        bytes: usize,
        /// The system's error number.
        os_error: i32,
    },
    /// The system refused a guard region, without which a stack is not handed out.
    NoGuard {
        /// The system's error number.
        os_error: i32,
    },
    /// On this kernel each guard region splits a mapping, and our share of the process's mappings is used up.
    TooManyGuards {
        /// The number of guarded stacks that this process may have.
        limit: usize,
    },
}

impl fmt::Display for StackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            StackError::TooSmall { requested } => write!(
                f,
                "a stack of {} is too small; ask for at least {}",
                ByteCount(requested),
                ByteCount(MINIMUM_STACK_SIZE)
            ),
            StackError::TooLarge { requested } => write!(
                f,
                "a stack of {} is too large; ask for at most {}",
                ByteCount(requested),
                ByteCount(MAXIMUM_STACK_SIZE)
            ),
            StackError::NoAddressSpace { bytes, os_error } => write!(
                f,
                "the system has no {} of address space for another stack ({}); \
                 raise the limit on address space (ulimit -v), or ask for smaller stacks",
                ByteCount(bytes),
                io::Error::from_raw_os_error(os_error)
            ),
            StackError::NoGuard { os_error } => write!(
                f,
                "the system refused to protect the guard region of a stack ({}); \
                 raise vm.max_map_count, or let fewer tasks wait at once",
                io::Error::from_raw_os_error(os_error)
            ),
            StackError::TooManyGuards { limit } => write!(
                f,
                "{limit} stacks are in use, and on this kernel each costs two memory mappings; \
                 raise vm.max_map_count, or use Linux 6.13 or later, where they cost none"
            ),
        }
    }
}

impl Error for StackError {}

/// A size as a person would write it: whole MiB or KiB where that is exact, else bytes.
struct ByteCount(usize);

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (amount, unit) = in_largest_whole_unit(self.0);
        write!(f, "{amount} {unit}")
    }
}

/// The size in the largest unit in which it is a whole number. Usable in a signal handler.
pub(super) const fn in_largest_whole_unit(bytes: usize) -> (usize, &'static str) {
    if bytes > 0 && bytes.is_multiple_of(MIB) {
        (bytes / MIB, "MiB")
    } else if bytes > 0 && bytes.is_multiple_of(KIB) {
        (bytes / KIB, "KiB")
    } else {
        (bytes, "bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_at_the_limits_are_accepted_and_those_beyond_refused() {
        assert_eq!(
            checked_stack_size(MINIMUM_STACK_SIZE),
            Ok(MINIMUM_STACK_SIZE)
        );
        assert_eq!(
            checked_stack_size(MAXIMUM_STACK_SIZE),
            Ok(MAXIMUM_STACK_SIZE)
        );
        for requested in [0, 1, MINIMUM_STACK_SIZE - 1] {
            assert_eq!(
                checked_stack_size(requested),
                Err(StackError::TooSmall { requested })
            );
        }
        for requested in [MAXIMUM_STACK_SIZE + 1, usize::MAX] {
            assert_eq!(
                checked_stack_size(requested),
                Err(StackError::TooLarge { requested })
            );
        }
    }

    #[test]
    fn errors_name_the_size_and_what_to_do() {
        assert_eq!(
            StackError::TooSmall { requested: 1 }.to_string(),
            "a stack of 1 bytes is too small; ask for at least 16 KiB"
        );
        assert_eq!(
            StackError::TooLarge {
                requested: 4096 * MIB
            }
            .to_string(),
            "a stack of 4096 MiB is too large; ask for at most 1024 MiB"
        );
        let refused = StackError::NoGuard { os_error: 12 }.to_string();
        assert!(refused.contains("vm.max_map_count"), "{refused}");
    }

    #[test]
    fn class_indices_follow_the_table() {
        for (place, class) in StackClass::ALL.into_iter().enumerate() {
            assert_eq!(class.index(), place);
        }
    }
}
