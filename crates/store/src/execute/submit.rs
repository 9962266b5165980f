//! Submissions, one or many at once.

use jobtree_protocol::{Intent, JobId, JobState, SubmitAnswer};
use jobtree_queue::KeyRecord;
use jobtree_queue::transitions::{self, Changes, Submit, TransitionError};

use super::Unit;
use crate::tables::Result;

/// A job to be submitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Submission {
    /// Its id.
    pub id: JobId,
    /// Somebody else chose the id, so it may have been used before. An id that was drawn just now need not be looked
    /// for.
    pub id_given: bool,
    /// What it is, checked.
    pub intent: Intent,
}

impl Submission {
    /// A job with an id that is drawn now.
    pub fn new(intent: Intent) -> Self {
        Self {
            id: JobId::generate(),
            id_given: false,
            intent,
        }
    }

    /// A job with an id that its submitter chose.
    pub fn with_id(id: JobId, intent: Intent) -> Self {
        Self {
            id,
            id_given: true,
            intent,
        }
    }
}

impl Unit<'_> {
    pub(crate) fn submit(&mut self, submission: Submission) -> Result<SubmitAnswer> {
        let mut changes = Changes::default();
        let answer = self.submit_among(submission, &mut changes)??;
        self.write(changes)?;
        Ok(answer)
    }

    /// Each is answered for itself: one that is refused does not hold up the others. They may depend on each other, in
    /// their order.
    pub(crate) fn submit_many(
        &mut self,
        submissions: Vec<Submission>,
    ) -> Result<Vec<std::result::Result<SubmitAnswer, TransitionError>>> {
        let mut changes = Changes::default();
        changes.jobs.reserve(submissions.len());
        changes.events.reserve(submissions.len());
        let answers = submissions
            .into_iter()
            .map(|submission| self.submit_among(submission, &mut changes))
            .collect::<Result<_>>()?;
        self.write(changes)?;
        Ok(answers)
    }

    /// Decides one submission; what was decided before it in this command counts as submitted.
    pub(super) fn submit_among(
        &mut self,
        submission: Submission,
        changes: &mut Changes,
    ) -> Result<std::result::Result<SubmitAnswer, TransitionError>> {
        let Submission {
            id,
            id_given,
            intent,
        } = submission;
        let same_id = if id_given {
            let among = changes.jobs.iter().find(|job| job.id == id).cloned();
            match among {
                Some(job) => Some(job),
                None => self.tables.jobs(&[id])?.pop(),
            }
        } else {
            None
        };
        let same_key = self.used_key(&intent, changes)?;
        let same_unique = self.same_unique(&intent, changes)?;
        let dependencies = self.dependencies(&intent, changes)?;
        let command = Submit {
            id,
            intent,
            same_id: same_id.as_deref(),
            same_key: same_key.as_ref(),
            same_unique,
            dependencies: &dependencies,
        };
        Ok(transitions::submit_among(&self.cx, command, changes))
    }

    fn used_key(&mut self, intent: &Intent, changes: &Changes) -> Result<Option<KeyRecord>> {
        let Some(key) = &intent.idempotency_key else {
            return Ok(None);
        };
        let among = changes
            .keys
            .iter()
            .find(|used| used.addon_id == intent.addon_id && used.key == *key);
        match among {
            Some(used) => Ok(Some(used.clone())),
            None => self.tables.key(&intent.addon_id, key),
        }
    }

    fn same_unique(
        &mut self,
        intent: &Intent,
        changes: &Changes,
    ) -> Result<Option<(JobId, JobState)>> {
        let Some(key) = &intent.unique_key else {
            return Ok(None);
        };
        let among = changes.jobs.iter().find(|job| {
            !job.state.is_ended()
                && job.intent.addon_id == intent.addon_id
                && job.intent.job_type == intent.job_type
                && job.intent.unique_key.as_ref() == Some(key)
        });
        match among {
            Some(job) => Ok(Some((job.id, job.state))),
            None => self
                .tables
                .unique_holder(&intent.addon_id, &intent.job_type, key),
        }
    }

    fn dependencies(
        &mut self,
        intent: &Intent,
        changes: &Changes,
    ) -> Result<Vec<(JobId, Option<JobState>)>> {
        let mut states = self.states(&intent.depends_on)?;
        for (id, state) in states.iter_mut().filter(|(_, state)| state.is_none()) {
            *state = changes
                .jobs
                .iter()
                .find(|job| job.id == *id)
                .map(|job| job.state);
        }
        Ok(states)
    }
}
