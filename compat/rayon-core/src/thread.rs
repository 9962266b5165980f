//! A worker thread that is yet to be started, and the two ways to start it.

use std::convert::Infallible;
use std::fmt;
use std::io;
use std::sync::mpsc::Sender;

use jobtree_pool::WorkerStart;

/// A thread that a spawn handler is to start; see
/// [`ThreadPoolBuilder::spawn_handler`](crate::ThreadPoolBuilder::spawn_handler).
pub struct ThreadBuilder {
    pub(crate) start: WorkerStart,
    pub(crate) is_named: bool,
    pub(crate) stack_size: Option<usize>,
    /// Dropped when the thread runs, or never will: what `build_global` waits for.
    pub(crate) not_running_yet: Sender<Infallible>,
}

impl ThreadBuilder {
    /// Its number in the pool, from 0.
    pub fn index(&self) -> usize {
        self.start.index()
    }

    /// The name that [`thread_name`](crate::ThreadPoolBuilder::thread_name) gave it.
    pub fn name(&self) -> Option<&str> {
        self.is_named.then(|| self.start.name())
    }

    /// The size that was given to [`stack_size`](crate::ThreadPoolBuilder::stack_size).
    ///
    /// The pool's closures run on stacks of that size which the pool makes itself; the thread's own
    /// stack is only where it switches between them.
    pub fn stack_size(&self) -> Option<usize> {
        self.stack_size
    }

    /// Is a worker of the pool. Returns when the pool has ended.
    pub fn run(self) {
        drop(self.not_running_yet);
        self.start.run();
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("index", &self.index())
            .field("name", &self.name())
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}

/// How threads are started. Public only because it stands in the bounds of public functions: it cannot
/// be named, and so not implemented, outside of this crate.
pub trait ThreadSpawn {
    /// Has `thread` run on a thread of its own.
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()>;
}

/// Starts threads by `std::thread`.
#[derive(Debug, Default)]
pub struct DefaultSpawn;

impl ThreadSpawn for DefaultSpawn {
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        let mut builder = std::thread::Builder::new().stack_size(thread.start.stack_size());
        if let Some(name) = thread.name() {
            builder = builder.name(name.to_owned());
        }
        builder.spawn(|| thread.run()).map(drop)
    }
}

/// Starts threads by a closure of the user's.
#[derive(Debug)]
pub struct CustomSpawn<F>(pub(crate) F);

impl<F> ThreadSpawn for CustomSpawn<F>
where
    F: FnMut(ThreadBuilder) -> io::Result<()>,
{
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        (self.0)(thread)
    }
}
