//! `jobtree schedule`: jobs by the clock.

use clap::{ArgMatches, Command};
use jobtree_client::Client;
use jobtree_protocol::{Json, Missed, Overlap, ScheduleSpec, ScheduleView, SubmitRequest};
use serde::Serialize;

use crate::args::{self, described, flag, of_a_job, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::Align;
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
                .arg(place("addon", "ADDON", "Whose job it is").required(true))
                .arg(place("type", "TYPE", "Which handler runs it").required(true))
                .arg(value("payload", "JSON", "Its input").allow_hyphen_values(true))
                .arg(value(
                    "zone",
                    "ZONE",
                    "The time zone, such as Europe/Berlin [UTC]",
                ))
                .arg(value(
                    "jitter",
                    "DURATION",
                    "Each firing is moved by up to this",
                ))
                .arg(
                    value(
                        "missed",
                        "WHAT",
                        "Firings nobody was there for: skip, once or all [once]",
                    )
                    .value_parser(["skip", "once", "all"]),
                )
                .arg(flag(
                    "no-overlap",
                    "Leave a firing out while the job before has not ended",
                ))
                .args(of_a_job().into_iter().filter(|argument| {
                    // They would be the same for every firing.
                    !["after", "deadline", "key", "drop-late"].contains(&argument.get_id().as_str())
                })),
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

fn spec(client: &Client, arguments: &ArgMatches) -> Result<ScheduleSpec, CliError> {
    let payload = args::get(arguments, "payload").map(|text| Json::from_text(text.into()));
    let payload = payload.transpose();
    let payload =
        payload.map_err(|error| CliError::usage(format!("--payload is no JSON: {error}")))?;
    let addon: String = args::needed(arguments, "addon")?;
    let job_type: String = args::needed(arguments, "type")?;
    let jitter = args::get(arguments, "jitter")
        .map(when::seconds)
        .transpose();
    let jitter = jitter.map_err(|wrong| CliError::usage(format!("--jitter: {wrong}")))?;
    Ok(ScheduleSpec {
        name: args::needed(arguments, "name")?,
        cron: args::needed(arguments, "cron")?,
        time_zone: args::get(arguments, "zone").unwrap_or("UTC").into(),
        jitter_sec: u32::try_from(jitter.unwrap_or(0)).unwrap_or(u32::MAX),
        missed: match args::get(arguments, "missed") {
            Some("skip") => Missed::Skip,
            Some("all") => Missed::All,
            _ => Missed::Once,
        },
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
                let job = format!("{}/{}", spec.job.addon_id, spec.job.job_type);
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
    line("schedule", Some(schedule_id.to_string()))?;
    line("name", Some(spec.name.clone()))?;
    line("cron", Some(format!("{} {}", spec.cron, spec.time_zone)))?;
    line(
        "job",
        Some(format!("{}/{}", spec.job.addon_id, spec.job.job_type)),
    )?;
    line("paused", spec.paused.then(|| "yes".into()))?;
    line("next", next_at.map(shown))?;
    line("last", last_at.map(shown))?;
    line("last job", last_job.map(|id| id.to_string()))
}
