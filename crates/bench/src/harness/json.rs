//! The report as one JSON document, for programs.

use serde_json::{Value, json};

use super::report::{Fact, Reference, Report, Row, Standing, Verdict};
use super::stats::Estimate;

/// The whole report; every figure of the table and some more.
pub fn render(report: &Report) -> Value {
    json!({
        "suite": report.suite,
        "version": env!("CARGO_PKG_VERSION"),
        "cpus": std::thread::available_parallelism().map_or(1, |count| count.get()),
        "seed": report.seed,
        "void": !report.void_rows().is_empty(),
        "met": report.count(Verdict::Pass),
        "missed": report.count(Verdict::Miss),
        "rows": report.rows.iter().map(row).collect::<Vec<_>>(),
        "facts": report.facts.iter().map(fact).collect::<Vec<_>>(),
        "standings": report.standings.iter().map(standing).collect::<Vec<_>>(),
        "notes": report.notes,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "name": row.name,
        "workers": row.workers,
        "unit": row.unit,
        "rounds": row.rounds,
        "sides": row.sides.iter().map(|side| json!({ "name": side.name, "ns": side.typical })).collect::<Vec<_>>(),
        "ratios": row.ratios.iter().map(|ratio| json!({
            "against": ratio.against,
            "ratio": estimate(&ratio.estimate),
        })).collect::<Vec<_>>(),
        "goal": row.goal.map(|goal| json!({
            "at_most": goal.at_most,
            "against": match goal.reference {
                Reference::Sequential => "sequential",
                Reference::BetterPeer => "better peer",
                Reference::Side(name) => name,
                Reference::Clock => "ns",
            },
        })),
        "judged": row.judged().map(|ratio| ratio.against),
        "better_peer": row.better_peer().map(|ratio| ratio.against),
        "control": row.control.as_ref().map(estimate),
        "verdict": verdict(row.verdict()),
    })
}

fn fact(fact: &Fact) -> Value {
    json!({
        "name": fact.name,
        "value": fact.value,
        "unit": fact.unit,
        "at_most": fact.at_most,
        "verdict": verdict(fact.verdict()),
    })
}

fn standing(standing: &Standing) -> Value {
    let [mean, worst] = standing.verdicts().map(verdict);
    json!({
        "title": standing.title,
        "rows": standing.rows,
        "geometric_mean": standing.geometric_mean,
        "worst": standing.worst,
        "worst_row": standing.worst_row,
        "mean_at_most": standing.mean_at_most,
        "mean_verdict": mean,
        "worst_at_most": standing.worst_at_most,
        "worst_verdict": worst,
    })
}

fn estimate(estimate: &Estimate) -> Value {
    json!({ "median": estimate.median, "low": estimate.low, "high": estimate.high })
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Miss => "miss",
        Verdict::Shown => "shown",
        Verdict::Void => "void",
    }
}
