//! A scope of the pool's, without jobs: what is spawned in it borrows, and nobody asks for its value. Against rayon's.

use jobtree_pool::Pool;

use super::{Options, workers};
use crate::harness::{Contender, Contest, Goal, Report, Role, timed};

const NAME: &str = "scope spawn, 1000 in a scope";
const RAYON: &str = "rayon";

/// What the tasks of one iteration write to, each to its own.
type Slots = Vec<u64>;

const TASKS: usize = 1000;

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let workers = workers(options);
    let ours = Pool::builder()
        .workers(workers)
        .build()
        .expect("our pool starts");
    let rayon = rayon::ThreadPoolBuilder::new()
        .num_threads(workers)
        .build()
        .expect("rayon's pool starts");
    let our_side =
        |slots: &mut Slots, iterations| ours.install(|| timed(slots, iterations, our_scope));
    let contest = Contest {
        name: NAME.into(),
        workers,
        unit: "task",
        units: TASKS as f64,
        goal: Goal::side(RAYON, 0.6),
        input: vec![0; TASKS],
        digest: |slots, result| {
            assert!(
                slots.iter().all(|slot| slot == &slots[0]),
                "a task did not run"
            );
            // How often each was written to is no part of the result.
            result
        },
        contenders: vec![
            Contender::new("ours", Role::Ours, our_side),
            Contender::new("ours again", Role::Control, our_side),
            Contender::new(RAYON, Role::Peer, |slots: &mut Slots, iterations| {
                rayon.install(|| timed(slots, iterations, rayon_scope))
            }),
        ],
    };
    report.rows.push(contest.run(&options.plan));
}

fn our_scope(slots: &mut Slots) -> u64 {
    jobtree_pool::scope(|scope| {
        for slot in slots.iter_mut() {
            scope.spawn(move |_| *slot += 1);
        }
    });
    slots.len() as u64
}

fn rayon_scope(slots: &mut Slots) -> u64 {
    rayon::scope(|scope| {
        for slot in slots.iter_mut() {
            scope.spawn(move |_| *slot += 1);
        }
    });
    slots.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn both_scopes_run_every_task() {
        let mut report = Report::default();
        // A task that did not run would be found by the digest.
        run(&shortest(NAME), &mut report);
        assert!(report.rows[0].ratio_to(RAYON).is_some());
        let mut slots = vec![7; TASKS];
        our_scope(&mut slots);
        rayon_scope(&mut slots);
        assert_eq!(slots, [9; TASKS]);
    }
}
