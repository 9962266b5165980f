//! How a user names a job, token or schedule on the command line.
//!
//! A job is named by its id, by any part from the beginning or the end of its id that fits one job, or by `last`. Ids of
//! neighbours begin alike, since ids begin with the time; so `ls` and `top` show the end, which [`short`] returns. Tokens
//! and schedules are named by their name, or by their id or a part of it.

use clap::ArgMatches;
use jobtree_client::protocol::operations::RecentQuery;
use jobtree_client::{Client, ClientError};
use jobtree_protocol::{ErrorCode, JobId, JobView};
use uuid::Uuid;

use crate::args;
use crate::error::CliError;

/// The digits of an id that tables show: its last ones. Of 10 000 jobs, two share them by chance in one of a hundred cases.
const SHOWN: usize = 8;
/// The matching jobs that an error names.
const NAMED: usize = 5;
/// The word for the job that was submitted last.
pub const LAST: &str = "last";

/// The part of an id that tables show.
pub fn short(id: JobId) -> String {
    let text = id.to_string();
    text[text.len() - SHOWN..].to_owned()
}

/// Returns the job that a text names. A whole id is not looked up: whoever uses it finds out whether the job exists.
pub fn job(client: &Client, text: &str) -> Result<JobId, CliError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    if text == LAST {
        let newest = recent(client, None, 1)?.pop();
        return newest.map(|job| job.job_id).ok_or_else(|| {
            CliError::not_found("there is no last job: the daemon has no jobs")
                .hint("submit one with `jobtree submit` or `jobtree run`")
        });
    }
    if !is_part(text) {
        return Err(
            CliError::usage(format!("{text:?} is not a job id")).hint(format!(
                "write an id, its first or last characters as `jobtree ls` shows them, or `{LAST}`"
            )),
        );
    }
    let mut found = recent(client, Some(text), NAMED + 1)?;
    match found.len() {
        0 => Err(CliError::not_found(format!(
            "no job has an id that begins or ends with {text:?}"
        ))
        .hint("list jobs with `jobtree ls --all`")),
        1 => Ok(found.remove(0).job_id),
        _ => Err(ambiguous(text, &found)),
    }
}

/// Returns the jobs that the values of an argument name.
pub fn jobs(
    client: &Client,
    arguments: &ArgMatches,
    argument: &str,
) -> Result<Vec<JobId>, CliError> {
    let texts = args::all(arguments, argument);
    texts.iter().map(|text| job(client, text)).collect()
}

/// Returns the job that the value of an argument names, if there is one.
pub fn job_of(
    client: &Client,
    arguments: &ArgMatches,
    argument: &str,
) -> Result<Option<JobId>, CliError> {
    args::get(arguments, argument)
        .map(|text| job(client, text))
        .transpose()
}

fn recent(client: &Client, part: Option<&str>, most: usize) -> Result<Vec<JobView>, CliError> {
    let query = RecentQuery {
        id: part.map(str::to_owned),
        limit: u32::try_from(most).ok(),
        ..RecentQuery::default()
    };
    match client.recent_jobs(&query) {
        Ok(list) => Ok(list.jobs),
        Err(ClientError::Refused { error, .. }) if error.code == ErrorCode::Forbidden => {
            let named = part.unwrap_or(LAST);
            Err(CliError::refused(format!(
                "{named:?} cannot be looked up: the token lacks the scope read"
            ))
            .hint("write the whole job id"))
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a text can be the beginning or the end of an id.
fn is_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_hexdigit())
        && text.len() <= 36
        && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

fn ambiguous(text: &str, found: &[JobView]) -> CliError {
    let more = if found.len() > NAMED { " or more" } else { "" };
    let count = found.len().min(NAMED);
    let mut hint = "write more of the id:".to_owned();
    for job in found.iter().take(NAMED) {
        let (id, state) = (job.job_id, job.state);
        hint += &format!("\n  {id}  {state}  {}/{}", job.addon_id, job.job_type);
    }
    CliError::usage(format!("{text:?} fits {count}{more} jobs")).hint(hint)
}

/// Finds what a user names among things that have a name and an id: a whole name, a whole id, or a part of one id.
///
/// `list` is the command that shows them.
pub fn one_of<T>(
    things: Vec<T>,
    wanted: &str,
    kind: &str,
    list: &str,
    name_and_id: impl Fn(&T) -> (&str, Uuid),
) -> Result<T, CliError> {
    let digits = wanted.replace('-', "").to_ascii_lowercase();
    let named = |thing: &T| name_and_id(thing).0 == wanted;
    let fits = |thing: &T| {
        let id = name_and_id(thing).1.simple().to_string();
        is_part(wanted) && (id.starts_with(&digits) || id.ends_with(&digits))
    };
    let by_name = things.iter().any(named);
    let chosen = |thing: &T| if by_name { named(thing) } else { fits(thing) };
    let mut found: Vec<T> = things.into_iter().filter(chosen).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(
            CliError::not_found(format!("there is no {kind} {wanted:?}"))
                .hint(format!("list them with `{list}`")),
        ),
        count => {
            let mut hint = "write the id of one:".to_owned();
            for (name, id) in found.iter().map(&name_and_id) {
                hint += &format!("\n  {id}  {name}");
            }
            Err(CliError::usage(format!("{wanted:?} fits {count} {kind}s")).hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(wanted: &str) -> Result<u128, String> {
        let things = vec![
            ("nightly", Uuid::from_u128(0x1111_u128 << 112)),
            ("abc", Uuid::from_u128(0x1112_u128 << 112 | 0xabc)),
            ("twice", Uuid::from_u128(3)),
            ("twice", Uuid::from_u128(4)),
        ];
        let found = one_of(things, wanted, "token", "jobtree token ls", |thing| *thing);
        found
            .map(|(_, id)| id.as_u128())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_counts_before_a_part_of_an_id() {
        assert_eq!(find("nightly"), Ok(0x1111 << 112));
        assert_eq!(find("1111"), Ok(0x1111 << 112));
        assert_eq!(find("abc"), Ok(0x1112 << 112 | 0xabc));
        assert_eq!(find("0004"), Ok(4));
    }

    #[test]
    fn what_fits_several_or_none_says_so() {
        let told = find("111").unwrap_err();
        assert!(
            told.starts_with("error: \"111\" fits 2 tokens\nhint: write the id of one:\n"),
            "{told}"
        );
        assert!(find("twice").unwrap_err().contains("fits 2 tokens"));
        let told = find("weekly").unwrap_err();
        assert_eq!(
            told,
            "error: there is no token \"weekly\"\nhint: list them with `jobtree token ls`"
        );
    }

    #[test]
    fn the_end_of_an_id_is_shown() {
        let id: JobId = "019a0000-0000-7000-8000-0000deadbeef".parse().unwrap();
        assert_eq!(short(id), "deadbeef");
    }
}
