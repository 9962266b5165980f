//! `jobtree wait`: until jobs have ended; exits as they did.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Command};
use indicatif::{ProgressBar, ProgressStyle};
use jobtree_client::Client;
use jobtree_protocol::{CommandResult, JobId, JobView};

use crate::args::{self, JOBS, places, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::why;

/// How often a bar is drawn anew.
const LOOK: Duration = Duration::from_secs(1);

pub fn define(command: Command) -> Command {
    command
        .about("Wait until jobs have ended; the exit code tells how")
        .after_help("Several jobs: the exit code is that of the first that was not DONE.")
        .arg(places("job", "JOB", JOBS))
        .arg(value(
            "timeout",
            "DURATION",
            "No longer than this; then the exit code is 12",
        ))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let limit = args::duration(arguments, "timeout")?;
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    let client = context.patient_client()?;
    let ids = names::jobs(&client, arguments, "job")?;
    let mut worst = Exit::OK;
    for id in ids {
        let job = ended(&client, id, until, context)?;
        if context.out.json {
            context.out.line(&job)?;
        } else {
            let state = context.out.state(job.state);
            context.out.print(&format!("{id} {state}"))?;
            if let Some(error) = &job.last_error {
                context.out.note(error);
            }
        }
        if worst == Exit::OK {
            worst = exit_of(&job);
        }
    }
    Ok(worst)
}

/// The job when it has ended, or as it is when the time is over. Draws how far it is where somebody watches.
pub fn ended(
    client: &Client,
    id: JobId,
    until: Option<Instant>,
    context: &Context,
) -> Result<JobView, CliError> {
    let bar = bar(context);
    let mut told = None;
    let is_told = !context.out.is_quiet() && !context.out.json;
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let look = match is_told {
            true => LOOK,
            false => Duration::from_secs(3600),
        };
        let job = client.wait_for(id, left.unwrap_or(look).min(look))?;
        let reason = match job.state.is_ended() || !is_told {
            true => None,
            false => why::of(client, id),
        };
        if let Some(reason) = reason {
            // Elsewhere than in a terminal, a line for each new reason, and not for each new measurement.
            let news = why::news(&reason);
            if bar.is_hidden() && told.as_ref() != Some(&news) {
                context.out.note(&format!("waiting: {}", reason.message));
            }
            bar.set_message(format!("waiting: {}", reason.message));
            told = Some(news);
        } else if let Some(progress) = &job.progress {
            let share = progress.fraction.unwrap_or(0.0).clamp(0.0, 1.0);
            bar.set_position((share * 1000.0) as u64);
            bar.set_message(progress.message.clone().unwrap_or_default());
        } else {
            bar.set_message(job.state.as_str());
        }
        if job.state.is_ended() || left.is_some_and(|left| left.is_zero()) {
            bar.finish_and_clear();
            return Ok(job);
        }
    }
}

fn bar(context: &Context) -> ProgressBar {
    if context.out.is_quiet() || context.out.json || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{elapsed:>5} [{bar:30}] {percent:>3} % {wide_msg}");
    let bar = ProgressBar::new(1000);
    if let Ok(style) = style {
        bar.set_style(style.progress_chars("=> "));
    }
    bar
}

/// A command's own exit code, else what the job's state says.
pub fn exit_of(job: &JobView) -> Exit {
    let by_state = Exit::of_state(job.state);
    if by_state == Exit::STILL_WAITING || by_state == Exit::JOB_CANCELED {
        return by_state;
    }
    let result = job.result.as_ref();
    let of_command = result.and_then(|json| json.read::<CommandResult>().ok());
    let code = of_command
        .and_then(|result| {
            result
                .exit_code
                .or(result.signal.map(|signal| 128 + signal))
        })
        .or_else(|| code_in(job.last_error.as_deref()?));
    match code.and_then(|code| u8::try_from(code).ok()) {
        // A command that says 0 and a job that failed: the job is right.
        Some(0) | None => by_state,
        Some(code) => Exit(code),
    }
}

/// What the runner says of a command that failed: `exit code 3: …` or `ended by signal 9`.
fn code_in(error: &str) -> Option<i32> {
    let number = |behind: &str| {
        let digits = behind.split(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse::<i32>().ok()
    };
    if let Some(behind) = error.strip_prefix("exit code ") {
        return number(behind);
    }
    number(error.strip_prefix("ended by signal ")?).map(|signal| 128 + signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_code_is_found_in_its_error() {
        assert_eq!(code_in("exit code 3: no disk"), Some(3));
        assert_eq!(code_in("exit code 70"), Some(70));
        assert_eq!(code_in("ended by signal 9"), Some(137));
        assert_eq!(code_in("a disk broke, exit code 3"), None);
    }
}
