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
];

/// The names that closures of the program's have where they are called, other than those above.
const CLOSURES: &[&str] = &[
    "action",
    "call",
    "compare",
    "executor",
    "function",
    "init",
    "make",
    "on_restart",
    "operation",
    "predicate",
    "watcher",
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
    (
        "pool/src/raw/bell.rs",
        3,
        "the waker of a fiber, and a closure, our own",
    ),
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
        3,
        "the panic of a child is its outcome, which its supervisor judges; what it is made by and what it does, called in its job",
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
        2,
        "in a poll: a panic of the waker goes to the poll's caller; and a call whose caller gets its panic",
    ),
    (
        "lanes/src/steps.rs",
        5,
        "in a poll: a panic of the waker goes to the poll's caller; and steps of a job, whose outcome their panic is",
    ),
    (
        "lanes/src/bodies.rs",
        5,
        "in a poll: a panic of the waker goes to the poll's caller; and bodies of jobs, whose outcome their panic is",
    ),
    ("lanes/src/remote/gate.rs", 1, "a lane of ours, no waker"),
    (
        "capi/src/border.rs",
        1,
        "a panic becomes the status of the C function",
    ),
    (
        "capi/src/task.rs",
        3,
        "the panic of a C task is its job's outcome; and a call of the guard for C functions, by its name `callback`; and a C function as the body of a job",
    ),
    (
        "capi/src/budget.rs",
        2,
        "a call of the guard for C functions, by its name `callback`, and the C function inside of it",
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
        8,
        "a waker of ours that calls its own method; and a closure of the worker's own",
    ),
    (
        "pool/src/sim/ending.rs",
        1,
        "a function of the simulation's own",
    ),
    (
        "pool/src/raw/before_sleep.rs",
        1,
        "a function of the timers",
    ),
    (
        "pool/src/raw/gate.rs",
        2,
        "functions of the layer with budgets",
    ),
    (
        "pool/src/raw/merge_sort.rs",
        1,
        "the panic of a sort's comparison continues in the code that sorts",
    ),
    ("pool/src/raw/task.rs", 2, "the name of a type"),
    (
        "par/src/ops/fold.rs",
        3,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/ops/search.rs",
        4,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/ops/write.rs",
        1,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/ops/extremes.rs",
        2,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/ops/collect.rs",
        1,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/transform.rs",
        2,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "par/src/sort/mod.rs",
        3,
        "the panic of a sort's comparison continues in the code that sorts",
    ),
    (
        "par/src/bridge.rs",
        3,
        "the panic of a loop's closure continues in the code that runs the loop",
    ),
    (
        "tree/src/body.rs",
        2,
        "functions of the job's own kind, which guard what they drop",
    ),
    (
        "tree/src/job.rs",
        1,
        "a function of the job's own kind, which guards what it drops",
    ),
    ("tree/src/outermost.rs", 5, "functions of the runner's"),
    (
        "tree/src/monitor/events.rs",
        1,
        "a function of the simulation's own",
    ),
    (
        "runtime/src/scheduled/mod.rs",
        1,
        "makes the body of a manager's job; its panic goes to the code that schedules the job",
    ),
    (
        "runtime/src/scheduled/ticket.rs",
        1,
        "a visit of the manager's own",
    ),
    (
        "runtime/src/scheduled/task.rs",
        1,
        "makes the body of a manager's job; its panic goes to the code that schedules the job",
    ),
    (
        "runtime/src/supervision/run.rs",
        1,
        "called in the body of the supervisor, whose outcome its panic is",
    ),
    (
        "runtime/src/actor/mod.rs",
        1,
        "the panic of an actor is its job's outcome",
    ),
    ("runtime/src/timers.rs", 1, "a closure of the timers' own"),
    (
        "runtime/src/future/nursery.rs",
        2,
        "makes a future; its panic goes to the code that spawns it",
    ),
    (
        "lanes/src/remote/service.rs",
        2,
        "called in the body of a request's job, whose outcome its panic is",
    ),
    ("lanes/src/tracker.rs", 1, "a closure of the tracker's own"),
    (
        "lanes/src/shared.rs",
        2,
        "called in the body of a job, whose outcome its panic is",
    ),
    (
        "capi/src/scope.rs",
        3,
        "a C function as the body of a job, whose outcome its panic is",
    ),
    (
        "capi/src/launch.rs",
        1,
        "a C function as the body of a job, whose outcome its panic is",
    ),
    ("worker/src/outbox.rs", 1, "a closure of the worker's own"),
    (
        "worker/src/handler.rs",
        3,
        "called in the body of the job that runs the handler, whose outcome its panic is",
    ),
    ("scheduler/src/engine.rs", 2, "closures of the engine's own"),
    (
        "scheduler/src/sim/system/calls.rs",
        1,
        "a closure of the simulator's own",
    ),
    (
        "scheduler/src/sim/system/processes.rs",
        1,
        "a closure of the simulator's own",
    ),
    (
        "scheduler/src/sim/system/link.rs",
        1,
        "a closure of the simulator's own",
    ),
    (
        "scheduler/src/core/calls.rs",
        1,
        "a closure of the engine's own",
    ),
    (
        "scheduler/src/sim/disk.rs",
        1,
        "a listener of the simulator's own",
    ),
];

/// Returns the part of a source file that ships, up to a module of tests if it has one, without its line comments.
pub fn code_that_ships(text: &str) -> String {
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
    code.fold(String::new(), |code, line| code + line + "\n")
}

/// Returns the source files of `crates` that are no tests, by path below `crates` and text.
pub fn shipped_sources(crates: &[&str]) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for name in crates {
        sources(&root.join(name).join("src"), &mut files);
    }
    let is_tests = |path: &Path| {
        is_test_file(path) || path.components().any(|part| part.as_os_str() == "tests")
    };
    let below = |path: &Path| path.strip_prefix(&root).expect("found below").to_owned();
    let shipped = files.iter().filter(|file| !is_tests(&below(file)));
    let text_of = |file: &PathBuf| {
        let path = below(file)
            .to_str()
            .expect("our names are text")
            .replace('\\', "/");
        (
            path,
            fs::read_to_string(file).expect("a source file is text"),
        )
    };
    shipped.map(text_of).collect()
}

/// Returns the number of unguarded calls in the part of a source file that ships.
fn calls_in(text: &str) -> usize {
    let code = code_that_ships(text);
    let unguarded = code.lines().filter(|line| !line.contains("call_user("));
    // A space before the line, as before a call inside of it; and none before the name of a function that is defined.
    unguarded
        .map(|line| {
            let line = format!(" {}", line.replace("fn ", "fn_"));
            count(&line, CALLS) + calls_of_fields(&line) + calls_by_name(&line)
        })
        .sum()
}

/// Returns the number of calls of what a field or a reference holds: `(self.handle)(…)`, `(*function)(…)`.
fn calls_of_fields(line: &str) -> usize {
    let ends = line.match_indices(")(");
    let is_value = |(at, _): &(usize, &str)| {
        let called = &line[..*at];
        let begins = called.rfind('(').map_or("", |begins| &called[begins + 1..]);
        let is_path = |c: char| c.is_alphanumeric() || "_.*".contains(c);
        let is_held = begins.contains('.') || begins.starts_with('*');
        is_held && begins.chars().all(is_path)
    };
    ends.filter(is_value).count()
}

/// Returns the number of calls of closures by the names in [`CLOSURES`]. Those to which a closure is given are functions of ours.
fn calls_by_name(line: &str) -> usize {
    let calls_of = |name: &&str| {
        let named = line.match_indices(*name).filter(|(at, _)| {
            let (before, rest) = (&line[..*at], &line[at + name.len()..]);
            let is_whole = !before.ends_with(|c: char| c.is_alphanumeric() || "_.:\"`".contains(c));
            is_whole && rest.starts_with('(') && !rest.starts_with("(||")
        });
        named.count()
    };
    CLOSURES.iter().map(calls_of).sum()
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
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, text) in shipped_sources(CRATES) {
        let allowed = ALLOWED.iter().find(|(allowed, ..)| *allowed == path);
        let (allowed, calls) = (allowed.map_or(0, |(_, count, _)| *count), calls_in(&text));
        seen += calls;
        if calls != allowed {
            wrong.push(format!(
                "crates/{path}: {calls} calls of user code without a guard ({CALLS:?}, what a field holds, {CLOSURES:?}), \
                 {allowed} allowed. Call it through jobtree_base::user_code, or give the reason here why a caller receives its \
                 panic."
            ));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    let listed: usize = ALLOWED.iter().map(|(_, count, _)| count).sum();
    assert_eq!(seen, listed, "the list names a file that is gone");
}

#[test]
fn wakers_are_cloned_before_a_lock_is_taken() {
    let clones = shipped_sources(CRATES).into_iter();
    let clones = clones.map(|(path, text)| (path, clones_under_lock(&text)));
    let found: Vec<(String, usize)> = clones.filter(|(_, clones)| *clones > 0).collect();
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
    assert_eq!(calls_in("(self.handle)(item); (self.init)()"), 2);
    assert_eq!(calls_in("(this.front.as_ref().functions.run)(front)"), 0);
    assert_eq!(
        calls_in("let result = (*function)(item); executor(call)"),
        2
    );
    assert_eq!(calls_in("self.executor(call); fn executor(call: u8) {}"), 0);
    assert_eq!(calls_in("call_user(Place::Callback, || callback(2));"), 0);
}
