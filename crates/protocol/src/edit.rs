//! Changes to a job that waits.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

use crate::check::Check;
use crate::time::whole_micros;
use crate::{FieldError, Intent, Late, Limits, Priority};

/// `POST …/queue/jobs/{job_id}/edit`: changes a job that is QUEUED. What is absent stays as it is; `null` takes a time away.
///
/// What was submitted with an idempotency key stays known under it. A second submission by the job's own id is compared with
/// the job as it is now, and so refused as another body.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EditRequest {
    /// The new class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    /// Not before this. Also replaces the wait before another attempt.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Timestamp>))]
    pub earliest_start_at: Option<Option<Timestamp>>,
    /// When it should be done.
    #[serde(deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Timestamp>))]
    pub deadline_at: Option<Option<Timestamp>>,
    /// All of its tags from now on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<String>>,
}

/// Tells a field that is `null` from one that is absent.
fn present<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl EditRequest {
    /// Checks what can be said without the job.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(mut self, limits: &Limits) -> Result<Self, Vec<FieldError>> {
        let mut check = Check::default();
        if self == Self::default() {
            let message =
                "or earliest_start_at, deadline_at or tags must be given: nothing would change";
            check.refuse("priority", message);
        }
        if let Some(tags) = self.tags.take() {
            self.tags = Some(check.texts("tags", tags, limits.tags, limits.tag_bytes));
        }
        for time in [&mut self.earliest_start_at, &mut self.deadline_at] {
            *time = time.map(|time| time.map(whole_micros));
        }
        check.finish(self)
    }

    /// Returns the intent with the changes.
    ///
    /// # Errors
    /// One message for each field that does not go with the rest of the job.
    pub fn applied_to(&self, intent: &Intent) -> Result<Intent, Vec<FieldError>> {
        let edited = Intent {
            priority: self.priority.unwrap_or(intent.priority),
            earliest_start_at: self.earliest_start_at.unwrap_or(intent.earliest_start_at),
            deadline_at: self.deadline_at.unwrap_or(intent.deadline_at),
            tags: self.tags.clone().unwrap_or_else(|| intent.tags.clone()),
            ..intent.clone()
        };
        let mut check = Check::default();
        if let (Some(earliest), Some(deadline)) = (edited.earliest_start_at, edited.deadline_at)
            && deadline <= earliest
        {
            let (field, message) = match self.deadline_at {
                Some(_) => (
                    "deadline_at",
                    format!("is not after earliest_start_at ({earliest}): write a later time"),
                ),
                None => (
                    "earliest_start_at",
                    format!("is not before deadline_at ({deadline}): write an earlier time"),
                ),
            };
            check.refuse(field, message);
        }
        if edited.late == Late::Fail && edited.deadline_at.is_none() {
            let message = "is taken away from a job that fails behind it: give it a later one";
            check.refuse("deadline_at", message);
        }
        check.finish(edited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SubmitRequest;

    fn read(text: &str) -> EditRequest {
        serde_json::from_str(text).expect("an edit")
    }

    #[test]
    fn null_takes_a_time_away_and_what_is_absent_stays() {
        let request = SubmitRequest {
            deadline_at: Some("2030-01-01T00:00:00Z".parse().unwrap()),
            tags: vec!["b".into()],
            ..SubmitRequest::new("photos", "index", 10)
        };
        let intent = request.validate(&Limits::default()).unwrap();
        let edited = read(r#"{"deadline_at": null}"#).applied_to(&intent);
        let edited = edited.unwrap();
        assert_eq!((edited.deadline_at, &edited.tags), (None, &intent.tags));
        let edited = read(r#"{"tags": [], "priority": "HIGH"}"#).applied_to(&intent);
        let edited = edited.unwrap();
        assert_eq!((edited.tags.len(), edited.priority), (0, Priority::High));
        assert_eq!(edited.deadline_at, intent.deadline_at);
        for text in ["{}", r#"{"tags": [""]}"#] {
            assert!(read(text).validate(&Limits::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_start_behind_the_deadline_is_refused_by_the_field_that_is_given() {
        let request = SubmitRequest {
            deadline_at: Some("2030-01-01T00:00:00Z".parse().unwrap()),
            late: Late::Fail,
            ..SubmitRequest::new("photos", "index", 10)
        };
        let intent = request.validate(&Limits::default()).unwrap();
        let wrong = |text: &str| read(text).applied_to(&intent).unwrap_err().remove(0).field;
        assert_eq!(
            wrong(r#"{"earliest_start_at": "2031-01-01T00:00:00Z"}"#),
            "earliest_start_at"
        );
        assert_eq!(wrong(r#"{"deadline_at": null}"#), "deadline_at");
    }
}
