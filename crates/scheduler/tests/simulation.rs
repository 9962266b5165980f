//! Simulations: the invariants hold for many seeds, and each planted mistake is found.
//!
//! Too slow without optimisation: `scripts/test simulation` runs them in release.

#![cfg(not(debug_assertions))]

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::time::Duration;

use jobtree_scheduler::sim::{Bug, Mistake, Scenario, flood, run};
use watchdog::Watchdog;

/// A shorter run, so that many fit into a test that is not optimised.
fn short(scenario: Scenario) -> Scenario {
    Scenario {
        jobs: scenario.jobs / 2,
        trouble: scenario.trouble / 2,
        ..scenario
    }
}

fn holds(scenario: &Scenario, seeds: std::ops::Range<u64>) {
    let (mut done, mut expired, mut failures, mut restarts, mut refusals) = (0, 0, 0, 0, 0);
    for seed in seeds {
        let report = run(seed, scenario).unwrap_or_else(|failure| panic!("{failure}"));
        done += report.done;
        expired += report.expired;
        failures += report.store_failures;
        restarts += report.restarts;
        refusals += report.refusals;
    }
    // It was not only fair weather.
    assert!(done > 0 && expired > 0 && failures > 0 && restarts > 0 && refusals > 0);
}

#[test]
fn one_scheduler_holds() {
    let _watchdog = Watchdog::watching("simulations of one scheduler");
    holds(&short(Scenario::one()), 0..150);
}

#[test]
fn three_schedulers_hold() {
    let _watchdog = Watchdog::watching("simulations of three schedulers");
    holds(&short(Scenario::three()), 1000..1050);
}

#[test]
fn a_seed_tells_all() {
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

/// Runs seeds until one finds the mistake, and tells what it says.
fn found(scenario: Scenario, mistake: Mistake, says: &str) {
    let _watchdog = Watchdog::watching("a planted mistake");
    let broken = scenario.with(mistake);
    let mut other = None;
    for seed in 0..40 {
        match run(seed, &broken) {
            Ok(_) => {}
            Err(failure) if failure.what.contains(says) => return,
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
    found(forgetful(), Mistake::Core(Bug::NoFallback), "never end");
    run(1, &forgetful()).unwrap_or_else(|failure| panic!("{failure}"));
}

macro_rules! planted {
    ($($name:ident: $scenario:ident, $mistake:expr, $says:literal;)*) => {
        $(#[test]
        fn $name() {
            found(Scenario::$scenario().stormy(), $mistake, $says);
        })*
    };
}

planted! {
    jobs_stuck_in_running: one, Mistake::Core(Bug::NoSweeper), "never end";
    a_reused_name_hides_orphans: one, Mistake::Core(Bug::TrustWorkerNames), "never end";
    the_rescuer_overwrites_what_is_done: one, Mistake::BlindRescue, "was DONE and is QUEUED";
    leases_shorter_than_jobs: one, Mistake::NoHeartbeats, "both may believe";
    slots_leak: one, Mistake::Core(Bug::LeakedUnits), "never end";
    poison_takes_worker_after_worker: one, Mistake::Core(Bug::NoQuarantine), "was rescued";
    the_wall_clock_ends_leases: one, Mistake::Core(Bug::WallClockExpiry), "ran out, and worker";
    all_poll_at_once: three, Mistake::Core(Bug::NoJitter), "at the same moments";
    one_limit_blocks_the_rest: one, Mistake::Core(Bug::BlockedHead), "never end";
    answers_before_the_disk_has_it: one, Mistake::AnswersEarly, "is lost";
    no_grace_after_a_restart: one, Mistake::Core(Bug::NoGrace), "ran out, and worker";
    what_runs_is_forgotten_at_the_start: one, Mistake::Core(Bug::ForgetLive), "units are granted";
    a_lost_proposal_is_forgotten: one, Mistake::Core(Bug::LostProposal), "nothing will look at it";
    what_failed_is_not_repeated: one, Mistake::Core(Bug::NoRepeat), "never end";
}

#[test]
fn nobody_waits_longer_than_the_formula_says() {
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
