//! Schedules: jobs that are submitted by the clock.

use serde_json::{Value, json};

use super::{Answer, Created, NoContent, Required};
use crate::{ScheduleId, ScheduleList, ScheduleSpec, ScheduleView, SubmitAnswer};

use super::define::{access, define_operations, given, method};

const NAME_TAKEN: &str = "Another schedule has this name.";
const JOB_NOT_ALLOWED: &str = "The job that it submits is no longer allowed.";

fn example() -> Value {
    json!({
        "name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin",
        "job": {"addon_id": "visuals", "job_type": "indexing", "cost_units": 30},
    })
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! schedule_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            SCHEDULES = "/schedules" {
                /// Lists all schedules.
                get list_schedules: ListSchedules {
                    scope: Read,
                    answer: Answer<ScheduleList> = "The schedules, by name.",
                }
                /// Creates a schedule. It fires from now on.
                post create_schedule: CreateSchedule {
                    scope: Submit,
                    body: Required<ScheduleSpec> = example(),
                    answer: Created<ScheduleView> = "The schedule.",
                    errors: [409 => NAME_TAKEN],
                    links: [get_schedule.schedule_id = "/schedule_id"],
                    client: add_schedule,
                }
            }
            SCHEDULE = "/schedules/{schedule_id}" {
                /// Returns a schedule.
                get get_schedule: GetSchedule {
                    scope: Read,
                    path: ScheduleId,
                    answer: Answer<ScheduleView> = "The schedule.",
                    client: schedule,
                }
                /// Replaces a schedule. Firings that the previous one missed are forgotten.
                put replace_schedule: ReplaceSchedule {
                    scope: Submit,
                    path: ScheduleId,
                    body: Required<ScheduleSpec> = example(),
                    answer: Answer<ScheduleView> = "The new schedule.",
                    errors: [409 => NAME_TAKEN],
                    client: put_schedule,
                }
                /// Deletes a schedule. The jobs that it submitted stay.
                delete delete_schedule: DeleteSchedule {
                    scope: Submit,
                    path: ScheduleId,
                    answer: NoContent = "The schedule is deleted.",
                    client: delete_schedule,
                    scheduler: delete_schedule,
                }
            }
            SCHEDULE_PAUSE = "/schedules/{schedule_id}/pause" {
                /// Pauses a schedule until it is resumed. Firings that it misses are never made up for.
                post pause_schedule: PauseSchedule {
                    scope: Submit,
                    path: ScheduleId,
                    answer: Answer<ScheduleView> = "The schedule.",
                    errors: [409 => NAME_TAKEN, 422 => JOB_NOT_ALLOWED],
                    idempotent: true,
                    client: pause_schedule,
                }
            }
            SCHEDULE_RUN = "/schedules/{schedule_id}/run" {
                /// Submits the job of a schedule now, besides its calendar. Also of one that is paused.
                post run_schedule: RunSchedule {
                    scope: Submit,
                    path: ScheduleId,
                    answer: Answer<SubmitAnswer> = "The job is on disk.",
                    errors: [409 => "The schedule forbids overlap, and its last job has not ended.", 422 => JOB_NOT_ALLOWED],
                    links: [get_job.job_id = "/job_id"],
                    client: run_schedule,
                    scheduler: run_schedule,
                }
            }
            SCHEDULE_RESUME = "/schedules/{schedule_id}/resume" {
                /// Resumes a paused schedule.
                post resume_schedule: ResumeSchedule {
                    scope: Submit,
                    path: ScheduleId,
                    answer: Answer<ScheduleView> = "The schedule.",
                    errors: [409 => NAME_TAKEN, 422 => JOB_NOT_ALLOWED],
                    idempotent: true,
                    client: resume_schedule,
                }
            }
        }
    };
}

schedule_operations!(define_operations);
