//! What operators do: pauses, draining, a scheduling pass, signals, the policy, backups.

use serde_json::{Value, json};

use super::checks::{wrong_reason, wrong_signals, wrong_states};
use super::{Answer, Created, NoContent, Optional, Required, TomlText};
use crate::{
    BackupAnswer, BackupRequest, CleanAnswer, CleanRequest, DrainRequest, PauseList, PauseRequest,
    PolicyPreview, PolicyVerdict, ResumeAnswer, SignalsRequest,
};

use super::define::{access, define_operations, given, method};

fn pause_example() -> Value {
    json!({"addon_id": "visuals", "reason": "it is being mended"})
}

fn policy_example() -> Value {
    json!("[quiet]\nwindows = [\"22:00-06:00 Europe/Berlin\"]\n")
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! operating_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            KICK = "/queue/kick" {
                /// Runs a scheduling pass.
                post kick: Kick {
                    scope: Admin,
                    answer: NoContent = "The pass is requested.",
                    idempotent: true,
                    client: kick,
                }
            }
            PAUSE = "/queue/pause" {
                /// Pauses an addon, or one of its job types, until it is resumed.
                post pause: Pause {
                    scope: Admin,
                    body: Required<PauseRequest> = pause_example(),
                    answer: NoContent = "None of its jobs start on this node.",
                    check: |body| wrong_reason(&body.reason),
                    idempotent: true,
                    client: pause,
                }
            }
            RESUME = "/queue/resume" {
                /// Resumes an addon or a job type.
                post resume: Resume {
                    scope: Admin,
                    body: Required<PauseRequest> = pause_example(),
                    answer: Answer<ResumeAnswer> = "Whether it was paused.",
                    check: |body| wrong_reason(&body.reason),
                }
            }
            PAUSES = "/queue/pauses" {
                /// Lists paused addons and job types.
                get list_pauses: ListPauses {
                    scope: Read,
                    answer: Answer<PauseList> = "All pauses.",
                }
            }
            DRAIN = "/drain" {
                /// Stops starting jobs on this node, or starts them again.
                post drain: Drain {
                    scope: Admin,
                    body: Required<DrainRequest> = json!({"draining": true}),
                    answer: Answer<DrainRequest> = "As requested.",
                    idempotent: true,
                }
            }
            SIGNALS = "/signals" {
                /// Reports what the host measured of itself.
                post push_signals: PushSignals {
                    scope: Admin,
                    body: Required<SignalsRequest> = json!({"p95_latency_ms": 80.0, "in_flight": 3}),
                    answer: NoContent = "The next scheduling pass uses it.",
                    check: wrong_signals,
                    idempotent: true,
                    client: signals,
                }
            }
            POLICY = "/policy" {
                /// Returns the policy in force.
                get get_policy: GetPolicy {
                    scope: Read,
                    answer: TomlText = "The whole policy.",
                    client: policy,
                }
                /// Replaces the policy, permanently.
                put set_policy: SetPolicy {
                    scope: Admin,
                    body: TomlText = policy_example(),
                    answer: NoContent = "The next decision uses it.",
                }
            }
            POLICY_VALIDATE = "/policy/validate" {
                /// Checks a policy without using it.
                post validate_policy: ValidatePolicy {
                    scope: Read,
                    body: TomlText = policy_example(),
                    answer: Answer<PolicyVerdict> = "The policy is valid.",
                    idempotent: true,
                }
            }
            POLICY_PREVIEW = "/policy/preview" {
                /// Tells what the recorded load and the kept jobs of the last week would have come to under a policy, beside the one
                /// in force. Nothing is changed. One preview at a time is made, of the newest 2000 jobs.
                post preview_policy: PreviewPolicy {
                    scope: Read,
                    body: TomlText = policy_example(),
                    answer: Answer<PolicyPreview> = "What would have started.",
                    idempotent: true,
                }
            }
            CLEAN = "/clean" {
                /// Forgets ended jobs now: those that are older than the policy's retention, or than the request says.
                post clean: Clean {
                    scope: Admin,
                    body: Optional<CleanRequest> = json!({"older_than_sec": 86400, "state": ["DONE"]}),
                    answer: Answer<CleanAnswer> = "What was forgotten.",
                    check: wrong_states,
                    idempotent: true,
                    long: true,
                    client: clean,
                    scheduler: clean,
                }
            }
            BACKUP = "/backup" {
                /// Copies the database, while it is used, into the folder `backups`.
                post backup: Backup {
                    scope: Admin,
                    body: Optional<BackupRequest> = json!({}),
                    answer: Created<BackupAnswer> = "The copy is complete and on disk.",
                    errors: [409 => "The store cannot be copied this way, or the file already exists."],
                    long: true,
                }
            }
        }
    };
}

operating_operations!(define_operations);
