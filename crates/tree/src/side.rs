//! The parts that most jobs never need, in a block of its own that is made when the first of them is needed.

use std::borrow::Cow;
use std::time::Instant;

use crate::error::JobError;

/// Errors kept beside the first one; of more only the number is known. A server that fails for months
/// must not fill the memory with it.
const MOST_LATER_ERRORS: usize = 8;

/// See the module's head. Guarded by the job's lock.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) label: Option<Cow<'static, str>>,
    /// The message of the caller that cancelled; written before the job begins to cancel.
    pub(crate) cancel_message: Option<Cow<'static, str>>,
    pub(crate) deadline: Option<Instant>,
    pub(crate) errors: Errors,
    /// The error of a job that timed out, made when it ended.
    pub(crate) ended_with: Option<JobError>,
}

/// The errors of a job: the first one, some more, and how many.
#[derive(Default)]
pub(crate) struct Errors {
    first: Option<JobError>,
    later: Vec<JobError>,
    later_count: usize,
}

impl Errors {
    /// Records an error, unless it is there already: a body that passes on the error of its child tells nothing new.
    /// Returns the error if it is not kept: to be dropped when the lock is free, since it has a destructor of the user's.
    #[must_use = "an error that is not kept is to be dropped when the lock is free"]
    pub(crate) fn record(&mut self, error: JobError) -> Option<JobError> {
        let mut known = self.first.iter().chain(&self.later);
        if known.any(|known| known.is_same_event(&error)) {
            return Some(error);
        }
        if self.first.is_none() {
            self.first = Some(error);
            return None;
        }
        self.later_count += 1;
        if self.later.len() < MOST_LATER_ERRORS {
            self.later.push(error);
            return None;
        }
        Some(error)
    }

    /// The first error with what came after it.
    pub(crate) fn combined(&self) -> Option<JobError> {
        let first = self.first.clone()?;
        Some(first.with_later(&self.later, self.later_count))
    }

    /// `head` with all errors attached as what came after it.
    pub(crate) fn after(&self, head: JobError) -> JobError {
        let Some(first) = &self.first else {
            return head;
        };
        let kept: Vec<JobError> = std::iter::once(first)
            .chain(&self.later)
            .take(MOST_LATER_ERRORS)
            .cloned()
            .collect();
        head.with_later(&kept, self.later_count + 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::error::Failure;

    fn error(number: usize) -> JobError {
        JobError::Failed(Failure::new(number.to_string().into(), "root".into()))
    }

    #[test]
    fn the_first_error_leads_and_later_ones_are_bounded() {
        let mut errors = Errors::default();
        assert!(errors.combined().is_none());
        for number in 0..100 {
            drop(errors.record(error(number)));
        }
        let combined = errors.combined().unwrap();
        assert_eq!(combined.to_string(), "root failed: 0");
        assert_eq!(combined.secondary().len(), MOST_LATER_ERRORS);
        assert_eq!(combined.more(), 99);
        assert!(
            combined
                .report()
                .to_string()
                .ends_with("and 91 more errors")
        );
        assert_eq!(errors.after(error(1000)).more(), 100);
    }
}
