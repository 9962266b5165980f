//! User code is called through `jobtree_base::user_code`, or where a caller receives its panic: there is no third way.
//!
//! A reader cannot see from a call of `wake` or `catch_unwind` whether it keeps the rule. So every such call outside of
//! `jobtree-base` stands in the list below with its reason, and a new one has to be added to it, or to go through the guards.

use std::fs;
use std::path::{Path, PathBuf};

/// The crates that call user code.
const CRATES: &[&str] = &[
    "pool",
    "par",
    "tree",
    "runtime",
    "lanes",
    "capi",
    "worker",
    "process",
    "scheduler",
];

/// What a call that is not guarded looks like: of a waker, by method or by path, or of a closure that the program gave. A call
/// inside `call_user(…)` on the same line is guarded.
const CALLS: &[&str] = &[
    "catch_unwind(",
    ".wake()",
    ".wake_by_ref()",
    "Waker::wake",
    "Waker::clone",
    " callback(",
    " handler(",
    " listener(",
    " hook(",
    ".callback)(",
    ".handler)(",
    ".listener)(",
    ".hook)(",
    ".decide)(",
];

/// The clone of a waker, which must not happen while a lock of ours is held.
const CLONES: &[&str] = &["waker().clone()", "waker.clone()"];

/// What the same statement must not hold when it clones a waker: the guard of a lock lives to the end of the statement.
const LOCKS: &[&str] = &[".lock()", ".borrow_mut()", "state.", "purse.", "slot."];

/// The files that clone a waker in a statement with a lock, and why that is right.
const CLONES_UNDER_LOCK: &[(&str, usize, &str)] = &[];

/// The files with such calls, how many each has, and why they need no guard.
const ALLOWED: &[(&str, usize, &str)] = &[
    (
        "pool/src/fork.rs",
        2,
        "the panic of a fork continues in the code that joins it",
    ),
    (
        "pool/src/job.rs",
        1,
        "the panic of a task goes to its scope, or to the pool's handler",
    ),
    (
        "pool/src/scope.rs",
        1,
        "the panic of a scope's body continues after its tasks",
    ),
    (
        "pool/src/pool/install.rs",
        1,
        "the panic of an installed body continues in its caller",
    ),
    (
        "pool/src/pool/start.rs",
        2,
        "the panic of a handler goes to the pool's panic handler",
    ),
    (
        "pool/src/sim/hub.rs",
        1,
        "the panic of a callback is the simulation's outcome",
    ),
    (
        "pool/src/stack/switch/routine.rs",
        1,
        "a panic at the bottom of a stack continues in the code that resumed it",
    ),
    (
        "pool/src/latches.rs",
        1,
        "a waiter of the pool's own, no waker",
    ),
    ("pool/src/raw/bell.rs", 2, "the waker of a fiber, our own"),
    ("tree/src/stack.rs", 1, "the waker of a fiber, our own"),
    (
        "runtime/src/current.rs",
        1,
        "the panic of a body is its job's outcome",
    ),
    (
        "runtime/src/future/body.rs",
        1,
        "the panic of a future is its job's outcome",
    ),
    (
        "runtime/src/supervision/child.rs",
        1,
        "the panic of a child is its outcome, which its supervisor judges",
    ),
    (
        "runtime/src/actor/life.rs",
        1,
        "the panic of an actor's destructor is the actor's outcome",
    ),
    (
        "runtime/src/sim/course.rs",
        1,
        "the panic continues after all stacks of the simulation have ended",
    ),
    (
        "runtime/src/budget/tick.rs",
        1,
        "in a poll: a panic of the waker goes to the poll's caller",
    ),
    (
        "runtime/src/future/mod.rs",
        1,
        "in a poll: a panic of the waker goes to the poll's caller",
    ),
    (
        "lanes/src/context.rs",
        1,
        "in a poll: a panic of the waker goes to the poll's caller",
    ),
    (
        "lanes/src/steps.rs",
        1,
        "in a poll: a panic of the waker goes to the poll's caller",
    ),
    (
        "lanes/src/bodies.rs",
        1,
        "in a poll: a panic of the waker goes to the poll's caller",
    ),
    ("lanes/src/remote/gate.rs", 1, "a lane of ours, no waker"),
    (
        "capi/src/border.rs",
        1,
        "a panic becomes the status of the C function",
    ),
    (
        "capi/src/task.rs",
        2,
        "the panic of a C task is its job's outcome; and a call of the guard for C functions, by its name `callback`",
    ),
    (
        "capi/src/budget.rs",
        1,
        "a call of the guard for C functions, by its name `callback`",
    ),
    (
        "pool/src/stack/overflow.rs",
        2,
        "the signal handler that was there before ours, in C's way",
    ),
    (
        "tree/src/wait.rs",
        2,
        "a function of the runner's; and a callback within limits, which is only called inside the guard of its list",
    ),
    (
        "tree/src/cancel.rs",
        3,
        "hooks, a waker and functions of the runner's own, no user code",
    ),
    (
        "runtime/src/panics.rs",
        2,
        "the panic hook that was there before ours: its panic ends the process, by the standard library",
    ),
    (
        "runtime/src/actor/options.rs",
        1,
        "called in the body of the actor, whose outcome its panic is",
    ),
    (
        "runtime/src/budget/later.rs",
        2,
        "inside a waker of ours, around which the guard of the wake is",
    ),
    (
        "worker/src/trace.rs",
        2,
        "called in the body of the job that runs the handler, whose outcome its panic is",
    ),
    (
        "worker/src/held.rs",
        1,
        "a waker of ours that calls its own method",
    ),
    (
        "scheduler/src/sim/disk.rs",
        1,
        "a listener of the simulator's own",
    ),
];

/// Returns the number of unguarded calls in the part of a source file that ships: up to a module of tests, if it has one.
fn calls_in(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let begins_tests = |pair: &[&str]| {
        let is_attribute =
            pair[0].starts_with("#[cfg(test)]") || pair[0].starts_with("#[cfg(all(test");
        is_attribute && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    let ships = lines
        .windows(2)
        .position(begins_tests)
        .unwrap_or(lines.len());
    let code = lines[..ships].iter().filter(|line| !line.starts_with("//"));
    code.filter(|line| !line.contains("call_user("))
        // A space before the line, as before a call inside of it; and none before the name of a function that is defined.
        .map(|line| count(&format!(" {}", line.replace("fn ", "fn_")), CALLS))
        .sum()
}

fn count(line: &str, patterns: &[&str]) -> usize {
    let occurrences = patterns.iter().map(|pattern| line.matches(pattern).count());
    occurrences.sum()
}

/// Returns the number of lines of a source file that clone a waker under a lock, as far as a line shows it.
fn clones_under_lock(text: &str) -> usize {
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let is_wrong = |line: &&str| count(line, CLONES) > 0 && count(line, LOCKS) > 0;
    lines.filter(is_wrong).count()
}

fn is_test_file(path: &Path) -> bool {
    let name = path.file_stem().and_then(|name| name.to_str());
    name.is_some_and(|name| {
        ["tests", "models", "modelling", "testing"]
            .iter()
            .any(|kind| name.ends_with(kind))
    })
}

pub fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be listed") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn user_code_is_called_through_the_guards() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = Vec::new();
    let mut seen = 0;
    for name in CRATES {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        for file in files.iter().filter(|file| !is_test_file(file)) {
            let text = fs::read_to_string(file).expect("a source file is text");
            let path = file.strip_prefix(&crates).expect("found below");
            let path = path
                .to_str()
                .expect("our names are text")
                .replace('\\', "/");
            let allowed = ALLOWED.iter().find(|(allowed, ..)| *allowed == path);
            let (allowed, calls) = (allowed.map_or(0, |(_, count, _)| *count), calls_in(&text));
            seen += calls;
            if calls != allowed {
                wrong.push(format!(
                    "crates/{path}: {calls} calls of {CALLS:?}, {allowed} allowed. Call user code through \
                     jobtree_base::user_code, or give the reason here why a caller receives its panic."
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let listed: usize = ALLOWED.iter().map(|(_, count, _)| count).sum();
    assert_eq!(seen, listed, "the list names a file that is gone");
}

#[test]
fn wakers_are_cloned_before_a_lock_is_taken() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for name in CRATES {
        let mut files = Vec::new();
        sources(&crates.join(name).join("src"), &mut files);
        for file in files.iter().filter(|file| !is_test_file(file)) {
            let text = fs::read_to_string(file).expect("a source file is text");
            let clones = clones_under_lock(&text);
            if clones > 0 {
                let path = file.strip_prefix(&crates).expect("found below");
                let path = path
                    .to_str()
                    .expect("our names are text")
                    .replace('\\', "/");
                found.push((path, clones));
            }
        }
    }
    let allowed: Vec<(String, usize)> = CLONES_UNDER_LOCK
        .iter()
        .map(|(path, count, _)| ((*path).to_owned(), *count))
        .collect();
    assert_eq!(found, allowed, "clone the waker before the lock is taken");
    let planted = "let before = self.lock().waker.replace(context.waker().clone());";
    assert_eq!(clones_under_lock(planted), 1);
}

#[test]
fn a_call_is_seen_in_code_that_ships_and_only_there() {
    assert_eq!(
        calls_in("let _ = panic::catch_unwind(run);\nwaker.wake();"),
        2
    );
    let with_tests = "// waker.wake();\n#[cfg(test)]\nmod tests {\n    waker.wake()\n}";
    assert_eq!(calls_in(with_tests), 0);
    let with_a_file_of_tests = "#[cfg(test)]\nmod tests;\nfn ships() { waker.wake() }";
    assert_eq!(calls_in(with_a_file_of_tests), 1);
    assert_eq!(calls_in("wakers.into_iter().for_each(Waker::wake);"), 1);
    assert_eq!(calls_in("(self.handler)(1); move || callback(2)"), 2);
    assert_eq!(calls_in("call_user(Place::Callback, || callback(2));"), 0);
}
