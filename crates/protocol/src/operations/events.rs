//! Events: the stream of all events, and webhooks.

use serde_json::json;
use uuid::Uuid;

use super::query::Kind;
use super::{Answer, Created, EventStream, NoContent, Required};
use crate::{AddonId, JobId, JobType, WebhookList, WebhookRequest, WebhookView};

use super::define::{access, define_operations, given, method, query_parameters};

query_parameters! {
    /// The query of [`StreamEvents`].
    pub struct EventFilter {
        /// Only events of these kinds.
        pub event: Vec<String> = Kind::Texts,
        /// Only this addon's events.
        pub addon_id: Option<AddonId> = Kind::Name,
        /// Only events of jobs of this type.
        pub job_type: Option<JobType> = Kind::Name,
        /// Only this job's events.
        pub job_id: Option<JobId> = Kind::Uuid,
        /// Events after this one.
        pub after: Option<u64> = Kind::Cursor,
    }
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! event_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            EVENTS = "/events" {
                /// Streams events as they happen, as server-sent events. `Last-Event-ID` resumes.
                get stream_events: StreamEvents {
                    scope: Read,
                    query: EventFilter,
                    answer: EventStream = "A stream without an end.",
                    long: true,
                }
            }
            WEBHOOKS = "/webhooks" {
                /// Lists all webhooks, without their secrets.
                get list_webhooks: ListWebhooks {
                    scope: Admin,
                    answer: Answer<WebhookList> = "The webhooks, oldest first.",
                }
                /// Creates a webhook.
                post create_webhook: CreateWebhook {
                    scope: Admin,
                    body: Required<WebhookRequest> = json!({
                        "url": "https://example.org/hook", "secret": "sixteen letters!",
                    }),
                    answer: Created<WebhookView> = "The webhook is called from now on.",
                    errors: [409 => "There are as many webhooks as there may be: delete one first."],
                    links: [delete_webhook.webhook_id = "/webhook_id"],
                    client: add_webhook,
                }
            }
            WEBHOOK = "/webhooks/{webhook_id}" {
                /// Deletes a webhook.
                delete delete_webhook: DeleteWebhook {
                    scope: Admin,
                    path: Uuid,
                    answer: NoContent = "The webhook is no longer called.",
                }
            }
        }
    };
}

event_operations!(define_operations);
