//! `jobtree logs`: what a job printed.

use std::time::Duration;

use clap::{ArgMatches, Command};
use jobtree_client::Client;
use jobtree_protocol::{JobId, LogPage};

use crate::args::{self, flag, place};
use crate::context::Context;
use crate::error::CliError;
use crate::exit::Exit;

/// How long one question waits for more.
const PATIENCE: Duration = Duration::from_secs(20);

pub fn define(command: Command) -> Command {
    command
        .about("Print what a job printed")
        .arg(place("job", "JOB", "Its id").required(true))
        .arg(flag("follow", "Go on until it has ended").short('f'))
}

pub fn run(arguments: &ArgMatches, context: &Context) -> Result<Exit, CliError> {
    let id = args::job_id(&args::needed::<String>(arguments, "job")?)?;
    let follow = arguments.get_flag("follow");
    let client = context.patient_client()?;
    let mut from = Follower::new(id);
    loop {
        let wait = if follow { PATIENCE } else { Duration::ZERO };
        let page = from.next(&client, wait)?;
        if context.out.json {
            if !page.text.is_empty() {
                context.out.line(&page)?;
            }
        } else {
            context.out.raw(&page.text)?;
        }
        if page.ended || (!follow && page.text.is_empty()) {
            if page.left_out > 0 {
                let count = page.left_out;
                context
                    .out
                    .note(&format!("{count} bytes were left out: the log was full"));
            }
            return Ok(Exit::OK);
        }
    }
}

/// Reads a log page by page.
pub struct Follower {
    id: JobId,
    after: Option<u64>,
}

impl Follower {
    pub fn new(id: JobId) -> Self {
        Follower { id, after: None }
    }

    /// What came since, as soon as there is something, the job has ended, or the time is over.
    pub fn next(&mut self, client: &Client, wait: Duration) -> Result<LogPage, CliError> {
        let page = client.log(self.id, self.after, wait)?;
        self.after = Some(page.next);
        Ok(page)
    }
}
