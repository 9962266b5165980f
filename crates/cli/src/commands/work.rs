//! `jobtree work`: a worker whose handler is a program, in any language.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command};
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_client::{Client, Worker};
use jobtree_process::{NoProgram, Program, Supervisor, Verdict, find_program};
use jobtree_protocol::{AddonId, Advice, JobId, JobType, JobView, Json, Scope};
use jobtree_runtime::BoxError;
use jobtree_scheduler::workers::{GiveBack, Permanent, Run};
use serde::Serialize;

use crate::args::{self, YieldGrace, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::{Out, cell};
use crate::programs::{OnAdvice, Runner, YIELD_GRACE};
use crate::signals::Asked;
use crate::when::length;

/// The largest payload that is also put into the environment; the kernel takes no more than 128 KiB a variable.
const PAYLOAD_IN_ENVIRONMENT: usize = 64 << 10;
/// How long a job that its program gave back is kept first, so that the two do not play ball.
const NOT_NOW: Duration = Duration::from_secs(2);

pub fn define(command: Command) -> Command {
    command
        .about("Run jobs with a program of any language")
        .after_help(
            "Prints a line for each run when it has ended; -q silences that, --json prints it as JSON.\n\n\
             For each job the program is started, and\n  \
             reads the payload as JSON from its standard input;\n  \
             finds JOBTREE_JOB_ID, JOBTREE_ATTEMPT, JOBTREE_ADDON, JOBTREE_JOB_TYPE, JOBTREE_URL, TRACEPARENT,\n  \
             and JOBTREE_PAYLOAD if it has at most 64 KiB, in its environment;\n  \
             tells how far it is by a line `::progress 0.4 some words` on its standard output;\n  \
             gives a result by a line `::result {\"some\": \"JSON\"}`, of which the last counts.\n\
             All else that it prints becomes the job's log. It exits with\n  \
             0    the job is DONE\n  \
             75   not now: the job waits again, and nothing is counted; after a line `::snooze 10m` it is not\n  \
             \x20    started again before that time has passed, else after --snooze\n  \
             65   FAILED for good: its input is wrong\n  \
             else a failed attempt, with the end of its standard error as the reason\n\
             While it runs it is advised: when the advice changes, a line comes on the descriptor whose number is in\n\
             JOBTREE_ADVICE_FD, and with it --advice-signal once the program handles that signal. The program need not\n\
             read. The lines are\n  \
             slow        use less: the machine is busy\n  \
             checkpoint  save what you have\n  \
             yield       save, and exit with 75 within --yield-grace; else it is stopped as if the job was cancelled,\n  \
             \x20           and the job waits again, with nothing counted\n  \
             drain       finish: the daemon starts nothing new\n  \
             continue    as before\n\
             When the job is cancelled the program gets TERM, and after --grace KILL, with everything that it started. When\n\
             it takes too long or its lease is lost, half a second has to do: another worker may have the job soon.\n\
             Nothing of it outlives this worker, whatever happens to it.\n\n\
             TERM or Ctrl-C: no new jobs; those that run may end within --drain.\n\n\
             For example: jobtree work --addon photos --type thumbnail -- ./thumbnail.py",
        )
        .arg(value("addon", "ADDON", "Whose jobs [JOBTREE_ADDON]"))
        .arg(
            value("type", "TYPE", "Which jobs; may be repeated")
                .action(ArgAction::Append)
                .required(true),
        )
        .arg(value("slots", "N", "How many side by side [1]"))
        .arg(value(
            "batch",
            "N",
            "Claim up to N short jobs at a time, for one slot to run one after the other [1]",
        ))
        .arg(value("grace", "DURATION", "Between TERM and KILL [10s]"))
        .arg(value(
            "snooze",
            "DURATION",
            "How long a job waits at least whose program exits with 75 [2s]",
        ))
        .args(args::of_advice())
        .arg(value("drain", "DURATION", "How long jobs may go on when this worker ends [30s]"))
        .arg(value("log-bytes", "BYTES", "Bytes of output that are kept of each run, from its beginning and its end; the daemon may keep less (`serve --log-bytes`) [1M]"))
        .arg(
            Arg::new("program")
                .value_name("PROGRAM")
                .num_args(1..)
                .required(true)
                .last(true)
                .help("The program and its arguments; no shell reads them"),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let asked = Asked::listen()?;
    let Some(addon) = context.settings.get("addon") else {
        return Err(CliError::usage("--addon is missing").hint("or set JOBTREE_ADDON"));
    };
    // A daemon that goes away later is waited for; one that was never there is a mistake.
    let client = context.patient_client()?;
    check_rights(&client, addon)?;
    let argv = args::all(arguments, "program");
    check_program(&argv[0])?;
    let mut supervisor = Supervisor::this_executable().map_err(|error| {
        CliError::failed(format!("this executable is not to be found: {error}"))
    })?;
    if let Some(text) = args::get(arguments, "log-bytes") {
        supervisor = supervisor.log_bytes(args::bytes("log-bytes", text)?);
    }
    let mut program = Program::new(argv);
    if let Some(grace) = args::duration(arguments, "grace")? {
        program.grace = grace;
    }
    program.advice_signal = args::advice_signal(arguments)?;
    program
        .env
        .insert("JOBTREE_URL".into(), client.url().into());
    let yield_grace = match args::yield_grace(arguments)? {
        Some(YieldGrace::Never) => None,
        Some(YieldGrace::After(grace)) => Some(grace),
        None => Some(YIELD_GRACE),
    };
    let handler = Handler {
        runner: Runner {
            supervisor,
            client: client.clone(),
        },
        program,
        on_advice: OnAdvice {
            pauses: false,
            yield_grace,
        },
        snooze: args::duration(arguments, "snooze")?,
        out: context.out.clone(),
    };
    let drain = args::duration(arguments, "drain")?.unwrap_or(Duration::from_secs(30));
    let slots = args::read(arguments, "slots")?.unwrap_or(1);
    // A process costs more to start than a claim: jobs that wait here could run elsewhere.
    let batch = args::read(arguments, "batch")?.unwrap_or(1);
    let types = args::all(arguments, "type");
    warn_of_unknown_addon(&client, addon, context);
    let worker = worker(client, addon, &types, (slots, batch), &handler);
    let worker = worker
        .start()
        .map_err(|error| CliError::failed(error.to_string()))?;
    context.out.note(&format!(
        "working for {addon}: {}; Ctrl-C ends it",
        types.join(", ")
    ));

    let signal = asked.wait();
    context.out.note(&format!(
        "{signal}: no new jobs; those that run may take {}",
        crate::when::length(drain)
    ));
    match worker.drain(drain) {
        Ok(()) => Ok(Exit::OK),
        Err(stragglers) => Err(CliError::failed(stragglers.to_string())),
    }
}

/// Fails if the token does not allow to work for the addon: every claim would be refused, and tried again.
fn check_rights(client: &Client, addon: &str) -> Result<(), CliError> {
    let rights = client.current_token()?;
    if !rights.allow(Scope::Lease) {
        return Err(CliError::refused("the token lacks the scope lease")
            .hint(format!("an admin creates one that works for this addon by `jobtree token create NAME --addon {addon} --scope lease,read`")));
    }
    match rights.addon_id {
        Some(own) if own.as_str() != addon => Err(CliError::refused(format!(
            "the token is for the addon {own}, not {addon}"
        ))
        .hint(format!("write --addon {own}, or use a token for {addon}"))),
        _ => Ok(()),
    }
}

/// Fails if the program is not there: every job would fail with exit code 127.
fn check_program(name: &str) -> Result<(), CliError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Err(missing) = find_program(name, &path) else {
        return Ok(());
    };
    let hint = match &missing {
        NoProgram::NotInPath(name) => {
            format!("install it, or write ./{name} if it is in this directory")
        }
        NoProgram::NoFile(_) => {
            let here = std::env::current_dir().unwrap_or_default();
            format!("check the path; this directory is {}", here.display())
        }
        NoProgram::NotExecutable(file) => format!("run `chmod +x {}`", file.display()),
    };
    Err(CliError::failed(missing.to_string()).hint(hint))
}

/// Tells if no job of the addon exists. That is how a new addon begins, but also what a misspelt one looks like.
fn warn_of_unknown_addon(client: &Client, addon: &str, context: &Context) {
    let newest = |addon_id: Option<AddonId>, limit| {
        let query = RecentQuery {
            addon_id,
            limit: Some(limit),
            ..RecentQuery::default()
        };
        // A token that may not read is not warned.
        client.recent_jobs(&query).map(|list| list.jobs)
    };
    let of_addon = newest(AddonId::new(addon).ok(), 1);
    if !of_addon.is_ok_and(|jobs| jobs.is_empty()) {
        return;
    }
    let others = newest(None, 500).unwrap_or_default();
    let others: BTreeSet<&str> = others.iter().map(|job| job.addon_id.as_str()).collect();
    let others: Vec<&str> = others.into_iter().take(5).collect();
    let known = match &others[..] {
        [] => String::new(),
        known => format!("; recent jobs are of {}", known.join(", ")),
    };
    context.out.note(&format!(
        "note: no job of the addon {addon} has been submitted yet{known}"
    ));
}

fn worker(
    client: Client,
    addon: &str,
    types: &[String],
    (slots, batch): (usize, u32),
    handler: &Handler,
) -> Worker {
    let worker = Worker::new(client)
        .addon(addon)
        .concurrency(slots)
        .batch(batch)
        .program(concat!("jobtree work ", env!("CARGO_PKG_VERSION")));
    types.iter().fold(worker, |worker, job_type| {
        let handler = handler.clone();
        worker.handle_blocking(job_type, move |payload: Json, run: &Run| {
            handler.run(&payload, run)
        })
    })
}

/// How a run ended, with `--json`.
#[derive(Serialize)]
struct Line<'a> {
    job_id: JobId,
    job_type: &'a JobType,
    attempt: u32,
    outcome: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    duration_ms: u128,
}

/// The program as the handler of jobs.
#[derive(Clone)]
struct Handler {
    runner: Runner,
    program: Program,
    on_advice: OnAdvice,
    /// How long a job waits whose program exits with 75 and does not tell.
    snooze: Option<Duration>,
    out: Out,
}

impl Handler {
    /// Runs the program for a job, and prints a line when it has ended.
    fn run(&self, payload: &Json, run: &Run) -> Result<Option<Json>, BoxError> {
        let mut program = self.program.clone();
        describe(&mut program, payload, run.job(), run.attempt());
        let begun = Instant::now();
        let ran = self.runner.run(run, &program, None, None, self.on_advice);
        let ran = ran.inspect_err(|error| self.tell(run, begun, "stopped", &error.to_string()))?;
        let verdict = ran.ending.verdict();
        match &verdict {
            Verdict::Done(_) => self.tell(run, begun, "done", ""),
            Verdict::GiveBack { reason, .. } => {
                let outcome = match self.snoozes(&verdict) {
                    Some(delay) => format!("given back for {}", length(delay)),
                    None => "given back".to_owned(),
                };
                self.tell(run, begun, &outcome, reason);
            }
            Verdict::Failed(reason) => {
                let (attempt, most) = (run.job().attempts + 1, run.job().max_attempts);
                let outcome = match attempt < most {
                    true => format!("attempt {attempt} of {most} failed"),
                    false => "failed".to_owned(),
                };
                self.tell(run, begun, &outcome, reason);
            }
            Verdict::Permanent(reason) => self.tell(run, begun, "failed", reason),
        }
        match verdict {
            Verdict::Done(None) => Ok(None),
            Verdict::Done(Some(result)) => Ok(Some(Json::from_text(result)?)),
            Verdict::GiveBack { ref reason, .. } => {
                let back = GiveBack::because(reason);
                if let Some(delay) = self.snoozes(&verdict) {
                    return Err(back.snooze(delay).into());
                }
                // While the node is overloaded, the daemon starts nothing again; its capacity is wanted now.
                if run.advice() != Advice::Yield {
                    jobtree_runtime::sleep(NOT_NOW)?;
                }
                Err(back.into())
            }
            Verdict::Failed(reason) => Err(reason.into()),
            Verdict::Permanent(reason) => Err(Permanent::new(reason).into()),
        }
    }

    /// How long a job that is given back waits: as its program told, or as this worker was started with.
    fn snoozes(&self, verdict: &Verdict) -> Option<Duration> {
        match verdict {
            Verdict::GiveBack { snooze, .. } => snooze.or(self.snooze),
            _ => None,
        }
    }

    /// Prints how a run ended, in a line.
    fn tell(&self, run: &Run, begun: Instant, outcome: &str, reason: &str) {
        let (job, took) = (run.job(), length(begun.elapsed()));
        let reason = cell(reason, 200);
        if self.out.json {
            // If the output is closed, the worker goes on: its jobs count.
            let _ = self.out.line(&Line {
                job_id: job.job_id,
                job_type: &job.job_type,
                attempt: run.attempt(),
                outcome,
                reason: &reason,
                duration_ms: begun.elapsed().as_millis(),
            });
            return;
        }
        let why = match reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let id = names::short(job.job_id);
        let kind = &job.job_type;
        self.out
            .note(&format!("{id}  {kind}  {outcome} after {took}{why}"));
    }
}

/// What the program is told of its job.
fn describe(program: &mut Program, payload: &Json, job: &JobView, attempt: u32) {
    let mut set = |name: &str, value: String| program.env.insert(name.into(), value);
    set("JOBTREE_JOB_ID", job.job_id.to_string());
    set("JOBTREE_ADDON", job.addon_id.to_string());
    set("JOBTREE_JOB_TYPE", job.job_type.to_string());
    set("JOBTREE_ATTEMPT", attempt.to_string());
    set("TRACEPARENT", job.trace().to_string());
    if let Some(deadline) = job.deadline_at {
        set("JOBTREE_DEADLINE", deadline.to_string());
    }
    if payload.text().len() <= PAYLOAD_IN_ENVIRONMENT && !payload.text().contains('\0') {
        set("JOBTREE_PAYLOAD", payload.text().into());
    }
    program.stdin = payload.text().into();
}
