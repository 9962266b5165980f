//! Simulations: the invariants hold for many seeds, and each planted mistake is found.
//!
//! Too slow without optimisation: `scripts/test simulation` runs them in release. `JOBTREE_SIM_SEEDS` says how many seeds
//! are run (2000 if it is not set, three fifths of them with one scheduler; those of special scenarios grow with it),
//! `JOBTREE_SIM_FIRST_SEED` where they begin (at 0). A seed that fails says how it is run again, alone; with
//! `JOBTREE_SIM_TRACE=1` each of its steps is told. Each test says how long it took.

#![cfg(not(debug_assertions))]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::io::Write;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jobtree_queue::hold::UnservedBound;
use jobtree_queue::policy::Policy;
use jobtree_scheduler::sim::{Bug, Mistake, Report, Scenario, flood, retell, run};
use watchdog::Watchdog;

/// Seeds between two signs of life to the watchdog.
const LOT: u64 = 500;

/// A shorter run, so that many fit into a test.
fn short(scenario: Scenario) -> Scenario {
    Scenario {
        jobs: scenario.jobs / 2,
        trouble: scenario.trouble / 2,
        ..scenario
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a number, not {text:?}"))
    })
}

/// A test's part of all seeds, in fifths; with a single one each test runs it.
fn seeds(fifths: u64) -> Range<u64> {
    let first = number("JOBTREE_SIM_FIRST_SEED", 0);
    let all = number("JOBTREE_SIM_SEEDS", 2000);
    first..first + (all * fifths / 5).max(1)
}

/// So many seeds of a special scenario, if there are 2000 of the ordinary ones.
fn some_seeds(of_2000: u64) -> Range<u64> {
    let first = number("JOBTREE_SIM_FIRST_SEED", 0);
    let all = number("JOBTREE_SIM_SEEDS", 2000);
    first..first + (all * of_2000 / 2000).max(1)
}

/// Tells how long a test took, when it ends.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }
}

impl Drop for Clock {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("a test");
        let took = self.0.elapsed().as_secs_f64();
        // Not by a macro: the harness would keep it for a test that fails.
        let _ = writeln!(std::io::stderr(), "{took:6.1} s {name}");
    }
}

/// Runs a lot of seeds on all processors.
fn run_lot(test: &str, scenario: &Scenario, lot: Range<u64>) -> Vec<Report> {
    let _watchdog = Watchdog::watching(format!("simulations of {lot:?}"));
    let next = AtomicU64::new(lot.start);
    let reports = Mutex::new(Vec::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= lot.end {
                return;
            }
            if std::env::var_os("JOBTREE_SIM_TRACE").is_some() {
                let (steps, _) = retell(seed, scenario);
                eprintln!("all steps of seed {seed}:\n{}", steps.join("\n"));
            }
            let report = run(seed, scenario).unwrap_or_else(|failure| {
                panic!(
                    "{failure}\nto run it again with all of its steps:\n  JOBTREE_SIM_FIRST_SEED={seed} \
                     JOBTREE_SIM_SEEDS=1 JOBTREE_SIM_TRACE=1 cargo test --release -p jobtree-scheduler \
                     --test simulation {test} -- --exact --nocapture"
                )
            });
            reports.lock().unwrap().push(report);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    reports.into_inner().unwrap()
}

fn holds(test: &str, scenario: &Scenario, seeds: Range<u64>) {
    let mut all = Vec::new();
    let mut first = seeds.start;
    while first < seeds.end {
        let end = (first + LOT).min(seeds.end);
        all.extend(run_lot(test, scenario, first..end));
        first = end;
    }
    if all.len() < 50 {
        return;
    }
    // It was not only fair weather.
    let some = |what: &str, of: fn(&Report) -> u64| {
        assert!(all.iter().map(of).sum::<u64>() > 0, "no {what} in any run");
    };
    some("job that is done", |it| it.done);
    some("job that fails", |it| it.not_done);
    some("lease that runs out", |it| it.expired);
    some("failing store", |it| it.store_failures);
    some("restart", |it| it.restarts);
    some("refusal", |it| it.refusals);
    some("firing", |it| it.firings);
    some("pause", |it| it.pauses);
    some("redrive", |it| it.redrives);
    some("retry", |it| it.retries);
    some("dispatch under an earlier lease", |it| it.joined);
    some("key with another body", |it| it.conflicts);
    some("time in which the store stands still", |it| it.stalls);
    if scenario.schedulers > 1 {
        some("call at another node", |it| it.called_elsewhere);
        some("call at two nodes at once", |it| it.called_twice);
        some("submission at two nodes at once", |it| it.submitted_twice);
    }
}

#[test]
fn seeds_of_one_scheduler() {
    let _clock = Clock::start();
    let scenario = short(Scenario::one());
    holds("seeds_of_one_scheduler", &scenario, seeds(3));
}

#[test]
fn seeds_of_three_schedulers() {
    let _clock = Clock::start();
    let scenario = short(Scenario::three());
    holds("seeds_of_three_schedulers", &scenario, seeds(2));
}

/// Workers that claim accept what is reserved for others of their addon.
#[test]
fn seeds_of_workers_that_claim_and_workers_that_accept() {
    let _clock = Clock::start();
    let test = "seeds_of_workers_that_claim_and_workers_that_accept";
    run_lot(test, &short(Scenario::mixed()), some_seeds(200));
}

/// Runs seeds in which few served jobs wait beside many unserved ones, with several take-up times. The longest wait comes near
/// the bound, or the bound would say nothing.
fn served_waits(test: &str, schedulers: usize, seeds: Range<u64>) {
    let times = [8, 16, 40];
    // A single seed is run with each of them.
    let part = (seeds.end - seeds.start) / times.len() as u64;
    for (place, take_up) in times.into_iter().enumerate() {
        let scenario = Scenario::unserved(schedulers, Duration::from_secs(take_up));
        let first = seeds.start + place as u64 * part;
        let reports = run_lot(test, &scenario, first..first + part.max(1));
        let parts = reports.iter().map(|report| {
            let (waited, bound) = report.longest_served_wait;
            waited.as_secs_f64() / bound.as_secs_f64().max(1.0)
        });
        let longest = parts.fold(0.0, f64::max);
        println!("{schedulers} schedulers, take-up {take_up} s: {longest:.2} of the bound");
        assert!(
            reports.len() < 50 || longest > 0.4,
            "the longest wait is {longest} of the bound"
        );
    }
}

#[test]
fn seeds_of_served_waits_at_one_scheduler() {
    let _clock = Clock::start();
    served_waits("seeds_of_served_waits_at_one_scheduler", 1, seeds(3));
}

#[test]
fn seeds_of_served_waits_at_three_schedulers() {
    let _clock = Clock::start();
    served_waits("seeds_of_served_waits_at_three_schedulers", 3, seeds(2));
}

/// Capacity that is held for jobs that no worker takes is found by the wait of a served job, at one scheduler and at three.
#[test]
fn capacity_held_for_nobody_is_found_by_the_wait_of_a_served_job() {
    let _clock = Clock::start();
    for schedulers in [1, 3] {
        let mistake = Mistake::Core(Bug::ReserveForNobody);
        let scenario = Scenario::unserved(schedulers, Duration::from_secs(8));
        found(scenario, mistake, "for nothing but units of unserved jobs");
    }
}

/// The seeds in which planted mistakes are found break no invariant without a mistake.
#[test]
fn storms_without_a_mistake() {
    let _clock = Clock::start();
    let test = "storms_without_a_mistake";
    for scenario in [
        Scenario::one(),
        Scenario::bursts(),
        Scenario::mixed(),
        Scenario::three(),
    ] {
        run_lot(test, &scenario.stormy(), some_seeds(100));
    }
}

/// Idle workers get what others hold and have not begun, and no job runs twice by that.
#[test]
fn batches_are_shared_with_idle_workers() {
    let _clock = Clock::start();
    let test = "batches_are_shared_with_idle_workers";
    let reports = run_lot(test, &short(Scenario::bursts()), some_seeds(100));
    let given_back: u64 = reports.iter().map(|it| it.given_back).sum();
    let runs = reports.len() as u64;
    assert!(
        runs < 50 || given_back > runs / 4,
        "{given_back} jobs given back in {runs} runs"
    );
}

/// Jobs that were measured to cost less than they declare share the machine with more others, and with twice as many at most.
#[test]
fn learnt_costs_are_charged_within_bounds() {
    let _clock = Clock::start();
    let test = "learnt_costs_are_charged_within_bounds";
    let reports = run_lot(test, &Scenario::learning(), some_seeds(50));
    let overbooked: u64 = reports.iter().map(|it| it.overbooked).sum();
    let runs = reports.len() as u64;
    assert!(
        runs < 50 || overbooked > runs / 2,
        "{overbooked} times in {runs} runs"
    );
    let without = run(0, &Scenario::one()).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(without.overbooked, 0);
}

#[test]
fn learnt_costs_have_a_least() {
    let _clock = Clock::start();
    let mistake = Mistake::Core(Bug::CheapIsFree);
    found(Scenario::learning(), mistake, "units are granted");
}

#[test]
fn a_seed_is_retold() {
    let _clock = Clock::start();
    let _watchdog = Watchdog::watching("a retold run");
    let scenario = short(Scenario::one());
    let report = run(5, &scenario).unwrap();
    let (steps, again) = retell(5, &scenario);
    assert_eq!(report, again.unwrap());
    assert!(steps.len() > 1000, "all of its steps, not the last");
    // One that fails has its last steps.
    let failure = (0..400)
        .find_map(|seed| run(seed, &broken()).err())
        .expect("it is found below");
    assert!(!failure.trace.is_empty() && failure.trace.len() < steps.len());
    assert!(
        failure
            .to_string()
            .contains(&format!("seed {}", failure.seed))
    );
}

fn broken() -> Scenario {
    Scenario::one().stormy().with(Mistake::NoHeartbeats)
}

#[test]
fn a_seed_tells_all() {
    let _clock = Clock::start();
    let _watchdog = Watchdog::watching("repetition");
    let scenario = short(Scenario::three());
    let first = run(11, &scenario).unwrap();
    assert_eq!(first, run(11, &scenario).unwrap());
    assert_ne!(
        first.fingerprint,
        run(12, &scenario).unwrap().fingerprint,
        "another seed is another run"
    );
}

/// A policy of real life, by which things happen in minutes and hours, and addons take up dispatches.
#[test]
fn the_default_policy_holds() {
    let _clock = Clock::start();
    let _watchdog = Watchdog::watching("the default policy");
    let scenario = Scenario {
        policy: Policy::default(),
        claims: false,
        calm: Duration::from_secs(4 * 3600),
        ..Scenario::one()
    };
    for seed in 0..10 {
        run(seed, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Three schedulers by that policy, the first of which has nobody of one addon.
fn not_everybody_everywhere() -> Scenario {
    Scenario {
        policy: Policy::default(),
        claims: false,
        calm: Duration::from_secs(4 * 3600),
        ..Scenario::three()
    }
}

#[test]
fn what_is_dispatched_in_vain_is_left_to_the_others() {
    let _clock = Clock::start();
    let test = "what_is_dispatched_in_vain_is_left_to_the_others";
    let scenario = not_everybody_everywhere();
    let unserved = UnservedBound {
        take_up: scenario.policy.dispatch.take_up,
        returned_after: scenario.policy.dispatch.tick,
        sampled_every: Duration::from_secs(2),
        shares_key: true,
        hears_after: Duration::from_secs(4),
    };
    let bound = unserved.wait().expect("a node hears soon enough");
    for report in run_lot(test, &scenario, some_seeds(20)) {
        assert!(report.done > 0);
        // Some such waits one after the other: attempts that failed, and jobs that depend on others.
        let calm = report.time.saturating_sub(scenario.trouble);
        assert!(calm <= 6 * bound, "{calm:?}, and {bound:?} for each wait");
    }
}

/// Reservations that are accepted at any node, from a store that loses answers: each node knows what it holds.
#[test]
fn dispatches_are_accepted_anywhere() {
    let _clock = Clock::start();
    let test = "dispatches_are_accepted_anywhere";
    run_lot(test, &not_everybody_everywhere(), some_seeds(50));
    let mistake = Mistake::Core(Bug::RefusedIsUndone);
    // A lost answer is what it needs: with as few as usual it shows in one seed of hundreds.
    let mut scenario = not_everybody_everywhere();
    scenario.faults.answer_lost_in_store = 400;
    found(scenario, mistake, "units are granted");
}

#[test]
fn what_nobody_takes_up_is_kept_from_the_others() {
    let _clock = Clock::start();
    let mistake = Mistake::Core(Bug::ReserveForNobody);
    // A worker of another machine that accepts any dispatch would help.
    let scenario = Scenario {
        anywhere: false,
        ..not_everybody_everywhere()
    };
    found(scenario, mistake, "never end");
}

/// Runs seeds until one finds the mistake, and tells what it says.
fn found(scenario: Scenario, mistake: Mistake, says: &str) {
    let _watchdog = Watchdog::watching("a planted mistake");
    let broken = scenario.with(mistake);
    let mut other = None;
    // Some show in one seed of fifty.
    for seed in 0..400 {
        match run(seed, &broken) {
            Ok(_) => {}
            Err(failure) if failure.what.contains(says) => {
                let _ = writeln!(std::io::stderr(), "{mistake:?}: found by seed {seed}");
                return;
            }
            Err(failure) => other = Some(failure.what),
        }
    }
    panic!("{mistake:?} was not found: no seed says {says:?}; another said {other:?}");
}

/// Three schedulers whose store loses many an answer.
fn forgetful() -> Scenario {
    let mut scenario = Scenario::three().stormy();
    scenario.faults.answer_lost_in_store = 200;
    scenario.jobs = 20;
    scenario.trouble = Duration::from_secs(60);
    scenario.faults.hint_lost = 900;
    scenario.faults.machine = 1;
    scenario
}

#[test]
fn lost_wake_ups_stay_lost() {
    let _clock = Clock::start();
    let mistake = Mistake::Core(Bug::NoFallback);
    found(forgetful(), mistake, "nothing will look at it");
    run(1, &forgetful()).unwrap_or_else(|failure| panic!("{failure}"));
}

macro_rules! planted {
    ($($name:ident: $scenario:ident, $mistake:expr, $says:literal;)*) => {
        $(#[test]
        fn $name() {
            let _clock = Clock::start();
            found(Scenario::$scenario().stormy(), $mistake, $says);
        })*
    };
}

// Failures that users of other queues met, in the words of their reports; each with the rule that keeps us from it. Two
// more are about a database's files and memory, which are not simulated: a table that grows while an old snapshot is held,
// and SQLite's WAL before 3.51.3.
planted! {
    // Jobs stuck in "running" for days: each lease expires by itself.
    jobs_stuck_in_running: one, Mistake::Core(Bug::NoSweeper), "never end";
    // A reused worker name hides orphans: an id for each start of a process.
    a_reused_name_hides_orphans: one, Mistake::Core(Bug::TrustWorkerNames), "never end";
    // The rescuer overwrites a finished job: every transition compares.
    the_rescuer_overwrites_what_is_done: one, Mistake::BlindRescue, "was DONE and is QUEUED";
    // Lease shorter than the job, which runs twice: heartbeats.
    leases_shorter_than_jobs: one, Mistake::NoHeartbeats, "both may believe";
    // Concurrency slots leak: usage is computed from live leases. Units, and slots of a key.
    slots_leak: one, Mistake::Core(Bug::LeakedUnits), "the store says otherwise";
    slots_of_keys_leak: one, Mistake::Core(Bug::LeakedKeys), "never end";
    // Poison job crashes worker after worker: rescues are counted.
    poison_takes_worker_after_worker: one, Mistake::Core(Bug::NoQuarantine), "was rescued";
    // Wake-ups get lost: `lost_wake_ups_stay_lost` above.
    // A busy database refuses: what failed is asked for again.
    what_failed_is_not_repeated: one, Mistake::Core(Bug::NoRepeat), "never end";
    // Clock skew: monotonic time within a machine, the database's across machines.
    the_wall_clock_ends_leases: one, Mistake::Core(Bug::WallClockExpiry), "ran out, and worker";
    each_machine_has_its_own_time: three, Mistake::MachineTime, "before its time";
    terms_count_from_the_request: one, Mistake::Core(Bug::TermFromIssue), "before its term";
    // Poll stampede: jitter on every timer.
    all_poll_at_once: three, Mistake::Core(Bug::NoJitter), "at the same moments";
    // One tenant's limit blocks the rest: the tenant is skipped.
    one_limit_blocks_the_rest: one, Mistake::Core(Bug::BlockedHead), "never end";
    // Acknowledged messages lost after a power cut: fsync before the answer.
    answers_before_the_disk_has_it: one, Mistake::AnswersEarly, "is lost";
}

// Mistakes that this engine could make, one at least for each invariant.
planted! {
    no_grace_after_a_restart: one, Mistake::Core(Bug::NoGrace), "ran out, and worker";
    what_runs_is_forgotten_at_the_start: one, Mistake::Core(Bug::ForgetLive), "units are granted";
    a_lost_proposal_is_forgotten: one, Mistake::Core(Bug::LostProposal), "nothing will look at it";
    pauses_are_ignored: one, Mistake::Core(Bug::IgnorePauses), "is paused";
    capacity_is_leased_twice: one, Mistake::Core(Bug::DoubledCapacity), "has two live leases";
    workers_begin_what_they_gave_back: bursts, Mistake::BeginsGivenBack, "both may believe";
    leases_of_other_nodes_callers_are_not_read: three, Mistake::Core(Bug::UnreadLeases), "the store says otherwise";
    a_claim_at_two_nodes_is_granted_twice: three, Mistake::MergedGrants, "was granted twice";
    firings_go_by_the_clock: three, Mistake::Core(Bug::FireByClock), "no time of it";
    claims_miss_reservations: mixed, Mistake::Core(Bug::ClaimsMissReservations), "gets nothing, and job";
    what_has_not_begun_is_timed_out: bursts, Mistake::ForgottenHand, "was timed out, and was Held";
    idempotency_keys_are_forgotten: one, Mistake::ForgottenKeys, "one key";
    keys_are_forgotten_between_two_nodes: three, Mistake::KeysForgottenBetweenNodes, "one key";
    unique_keys_are_forgotten: one, Mistake::ForgottenUnique, "are unique as";
    holders_of_keys_are_forgotten: three, Mistake::ForgottenHolders, "are allowed";
    dependents_are_forgotten: one, Mistake::ForgottenDependents, "never end";
    forged_pids_are_believed: one, Mistake::ForgedPids, "counts as our own load";
}

#[test]
fn nobody_waits_longer_than_the_formula_says() {
    let _clock = Clock::start();
    let _watchdog = Watchdog::watching("floods");
    for seed in 0..3 {
        let flood = flood(seed, true).unwrap_or_else(|long| panic!("seed {seed}: {long}"));
        assert!(flood.largest > Duration::ZERO, "it was no flood");
    }
    // Without capacity that is kept for it, the largest job waits until the flood is over.
    assert!((0..3).any(|seed| flood(seed, false).is_err()));
}

/// The scenarios are what they say.
#[test]
fn scenarios() {
    assert_eq!(Scenario::one().schedulers, 1);
    assert_eq!(Scenario::three().schedulers, 3);
    assert!(short(Scenario::one()).trouble >= Duration::from_secs(60));
}

/// Jobs a scheduler in the runs that compare numbers of schedulers.
const JOBS_EACH: usize = 10;

/// What jobs cost in runs with so many schedulers.
struct Costs {
    jobs: u64,
    /// Reads, writes, notifications and overtaken proposals, for each job.
    each: [f64; 4],
    /// How long jobs that could start at once waited, in order.
    found: Vec<Duration>,
}

impl Costs {
    fn of(schedulers: usize, jobs_each: usize, seeds: Range<u64>) -> Self {
        let scenario = Scenario::many(schedulers, jobs_each * schedulers);
        let (mut jobs, mut sums, mut found) = (0, [0; 4], Vec::new());
        for seed in seeds {
            let _watchdog = Watchdog::watching(format!("{schedulers} schedulers"));
            let report = run(seed, &scenario).unwrap_or_else(|failure| panic!("{failure}"));
            jobs += report.done + report.not_done;
            let traffic = &report.traffic;
            let counts = [
                traffic.reads,
                traffic.writes,
                traffic.hints,
                traffic.overtaken,
            ];
            for (sum, count) in sums.iter_mut().zip(counts) {
                *sum += count;
            }
            found.extend_from_slice(traffic.found());
        }
        found.sort_unstable();
        Self {
            jobs,
            each: sums.map(|sum| sum as f64 / jobs as f64),
            found,
        }
    }

    /// The time within which so many of 100 jobs were found.
    fn found_within(&self, percent: usize) -> Duration {
        let last = self.found.len().saturating_sub(1);
        let place = (self.found.len() * percent / 100).min(last);
        self.found.get(place).copied().unwrap_or_default()
    }
}

/// The invariants hold with many schedulers, and a job that could start at once is found at once: most by the call that submitted
/// it or by a notification, all by a reading.
#[test]
fn three_and_thirty_schedulers_find_jobs_soon() {
    let _clock = Clock::start();
    for (schedulers, seeds) in [(3, 0..20), (30, 0..2)] {
        let costs = Costs::of(schedulers, 5, seeds);
        assert!(costs.jobs > 100, "{} jobs", costs.jobs);
        assert!(costs.found.len() > 20, "{} could start", costs.found.len());
        let (half, most) = (costs.found_within(50), costs.found_within(90));
        println!("{schedulers} schedulers: {half:?}, 90 % {most:?}");
        assert!(half < Duration::from_secs(2), "{half:?}");
    }
}

/// Prints the table of docs/scaling.md.
#[test]
#[ignore = "prints a table for docs/scaling.md"]
fn table_of_schedulers() {
    let _clock = Clock::start();
    println!(
        "| schedulers | jobs | reads a job | writes a job | notifications a job | overtaken a job | could start | median to find | 90 % |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let wanted = std::env::var("JOBTREE_SIM_SCHEDULERS").unwrap_or("3,30,300".to_owned());
    let seeds = number("JOBTREE_SIM_TABLE_SEEDS", 5);
    for schedulers in wanted
        .split(',')
        .map(|text| text.parse().expect("a number"))
    {
        let costs = Costs::of(schedulers, JOBS_EACH, 1..1 + seeds);
        let [reads, writes, hints, overtaken] = costs.each;
        println!(
            "| {schedulers} | {} | {reads:.1} | {writes:.1} | {hints:.1} | {overtaken:.2} | {} | {:.1?} | {:.1?} |",
            costs.jobs,
            costs.found.len(),
            costs.found_within(50),
            costs.found_within(90),
        );
    }
}
