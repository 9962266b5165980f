//! Actions on all jobs that a query finds, with a count beforehand and progress afterwards.

use serde_json::json;
use uuid::Uuid;

use super::checks::wrong_reason;
use super::{Answer, Created, Required};
use crate::{BulkList, BulkRequest, BulkView};

use super::define::{access, define_operations, given, method};

/// The description of a 409.
const NOT_SO_FAR: &str = "The action was started before, or has ended.";

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! bulk_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            BULK = "/queue/bulk" {
                /// Lists the actions on many jobs that were started in the last day, the newest first.
                get list_bulk_actions: ListBulkActions {
                    scope: Read,
                    answer: Answer<BulkList> = "The actions.",
                    client: bulk_actions,
                }
                /// Prepares an action on all jobs that a query finds now: notes which jobs these are, and changes nothing.
                post prepare_bulk_action: PrepareBulkAction {
                    scope: Cancel,
                    body: Required<BulkRequest> = json!({"action": "cancel", "query": {"addon_id": "visuals"}}),
                    answer: Created<BulkView> = "The action, with the number of jobs that it is about. It is forgotten if it is not started within ten minutes.",
                    links: [get_bulk_action.bulk_id = "/bulk_id", start_bulk_action.bulk_id = "/bulk_id"],
                    check: |body| wrong_reason(&body.reason),
                    client: prepare_bulk_action,
                }
            }
            BULK_ACTION = "/queue/bulk/{bulk_id}" {
                /// Returns an action on many jobs, with its progress.
                get get_bulk_action: GetBulkAction {
                    scope: Read,
                    path: Uuid,
                    answer: Answer<BulkView> = "The action.",
                }
            }
            BULK_START = "/queue/bulk/{bulk_id}/start" {
                /// Starts an action that was prepared. It goes on even if its caller does not wait.
                post start_bulk_action: StartBulkAction {
                    scope: Cancel,
                    path: Uuid,
                    answer: Answer<BulkView> = "The action, which has begun.",
                    errors: [409 => NOT_SO_FAR],
                }
            }
            BULK_STOP = "/queue/bulk/{bulk_id}/stop" {
                /// Stops an action. What it has done stays done.
                post stop_bulk_action: StopBulkAction {
                    scope: Cancel,
                    path: Uuid,
                    answer: Answer<BulkView> = "The action, which acts on no more jobs.",
                    idempotent: true,
                }
            }
        }
    };
}

bulk_operations!(define_operations);
