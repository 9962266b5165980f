//! What a job is about, in a line: what tables show of it.

use jobtree_protocol::{CommandSpec, JobView, RUNNER_ADDON, RUNNER_TYPE};

/// Returns the command line of a job that is a command, as one would type it.
pub fn command_line(job: &JobView) -> Option<String> {
    if job.addon_id.as_str() != RUNNER_ADDON || job.job_type.as_str() != RUNNER_TYPE {
        return None;
    }
    let spec: CommandSpec = job.payload.as_ref()?.read().ok()?;
    Some(typed(&spec.argv))
}

/// Writes arguments as a shell reads them.
pub fn typed(argv: &[String]) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%^".contains(c);
    let quoted =
        argv.iter().map(
            |argument| match !argument.is_empty() && argument.chars().all(plain) {
                true => argument.clone(),
                false => format!("'{}'", argument.replace('\'', r"'\''")),
            },
        );
    quoted.collect::<Vec<_>>().join(" ")
}

/// Returns how far a job is, or what went wrong with it, or what it is: the one thing that is worth a cell.
pub fn what(job: &JobView) -> String {
    let command = command_line(job);
    let news = news(job);
    match (command, news) {
        (Some(command), Some(news)) => format!("{command}: {news}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => job.tags.join(" "),
    }
}

fn news(job: &JobView) -> Option<String> {
    if let Some(error) = job.last_error.as_ref().filter(|_| job.result.is_none()) {
        return Some(error.clone());
    }
    if job.state.is_ended() {
        return None;
    }
    if job.cancel_requested {
        return Some("is asked to stop".into());
    }
    let progress = job.progress.as_ref()?;
    let percent = progress
        .fraction
        .map(|share| format!("{:.0} %", share * 100.0));
    let parts: Vec<String> = percent
        .into_iter()
        .chain(progress.message.clone())
        .collect();
    Some(parts.join(" ")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let argv = ["sh", "-c", "echo it's", "", "a=b", "x y"].map(str::to_owned);
        assert_eq!(typed(&argv), r"sh -c 'echo it'\''s' '' a=b 'x y'");
    }
}
