//! Values of the program's are owned by guards, and are not dropped under a lock of ours.
//!
//! A destructor is user code. Where the library keeps a value of the program's in a structure of its own, the value may be dropped
//! while other user code unwinds, or beside another value whose destructor panics: that ends the process, unless a guard
//! (`UserOwned`, `UserVec`, …) owns the value. And a value that a statement takes out of a locked structure dies at the end of that
//! statement, when the guard of the lock is still there.
//!
//! Both are visible in the text, roughly: a field whose type is a bare parameter of its struct, also inside a collection; and a
//! statement that locks and takes something out without giving it a name. Those that are right stand in the lists below, with
//! the reason.

use crate::user_code::{code_that_ships, shipped_sources};

/// The crates whose structs keep values of the program's.
const OWNING_CRATES: &[&str] = &["pool", "par", "runtime", "lanes", "worker"];

/// The crates whose locks are checked.
const LOCKING_CRATES: &[&str] = &[
    "pool", "par", "tree", "runtime", "lanes", "capi", "worker", "process",
];

/// Types that drop what they hold, without a guard. What is not here has a guard or a field of its own, which is checked.
const HOLDERS: &[&str] = &[
    "Option",
    "Vec",
    "VecDeque",
    "Box",
    "Arc",
    "Rc",
    "Mutex",
    "RwLock",
    "RefCell",
    "Cell",
    "UnsafeCell",
    "OnceLock",
    "OnceCell",
    "Pin",
    "HashMap",
    "BTreeMap",
    "HashSet",
    "BTreeSet",
    "BinaryHeap",
    "Result",
];

/// The fields with a bare value of the program's, as `Struct.field`, and why they need no guard.
const BARE_FIELDS: &[(&str, &[&str], &str)] = &[
    (
        "pool/src/deque.rs",
        &["Deque.between"],
        "a line of the pool's own",
    ),
    (
        "pool/src/sync.rs",
        &["Mutex.0", "UnsafeCell.0"],
        "loom's types by the names of the standard library's; their values are fields elsewhere",
    ),
    (
        "pool/src/padded.rs",
        &["Padded.0"],
        "words of the pool's own",
    ),
    (
        "pool/src/raw/bell.rs",
        &["OnExit.0"],
        "a closure of the pool's own, in a frame",
    ),
    (
        "pool/src/job.rs",
        &["BoxedTask.body"],
        "called in the task's guard; what never runs is dropped in one",
    ),
    (
        "pool/src/stack/switch/routine.rs",
        &["Inner.result"],
        "moved out by the code that resumes the stack",
    ),
    (
        "pool/src/join_many.rs",
        &["Each.1"],
        "a guard itself: its destructor drops one after the other in `drop_user`",
    ),
    (
        "pool/src/pool/install.rs",
        &["InstallTask.result"],
        "moved out by the code that waits for it",
    ),
    (
        "par/src/ops/fold.rs",
        &[
            "Fold.identity",
            "Fold.fold",
            "Fold.combine",
            "Reduce.operation",
        ],
        "the consumer of a loop, which owns it as captured",
    ),
    (
        "par/src/ops/search.rs",
        &["UntilAny.step", "UntilFirst.step"],
        "the consumer of a loop, which owns it as captured",
    ),
    (
        "par/src/ops/for_each.rs",
        &["ForEach.action"],
        "the consumer of a loop, which owns it as captured",
    ),
    (
        "par/src/ops/collect.rs",
        &["Partition.predicate"],
        "the consumer of a loop, which owns it as captured",
    ),
    (
        "par/src/ops/write.rs",
        &["Beside.source", "Beside.beside"],
        "sources, which are checked by their own fields",
    ),
    ("par/src/source/range.rs", &["Last.0"], "a number"),
    (
        "par/src/source/chain.rs",
        &["Chain.first", "Chain.second"],
        "sources, which are checked by their own fields",
    ),
    (
        "par/src/source/reversed.rs",
        &["Reversed.source"],
        "a source, which is checked by its own fields",
    ),
    (
        "par/src/source/zip.rs",
        &["Zip.left", "Zip.right"],
        "sources, which are checked by their own fields",
    ),
    (
        "par/src/source/enumerate.rs",
        &["Enumerate.source"],
        "a source, which is checked by its own fields",
    ),
    (
        "par/src/transform.rs",
        &[
            "Indexed.transform",
            "Map.before",
            "Map.function",
            "MapInit.before",
            "MapInit.init",
            "MapInit.function",
            "Filter.before",
            "Filter.predicate",
            "FilterMap.before",
            "FilterMap.function",
            "FlatMap.before",
            "FlatMap.function",
            "Flatten.before",
            "Cloned.before",
        ],
        "the transform of a loop, which owns it as captured while it runs",
    ),
    (
        "par/src/looping.rs",
        &["Loop.source", "Loop.transform"],
        "a value of the program's until it runs, which moves both out",
    ),
    (
        "par/src/bridge.rs",
        &["Bridge.iterator"],
        "a value of the program's until it runs, which owns it as captured",
    ),
    (
        "par/src/bridge.rs",
        &["Handling.handle"],
        "a closure of the loop's own, which borrows the program's",
    ),
    (
        "par/src/bridge.rs",
        &["Placed.="],
        "a name; the queue keeps it in a UserOwned",
    ),
    (
        "runtime/src/block.rs",
        &[
            "FirstOf.0",
            "FirstOf.1",
            "Either.First.0",
            "Either.Second.0",
        ],
        "futures of the library's, and a result that is returned at once",
    ),
    (
        "runtime/src/channel/errors.rs",
        &["Unsent.0"],
        "an error of the program's, which drops it",
    ),
    (
        "runtime/src/channel/core.rs",
        &[
            "State.queue",
            "After.dropped",
            "Refused.Full.0",
            "Refused.Closed.0",
        ],
        "the last receiver drops what is left one by one, in `drop_user`; the others are moved out by their callers",
    ),
    (
        "runtime/src/channel/stream.rs",
        &["Received.="],
        "a result that is returned to the program",
    ),
    (
        "runtime/src/scheduled/task.rs",
        &["Front.header"],
        "a header of the scheduling layer's",
    ),
    (
        "runtime/src/tokio.rs",
        &["Inside.future"],
        "a future of the program's, dropped where the program drops the one around it",
    ),
    (
        "runtime/src/supervision/child.rs",
        &["JobChild.0"],
        "called in the job of the child; dropped with the supervisor by the program",
    ),
    (
        "runtime/src/supervision/child.rs",
        &["ActorChild.new"],
        "called in the job of the child; dropped with the supervisor by the program",
    ),
    (
        "runtime/src/actor/life.rs",
        &["Prepared.body"],
        "moved into a job",
    ),
    (
        "runtime/src/actor/life.rs",
        &["Life.actor"],
        "dropped in the body of its job, inside a guard if that panics",
    ),
    (
        "runtime/src/actor/mod.rs",
        &["FnActor.handle"],
        "an actor of the program's",
    ),
    (
        "runtime/src/select/futures.rs",
        &["FutureClause.future", "FutureClause.output"],
        "in the frame of the program's own code, which drops it",
    ),
    (
        "runtime/src/select/channels.rs",
        &["RecvClause.output"],
        "in the frame of the program's own code, which drops it",
    ),
    (
        "runtime/src/select/selecting.rs",
        &["Selecting.set"],
        "the clauses, which are checked by their own fields",
    ),
    (
        "runtime/src/sim/report.rs",
        &["Report.outcome"],
        "a value of the program's, which drops it",
    ),
    (
        "runtime/src/budget/refusal.rs",
        &["SpawnRefused.body"],
        "an error of the program's, which drops it",
    ),
    (
        "runtime/src/budget/memory.rs",
        &["CountingAllocator.inner"],
        "an allocator, in a static of the program's",
    ),
    (
        "runtime/src/dispatcher/job.rs",
        &["Run.body"],
        "moved into the guard of its job, or into `drop_user`",
    ),
    (
        "runtime/src/withdraw.rs",
        &["OrCancelled.operation", "Unless.sooner", "Unless.operation"],
        "operations of the library's",
    ),
    (
        "runtime/src/waiters.rs",
        &["Entry.slot"],
        "the destructor of its waiter takes it out into `drop_user`",
    ),
    (
        "runtime/src/sync/rwlock.rs",
        &["RwLock.value"],
        "a value of the program's, which drops the lock",
    ),
    (
        "runtime/src/sync/mutex.rs",
        &["Mutex.value"],
        "a value of the program's, which drops the lock",
    ),
    (
        "runtime/src/atomics.rs",
        &["Mutex.0", "UnsafeCell.0", "Guarded.state"],
        "locks of the library's own; their values are fields elsewhere",
    ),
    (
        "runtime/src/future/body.rs",
        &["BodyFuture.future"],
        "a body, which its job drops in a guard",
    ),
    (
        "runtime/src/task.rs",
        &["Slot.0"],
        "the job takes it out into `drop_user` if no code has taken it before",
    ),
    (
        "runtime/src/task.rs",
        &["Run.body"],
        "moved into the guard of its job, or into `drop_user`",
    ),
    (
        "lanes/src/queue.rs",
        &["Picked.job", "New.job"],
        "jobs of the manager's own",
    ),
    (
        "lanes/src/queue/fifo.rs",
        &["Fifo.blocks", "Fifo.spare"],
        "jobs of the manager's own",
    ),
    (
        "lanes/src/queue/returned.rs",
        &["Returnee.job"],
        "a job of the manager's own",
    ),
    (
        "lanes/src/padded.rs",
        &["Padded.0"],
        "words of the manager's own",
    ),
    (
        "lanes/src/context.rs",
        &["RunOn.call"],
        "in the frame of the program's own code, which drops it",
    ),
    (
        "lanes/src/job.rs",
        &["LaneJob.body"],
        "a value of the program's until it is scheduled, which moves it into a job",
    ),
    (
        "lanes/src/steps.rs",
        &["StepsRun.make", "StepsRun.outermost"],
        "the body of a job, which drops it in a guard",
    ),
    (
        "lanes/src/remote/waiting.rs",
        &["State.value", "First.One.0", "First.Other.0"],
        "states of a connection, and a result that is returned at once",
    ),
    (
        "lanes/src/remote/lane.rs",
        &["Shared.queue"],
        "dropped with the last handle of the program's, or in the body of a job",
    ),
    (
        "lanes/src/tracker.rs",
        &["Table.live"],
        "headers of the manager's own",
    ),
    (
        "lanes/src/bodies.rs",
        &[
            "Action.0",
            "Task.0",
            "Eventual.make",
            "Coroutine.0",
            "Steps.0",
        ],
        "a value of the program's until it is scheduled, which moves it into a job",
    ),
    (
        "lanes/src/bodies.rs",
        &["ActionRun.action", "TaskRun.task", "CoroutineRun.step"],
        "the body of a job, which drops it in a guard",
    ),
    (
        "lanes/src/bodies.rs",
        &["Next.Done.0"],
        "a result that the program returns",
    ),
    ("lanes/src/metrics.rs", &["Line.0"], "a line of numbers"),
    (
        "worker/src/reply.rs",
        &["Slot.value", "Result.="],
        "answers of the daemon",
    ),
];

/// The statements that take a value out under a lock, how many each file has, and why that drops no value of the program's.
const TAKEN_UNDER_LOCK: &[(&str, usize, &str)] = &[
    (
        "pool/src/broadcast.rs",
        1,
        "a place for a result, which is written once",
    ),
    ("pool/src/raw/service_thread.rs", 1, "a name, for tests"),
    (
        "pool/src/pool/adopted.rs",
        2,
        "a state; and entries, which move into a list that runs them",
    ),
    (
        "runtime/src/channel/operation.rs",
        1,
        "the guard itself: whoever holds the lock leaves it",
    ),
    (
        "runtime/src/select/channels.rs",
        1,
        "the guard itself: whoever holds the lock leaves it",
    ),
    (
        "lanes/src/guests.rs",
        1,
        "a handle of a job; no other has its id",
    ),
    (
        "lanes/src/shared.rs",
        1,
        "links of the job, of which there are none before",
    ),
    ("capi/src/last_error.rs", 2, "texts"),
    ("worker/src/held.rs", 1, "numbers"),
    ("worker/src/beat.rs", 2, "leases of the worker's own"),
    (
        "worker/src/live.rs",
        1,
        "handles of running jobs, which the worker's loop has, too",
    ),
    (
        "worker/src/lease.rs",
        1,
        "a place for a result, which is written once",
    ),
    ("process/src/child.rs", 1, "a state"),
];

/// The crate whose functions keep values of the program's in local vectors, while other code of the program's runs.
const LOCAL_VECTORS_IN: &[&str] = &["par"];

/// What makes a vector without a guard.
const VECTORS: &[&str] = &["Vec::new()", "Vec::from_iter(", ".into_iter().collect()"];

/// The vectors without a guard in these files, how many, and why they need none.
const BARE_VECTORS: &[(&str, usize, &str)] = &[
    (
        "par/src/ops/collect.rs",
        4,
        "a list of guards; and the last vector of each operation, which is filled by a guard of its own and returned",
    ),
    (
        "par/src/source/collections.rs",
        1,
        "moves the items of a collection of the standard library, which runs no code of the program's",
    ),
    (
        "par/src/source/items.rs",
        1,
        "moves the items of a collection of the standard library, which runs no code of the program's",
    ),
];

/// What begins the guard of a lock.
const LOCKS: &[&str] = &[
    ".lock()",
    " lock(",
    "(lock(",
    "*lock(",
    ".borrow_mut()",
    ".write()",
];

/// What gives a value back that was in a structure, or drops it.
const TAKES: &[&str] = &[
    ".take()",
    ".take(",
    ".pop_front()",
    ".pop_back()",
    ".pop()",
    ".remove(",
    ".insert(",
    ".replace(",
    ".clear()",
    ".truncate(",
    ".retain(",
    ".drain(",
];

/// What runs user code.
const RUNS_USER_CODE: &[&str] = &["drop_user(", "call_user(", "wake_user(", "drop("];

/// A place in a source file that keeps or drops a value of the program's.
type Found = Vec<String>;

// Fields.

/// Returns the fields of structs, enums and aliases whose type is a bare parameter, as `Struct.field`.
fn bare_fields(text: &str) -> Found {
    let code = code_that_ships(text);
    let mut found = Vec::new();
    for keyword in ["struct ", "enum ", "type "] {
        for (at, _) in code.match_indices(keyword) {
            let is_word = code[..at]
                .chars()
                .next_back()
                .is_none_or(|before| !is_name(before));
            if is_word && let Some(fields) = fields_of(&code[at + keyword.len()..], keyword) {
                found.extend(fields);
            }
        }
    }
    found
}

fn fields_of(code: &str, keyword: &str) -> Option<Found> {
    let name_ends = code.find(|c| !is_name(c))?;
    let (name, rest) = code.split_at(name_ends);
    let (generics, rest) = inside(rest.strip_prefix('<')?, '<', '>')?;
    let parameters: Vec<&str> = split(generics)
        .into_iter()
        .filter(|parameter| !parameter.starts_with(['\'']) && !parameter.starts_with("const "))
        .map(|parameter| &parameter[..parameter.find(|c| !is_name(c)).unwrap_or(parameter.len())])
        .collect();
    let rest = rest.trim_start();
    let fields: Vec<(String, &str)> = if keyword == "type " {
        let (aliased, _) = rest.strip_prefix('=')?.split_once(';')?;
        vec![("=".to_owned(), aliased.trim())]
    } else {
        let body = match rest.starts_with('(') {
            true => inside(&rest[1..], '(', ')')?.0,
            false => inside(&rest[rest.find('{')? + 1..], '{', '}')?.0,
        };
        match keyword {
            "enum " => split(body)
                .into_iter()
                .flat_map(fields_of_variant)
                .collect(),
            _ => named_fields("", body),
        }
    };
    let bare = fields
        .into_iter()
        .filter(|(_, kind)| holds_bare(kind, &parameters));
    Some(bare.map(|(field, _)| format!("{name}.{field}")).collect())
}

fn fields_of_variant(variant: &str) -> Vec<(String, &str)> {
    let variant = without_attributes(variant);
    let Some(at) = variant.find(['(', '{']) else {
        return Vec::new();
    };
    let close = if variant[at..].starts_with('(') {
        ')'
    } else {
        '}'
    };
    let open = if close == ')' { '(' } else { '{' };
    let fields = inside(&variant[at + 1..], open, close).map_or("", |(fields, _)| fields);
    named_fields(&format!("{}.", variant[..at].trim()), fields)
}

/// Splits fields into names and types; those of a tuple are named by their place.
fn named_fields<'a>(prefix: &str, body: &'a str) -> Vec<(String, &'a str)> {
    let fields = split(body).into_iter().map(without_attributes).enumerate();
    let named = fields.map(|(place, field)| {
        let field = match field.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => inside(&rest[1..], '(', ')')
                .map_or(rest, |(_, rest)| rest)
                .trim_start(),
            Some(rest) if rest.starts_with(' ') => rest.trim_start(),
            _ => field,
        };
        let name_ends = field.find(|c| !is_name(c)).unwrap_or(field.len());
        let rest = field[name_ends..].trim_start();
        match rest.strip_prefix(':').filter(|rest| !rest.starts_with(':')) {
            Some(kind) => (format!("{prefix}{}", &field[..name_ends]), kind.trim()),
            None => (format!("{prefix}{place}"), field),
        }
    });
    named.collect()
}

fn without_attributes(mut field: &str) -> &str {
    while let Some(rest) = field.strip_prefix("#[") {
        field = inside(rest, '[', ']').map_or("", |(_, rest)| rest.trim_start());
    }
    field
}

/// Returns `true` if a value of this type drops one of `parameters` without a guard.
fn holds_bare(kind: &str, parameters: &[&str]) -> bool {
    let kind = kind.trim();
    if let Some(rest) = kind.strip_prefix('(') {
        let parts = inside(rest, '(', ')').map_or(rest, |(parts, _)| parts);
        return split(parts)
            .into_iter()
            .any(|part| holds_bare(part, parameters));
    }
    if let Some(rest) = kind.strip_prefix('[') {
        let item = inside(rest, '[', ']').map_or(rest, |(item, _)| item);
        return holds_bare(item.split(';').next().unwrap_or(item), parameters);
    }
    let first_ends = kind.find(|c| !is_name(c)).unwrap_or(kind.len());
    if parameters.contains(&&kind[..first_ends]) {
        // The parameter, or a type that belongs to it.
        return true;
    }
    let path_ends = kind.find(|c| !is_name(c) && c != ':').unwrap_or(kind.len());
    let holder = kind[..path_ends].rsplit("::").next().unwrap_or(kind);
    let Some(arguments) = kind[path_ends..].strip_prefix('<') else {
        return false;
    };
    let arguments = inside(arguments, '<', '>').map_or(arguments, |(arguments, _)| arguments);
    HOLDERS.contains(&holder)
        && split(arguments)
            .into_iter()
            .any(|part| holds_bare(part, parameters))
}

/// Returns the number of vectors that no guard owns from their beginning.
fn bare_vectors(text: &str) -> usize {
    let code = code_that_ships(text).replace("UserVec::new(Vec::new())", "");
    VECTORS.iter().map(|made| code.matches(made).count()).sum()
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Splits at the closing bracket that belongs to one before `text`: what is inside, and what follows.
fn inside(text: &str, open: char, close: char) -> Option<(&str, &str)> {
    let mut depth = 1;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close && !(c == '>' && before == '-') {
            depth -= 1;
        }
        if depth == 0 {
            return Some((&text[..at], &text[at + c.len_utf8()..]));
        }
        before = c;
    }
    None
}

/// Splits at the commas that are in no bracket.
fn split(text: &str) -> Vec<&str> {
    let (mut depth, mut begins, mut parts, mut before) = (0, 0, Vec::new(), ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[begins..at]);
                begins = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    parts.push(&text[begins..]);
    let parts = parts.into_iter().map(str::trim);
    parts.filter(|part| !part.is_empty()).collect()
}

// Locks.

/// Returns the statements that drop what they take out of a locked structure, or run user code, while the lock is held.
fn dropped_under_lock(text: &str) -> Found {
    let code = code_that_ships(text);
    let mut found = Vec::new();
    let mut begins = 0;
    for (at, end) in code.match_indices([';', '{', '}']) {
        let statement: Vec<&str> = code[begins..at].split_whitespace().collect();
        // A chain that is broken over lines is one text.
        let statement = format!(" {}", statement.join(" ").replace(" .", "."));
        begins = at + 1;
        if drops_under_lock(&statement, end) {
            found.push(statement.trim().to_owned());
        }
    }
    found
}

fn drops_under_lock(statement: &str, end: &str) -> bool {
    let Some(locks) = LOCKS.iter().filter_map(|lock| statement.find(lock)).min() else {
        return false;
    };
    let (before, locked) = statement.split_at(locks);
    let runs = |text: &str| {
        RUNS_USER_CODE.iter().any(|call| {
            let calls = text.match_indices(call);
            calls
                .into_iter()
                .any(|(at, _)| !text[..at].ends_with(|c| is_name(c) || c == '.'))
        })
    };
    if runs(before) {
        return true;
    }
    let takes = TAKES.iter().any(|take| locked.contains(take));
    let assigned = locked.split_once(" = ").map(|(_, value)| value.trim());
    match end {
        ";" => {
            // With a name, the value outlives the statement, and so the guard.
            let is_named = ["let _ =", "return "]
                .iter()
                .all(|start| !statement.trim_start().starts_with(start))
                && statement.trim_start().starts_with("let ");
            let returns = statement.trim_start().starts_with("return ");
            let is_plain = |value: &str| {
                ["true", "false", "None"].contains(&value)
                    || value.starts_with(|c: char| c.is_ascii_digit())
            };
            let replaces = assigned.is_some_and(|value| !is_plain(value) || value == "None");
            (takes && !is_named && !returns) || (replaces && !before.contains(" = "))
        }
        // The scrutinee's guard lives as long as the block.
        "{" => {
            let head = statement.trim_start();
            let is_head = ["if let ", "while let ", "match ", "for ", "else if let "]
                .iter()
                .any(|start| head.starts_with(start));
            is_head && takes
        }
        _ => false,
    }
}

#[test]
fn values_of_the_program_are_owned_by_guards() {
    let mut wrong = Vec::new();
    let mut listed_and_found = 0;
    for (path, text) in shipped_sources(OWNING_CRATES) {
        let allowed = BARE_FIELDS.iter().filter(|(allowed, ..)| *allowed == path);
        let allowed: Vec<&str> = allowed
            .flat_map(|(_, fields, _)| fields.iter().copied())
            .collect();
        for field in bare_fields(&text) {
            match allowed.contains(&field.as_str()) {
                true => listed_and_found += 1,
                false => wrong.push(format!("crates/{path}: {field}")),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{}\nHold it in a UserOwned or UserVec of jobtree-base, or say in this test why no destructor can panic there beside \
         another panic.",
        wrong.join("\n")
    );
    let listed: usize = BARE_FIELDS.iter().map(|(_, fields, _)| fields.len()).sum();
    assert_eq!(
        listed_and_found, listed,
        "the list names a field that is gone"
    );
}

#[test]
fn vectors_of_loops_are_owned_by_guards() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, text) in shipped_sources(LOCAL_VECTORS_IN) {
        let allowed = BARE_VECTORS.iter().find(|(allowed, ..)| *allowed == path);
        let (allowed, vectors) = (
            allowed.map_or(0, |(_, count, _)| *count),
            bare_vectors(&text),
        );
        seen += vectors;
        if vectors != allowed {
            wrong.push(format!(
                "crates/{path}: {vectors} vectors by {VECTORS:?}, {allowed} allowed"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{}\nBegin with UserVec::new(Vec::new()) or OwnedItems, or say in this test why no panic meets the values.",
        wrong.join("\n")
    );
    let listed: usize = BARE_VECTORS.iter().map(|(_, count, _)| count).sum();
    assert_eq!(seen, listed, "the list names a file that is gone");
}

#[test]
fn no_value_of_the_program_is_dropped_under_a_lock() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (path, text) in shipped_sources(LOCKING_CRATES) {
        let allowed = TAKEN_UNDER_LOCK
            .iter()
            .find(|(allowed, ..)| *allowed == path);
        let found = dropped_under_lock(&text);
        seen += found.len();
        if found.len() != allowed.map_or(0, |(_, count, _)| *count) {
            wrong.push(format!("crates/{path}:\n    {}", found.join("\n    ")));
        }
    }
    assert!(
        wrong.is_empty(),
        "\n{}\nName what is taken out by a statement of its own, so that it is dropped after the lock; or say in this test why it \
         is no value of the program's.",
        wrong.join("\n")
    );
    let listed: usize = TAKEN_UNDER_LOCK.iter().map(|(_, count, _)| count).sum();
    assert_eq!(seen, listed, "the list names a statement that is gone");
}

/// What was wrong once, in few lines each.
#[test]
fn mistakes_of_these_kinds_are_seen() {
    // A broadcast channel kept what it had sent; dropped by two ends, or by an end that unwinds, two panics met.
    let broadcast = "
        struct Broadcast<T> {
            capacity: usize,
            state: Mutex<State<T>>,
        }
        struct State<T> {
            /// The newest values, oldest first.
            kept: VecDeque<Arc<T>>,
            first: u64,
        }";
    assert_eq!(bare_fields(broadcast), ["State.kept"]);
    // A watched value.
    let watch = "struct State<T> { value: Arc<T>, version: u64 }";
    assert_eq!(bare_fields(watch), ["State.value"]);
    // Behind an alias.
    let alias = "type Sent<T> = Arc<T>;";
    assert_eq!(bare_fields(alias), ["Sent.="]);
    let mended = "type Sent<T> = UserOwned<Arc<T>>; struct State<T> { kept: VecDeque<Sent<T>>, of: PhantomData<T> }";
    assert_eq!(bare_fields(mended), [""; 0]);
    // Closures, tuples, variants, and what belongs to a parameter.
    let more = "
        pub(crate) struct Run<'a, F: FnOnce() -> u8 + Send, const N: usize>
        where
            F: 'a,
        {
            #[allow(dead_code, reason = \"a sample\")]
            pub(super) body: Option<(u8, F)>,
            many: [F; N],
            borrowed: &'a F,
            address: *const F,
            function: fn(F) -> u8,
        }
        struct Pair<A, B = u8>(pub(crate) UserOwned<A>, Vec<B>);
        enum Refused<I: Iterator> { Full(I::Item), Closed { of: Box<I> }, Never }";
    let fields = [
        "Run.body",
        "Run.many",
        "Pair.1",
        "Refused.Full.0",
        "Refused.Closed.of",
    ];
    assert_eq!(bare_fields(more), fields);
}

#[test]
fn vectors_that_unwinding_would_drop_are_seen() {
    // The batches of a loop over an iterator, and its results.
    let batches = "
        let mut results = Vec::new();
        let mut batch = Vec::from_iter(iterator.by_ref().take(size));
        while !batch.is_empty() {
            let (next, result) = worker.join(|_| Vec::from_iter(iterator.by_ref().take(size)), |_| handle(batch));
            results.push(result);
            batch = next;
        }";
    assert_eq!(bare_vectors(batches), 3);
    // The first half, while the second one is moved.
    let halves = "let (mut left, mut right) = (Vec::new(), Vec::new());";
    assert_eq!(bare_vectors(halves), 2);
    // What a collection leaves behind that panics.
    assert_eq!(bare_vectors("self.collect().into_iter().collect()"), 1);
    let mended =
        "let mut first = UserVec::new(Vec::new()); OwnedItems::new(self.collect()).collect()";
    assert_eq!(bare_vectors(mended), 0);
}

#[test]
fn values_that_die_under_a_lock_are_seen() {
    let wrong = [
        "self.lock().kept.pop_front();",
        "drop_user(Place::Value, lock(&self.payload).take());",
        "let _ = self.state.lock().value.replace(new);",
        "*self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);",
        "self.state.borrow_mut().waker = Some(waker);",
        "self\n    .state\n    .lock()\n    .kept\n    .clear();",
        "if let Some(value) = self.lock().kept.pop_front() { handle(value) }",
        "while let Some(value) = lock(&self.queue).pop() { handle(value) }",
        "for value in self.lock().kept.drain(..) { handle(value) }",
    ];
    for statement in wrong {
        assert_eq!(dropped_under_lock(statement).len(), 1, "{statement}");
    }
    let right = [
        "let oldest = self.lock().kept.pop_front();\ndrop(oldest);",
        "let Some(value) = self.lock().kept.pop_front() else { return };",
        "self.lock().kept.push_back(value);",
        "self.lock().is_over = true;",
        "self.lock().tasks -= 1;",
        "return self.lock().kept.pop_front();",
        "fn take(&self) -> Option<T> { self.lock().take() }",
        "// self.lock().kept.clear();",
    ];
    for statement in right {
        assert_eq!(dropped_under_lock(statement), [""; 0], "{statement}");
    }
}
