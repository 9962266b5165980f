//! The deque by itself, on one thread: what the owner and a thief pay for one entry when nobody is in their way.
//!
//! crossbeam-deque is what rayon and most other pools rest on. It has no private part: each of its entries is public
//! from the start, so both of our ways to push and pop are compared with its only one.

use std::hint::black_box;
use std::time::Duration;

use crossbeam_deque::{Steal, Stealer, Worker};
use jobtree_pool::bench_support::BenchDeque;

use super::Options;
use crate::harness::{Contender, Contest, Report, Role, timed, timed_with_preparation};

const PEER: &str = "crossbeam";

/// How many entries one iteration moves. They fit into both deques as they are made: growing is not measured.
const ENTRIES: u64 = 1000;

/// As large as one of our entries, and as one of rayon's.
type Words = [usize; 2];

/// Adds the three rows.
pub fn run(options: &Options, report: &mut Report) {
    add(
        options,
        report,
        "push and pop, private",
        BenchDeque::new,
        |deque, iterations| {
            timed(deque, iterations, |deque| {
                deque.push_pop_private(ENTRIES);
                ENTRIES
            })
        },
        push_and_pop,
    );
    add(
        options,
        report,
        "push and pop, public",
        BenchDeque::new,
        |deque, iterations| {
            timed(deque, iterations, |deque| {
                deque.push_pop_public(ENTRIES);
                ENTRIES
            })
        },
        push_and_pop,
    );
    add(
        options,
        report,
        "steal",
        BenchDeque::new,
        |deque, iterations| {
            let fill = |deque: &mut BenchDeque| deque.fill_public(ENTRIES);
            timed_with_preparation(deque, iterations, fill, |deque| deque.steal_all())
        },
        steal,
    );
}

/// One side's iterations: the time of all of them, and how many entries the last one moved.
type Iterations<D> = fn(&mut D, u64) -> (Duration, u64);

fn add(
    options: &Options,
    report: &mut Report,
    name: &str,
    make: fn() -> BenchDeque,
    ours: Iterations<BenchDeque>,
    peer: Iterations<Crossbeam>,
) {
    if !options.wants(name) {
        return;
    }
    let (mut first, mut second, mut crossbeam) = (make(), make(), Crossbeam::new());
    let contest = Contest {
        name: name.into(),
        workers: 1,
        unit: "entry",
        units: ENTRIES as f64,
        goal: None,
        input: (),
        digest: |(), moved| moved,
        contenders: vec![
            Contender::new("ours", Role::Ours, move |(), n| ours(&mut first, n)),
            Contender::new("ours again", Role::Control, move |(), n| {
                ours(&mut second, n)
            }),
            Contender::new(PEER, Role::Peer, move |(), n| peer(&mut crossbeam, n)),
        ],
    };
    report.rows.push(contest.run(&options.plan));
}

/// Both ends of the peer's deque.
struct Crossbeam {
    owner: Worker<Words>,
    thief: Stealer<Words>,
}

impl Crossbeam {
    fn new() -> Self {
        let owner = Worker::new_lifo();
        let thief = owner.stealer();
        Self { owner, thief }
    }
}

fn push_and_pop(deque: &mut Crossbeam, iterations: u64) -> (Duration, u64) {
    timed(deque, iterations, |deque| {
        let mut popped = 0;
        for entry in 0..ENTRIES {
            deque.owner.push(black_box([entry as usize; 2]));
            popped += u64::from(black_box(deque.owner.pop()).is_some());
        }
        popped
    })
}

fn steal(deque: &mut Crossbeam, iterations: u64) -> (Duration, u64) {
    let fill = |deque: &mut Crossbeam| {
        for entry in 0..ENTRIES {
            deque.owner.push([entry as usize; 2]);
        }
    };
    timed_with_preparation(deque, iterations, fill, |deque| {
        let mut stolen = 0;
        loop {
            match deque.thief.steal() {
                Steal::Success(entry) => {
                    black_box(entry);
                    stolen += 1;
                }
                Steal::Retry => {}
                Steal::Empty => return stolen,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::Plan;

    #[test]
    fn both_deques_give_back_every_entry_in_every_row() {
        let options = Options {
            plan: Plan {
                rounds: 1,
                side_time: Duration::from_micros(1),
                ..Plan::quick()
            },
            quick: true,
            workers: None,
            filter: None,
            on_postgres: false,
        };
        let mut report = Report::default();
        // A side that lost an entry would disagree with the other one and panic.
        run(&options, &mut report);
        let against: Vec<_> = report.rows.iter().map(|row| row.judged()).collect();
        assert_eq!(against.len(), 3);
        assert!(against.iter().flatten().all(|ratio| ratio.against == PEER));
    }
}
