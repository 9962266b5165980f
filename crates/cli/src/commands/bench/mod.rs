//! `jobtree bench`: what a fork costs on this machine, and how work scales over its cores, in under 20 seconds.

mod bars;
mod clock;
mod fork_cost;
mod machine;
mod render;
mod scaling;
mod work;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use self::clock::Clock;
use self::render::Glyphs;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// All that was found out.
struct Findings {
    machine: machine::Machine,
    costs: Vec<fork_cost::Cost>,
    wake: fork_cost::Wake,
    curves: Vec<scaling::Curve>,
    took: Duration,
}

/// Adds the arguments.
pub fn define(command: Command) -> Command {
    command
        .about("Show what a fork costs here and how it scales, in under 20 seconds")
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(value_parser!(u16).range(1..=1024))
                .help("Scale up to N workers (without it: JOBTREE_WORKERS, or all CPUs of this process)"),
        )
        .arg(flag("quick", "Be done in about two seconds; the figures are rough"))
        .arg(flag("ascii", "Draw with ASCII only (chosen by itself when the output is not a UTF-8 terminal)"))
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .long(name)
        .action(ArgAction::SetTrue)
        .help(help)
}

/// Measures and prints.
pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    if cfg!(debug_assertions) {
        eprintln!("warning: built without optimisation; use `cargo run --release -- bench`");
    }
    let asked = arguments
        .get_one::<u16>("workers")
        .map(|&workers| usize::from(workers));
    let findings = find_out(asked, arguments.get_flag("quick"))?;

    if context.out.json {
        context.out.document(&render::json(&findings))?;
    } else {
        let mut output = io::stdout().lock();
        let fancy = !arguments.get_flag("ascii") && output.is_terminal() && locale_is_utf8();
        let glyphs = if fancy { Glyphs::Blocks } else { Glyphs::Ascii };
        write!(output, "{}", render::text(&findings, glyphs))?;
        output.flush()?;
    }
    Ok(Exit::OK)
}

fn find_out(workers: Option<usize>, quick: bool) -> Result<Findings, CliError> {
    let machine = machine::Machine::look(workers)?;
    let counts = scaling::worker_counts(machine.workers);
    // Each cost is two measurements, each curve one for each number of workers and one without forks.
    let measurements =
        2 * fork_cost::COSTS + scaling::PASSES * scaling::CURVES * (counts.len() + 1);
    let mut clock = Clock::new(
        if quick {
            Duration::from_secs(1)
        } else {
            Duration::from_secs(12)
        },
        measurements,
    );
    let costs = fork_cost::costs(&mut clock)?;
    let wake = fork_cost::wake(&machine, quick)?;
    let curves = scaling::curves(&mut clock, &counts, quick)?;
    Ok(Findings {
        machine,
        costs,
        wake,
        curves,
        took: clock.elapsed(),
    })
}

/// Whether the terminal shows more than ASCII, by the variables that say so, in the order in which they count.
fn locale_is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL")
        .or_else(|| set("LC_CTYPE"))
        .or_else(|| set("LANG"))
        .unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}
