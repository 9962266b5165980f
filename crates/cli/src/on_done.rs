//! `--on-done`: a command that runs when a job has ended, as a job of its own that depends on it. So it is as durable as the job,
//! and needs nobody who waits.

use std::collections::BTreeMap;

use clap::ArgMatches;
use jobtree_client::Client;
use jobtree_client::protocol::{SubmitAnswer, SubmitRequest};
use jobtree_protocol::{CommandSpec, Json, OnDependencyFailure, RUNNER_ADDON, RUNNER_TYPE};

use crate::args;
use crate::error::CliError;

/// The variable that names the job to its follow-up.
const ENDED_JOB: &str = "JOBTREE_ENDED_JOB";

/// Submits the follow-up of a job, if one was named. A job that was there before has the one of its first submission.
pub fn submit(
    client: &Client,
    arguments: &ArgMatches,
    answer: &SubmitAnswer,
) -> Result<(), CliError> {
    let Some(command) = args::get(arguments, "on-done").filter(|_| !answer.duplicate) else {
        return Ok(());
    };
    let folder = std::env::current_dir()
        .map_err(|error| CliError::usage(format!("there is no such folder: {error}")))?;
    let spec = CommandSpec {
        argv: ["sh", "-c", command].map(str::to_owned).into(),
        cwd: Some(folder.to_string_lossy().into_owned()),
        env: BTreeMap::from([(ENDED_JOB.to_owned(), answer.job_id.to_string())]),
        ..CommandSpec::default()
    };
    let follow_up = SubmitRequest {
        payload: Some(Json::of(&spec).map_err(|error| CliError::usage(error.to_string()))?),
        tags: vec!["on-done".into()],
        depends_on: vec![answer.job_id],
        on_dependency_failure: OnDependencyFailure::Run,
        time_sensitive: true,
        ..SubmitRequest::new(RUNNER_ADDON, RUNNER_TYPE, 1)
    };
    let submitted = client.submit(follow_up);
    submitted.map(|_| ()).map_err(|error| {
        let id = answer.job_id;
        let error = CliError::from(error);
        CliError::failed(format!(
            "job {id} is submitted, but its --on-done command is not: {}",
            error.to_string().trim_start_matches("error: ")
        ))
    })
}
