//! What a shell offers for an argument: jobs, addons, types and states as the daemon knows them now.
//!
//! The shell calls this executable with `JOBTREE_COMPLETE` set, and what was typed. Arguments are told apart by the name of
//! their value in the help (`JOB`, `ADDON`, …), so a new command has completions without a word about them. A daemon that is
//! not there, or does not answer soon, offers nothing.

use std::collections::BTreeSet;
use std::ffi::OsStr;

use clap::{Arg, Command};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter, CompletionCandidate};
use jobtree_client::Client;
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_protocol::{EventKind, JobState, JobView, Priority, Scope};

use crate::context::Context;
use crate::out::cell;
use crate::{names, summary};

/// The variable by which a shell asks.
pub const VARIABLE: &str = "JOBTREE_COMPLETE";
/// The newest jobs that are offered, or looked at for addons and types.
const JOBS: u32 = 200;

/// Answers a shell, and ends the process, if a shell asks.
pub fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(move || with_completers(command()))
        .var(VARIABLE)
        .complete();
}

fn with_completers(command: Command) -> Command {
    command
        .mut_args(with_completer)
        .mut_subcommands(with_completers)
}

fn with_completer(argument: Arg) -> Arg {
    let values = argument.get_value_names().unwrap_or_default();
    let Some(value) = values.first().map(ToString::to_string) else {
        return argument;
    };
    match value.as_str() {
        "JOB" => argument.add(ArgValueCompleter::new(jobs)),
        "ADDON" => argument.add(ArgValueCandidates::new(addons)),
        "TYPE" => argument.add(ArgValueCandidates::new(types)),
        "FILTER" => argument.add(ArgValueCompleter::new(filters)),
        "TOKEN" => argument.add(ArgValueCandidates::new(tokens)),
        "WEBHOOK" => argument.add(ArgValueCandidates::new(webhooks)),
        "SCHEDULE" => argument.add(ArgValueCandidates::new(schedules)),
        "CLASS" => argument.add(ArgValueCandidates::new(|| {
            plain(Priority::ALL.map(|class| class.as_str().to_lowercase()))
        })),
        "SCOPE" => argument.add(ArgValueCandidates::new(|| plain(Scope::ALL))),
        "KIND" => argument.add(ArgValueCandidates::new(|| {
            plain(EventKind::ALL.iter().map(|kind| kind.as_str()))
        })),
        "SIGNAL" => argument.add(ArgValueCandidates::new(|| {
            plain(["HUP", "USR1", "USR2", "WINCH"])
        })),
        _ => argument,
    }
}

fn plain<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<CompletionCandidate> {
    let each = values.into_iter().map(|value| value.to_string());
    each.map(CompletionCandidate::new).collect()
}

/// A client by the settings of the environment: what stands on the line that is being typed is not known here.
fn client() -> Option<Client> {
    Context::of_environment().ok()?.client().ok()
}

fn recent(id: Option<String>) -> Vec<JobView> {
    let query = RecentQuery {
        id,
        limit: Some(JOBS),
        ..RecentQuery::default()
    };
    let list = client().and_then(|client| client.recent_jobs(&query).ok());
    list.map_or(Vec::new(), |list| list.jobs)
}

/// The ends of the ids of the newest jobs, or whole ids that begin with what was typed.
fn jobs(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().to_ascii_lowercase();
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let part = (!typed.is_empty() && typed.chars().all(is_part)).then(|| typed.clone());
    let named = |job: &JobView| {
        let (end, whole) = (names::short(job.job_id), job.job_id.to_string());
        let value = [end, whole].into_iter().find(|id| id.starts_with(&typed))?;
        let about = format!(
            "{} {}/{} {}",
            job.state,
            job.addon_id,
            job.job_type,
            cell(&summary::what(job), 40)
        );
        Some(CompletionCandidate::new(value).help(Some(about.into())))
    };
    let mut found: Vec<_> = recent(None).iter().filter_map(named).collect();
    if found.is_empty() && part.is_some() {
        found = recent(part).iter().filter_map(named).collect();
    }
    if names::LAST.starts_with(&typed) {
        let newest = "the newest job".to_owned();
        found.push(CompletionCandidate::new(names::LAST).help(Some(newest.into())));
    }
    found
}

fn distinct(of: impl Fn(&JobView) -> String) -> Vec<String> {
    let all: BTreeSet<String> = recent(None).iter().map(of).collect();
    all.into_iter().collect()
}

fn addons() -> Vec<CompletionCandidate> {
    plain(distinct(|job| job.addon_id.to_string()))
}

fn types() -> Vec<CompletionCandidate> {
    plain(distinct(|job| job.job_type.to_string()))
}

fn tokens() -> Vec<CompletionCandidate> {
    let tokens = client().and_then(|client| client.tokens().ok());
    plain(
        tokens
            .unwrap_or_default()
            .into_iter()
            .map(|token| token.name),
    )
}

fn webhooks() -> Vec<CompletionCandidate> {
    let webhooks = client().and_then(|client| client.webhooks().ok());
    let urls = webhooks.unwrap_or_default().into_iter();
    plain(urls.map(|webhook| webhook.url))
}

fn schedules() -> Vec<CompletionCandidate> {
    let schedules = client().and_then(|client| client.schedules().ok());
    let names = schedules.unwrap_or_default().into_iter();
    plain(names.map(|schedule| schedule.spec.name))
}

/// Returns the key of a filter whose value is asked for alone: bash splits a word at its colon. A word that ends with its colon
/// looks to bash as if a space stood there.
fn key_before(typed: &str) -> Option<String> {
    // Only the script for bash sets this one. The variable by which the shell asked is gone by now.
    std::env::var_os("_CLAP_COMPLETE_COMP_TYPE")?;
    let index: usize = std::env::var("_CLAP_COMPLETE_INDEX").ok()?.parse().ok()?;
    let mut words = std::env::args().skip_while(|word| word != "--").skip(1);
    let before: Vec<String> = words.by_ref().take(index).collect();
    match &before[..] {
        [.., key, colon] if colon == ":" => Some(key.clone()),
        [.., key] if typed.is_empty() => Some(key.clone()),
        _ => None,
    }
}

/// The words of a filter.
fn filters(typed: &OsStr) -> Vec<CompletionCandidate> {
    let typed = typed.to_string_lossy().into_owned();
    let states = || {
        let names = JobState::ALL.map(|state| state.as_str().to_lowercase());
        let groups = ["waiting", "open", "ended"].map(str::to_owned);
        names.into_iter().chain(groups).collect::<Vec<_>>()
    };
    let of_addon = || distinct(|job| job.addon_id.to_string());
    let of_type = || distinct(|job| job.job_type.to_string());
    let behind = |key: &str, values: Vec<String>| {
        let whole = values.into_iter().map(|value| format!("{key}:{value}"));
        whole.collect::<Vec<_>>()
    };
    match key_before(&typed).as_deref() {
        Some("state") => return plain(beginning(states(), &typed)),
        Some("addon") => return plain(beginning(of_addon(), &typed)),
        Some("type") => return plain(beginning(of_type(), &typed)),
        _ => {}
    }
    let all = match typed.split_once(':') {
        Some(("state", _)) => behind("state", states()),
        Some(("addon", _)) => behind("addon", of_addon()),
        Some(("type", _)) => behind("type", of_type()),
        Some(_) => Vec::new(),
        None => {
            let keys = ["state:", "addon:", "type:", "tag:", "ended:", "quarantined"];
            keys.map(str::to_owned).into()
        }
    };
    plain(beginning(all, &typed))
}

/// Returns those that begin with what was typed.
fn beginning(words: Vec<String>, typed: &str) -> impl Iterator<Item = String> {
    let begins = move |word: &String| word.starts_with(typed);
    words.into_iter().filter(begins)
}
