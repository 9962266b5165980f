//! `jobtree explain`: why a job does not run.

use clap::{ArgMatches, Command};
use jobtree_protocol::{EstimateBasis, JobCost};

use crate::args::{self, JOB, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::when::{localized, shown};

pub fn define(command: Command) -> Command {
    command
        .about("Tell why a job waits, and until when")
        .arg(place("job", "JOB", JOB).required(true))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let id = names::job(&client, &args::needed::<String>(arguments, "job")?)?;
    let explained = client.explain(id)?;
    if context.out.json {
        context.out.document(&explained)?;
        return Ok(Exit::OK);
    }
    if explained.reasons.is_empty() {
        let state = client.job(id)?.state;
        let told = match state.is_ended() {
            true => format!("nothing is in its way: it is {state}"),
            false => format!("nothing is in its way: it is {state}, and goes on by itself"),
        };
        context.out.print(&told)?;
    }
    for reason in &explained.reasons {
        let message = localized(&reason.message);
        context.out.print(&format!("{}: {message}", reason.code))?;
        if let Some(since) = reason.since {
            context.out.print(&format!("  since {}", shown(since)))?;
        }
        context
            .out
            .print(&format!("  until {}", localized(&reason.change)))?;
    }
    if let Some(cost) = explained.cost {
        context.out.print(&cost_line(&cost))?;
    }
    if let Some(estimate) = explained.estimate {
        let basis = match estimate.basis {
            EstimateBasis::Schedule => "its own start time",
            EstimateBasis::RunningLeases => "what runs now",
            EstimateBasis::QuietProfile => "this machine's quiet hours",
        };
        let at = shown(estimate.start_at);
        let sure = estimate.confidence * 100.0;
        context
            .out
            .print(&format!("probably at {at}, by {basis} ({sure:.0} % sure)"))?;
    }
    Ok(Exit::OK)
}

/// Returns what the job declares, what it is charged, and what was measured of its type, in a line.
fn cost_line(cost: &JobCost) -> String {
    let mut line = format!("cost: {} declared", cost.declared);
    if cost.charged != cost.declared {
        line += &format!(", {} charged", cost.charged);
    }
    match cost
        .measured
        .and_then(|usage| Some((usage.measured_cost?, usage.runs)))
    {
        Some((measured, runs)) => {
            line + &format!(", {measured:.1} measured in {runs} runs of its type")
        }
        None => line + ", none measured of its type",
    }
}
