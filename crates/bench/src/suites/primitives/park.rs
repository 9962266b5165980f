//! Parking a stack and resuming it: two tasks on one worker, each of which waits for the other in turn.

use jobtree_pool::{OnceLatch, Pool, scope};

use super::Options;
use crate::harness::{Contender, Contest, Report, Role, timed_with_preparation};

const NAME: &str = "park and resume through a latch";

/// How many times each of the two waits in one iteration.
const TURNS: usize = 1000;

/// The latches of one iteration, a pair a turn.
type Turns = Vec<(OnceLatch, OnceLatch)>;

/// Adds the row. Nobody else has the like, so there is only ours.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let pool = Pool::builder().workers(1).build().expect("our pool starts");
    let play = |turns: &mut Turns, iterations| {
        pool.install(|| {
            timed_with_preparation(turns, iterations, prepare, |turns| ping_pong(turns))
        })
    };
    let contest = Contest {
        name: NAME.into(),
        workers: 1,
        unit: "wait",
        units: (2 * TURNS) as f64,
        goal: None,
        input: Turns::new(),
        digest: |_, result| result,
        contenders: vec![
            Contender::new("ours", Role::Ours, play),
            Contender::new("ours again", Role::Control, play),
        ],
    };
    report.rows.push(contest.run(&options.plan));
}

/// A latch is set once, so each iteration needs new ones.
fn prepare(turns: &mut Turns) {
    turns.clear();
    turns.extend((0..TURNS).map(|_| (OnceLatch::new(), OnceLatch::new())));
}

fn ping_pong(turns: &Turns) -> u64 {
    scope(|scope| {
        scope.spawn(|_| {
            for (ping, pong) in turns {
                ping.wait();
                pong.set();
            }
        });
        for (ping, pong) in turns {
            ping.set();
            pong.wait();
        }
    });
    turns
        .iter()
        .filter(|(ping, pong)| ping.is_set() && pong.is_set())
        .count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_have_all_their_turns() {
        let mut turns = Turns::new();
        prepare(&mut turns);
        let pool = Pool::builder().workers(1).build().unwrap();
        assert_eq!(pool.install(|| ping_pong(&turns)), TURNS as u64);
    }
}
