//! A random checker: colliding calls at several daemon processes on one store, by a seed, while daemons are killed and stopped
//! and answers are lost. What was called and answered is kept outside of the daemons; afterwards it is compared with the
//! store.
//!
//! `JOBTREE_CHECKER_SECONDS` is how long the checker runs on PostgreSQL (one short round by default), and
//! `JOBTREE_CHECKER_SEED` the seed of the first round. A failure names its seed; the same seed makes the same choices, but not
//! the same order of events, so a failure may need several runs to come back.

#[path = "random_calls/callers.rs"]
mod callers;
#[path = "random_calls/fleet.rs"]
mod fleet;
#[path = "random_calls/http.rs"]
mod http;
#[path = "random_calls/ledger.rs"]
mod ledger;
#[path = "two_daemons/pair.rs"]
mod pair;
#[path = "random_calls/rules.rs"]
mod rules;
#[path = "random_calls/rules_can_fail.rs"]
mod rules_can_fail;
mod support;

use std::thread;
use std::time::{Duration, Instant};

use fleet::Fleet;
use jobtree_scheduler::core::Rng;
use support::watch;

/// How long calls are made in a round of the short form.
const SHORT: Duration = Duration::from_secs(8);
/// And of the long form: the ledger of a round is kept in memory.
const LONG: Duration = Duration::from_secs(30);
const THREADS: u64 = 8;

/// Makes random calls at all daemons for a while, disturbs the daemons, lets all jobs end, and applies the rules.
fn check(fleet: &mut Fleet, seed: u64, length: Duration) {
    let callers = fleet.callers();
    let mut rng = Rng::new(seed);
    let disturbances = callers.call_while(seed, THREADS, || {
        let begun = Instant::now();
        let mut disturbances = Vec::new();
        while begun.elapsed() < length {
            thread::sleep(Duration::from_millis(200 + rng.below(1000)));
            disturbances.extend(fleet.disturb(&mut rng, &callers));
        }
        disturbances
    });
    let run = fleet.finish(&callers, disturbances, &mut rng);
    let acknowledged = run.calls.iter().filter(|it| it.acknowledged().is_some());
    println!(
        "seed {seed}: {} calls, {} acknowledged, {} events, {} disturbances",
        run.calls.len(),
        acknowledged.count(),
        run.evidence.events.len(),
        run.disturbances.len()
    );
    assert!(
        run.calls.len() > 100 && run.evidence.events.len() > 100,
        "too little happened to check anything"
    );
    let broken = rules::broken(&run);
    assert!(
        broken.is_empty(),
        "seed {seed} breaks {} times a rule:\n{}",
        broken.len(),
        broken[..broken.len().min(20)].join("\n")
    );
}

fn first_seed() -> u64 {
    let given = std::env::var("JOBTREE_CHECKER_SEED").ok();
    given.map_or(1, |text| text.parse().expect("a number"))
}

#[test]
fn random_calls_at_two_daemons_on_postgres_keep_every_rule() {
    let given = std::env::var("JOBTREE_CHECKER_SECONDS").ok();
    let whole = given.map(|text| Duration::from_secs(text.parse().expect("a number of seconds")));
    let begun = Instant::now();
    let mut seed = first_seed();
    loop {
        let _watchdog = watch();
        check(
            &mut Fleet::on_postgres(2),
            seed,
            whole.map_or(SHORT, |_| LONG),
        );
        seed += 1;
        if whole.is_none_or(|whole| begun.elapsed() >= whole) {
            return;
        }
    }
}

#[test]
fn random_calls_at_a_daemon_on_sqlite_keep_every_rule() {
    let _watchdog = watch();
    check(&mut Fleet::on_sqlite(), first_seed(), SHORT / 2);
}
