//! The checks of what workers send.

use crate::check::Check;
use crate::submit::check_cost;
use crate::{
    AckRequest, AddonId, ClaimRequest, CompleteRequest, CompleteStatus, Constraints, FieldError,
    Heartbeat, JobId, JobType, LeaseRequest, Limits, Priority, ProcessOrigin, Progress,
    ReportRequest, ScheduleSpec,
};

/// A lease request that was checked.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAsk {
    /// For the dispatch of a job, which says the rest.
    TakeUp(JobId),
    /// For capacity alone.
    Capacity {
        /// Who asks.
        addon_id: AddonId,
        /// For what.
        job_type: JobType,
        /// How much.
        cost_units: u32,
        /// How urgent.
        priority: Priority,
        /// What it leans on.
        constraints: Constraints,
        /// How long it probably runs.
        expected_duration_sec: Option<u32>,
    },
}

impl LeaseRequest {
    /// Checks every field.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<LeaseAsk, Vec<FieldError>> {
        let mut check = Check::default();
        check_pids(
            &mut check,
            &self.pids,
            self.process_origin.as_deref(),
            limits,
        );
        if let Some(job_id) = self.job_id {
            return check.finish(LeaseAsk::TakeUp(job_id));
        }
        let addon_id = check.or_note("addon_id", AddonId::new(&self.addon_id));
        let job_type = check.or_note("job_type", JobType::new(&self.job_type));
        let cost_units = check_cost(&mut check, self.cost_units, limits);
        let expected_duration_sec =
            check.seconds("expected_duration_sec", self.expected_duration_sec);
        if let Some(key) = &self.request_key {
            check.text("request_key", key, limits.key_bytes);
            if self.instance_id.is_none() {
                check.refuse(
                    "request_key",
                    "names a request of one process: write its instance_id too, or leave this out",
                );
            }
        }
        let (Some(addon_id), Some(job_type)) = (addon_id, job_type) else {
            return Err(check.into_errors());
        };
        let (priority, constraints) = (self.priority, self.constraints);
        check.finish(LeaseAsk::Capacity {
            addon_id,
            job_type,
            cost_units,
            priority,
            constraints,
            expected_duration_sec,
        })
    }
}

impl ClaimRequest {
    /// Checks every field.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        check.number("max_jobs", self.max_jobs.into(), 1, limits.batch);
        check.number("max_leases", self.max_leases.into(), 1, limits.batch);
        if self.lease_id.is_some() && self.max_leases > 1 {
            check.refuse(
                "lease_id",
                "names one lease, and max_leases is above 1: leave one of them out",
            );
        }
        check_pids(
            &mut check,
            &self.pids,
            self.process_origin.as_deref(),
            limits,
        );
        check.finish(())
    }
}

impl AckRequest {
    /// Checks every field.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        check_pids(
            &mut check,
            &self.pids,
            self.process_origin.as_deref(),
            limits,
        );
        check.finish(())
    }
}

impl Heartbeat {
    /// Checks every field.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        check_progress(&mut check, self.progress.as_ref(), limits);
        check_pids(
            &mut check,
            self.pids.as_deref().unwrap_or_default(),
            self.process_origin.as_deref(),
            limits,
        );
        let (count, most) = (self.given_back.len(), limits.batch);
        if count > most as usize {
            check.refuse(
                "given_back",
                format!("has {count} entries: write {most} at most"),
            );
        }
        check.finish(())
    }
}

impl ReportRequest {
    /// Checks every field.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        check_progress(&mut check, self.progress.as_ref(), limits);
        check_pids(
            &mut check,
            self.pids.as_deref().unwrap_or_default(),
            self.process_origin.as_deref(),
            limits,
        );
        let (count, most) = (self.metrics.len(), limits.metrics);
        if count > most {
            check.refuse(
                "metrics",
                format!("has {count} entries: write {most} at most"),
            );
        }
        for name in self.metrics.keys().take(most) {
            check.text("metrics", name, limits.tag_bytes);
        }
        check.finish(())
    }
}

impl CompleteRequest {
    /// Checks every field. A long error is not refused: it is cut when it is kept.
    ///
    /// # Errors
    /// One message for each field that is wrong.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        if let Some(result) = &self.result {
            check.json("result", result, limits.result_bytes, limits.json_depth);
        }
        if self.status == CompleteStatus::Done && self.error.is_some() {
            check.refuse(
                "error",
                "is given with DONE: write status FAILED, or leave it out",
            );
        }
        check.finish(())
    }
}

impl ScheduleSpec {
    /// Checks what is submitted and the name; the expression and the time zone are checked by whoever can read them.
    ///
    /// # Errors
    /// One message for each field that is wrong, those of the job as `job.…`.
    pub fn validate(&self, limits: &Limits) -> Result<(), Vec<FieldError>> {
        let mut check = Check::default();
        check.text("name", &self.name, limits.tag_bytes);
        let each = "would be the same for every firing: leave it out";
        if self.job.job_id.is_some() {
            check.refuse("job.job_id", each);
        }
        if self.job.idempotency_key.is_some() {
            check.refuse("job.idempotency_key", each);
        }
        for (field, time) in [
            ("job.earliest_start_at", self.job.earliest_start_at),
            ("job.deadline_at", self.job.deadline_at),
        ] {
            if time.is_some() {
                check.refuse(field, each);
            }
        }
        if let Err(wrong) = self.job.clone().validate(limits) {
            for FieldError { field, message } in wrong {
                check.refuse(format!("job.{field}"), message);
            }
        }
        check.finish(())
    }
}

fn check_progress(check: &mut Check, progress: Option<&Progress>, limits: &Limits) {
    let Some(progress) = progress else { return };
    if let Some(fraction) = progress.fraction {
        check.share("progress.fraction", fraction);
    }
    let length = progress.message.as_ref().map_or(0, String::len);
    if length > limits.message_bytes {
        let most = limits.message_bytes;
        check.refuse(
            "progress.message",
            format!("has {length} bytes: shorten it to {most} at most"),
        );
    }
}

fn check_pids(check: &mut Check, pids: &[u32], origin: Option<&ProcessOrigin>, limits: &Limits) {
    let (count, most) = (pids.len(), limits.pids);
    if count > most {
        let advice = "register the parents alone, their children are found";
        check.refuse(
            "pids",
            format!("has {count} entries, and {most} are allowed: {advice}"),
        );
    } else if pids.contains(&0) {
        check.refuse("pids", "holds 0, which is not a process: leave it out");
    }
    if let Some(origin) = origin {
        origin.check(check, pids.len());
    }
}
