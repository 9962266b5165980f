//! All operations.

use jobtree_protocol::{
    AckRequest, BackupAnswer, BackupRequest, BulkAnswer, CancelManyRequest, CancelRequest,
    ClaimRequest, ClaimedLeases, CompleteAnswer, CompleteManyAnswer, CompleteManyRequest,
    CompleteRequest, DecisionList, DispatchableJobs, DrainRequest, EventPage, Explain,
    HeartbeatAnswer, HeartbeatBody, HeartbeatManyAnswer, HeartbeatManyRequest, HistoryList,
    JobList, JobState, JobView, LeaseAnswer, LeaseList, LeaseRequest, LeaseView, LoadList,
    LogAppend, LogAppendAnswer, LogPage, NewToken, PauseList, PauseRequest, PidsRequest,
    PolicyVerdict, RedriveRequest, ReleaseRequest, ReportBody, ResumeAnswer, RetryRequest,
    RevokeRequest, ScheduleList, ScheduleSpec, ScheduleView, Scope, SignalsRequest, StateAnswer,
    StatsView, StatusView, SubmitAnswer, SubmitManyAnswer, SubmitManyRequest, SubmitRequest,
    TokenList, TokenRequest, TreeView, WebhookList, WebhookRequest, WebhookView, WorkerList, paths,
};
use serde_json::{Value, json};

use super::book::Book;
use crate::api::{MOST_ROWS, MOST_WAIT};

/// What is answered when the state of things is against it.
const IN_THE_WAY: &str = "The state of the job or lease does not allow this.";
const ID: &str = "00000000-0000-4000-8000-000000000000";

pub(super) fn all(book: &mut Book) {
    probes(book);
    jobs(book);
    commands(book);
    work(book);
    leases(book);
    schedules(book);
    operating(book);
    observing(book);
    backup(book);
    events(book);
    tokens(book);
}

fn limit() -> Value {
    json!({"type": "integer", "minimum": 1, "maximum": MOST_ROWS})
}

fn wait() -> Value {
    json!({"type": "integer", "minimum": 0, "maximum": MOST_WAIT})
}

fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9._:-]+$"})
}

fn uuid() -> Value {
    json!({"type": "string", "format": "uuid"})
}

fn text() -> Value {
    json!({"type": "string"})
}

fn place() -> Value {
    json!({"type": "integer", "format": "int64", "minimum": 0, "maximum": u64::MAX})
}

fn probes(book: &mut Book) {
    book.operation(
        "get",
        paths::HEALTH,
        "health",
        "Whether the process is alive.",
    )
    .open()
    .answers_object("It is.")
    .end();
    book.operation("get", paths::READY, "ready", "Whether it can take jobs.")
        .open()
        .answers_object("It can.")
        .end();
    book.operation("get", paths::OPENAPI, "openapi", "This document.")
        .answers_object("It.")
        .end();
}

fn jobs(book: &mut Book) {
    let job = json!({
        "addon_id": "visuals",
        "job_type": "indexing",
        "cost_units": 30,
        "priority": "NORMAL",
        "constraints": {"cpu_heavy": true, "disk_write_heavy": false, "network_heavy": false},
        "expected_duration_sec": 120,
        "payload": {"path": "/some/dir"},
        "time_sensitive": false,
    });
    book.operation("post", paths::SUBMIT, "submit_job", "Submits a job.")
        .scope(Scope::Submit)
        .body::<SubmitRequest>(job.clone())
        .answers::<SubmitAnswer>(200, "The job is on disk.")
        .link("get_job", "job_id", "/job_id")
        .link("cancel_job", "job_id", "/job_id")
        .fails(409, "The key or id was used for another body.")
        .end();
    book.operation(
        "post",
        paths::SUBMIT_MANY,
        "submit_jobs",
        "Submits many jobs.",
    )
    .scope(Scope::Submit)
    .body::<SubmitManyRequest>(json!({"jobs": [job]}))
    .answers::<SubmitManyAnswer>(200, "An answer for each, in their order.")
    .end();
    let states: Vec<_> = JobState::ALL.iter().map(|state| state.as_str()).collect();
    let states = json!({"type": "array", "items": {"type": "string", "enum": states}});
    book.operation("get", paths::JOBS, "list_jobs", "A page of jobs.")
        .scope(Scope::Read)
        .query("state", "Only these states.", states)
        .query("addon_id", "Only this addon's.", name())
        .query("job_type", "Only this type.", name())
        .query("tag", "Only with this tag.", text())
        .query("text", "Only where this text is found.", text())
        .query(
            "quarantined",
            "Only quarantined ones.",
            json!({"type": "boolean"}),
        )
        .query(
            "after",
            "After this job: the `next` of the page before.",
            uuid(),
        )
        .query("limit", "At most so many; 50 if absent.", limit())
        .answers::<JobList>(200, "They, by their ids.")
        .end();
    book.operation(
        "get",
        paths::JOB,
        "get_job",
        "A job; with `wait_sec` when it has ended.",
    )
    .scope(Scope::Read)
    .query("wait_sec", "Wait so long for its end.", wait())
    .answers::<JobView>(200, "It.")
    .end();
    book.operation("get", paths::EXPLAIN, "explain_job", "Why a job waits.")
        .scope(Scope::Read)
        .answers::<Explain>(200, "Each reason, and what would have to change.")
        .end();
    book.operation(
        "get",
        paths::JOB_EVENTS,
        "list_job_events",
        "What happened to a job.",
    )
    .scope(Scope::Read)
    .query(
        "after",
        "After this place: the `next` of the page before.",
        place(),
    )
    .query("limit", "At most so many; 50 if absent.", limit())
    .answers::<EventPage>(200, "The oldest first.")
    .end();
}

fn commands(book: &mut Book) {
    let why = json!({"reason": "no longer needed"});
    book.operation(
        "post",
        paths::CANCEL,
        "cancel_job",
        "Stops a job: at once, or by asking its worker.",
    )
    .scope(Scope::Cancel)
    .maybe_body::<CancelRequest>(why.clone())
    .answers::<StateAnswer>(200, "What became of it.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "post",
        paths::RETRY,
        "retry_job",
        "Ends a job's wait, or queues a dead letter again.",
    )
    .scope(Scope::Cancel)
    .maybe_body::<RetryRequest>(why)
    .answers::<StateAnswer>(200, "What became of it.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "post",
        paths::CANCEL_MANY,
        "cancel_jobs",
        "Stops all jobs that a query finds.",
    )
    .scope(Scope::Cancel)
    .body::<CancelManyRequest>(json!({"query": {"addon_id": "visuals"}}))
    .answers::<BulkAnswer>(200, "Which were, and which were not.")
    .end();
    book.operation(
        "post",
        paths::REDRIVE,
        "redrive_jobs",
        "Queues dead letters again: those listed, or all that a query finds.",
    )
    .scope(Scope::Cancel)
    .body::<RedriveRequest>(json!({"query": {"addon_id": "visuals"}}))
    .answers::<BulkAnswer>(200, "Which were, and which were not.")
    .end();
}

fn work(book: &mut Book) {
    let claim = json!({"addon_id": "visuals", "instance_id": ID, "max_jobs": 1, "wait_sec": 30});
    book.operation(
        "post",
        paths::CLAIM,
        "claim_jobs",
        "Jobs for a worker, in leases; with `wait_sec` it waits for some.",
    )
    .scope(Scope::Lease)
    .body::<ClaimRequest>(claim)
    .answers::<ClaimedLeases>(200, "Leases, or none.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "get",
        paths::DISPATCHABLE,
        "list_dispatchable",
        "Dispatches that wait to be taken up.",
    )
    .scope(Scope::Lease)
    .query("addon_id", "Only this addon's.", name())
    .query("wait_sec", "Wait so long for one.", wait())
    .answers::<DispatchableJobs>(200, "They.")
    .end();
    book.operation(
        "post",
        paths::ACK,
        "ack_job",
        "Takes up a dispatch: DISPATCHING becomes RUNNING.",
    )
    .scope(Scope::Lease)
    .maybe_body::<AckRequest>(json!({}))
    .answers::<LeaseView>(200, "The lease that it runs under.")
    .fails(409, IN_THE_WAY)
    .end();
    let done = json!({"lease_id": ID, "status": "DONE", "result": {"found": 3}});
    book.operation(
        "post",
        paths::COMPLETE,
        "complete_job",
        "Tells how a run ended.",
    )
    .scope(Scope::Lease)
    .body::<CompleteRequest>(done)
    .answers::<CompleteAnswer>(200, "What became of the job.")
    .fails(409, IN_THE_WAY)
    .end();
    let many = json!({"lease_id": ID, "jobs": [{"job_id": ID, "status": "DONE"}]});
    book.operation(
        "post",
        paths::COMPLETE_MANY,
        "complete_jobs",
        "Tells how runs of one lease ended.",
    )
    .scope(Scope::Lease)
    .body::<CompleteManyRequest>(many)
    .answers::<CompleteManyAnswer>(200, "An answer for each, in their order.")
    .fails(404, "There is no such lease, or it is another addon's.")
    .end();
    book.operation("get", paths::LOG, "get_job_log", "What a job printed.")
        .scope(Scope::Read)
        .query(
            "after",
            "After so many bytes: the `next` of the page before.",
            place(),
        )
        .query("wait_sec", "Wait so long for more.", wait())
        .answers::<LogPage>(200, "A part of it.")
        .end();
    let printed = json!({"lease_id": ID, "offset": 0, "text": "a line\n"});
    book.operation(
        "post",
        paths::LOG,
        "append_job_log",
        "More of what a running job printed.",
    )
    .scope(Scope::Lease)
    .body::<LogAppend>(printed)
    .answers::<LogAppendAnswer>(200, "How much is dealt with.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "get",
        paths::TREE,
        "get_job_tree",
        "The jobs in the worker's process under a running job.",
    )
    .scope(Scope::Read)
    .answers::<TreeView>(200, "As last reported.")
    .end();
}

fn leases(book: &mut Book) {
    let ask = json!({
        "addon_id": "visuals", "job_type": "indexing", "cost_units": 30, "priority": "NORMAL",
        "constraints": {"cpu_heavy": true}, "expected_duration_sec": 120,
    });
    book.operation(
        "post",
        paths::LEASE_REQUEST,
        "request_lease",
        "Asks for capacity, or takes up a dispatch.",
    )
    .scope(Scope::Lease)
    .body::<LeaseRequest>(ask)
    .answers::<LeaseAnswer>(200, "Approved or denied, and why.")
    .fails(404, "There is no such job, or it is another addon's.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "get",
        paths::LEASES,
        "list_leases",
        "A page of leases that hold.",
    )
    .scope(Scope::Read)
    .query("addon_id", "Only this addon's.", name())
    .query(
        "after",
        "After this lease: the `next` of the page before.",
        uuid(),
    )
    .query("limit", "At most so many; 50 if absent.", limit())
    .answers::<LeaseList>(200, "They, by their ids.")
    .end();
    book.operation("get", paths::LEASE, "get_lease", "A lease.")
        .scope(Scope::Read)
        .answers::<LeaseView>(200, "It.")
        .end();
    let progress = json!({"progress": {"fraction": 0.5, "message": "half of it"}});
    book.operation("post", paths::HEARTBEAT, "heartbeat", "Renews a lease.")
        .scope(Scope::Lease)
        .maybe_body::<HeartbeatBody>(progress.clone())
        .answers::<HeartbeatAnswer>(200, "What the worker should do.")
        .fails(409, IN_THE_WAY)
        .end();
    book.operation(
        "post",
        paths::HEARTBEAT_MANY,
        "heartbeat_many",
        "Renews many leases of one worker, who may tell how it does.",
    )
    .scope(Scope::Lease)
    .body::<HeartbeatManyRequest>(json!({"leases": [{"lease_id": ID}]}))
    .answers::<HeartbeatManyAnswer>(200, "An answer for each, in their order.")
    .end();
    book.operation("post", paths::REPORT, "report", "What a running job tells.")
        .scope(Scope::Lease)
        .body::<ReportBody>(progress)
        .answers_nothing("It is noted.")
        .fails(409, IN_THE_WAY)
        .end();
    book.operation(
        "post",
        paths::PID,
        "register_pids",
        "The processes that work under a lease.",
    )
    .scope(Scope::Lease)
    .body::<PidsRequest>(json!({"pids": [4242]}))
    .answers_nothing("They are noted.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "post",
        paths::RELEASE,
        "release_lease",
        "Gives a lease back.",
    )
    .scope(Scope::Lease)
    .maybe_body::<ReleaseRequest>(json!({"return_jobs": true}))
    .answers_nothing("It holds no more.")
    .fails(409, IN_THE_WAY)
    .end();
    book.operation(
        "post",
        paths::REVOKE,
        "revoke_lease",
        "Takes a lease away: its jobs wait again.",
    )
    .scope(Scope::Cancel)
    .maybe_body::<RevokeRequest>(json!({"reason": "the machine is needed"}))
    .answers_nothing("It holds no more.")
    .fails(409, IN_THE_WAY)
    .end();
}

fn schedules(book: &mut Book) {
    let spec = json!({
        "name": "nightly", "cron": "0 3 * * *", "time_zone": "Europe/Berlin",
        "job": {"addon_id": "visuals", "job_type": "indexing", "cost_units": 30},
    });
    let taken = "Another schedule has this name.";
    book.operation("get", paths::SCHEDULES, "list_schedules", "All schedules.")
        .scope(Scope::Read)
        .answers::<ScheduleList>(200, "They, by name.")
        .end();
    book.operation(
        "post",
        paths::SCHEDULES,
        "create_schedule",
        "A new schedule.",
    )
    .scope(Scope::Submit)
    .body::<ScheduleSpec>(spec.clone())
    .answers::<ScheduleView>(201, "It fires from now on.")
    .link("get_schedule", "schedule_id", "/schedule_id")
    .fails(409, taken)
    .end();
    book.operation("get", paths::SCHEDULE, "get_schedule", "A schedule.")
        .scope(Scope::Read)
        .answers::<ScheduleView>(200, "It.")
        .end();
    book.operation(
        "put",
        paths::SCHEDULE,
        "replace_schedule",
        "Another in place of a schedule.",
    )
    .scope(Scope::Submit)
    .body::<ScheduleSpec>(spec)
    .answers::<ScheduleView>(200, "It fires from now on.")
    .fails(409, taken)
    .end();
    book.operation(
        "delete",
        paths::SCHEDULE,
        "delete_schedule",
        "Forgets a schedule. Its jobs stay.",
    )
    .scope(Scope::Submit)
    .answers_nothing("It fires no more.")
    .end();
    book.operation(
        "post",
        paths::SCHEDULE_PAUSE,
        "pause_schedule",
        "Lets a schedule fire no more.",
    )
    .scope(Scope::Submit)
    .answers::<ScheduleView>(200, "It.")
    .fails(409, taken)
    .fails(422, "What it submits is not allowed any more.")
    .end();
    book.operation(
        "post",
        paths::SCHEDULE_RESUME,
        "resume_schedule",
        "Lets a schedule fire again.",
    )
    .scope(Scope::Submit)
    .answers::<ScheduleView>(200, "It.")
    .fails(409, taken)
    .fails(422, "What it submits is not allowed any more.")
    .end();
}

fn operating(book: &mut Book) {
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

fn observing(book: &mut Book) {
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

fn backup(book: &mut Book) {
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

fn events(book: &mut Book) {
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

fn tokens(book: &mut Book) {
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
