//! What operators do and see: policy, load, events, tokens.

use jobtree_protocol::{
    BackupAnswer, BackupRequest, DecisionList, DrainRequest, HistoryList, LoadList, NewToken,
    PauseList, PauseRequest, PolicyVerdict, ResumeAnswer, Scope, SignalsRequest, StatsView,
    StatusView, TokenList, TokenRequest, WebhookList, WebhookRequest, WebhookView, WorkerList,
    paths,
};
use serde_json::json;

use super::{Book, limit, name, place, uuid};

pub(super) fn operating(book: &mut Book) {
    let whom = json!({"addon_id": "visuals", "reason": "it is being mended"});
    book.operation(
        "post",
        paths::KICK,
        "kick",
        "Looks now whether something can start.",
    )
    .scope(Scope::Admin)
    .answers_nothing("It will.")
    .end();
    book.operation(
        "post",
        paths::PAUSE,
        "pause",
        "Skips an addon, or one of its types.",
    )
    .scope(Scope::Admin)
    .body::<PauseRequest>(whom.clone())
    .answers_nothing("Nothing of it is started here any more.")
    .end();
    book.operation("post", paths::RESUME, "resume", "Skips it no longer.")
        .scope(Scope::Admin)
        .body::<PauseRequest>(whom)
        .answers::<ResumeAnswer>(200, "Whether it was skipped.")
        .end();
    book.operation("get", paths::PAUSES, "list_pauses", "What is skipped.")
        .scope(Scope::Read)
        .answers::<PauseList>(200, "All of it.")
        .end();
    book.operation(
        "post",
        paths::DRAIN,
        "drain",
        "Takes no new jobs, or takes them again.",
    )
    .scope(Scope::Admin)
    .body::<DrainRequest>(json!({"draining": true}))
    .answers::<DrainRequest>(200, "As asked.")
    .end();
    book.operation(
        "post",
        paths::SIGNALS,
        "push_signals",
        "What the host measured of itself.",
    )
    .scope(Scope::Admin)
    .body::<SignalsRequest>(json!({"p95_latency_ms": 80.0, "in_flight": 3}))
    .answers_nothing("It counts from now on.")
    .end();
    let policy = "[quiet]\nwindows = [\"22:00-06:00 Europe/Berlin\"]\n";
    book.operation("get", paths::POLICY, "get_policy", "The policy in force.")
        .scope(Scope::Read)
        .answers_text("application/toml", "All of it.")
        .end();
    book.operation(
        "put",
        paths::POLICY,
        "set_policy",
        "Another policy, for good.",
    )
    .scope(Scope::Admin)
    .toml_body(policy)
    .answers_nothing("The next decision is by it.")
    .end();
    book.operation(
        "post",
        paths::POLICY_VALIDATE,
        "validate_policy",
        "Whether this is a policy.",
    )
    .scope(Scope::Read)
    .toml_body(policy)
    .answers::<PolicyVerdict>(200, "It is.")
    .end();
}

pub(super) fn observing(book: &mut Book) {
    book.operation("get", paths::STATUS, "get_status", "How things stand.")
        .scope(Scope::Read)
        .answers::<StatusView>(200, "Machines, addons, counts.")
        .end();
    book.operation(
        "get",
        paths::STATS,
        "get_stats",
        "Counts and histograms since the start.",
    )
    .scope(Scope::Admin)
    .answers::<StatsView>(200, "They.")
    .end();
    book.operation(
        "get",
        paths::HISTORY,
        "get_history",
        "How jobs did, by addon and type.",
    )
    .scope(Scope::Read)
    .answers::<HistoryList>(200, "As far as it is kept.")
    .end();
    book.operation(
        "get",
        paths::DECISIONS,
        "list_decisions",
        "What was decided last.",
    )
    .scope(Scope::Read)
    .query("limit", "At most so many; 50 if absent.", limit())
    .answers::<DecisionList>(200, "The newest first.")
    .end();
    let samples = json!({"type": "integer", "minimum": 1, "maximum": 2000});
    let moment = json!({"type": "string", "format": "date-time"});
    book.operation("get", paths::LOAD, "list_load", "How busy the machine was.")
        .scope(Scope::Read)
        .query("since", "Not before this.", moment)
        .query(
            "by",
            "How fine.",
            json!({"type": "string", "enum": ["sample", "minute"]}),
        )
        .query(
            "limit",
            "At most so many, the newest; 500 if absent.",
            samples,
        )
        .answers::<LoadList>(200, "The oldest first.")
        .end();
    book.operation("get", paths::WORKERS, "list_workers", "Who works here.")
        .scope(Scope::Read)
        .query("addon_id", "Only this addon's.", name())
        .answers::<WorkerList>(200, "As they last told.")
        .end();
    book.operation("get", paths::METRICS, "get_metrics", "For Prometheus.")
        .scope(Scope::Admin)
        .answers_text("text/plain", "In its text format.")
        .end();
}

pub(super) fn backup(book: &mut Book) {
    book.operation(
        "post",
        paths::BACKUP,
        "backup",
        "A copy of the database, while it is used, in the folder `backups`.",
    )
    .scope(Scope::Admin)
    .maybe_body::<BackupRequest>(json!({}))
    .answers::<BackupAnswer>(201, "It is whole, and on disk.")
    .fails(
        409,
        "The store has other means, or the file is there already.",
    )
    .end();
}

pub(super) fn events(book: &mut Book) {
    let kinds = json!({"type": "array", "items": {"type": "string"}});
    book.operation(
        "get",
        paths::EVENTS,
        "stream_events",
        "Events as they happen, as server-sent events. `Last-Event-ID` resumes.",
    )
    .scope(Scope::Read)
    .query("event", "Only these kinds.", kinds)
    .query("addon_id", "Only this addon's.", name())
    .query("job_type", "Only this type's.", name())
    .query("job_id", "Only this job's.", uuid())
    .query("after", "After this event.", place())
    .answers_text("text/event-stream", "A stream that does not end.")
    .end();
    let webhook = json!({"url": "https://example.org/hook", "secret": "sixteen letters!"});
    book.operation("get", paths::WEBHOOKS, "list_webhooks", "All webhooks.")
        .scope(Scope::Admin)
        .answers::<WebhookList>(200, "The oldest first.")
        .end();
    book.operation("post", paths::WEBHOOKS, "create_webhook", "A new webhook.")
        .scope(Scope::Admin)
        .body::<WebhookRequest>(webhook)
        .answers::<WebhookView>(201, "It is told from now on.")
        .link("delete_webhook", "webhook_id", "/webhook_id")
        .end();
    book.operation(
        "delete",
        paths::WEBHOOK,
        "delete_webhook",
        "Forgets a webhook.",
    )
    .scope(Scope::Admin)
    .answers_nothing("It is told no more.")
    .end();
}

pub(super) fn tokens(book: &mut Book) {
    let token = json!({"name": "the indexer", "addon_id": "visuals", "scopes": ["submit", "read"]});
    book.operation(
        "get",
        paths::TOKENS,
        "list_tokens",
        "All tokens, without their secrets.",
    )
    .scope(Scope::Admin)
    .answers::<TokenList>(200, "The oldest first.")
    .end();
    book.operation("post", paths::TOKENS, "create_token", "A new token.")
        .scope(Scope::Admin)
        .body::<TokenRequest>(token)
        .answers::<NewToken>(201, "The only time that its secret is told.")
        .link("delete_token", "token_id", "/token_id")
        .end();
    book.operation("delete", paths::TOKEN, "delete_token", "Forgets a token.")
        .scope(Scope::Admin)
        .answers_nothing("It allows nothing any more.")
        .end();
}
