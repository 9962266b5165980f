//! One program: what it works on, and how the users of each library write it.

use crate::harness::{Contender, Contest, Goal, Plan, Role, Row, timed, timed_with_preparation};
use crate::sides::Pools;
use crate::suites::shared::{end, our_runtime, tokio_runtime};

/// The name of the side that is not measured: the time of the sequential program, divided by the number of workers.
pub const LIMIT: &str = "sequential/n";

/// The size of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Some milliseconds of work for one core, or as many jobs as the program is about.
    Full,
    /// As small as it can be for a test of all sides.
    #[cfg_attr(not(test), expect(dead_code, reason = "for tests alone"))]
    Small,
}

impl Scale {
    /// Returns the value for this scale.
    pub fn pick<T>(self, full: T, small: T) -> T {
        match self {
            Self::Full => full,
            Self::Small => small,
        }
    }
}

/// The pools and runtimes that the programs run on, with the same number of workers each. Idle ones sleep.
pub struct Host {
    pools: Pools,
    jobs: jobtree::Runtime,
    tokio: tokio::runtime::Runtime,
}

impl Host {
    pub fn new(workers: usize) -> Self {
        Self {
            pools: Pools::new(workers),
            jobs: our_runtime(workers),
            tokio: tokio_runtime(workers),
        }
    }

    pub fn workers(&self) -> usize {
        self.pools.workers
    }

    /// Ends the threads of our runtime; the others end when the host is dropped.
    pub fn end(self) {
        end(&self.jobs);
    }
}

type Run<I> = Box<dyn Fn(&Host, &mut I) -> u64>;

/// A program and its sides.
///
/// Each side is called on a thread that is no worker, as `main` calls it, and goes from there to its pool or runtime. What it
/// returns is the program's answer, which is the same on every side.
pub struct Program<I> {
    unit: &'static str,
    units: usize,
    input: I,
    prepare: Option<fn(&mut I)>,
    sides: Vec<(&'static str, Role, Run<I>)>,
}

impl<I: Send + 'static> Program<I> {
    /// A program over `units` things that are called `unit`; its time is given for each of them.
    pub fn new(unit: &'static str, units: usize, input: I) -> Self {
        Self {
            unit,
            units,
            input,
            prepare: None,
            sides: Vec::new(),
        }
    }

    /// Restores the input before each run, off the clock: for programs that change it.
    pub fn prepare(mut self, prepare: fn(&mut I)) -> Self {
        self.prepare = Some(prepare);
        self
    }

    fn side(
        mut self,
        name: &'static str,
        role: Role,
        run: impl Fn(&Host, &mut I) -> u64 + 'static,
    ) -> Self {
        self.sides.push((name, role, Box::new(run)));
        self
    }

    /// The plain program, without any library.
    pub fn sequential(self, run: fn(&mut I) -> u64) -> Self {
        self.side("sequential", Role::Sequential, move |_, input| run(input))
    }

    /// With loops or forks of jobtree, on its pool.
    pub fn ours(self, run: fn(&mut I) -> u64) -> Self {
        let on_pool = move |host: &Host, input: &mut I| host.pools.ours.install(|| run(input));
        self.side("ours", Role::Ours, on_pool)
            .side("ours again", Role::Control, on_pool)
    }

    /// With jobs of jobtree, in its runtime.
    pub fn our_jobs(self, run: fn(&jobtree::Runtime, &mut I) -> u64) -> Self {
        let with_jobs = move |host: &Host, input: &mut I| run(&host.jobs, input);
        self.side("ours", Role::Ours, with_jobs)
            .side("ours again", Role::Control, with_jobs)
    }

    /// With rayon, on its pool.
    pub fn rayon(self, run: fn(&mut I) -> u64) -> Self {
        self.side("rayon", Role::Peer, move |host, input| {
            host.pools.rayon.install(|| run(input))
        })
    }

    /// With rayon, by a thread that goes to the pool itself, and may do so many times.
    pub fn rayon_pool(self, run: fn(&rayon::ThreadPool, &mut I) -> u64) -> Self {
        self.side("rayon", Role::Peer, move |host, input| {
            run(&host.pools.rayon, input)
        })
    }

    /// With chili, whose scope is handed down. The calling thread is one of its workers.
    pub fn chili(self, run: fn(&mut chili::Scope<'_>, &mut I) -> u64) -> Self {
        self.side("chili", Role::Peer, move |host, input| {
            run(&mut host.pools.chili.scope(), input)
        })
    }

    /// With tokio's runtime of several threads.
    pub fn tokio(self, run: fn(&tokio::runtime::Runtime, &mut I) -> u64) -> Self {
        self.side("tokio", Role::Peer, move |host, input| {
            run(&host.tokio, input)
        })
    }

    /// With threads of the standard library and crossbeam's channels.
    pub fn crossbeam(self, run: fn(&mut I) -> u64) -> Self {
        self.side("crossbeam", Role::Peer, move |_, input| run(input))
    }
}

/// A program, whatever it works on.
pub trait AnyProgram {
    /// Compares the sides.
    fn compare(self: Box<Self>, name: &str, goal: Option<Goal>, host: &Host, plan: &Plan) -> Row;

    /// Runs each side twice, and gives the answers of both runs with the side's name.
    #[cfg(test)]
    fn answers(self: Box<Self>, host: &Host) -> Vec<(&'static str, [u64; 2])>;
}

impl<I: Send + 'static> AnyProgram for Program<I> {
    fn compare(self: Box<Self>, name: &str, goal: Option<Goal>, host: &Host, plan: &Plan) -> Row {
        let Self {
            unit,
            units,
            input,
            prepare,
            sides,
        } = *self;
        let contenders = sides.into_iter().map(|(side, role, run)| {
            Contender::new(side, role, move |input: &mut I, iterations| match prepare {
                Some(prepare) => {
                    timed_with_preparation(input, iterations, prepare, |input| run(host, input))
                }
                None => timed(input, iterations, |input| run(host, input)),
            })
        });
        let contest = Contest {
            name: name.into(),
            workers: host.workers(),
            unit,
            units: units as f64,
            goal,
            input,
            digest: |_, answer| answer,
            contenders: contenders.collect(),
        };
        let row = contest.run(plan);
        row.with_share_of_sequential(LIMIT, host.workers())
    }

    #[cfg(test)]
    fn answers(mut self: Box<Self>, host: &Host) -> Vec<(&'static str, [u64; 2])> {
        let mut answers = Vec::new();
        for (side, _, run) in &self.sides {
            let both = [(); 2].map(|()| {
                if let Some(prepare) = self.prepare {
                    prepare(&mut self.input);
                }
                run(host, &mut self.input)
            });
            answers.push((*side, both));
        }
        answers
    }
}
