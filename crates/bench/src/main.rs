//! jobtree side by side with its peers: `cargo run --release -p jobtree-bench -- <suite>`.
//!
//! The report goes to standard output, progress to standard error. The exit code is 0 if the run is valid, whether or
//! not every goal was met; 3 if the control was off and the run is void; 2 if the command line makes no sense.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod alone;
mod harness;
mod postgres;
mod servant;
mod sides;
mod suites;
#[cfg(target_os = "linux")]
mod threads;
mod workloads;

use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use crate::harness::Plan;
use crate::suites::{ALL, Options};

/// What the process ends with if ours against ours is off by more than the method allows.
const VOID: u8 = 3;

fn main() -> ExitCode {
    let matches = command().get_matches();
    let Some((name, arguments)) = matches.subcommand() else {
        unreachable!("clap asks for a suite");
    };
    if name == alone::COMMAND {
        return alone::run_in_this_process(suites::PROBES, arguments);
    }
    if name == servant::COMMAND {
        return servant::serve(suites::SERVICES, arguments);
    }
    let Some(suite) = ALL.iter().find(|suite| suite.name == name) else {
        unreachable!("clap knows the suites from the same list");
    };
    if cfg!(debug_assertions) {
        eprintln!(
            "warning: built without optimisation; use `cargo run --release -p jobtree-bench -- {name}`"
        );
    }
    eprintln!("{name}:");
    let report = (suite.run)(&options(arguments));
    if report.rows.is_empty() && report.facts.is_empty() {
        eprintln!("error: no row's name contains that filter");
        return ExitCode::from(2);
    }
    if arguments.get_flag("json") {
        println!("{}", harness::json(&report));
    } else {
        print!("{}", harness::table(&report));
    }
    if report.void_rows().is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(VOID)
    }
}

fn command() -> Command {
    let suites = ALL.iter().map(|suite| {
        Command::new(suite.name)
            .about(suite.about)
            .args(suite_arguments())
    });
    Command::new("jobtree-bench")
        .about("Runs jobtree and its peers in turn, and compares them pair by pair")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommands(suites)
        .subcommand(alone::command(suites::PROBES))
        .subcommand(servant::command())
}

fn suite_arguments() -> [Arg; 7] {
    [
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print one JSON document instead of tables"),
        Arg::new("quick")
            .long("quick")
            .action(ArgAction::SetTrue)
            .help("Fewer rounds: wide intervals, soon done"),
        Arg::new("filter")
            .long("filter")
            .value_name("PART")
            .help("Only rows whose name contains PART"),
        Arg::new("workers")
            .long("workers")
            .value_name("N")
            .value_parser(value_parser!(u16).range(1..=1024))
            .help("Only on N workers (without it: on 1 and on 2)"),
        Arg::new("rounds")
            .long("rounds")
            .value_name("N")
            .value_parser(value_parser!(u16).range(1..))
            .help("How often each side is measured"),
        Arg::new("seed")
            .long("seed")
            .value_name("N")
            .value_parser(value_parser!(u64))
            .help("Where the order of the sides comes from"),
        Arg::new("store")
            .long("store")
            .value_name("STORE")
            .value_parser(["sqlite", "postgres"])
            .default_value("sqlite")
            .help(
                "Database of the durable queue (suite queue): postgres starts a server of its own",
            ),
    ]
}

fn options(arguments: &ArgMatches) -> Options {
    let quick = arguments.get_flag("quick");
    let mut plan = if quick { Plan::quick() } else { Plan::full() };
    if let Some(&rounds) = arguments.get_one::<u16>("rounds") {
        plan.rounds = usize::from(rounds);
    }
    if let Some(&seed) = arguments.get_one::<u64>("seed") {
        plan.seed = seed;
    }
    Options {
        plan,
        quick,
        workers: arguments
            .get_one::<u16>("workers")
            .map(|&workers| usize::from(workers)),
        filter: arguments.get_one::<String>("filter").cloned(),
        on_postgres: arguments
            .get_one::<String>("store")
            .is_some_and(|store| store == "postgres"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn options_come_from_the_command_line() {
        let parse = |line: &str| {
            let matches = command().try_get_matches_from(line.split(' ')).unwrap();
            options(matches.subcommand().unwrap().1)
        };
        let options = parse("bench forkjoin --quick --workers 3 --filter fib --seed 9 --rounds 11");
        assert_eq!(
            (options.workers, options.filter.as_deref()),
            (Some(3), Some("fib"))
        );
        assert_eq!((options.plan.seed, options.plan.rounds), (9, 11));
        assert_eq!(parse("bench forkjoin").plan.rounds, Plan::full().rounds);
        assert!(parse("bench queue --store postgres").on_postgres);
        assert!(!parse("bench queue").on_postgres);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "bench",
            "bench nosuchsuite",
            "bench forkjoin --workers 0",
            "bench forkjoin --workers many",
            "bench queue --store paper",
            "bench alone nosuchprobe 1",
            "bench alone",
        ] {
            assert!(
                command().try_get_matches_from(line.split(' ')).is_err(),
                "{line}"
            );
        }
    }
}
