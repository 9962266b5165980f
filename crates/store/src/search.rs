//! Text that a job is searched for, and when it ended: what [`JobQuery::text`] and [`JobQuery::ended_since`] mean, the same for
//! every backend.
//!
//! No index helps with a part of a word. So the text is looked for in each job that the rest of the query finds, and a
//! page looks at a bounded number of them ([`Searched`]), whether it finds any or not.

use jobtree_protocol::JobQuery;
use jobtree_queue::JobRecord;

/// How many jobs one page may search.
const MOST_JOBS: usize = 2000;
/// A job costs as much as so many bytes of its text.
const BYTES_A_JOB: usize = 4096;

/// Returns `true` if a job ended as late as the query asks for, or the query asks for no time.
pub(crate) fn ended_since(query: &JobQuery, job: &JobRecord) -> bool {
    let since = |since| job.ended_at.is_some_and(|ended| ended >= since);
    query.ended_since.is_none_or(since)
}

/// A text to be found, in either case.
pub(crate) struct Text {
    /// In lower case; only this is used for one beyond ASCII.
    lower: String,
}

impl Text {
    /// What the query asks for, if it does.
    pub(crate) fn of(query: &JobQuery) -> Option<Self> {
        let text = query.text.as_deref().filter(|text| !text.is_empty())?;
        Some(Self {
            lower: text.to_lowercase(),
        })
    }

    fn is_in(&self, text: &str) -> bool {
        if !self.lower.is_ascii() {
            return text.to_lowercase().contains(&self.lower);
        }
        let (wanted, text) = (self.lower.as_bytes(), text.as_bytes());
        let first = wanted[0];
        text.windows(wanted.len())
            .any(|part| part[0].to_ascii_lowercase() == first && part.eq_ignore_ascii_case(wanted))
    }

    /// Whether it is in the job's type, addon, tags, last error or payload.
    pub(crate) fn is_of(&self, job: &JobRecord) -> bool {
        let intent = &*job.intent;
        self.is_in(intent.job_type.as_str())
            || self.is_in(intent.addon_id.as_str())
            || intent.tags.iter().any(|tag| self.is_in(tag))
            || job
                .last_error
                .as_deref()
                .is_some_and(|text| self.is_in(text))
            || intent
                .payload
                .as_ref()
                .is_some_and(|payload| self.is_in(payload.text()))
    }
}

/// How much of a page's work is left.
pub(crate) struct Searched(usize);

impl Searched {
    pub(crate) fn nothing() -> Self {
        Self(MOST_JOBS)
    }

    /// Another job was searched. Whether there is room for one more.
    pub(crate) fn add(&mut self, job: &JobRecord) -> bool {
        let payload = job.intent.payload.as_ref();
        let bytes = payload.map_or(0, |payload| payload.text().len());
        self.0 = self.0.saturating_sub(1 + bytes / BYTES_A_JOB);
        self.0 > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, within: &str) -> bool {
        let query = JobQuery {
            text: Some(text.into()),
            ..JobQuery::default()
        };
        Text::of(&query).expect("a text").is_in(within)
    }

    #[test]
    fn either_case_and_any_part() {
        assert!(found("DEX", "Indexing") && found("indexing", "INDEXING"));
        assert!(found("grÖSSE", "die Größe") == found("grösse", "die Größe"));
        assert!(found("GRÖẞE", "die größe"));
        assert!(!found("indexer", "Indexing") && !found("longer than it", "it"));
        assert!(!found("x", ""));
        assert!(Text::of(&JobQuery::default()).is_none());
    }
}
