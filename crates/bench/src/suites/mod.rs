//! The suites, one file each. A new one needs a module here and a line in [`ALL`].

mod forkjoin;
mod http;
mod jobs;
mod lanes;
mod loops;
mod primitives;
mod programs;
mod queue;
mod shared;
mod tasks;

pub use self::queue::Folder;
pub use self::tasks::SERVICES;
use crate::alone::Probe;
use crate::harness::{Plan, Report};

/// What the program can be told to do alone.
pub const PROBES: &[&[Probe]] = &[
    jobs::PROBES,
    tasks::PROBES,
    tasks::TICK_PROBES,
    programs::PROBES,
    lanes::PROBES,
    queue::PROBES,
    queue::DISPATCH_PROBES,
];

/// What the command line asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many rounds, and how long each.
    pub plan: Plan,
    /// Whether a look in a hurry is wanted: smaller inputs where those take most of the time.
    pub quick: bool,
    /// The only number of workers to run on, if one was given.
    pub workers: Option<usize>,
    /// Only rows whose name contains this.
    pub filter: Option<String>,
    /// `true` if the durable queue is on PostgreSQL instead of SQLite.
    pub on_postgres: bool,
}

impl Options {
    /// Whether a row of this name was asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.filter
            .as_deref()
            .is_none_or(|part| name.contains(part))
    }

    /// The numbers of workers to compare on.
    pub fn worker_counts(&self) -> Vec<usize> {
        self.workers
            .map_or_else(|| vec![1, 2], |workers| vec![workers])
    }
}

/// One suite.
pub struct Suite {
    /// What one types.
    pub name: &'static str,
    /// What `--help` says of it.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&Options) -> Report,
}

/// All there are.
pub const ALL: &[Suite] = &[
    Suite {
        name: "forkjoin",
        about: "what a fork costs, against rayon, chili and no fork at all",
        run: forkjoin::run,
    },
    Suite {
        name: "http",
        about: "the daemon on SQLite or PostgreSQL: submit, claim and complete over HTTP, submit to start, many who wait",
        run: http::run,
    },
    Suite {
        name: "jobs",
        about: "structured jobs, against tokio's: create, join, cancel, wake, bytes, timers",
        run: jobs::run,
    },
    Suite {
        name: "lanes",
        about: "the job manager, against tokio's spawn: scheduling, many queued, frames",
        run: lanes::run,
    },
    Suite {
        name: "loops",
        about: "loops, searches and sorts, against rayon's",
        run: loops::run,
    },
    Suite {
        name: "primitives",
        about: "the pool's parts one by one: deque, stacks, waking, sleeping, idling",
        run: primitives::run,
    },
    Suite {
        name: "programs",
        about: "small whole programs as users write them, against rayon, chili, tokio, crossbeam and plain code",
        run: programs::run,
    },
    Suite {
        name: "queue",
        about: "the durable queue on SQLite, against SQLite itself: submit, claim, complete, growth",
        run: queue::run,
    },
    Suite {
        name: "tasks",
        about: "tasks, futures and channels, against tokio's, may's and rayon's: spawn, park, yield, wake, memory",
        run: tasks::run,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    fn options(filter: Option<&str>, workers: Option<usize>) -> Options {
        Options {
            plan: Plan::quick(),
            quick: true,
            workers,
            filter: filter.map(String::from),
            on_postgres: false,
        }
    }

    #[test]
    fn a_filter_picks_rows_by_a_part_of_their_name() {
        assert!(options(None, None).wants("fib(32)"));
        assert!(options(Some("fib"), None).wants("fib(32)"));
        assert!(!options(Some("tree"), None).wants("fib(32)"));
    }

    #[test]
    fn one_and_two_workers_unless_told_otherwise() {
        assert_eq!(options(None, None).worker_counts(), [1, 2]);
        assert_eq!(options(None, Some(4)).worker_counts(), [4]);
    }

    #[test]
    fn no_two_suites_have_one_name() {
        for (index, suite) in ALL.iter().enumerate() {
            assert!(
                ALL[..index].iter().all(|other| other.name != suite.name),
                "{} is there twice",
                suite.name
            );
        }
    }
}
