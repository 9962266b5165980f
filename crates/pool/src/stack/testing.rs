//! The questions that the tests of this folder ask the system: is this address readable, mapped, resident; and the way in which a
//! test runs in a process of its own, because it ends the process or needs its memory undisturbed.

use std::ops::Range;
use std::process::{Command, Output};

use super::slab::page_size;

const CHILD_VARIABLE: &str = "JOBTREE_STACK_TEST_CHILD";

/// Runs a test's body in a new process that runs nothing else.
///
/// `test` is the full path of the calling test: `concat!(module_path!(), "::its_name")`. In the calling
/// process this returns how the child ended. The child calls the same test again; there the body runs and
/// `None` is returned.
pub(super) fn in_child_process(test: &str, body: impl FnOnce()) -> Option<Output> {
    in_child_process_with(test, &[], body)
}

/// The same, with environment variables for the child.
pub(super) fn in_child_process_with(
    test: &str,
    environment: &[(&str, &str)],
    body: impl FnOnce(),
) -> Option<Output> {
    let (_crate_name, test_path) = test.split_once("::").expect("a path below the crate");
    if std::env::var(CHILD_VARIABLE).as_deref() == Ok(test_path) {
        body();
        return None;
    }
    let output = Command::new(std::env::current_exe().expect("the test binary"))
        .args([test_path, "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD_VARIABLE, test_path)
        .envs(environment.iter().copied())
        .output()
        .expect("the test binary starts again");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.contains("running 1 test"),
        "no test of the name {test_path}: {stdout}"
    );
    Some(output)
}

/// For a body that returns: its assertions fail the calling test.
pub(super) fn assert_passes_in_child_process(test: &str, body: impl FnOnce()) {
    if let Some(output) = in_child_process(test, body) {
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Returns `true` if the byte can be read, found out by the kernel so that a guard does no harm.
pub(super) fn readable(address: usize) -> bool {
    let mut ends = [0; 2];
    // SAFETY: `pipe` fills the two file descriptors; `write` reads one byte, and answers EFAULT if it may
    // not; the descriptors are closed once.
    unsafe {
        assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
        let written = libc::write(ends[1], address as *const _, 1);
        libc::close(ends[0]);
        libc::close(ends[1]);
        written == 1
    }
}

/// Returns `true` if a mapping contains the address.
pub(super) fn is_mapped(address: usize) -> bool {
    let page = address / page_size() * page_size();
    let mut answer = [0u8; 1];
    // SAFETY: one page asked about, one byte of answer.
    unsafe { libc::mincore(page as *mut _, page_size(), answer.as_mut_ptr().cast()) == 0 }
}

/// Returns the number of pages of a mapped, page-aligned range that take up memory.
pub(super) fn resident_pages(range: Range<usize>) -> usize {
    let mut answer = vec![0u8; range.len() / page_size()];
    // SAFETY: a byte of answer for each page asked about.
    let refused = unsafe {
        libc::mincore(
            range.start as *mut _,
            range.len(),
            answer.as_mut_ptr().cast(),
        )
    };
    assert_eq!(refused, 0, "a mapped range");
    answer.into_iter().filter(|page| page & 1 == 1).count()
}

/// Returns the number of mappings that overlap the range.
pub(super) fn mappings_within(range: Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is mounted");
    maps.lines()
        .filter_map(|line| line.split_once(' ')?.0.split_once('-'))
        .filter(|(start, end)| {
            let address = |text| usize::from_str_radix(text, 16).expect("an address");
            address(start) < range.end && address(end) > range.start
        })
        .count()
}
