//! Runs simulations: `simulate [one|three|storm|storms] [first seed] [how many]`. A failing seed is told with its last steps.

use jobtree_scheduler::sim::{Scenario, run};

fn main() {
    let mut args = std::env::args().skip(1);
    let scenario = match args.next().as_deref() {
        None | Some("one") => Scenario::one(),
        Some("three") => Scenario::three(),
        Some("storm") => Scenario::one().stormy(),
        Some("storms") => Scenario::three().stormy(),
        Some(other) => {
            eprintln!("{other:?} is no scenario: write one, three, storm or storms");
            std::process::exit(2);
        }
    };
    let number = |text: Option<String>, or: u64| {
        text.map_or(or, |text| text.parse().expect("seeds are whole numbers"))
    };
    let first = number(args.next(), 0);
    let count = number(args.next(), 100);
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
                std::process::exit(1);
            }
        }
    }
    println!("{count} seeds held: {sum:?}");
}
