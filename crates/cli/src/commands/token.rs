//! `jobtree token`: who may do what.

use clap::{ArgAction, ArgMatches, Command};
use jiff::Zoned;
use jobtree_protocol::{Scope, TokenRequest, TokenView};
use serde::Serialize;

use crate::args::{self, place, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::names;
use crate::out::Align;
use crate::when::{self, shown};

pub fn define(command: Command) -> Command {
    command
        .about("Make, list and remove tokens")
        .subcommand_required(true)
        .subcommand(
            Command::new("create")
                .about("Make a token; it is printed once, and never again")
                .arg(place("name", "NAME", "What it is for").required(true))
                .arg(value(
                    "addon",
                    "ADDON",
                    "It sees and touches only this addon's jobs",
                ))
                .arg(
                    value(
                        "scope",
                        "SCOPE",
                        "submit, read, cancel, lease or admin; may be repeated",
                    )
                    .action(ArgAction::Append)
                    .required(true)
                    .value_delimiter(','),
                )
                .arg(value(
                    "expires",
                    "TIME",
                    "Until then: 30d, tomorrow, RFC 3339",
                )),
        )
        .subcommand(Command::new("ls").about("List tokens, without their secrets"))
        .subcommand(
            Command::new("rm")
                .about("Remove a token: it is refused from now on")
                .arg(place("token", "TOKEN", "Its name, id, or a part of its id").required(true)),
        )
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    match arguments.subcommand() {
        Some(("create", arguments)) => create(arguments, context)?,
        Some(("rm", arguments)) => {
            let client = context.client()?;
            let wanted: String = args::needed(arguments, "token")?;
            let list = "jobtree token ls";
            let found = names::one_of(client.tokens()?, &wanted, "token", list, |each| {
                (&each.name, each.token_id)
            })?;
            client.delete_token(found.token_id)?;
            context.out.note(&format!(
                "removed token {} ({})",
                found.name, found.token_id
            ));
        }
        _ => list(context)?,
    }
    Ok(Exit::OK)
}

fn create(arguments: &ArgMatches, context: &Context) -> Result<(), CliError> {
    let scopes = args::all(arguments, "scope");
    let scopes = scopes.iter().map(|name| {
        let found = Scope::ALL.into_iter().find(|scope| scope.as_str() == name);
        found.ok_or_else(|| {
            CliError::usage(format!("--scope: there is no {name:?}"))
                .hint("write submit, read, cancel, lease or admin")
        })
    });
    let expires = args::get(arguments, "expires").map(|text| when::time(text, &Zoned::now()));
    let expires = expires.transpose();
    let made = context.client()?.add_token(&TokenRequest {
        name: args::needed(arguments, "name")?,
        addon_id: args::read(arguments, "addon")?,
        scopes: scopes.collect::<Result<_, _>>()?,
        expires_at: expires.map_err(|wrong| CliError::usage(format!("--expires: {wrong}")))?,
    })?;
    if context.out.json {
        return context.out.document(&made);
    }
    context.out.note("keep it: it is not shown again");
    context.out.print(&made.token)
}

fn list(context: &Context) -> Result<(), CliError> {
    let tokens = context.client()?.tokens()?;
    if context.out.json {
        #[derive(Serialize)]
        struct Document {
            tokens: Vec<TokenView>,
        }
        return context.out.document(&Document { tokens });
    }
    let columns = ["ID", "NAME", "ADDON", "SCOPES", "CREATED", "EXPIRES"];
    let columns = columns.map(|title| (title, Align::Left));
    let rows: Vec<_> = tokens
        .into_iter()
        .map(|token| {
            let scopes: Vec<_> = token.scopes.iter().map(|scope| scope.as_str()).collect();
            vec![
                token.token_id.to_string(),
                token.name,
                token
                    .addon_id
                    .map_or("all".into(), |addon| addon.to_string()),
                scopes.join(","),
                shown(token.created_at),
                token.expires_at.map_or("never".into(), shown),
            ]
        })
        .collect();
    context.out.table(&columns, &rows)
}
