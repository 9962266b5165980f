//! `jobtree lease`: capacity for what runs outside the queue, by hand or from a script.

use clap::{ArgAction, ArgMatches, Command, value_parser};
use jobtree_client::process_origin;
use jobtree_protocol::{
    Heartbeat, LeaseId, LeaseRequest, LeaseView, Priority, Progress, ReleaseRequest, ReportRequest,
};
use serde::Serialize;

use crate::args::{self, flag, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::Align;
use crate::when::{self, localized, shown};

pub fn define(command: Command) -> Command {
    let lease = || place("lease", "LEASE", "Its id").required(true);
    let pids = || {
        value(
            "pid",
            "PID",
            "A process that works under it; may be repeated",
        )
        .action(ArgAction::Append)
        .value_parser(value_parser!(u32))
    };
    command
        .about("Ask for capacity, and hold it")
        .subcommand_required(true)
        .subcommand(
            Command::new("request")
                .about("Ask for capacity, or take up a dispatched job; prints the lease's id")
                .after_help(
                    "Exits with 6 if it is denied; standard error tells why and when to ask again.",
                )
                .arg(place("addon", "ADDON", "Who asks").required_unless_present("job"))
                .arg(place("type", "TYPE", "For what").required_unless_present("job"))
                .arg(value("cost", "UNITS", "How much, 1 to 100 [10]"))
                .arg(value("priority", "CLASS", "low, normal or high [normal]"))
                .arg(value("expect", "DURATION", "How long it probably runs"))
                .arg(value("job", "JOB", "The dispatch of this job"))
                .arg(pids()),
        )
        .subcommand(Command::new("ls").about("List leases that hold"))
        .subcommand(Command::new("show").about("Show a lease").arg(lease()))
        .subcommand(
            Command::new("heartbeat")
                .about("Renew it; prints what the scheduler advises")
                .arg(lease()),
        )
        .subcommand(
            Command::new("report")
                .about("Tell how far its job is")
                .arg(lease())
                .arg(value("progress", "SHARE", "0 to 1"))
                .arg(value("message", "TEXT", "In words"))
                .arg(value("job", "JOB", "Which job of a batch")),
        )
        .subcommand(
            Command::new("release")
                .about("Give it back")
                .arg(lease())
                .arg(flag(
                    "return-jobs",
                    "Its jobs wait again, and nothing is counted",
                ))
                .arg(value("reason", "TEXT", "Why")),
        )
        .subcommand(
            Command::new("revoke")
                .about("Take it away from its worker")
                .arg(lease())
                .arg(value("reason", "TEXT", "Why")),
        )
        .subcommand(
            Command::new("pid")
                .about("Register processes that work under it")
                .arg(lease())
                .arg(pids().required(true)),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let Some((name, arguments)) = arguments.subcommand() else {
        return Err(CliError::usage("a subcommand is missing"));
    };
    let id = || args::needed::<LeaseId>(arguments, "lease");
    let reason = || args::get(arguments, "reason");
    match name {
        "request" => return request(arguments, context),
        "ls" => list(context)?,
        "show" => show(&client.lease(id()?)?, context)?,
        "heartbeat" => {
            let answer = client.heartbeat(Heartbeat::of(id()?))?;
            match context.out.json {
                true => context.out.document(&answer)?,
                false => context.out.print(answer.advice.as_str())?,
            }
        }
        "report" => {
            client.report(ReportRequest {
                lease_id: id()?,
                job_id: names::job_of(&client, arguments, "job")?,
                progress: Some(Progress {
                    fraction: args::read(arguments, "progress")?,
                    message: args::get(arguments, "message").map(str::to_owned),
                }),
                metrics: Default::default(),
                pids: None,
                process_origin: None,
            })?;
            context.out.note("reported");
        }
        "release" => {
            let request = ReleaseRequest {
                return_jobs: arguments.get_flag("return-jobs"),
                reason: reason().map(str::to_owned),
                ..ReleaseRequest::default()
            };
            client.release(id()?, &request)?;
            context.out.note("released the lease");
        }
        "revoke" => {
            client.revoke(id()?, reason())?;
            context.out.note("revoked the lease");
        }
        _ => {
            client.pid(id()?, pids(arguments))?;
            context.out.note("registered the processes");
        }
    }
    Ok(Exit::OK)
}

fn pids(arguments: &ArgMatches) -> Vec<u32> {
    let given = arguments.get_many::<u32>("pid");
    given.unwrap_or_default().copied().collect()
}

fn request(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let priority = match args::get(arguments, "priority") {
        Some(text) => Priority::parse(text)
            .ok_or_else(|| CliError::usage(format!("--priority: {text:?} is none")))?,
        None => Priority::Normal,
    };
    let expect = args::get(arguments, "expect")
        .map(when::seconds)
        .transpose();
    let pids = pids(arguments);
    let client = context.client()?;
    let answer = client.lease_request(&LeaseRequest {
        addon_id: args::get(arguments, "addon").unwrap_or_default().into(),
        job_type: args::get(arguments, "type").unwrap_or_default().into(),
        cost_units: args::read(arguments, "cost")?.unwrap_or(10),
        priority,
        expected_duration_sec: expect
            .map_err(|wrong| CliError::usage(format!("--expect: {wrong}")))?,
        job_id: names::job_of(&client, arguments, "job")?,
        process_origin: Some(&pids[..])
            .filter(|pids| !pids.is_empty())
            .and_then(process_origin),
        pids,
        ..LeaseRequest::default()
    })?;
    if context.out.json {
        context.out.document(&answer)?;
    } else if let Some(id) = answer.lease_id {
        context.out.print(&id.to_string())?;
        context
            .out
            .note(&format!("renew it within {} s", answer.limits.ttl_sec));
    }
    if answer.approved {
        return Ok(Exit::OK);
    }
    let again = answer.retry_after_sec;
    let again = again
        .map(|sec| format!("; ask again in {sec} s"))
        .unwrap_or_default();
    context
        .out
        .note(&format!("denied: {}{again}", localized(&answer.reason)));
    Ok(Exit::CONFLICT)
}

fn list(context: &Context) -> Result<(), CliError> {
    let client = context.client()?;
    let (mut leases, mut after) = (Vec::new(), None);
    loop {
        let page = client.leases(after)?;
        leases.extend(page.leases);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if context.out.json {
        #[derive(Serialize)]
        struct Document {
            leases: Vec<LeaseView>,
        }
        return context.out.document(&Document { leases });
    }
    let columns = [
        ("LEASE", Align::Left),
        ("ADDON", Align::Left),
        ("TYPE", Align::Left),
        ("UNITS", Align::Right),
        ("JOBS", Align::Right),
        ("NODE", Align::Left),
        ("EXPIRES", Align::Left),
    ];
    let rows: Vec<_> = leases
        .iter()
        .map(|lease| {
            vec![
                lease.lease_id.to_string(),
                lease.addon_id.to_string(),
                lease
                    .job_type
                    .as_ref()
                    .map_or("-".into(), ToString::to_string),
                lease.cost_units.to_string(),
                lease.jobs.len().to_string(),
                lease.node_id.to_string(),
                shown(lease.expires_at),
            ]
        })
        .collect();
    context.out.table(&columns, &rows)
}

fn show(lease: &LeaseView, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        return context.out.document(lease);
    }
    let line = |name: &str, value: String| context.out.print(&format!("{name:<12} {value}"));
    line("lease", lease.lease_id.to_string())?;
    line("state", format!("{:?}", lease.state).to_uppercase())?;
    line("addon", lease.addon_id.to_string())?;
    line("units", lease.cost_units.to_string())?;
    line("node", lease.node_id.to_string())?;
    line("granted", shown(lease.granted_at))?;
    line("expires", shown(lease.expires_at))?;
    for job in &lease.jobs {
        line("job", job.to_string())?;
    }
    Ok(())
}
