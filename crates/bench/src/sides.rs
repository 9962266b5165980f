//! The sides of a fork-join comparison: how each of them forks, and how one gets into its pool.
//!
//! A workload is written once, inside `on_every_side!`, and compiled for each side. So no side can get a better
//! version of it than the others.

use std::num::NonZero;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use jobtree_pool::{Pool, Worker, with_worker};

use crate::harness::{Contender, Role, timed, timed_with_preparation};

/// One pool of each kind, with the same number of threads that work.
pub struct Pools {
    pub workers: usize,
    pub ours: Pool,
    pub rayon: rayon::ThreadPool,
    pub chili: chili::ThreadPool,
}

impl Pools {
    /// Starts all of them; a pool that is not used sleeps.
    ///
    /// # Panics
    ///
    /// If the system does not give us the threads.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            ours: Pool::builder()
                .workers(workers)
                .build()
                .expect("our pool starts"),
            rayon: rayon::ThreadPoolBuilder::new()
                .num_threads(workers)
                .build()
                .expect("rayon's pool starts"),
            // chili counts the caller, which works beside its threads: of a `thread_count` of two it starts one.
            chili: chili::ThreadPool::with_config(chili::Config {
                thread_count: NonZero::new(workers),
                ..chili::Config::default()
            }),
        }
    }
}

/// A workload's entry on each side: from the side's context and the input to a result.
pub struct Entries<I> {
    pub sequential: fn((), &mut I) -> u64,
    pub ours: fn(&Worker, &mut I) -> u64,
    pub ours_by_thread: fn((), &mut I) -> u64,
    pub rayon: fn((), &mut I) -> u64,
    pub chili: fn(&mut chili::Scope<'_>, &mut I) -> u64,
}

impl<I: Clone + Send> Entries<I> {
    /// All sides of a comparison. Each takes its time inside its own pool, so that the way in is not measured.
    ///
    /// An input that an iteration uses up comes with a function that makes it anew.
    pub fn contenders<'p>(
        &self,
        pools: &'p Pools,
        prepare: Option<fn(&mut I)>,
    ) -> Vec<Contender<'p, I>>
    where
        I: 'p,
    {
        let Self {
            sequential,
            ours,
            ours_by_thread,
            rayon,
            chili,
        } = *self;
        let repeat = Repeat { prepare };
        let run_ours = move |input: &mut I, iterations| {
            let body =
                || with_worker(|worker| repeat.run(input, iterations, |input| ours(worker, input)));
            pools.ours.install(body)
        };
        let mut contenders = vec![
            Contender::new("sequential", Role::Sequential, move |input, iterations| {
                repeat.run(input, iterations, |input| sequential((), input))
            }),
            Contender::new("ours", Role::Ours, run_ours),
            Contender::new("ours again", Role::Control, run_ours),
            Contender::new("ours, tls", Role::Variant, move |input, iterations| {
                pools
                    .ours
                    .install(|| repeat.run(input, iterations, |input| ours_by_thread((), input)))
            }),
            Contender::new("rayon", Role::Peer, move |input, iterations| {
                pools
                    .rayon
                    .install(|| repeat.run(input, iterations, |input| rayon((), input)))
            }),
            Contender::new("chili", Role::Peer, move |input, iterations| {
                // The scope ends with the measurement: as long as it lives, chili's heartbeat disturbs the others.
                let mut scope = pools.chili.scope();
                repeat.run(input, iterations, |input| chili(&mut scope, input))
            }),
        ];
        if pools.workers > 1 {
            let run = move |input: &mut I, iterations| {
                repeat.run_copies(pools.workers, input, iterations, sequential)
            };
            contenders.push(Contender::new("limit", Role::Limit, run));
        }
        contenders
    }
}

/// How an iteration is repeated: with or without making the input anew.
struct Repeat<I> {
    prepare: Option<fn(&mut I)>,
}

impl<I> Clone for Repeat<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I> Copy for Repeat<I> {}

impl<I> Repeat<I> {
    fn run(
        self,
        input: &mut I,
        iterations: u64,
        body: impl FnMut(&mut I) -> u64,
    ) -> (Duration, u64) {
        match self.prepare {
            Some(prepare) => timed_with_preparation(input, iterations, prepare, body),
            None => timed(input, iterations, body),
        }
    }

    /// Runs a copy on each of `threads` threads at once, and divides the slowest one's time by their number: what
    /// sharing the work could give at best, with the caches and the memory as they are.
    fn run_copies(
        self,
        threads: usize,
        input: &mut I,
        iterations: u64,
        body: fn((), &mut I) -> u64,
    ) -> (Duration, u64)
    where
        I: Clone + Send,
    {
        let mut copies: Vec<I> = (1..threads).map(|_| input.clone()).collect();
        let all_there = Barrier::new(threads);
        let on_one = |input: &mut I| {
            all_there.wait();
            self.run(input, iterations, |input| body((), input))
        };
        let (slowest, result) = thread::scope(|scope| {
            let others: Vec<_> = copies
                .iter_mut()
                .map(|copy| scope.spawn(|| on_one(copy)))
                .collect();
            let (mut slowest, result) = on_one(input);
            for other in others {
                slowest = slowest.max(other.join().expect("a copy of the workload ends").0);
            }
            (slowest, result)
        });
        (slowest / threads as u32, result)
    }
}

/// Without any fork.
pub mod sequential {
    #[inline(always)]
    pub fn join<RA, RB>(
        context: (),
        a: impl FnOnce(()) -> RA,
        b: impl FnOnce(()) -> RB,
    ) -> (RA, RB) {
        (a(context), b(context))
    }

    #[inline(always)]
    pub fn join3<RA, RB, RC>(
        context: (),
        a: impl FnOnce(()) -> RA,
        b: impl FnOnce(()) -> RB,
        c: impl FnOnce(()) -> RC,
    ) -> (RA, RB, RC) {
        (a(context), b(context), c(context))
    }
}

/// Ours, with the worker handed down.
pub mod ours {
    use super::Worker;

    #[inline(always)]
    pub fn join<RA: Send, RB: Send>(
        worker: &Worker,
        a: impl FnOnce(&Worker) -> RA + Send,
        b: impl FnOnce(&Worker) -> RB + Send,
    ) -> (RA, RB) {
        worker.join(a, b)
    }

    #[inline(always)]
    pub fn join3<RA: Send, RB: Send, RC: Send>(
        worker: &Worker,
        a: impl FnOnce(&Worker) -> RA + Send,
        b: impl FnOnce(&Worker) -> RB + Send,
        c: impl FnOnce(&Worker) -> RC + Send,
    ) -> (RA, RB, RC) {
        let (a, (b, c)) = worker.join(a, |worker| worker.join(b, c));
        (a, b, c)
    }
}

/// Ours, with the worker looked up in a thread-local variable at each fork.
pub mod ours_by_thread {
    #[inline(always)]
    pub fn join<RA: Send, RB: Send>(
        (): (),
        a: impl FnOnce(()) -> RA + Send,
        b: impl FnOnce(()) -> RB + Send,
    ) -> (RA, RB) {
        jobtree_pool::join(|| a(()), || b(()))
    }

    #[inline(always)]
    pub fn join3<RA: Send, RB: Send, RC: Send>(
        (): (),
        a: impl FnOnce(()) -> RA + Send,
        b: impl FnOnce(()) -> RB + Send,
        c: impl FnOnce(()) -> RC + Send,
    ) -> (RA, RB, RC) {
        jobtree_pool::join!(|| a(()), || b(()), || c(()))
    }
}

/// rayon, which looks the worker up at each fork and has no join of three.
pub mod by_rayon {
    #[inline(always)]
    pub fn join<RA: Send, RB: Send>(
        (): (),
        a: impl FnOnce(()) -> RA + Send,
        b: impl FnOnce(()) -> RB + Send,
    ) -> (RA, RB) {
        rayon::join(|| a(()), || b(()))
    }

    #[inline(always)]
    pub fn join3<RA: Send, RB: Send, RC: Send>(
        (): (),
        a: impl FnOnce(()) -> RA + Send,
        b: impl FnOnce(()) -> RB + Send,
        c: impl FnOnce(()) -> RC + Send,
    ) -> (RA, RB, RC) {
        let (a, (b, c)) = rayon::join(|| a(()), || rayon::join(|| b(()), || c(())));
        (a, b, c)
    }
}

/// chili, whose scope is handed down; it has no join of three.
pub mod by_chili {
    use chili::Scope;

    #[inline(always)]
    pub fn join<RA: Send, RB: Send>(
        scope: &mut Scope<'_>,
        a: impl FnOnce(&mut Scope<'_>) -> RA + Send,
        b: impl FnOnce(&mut Scope<'_>) -> RB + Send,
    ) -> (RA, RB) {
        scope.join(a, b)
    }

    #[inline(always)]
    pub fn join3<RA: Send, RB: Send, RC: Send>(
        scope: &mut Scope<'_>,
        a: impl FnOnce(&mut Scope<'_>) -> RA + Send,
        b: impl FnOnce(&mut Scope<'_>) -> RB + Send,
        c: impl FnOnce(&mut Scope<'_>) -> RC + Send,
    ) -> (RA, RB, RC) {
        let (a, (b, c)) = scope.join(a, |scope| scope.join(b, c));
        (a, b, c)
    }
}

/// Compiles functions once for each side, and collects the entries.
///
/// Each function's first parameter is the side's context; `join` and `join3` take it, and hand it to their closures.
/// The one called `run` takes the context and the input, and is the entry: `entries()` gives it for all sides.
macro_rules! on_every_side {
    (
        input $input:ty;
        $(fn $name:ident($context:ident $(, $argument:ident: $kind:ty)* $(,)?) $(-> $result:ty)? $body:block)*
    ) => {
        on_every_side!(@side sequential, sequential, (), $($name $context [$($argument: $kind),*] [$(-> $result)?] $body)*);
        on_every_side!(@side ours, ours, &jobtree_pool::Worker, $($name $context [$($argument: $kind),*] [$(-> $result)?] $body)*);
        on_every_side!(@side ours_by_thread, ours_by_thread, (), $($name $context [$($argument: $kind),*] [$(-> $result)?] $body)*);
        on_every_side!(@side by_rayon, by_rayon, (), $($name $context [$($argument: $kind),*] [$(-> $result)?] $body)*);
        on_every_side!(@side by_chili, by_chili, &mut chili::Scope<'_>, $($name $context [$($argument: $kind),*] [$(-> $result)?] $body)*);

        /// The workload's entry on each side.
        pub fn entries() -> $crate::sides::Entries<$input> {
            $crate::sides::Entries {
                sequential: sequential::run,
                ours: ours::run,
                ours_by_thread: ours_by_thread::run,
                rayon: by_rayon::run,
                chili: by_chili::run,
            }
        }
    };
    (
        @side $module:ident, $side:ident, $type:ty,
        $($name:ident $context:ident [$($argument:ident: $kind:ty),*] [$($result:tt)*] $body:block)*
    ) => {
        mod $module {
            #[allow(unused_imports, reason = "not every workload uses all of its parent's helpers or both joins")]
            use super::*;
            #[allow(unused_imports, reason = "not every workload uses both")]
            use $crate::sides::$side::{join, join3};

            $(
                // A call stays a call on every side: else whether the compiler unrolls a recursion into itself, and how
                // often, decides more than the forks do, and differs from side to side for no reason one could name.
                #[inline(never)]
                pub fn $name($context: $type, $($argument: $kind),*) $($result)* $body
            )*
        }
    };
}
pub(crate) use on_every_side;
