//! The language of `jobtree ls`: words that must all hold.
//!
//! ```text
//! state:queued,running addon:photos type:index tag:"two words" quarantined ended:1h holiday pictures
//! ```
//!
//! `state:` takes names of states, or `waiting` (QUEUED, DISPATCHING), `open` (not ended) and `ended`. `ended:` takes how long ago
//! a job has ended at most, or since when. A word without a key
//! is searched for in names, tags and errors; several of them must stand there side by side.

use clap::ArgMatches;
use jiff::Zoned;
use jobtree_protocol::{AddonId, JobQuery, JobState, JobType};

use crate::args;
use crate::error::CliError;
use crate::when;

const KEYS: &str = "state:, addon:, type:, tag:, ended:, quarantined, or words to search for";

/// Reads a filter.
///
/// # Errors
/// What is wrong with it, and what to write.
pub fn parse(words: &[String]) -> Result<JobQuery, String> {
    let mut query = JobQuery::default();
    let mut text: Vec<String> = Vec::new();
    for word in split(&words.join(" "))? {
        let Word { key, value } = word;
        match key.as_deref() {
            None if value == "quarantined" => query.quarantined = true,
            None => text.push(value),
            Some("state" | "states") => states(&value, &mut query.state)?,
            Some("addon" | "addon_id") => {
                let addon = AddonId::new(&value).map_err(|wrong| format!("addon: {wrong}"))?;
                once("addon", &mut query.addon_id, addon)?;
            }
            Some("type" | "job_type") => {
                let kind = JobType::new(&value).map_err(|wrong| format!("type: {wrong}"))?;
                once("type", &mut query.job_type, kind)?;
            }
            Some("tag") => once("tag", &mut query.tag, value)?,
            Some("ended" | "ended_since") => {
                let since = when::past(&value, &Zoned::now());
                let since = since.map_err(|wrong| format!("ended: {wrong}"))?;
                once("ended", &mut query.ended_since, since)?;
            }
            Some(key) => {
                return Err(format!("there is no filter {key:?}: write {KEYS}"));
            }
        }
    }
    if !text.is_empty() {
        query.text = Some(text.join(" "));
    }
    Ok(query)
}

/// Reads which jobs a command on many is for: those of `--filter`, or with `--all` every one; none if jobs are named.
///
/// # Errors
/// If the filter makes no sense, or fits every job without `--all`: that is more often a variable that is empty than a wish.
pub fn of_many(arguments: &ArgMatches, command: &str) -> Result<Option<JobQuery>, CliError> {
    if args::has(arguments, "all") {
        return Ok(Some(JobQuery::default()));
    }
    let Some(words) = args::get(arguments, "filter") else {
        return Ok(None);
    };
    let query = parse(&[words.to_owned()]).map_err(CliError::usage)?;
    if query == JobQuery::default() {
        return Err(
            CliError::usage(format!("--filter {words:?} fits every job"))
                .hint(format!("to {command} every job, write --all")),
        );
    }
    Ok(Some(query))
}

/// A word, and the key before its colon.
struct Word {
    key: Option<String>,
    value: String,
}

/// Takes it apart at spaces that are not in quotes.
fn split(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut characters = line.chars().peekable();
    while let Some(&first) = characters.peek() {
        if first.is_whitespace() {
            characters.next();
            continue;
        }
        let (mut key, mut value, mut quoted) = (None, String::new(), false);
        while let Some(character) = characters.next_if(|c| quoted || !c.is_whitespace()) {
            match character {
                '"' => quoted = !quoted,
                // Only the first: a value may hold more.
                ':' if !quoted && key.is_none() => {
                    key = Some(std::mem::take(&mut value).to_ascii_lowercase());
                }
                other => value.push(other),
            }
        }
        if quoted {
            return Err(format!("{line:?} lacks a closing quotation mark"));
        }
        if let Some(key) = &key
            && value.is_empty()
        {
            return Err(format!(
                "behind {key:?}: nothing follows the colon; write a value"
            ));
        }
        words.push(Word { key, value });
    }
    Ok(words)
}

fn states(value: &str, into: &mut Vec<JobState>) -> Result<(), String> {
    for name in value.split(',') {
        into.extend(match name.to_ascii_lowercase().as_str() {
            "waiting" => JobState::all_with(JobState::is_waiting),
            "open" => JobState::all_with(|state| !state.is_ended()),
            "ended" => JobState::all_with(JobState::is_ended),
            "cancelled" => vec![JobState::Canceled],
            _ => vec![
                name.parse()
                    .map_err(|wrong: jobtree_protocol::FieldError| wrong.message)?,
            ],
        });
    }
    into.sort_unstable();
    into.dedup();
    Ok(())
}

fn once<T>(key: &str, into: &mut Option<T>, value: T) -> Result<(), String> {
    match into.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!(
            "{key}: is there twice, and no job has two: write one"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<JobQuery, String> {
        parse(&[line.to_owned()])
    }

    #[test]
    fn all_that_can_be_said() {
        let query = read(
            "state:queued,RUNNING addon:photos  type:a:b tag:\"two words\" quarantined old stuff",
        )
        .unwrap();
        assert_eq!(query.state, [JobState::Queued, JobState::Running]);
        assert_eq!(query.addon_id.unwrap().as_str(), "photos");
        assert_eq!(query.job_type.unwrap().as_str(), "a:b");
        assert_eq!(query.tag.as_deref(), Some("two words"));
        assert!(query.quarantined);
        assert_eq!(query.text.as_deref(), Some("old stuff"));
        assert_eq!(read("").unwrap(), JobQuery::default());
    }

    #[test]
    fn ends_since_a_time_or_for_so_long() {
        let time: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let since = |line: &str| read(line).unwrap().ended_since.unwrap();
        assert_eq!(since("ended:2026-01-02T03:04:05Z"), time);
        let hour = jiff::SignedDuration::from_hours(1);
        let before = jiff::Timestamp::now();
        let told = since("state:failed ended:1h") + hour;
        assert!(told >= before && told <= jiff::Timestamp::now(), "{told}");
        assert!(read("ended:soon").unwrap_err().starts_with("ended: "));
    }

    #[test]
    fn groups_of_states_and_words_of_several_arguments() {
        let words = ["state:ended".to_owned(), "state:waiting".to_owned()];
        assert_eq!(parse(&words).unwrap().state.len(), 5);
        assert_eq!(
            read("\"quarantined:\" x").unwrap().text.as_deref(),
            Some("quarantined: x")
        );
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (line, part) in [
            ("state:lost", "is not a state: write QUEUED"),
            ("colour:red", "there is no filter \"colour\": write state:"),
            ("addon:a addon:b", "is there twice"),
            ("tag:", "nothing follows the colon"),
            ("tag:\"x", "closing quotation mark"),
            ("addon:a/b", "holds '/'"),
        ] {
            let told = read(line).unwrap_err();
            assert!(told.contains(part), "{line}: {told}");
        }
    }
}
