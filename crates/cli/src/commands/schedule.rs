//! `jobtree schedule`: jobs by the clock.

use std::time::Duration;

use clap::{Arg, ArgMatches, Command};
use jobtree_client::Client;
use jobtree_protocol::{
    CommandSpec, Json, Missed, Overlap, RUNNER_ADDON, RUNNER_TYPE, ScheduleSpec, ScheduleView,
    SubmitRequest,
};
use serde::Serialize;

use crate::args::{self, described, flag, of_a_job, place, value};
use crate::commands::show;
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::{Align, cell};
use crate::summary;
use crate::when::{self, shown};

pub fn define(command: Command) -> Command {
    let which =
        || place("schedule", "SCHEDULE", "Its name, id, or a part of its id").required(true);
    command
        .about("Jobs by the clock")
        .subcommand_required(true)
        .subcommand(
            Command::new("add")
                .about("Add a schedule")
                .arg(place("name", "NAME", "A name of its own").required(true))
                .arg(
                    place(
                        "cron",
                        "CRON",
                        "Minute, hour, day of month, month, day of week: \"0 3 * * *\"",
                    )
                    .required(true),
                )
                .arg(
                    place("addon", "ADDON", "Whose job it is")
                        .required_unless_present("command")
                        .requires("type"),
                )
                .arg(place("type", "TYPE", "Which handler runs it"))
                .arg(value("payload", "JSON", "Its input").allow_hyphen_values(true))
                .arg(
                    Arg::new("command")
                        .value_name("COMMAND")
                        .num_args(1..)
                        .last(true)
                        .conflicts_with_all(["addon", "payload"])
                        .help("A command that `serve --runner` runs, instead of a job of an addon"),
                )
                .arg(value("cwd", "DIR", "Where the command runs [this folder]").requires("command"))
                .args(of_a_calendar())
                .args(of_each_job()),
        )
        .subcommand(
            Command::new("edit")
                .about("Change a schedule: what is not named stays as it is")
                .after_help(
                    "Firings that it missed before are forgotten. Flags of the job that take several values (--tag, --label, --depends-on,\n\
                     --heavy) replace all of them. A command behind -- replaces the command.\n\n\
                     For example: jobtree schedule edit nightly --cron \"30 2 * * *\" --priority low",
                )
                .arg(which())
                .arg(value("name", "NAME", "Another name"))
                .arg(value("cron", "CRON", "Other times: \"0 3 * * *\""))
                .arg(value("payload", "JSON", "Another input").allow_hyphen_values(true))
                .arg(
                    Arg::new("command")
                        .value_name("COMMAND")
                        .num_args(1..)
                        .last(true)
                        .conflicts_with("payload")
                        .help("Another command, for a schedule of one"),
                )
                .arg(value("cwd", "DIR", "Where the command runs [as before]").requires("command"))
                .args(of_a_calendar())
                .arg(flag("overlap", "Fire also while the job before has not ended").conflicts_with("no-overlap"))
                .args(of_each_job()),
        )
        .subcommand(
            Command::new("run-now")
                .about("Submit its job now, besides its calendar; prints the job's id")
                .arg(which()),
        )
        .subcommand(Command::new("ls").about("List schedules"))
        .subcommand(Command::new("show").about("Show a schedule").arg(which()))
        .subcommand(
            Command::new("rm")
                .about("Remove a schedule; its jobs stay")
                .arg(which()),
        )
        .subcommand(
            Command::new("pause")
                .about("Let it fire no more")
                .arg(which()),
        )
        .subcommand(
            Command::new("resume")
                .about("Let it fire again")
                .arg(which()),
        )
}

/// When it fires.
fn of_a_calendar() -> [Arg; 4] {
    [
        value("zone", "ZONE", "The time zone, such as Europe/Berlin [UTC]"),
        value("jitter", "DURATION", "Each firing is moved by up to this"),
        value(
            "missed",
            "WHAT",
            "Firings that were missed while no daemon ran: skip, once or all [once]",
        )
        .value_parser(["skip", "once", "all"]),
        flag(
            "no-overlap",
            "Leave a firing out while the job before has not ended",
        ),
    ]
}

/// What can be said of the job that each firing submits.
fn of_each_job() -> impl Iterator<Item = Arg> {
    of_a_job().into_iter().filter(|argument| {
        // They would be the same for every firing.
        !["after", "deadline", "key", "drop-late", "on-done"].contains(&argument.get_id().as_str())
    })
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    match arguments.subcommand() {
        Some(("add", arguments)) => {
            let made = client.add_schedule(&spec(&client, arguments)?)?;
            match context.out.json {
                true => context.out.document(&made)?,
                false => {
                    if let Some(next) = made.next_at {
                        context
                            .out
                            .note(&format!("it fires first at {}", shown(next)));
                    }
                    context.out.print(&made.schedule_id.to_string())?;
                }
            }
        }
        Some(("edit", arguments)) => {
            let found = find(&client, arguments)?;
            let spec = edited(&client, found.spec, arguments)?;
            show(&client.put_schedule(found.schedule_id, &spec)?, context)?;
        }
        Some(("run-now", arguments)) => {
            let found = find(&client, arguments)?;
            let answer = client.run_schedule(found.schedule_id)?;
            match context.out.json {
                true => context.out.document(&answer)?,
                false => context.out.print(&answer.job_id.to_string())?,
            }
        }
        Some(("show", arguments)) => show(&find(&client, arguments)?, context)?,
        Some(("rm", arguments)) => {
            let found = find(&client, arguments)?;
            client.delete_schedule(found.schedule_id)?;
            context
                .out
                .note(&format!("removed schedule {}", found.spec.name));
        }
        Some(("pause", arguments)) => {
            let found = find(&client, arguments)?;
            show(&client.pause_schedule(found.schedule_id)?, context)?;
        }
        Some(("resume", arguments)) => {
            let found = find(&client, arguments)?;
            show(&client.resume_schedule(found.schedule_id)?, context)?;
        }
        _ => list(client.schedules()?, context)?,
    }
    Ok(Exit::OK)
}

/// The input that was named: JSON, or a command.
fn payload(arguments: &ArgMatches) -> Result<Option<Json>, CliError> {
    let argv = args::all(arguments, "command");
    if !argv.is_empty() {
        let folder = match args::get(arguments, "cwd") {
            Some(folder) => std::path::absolute(folder),
            None => std::env::current_dir(),
        };
        let folder =
            folder.map_err(|error| CliError::usage(format!("there is no such folder: {error}")))?;
        let spec = CommandSpec {
            argv,
            cwd: Some(folder.to_string_lossy().into_owned()),
            ..CommandSpec::default()
        };
        let json = Json::of(&spec).map_err(|error| CliError::usage(error.to_string()))?;
        return Ok(Some(json));
    }
    let json = args::get(arguments, "payload").map(|text| Json::from_text(text.into()));
    json.transpose()
        .map_err(|error| CliError::usage(format!("--payload is not JSON: {error}")))
}

fn jitter(arguments: &ArgMatches) -> Result<Option<u32>, CliError> {
    let jitter = args::get(arguments, "jitter")
        .map(when::seconds)
        .transpose();
    let jitter = jitter.map_err(|wrong| CliError::usage(format!("--jitter: {wrong}")))?;
    Ok(jitter.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)))
}

fn missed(arguments: &ArgMatches) -> Option<Missed> {
    Some(match args::get(arguments, "missed")? {
        "skip" => Missed::Skip,
        "all" => Missed::All,
        _ => Missed::Once,
    })
}

/// The schedule with what was named in place of what it was.
fn edited(
    client: &Client,
    before: ScheduleSpec,
    arguments: &ArgMatches,
) -> Result<ScheduleSpec, CliError> {
    let ScheduleSpec { job: old, .. } = &before;
    let is_command = command_of(old).is_some();
    if !is_command && !args::all(arguments, "command").is_empty() {
        return Err(CliError::usage(format!(
            "{} submits jobs of {}/{}, not commands",
            before.name, old.addon_id, old.job_type
        ))
        .hint("write --payload, or add another schedule"));
    }
    let new = described(client, arguments, &old.addon_id, &old.job_type, None)?;
    let named = |name: &str| {
        let source = arguments.value_source(name);
        source == Some(clap::parser::ValueSource::CommandLine)
    };
    fn chosen<T>(named: bool, new: T, old: &T) -> T
    where
        T: Clone,
    {
        if named { new } else { old.clone() }
    }
    let mut job = SubmitRequest {
        payload: payload(arguments)?.or_else(|| old.payload.clone()),
        cost_units: chosen(named("cost"), new.cost_units, &old.cost_units),
        priority: chosen(named("priority"), new.priority, &old.priority),
        time_sensitive: new.time_sensitive || old.time_sensitive,
        constraints: chosen(named("heavy"), new.constraints, &old.constraints),
        expected_duration_sec: new.expected_duration_sec.or(old.expected_duration_sec),
        max_runtime_sec: new.max_runtime_sec.or(old.max_runtime_sec),
        max_attempts: new.max_attempts.or(old.max_attempts),
        backoff: new.backoff.or(old.backoff),
        tags: chosen(named("tag"), new.tags, &old.tags),
        unique_key: new.unique_key.or_else(|| old.unique_key.clone()),
        concurrency_key: new.concurrency_key.or_else(|| old.concurrency_key.clone()),
        concurrency_limit: new.concurrency_limit.or(old.concurrency_limit),
        depends_on: chosen(named("depends-on"), new.depends_on, &old.depends_on),
        on_dependency_failure: chosen(
            named("on-dependency-failure"),
            new.on_dependency_failure,
            &old.on_dependency_failure,
        ),
        required_node: new.required_node.or_else(|| old.required_node.clone()),
        required_labels: chosen(named("label"), new.required_labels, &old.required_labels),
        ..old.clone()
    };
    if is_command && args::get(arguments, "cwd").is_none() {
        keep_folder(&mut job, old);
    }
    let text = |name: &str, old: &String| args::get(arguments, name).unwrap_or(old).to_owned();
    let spec = ScheduleSpec {
        name: text("name", &before.name),
        cron: text("cron", &before.cron),
        time_zone: text("zone", &before.time_zone),
        jitter_sec: jitter(arguments)?.unwrap_or(before.jitter_sec),
        missed: missed(arguments).unwrap_or(before.missed),
        overlap: match (
            arguments.get_flag("no-overlap"),
            arguments.get_flag("overlap"),
        ) {
            (true, _) => Overlap::Forbid,
            (_, true) => Overlap::Allow,
            _ => before.overlap,
        },
        paused: before.paused,
        job,
    };
    if spec == before {
        return Err(CliError::usage("nothing would change")
            .hint("name what shall change, such as --cron \"0 4 * * *\""));
    }
    Ok(spec)
}

/// The command that a job is, if it is one.
fn command_of(job: &SubmitRequest) -> Option<CommandSpec> {
    let is_command = job.addon_id == RUNNER_ADDON && job.job_type == RUNNER_TYPE;
    let payload = job.payload.as_ref().filter(|_| is_command)?;
    payload.read().ok()
}

/// A command that replaces another one runs where that one did.
fn keep_folder(job: &mut SubmitRequest, old: &SubmitRequest) {
    if let (Some(mut new), Some(old)) = (command_of(job), command_of(old)) {
        new.cwd = old.cwd;
        job.payload = Json::of(&new).ok();
    }
}

fn spec(client: &Client, arguments: &ArgMatches) -> Result<ScheduleSpec, CliError> {
    let payload = payload(arguments)?;
    let is_command = !args::all(arguments, "command").is_empty();
    let (addon, job_type) = match is_command {
        true => (RUNNER_ADDON.to_owned(), RUNNER_TYPE.to_owned()),
        false => (
            args::needed(arguments, "addon")?,
            args::needed(arguments, "type")?,
        ),
    };
    Ok(ScheduleSpec {
        name: args::needed(arguments, "name")?,
        cron: args::needed(arguments, "cron")?,
        time_zone: args::get(arguments, "zone").unwrap_or("UTC").into(),
        jitter_sec: jitter(arguments)?.unwrap_or(0),
        missed: missed(arguments).unwrap_or_default(),
        overlap: match arguments.get_flag("no-overlap") {
            true => Overlap::Forbid,
            false => Overlap::Allow,
        },
        paused: false,
        job: SubmitRequest {
            // What it submits some day is no step of this command.
            traceparent: None,
            ..described(client, arguments, &addon, &job_type, payload)?
        },
    })
}

/// By its name, its id or a part of that.
fn find(client: &Client, arguments: &ArgMatches) -> Result<ScheduleView, CliError> {
    let wanted: String = args::needed(arguments, "schedule")?;
    let all = client.schedules()?;
    names::one_of(all, &wanted, "schedule", "jobtree schedule ls", |each| {
        (&each.spec.name, each.schedule_id.0)
    })
}

fn list(schedules: Vec<ScheduleView>, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        #[derive(Serialize)]
        struct Document {
            schedules: Vec<ScheduleView>,
        }
        return context.out.document(&Document { schedules });
    }
    let columns = ["NAME", "CRON", "ZONE", "JOB", "NEXT", "LAST"];
    let columns = columns.map(|title| (title, Align::Left));
    let rows: Vec<_> = schedules
        .into_iter()
        .map(
            |ScheduleView {
                 spec,
                 next_at,
                 last_at,
                 ..
             }| {
                let next = match (spec.paused, next_at) {
                    (true, _) => "paused".into(),
                    (false, next) => next.map_or("never".into(), shown),
                };
                let job = match command_of(&spec.job) {
                    Some(command) => cell(&summary::typed(&command.argv), 60),
                    None => format!("{}/{}", spec.job.addon_id, spec.job.job_type),
                };
                let last = last_at.map_or("never".into(), shown);
                vec![spec.name, spec.cron, spec.time_zone, job, next, last]
            },
        )
        .collect();
    context.out.table(&columns, &rows)
}

fn show(view: &ScheduleView, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        return context.out.document(view);
    }
    let ScheduleView {
        spec,
        schedule_id,
        next_at,
        last_at,
        last_job,
    } = view;
    let line = |name: &str, value: Option<String>| match value {
        Some(value) => context.out.print(&format!("{name:<12} {value}")),
        None => Ok(()),
    };
    let job = &spec.job;
    let command = command_of(job);
    line("schedule", Some(schedule_id.to_string()))?;
    line("name", Some(spec.name.clone()))?;
    line("cron", Some(format!("{} {}", spec.cron, spec.time_zone)))?;
    line(
        "jitter",
        (spec.jitter_sec > 0).then(|| seconds(spec.jitter_sec.into())),
    )?;
    line(
        "missed",
        Some(match spec.missed {
            Missed::Skip => "skip: no job for firings that were missed while no daemon ran".into(),
            Missed::Once => {
                "once: one job for all firings that were missed while no daemon ran".into()
            }
            Missed::All => "all: a job for each firing that was missed while no daemon ran".into(),
        }),
    )?;
    line(
        "overlap",
        Some(match spec.overlap {
            Overlap::Allow => "allowed".into(),
            Overlap::Forbid => {
                "forbidden: a firing is left out while the job before has not ended".into()
            }
        }),
    )?;
    line("paused", spec.paused.then(|| "yes".into()))?;
    line("next", next_at.map(shown))?;
    line("last", last_at.map(shown))?;
    line("last job", last_job.map(|id| id.to_string()))?;
    line("job", Some(format!("{}/{}", job.addon_id, job.job_type)))?;
    if let Some(command) = command {
        line("command", Some(summary::typed(&command.argv)))?;
        line("folder", command.cwd)?;
    } else {
        line(
            "payload",
            job.payload.as_ref().map(|json| cell(json.text(), 200)),
        )?;
    }
    line("cost", Some(job.cost_units.to_string()))?;
    line("priority", Some(job.priority.to_string()))?;
    line("now", job.time_sensitive.then(|| "yes".into()))?;
    line(
        "heavy on",
        Some(show::heavy(&job.constraints)).filter(|heavy| !heavy.is_empty()),
    )?;
    line("expected", job.expected_duration_sec.map(seconds))?;
    line("max runtime", job.max_runtime_sec.map(seconds))?;
    line("attempts", job.max_attempts.map(|most| most.to_string()))?;
    line("backoff", job.backoff.as_ref().map(show::backoff))?;
    line(
        "tags",
        Some(job.tags.join(", ")).filter(|tags| !tags.is_empty()),
    )?;
    line("unique", job.unique_key.clone())?;
    line(
        "group",
        job.concurrency_key
            .as_ref()
            .map(|key| format!("{key}, {} at a time", job.concurrency_limit.unwrap_or(1))),
    )?;
    let depends: Vec<_> = job.depends_on.iter().map(ToString::to_string).collect();
    line(
        "depends on",
        Some(depends.join(", ")).filter(|ids| !ids.is_empty()),
    )?;
    line("node", job.required_node.clone())?;
    line(
        "labels",
        Some(job.required_labels.join(", ")).filter(|labels| !labels.is_empty()),
    )
}

fn seconds(count: i64) -> String {
    when::length(Duration::from_secs(u64::try_from(count).unwrap_or(0)))
}
