//! How a pool is described.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::error::ThreadPoolBuildError;
use crate::pool::ThreadPool;
use crate::thread::{CustomSpawn, DefaultSpawn, ThreadBuilder, ThreadSpawn};
use crate::{global, start};

pub(crate) type NameThread = dyn FnMut(usize) -> String;
pub(crate) type IndexHandler = dyn Fn(usize) + Send + Sync;
pub(crate) type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;

/// Describes a [`ThreadPool`], or the global pool.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new()
///     .num_threads(2)
///     .thread_name(|index| format!("render-{index}"))
///     .build()?;
/// let name = pool.install(|| std::thread::current().name().map(str::to_owned));
/// assert!(name.unwrap().starts_with("render-"));
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPoolBuilder<S = DefaultSpawn> {
    pub(crate) num_threads: usize,
    pub(crate) use_current_thread: bool,
    pub(crate) panic_handler: Option<Box<PanicHandler>>,
    pub(crate) thread_name: Option<Box<NameThread>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) start_handler: Option<Box<IndexHandler>>,
    pub(crate) exit_handler: Option<Box<IndexHandler>>,
    pub(crate) spawn_handler: S,
}

// Not derived: that would leave `S` open in `ThreadPoolBuilder::default()`.
impl Default for ThreadPoolBuilder {
    fn default() -> ThreadPoolBuilder {
        ThreadPoolBuilder {
            num_threads: 0,
            use_current_thread: false,
            panic_handler: None,
            thread_name: None,
            stack_size: None,
            start_handler: None,
            exit_handler: None,
            spawn_handler: DefaultSpawn,
        }
    }
}

impl ThreadPoolBuilder {
    /// A builder with the defaults.
    pub fn new() -> ThreadPoolBuilder {
        ThreadPoolBuilder::default()
    }

    /// Makes a pool of scoped threads, lends it to `with_pool`, and ends it.
    ///
    /// Each thread calls `wrapper`, which prepares it and then calls [`ThreadBuilder::run`].
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// let prepared = AtomicUsize::new(0);
    /// rayon_core::ThreadPoolBuilder::new().num_threads(2).build_scoped(
    ///     |thread| {
    ///         prepared.fetch_add(1, Ordering::Relaxed);
    ///         thread.run();
    ///     },
    ///     |pool| assert_eq!(pool.install(|| 1 + 1), 2),
    /// )?;
    /// assert_eq!(prepared.into_inner(), 2);
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    pub fn build_scoped<W, F, R>(self, wrapper: W, with_pool: F) -> Result<R, ThreadPoolBuildError>
    where
        W: Fn(ThreadBuilder) + Sync,
        F: FnOnce(&ThreadPool) -> R,
    {
        let wrapper = &wrapper;
        std::thread::scope(|scope| {
            let spawn_scoped = |thread: ThreadBuilder| {
                let mut builder = std::thread::Builder::new().stack_size(thread.start.stack_size());
                if let Some(name) = thread.name() {
                    builder = builder.name(name.to_owned());
                }
                builder.spawn_scoped(scope, || wrapper(thread)).map(drop)
            };
            // Dropped at the end of this closure, or the scope would wait for its threads for ever.
            let pool = self.spawn_handler(spawn_scoped).build()?;
            Ok(with_pool(&pool))
        })
    }
}

impl<S> ThreadPoolBuilder<S>
where
    S: ThreadSpawn,
{
    /// Makes the pool.
    pub fn build(self) -> Result<ThreadPool, ThreadPoolBuildError> {
        let started = start::start(self, |description| match start::WAITS_ARE_NESTED {
            true => description.nested_waits().build(),
            false => description.build(),
        })?;
        Ok(ThreadPool::new_from(Arc::new(started.made)))
    }

    /// Makes the global pool, and returns when its threads run.
    ///
    /// There is one per program, made with the defaults on first use: this is for who wants other
    /// settings, and fails if the pool exists already. jobtree's global pool is the same one.
    ///
    /// ```
    /// use rayon_core::ThreadPoolBuilder;
    ///
    /// ThreadPoolBuilder::new().num_threads(2).build_global()?;
    /// assert_eq!(rayon_core::current_num_threads(), 2);
    /// assert!(ThreadPoolBuilder::new().build_global().is_err());
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        global::make(self)
    }
}

impl<S> ThreadPoolBuilder<S> {
    /// Starts the threads in another way than `std::thread`: `spawn` must have a new thread call
    /// [`ThreadBuilder::run`].
    ///
    /// Threads end after the pool was dropped. Whoever must know when has to join them.
    ///
    /// ```
    /// let mut threads = Vec::new();
    /// let pool = rayon_core::ThreadPoolBuilder::new()
    ///     .num_threads(2)
    ///     .spawn_handler(|thread| {
    ///         threads.push(std::thread::spawn(|| thread.run()));
    ///         Ok(())
    ///     })
    ///     .build()?;
    /// assert_eq!(pool.install(|| 1 + 1), 2);
    /// drop(pool);
    /// for thread in threads {
    ///     thread.join().unwrap();
    /// }
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    pub fn spawn_handler<F>(self, spawn: F) -> ThreadPoolBuilder<CustomSpawn<F>>
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        ThreadPoolBuilder {
            num_threads: self.num_threads,
            use_current_thread: self.use_current_thread,
            panic_handler: self.panic_handler,
            thread_name: self.thread_name,
            stack_size: self.stack_size,
            start_handler: self.start_handler,
            exit_handler: self.exit_handler,
            spawn_handler: CustomSpawn(spawn),
        }
    }

    /// How many threads, at most [`max_num_threads`](crate::max_num_threads). With 0, or if this is
    /// not called: the variable `RAYON_NUM_THREADS` (or the older `RAYON_RS_NUM_CPUS`), else as many
    /// as the CPUs that this process may use.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// Names the threads, by their number. By default they have none.
    pub fn thread_name<F>(mut self, closure: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.thread_name = Some(Box::new(closure));
        self
    }

    /// Makes the building thread number 0 of the pool. The handlers are not called on it.
    ///
    /// It takes part only while it waits for the pool or yields to it. When it drops the pool, it
    /// belongs to none again.
    ///
    /// ```
    /// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(2).use_current_thread().build()?;
    /// assert_eq!(rayon_core::current_thread_index(), Some(0));
    /// drop(pool);
    /// assert_eq!(rayon_core::current_thread_index(), None);
    /// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
    /// ```
    pub fn use_current_thread(mut self) -> Self {
        self.use_current_thread = true;
        self
    }

    /// Called with the panic of a closure that nobody waits for. Without it such a panic ends the
    /// process; so does a panic of the handler itself.
    pub fn panic_handler<H>(mut self, panic_handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.panic_handler = Some(Box::new(panic_handler));
        self
    }

    /// The size of the stacks that closures run on, in bytes. Only touched pages cost memory. By
    /// default `RUST_MIN_STACK`, else 2 MiB.
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// Does nothing: a hint that upstream has deprecated, and may ignore too.
    #[deprecated(note = "use `scope_fifo` and `spawn_fifo`")]
    pub fn breadth_first(self) -> Self {
        self
    }

    /// Called on each thread before its first work, with the thread's number. A panic goes to the
    /// panic handler; then the thread goes on.
    pub fn start_handler<H>(mut self, start_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.start_handler = Some(Box::new(start_handler));
        self
    }

    /// Called on each thread after its last work, with the thread's number. A panic goes to the panic
    /// handler; then the thread ends.
    pub fn exit_handler<H>(mut self, exit_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.exit_handler = Some(Box::new(exit_handler));
        self
    }
}

impl<S> fmt::Debug for ThreadPoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn shown<T: ?Sized>(handler: &Option<Box<T>>) -> Option<fmt::Arguments<'static>> {
            handler.as_ref().map(|_| format_args!("<closure>"))
        }
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("use_current_thread", &self.use_current_thread)
            .field("thread_name", &shown(&self.thread_name))
            .field("panic_handler", &shown(&self.panic_handler))
            .field("stack_size", &self.stack_size)
            .field("start_handler", &shown(&self.start_handler))
            .field("exit_handler", &shown(&self.exit_handler))
            .finish_non_exhaustive()
    }
}
