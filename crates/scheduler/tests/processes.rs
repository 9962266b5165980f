//! Several scheduler processes on one PostgreSQL. One is stopped beyond its leases and continued, the database is
//! restarted in the middle, one is killed: nothing that was acknowledged is lost, no job is held twice, concurrency keys
//! hold, each time of a schedule fires once, and work goes on within seconds.
//!
//! This program starts itself again for each process. What a process was told it writes to a ledger, a file outside of
//! the database; in the end the trail in the database is compared with all ledgers.
#![cfg(feature = "postgres")]

#[path = "processes/child.rs"]
mod child;
#[path = "processes/fleet.rs"]
mod fleet;
#[path = "../../store/tests/support/postgres.rs"]
mod postgres;
#[path = "processes/settle.rs"]
mod settle;
mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use fleet::Fleet;
use support::Folder;
use watchdog::Watchdog;

/// A process's part; nothing without the variables that tell it what to do.
#[test]
fn child() {
    child::live();
}

fn disturbed(processes: usize) {
    let mut fleet = Fleet::start(processes);
    let schedule = fleet.schedule_each_second();
    fleet.goes_on("at the start", &fleet.everybody());

    // One stands still for longer than its leases hold. The others get its jobs; what it says afterwards is refused.
    let held = fleet.stop_while_it_works(0);
    fleet.wait_until("its leases have expired", |fleet| fleet.have_expired(&held));
    fleet.goes_on("without the one that stands still", &fleet.all_but(0));
    fleet.signal(0, "-CONT");
    fleet.wait_until("what it answers late is refused", |fleet| {
        fleet.are_refused(0, &held)
    });
    fleet.goes_on("when it is back", &fleet.everybody());

    // The database goes away without a word, and comes back.
    fleet.restart_database();
    fleet.goes_on("after the database's restart", &fleet.everybody());

    // One dies in the middle of its work.
    let held = fleet.kill_while_it_works(1);
    fleet.wait_until("its leases have expired", |fleet| fleet.have_expired(&held));
    fleet.goes_on("without the one that died", &fleet.all_but(1));

    let ledgers = fleet.finish(schedule);
    let rescues = settle::compare(&fleet, schedule, &ledgers);
    assert!(
        rescues >= 2,
        "of the one that stood still, and of the dead one"
    );
}

/// A process that stands still in the middle of a transaction holds locks that all others need.
#[test]
fn one_stands_still_in_a_transaction() {
    let _watchdog = Watchdog::watching("one stands still in a transaction");
    let mut fleet = Fleet::start(2);
    let schedule = fleet.schedule_each_second();
    fleet.goes_on("at the start", &fleet.everybody());
    fleet.stop_with_locks(0);
    fleet.goes_on("all the same", &fleet.all_but(0));
    fleet.signal(0, "-CONT");
    fleet.goes_on("when it is back", &fleet.everybody());
    let ledgers = fleet.finish(schedule);
    settle::compare(&fleet, schedule, &ledgers);
}

#[test]
fn two_processes() {
    let _watchdog = Watchdog::watching("two processes");
    disturbed(2);
}

#[test]
fn three_processes() {
    let _watchdog = Watchdog::watching("three processes");
    disturbed(3);
}
