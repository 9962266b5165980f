//! `jobtree webhook`: addresses that are told when jobs end.

use clap::{ArgAction, ArgMatches, Command};
use jobtree_client::Client;
use jobtree_client::protocol::{WebhookRequest, WebhookView};
use jobtree_protocol::{AddonId, EventKind};
use serde::Serialize;

use crate::args::{self, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::{Align, cell};
use crate::when::shown;

pub fn define(command: Command) -> Command {
    command
        .about("Make, list and remove webhooks: addresses that are told when jobs end")
        .subcommand_required(true)
        .subcommand(
            Command::new("add")
                .about("Add a webhook; prints its id")
                .after_help(
                    "Each delivery is a POST of the event as JSON, signed with the secret: HMAC-SHA256 in the header\n\
                     Jobtree-Signature. What happened while the daemon was down is delivered after its start.\n\n\
                     For example: jobtree webhook add https://example.org/hook --event DONE --event FAILED",
                )
                .arg(place("to", "URL", "Where to: http:// or https://").required(true))
                .arg(value("addon", "ADDON", "Only this addon's jobs [all]"))
                .arg(
                    value(
                        "event",
                        "KIND",
                        "Which events; may be repeated [DONE, FAILED, CANCELED, DISPATCHING]",
                    )
                    .action(ArgAction::Append),
                )
                .arg(value(
                    "secret-file",
                    "FILE",
                    "A file with the secret, 16 characters at least [JOBTREE_WEBHOOK_SECRET]",
                )),
        )
        .subcommand(Command::new("ls").about("List webhooks"))
        .subcommand(
            Command::new("rm")
                .about("Remove a webhook")
                .arg(place("webhook", "WEBHOOK", "Its address, id, or a part of its id").required(true)),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    match arguments.subcommand() {
        Some(("add", arguments)) => {
            let made = client.add_webhook(&request(arguments)?)?;
            match context.out.json {
                true => context.out.document(&made)?,
                false => context.out.print(&made.webhook_id.to_string())?,
            }
        }
        Some(("rm", arguments)) => {
            let found = find(&client, &args::needed::<String>(arguments, "webhook")?)?;
            client.delete_webhook(found.webhook_id)?;
            context
                .out
                .note(&format!("removed the webhook to {}", found.url));
        }
        _ => list(client.webhooks()?, context)?,
    }
    Ok(Exit::OK)
}

fn request(arguments: &ArgMatches) -> Result<WebhookRequest, CliError> {
    let events = args::all(arguments, "event");
    let events = events.iter().map(|name| {
        let kind = EventKind::ALL
            .iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(name));
        kind.copied().ok_or_else(|| {
            let known: Vec<_> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
            CliError::usage(format!("--event: {name:?} is not a kind of event"))
                .hint(format!("write one of {}", known.join(", ")))
        })
    });
    Ok(WebhookRequest {
        url: args::needed(arguments, "to")?,
        addon_id: args::read::<AddonId>(arguments, "addon")?,
        events: events.collect::<Result<_, _>>()?,
        secret: secret(arguments)?,
    })
}

/// A secret is not an argument: other users of this machine see those.
fn secret(arguments: &ArgMatches) -> Result<String, CliError> {
    if let Some(file) = args::get(arguments, "secret-file") {
        let read = std::fs::read_to_string(file);
        let read = read.map_err(|error| CliError::usage(format!("{file}: {error}")))?;
        return Ok(read.trim().to_owned());
    }
    std::env::var("JOBTREE_WEBHOOK_SECRET").map_err(|_| {
        CliError::usage("no secret is given")
            .hint("write --secret-file FILE, or set JOBTREE_WEBHOOK_SECRET")
    })
}

fn find(client: &Client, wanted: &str) -> Result<WebhookView, CliError> {
    let all = client.webhooks()?;
    names::one_of(all, wanted, "webhook", "jobtree webhook ls", |each| {
        (&each.url, each.webhook_id)
    })
}

fn list(webhooks: Vec<WebhookView>, context: &Context) -> Result<(), CliError> {
    if context.out.json {
        #[derive(Serialize)]
        struct Document {
            webhooks: Vec<WebhookView>,
        }
        return context.out.document(&Document { webhooks });
    }
    if webhooks.is_empty() {
        context.out.note("there are no webhooks");
        return Ok(());
    }
    let columns = [
        ("WEBHOOK", Align::Left),
        ("URL", Align::Left),
        ("ADDON", Align::Left),
        ("EVENTS", Align::Left),
        ("CREATED", Align::Left),
        ("DELIVERED", Align::Right),
        ("GIVEN UP", Align::Right),
        ("LAST ERROR", Align::Left),
    ];
    let rows: Vec<_> = webhooks
        .into_iter()
        .map(|webhook| {
            let id = webhook.webhook_id.to_string();
            let events: Vec<_> = webhook.events.iter().map(|kind| kind.as_str()).collect();
            vec![
                id[id.len() - 8..].to_owned(),
                webhook.url,
                webhook
                    .addon_id
                    .map_or("all".into(), |addon| addon.to_string()),
                events.join(","),
                shown(webhook.created_at),
                webhook.delivered.to_string(),
                webhook.given_up.to_string(),
                cell(&webhook.last_error.unwrap_or_default(), 60),
            ]
        })
        .collect();
    context.out.table(&columns, &rows)
}
