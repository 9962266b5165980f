//! The report as text: one table for each number of workers, then the facts, the standings and the verdict.

use std::fmt::Write as _;

use super::contest::Role;
use super::report::{Fact, Goal, Reference, Report, Row, Verdict};

/// Writes the whole report for people.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let mut counts: Vec<usize> = report.rows.iter().map(|row| row.workers).collect();
    counts.dedup();
    for workers in counts {
        let rows: Vec<&Row> = report
            .rows
            .iter()
            .filter(|row| row.workers == workers)
            .collect();
        let _ = writeln!(text, "\n{} on {workers} worker(s), ns a unit", report.suite);
        text.push_str(&comparison_table(&rows));
    }
    if !report.facts.is_empty() {
        text.push('\n');
        text.push_str(&align(
            &report.facts.iter().map(fact_cells).collect::<Vec<_>>(),
        ));
    }
    text.push('\n');
    let (met, missed) = (report.count(Verdict::Pass), report.count(Verdict::Miss));
    let _ = writeln!(
        text,
        "goals: {met} met, {missed} missed; order of sides from seed {:#x}",
        report.seed
    );
    for row in report.void_rows() {
        let off = row
            .control
            .map_or(0.0, |control| (control.median - 1.0) * 100.0);
        let _ = writeln!(
            text,
            "VOID: {}, {} worker(s): ours against ours is off by {off:+.1} %",
            row.name, row.workers
        );
    }
    if !report.void_rows().is_empty() {
        text.push_str("VOID: this machine was too noisy; close other programs and run again\n");
    }
    for standing in &report.standings {
        let [mean, worst] = standing.verdicts();
        let _ = writeln!(
            text,
            "{} ({} rows): geometric mean {:.3}{}, worst {:.3} ({}){}",
            standing.title,
            standing.rows,
            standing.geometric_mean,
            reached_text(standing.mean_at_most, mean),
            standing.worst,
            standing.worst_row,
            reached_text(standing.worst_at_most, worst),
        );
    }
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    text
}

/// Returns a standing's goal and whether it was met; nothing if there was none.
fn reached_text(at_most: Option<f64>, verdict: Verdict) -> String {
    let reached = match verdict {
        Verdict::Pass => "met",
        _ => "MISSED",
    };
    at_most.map_or_else(String::new, |limit| {
        format!(" [goal <= {limit}: {reached}]")
    })
}

fn comparison_table(rows: &[&Row]) -> String {
    let mut side_names: Vec<&str> = Vec::new();
    for side in rows.iter().flat_map(|row| &row.sides) {
        // The control's own figure says nothing that its ratio does not.
        if side.role != Role::Control && !side_names.contains(&side.name) {
            side_names.push(side.name);
        }
    }
    let mut header: Vec<String> = vec!["workload".into(), "unit".into()];
    header.extend(side_names.iter().map(|name| name.to_string()));
    header.extend(
        [
            "ratio [95 %]",
            "to",
            "goal",
            "verdict",
            "control",
            "better peer",
        ]
        .map(String::from),
    );

    let mut lines = vec![header];
    for row in rows {
        let mut cells = vec![row.name.clone(), row.unit.into()];
        for name in &side_names {
            let figure = row.sides.iter().find(|side| side.name == *name);
            cells.push(figure.map_or("-".into(), |side| figure_text(side.typical)));
        }
        match row.judged() {
            Some(ratio) => {
                let estimate = ratio.estimate;
                cells.push(format!(
                    "{:.3} [{:.3}..{:.3}]",
                    estimate.median, estimate.low, estimate.high
                ));
                cells.push(ratio.against.into());
            }
            None => cells.extend(["-".into(), "-".into()]),
        }
        cells.push(row.goal.as_ref().map_or("-".into(), goal_text));
        cells.push(row.verdict().name().into());
        cells.push(
            row.control
                .map_or("-".into(), |control| format!("{:.3}", control.median)),
        );
        cells.push(
            row.better_peer()
                .map_or("-".into(), |ratio| format!("{:.3}", ratio.estimate.median)),
        );
        lines.push(cells);
    }
    align(&lines)
}

fn goal_text(goal: &Goal) -> String {
    let against = match goal.reference {
        Reference::Sequential => "sequential",
        Reference::BetterPeer => "better peer",
        Reference::Side(name) => name,
        Reference::Clock => return format!("<= {} ns", goal.at_most),
    };
    format!("<= {} x {against}", goal.at_most)
}

fn fact_cells(fact: &Fact) -> Vec<String> {
    let limit = fact
        .at_most
        .map_or(String::new(), |limit| format!("<= {}", figure_text(limit)));
    vec![
        fact.name.clone(),
        figure_text(fact.value),
        fact.unit.into(),
        limit,
        fact.verdict().name().into(),
    ]
}

/// Three digits that mean something, whatever the size.
fn figure_text(figure: f64) -> String {
    match figure.abs() {
        _ if figure.fract() == 0.0 => format!("{figure:.0}"),
        size if size >= 100.0 => format!("{figure:.0}"),
        size if size >= 10.0 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// Pads the cells of each column to one width: the first to the left, those that look like numbers to the right.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (column, cell) in line.iter().enumerate() {
            let numeric = cell.starts_with(|first: char| first.is_ascii_digit()) && column > 0;
            let width = widths[column];
            let _ = if numeric {
                write!(row, "{cell:>width$}  ")
            } else {
                write!(row, "{cell:<width$}  ")
            };
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::{Standing, Tolerance};
    use super::super::rounds::Rounds;
    use super::*;

    fn report(control: f64) -> Report {
        let sides = [
            ("ours", Role::Ours),
            ("control", Role::Control),
            ("rayon", Role::Peer),
        ];
        let rounds =
            Rounds::from_figures([4.0, control, 16.0].map(|figure| vec![figure; 9]).to_vec());
        let goal = Goal::better_peer(0.5);
        Report {
            suite: "forkjoin",
            seed: 1,
            rows: vec![Row::new(
                "fib".into(),
                2,
                "call",
                goal,
                &sides,
                &rounds,
                Tolerance::Strict,
            )],
            facts: vec![Fact {
                name: "switches of an idle pool".into(),
                value: 0.0,
                unit: "",
                at_most: Some(0.0),
            }],
            standings: Standing::over("to the better peer", &[("fib".into(), 0.25)])
                .into_iter()
                .collect(),
            notes: Vec::new(),
        }
    }

    #[test]
    fn a_good_run_shows_ratio_goal_and_verdict_and_ends_with_the_standing() {
        let text = render(&report(4.0));
        let row = text.lines().find(|line| line.starts_with("fib")).unwrap();
        for cell in [
            "0.250 [0.250..0.250]",
            "rayon",
            "<= 0.5 x better peer",
            "pass",
            "1.000",
        ] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
        assert!(!text.contains("VOID"));
        assert_eq!(
            text.lines().last(),
            Some("to the better peer (1 rows): geometric mean 0.250, worst 0.250 (fib)")
        );
    }

    #[test]
    fn a_standing_with_goals_says_which_were_met() {
        let mut report = report(4.0);
        let standing = report.standings.remove(0);
        report.standings = vec![standing.with_goals(Some(0.5), Some(0.2))];
        report.notes = vec!["never profiled: fib".into()];
        let text = render(&report);
        assert!(
            text.contains(
                "geometric mean 0.250 [goal <= 0.5: met], worst 0.250 (fib) [goal <= 0.2: MISSED]"
            ),
            "{text}"
        );
        assert!(text.contains("goals: 3 met, 1 missed"), "{text}");
        assert_eq!(text.lines().last(), Some("never profiled: fib"));
    }

    #[test]
    fn a_void_run_says_so() {
        let text = render(&report(5.0));
        assert!(
            text.contains("VOID: fib, 2 worker(s): ours against ours is off by +25.0 %"),
            "{text}"
        );
    }

    #[test]
    fn a_goal_in_nanoseconds_names_nobody() {
        assert_eq!(
            Goal::nanoseconds(10.0).as_ref().map(goal_text),
            Some("<= 10 ns".into())
        );
    }

    #[test]
    fn figures_keep_three_digits() {
        assert_eq!(
            [0.0, 1.234, 12.34, 123.4, 123_456.7].map(figure_text),
            ["0", "1.23", "12.3", "123", "123457"]
        );
    }
}
