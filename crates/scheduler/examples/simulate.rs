//! Runs simulations: `simulate [one|three|bursts|mixed|storm|storms|storm-of-bursts|mixed-storm] [first seed] [how many]`. Prints each failing
//! seed with its last steps, and ends with status 1 if there was one.

use jobtree_scheduler::sim::{Scenario, run};

fn main() {
    let mut args = std::env::args().skip(1);
    let scenario = match args.next().as_deref() {
        None | Some("one") => Scenario::one(),
        Some("three") => Scenario::three(),
        Some("bursts") => Scenario::bursts(),
        Some("mixed") => Scenario::mixed(),
        Some("storm") => Scenario::one().stormy(),
        Some("storms") => Scenario::three().stormy(),
        Some("storm-of-bursts") => Scenario::bursts().stormy(),
        Some("mixed-storm") => Scenario::mixed().stormy(),
        Some(other) => {
            eprintln!(
                "{other:?} is not a scenario: use one, three, bursts, mixed, storm, storms, storm-of-bursts or \
                 mixed-storm"
            );
            std::process::exit(2);
        }
    };
    let number = |text: Option<String>, or: u64| {
        text.map_or(or, |text| text.parse().expect("seeds are whole numbers"))
    };
    let first = number(args.next(), 0);
    let count = number(args.next(), 100);
    let mut failed = 0;
    let mut sum = jobtree_scheduler::sim::Report::default();
    for seed in first..first + count {
        match run(seed, &scenario) {
            Ok(report) => {
                sum.steps += report.steps;
                sum.done += report.done;
                sum.not_done += report.not_done;
                sum.expired += report.expired;
                sum.store_failures += report.store_failures;
                sum.restarts += report.restarts;
                sum.refusals += report.refusals;
                sum.time += report.time;
            }
            Err(failure) => {
                eprintln!("{failure}");
                failed += 1;
            }
        }
    }
    println!("{} of {count} seeds held: {sum:?}", count - failed);
    if failed > 0 {
        std::process::exit(1);
    }
}
