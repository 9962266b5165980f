//! `jobtree logs`: what a job printed.

use std::time::Duration;

use clap::{ArgMatches, Command};
use jobtree_client::Client;
use jobtree_protocol::{JobId, LogPage, LogTime};

use crate::args::{self, JOB, flag, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::counted;
use crate::programs::marked;
use crate::when::shown;

/// How long one question waits for more.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn define(command: Command) -> Command {
    command
        .about("Print what a job printed")
        .after_help(
            "A job that ran several times has a line between the runs, `--- jobtree: run 2 ---`; --attempt prints one run.",
        )
        .arg(place("job", "JOB", JOB).required(true))
        .arg(flag("follow", "Go on until it has ended").short('f'))
        .arg(value("lines", "N", "Only the last N lines; with -f, and what follows").short('n'))
        .arg(value("attempt", "N", "Only what its Nth run printed").conflicts_with("follow"))
        .arg(flag("timestamps", "Begin each line with the time at which it was received").short('t'))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let follow = arguments.get_flag("follow");
    let lines: Option<usize> = args::read(arguments, "lines")?;
    let attempt: Option<u32> = args::read(arguments, "attempt")?;
    let client = context.patient_client()?;
    let id = names::job(&client, &args::needed::<String>(arguments, "job")?)?;
    let mut from = Follower::new(id);
    let mut stamps = arguments.get_flag("timestamps").then(Stamps::default);
    if lines.is_some() || attempt.is_some() {
        let page = whole(&mut from, &client)?;
        let text = match attempt {
            Some(number) => run_of(&page.text, number).ok_or_else(|| {
                CliError::not_found(format!("the log of {id} has no run {number}"))
                    .hint("`jobtree show JOB --events` lists the runs")
            })?,
            None => &page.text,
        };
        let text = last_lines(text, lines.unwrap_or(usize::MAX));
        // The slice lies in the page's text.
        let skipped = text.as_ptr().addr() - page.text.as_ptr().addr();
        let place = place_of(&page) + skipped as u64;
        let text = text.to_owned();
        print(&LogPage { text, ..page }, place, &mut stamps, context)?;
    }
    if attempt.is_some() {
        return Ok(Exit::OK);
    }
    loop {
        let wait = if follow { PATIENCE } else { Duration::ZERO };
        let page = from.next(&client, wait)?;
        print(&page, place_of(&page), &mut stamps, context)?;
        if page.ended || (!follow && page.text.is_empty()) {
            if page.left_out > 0 {
                let bytes = counted(page.left_out, "byte");
                context
                    .out
                    .note(&format!("{bytes} left out: the log was full"));
            }
            return Ok(Exit::OK);
        }
    }
}

/// Prints the text of a page, which begins at a place.
fn print(
    page: &LogPage,
    place: u64,
    stamps: &mut Option<Stamps>,
    context: &Context,
) -> Result<(), CliError> {
    match (context.out.json, stamps) {
        (true, _) if page.text.is_empty() => Ok(()),
        (true, _) => context.out.line(page),
        (false, None) => context.out.raw(&page.text),
        (false, Some(stamps)) => context
            .out
            .raw(&stamps.stamped(&page.text, place, &page.times)),
    }
}

/// Returns the place at which the text of a page begins.
fn place_of(page: &LogPage) -> u64 {
    page.next.saturating_sub(page.text.len() as u64)
}

/// Puts times before lines, which may go on from one page to the next.
#[derive(Default)]
struct Stamps {
    mid_line: bool,
}

impl Stamps {
    fn stamped(&mut self, text: &str, place: u64, times: &[LogTime]) -> String {
        let (mut stamped, mut at) = (String::with_capacity(text.len() * 2), place);
        for line in text.split_inclusive('\n') {
            if !self.mid_line {
                let part = times.partition_point(|time| time.place <= at);
                // An older version kept no times.
                let time = part.checked_sub(1).map(|part| shown(times[part].at));
                stamped += &format!("{}  ", time.as_deref().unwrap_or("-"));
            }
            stamped += line;
            self.mid_line = !line.ends_with('\n');
            at += line.len() as u64;
        }
        stamped
    }
}

/// All that was printed so far, as one page.
fn whole(from: &mut Follower, client: &Client) -> Result<LogPage, CliError> {
    let mut all = from.next(client, Duration::ZERO)?;
    loop {
        let page = from.next(client, Duration::ZERO)?;
        let is_last = page.text.is_empty();
        all = LogPage {
            text: all.text + &page.text,
            times: [all.times, page.times].concat(),
            ..page
        };
        if is_last {
            return Ok(all);
        }
    }
}

/// The part of a log that one run printed. The first has no marker before it.
fn run_of(log: &str, number: u32) -> Option<&str> {
    let (mut run, mut begin, mut at) = (1, 0, 0);
    for line in log.split_inclusive('\n') {
        if let Some(next) = marked(line.trim_end()) {
            if run == number {
                return Some(&log[begin..at]);
            }
            (run, begin) = (next, at + line.len());
        }
        at += line.len();
    }
    (run == number).then(|| &log[begin..])
}

fn last_lines(text: &str, count: usize) -> &str {
    let starts = text.split_inclusive('\n').rev().take(count);
    let bytes: usize = starts.map(str::len).sum();
    &text[text.len() - bytes..]
}

/// Reads a log page by page.
pub struct Follower {
    id: JobId,
    after: Option<u64>,
}

impl Follower {
    pub fn new(id: JobId) -> Self {
        Follower { id, after: None }
    }

    /// What came since, as soon as there is something, the job has ended, or the time is over.
    pub fn next(&mut self, client: &Client, wait: Duration) -> Result<LogPage, CliError> {
        let page = client.log(self.id, self.after, wait)?;
        self.after = Some(page.next);
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole_ones() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb", 1), "b");
        assert_eq!(last_lines("a\n", 9), "a\n");
        assert_eq!(last_lines("a\n", 0), "");
    }

    #[test]
    fn each_line_has_the_time_of_its_first_byte() {
        let time = |place, second: i64| LogTime {
            place,
            at: jiff::Timestamp::constant(1_767_225_600 + second, 0),
        };
        let times = [time(0, 1), time(4, 2), time(9, 3)];
        let mut stamps = Stamps::default();
        let text = stamps.stamped("one\ntwo ", 0, &times[..2]);
        let text = text + &stamps.stamped("half\nthree\n", 8, &times[1..]);
        let seconds: Vec<String> = [1, 2, 3].map(|second| shown(time(0, second).at)).into();
        let expected = format!(
            "{}  one\n{}  two half\n{}  three\n",
            seconds[0], seconds[1], seconds[2]
        );
        assert_eq!(text, expected);
        assert_eq!(Stamps::default().stamped("old\n", 0, &[]), "-  old\n");
    }

    #[test]
    fn each_run_has_its_part() {
        let log = "one\n--- jobtree: run 2 ---\ntwo\ntwo\n--- jobtree: run 4 ---\n";
        assert_eq!(run_of(log, 1), Some("one\n"));
        assert_eq!(run_of(log, 2), Some("two\ntwo\n"));
        assert_eq!(run_of(log, 3), None);
        assert_eq!(run_of(log, 4), Some(""));
        assert_eq!(run_of("", 1), Some(""));
    }
}
