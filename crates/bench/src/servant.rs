//! A peer that a process can have only once, with the number of workers it began with: in a process of its own.
//!
//! The program starts itself with a hidden subcommand, for as long as a row needs it, and asks it for one measurement
//! after another: a line with the name of a service and a number of iterations goes there, a line with the
//! nanoseconds and the result comes back. So that side takes its turn in each round like every other, and sleeps in between;
//! the way there and back is not on its clock.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command as Process, ExitCode, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgMatches, Command, value_parser};

/// The subcommand's name.
pub const COMMAND: &str = "servant";

/// The longest that a measurement may take. The longest one known takes seconds; a peer that waits for ever is ended, since the
/// run would else never end either (effectum was seen to wait without an end).
const LIMIT: Duration = Duration::from_secs(120);

/// Something that can be measured over there: so many iterations, to the time of all of them and the last one's result.
pub struct Service {
    pub name: &'static str,
    pub run: fn(u64) -> (Duration, u64),
}

/// All services of one peer, and how to start it.
pub struct Services {
    /// Told the number of workers, before anything else.
    pub start: fn(usize),
    pub all: &'static [&'static [Service]],
}

/// The process, seen from here. It ends when this is dropped.
pub struct Servant {
    process: Child,
    /// Taken to tell it to end.
    orders: Option<ChildStdin>,
    /// The lines that the process has printed, read by a thread that ends with it.
    answers: Receiver<io::Result<String>>,
}

impl Servant {
    /// Starts one.
    ///
    /// # Errors
    ///
    /// If there cannot be one.
    pub fn start(workers: usize) -> io::Result<Self> {
        if cfg!(test) {
            return Err(io::Error::other("a program of tests has no subcommands"));
        }
        Self::begin(Process::new(env::current_exe()?).args([COMMAND, &workers.to_string()]))
    }

    /// Starts another program that understands the same orders.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn begin(process: &mut Process) -> io::Result<Self> {
        let mut process = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(printed)) = (process.stdin.take(), process.stdout.take()) else {
            unreachable!("both were asked for");
        };
        let (lines, answers) = channel();
        thread::spawn(move || {
            for line in BufReader::new(printed).lines() {
                if lines.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            process,
            orders: Some(orders),
            answers,
        })
    }

    /// Has one measurement made.
    ///
    /// # Errors
    ///
    /// If the process is gone, most likely because something panicked there (its standard error is ours), or has not answered
    /// within [`LIMIT`]: then it is killed.
    pub fn measure(&mut self, service: &str, iterations: u64) -> io::Result<(Duration, u64)> {
        let answer = self.ask(service, iterations, LIMIT)?;
        let Some((nanoseconds, result)) = parse(&answer) else {
            return Err(io::Error::other(format!("it answered {answer:?}")));
        };
        Ok((Duration::from_nanos(nanoseconds), result))
    }

    fn ask(&mut self, service: &str, iterations: u64, limit: Duration) -> io::Result<String> {
        if let Some(orders) = &mut self.orders {
            writeln!(orders, "{service} {iterations}")?;
            orders.flush()?;
        }
        match self.answers.recv_timeout(limit) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("it has ended")),
            Err(RecvTimeoutError::Timeout) => {
                self.process.kill()?;
                let limit = limit.as_secs();
                Err(io::Error::other(format!("no answer within {limit} s")))
            }
        }
    }
}

impl Drop for Servant {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.process.wait();
    }
}

/// A word and a number, or two numbers.
fn parse<A: FromStr>(line: &str) -> Option<(A, u64)> {
    let (first, second) = line.trim().split_once(' ')?;
    Some((first.parse().ok()?, second.parse().ok()?))
}

/// The subcommand, which `--help` does not show: only this program calls it.
pub fn command() -> Command {
    Command::new(COMMAND).hide(true).arg(
        Arg::new("workers")
            .required(true)
            .value_parser(value_parser!(u16).range(1..)),
    )
}

/// Does what it is asked on standard input, until that ends. A panic ends the process.
pub fn serve(services: &Services, arguments: &ArgMatches) -> ExitCode {
    let Some(&workers) = arguments.get_one::<u16>("workers") else {
        unreachable!("clap asks for it");
    };
    (services.start)(usize::from(workers));
    for order in io::stdin().lines() {
        let order = order.ok().and_then(|line| parse::<String>(&line));
        let Some((name, iterations)) = order else {
            eprintln!("error: an order is the name of a service and a number of iterations");
            return ExitCode::from(2);
        };
        let mut all = services.all.iter().copied().flatten();
        let Some(service) = all.find(|service| service.name == name) else {
            eprintln!("error: there is no service {name:?}");
            return ExitCode::from(2);
        };
        let (time, result) = (service.run)(iterations);
        println!("{} {result}", time.as_nanos());
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_does_not_answer_is_killed() {
        let mut servant = Servant::begin(Process::new("sleep").arg("1000")).expect("it starts");
        let error = servant
            .ask("anything", 1, Duration::from_millis(10))
            .expect_err("no answer");
        assert!(error.to_string().contains("no answer"), "{error}");
        // Would wait for a quarter of an hour.
        drop(servant);
    }

    #[test]
    fn a_process_that_has_ended_is_an_error() {
        let mut servant =
            Servant::begin(Process::new("sh").args(["-c", "read order"])).expect("it starts");
        assert!(servant.measure("anything", 1).is_err());
    }
}
