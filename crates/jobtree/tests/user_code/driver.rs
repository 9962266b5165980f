//! Runs the cells, and reports.
//!
//! ```sh
//! cargo test -p jobtree --test user_code                                 # a sample, and all cells that ever failed
//! JOBTREE_MATRIX=all cargo test -p jobtree --test user_code              # all
//! JOBTREE_MATRIX=list cargo test -p jobtree --test user_code             # prints the names of all
//! JOBTREE_MATRIX_CELL=waker/sleep cargo test -p jobtree --test user_code # all cells whose names begin so
//! ```
//!
//! `JOBTREE_MATRIX_SEED` repeats a sample, `JOBTREE_MATRIX_LIMIT` is the time limit of a cell in seconds, and
//! `JOBTREE_MATRIX_THREADS` the number of cells that run at a time. `JOBTREE_MATRIX_WORKERS` leaves out the cells of other
//! numbers of workers, `JOBTREE_MATRIX_BEHAVIOUR` those of other behaviours.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::cell::Cell;
use crate::child::{self, Verdict, VerdictKind};
use crate::place::Outcome;

/// The name of the only test of this program.
const TEST: &str = "user_code_matrix";

/// The number of cells of a sample, besides those that failed once. Picked so that a sample takes a few seconds.
const SAMPLE: usize = 300;

/// The time limit of a cell. Cells take milliseconds.
const LIMIT: Duration = Duration::from_secs(10);

/// The lines of a failed cell's output that are shown.
const SHOWN_LINES: usize = 12;

/// Cells that have failed at some time: each sample has them all.
const FAILED_ONCE: &str = include_str!("failed_once.txt");

/// Runs what the environment asks for.
pub fn run() -> ExitCode {
    // Arguments are those of a test program with one test.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{TEST}: test");
        return ExitCode::SUCCESS;
    }
    let filters: Vec<&String> = arguments.iter().filter(|a| !a.starts_with('-')).collect();
    let is_wanted = filters.is_empty() || filters.iter().any(|f| TEST.contains(f.as_str()));
    if !is_wanted || arguments.iter().any(|argument| argument == "--ignored") {
        println!("test result: ok. 0 passed; the matrix was filtered out");
        return ExitCode::SUCCESS;
    }
    let all = Cell::all();
    let failed_once = failed_once(&all);
    let chosen = choose(&all, &failed_once);
    if chosen.is_empty() {
        eprintln!("no cell has this name; names are family/place/behaviour/workers");
        return ExitCode::FAILURE;
    }
    if std::env::var("JOBTREE_MATRIX").is_ok_and(|which| which == "list") {
        chosen.iter().for_each(|cell| println!("{}", cell.name()));
        return ExitCode::SUCCESS;
    }
    let began = Instant::now();
    let verdicts = run_all(chosen);
    report(all.len(), &verdicts, began.elapsed())
}

/// The cells that failed once. Panics if one is not there any more: a row that is renamed must not vanish in silence.
fn failed_once(all: &[Cell]) -> Vec<String> {
    let names: Vec<String> = FAILED_ONCE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    let known: Vec<String> = all.iter().map(Cell::name).collect();
    for name in &names {
        let is_conditional = name.starts_with("tracing/");
        assert!(
            known.contains(name) || is_conditional,
            "failed_once.txt names a cell that is not there: {name}"
        );
    }
    names
}

fn choose(all: &[Cell], failed_once: &[String]) -> Vec<Cell> {
    if let Ok(prefix) = std::env::var("JOBTREE_MATRIX_CELL") {
        let begins_so = |cell: &&Cell| cell.name().starts_with(&prefix);
        return all.iter().filter(begins_so).copied().collect();
    }
    if let Ok(behaviour) = std::env::var("JOBTREE_MATRIX_BEHAVIOUR") {
        let does_so = |cell: &&Cell| cell.behaviour.name() == behaviour;
        return all.iter().filter(does_so).copied().collect();
    }
    if std::env::var("JOBTREE_MATRIX").is_ok_and(|which| which == "all" || which == "list") {
        let workers = number("JOBTREE_MATRIX_WORKERS");
        let is_chosen = |cell: &&Cell| workers.is_none_or(|workers| cell.workers == workers);
        return all.iter().filter(is_chosen).copied().collect();
    }
    let seed = number("JOBTREE_MATRIX_SEED").unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        now.map_or(0, |now| now.as_secs() as usize)
    });
    let applicable: Vec<Cell> = all.iter().filter(is_applicable).copied().collect();
    let step = (applicable.len() / SAMPLE).max(1);
    println!("sample: every {step}th cell, JOBTREE_MATRIX_SEED={seed}");
    let sampled = applicable.iter().skip(seed % step).step_by(step);
    let mut chosen: Vec<Cell> = sampled.copied().collect();
    let is_new = |cell: &&Cell| {
        let name = cell.name();
        failed_once.contains(&name) && chosen.iter().all(|other| other.name() != name)
    };
    let more: Vec<Cell> = applicable.iter().filter(is_new).copied().collect();
    chosen.extend(more);
    chosen
}

fn is_applicable(cell: &&Cell) -> bool {
    let outcome = cell.place.outcome(cell.behaviour);
    !matches!(outcome, Outcome::NotApplicable(_))
}

fn number(variable: &str) -> Option<usize> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} must be a number, not {text:?}")))
}

fn run_all(cells: Vec<Cell>) -> Vec<Verdict> {
    let limit = number("JOBTREE_MATRIX_LIMIT").map_or(LIMIT, |s| Duration::from_secs(s as u64));
    let threads = number("JOBTREE_MATRIX_THREADS").unwrap_or(2);
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(&cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let verdict = child::run(cell, limit);
                    if let VerdictKind::Failed(why) = &verdict.kind {
                        println!("FAILED {}: {why}", cell.name());
                    }
                    verdicts.lock().unwrap().push(verdict);
                }
            });
        }
    });
    verdicts.into_inner().unwrap()
}

/// The counts of a family of places: ended, refused, not applicable, failed.
type Counts = [usize; 4];

fn report(size: usize, verdicts: &[Verdict], time: Duration) -> ExitCode {
    let mut families: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut total = Counts::default();
    let mut slowest = Duration::ZERO;
    for verdict in verdicts {
        let family = verdict
            .cell
            .place
            .name
            .split('/')
            .next()
            .unwrap_or_default();
        let column = match verdict.kind {
            VerdictKind::Ended => 0,
            VerdictKind::Refused => 1,
            VerdictKind::NotApplicable => 2,
            VerdictKind::Failed(_) => 3,
        };
        families.entry(family).or_default()[column] += 1;
        total[column] += 1;
        slowest = slowest.max(verdict.took);
    }
    let mut failed: Vec<&Verdict> = verdicts.iter().filter(is_failed).collect();
    failed.sort_by_key(|verdict| verdict.cell.name());
    for verdict in &failed {
        show(verdict);
    }
    println!(
        "\n{:<14}{:>8}{:>9}{:>7}{:>8}",
        "family", "ended", "refused", "n/a", "failed"
    );
    for (family, counts) in families.iter().chain([(&"total", &total)]) {
        let [ended, refused, not_applicable, failed] = counts;
        println!("{family:<14}{ended:>8}{refused:>9}{not_applicable:>7}{failed:>8}");
    }
    println!(
        "\nthe matrix has {size} cells; {} were looked at, in {time:.1?}; the slowest took {slowest:.1?}",
        verdicts.len()
    );
    if failed.is_empty() {
        println!("test result: ok. every cell has its right outcome");
        ExitCode::SUCCESS
    } else {
        println!("test result: FAILED. {} cells", failed.len());
        ExitCode::FAILURE
    }
}

fn is_failed(verdict: &&Verdict) -> bool {
    matches!(verdict.kind, VerdictKind::Failed(_))
}

fn show(verdict: &Verdict) {
    let name = verdict.cell.name();
    println!("\n--- {name}: {:?}", verdict.kind);
    let lines: Vec<&str> = verdict.output.lines().collect();
    for line in lines.iter().take(SHOWN_LINES) {
        println!("    {line}");
    }
    if lines.len() > SHOWN_LINES {
        println!("    ({} more lines)", lines.len() - SHOWN_LINES);
    }
    println!("  again: JOBTREE_MATRIX_CELL={name} cargo test -p jobtree --test user_code");
}
