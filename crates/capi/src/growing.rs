//! Structs that grow at their end from version to version.
//!
//! Each begins with `size`, in which the program says how large the struct is that it was compiled with. A program that
//! knows less gets the defaults for the rest; one that knows more may use this library as long as it asks for
//! nothing new.

use std::mem::{MaybeUninit, size_of};

use crate::status::CallError;
use crate::status::jt_status::*;

/// A struct of the interface that begins with its size.
///
/// # Safety
/// The struct is `repr(C)`, its first field is `size: usize`, and all bytes 0 are a value of it. Each of `EARLIER` is
/// smaller than the struct, and ends between two of its fields.
pub(crate) unsafe trait Growing: Copy {
    /// The name of the struct, for messages.
    const NAME: &'static str;
    /// The sizes that the struct had in earlier versions.
    const EARLIER: &'static [usize] = &[];
}

fn check_size<T: Growing>(size: usize) -> Result<(), CallError> {
    if size >= size_of::<T>() || T::EARLIER.contains(&size) {
        return Ok(());
    }
    let name = T::NAME;
    Err(JT_EINVAL.because(format!("set `size` to sizeof({name}) before the call")))
}

/// Reads a struct of the program's.
///
/// # Safety
/// `pointer` points to a `T` of some version: to as many bytes as its `size` says.
pub(crate) unsafe fn read<T: Growing>(pointer: *const T) -> Result<T, CallError> {
    // SAFETY: every version begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    check_size::<T>(size)?;
    let mut known = MaybeUninit::<T>::zeroed();
    let shared = size.min(size_of::<T>());
    // SAFETY: both have at least so many bytes, and a local does not overlap with the program's struct.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_to_nonoverlapping(known.as_mut_ptr().cast(), shared);
    }
    // SAFETY: these bytes are there, as `size` says.
    let mut beyond = (shared..size).map(|at| unsafe { pointer.cast::<u8>().add(at).read() });
    if beyond.any(|byte| byte != 0) {
        let name = T::NAME;
        return Err(JT_EINVAL.because(format!(
            "{name} has fields set that this version of the library does not know"
        )));
    }
    // SAFETY: whole fields of a value, the rest 0; a value by the contract of the trait.
    Ok(unsafe { known.assume_init() })
}

/// Writes as much of `value` as the program's struct has room for; what the program knows beyond it becomes 0. The
/// program's `size` stays.
///
/// # Safety
/// As [`read`]; and the bytes may be written to.
pub(crate) unsafe fn write<T: Growing>(pointer: *mut T, value: T) -> Result<(), CallError> {
    // SAFETY: every version begins with its size.
    let size = unsafe { pointer.cast::<usize>().read() };
    check_size::<T>(size)?;
    let shared = size.min(size_of::<T>());
    // SAFETY: both have at least so many bytes, and a local does not overlap with the program's struct. The size is
    // written back as it was.
    unsafe {
        pointer
            .cast::<u8>()
            .copy_from_nonoverlapping((&raw const value).cast(), shared);
        pointer
            .cast::<u8>()
            .add(shared)
            .write_bytes(0, size - shared);
        pointer.cast::<usize>().write(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::jt_status;

    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Second {
        size: usize,
        first: u64,
        added: u64,
    }

    // SAFETY: numbers alone; the first version ended before `added`.
    unsafe impl Growing for Second {
        const NAME: &'static str = "struct second";
        const EARLIER: &'static [usize] = &[std::mem::offset_of!(Second, added)];
    }

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Third {
        second: Second,
        newest: u64,
    }

    fn third(size: usize, newest: u64) -> Third {
        let second = Second {
            size,
            first: 1,
            added: 2,
        };
        Third { second, newest }
    }

    fn read_from(third: &Third) -> Result<Second, jt_status> {
        // SAFETY: no size of these tests is larger than the struct.
        unsafe { read((&raw const *third).cast::<Second>()) }.map_err(|error| error.status)
    }

    #[test]
    fn every_version_is_read_unless_it_asks_for_something_new() {
        let (first, second) = (size_of::<usize>() + 8, size_of::<Second>());
        let all = size_of::<Third>();
        assert_eq!(read_from(&third(first, 7)).unwrap().added, 0);
        assert_eq!(read_from(&third(second, 7)).unwrap().added, 2);
        assert_eq!(read_from(&third(all, 0)).unwrap().added, 2);
        assert_eq!(read_from(&third(all, 7)), Err(JT_EINVAL));
        for wrong in [0, 1, first - 1, first + 1, second - 1] {
            assert_eq!(read_from(&third(wrong, 0)), Err(JT_EINVAL), "{wrong}");
        }
    }

    #[test]
    fn as_much_is_written_as_there_is_room_for() {
        let value = Second {
            size: 0,
            first: 5,
            added: 6,
        };
        let write_to = |mut third: Third| {
            // SAFETY: no size of these tests is larger than the struct.
            let result = unsafe { write((&raw mut third).cast::<Second>(), value) };
            (result.map_err(|error| error.status), third)
        };
        let first = size_of::<usize>() + 8;
        let (result, written) = write_to(third(first, 7));
        assert_eq!(result, Ok(()));
        assert_eq!((written.second.first, written.second.added), (5, 2));
        let (result, written) = write_to(third(size_of::<Third>(), 7));
        assert_eq!(result, Ok(()));
        assert_eq!((written.second.added, written.newest), (6, 0));
        assert_eq!(written.second.size, size_of::<Third>());
        assert_eq!(write_to(third(first + 1, 7)).0, Err(JT_EINVAL));
    }
}
