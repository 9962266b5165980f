//! `jobtree doctor`: what is well here, what is not, and what to do about it.

mod checks;

use clap::{ArgMatches, Command};
use serde::Serialize;

use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;
use crate::out::Align;

pub fn define(command: Command) -> Command {
    command
        .about("Check this machine, the settings and the daemon")
        .after_help("Exits with 1 if something is broken; what is merely missing is a warning.")
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Finding {
    Well,
    /// It works without.
    Warning,
    Broken,
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    finding: Finding,
    told: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<String>,
}

impl Check {
    fn well(name: &'static str, told: impl Into<String>) -> Self {
        Check {
            name,
            finding: Finding::Well,
            told: told.into(),
            advice: None,
        }
    }

    fn warning(name: &'static str, told: impl Into<String>, advice: impl Into<String>) -> Self {
        Check {
            finding: Finding::Warning,
            advice: Some(advice.into()),
            ..Check::well(name, told)
        }
    }

    fn broken(name: &'static str, told: impl Into<String>, advice: impl Into<String>) -> Self {
        Check {
            finding: Finding::Broken,
            ..Check::warning(name, told, advice)
        }
    }
}

#[derive(Serialize)]
struct Document<'a> {
    checks: &'a [Check],
}

pub fn run(_: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let checks = checks::all(context);
    if context.out.json {
        context.out.document(&Document { checks: &checks })?;
    } else {
        let columns = [
            ("", Align::Left),
            ("WHAT", Align::Left),
            ("HOW", Align::Left),
        ];
        let rows: Vec<_> = checks
            .iter()
            .map(|check| {
                let sign = match check.finding {
                    Finding::Well => "ok",
                    Finding::Warning => "warn",
                    Finding::Broken => "FAIL",
                };
                let advice = check.advice.as_ref();
                let advice = advice
                    .map(|advice| format!(": {advice}"))
                    .unwrap_or_default();
                vec![
                    sign.to_owned(),
                    check.name.to_owned(),
                    format!("{}{advice}", check.told),
                ]
            })
            .collect();
        context.out.table(&columns, &rows)?;
    }
    let broken = checks.iter().any(|check| check.finding == Finding::Broken);
    Ok(if broken { Exit::FAILED } else { Exit::OK })
}
