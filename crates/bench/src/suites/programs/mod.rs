//! Small whole programs, each written the way the users of each library write it. The other suites measure what we work on;
//! this one says whether it helps anybody.
//!
//! The rules: a program is written once for each side, from the public documentation alone, and is committed before anybody
//! has seen a figure of it. It is changed afterwards only if it is wrong or does not compile. Nobody profiles the programs in
//! [`NEVER_PROFILED`], so that they say what changes are worth that were made for others. A change is judged by the geometric
//! means of the families and by the worst row, not by single rows.
//!
//! Each run of a program begins and ends on a thread that is no worker, and the way to the pool is on the clock. Beside each
//! row stands what sharing the work evenly could give at best: the time of the sequential program, divided by the number of
//! workers. Where jobtree's public interface has nothing for what a program needs, its file says so in its head.

mod forks;
mod inputs;
mod loops;
mod memory;
mod program;
mod tasks;

pub use self::memory::PROBES;
use self::program::{AnyProgram, Host, Scale};
use super::Options;
use crate::harness::{Goal, Report, Row, Standing};

/// No program may take longer than this, compared with the fastest peer.
const WORST: f64 = 1.1;
/// The most that programs may take which were slower than a peer when the suite was begun.
const NAMED: f64 = 1.0;

/// The part of the library that a program uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Loops,
    Forks,
    Tasks,
}

impl Family {
    const ALL: [Self; 3] = [Self::Loops, Self::Forks, Self::Tasks];

    fn name(self) -> &'static str {
        match self {
            Self::Loops => "loops",
            Self::Forks => "forks",
            Self::Tasks => "tasks",
        }
    }

    /// The geometric mean that the family's ratios to the fastest peer may have.
    fn mean_at_most(self) -> f64 {
        match self {
            Self::Loops | Self::Forks => 0.9,
            Self::Tasks => 0.6,
        }
    }
}

/// A program in the list.
struct Entry {
    name: &'static str,
    family: Family,
    /// The ratio to the fastest peer that it may have.
    at_most: f64,
    make: fn(Scale) -> Box<dyn AnyProgram>,
}

/// One line for each program: its family, its module, its name, and its goal if it is not [`WORST`].
macro_rules! programs {
    ($($family:ident $folder:ident::$module:ident $name:literal $(<= $at_most:expr)?;)*) => {
        &[$(Entry {
            name: $name,
            family: Family::$family,
            at_most: [WORST $(, $at_most)?][programs!(@count $($at_most)?)],
            make: |scale| Box::new($folder::$module::program(scale)),
        }),*]
    };
    (@count) => { 0 };
    (@count $at_most:expr) => { 1 };
}

/// All programs. A new one goes to the end, so that the others keep their places.
const PROGRAMS: &[Entry] = programs! {
    Loops loops::word_count "word count";
    Loops loops::histogram "histogram";
    Loops loops::group_by "group by";
    Loops loops::k_means "k-means";
    Loops loops::n_body "n-body";
    Loops loops::blur "gaussian blur";
    Loops loops::mandelbrot "mandelbrot";
    Loops loops::matrix_product "matrix product";
    Loops loops::filter_strings "filter and collect strings" <= NAMED;
    Loops loops::map_to_strings "map to strings" <= NAMED;
    Loops loops::prefix_sums "prefix sums";
    Loops loops::sieve "sieve";
    Loops loops::dot_product "dot product";
    Loops loops::json_lines "JSON lines";
    Forks forks::merge_sort "merge sort";
    Forks forks::quicksort_strings "quicksort of strings";
    Forks forks::convex_hull "convex hull";
    Forks forks::suffix_array "suffix array";
    Forks forks::knapsack "knapsack";
    Forks forks::n_queens "n-queens";
    Forks forks::bfs "BFS";
    Forks forks::tree_walk "tree walk";
    Forks forks::directories "directories";
    Forks forks::expression "expression";
    Forks forks::strassen "strassen";
    Tasks tasks::fan_out "fan-out of 100 jobs" <= NAMED;
    Tasks tasks::one_at_a_time "one job at a time" <= NAMED;
    Tasks tasks::request_answer "request and answer";
    Tasks tasks::pipeline "pipeline";
    Tasks tasks::timers "ten thousand timers" <= NAMED;
    Tasks tasks::contended_mutex "contended mutex" <= NAMED;
    Tasks tasks::many_producers "many producers";
    Tasks tasks::skynet "skynet with work";
    Tasks tasks::cancel_tree "cancel of a tree";
    Tasks tasks::first_answer "first answer wins";
    Tasks tasks::crawl "crawl";
    Tasks tasks::broadcast "broadcast of state";
};

/// The programs that nobody profiles or tries variants of: every third of [`PROGRAMS`], counted in the order of the list as it
/// was first committed, so that nobody chose them.
const NEVER_PROFILED: &[&str] = &[
    "group by",
    "gaussian blur",
    "filter and collect strings",
    "sieve",
    "merge sort",
    "suffix array",
    "BFS",
    "expression",
    "one job at a time",
    "ten thousand timers",
    "skynet with work",
    "crawl",
];

/// Runs every program that was asked for, on two workers unless told otherwise.
pub fn run(options: &Options) -> Report {
    let mut report = Report {
        suite: "programs",
        seed: options.plan.seed,
        ..Report::default()
    };
    let host = Host::new(options.workers.unwrap_or(2));
    for entry in PROGRAMS.iter().filter(|entry| options.wants(entry.name)) {
        let program = (entry.make)(Scale::Full);
        let goal = Goal::better_peer(entry.at_most);
        let row = program.compare(entry.name, goal, &host, &options.plan);
        report.rows.push(row);
    }
    host.end();
    memory::run(options, &mut report);
    report.standings = standings(&report.rows);
    let asked: Vec<&str> = (NEVER_PROFILED.iter().copied())
        .filter(|name| options.wants(name))
        .collect();
    if !asked.is_empty() {
        report
            .notes
            .push(format!("never profiled: {}", asked.join(", ")));
    }
    report
}

/// The last lines: how each family stands, those that nobody profiles, and all.
fn standings(rows: &[Row]) -> Vec<Standing> {
    let over = |title: &str, belongs: &dyn Fn(&Entry) -> bool| {
        let ratios: Vec<(String, f64)> = PROGRAMS
            .iter()
            .filter(|entry| belongs(entry))
            .filter_map(|entry| rows.iter().find(|row| row.name == entry.name))
            .filter_map(|row| Some((row.name.clone(), row.better_peer()?.estimate.median)))
            .collect();
        Standing::over(format!("{title}, to the fastest peer"), &ratios)
    };
    let families = Family::ALL.map(|family| {
        let standing = over(family.name(), &|entry| entry.family == family)?;
        Some(standing.with_goals(Some(family.mean_at_most()), None))
    });
    let never_profiled = over("never profiled", &|entry| {
        NEVER_PROFILED.contains(&entry.name)
    });
    let all = over("all", &|_| true).map(|standing| standing.with_goals(None, Some(WORST)));
    families
        .into_iter()
        .chain([never_profiled, all])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suites::shared::shortest;

    /// The first side whose answer is not that of the sequential program.
    fn disagrees(answers: &[(&'static str, [u64; 2])]) -> Option<&'static str> {
        let sequential = answers.iter().find(|(side, _)| *side == "sequential");
        let expected = sequential.expect("every program has a sequential side").1;
        assert_eq!(expected[0], expected[1], "an answer does not repeat itself");
        let other = answers.iter().find(|(_, answer)| *answer != expected);
        other.map(|(side, _)| *side)
    }

    #[test]
    fn every_side_of_every_program_gives_the_sequential_answer() {
        for workers in [1, 2] {
            let host = Host::new(workers);
            for entry in PROGRAMS {
                let answers = (entry.make)(Scale::Small).answers(&host);
                assert_eq!(disagrees(&answers), None, "{}: {answers:x?}", entry.name);
                let sides: Vec<&str> = answers.iter().map(|(side, _)| *side).collect();
                let peers = match entry.family {
                    Family::Loops | Family::Forks => "rayon",
                    Family::Tasks => "tokio",
                };
                for side in ["sequential", "ours", "ours again", peers] {
                    assert!(sides.contains(&side), "{} has no {side}", entry.name);
                }
            }
            host.end();
        }
    }

    #[test]
    fn a_side_with_another_answer_is_found() {
        let host = Host::new(1);
        let program = program::Program::new("call", 1, 7_u64)
            .sequential(|input| *input)
            .ours(|input| *input)
            .rayon(|input| *input + 1);
        assert_eq!(disagrees(&Box::new(program).answers(&host)), Some("rayon"));
        host.end();
    }

    #[test]
    fn there_are_enough_programs_and_every_third_is_never_profiled() {
        assert!(PROGRAMS.len() >= 25);
        let thirds: Vec<&str> = PROGRAMS
            .iter()
            .skip(2)
            .step_by(3)
            .map(|entry| entry.name)
            .collect();
        assert_eq!(thirds, NEVER_PROFILED);
        for (index, entry) in PROGRAMS.iter().enumerate() {
            let before = &PROGRAMS[..index];
            assert!(before.iter().all(|other| other.name != entry.name));
        }
    }

    #[test]
    fn a_row_has_its_limit_and_a_goal_and_the_family_a_standing() {
        let report = run(&shortest("one job at a time"));
        let [row] = &report.rows[..] else {
            panic!("one program was asked for: {:?}", report.rows)
        };
        let figure = |name: &str| {
            let side = row.sides.iter().find(|side| side.name == name);
            side.expect("the side is shown").typical
        };
        assert_eq!(figure(program::LIMIT), figure("sequential") / 2.0);
        assert!(row.judged().is_some());
        let titles: Vec<&str> = report
            .standings
            .iter()
            .map(|standing| &*standing.title)
            .collect();
        assert_eq!(
            titles,
            [
                "tasks, to the fastest peer",
                "never profiled, to the fastest peer",
                "all, to the fastest peer"
            ]
        );
        assert_eq!(report.notes, ["never profiled: one job at a time"]);
    }
}
