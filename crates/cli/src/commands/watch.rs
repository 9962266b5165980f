//! `jobtree watch`: what happens, as it happens.

use clap::{ArgAction, ArgMatches, Command};
use jobtree_client::events::{Filter, Happened, What};
use jobtree_protocol::{AddonId, Event, EventKind, JobType, LoadSample};
use serde::Serialize;

use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::cell;
use crate::when::{localized, shown};

pub fn define(command: Command) -> Command {
    command
        .about("Follow events as they happen")
        .after_help("With --json, one event a line, with its place in the trail as `cursor`: --after goes on from there.")
        .arg(value("addon", "ADDON", "Of this addon"))
        .arg(value("type", "TYPE", "Of jobs of this type"))
        .arg(value("job", "JOB", "Of this job"))
        .arg(value("kind", "KIND", "Of this kind, such as DONE; may be repeated").action(ArgAction::Append))
        .arg(value("after", "CURSOR", "From this place in the trail on"))
        .arg(value("count", "N", "End after so many"))
}

#[derive(Serialize)]
struct Line<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    addon_id: Option<&'a AddonId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job_type: Option<&'a JobType>,
    #[serde(flatten)]
    what: Body<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Body<'a> {
    Event(&'a Event),
    Load { load: &'a LoadSample },
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let kinds = args::all(arguments, "kind");
    let filter = Filter {
        addon_id: args::read(arguments, "addon")?,
        job_type: args::read(arguments, "type")?,
        job_id: names::job_of(&client, arguments, "job")?,
        kinds: kinds
            .iter()
            .map(|name| kind(name))
            .collect::<Result<_, _>>()?,
    };
    let after = args::read(arguments, "after")?;
    let count: Option<usize> = args::read(arguments, "count")?;
    let mut events = client.events(filter, after);
    // Without a daemon there is nothing to watch; one that restarts later is waited for.
    events.connect()?;
    context.out.note("watching; Ctrl-C ends it");
    for happened in events.take(count.unwrap_or(usize::MAX)) {
        tell(&happened?, context)?;
    }
    Ok(Exit::OK)
}

fn kind(name: &str) -> Result<EventKind, CliError> {
    let found = EventKind::ALL
        .iter()
        .find(|kind| kind.as_str().eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| {
        let all: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
        CliError::usage(format!("--kind: there is no {name:?}"))
            .hint(format!("write one of {}", all.join(", ")))
    })
}

fn tell(happened: &Happened, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        let what = match &happened.what {
            What::Event(event) => Body::Event(event),
            What::Load(load) => Body::Load { load },
            _ => return Ok(()),
        };
        return context.out.line(&Line {
            cursor: happened.cursor,
            addon_id: happened.addon_id.as_ref(),
            job_type: happened.job_type.as_ref(),
            what,
        });
    }
    match &happened.what {
        What::Event(event) => {
            let job = event.job_id.map(|id| id.to_string());
            let whose = match (&happened.addon_id, &happened.job_type) {
                (Some(addon), Some(kind)) => format!("{addon}/{kind}"),
                (Some(addon), None) => addon.to_string(),
                _ => String::new(),
            };
            let line = format!(
                "{}  {:<16} {:<36}  {whose}  {}",
                shown(event.at),
                event.kind.as_str(),
                job.unwrap_or_default(),
                cell(&localized(event.reason.as_deref().unwrap_or_default()), 100),
            );
            context.out.print(line.trim_end())
        }
        What::Load(load) => {
            let line = format!(
                "{}  {:<16} busy {:.1}, capacity {}, used {}",
                shown(load.at),
                format!("{:?}", load.state).to_uppercase(),
                load.busy,
                load.capacity,
                load.used,
            );
            context.out.print(&line)
        }
        _ => Ok(()),
    }
}
