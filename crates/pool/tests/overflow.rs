//! A task that uses up its stack is named before the process ends.
#![cfg(all(target_os = "linux", jobtree_stacks))]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use jobtree_pool::Pool;

const CHILD: &str = "JOBTREE_TEST_OVERFLOWING_CHILD";
const SIGABRT: i32 = 6;

#[expect(unconditional_recursion, reason = "the end of the stack is the point")]
fn recurse_for_ever(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 64]);
    recurse_for_ever(depth + 1) + frame[(depth % 64) as usize]
}

fn overflows() {
    std::hint::black_box(recurse_for_ever(0));
}

#[test]
fn an_overflow_names_the_task_the_worker_and_the_remedy() {
    if std::env::var_os(CHILD).is_some() {
        let pool = Pool::builder()
            .workers(1)
            .worker_name(|_| "deep-thinker".to_owned())
            .stack_size(128 << 10)
            .build()
            .unwrap();
        pool.scope(|s| s.spawn(|_| overflows()));
        return;
    }
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "an_overflow_names_the_task_the_worker_and_the_remedy",
        ])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{report}");
    for part in [
        "stack overflow",
        "an_overflow_names_the_task",
        "deep-thinker",
        "128 KiB",
        "stack_size",
    ] {
        assert!(report.contains(part), "`{part}` is not in: {report}");
    }
}
