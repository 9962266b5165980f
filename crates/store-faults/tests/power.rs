//! SQLite itself on a machine that loses power: whether it keeps what it acknowledged depends on its settings, and the
//! machine tells the two apart.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use jobtree_store_faults::{Fault, Machine};
use rusqlite::{Connection, Result};
use watchdog::Watchdog;

const SEEDS: u64 = 300;

fn open(machine: &Machine, synchronous: &str) -> Result<Connection> {
    let db = machine.connect("rows.db")?;
    // The switch answers "wal" before it commits, so one must read to the end of the answer to see it fail. Then the
    // old mode stays, in which FULL promises less: a deleted journal may come back and undo an acknowledged row.
    db.prepare("PRAGMA journal_mode = WAL")?
        .query_map([], |row| row.get::<_, String>(0))?
        .try_for_each(|mode| mode.map(drop))?;
    db.execute_batch(&format!(
        "PRAGMA synchronous = {synchronous}; PRAGMA wal_autocheckpoint = 8;
         CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, filling BLOB)"
    ))?;
    Ok(db)
}

/// Inserts rows until the machine stops it, and says how many were acknowledged.
fn insert_until_stopped(machine: &Machine, synchronous: &str) -> i64 {
    let Ok(db) = open(machine, synchronous) else {
        return 0;
    };
    let insert = "INSERT INTO rows VALUES (?1, randomblob(900))";
    let mut acknowledged = 0;
    while acknowledged < 60 && db.execute(insert, [acknowledged]).is_ok() {
        acknowledged += 1;
    }
    acknowledged
}

/// What is wrong after the power is back, if anything is.
fn damage(machine: &Machine, acknowledged: i64) -> Option<String> {
    let check = || -> Result<Option<String>> {
        let db = open(machine, "FULL")?;
        let integrity: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if integrity != "ok" {
            return Ok(Some(integrity));
        }
        let mut rows = db.prepare("SELECT id FROM rows ORDER BY id")?;
        let rows: Vec<i64> = rows
            .query_map([], |row| row.get(0))?
            .collect::<Result<_>>()?;
        let lost = (0..acknowledged).find(|id| !rows.contains(id));
        Ok(lost.map(|id| format!("row {id} of {acknowledged} acknowledged ones is lost")))
    };
    check().unwrap_or_else(|error| Some(error.to_string()))
}

/// One life and death under a seed: the cut comes at any operation of the program.
fn cut(seed: u64, synchronous: &str) -> (i64, Option<String>) {
    let machine = Machine::new();
    machine.power_cut_after(seed.wrapping_mul(0x9e37_79b9) % 400, seed);
    let acknowledged = insert_until_stopped(&machine, synchronous);
    if machine.is_on() {
        machine.power_cut(seed);
    }
    machine.power_on();
    (acknowledged, damage(&machine, acknowledged))
}

#[test]
fn with_full_sync_no_cut_loses_an_acknowledged_row() {
    let _watchdog = Watchdog::watching("power cuts with full sync");
    let mut acknowledged = 0;
    for seed in 0..SEEDS {
        let (count, damage) = cut(seed, "FULL");
        assert_eq!(damage, None, "seed {seed}, {count} acknowledged");
        acknowledged += count;
    }
    assert!(
        acknowledged > SEEDS as i64,
        "the cuts came too early to show anything"
    );
}

#[test]
fn without_sync_acknowledged_rows_are_lost() {
    let _watchdog = Watchdog::watching("power cuts without sync");
    let damaged = (0..SEEDS)
        .filter(|seed| cut(*seed, "OFF").1.is_some())
        .count();
    assert!(
        damaged > SEEDS as usize / 10,
        "only {damaged} of {SEEDS} cuts did damage"
    );
}

#[test]
fn a_seed_loses_the_same_again() {
    // Without a log, whose salt SQLite draws anew each time.
    let left = |seed| {
        let machine = Machine::new();
        let db = machine.connect("rows.db").expect("a new file");
        db.execute_batch(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; CREATE TABLE rows (id, filling)",
        )
        .expect("a new table");
        for row in 0..50 {
            db.execute("INSERT INTO rows VALUES (?1, zeroblob(900))", [row])
                .expect("the power is on");
        }
        machine.power_cut(seed);
        drop(db);
        machine.power_on();
        machine.contents("rows.db")
    };
    for seed in 0..10 {
        assert!(left(seed) == left(seed), "seed {seed}");
    }
    assert!(
        (1..10).any(|seed| left(0) != left(seed)),
        "all seeds lose the same"
    );
}

#[test]
fn faults_are_reported_and_do_no_lasting_harm() {
    let _watchdog = Watchdog::watching("faults");
    for fault in [Fault::NoSpace, Fault::WriteError, Fault::ReadError] {
        for after in 0..40 {
            let machine = Machine::new();
            let acknowledged_before = insert_until_stopped(&machine, "FULL").min(5);
            machine.inject(fault, after, 1);
            let failed = (0..40).find_map(|row| {
                let db = open(&machine, "FULL").ok()?;
                let insert = "INSERT INTO rows VALUES (?1, randomblob(900))";
                db.execute(insert, [1000 + row]).err()
            });
            if machine.struck(fault) > 0 && fault == Fault::NoSpace {
                assert!(failed.is_none_or(|error| error.to_string().contains("full")));
            }
            machine.heal();
            assert_eq!(
                damage(&machine, acknowledged_before),
                None,
                "{fault:?} after {after}"
            );
        }
    }
}

#[test]
fn a_failed_sync_is_an_error_and_what_it_left_behind_is_not_trusted() {
    let _watchdog = Watchdog::watching("failed syncs");
    let mut struck = 0;
    for after in 0..30 {
        let machine = Machine::new();
        machine.inject(Fault::SyncError, after, 1);
        let acknowledged = insert_until_stopped(&machine, "FULL");
        struck += machine.struck(Fault::SyncError);
        // Whoever saw the error stopped. A cut right then must leave all that was acknowledged before.
        machine.power_cut(after);
        machine.power_on();
        assert_eq!(damage(&machine, acknowledged), None, "sync {after} failed");
    }
    assert!(struck >= 20, "only {struck} syncs failed");
}

#[test]
fn readers_and_a_writer_share_the_log_and_the_dead_can_do_nothing() -> Result<()> {
    let machine = Machine::new();
    let writer = open(&machine, "FULL")?;
    let reader = open(&machine, "FULL")?;
    writer.execute("INSERT INTO rows VALUES (1, NULL)", [])?;
    let count =
        |db: &Connection| db.query_row("SELECT count(*) FROM rows", [], |row| row.get::<_, i64>(0));
    reader.execute_batch("BEGIN")?;
    assert_eq!(count(&reader)?, 1);
    writer.execute("INSERT INTO rows VALUES (2, NULL)", [])?;
    assert_eq!(count(&reader)?, 1, "a snapshot stays as it is");
    reader.execute_batch("COMMIT")?;
    assert_eq!(count(&reader)?, 2);

    writer.execute_batch("BEGIN IMMEDIATE")?;
    assert!(
        reader.execute_batch("BEGIN IMMEDIATE").is_err(),
        "one writer at a time"
    );
    machine.power_cut(1);
    assert!(
        machine
            .connect("rows.db")
            .and_then(|db| count(&db))
            .is_err(),
        "the power is off"
    );
    machine.power_on();
    let alive = open(&machine, "FULL")?;
    // What stays in its cache it may still do; nothing of it reaches the disk.
    writer.execute("INSERT INTO rows VALUES (3, NULL)", [])?;
    assert!(writer.execute_batch("COMMIT").is_err());
    assert_eq!(count(&alive)?, 2);
    drop((writer, reader));
    alive.execute("INSERT INTO rows VALUES (3, NULL)", [])?;
    assert_eq!(count(&alive)?, 3, "closing the dead took no lock away");
    Ok(())
}

#[test]
fn a_killed_process_leaves_all_that_it_wrote_and_no_lock() -> Result<()> {
    let machine = Machine::new();
    let killed = open(&machine, "OFF")?;
    killed.execute("INSERT INTO rows VALUES (1, NULL)", [])?;
    killed.execute_batch("BEGIN IMMEDIATE; INSERT INTO rows VALUES (2, NULL)")?;
    machine.kill();
    let next = open(&machine, "OFF")?;
    assert!(killed.execute_batch("COMMIT").is_err());
    next.execute("INSERT INTO rows VALUES (3, NULL)", [])?;
    let rows: i64 = next.query_row("SELECT sum(id) FROM rows", [], |row| row.get(0))?;
    assert_eq!(rows, 4);
    Ok(())
}
