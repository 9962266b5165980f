//! A simulator: the real core, one or several of it over one store, in virtual time, with everything that goes wrong.
//!
//! All of a run follows from its seed: the clocks of machines and of the database, their load, workers that crash, stall,
//! lie and ask again, at any scheduler and at several at once, answers that get lost or come twice, a store that fails before
//! and after its commit or stands still, schedulers that are killed and machines that sleep. Meanwhile jobs are submitted with keys, deadlines and dependencies, schedules fire,
//! and operators pause, cancel, redrive, hasten and revoke. After each step the invariants below are looked at. A run that
//! fails gives its seed and its last steps; the same seed fails again in the same way, and [`retell`] tells all of its
//! steps.
//!
//! It is a feature of this crate (`sim`), for tests of programs that use the queue: is *this* policy one under which nobody
//! is forgotten and nothing is granted twice, on machines as bad as *these*? Everything in a [`Scenario`] may be changed.
//!
//! ```
//! use std::time::Duration;
//!
//! use jobtree_scheduler::sim::{Scenario, run};
//!
//! // Two schedulers, three leases at once, and workers that crash all the time.
//! let mut scenario = Scenario::three();
//! (scenario.schedulers, scenario.jobs) = (2, 10);
//! scenario.trouble = Duration::from_secs(60);
//! scenario.policy.caps.leases = 3;
//! scenario.faults.worker_crashes = 100;
//! scenario.policy.validate().unwrap();
//!
//! for seed in 0..2 {
//!     let report = run(seed, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
//!     assert!(report.done > 0);
//! }
//! ```
//!
//! # Invariants
//!
//! - no acknowledged job is lost, and what was acknowledged as done stays done;
//! - a job has one live lease at most, and no two workers run it that both may believe they hold it, also after one was asked
//!   to give it back;
//! - nothing is granted above the capacity that is known then, counting what the *store* says is in use; where costs are
//!   learnt, half of what it says, since that is the least that is charged;
//! - concurrency keys hold, and unique ones; a key that comes again means the same job, and with another body is refused;
//! - a request for capacity has one live lease at most, however often it is repeated;
//! - lease ids are never used twice; a job is rescued at most as often as the rules say;
//! - a lease that runs out has held for its whole term, from the commit that granted or renewed it;
//! - what a scheduler counts as in use is what the store says is in use on its node, whichever node's callers changed that; and
//!   when everything is idle, nothing is in use on any node and no concurrency key is held;
//! - a job starts when its time has come and what it depends on is done; one that failed waits as its backoff says;
//! - a schedule fires once for each time of its calendar, whoever fires it; with "all" it leaves none out, without overlap
//!   only when the job before has ended, and not at all while it is paused; and it goes on;
//! - a scheduler that was told of a pause starts nothing of it;
//! - what others use counts as foreign, whichever pids workers register: a worker on the same machine that names the process
//!   of another program takes out the share of its lease and no more;
//! - each denial has a reason;
//! - a claim gets nothing only if no job that its worker could accept is reserved at its scheduler;
//! - no job is timed out before it has begun;
//! - each waiting job has a next moment at which each scheduler looks at it, or looks at the store;
//! - a served job that waits for nothing but units of unserved jobs, where a claim for it waits, has them within the bound
//!   that is computed for it (`UnservedBound`);
//! - schedulers do not read the store all at the same moments; nothing spins;
//! - when nothing goes wrong any more, everything that was acknowledged ends.
//!
//! How long anybody waits at most under a flood is [`flood`]'s question. That these are looked at is shown by
//! [`Mistake`]s, which can be switched on.
//!
//! # What escapes it
//!
//! Whatever is not in the core: threads and their wakers (the engine around it, the handles), files and SQL (the store
//! here is memory, which neither tears nor reorders a commit), pruned history, the files of real machines, HTTP, and the
//! code of handlers. A simulated worker renews, runs and answers as ours does, but it is not ours: ours is simulated in
//! [`system`]. And a run is one of many: what takes a rare order of events is found by many seeds, if at all.

mod actors;
mod calendar;
mod check;
mod claim_answers;
mod disk;
mod flood;
mod invariants;
mod machine;
mod merged_grant;
mod network;
mod node;
mod operators;
mod served_waits;
mod sim_event;
mod stale_rescue;
mod submitting;
pub mod system;
mod tables;
mod traffic;
mod worker;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use jobtree_queue::policy::Policy;

pub use crate::clock::advance;
pub use crate::core::Bug;
pub use flood::{Flood, flood};
pub use traffic::Traffic;
use world::{Telling, World};

/// Mistakes that are outside of the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mistake {
    /// One in the core.
    Core(Bug),
    /// The rescuer writes back what it read some time ago, without comparing.
    BlindRescue,
    /// Workers do not renew while they run something, and do not stop by their own clock.
    NoHeartbeats,
    /// Workers begin jobs although they have said that they will not.
    BeginsGivenBack,
    /// The store answers before what it wrote is on disk.
    AnswersEarly,
    /// Commands go by the clocks of the machines that send them, and not by the database's.
    MachineTime,
    /// The store does not look up who has a lease id when it grants one: two grants of one id at once are merged.
    MergedGrants,
    /// The store does not look up idempotency keys.
    ForgottenKeys,
    /// The store does not see idempotency keys that were written through another node a moment ago.
    KeysForgottenBetweenNodes,
    /// The store does not look up who holds a unique key.
    ForgottenUnique,
    /// The store does not count who holds a concurrency key.
    ForgottenHolders,
    /// The store does not look up who waits for a job that ends.
    ForgottenDependents,
    /// The store does not keep which job of a lease is in its worker's hand: the first with a limit counts as begun.
    ForgottenHand,
    /// The sampler counts the process that has a registered pid, whatever the worker says of it.
    ForgedPids,
}

/// What goes wrong how often, in 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// Commands that fail and have no effect.
    pub store_fails: u64,
    /// Commands that take effect and whose answer, and news, are lost.
    pub answer_lost_in_store: u64,
    /// Commands before which the way to the store stands still, for longer than a lease holds.
    pub store_stalls: u64,
    /// Requests and replies between workers and schedulers that are lost.
    pub message_lost: u64,
    /// Requests that come twice.
    pub message_doubled: u64,
    /// Workers' steps in which they crash.
    pub worker_crashes: u64,
    /// Workers' steps in which they stall beyond their lease, and go on.
    pub worker_stalls: u64,
    /// Workers' steps in which they say what is not so.
    pub worker_lies: u64,
    /// Hints among schedulers that get lost.
    pub hint_lost: u64,
    /// Schedulers are killed and started again, their clocks are set, machines sleep, and their load changes: each about
    /// so often in 1000 s.
    pub machine: u64,
}

impl Faults {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        store_fails: 0,
        answer_lost_in_store: 0,
        store_stalls: 0,
        message_lost: 0,
        message_doubled: 0,
        worker_crashes: 0,
        worker_stalls: 0,
        worker_lies: 0,
        hint_lost: 0,
        machine: 0,
    };
}

/// What is simulated.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Schedulers, each on a machine of its own.
    pub schedulers: usize,
    /// Workers of each.
    pub workers: usize,
    /// Jobs that are submitted.
    pub jobs: usize,
    /// For how long things go wrong; then everything must end.
    pub trouble: Duration,
    /// How long everything has to end after that. A clock that was wrong by two minutes may have let a job wait for a time
    /// that much later.
    pub calm: Duration,
    /// What is decided by. The addons are `a0`, `a1` and `a2`; `a3` asks for capacity alone, and `a4` is paused. With a
    /// policy that is slower than the one of [`Scenario::one`], `calm` has to be longer, too.
    pub policy: Policy,
    /// Workers of `a0` and `a2` claim; otherwise they poll and accept reservations, as those of `a1` do.
    pub claims: bool,
    /// Jobs come in bursts, and those of an addon are alike: workers get batches, and have nothing to do in between.
    pub bursts: bool,
    /// Workers call any scheduler, and now and then two at once; otherwise that of their own machine.
    pub anywhere: bool,
    /// Jobs of types that no worker serves, which are submitted besides: urgent, and many as large as the machine. Workers of
    /// `a0` to `a3` take none of them, and when all else has ended they are cancelled.
    pub unserved: usize,
    /// All workers claim, by the name of the one type that they serve, and a claim waits for longer than any bound on a
    /// wait. Operators do nothing.
    pub named_claims: bool,
    /// Every second worker of each addon polls and accepts reservations, the others claim.
    pub mixed: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// Mistakes that are switched on.
    pub mistakes: BTreeSet<Mistake>,
}

impl Scenario {
    /// One scheduler with a store of its own, that fails before commits.
    pub fn one() -> Self {
        Self {
            schedulers: 1,
            workers: 5,
            jobs: 40,
            trouble: Duration::from_secs(240),
            calm: Duration::from_secs(600),
            policy: node::policy(),
            claims: true,
            bursts: false,
            anywhere: true,
            mixed: false,
            unserved: 0,
            named_claims: false,
            faults: Faults {
                store_fails: 40,
                answer_lost_in_store: 0,
                store_stalls: 1,
                message_lost: 40,
                message_doubled: 30,
                worker_crashes: 20,
                worker_stalls: 15,
                worker_lies: 15,
                hint_lost: 0,
                machine: 8,
            },
            mistakes: BTreeSet::new(),
        }
    }

    /// One scheduler, with several workers of each addon that get batches.
    pub fn bursts() -> Self {
        Self {
            workers: 9,
            bursts: true,
            ..Self::one()
        }
    }

    /// Like [`Scenario::bursts`]; of each addon some workers claim, and others accept reservations.
    pub fn mixed() -> Self {
        Self {
            mixed: true,
            ..Self::bursts()
        }
    }

    /// One scheduler that learns what jobs cost, with jobs enough for that. Runs of `a0` use much less than they declare, those
    /// of `a1` much more.
    pub fn learning() -> Self {
        let mut learning = Self {
            jobs: 150,
            // There are more of them, and many are charged twice.
            calm: Duration::from_secs(1800),
            ..Self::one()
        };
        learning.policy.cost.learn = true;
        learning
    }

    /// Three schedulers that share a store, whose answers may get lost.
    pub fn three() -> Self {
        let one = Self::one();
        Self {
            schedulers: 3,
            workers: 3,
            jobs: 60,
            faults: Faults {
                store_fails: 30,
                answer_lost_in_store: 20,
                hint_lost: 500,
                ..one.faults
            },
            ..one
        }
    }

    /// So many schedulers that share a store and in which nothing goes wrong, each with the same share of the jobs: for counting
    /// what a scheduler more costs.
    pub fn many(schedulers: usize, jobs: usize) -> Self {
        Self {
            schedulers,
            workers: 3,
            jobs,
            anywhere: false,
            faults: Faults::NONE,
            ..Self::one()
        }
    }

    /// So many schedulers with few served jobs beside many unserved ones, and little else that goes wrong: for measuring how
    /// long the former wait for the latter. Reservations wait for so long to be accepted.
    pub fn unserved(schedulers: usize, take_up: Duration) -> Self {
        let mut unserved = Self {
            schedulers,
            workers: if schedulers == 1 { 2 } else { 1 },
            jobs: 16,
            unserved: 40,
            named_claims: true,
            anywhere: false,
            trouble: Duration::from_secs(100) + take_up * 5,
            calm: Duration::from_secs(300) + take_up * 10,
            faults: Faults {
                message_lost: 5,
                worker_crashes: 5,
                hint_lost: 500,
                machine: 2,
                ..Faults::NONE
            },
            ..Self::one()
        };
        unserved.policy.dispatch.take_up = take_up;
        unserved
    }

    /// More trouble in less time: what a mistake is found in.
    #[must_use]
    pub fn stormy(self) -> Self {
        Self {
            jobs: 30,
            trouble: Duration::from_secs(150),
            calm: Duration::from_secs(300),
            faults: Faults {
                worker_crashes: 40,
                worker_stalls: 50,
                machine: 60,
                ..self.faults
            },
            ..self
        }
    }

    /// With a mistake.
    #[must_use]
    pub fn with(mut self, mistake: Mistake) -> Self {
        self.mistakes.insert(mistake);
        self
    }

    fn has(&self, mistake: Mistake) -> bool {
        self.mistakes.contains(&mistake)
    }
}

/// What happened in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Steps.
    pub steps: u64,
    /// Jobs that ended well.
    pub done: u64,
    /// Jobs that ended otherwise.
    pub not_done: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Commands that failed before or after their commit.
    pub store_failures: u64,
    /// Times that a scheduler was killed and started again.
    pub restarts: u64,
    /// Calls that were refused, as they had to be.
    pub refusals: u64,
    /// Jobs that schedules submitted.
    pub firings: u64,
    /// Times that an addon was paused.
    pub pauses: u64,
    /// Ended jobs that were queued again.
    pub redrives: u64,
    /// Failed runs that were put off and tried again.
    pub retries: u64,
    /// Dispatches that were taken up under a lease that was there before.
    pub joined: u64,
    /// Times that more was granted than the capacity by what jobs declare, since they were measured to cost less.
    pub overbooked: u64,
    /// Jobs that a worker had not begun and gave back for an idle one.
    pub given_back: u64,
    /// Keys that came with another body, and were refused.
    pub conflicts: u64,
    /// Calls of workers at another scheduler than that of their machine.
    pub called_elsewhere: u64,
    /// Calls of workers at two schedulers at once.
    pub called_twice: u64,
    /// Submissions that were sent to two schedulers at once.
    pub submitted_twice: u64,
    /// The longest wait of a served job for units of unserved ones, as a part of its bound, and that bound.
    pub longest_served_wait: (Duration, Duration),
    /// Times that the way to the store stood still.
    pub stalls: u64,
    /// What the schedulers cost the database and each other.
    pub traffic: Traffic,
    /// Virtual time until all jobs have ended.
    pub time: Duration,
    /// A number that two runs have in common only if they went the same way.
    pub fingerprint: u64,
}

/// An invariant did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed: the same run fails again.
    pub seed: u64,
    /// What did not hold.
    pub what: String,
    /// The last steps before it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "the same seed fails again in the same way; `retell` gives all of its steps"
        )
    }
}

impl std::error::Error for Failure {}

/// Runs a scenario.
///
/// # Errors
/// If an invariant does not hold.
pub fn run(seed: u64, scenario: &Scenario) -> Result<Report, Box<Failure>> {
    let (first, _) = World::new(seed, scenario.clone(), Telling::Nothing).run();
    let Err(failure) = first else { return first };
    // It fails again in the same way, and this time its steps are told.
    match World::new(seed, scenario.clone(), Telling::Last).run() {
        (Err(again), trace) if again.what == failure.what => Err(Box::new(Failure {
            trace: trace.into(),
            ..*again
        })),
        (other, _) => Err(Box::new(Failure {
            what: format!(
                "{}; and then the same seed went another way: {:?}",
                failure.what,
                other.map_err(|other| other.what)
            ),
            ..*failure
        })),
    }
}

/// Runs a scenario once more and tells every step of it, whether it fails or not: for the seed that [`run`] failed with.
///
/// # Errors
/// The second value, if an invariant does not hold.
pub fn retell(seed: u64, scenario: &Scenario) -> (Vec<String>, Result<Report, Box<Failure>>) {
    let (result, trace) = World::new(seed, scenario.clone(), Telling::All).run();
    (trace.into(), result)
}
