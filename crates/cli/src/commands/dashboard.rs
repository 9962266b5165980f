//! `jobtree dashboard`: a link that opens the dashboard and signs the browser in.

use clap::{ArgMatches, Command};
use jiff::Timestamp;
use jobtree_client::Client;
use jobtree_protocol::{SessionKind, SessionView};
use serde::Serialize;

use crate::args::{self, value};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

pub fn define(command: Command) -> Command {
    command
        .about("Print a link that opens the dashboard in a browser and signs it in")
        .after_help(
            "The link works once, within a minute. The browser may then do what the token of this command may do, for 12 hours at \
             most: with a token that only reads, the dashboard shows no buttons. It ends when the token is removed.\n\n\
             Behind a proxy: jobtree dashboard --at https://jobs.example/queue/",
        )
        .arg(value(
            "at",
            "URL",
            "Where the browser finds the daemon, if that is not where this command finds it",
        ))
}

#[derive(Serialize)]
struct Link {
    url: String,
    /// The time after which it is refused; none for a daemon that asks for no token.
    expires_at: Option<Timestamp>,
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let client = context.client()?;
    let at = args::get(arguments, "at");
    let at = at.unwrap_or_else(|| context.settings.value("url"));
    if !at.starts_with("http://") && !at.starts_with("https://") {
        return Err(CliError::usage(format!("--at: {at:?} is not an address"))
            .hint("write it like https://jobs.example/"));
    }
    let (link, session) = link(&client, at)?;
    if context.out.json {
        context.out.document(&link)?;
        return Ok(Exit::OK);
    }
    match session.kind {
        SessionKind::Open => context.out.note("the daemon asks for no sign-in"),
        _ => context.out.note(&format!(
            "for one use, within a minute; the browser acts as {} ({})",
            session.name,
            rights(&session)
        )),
    }
    context.out.print(&link.url)?;
    Ok(Exit::OK)
}

/// Makes the link, for a browser that finds the daemon at this address.
fn link(client: &Client, at: &str) -> Result<(Link, SessionView), CliError> {
    let session = client.session()?;
    let at = at.trim_end_matches('/');
    let link = match session.kind {
        SessionKind::Open => Link {
            url: format!("{at}/"),
            expires_at: None,
        },
        _ => {
            let link = client.sign_in_link()?;
            Link {
                url: format!("{at}/enter#{}", link.code),
                expires_at: Some(link.expires_at),
            }
        }
    };
    Ok((link, session))
}

fn rights(session: &SessionView) -> String {
    let scopes: Vec<_> = session.scopes.iter().map(|scope| scope.as_str()).collect();
    match &session.addon_id {
        Some(addon) => format!("{} of addon {addon}", scopes.join(", ")),
        None => scopes.join(", "),
    }
}
