//! A deadline that does not come: set, and taken back, while 100 000 others wait. Almost all deadlines are like that.
//!
//! Our wheel by itself has no lock; behind one, taken for each of the two calls, it does what tokio's does when a sleep
//! is polled and dropped. No deadline comes while this runs, and none is before those that wait: nobody is woken.

use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::Mutex;
use std::task::{Context, Waker};
use std::time::Duration;

use jobtree_tree::{TimerKey, Wheel};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Options, PEER, Spec, tokio_runtime};
use crate::harness::{Contender, Report, Role, SplitMix64, timed};

const NAME: &str = "deadline set and taken back, 100000 wait";

const PENDING: u64 = 100_000;
/// How many deadlines one iteration sets.
const DEADLINES: u64 = 1000;
/// All deadlines are at least this far away, in milliseconds, and less than twice.
const HOUR: u64 = 3_600_000;

/// Where the deadlines come from.
const SEED: u64 = 42;

/// Adds the row.
pub fn run(options: &Options, report: &mut Report) {
    if !options.wants(NAME) {
        return;
    }
    let (mut first, mut second, locked) = (wheel(), wheel(), Mutex::new(wheel()));
    let tokio = tokio_runtime(1);
    let _inside = tokio.enter();
    let sleeps = Sleeps::new();
    let deadlines = deadlines(DEADLINES);
    let alone = |wheel: &mut Wheel<u64>, iterations| {
        timed(wheel, iterations, |wheel| {
            let mut taken = 0;
            for &deadline in &deadlines {
                let key = wheel.insert(deadline, deadline);
                taken += u64::from(wheel.cancel(black_box(key)).is_some());
            }
            taken
        })
    };
    let insert = |deadline| locked.lock().expect("nobody panics").insert(deadline, 0);
    let cancel = |key: TimerKey| locked.lock().expect("nobody panics").cancel(key);
    Spec::on_one_thread(NAME, "deadline", DEADLINES).run(
        &options.plan,
        vec![
            Contender::new("ours", Role::Ours, |(), n| alone(&mut first, n)),
            Contender::new("ours again", Role::Control, |(), n| alone(&mut second, n)),
            Contender::new("ours, locked", Role::Variant, |(), iterations| {
                timed(&mut (), iterations, |()| {
                    let keys = deadlines.iter().map(|&deadline| insert(deadline));
                    keys.filter_map(|key| cancel(black_box(key))).count() as u64
                })
            }),
            Contender::new(PEER, Role::Peer, |(), iterations| {
                timed(&mut (), iterations, |()| {
                    let ends = deadlines.iter().map(|&deadline| sleeps.at(deadline));
                    ends.filter(|&end| is_pending(pin!(sleep_until(black_box(end)))))
                        .count() as u64
                })
            }),
        ],
        report,
    );
}

fn deadlines(count: u64) -> Vec<u64> {
    let mut rng = SplitMix64::new(SEED);
    (0..count).map(|_| HOUR + 1 + rng.next() % HOUR).collect()
}

fn wheel() -> Wheel<u64> {
    let mut wheel = Wheel::new();
    wheel.insert(HOUR, 0);
    for deadline in deadlines(PENDING - 1) {
        wheel.insert(deadline, deadline);
    }
    wheel
}

/// As many timers of tokio's that wait. To be made and used inside its runtime.
struct Sleeps {
    start: Instant,
    pending: Vec<Pin<Box<Sleep>>>,
}

impl Sleeps {
    fn new() -> Self {
        let mut sleeps = Self {
            start: Instant::now(),
            pending: Vec::new(),
        };
        for deadline in [HOUR].into_iter().chain(deadlines(PENDING - 1)) {
            let mut sleep = Box::pin(sleep_until(sleeps.at(deadline)));
            assert!(is_pending(sleep.as_mut()), "an hour is over");
            sleeps.pending.push(sleep);
        }
        sleeps
    }

    fn at(&self, deadline: u64) -> Instant {
        self.start + Duration::from_millis(deadline)
    }
}

/// Polls it, by which it is entered among the timers.
fn is_pending(sleep: Pin<&mut Sleep>) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    sleep.poll(&mut context).is_pending()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    #[test]
    fn each_side_takes_back_every_deadline() {
        let mut report = Report::default();
        // A side that lost one would disagree with the others and panic.
        run(&shortest(NAME), &mut report);
        assert_eq!(report.rows[0].sides.len(), 4);
    }

    #[test]
    fn as_many_wait_as_the_name_says() {
        let mut wheel = wheel();
        assert_eq!(wheel.len() as u64, PENDING);
        assert!(NAME.contains(&PENDING.to_string()));
        assert!(wheel.pop_expired(HOUR - 1).is_none());
        assert!(wheel.pop_expired(HOUR).is_some());
    }
}
