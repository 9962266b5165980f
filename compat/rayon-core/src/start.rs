//! From rayon's description of a pool to jobtree's: how many threads, how large their stacks, and how
//! they are started.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::mem;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver};

use jobtree_pool::{BuildError, Builder, Pool, WorkerStart};

use crate::builder::ThreadPoolBuilder;
use crate::error::ThreadPoolBuildError;
use crate::thread::{ThreadBuilder, ThreadSpawn};

/// As many as jobtree allows.
pub(crate) const MOST_THREADS: usize = 4096;

/// Whether a thread that waits runs other work on top of the waiting frame, as upstream's do.
pub(crate) const WAITS_ARE_NESTED: bool = cfg!(not(feature = "parked_waits"));

/// A thread's stack is never smaller than this in practice, whatever was asked for: the system rounds
/// up. Here too, generously enough for a panic's message.
const LEAST_STACK: usize = 64 << 10;

/// What `std` gives a thread for which nothing else was asked.
const DEFAULT_STACK: usize = 2 << 20;

/// As much as jobtree allows. People set RUST_MIN_STACK to anything "large enough".
const MOST_STACK_FROM_VARIABLE: usize = 1 << 30;

/// Threads that have been told to start.
#[must_use]
pub(crate) struct Started<T> {
    pub(crate) made: T,
    running: Receiver<Infallible>,
}

impl<T> Started<T> {
    /// Returns when all of them run.
    pub(crate) fn wait_until_running(self) -> T {
        // Nothing is ever sent; this ends when the last thread has dropped its sender.
        let _ = self.running.recv();
        self.made
    }
}

/// Translates `description` and has `finish` make the pool.
pub(crate) fn start<S, T>(
    mut description: ThreadPoolBuilder<S>,
    finish: impl FnOnce(Builder) -> Result<T, BuildError>,
) -> Result<Started<T>, ThreadPoolBuildError>
where
    S: ThreadSpawn,
{
    let lookup = |name: &str| std::env::var_os(name);
    let mut builder = Pool::builder()
        .workers(threads(description.num_threads, lookup))
        .stack_size(stack_size(description.stack_size, lookup));
    if let Some(handler) = description.start_handler.take() {
        builder = builder.on_start(handler);
    }
    if let Some(handler) = description.exit_handler.take() {
        builder = builder.on_exit(handler);
    }
    builder = match description.panic_handler.take() {
        Some(handler) => builder.on_panic(handler),
        // As rayon: a panic that no code waits for ends the process.
        None => builder.on_panic(|_| {
            eprintln!("Rayon: detected unexpected panic; aborting");
            std::process::abort();
        }),
    };
    let is_named = description.thread_name.is_some();
    if let Some(mut name) = description.thread_name.take() {
        if description.use_current_thread {
            // Its name cannot be changed any more, but a closure that counts must see each number.
            name(0);
        }
        let name = RefCell::new(name);
        builder = builder.worker_name(move |index| (name.borrow_mut())(index));
    }
    if description.use_current_thread {
        builder = builder.use_current_thread();
    }

    let (not_running_yet, running) = mpsc::channel();
    let stack_size = description.stack_size;
    let spawn_handler = &mut description.spawn_handler;
    let mut spawn = |start| {
        spawn_handler.spawn(ThreadBuilder {
            start,
            is_named,
            stack_size,
            not_running_yet: not_running_yet.clone(),
        })
    };
    let made =
        with_spawn_handler(builder, &mut spawn, finish).map_err(ThreadPoolBuildError::from_pool)?;
    Ok(Started { made, running })
}

type SpawnWorker<'a> = dyn FnMut(WorkerStart) -> io::Result<()> + 'a;

/// Has `builder` start its threads by `spawn`, which need not be `'static`: it is used only while
/// `finish` runs.
fn with_spawn_handler<T>(
    builder: Builder,
    spawn: &mut SpawnWorker<'_>,
    finish: impl FnOnce(Builder) -> Result<T, BuildError>,
) -> Result<T, BuildError> {
    /// Where the handler is found; empty while it is being called, and after `finish`.
    type Slot = Cell<Option<NonNull<SpawnWorker<'static>>>>;

    struct EmptyAtEnd(Rc<Slot>);
    impl Drop for EmptyAtEnd {
        fn drop(&mut self) {
            self.0.set(None);
        }
    }

    // SAFETY: only the lifetime changes, and no longer one is claimed in effect: the pointer is
    // followed only while it is in the slot, and it leaves the slot before this function returns or
    // unwinds.
    let handler = unsafe {
        mem::transmute::<NonNull<SpawnWorker<'_>>, NonNull<SpawnWorker<'static>>>(NonNull::from(
            spawn,
        ))
    };
    let emptied = EmptyAtEnd(Rc::new(Slot::new(Some(handler))));
    let slot = emptied.0.clone();
    finish(builder.spawn_with(move |start| {
        let Some(mut handler) = slot.take() else {
            return Err(io::Error::other(
                "a spawn handler cannot be called by itself",
            ));
        };
        // SAFETY: alive, since it was in the slot. On the thread that lent it, since an `Rc` does not
        // leave its thread. The only reference, since it is out of the slot during the call.
        let result = unsafe { handler.as_mut()(start) };
        slot.set(Some(handler));
        result
    }))
}

/// The number of threads by rayon's rules; variables come from `lookup`.
fn threads(requested: usize, lookup: impl Fn(&str) -> Option<OsString>) -> usize {
    let number = |name| -> Option<usize> { lookup(name)?.to_str()?.parse().ok() };
    let by_variable = || match number("RAYON_NUM_THREADS") {
        // An explicit 0 is a wish for the default, whatever the older variable says.
        Some(0) => None,
        Some(threads) => Some(threads),
        None => number("RAYON_RS_NUM_CPUS").filter(|threads| *threads > 0),
    };
    let default = || std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    let threads = match requested {
        0 => by_variable().unwrap_or_else(default),
        threads => threads,
    };
    threads.min(MOST_THREADS)
}

/// The size of the stacks on which closures run: as asked for, else as large as `std` would make a
/// thread's.
fn stack_size(requested: Option<usize>, lookup: impl Fn(&str) -> Option<OsString>) -> usize {
    let by_variable = || -> Option<usize> {
        let bytes: usize = lookup("RUST_MIN_STACK")?.to_str()?.parse().ok()?;
        Some(bytes.min(MOST_STACK_FROM_VARIABLE))
    };
    requested
        .or_else(by_variable)
        .unwrap_or(DEFAULT_STACK)
        .max(LEAST_STACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(set: &[(&str, &str)]) -> impl Fn(&str) -> Option<OsString> {
        move |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.into())
        }
    }

    #[test]
    fn variables_count_only_where_no_number_was_asked_for() {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let new = "RAYON_NUM_THREADS";
        let old = "RAYON_RS_NUM_CPUS";
        assert_eq!(threads(0, variables(&[])), cpus);
        assert_eq!(threads(3, variables(&[(new, "7")])), 3);
        assert_eq!(threads(0, variables(&[(new, "7"), (old, "5")])), 7);
        assert_eq!(threads(0, variables(&[(new, "0"), (old, "5")])), cpus);
        assert_eq!(threads(0, variables(&[(new, "many"), (old, "5")])), 5);
        assert_eq!(threads(0, variables(&[(old, "0")])), cpus);
        assert_eq!(threads(0, variables(&[(new, " 7")])), cpus);
        assert_eq!(threads(1_000_000, variables(&[])), MOST_THREADS);
    }

    #[test]
    fn the_limits_are_those_of_the_pool() {
        let too_many = Pool::builder().workers(MOST_THREADS + 1).build();
        assert!(matches!(too_many, Err(BuildError::TooManyWorkers { .. })));
        // Of one that is refused for another reason, after its number of workers was looked at.
        let just_right = Pool::builder().workers(MOST_THREADS).stack_size(0).build();
        assert!(matches!(just_right, Err(BuildError::Stack(_))));

        let too_large = Pool::builder()
            .workers(1)
            .stack_size(MOST_STACK_FROM_VARIABLE + 1)
            .build();
        assert!(matches!(too_large, Err(BuildError::Stack(_))));
        let just_right = Pool::builder()
            .workers(1)
            .stack_size(MOST_STACK_FROM_VARIABLE)
            .build();
        just_right.expect("a stack of the largest size");
    }

    #[test]
    fn stacks_are_as_large_as_std_would_make_them() {
        assert_eq!(stack_size(None, variables(&[])), DEFAULT_STACK);
        assert_eq!(
            stack_size(None, variables(&[("RUST_MIN_STACK", "8388608")])),
            8 << 20
        );
        assert_eq!(
            stack_size(
                None,
                variables(&[("RUST_MIN_STACK", "18446744073709551615")])
            ),
            1 << 30
        );
        assert_eq!(
            stack_size(None, variables(&[("RUST_MIN_STACK", "large")])),
            DEFAULT_STACK
        );
        assert_eq!(
            stack_size(Some(4 << 20), variables(&[("RUST_MIN_STACK", "1")])),
            4 << 20
        );
        assert_eq!(stack_size(Some(1), variables(&[])), LEAST_STACK);
        assert_eq!(stack_size(Some(usize::MAX), variables(&[])), usize::MAX);
    }
}
