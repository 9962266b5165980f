//! `jobtree run`: a command as a job, when the machine is quiet.
//!
//! It follows the job to its end: its output comes as if it ran here, and so does its exit code. Ctrl-C stops the job, as
//! it would stop a command; `--detach` lets it go.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use indicatif::ProgressBar;
use jobtree_client::Client;
use jobtree_protocol::{
    CommandSpec, JobId, Json, OutputPiece, OutputStream, RUNNER_ADDON, RUNNER_TYPE, Reason,
};

use crate::args::{self, YieldGrace, described, flag, of_a_job, value};
use crate::commands::logs::Follower;
use crate::commands::move_store::spinner;
use crate::commands::wait;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::on_done;
use crate::out::Out;
use crate::programs::marker;
use crate::signals::Asked;
use crate::stdin;
use crate::summary;
use crate::why;

/// The code of the reason that no worker serves a job's type.
const UNSERVED: &str = "unserved";
/// How often the daemon is told that the output is still read: more often than it takes a reader for gone.
const STILL_READING: Duration = Duration::from_secs(5);
/// How long one question waits for more output: also how often somebody is told why it waits.
const LOOK: Duration = Duration::from_secs(2);

pub fn define(command: Command) -> Command {
    command
        .about("Run a command when the machine is quiet; exits as it does")
        .after_help(
            "The daemon must have been started with --runner. The command runs there, in this folder, and no shell reads\n\
             its arguments. Of the environment it gets PATH, HOME, LANG and the like, and what --env names; and\n\
             JOBTREE_JOB_ID, and in TRACEPARENT the trace that the job is a part of.\n\n\
             While the machine is overloaded the command is paused. If that lasts, it is told to yield: after --yield-grace it\n\
             gets TERM, and the job waits again, with nothing counted; the command begins anew when the machine is quiet.\n\
             With --obeys-advice or --advice-signal it is not paused, but reads slow, checkpoint, yield, drain and continue as\n\
             lines from the descriptor whose number is in JOBTREE_ADVICE_FD. Once told to yield it may exit with 75, and the\n\
             job waits again. `jobtree work --help` says what each line asks for.\n\n\
             All that it prints comes here, standard output and standard error apart; it waits for its reader. The job's log\n\
             keeps the beginning and the end: `jobtree logs`. If this process is stopped for longer than 20 s, the command goes on without it.\n\n\
             Standard input that is a pipe or a file is passed to the command, as fast as it reads; a terminal is not, and neither is\n\
             anything with --no-stdin or --detach. It can be passed once: a command that was given a part of it is not told to yield,\n\
             and is not run again; if its run is interrupted, the job is FAILED. In a loop that reads a list, write --no-stdin, or the\n\
             command reads the list.\n\n\
             A command whose runner dies is run again, up to the policy's limit of rescues; the log has a line between the\n\
             runs. A command that must not run twice has --once: it is neither told to yield nor run again.\n\n\
             For example: jobtree run -- make world",
        )
        .arg(
            Arg::new("command")
                .value_name("COMMAND")
                .num_args(1..)
                .required(true)
                .last(true)
                .help("The program and its arguments"),
        )
        .arg(flag("detach", "Print the job's id, and do not wait").short('d'))
        .arg(flag("no-stdin", "Do not pass standard input to the command").short('n'))
        .arg(value("cwd", "DIR", "Where it runs [this folder]"))
        .arg(value("env", "NAME[=VALUE]", "A variable for it; may be repeated").action(ArgAction::Append))
        .arg(value("nice", "N", "How nice it is, 0 to 19 [10]"))
        .arg(flag("io-idle", "It uses the disk only when no other program does"))
        .arg(value("memory", "BYTES", "Address space at most; K, M and G are understood"))
        .arg(value("open-files", "N", "Open files at most"))
        .arg(value("cpu", "DURATION", "CPU time at most"))
        .arg(flag(
            "once",
            "Never run it twice: if a run is interrupted, by a crash too, the job is FAILED",
        ).conflicts_with("attempts"))
        .arg(flag("obeys-advice", "It reads advice by itself: do not pause it"))
        .args(args::of_advice())
        .args(of_a_job())
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let mut spec = spec(arguments)?;
    spec.stdin = spec.attached && !arguments.get_flag("no-stdin") && stdin::is_piped();
    let payload = Json::of(&spec).map_err(|error| CliError::usage(error.to_string()))?;
    let client = context.patient_client()?;
    let mut job = described(&client, arguments, RUNNER_ADDON, RUNNER_TYPE, Some(payload))?;
    if job.tags.is_empty() {
        // To be found again by; a name, not a path.
        job.tags.extend(tag(&spec.argv[0]));
    }
    let asked = Asked::listen()?;
    let answer = client.submit(job)?;
    let id = answer.job_id;
    on_done::submit(&client, arguments, &answer)?;
    tell_if_no_runner(&client, id, context);
    if arguments.get_flag("detach") {
        match context.out.json {
            true => context.out.document(&answer)?,
            false => context.out.print(&id.to_string())?,
        }
        return Ok(Exit::OK);
    }
    context
        .out
        .note(&format!("job {id}: {}", summary::typed(&spec.argv)));
    if spec.stdin {
        stdin::send(&client, id);
    }
    let canceller = client.clone();
    thread::spawn(move || {
        let signal = asked.wait();
        // If this fails the daemon is gone, and whoever follows it says so.
        let _ = canceller.cancel(id, Some(&format!("{signal} to jobtree run")));
    });
    follow(&client, id, context)
}

/// Prints what the command prints until it has ended: what it writes to its standard error comes to ours.
fn follow(client: &Client, id: JobId, context: &Context) -> Result<Exit, CliError> {
    let mut waiting = Waiting::new(context);
    let reading = Reading::begin(client, id);
    let (mut after, mut run) = (0, 0);
    let mut lost = false;
    loop {
        let page = client.output(id, after, LOOK)?;
        after = page.next;
        reading.confirmed.store(after, Ordering::Relaxed);
        if run != 0 && page.run == 0 && !page.ended && !lost {
            lost = true;
            context.out.note(&format!(
                "the output was not read for a while, and is not shown any more; see it with `jobtree logs -f {id}`"
            ));
        }
        if page.run != 0 || page.ended {
            waiting.over();
        }
        if page.run > 1 && page.run != run && !page.pieces.is_empty() {
            context.out.note(&marker(page.run));
        }
        if !page.pieces.is_empty() {
            run = page.run;
            match context.out.json {
                true => context.out.line(&page)?,
                false => write(&page.pieces)?,
            }
        }
        if page.ended {
            break;
        }
        match (page.run, page.pieces.is_empty()) {
            (0, _) => waiting.tell(why::of(client, id)),
            (_, true) => waiting.stands_still(why::of(client, id)),
            (_, false) => waiting.goes_on(),
        }
    }
    let job = client.job(id)?;
    if run == 0 {
        // It printed nothing, or its runner is at another daemon on the same store, which keeps a log.
        kept_log(client, id, context)?;
    }
    if context.out.json {
        context.out.line(&job)?;
    }
    let exit = wait::exit_of(&job);
    if let Some(error) = &job.last_error {
        let error = error.lines().next().unwrap_or_default();
        match exit {
            // The command has no exit code that would tell, so this is told with -q, too.
            Exit::JOB_FAILED => context.out.warn(error),
            _ => context.out.note(error),
        }
    }
    Ok(exit)
}

/// Tells the daemon that the output is read, also while its reader waits for whoever reads from it (as `less` does). Ends when it
/// is dropped.
struct Reading {
    confirmed: Arc<AtomicU64>,
    /// Its end is the thread's.
    _ends: Sender<()>,
}

impl Reading {
    fn begin(client: &Client, id: JobId) -> Self {
        let confirmed = Arc::new(AtomicU64::new(0));
        let (ends, ended) = mpsc::channel::<()>();
        let (client, after) = (client.clone(), Arc::clone(&confirmed));
        thread::spawn(move || {
            while ended.recv_timeout(STILL_READING) == Err(RecvTimeoutError::Timeout) {
                // If this fails, the reader itself finds out.
                let _ = client.output(id, after.load(Ordering::Relaxed), Duration::ZERO);
            }
        });
        Self {
            confirmed,
            _ends: ends,
        }
    }
}

/// Writes pieces of output, each to its stream.
fn write(pieces: &[OutputPiece]) -> Result<(), CliError> {
    let (mut stdout, mut stderr) = (io::stdout().lock(), io::stderr().lock());
    for piece in pieces {
        let bytes = piece.bytes().unwrap_or_default();
        match piece.stream {
            OutputStream::Stdout => stdout.write_all(&bytes)?,
            OutputStream::Stderr => stderr.write_all(&bytes)?,
        }
        // In the order in which it was read, where both are one terminal.
        stdout.flush()?;
    }
    Ok(())
}

fn kept_log(client: &Client, id: JobId, context: &Context) -> Result<(), CliError> {
    let mut log = Follower::new(id);
    loop {
        let page = log.next(client, Duration::ZERO)?;
        match context.out.json {
            true if !page.text.is_empty() => context.out.line(&page)?,
            true => {}
            false => context.out.raw(&page.text)?,
        }
        if page.ended || page.text.is_empty() {
            return Ok(());
        }
    }
}

/// Tells at once if no runner is there, and how to get one: the job would wait for ever.
fn tell_if_no_runner(client: &Client, id: JobId, context: &Context) {
    let Ok(explained) = client.explain(id) else {
        // A caller whose token may not read gets no message about it.
        return;
    };
    if explained
        .reasons
        .iter()
        .any(|reason| reason.code == UNSERVED)
    {
        context.out.note(
            "no runner: the daemon does not run commands, so the job waits\n\
             hint: start the daemon with `jobtree serve --runner`; Ctrl-C cancels the job",
        );
    }
}

/// Why the job waits: one line that is updated in a terminal. Elsewhere a line for each new reason, and not for each new
/// measurement.
struct Waiting {
    line: ProgressBar,
    out: Out,
    told: Option<String>,
}

impl Waiting {
    fn new(context: &Context) -> Self {
        let line = spinner(context);
        Waiting {
            line,
            out: context.out.clone(),
            // It was told when the job was submitted.
            told: Some(UNSERVED.to_owned()),
        }
    }

    fn tell(&mut self, reason: Option<Reason>) {
        let Some(reason) = reason else {
            return self.line.set_message("");
        };
        let (news, message) = (why::news(&reason), reason.message);
        if !self.line.is_hidden() {
            self.line.set_message(format!("waiting: {message}"));
            self.line.tick();
        } else if self.told.as_ref() != Some(&news) {
            self.out.note(&format!("waiting: {message}"));
            self.told = Some(news);
        }
    }

    /// The command has begun and prints nothing. What it printed last may be half a line, so this is a line of its own.
    fn stands_still(&mut self, reason: Option<Reason>) {
        let Some(reason) = reason else {
            return self.goes_on();
        };
        let news = why::news(&reason);
        if self.told.as_ref() != Some(&news) {
            self.out.note(&format!("waiting: {}", reason.message));
            self.told = Some(news);
        }
    }

    /// The command goes on: if it stands still again, that is told again.
    fn goes_on(&mut self) {
        self.told = None;
    }

    /// Output follows, or the end: the line makes way.
    fn over(&self) {
        self.line.finish_and_clear();
    }
}

fn spec(arguments: &ArgMatches) -> Result<CommandSpec, CliError> {
    let cwd = match args::get(arguments, "cwd") {
        Some(folder) => std::path::absolute(folder),
        None => std::env::current_dir(),
    };
    let cwd = cwd.map_err(|error| CliError::usage(format!("there is no such folder: {error}")))?;
    let cpu = args::get(arguments, "cpu")
        .map(crate::when::seconds)
        .transpose();
    let cpu = cpu.map_err(|wrong| CliError::usage(format!("--cpu: {wrong}")))?;
    let ignores_load = arguments.get_flag("ignore-load");
    let signal = args::advice_signal(arguments)?;
    let grace = args::yield_grace(arguments)?;
    Ok(CommandSpec {
        argv: args::all(arguments, "command"),
        cwd: Some(cwd.to_string_lossy().into_owned()),
        env: environment(&args::all(arguments, "env"))?,
        nice: args::read(arguments, "nice")?,
        io_idle: arguments.get_flag("io-idle"),
        memory_bytes: args::get(arguments, "memory")
            .map(|text| args::bytes("memory", text))
            .transpose()?,
        open_files: args::read(arguments, "open-files")?,
        cpu_sec: cpu.and_then(|seconds| u64::try_from(seconds).ok()),
        // A command that starts in PANIC would be paused at once, and told to yield.
        obeys_advice: arguments.get_flag("obeys-advice") || ignores_load,
        advice_signal: signal.map(|signal| signal.name().to_owned()),
        yield_grace_sec: match grace {
            Some(YieldGrace::After(grace)) => Some(whole_seconds(grace)),
            Some(YieldGrace::Never) | None => None,
        },
        never_yields: grace == Some(YieldGrace::Never) || ignores_load,
        once: arguments.get_flag("once"),
        attached: !arguments.get_flag("detach"),
        stdin: false,
    })
}

/// A duration in seconds, rounded up.
fn whole_seconds(duration: Duration) -> u64 {
    duration.as_secs() + u64::from(duration.subsec_nanos() > 0)
}

/// `NAME=VALUE`, or `NAME` for what it is here.
fn environment(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let pairs = given.iter().map(|text| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => match std::env::var(text) {
            Ok(value) => Ok((text.clone(), value)),
            Err(_) => Err(CliError::usage(format!("--env: {text} is not set here"))
                .hint(format!("write --env {text}=VALUE"))),
        },
    });
    pairs.collect()
}

fn tag(program: &str) -> Option<String> {
    let name = std::path::Path::new(program).file_name()?.to_str()?;
    let name: String = name.chars().filter(|c| !c.is_control()).take(40).collect();
    Some(name).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_and_without_a_value() {
        let read = environment(&["A=b=c".into(), "EMPTY=".into()]).unwrap();
        assert_eq!((read["A"].as_str(), read["EMPTY"].as_str()), ("b=c", ""));
        assert!(environment(&["NO_SUCH_VARIABLE_HERE".into()]).is_err());
    }

    #[test]
    fn a_tag_is_the_programs_name() {
        assert_eq!(tag("/usr/bin/make").as_deref(), Some("make"));
        assert_eq!(tag("/"), None);
    }
}
