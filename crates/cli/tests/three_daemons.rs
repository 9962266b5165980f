//! Three daemons under load on one PostgreSQL with a standby: one daemon is killed, one stopped for longer than leases last, the
//! database restarted, and the standby promoted after the database is gone for good. Nothing that was acknowledged is lost or
//! doubled, and work goes on within seconds.

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
mod support;

use std::thread;
use std::time::Duration;

use callers::Callers;
use fleet::Fleet;
use jobtree_scheduler::core::Rng;
use ledger::Disturbance;
use support::{signal, watch};

const DAEMONS: usize = 3;
/// Within this time after a disturbance, each daemon acknowledges calls again. A connection that is refused is tried again with
/// the next call, so it takes a second; the rest is for a busy machine.
const SECONDS: Duration = Duration::from_secs(10);

/// Waits until each of these daemons acknowledges a call, and notes that all were disturbed since `from`.
fn goes_on(
    callers: &Callers,
    rng: &mut Rng,
    daemons: &[usize],
    from: Duration,
    what: &str,
) -> Vec<Disturbance> {
    let up = callers.now();
    for daemon in daemons {
        callers.until_acknowledged(rng, *daemon);
    }
    let to = callers.now();
    println!("{what}: {:?}, then {:?} to go on", up - from, to - up);
    assert!(to - up < SECONDS, "work did not go on after {what}");
    let disturbed = |daemon: &usize| Disturbance {
        daemon: *daemon,
        from,
        // Calls that were begun before may be answered a little later.
        to: to + Duration::from_secs(1),
    };
    daemons.iter().map(disturbed).collect()
}

#[test]
fn daemons_databases_and_standbys_may_go_and_nothing_is_lost() {
    let _watchdog = watch();
    let mut database = pair::Server::start();
    let place = database.new_place();
    let standby = database.standby();
    let url = pair::url_of(&[&database, &standby], &place);
    let mut fleet = Fleet::on_url(DAEMONS, url);
    let callers = fleet.callers();
    let mut rng = Rng::new(19);
    let all = [0, 1, 2];
    let disturbances = callers.call_while(19, 6, || {
        let mut disturbances = Vec::new();
        let load = || thread::sleep(Duration::from_millis(1000));
        load();
        let from = callers.now();
        fleet.daemons[0].ends_and_returns("KILL");
        disturbances.extend(goes_on(&callers, &mut rng, &[0], from, "a kill"));

        // Three times as long as leases last, and longer than the database waits for a transaction that stands still.
        let (from, pid) = (callers.now(), fleet.daemons[1].pid());
        signal("STOP", pid);
        goes_on(
            &callers,
            &mut rng,
            &[0, 2],
            from,
            "the stop of another daemon",
        );
        let rest = (from + rules::TERM * 3).saturating_sub(callers.now());
        thread::sleep(rest);
        signal("CONT", pid);
        disturbances.extend(goes_on(&callers, &mut rng, &[1], from, "a stop"));
        load();

        let from = callers.now();
        database.crash();
        database.run();
        disturbances.extend(goes_on(
            &callers,
            &mut rng,
            &all,
            from,
            "a restart of the database",
        ));
        load();

        let from = callers.now();
        database.crash();
        standby.promote();
        disturbances.extend(goes_on(&callers, &mut rng, &all, from, "a promotion"));
        load();
        disturbances
    });
    let run = fleet.finish(&callers, disturbances, &mut rng);
    println!(
        "{} calls, {} events",
        run.calls.len(),
        run.evidence.events.len()
    );
    let broken = rules::broken(&run);
    assert!(
        broken.is_empty(),
        "{} times a rule is broken:\n{}",
        broken.len(),
        broken[..broken.len().min(20)].join("\n")
    );
}
