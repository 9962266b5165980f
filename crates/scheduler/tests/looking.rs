//! What others write to a shared store is looked for in steady intervals, whatever else is read meanwhile.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use jobtree_queue::Now;
use jobtree_queue::policy::Policy;
use jobtree_scheduler::Options;
use jobtree_scheduler::core::{Answered, Core, Input, Live, Op, Output};
use watchdog::Watchdog;

/// Answers what is asked of an empty store, until nothing is asked any more. How often all that waits was read.
fn answered(core: &mut Core, mut outputs: Vec<Output>, now: Now) -> usize {
    let mut looks = 0;
    loop {
        let mut answers = Vec::new();
        for output in outputs {
            let Output::Op { id, op, .. } = output else {
                continue;
            };
            let answer = match op {
                Op::ReadLive => Answered::Live(Live::default()),
                Op::ReadQueued(_) => {
                    looks += 1;
                    Answered::Queued(Vec::new())
                }
                Op::ReadNotes => Answered::Notes(Vec::new()),
                _ => Answered::Done,
            };
            let answer = Ok(Box::new(answer));
            answers.push(Input::Answer { op: id, answer });
        }
        if answers.is_empty() {
            return looks;
        }
        outputs = core.step(answers, now);
    }
}

#[test]
fn a_look_is_not_put_off_by_smaller_ones() {
    let _watchdog = Watchdog::watching("looks");
    let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let at = |seconds: u64| Now {
        wall: start + Duration::from_secs(seconds),
        mono: Duration::from_secs(seconds),
    };
    let options = Options {
        shared: true,
        look: Duration::from_secs(5),
        ..Options::default()
    };
    let mut core = Core::new(&options, Arc::new(Policy::default()), 7, at(0));
    let begun = core.begin(at(0));
    assert_eq!(
        answered(&mut core, begun, at(0)),
        1,
        "all is read at the start"
    );
    // Each second somebody fires a schedule: what is live is read again.
    let mut looks = 0;
    for second in 1..=60 {
        let outputs = core.step([Input::Settings], at(second));
        looks += answered(&mut core, outputs, at(second));
    }
    assert!((10..=20).contains(&looks), "{looks} looks in a minute");
}
