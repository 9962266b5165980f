//! Jobs: submitted, looked at, stopped, worked on.

use jobtree_protocol::{
    AckRequest, BulkAnswer, CancelManyRequest, CancelRequest, ClaimRequest, ClaimedLeases,
    CompleteAnswer, CompleteManyAnswer, CompleteManyRequest, CompleteRequest, DispatchableJobs,
    EventPage, Explain, JobList, JobState, JobView, LeaseView, LogAppend, LogAppendAnswer, LogPage,
    RedriveRequest, RetryRequest, Scope, StateAnswer, SubmitAnswer, SubmitManyAnswer,
    SubmitManyRequest, SubmitRequest, TreeView, paths,
};
use serde_json::json;

use super::{Book, ID, IN_THE_WAY, limit, name, place, text, uuid, wait};

pub(super) fn jobs(book: &mut Book) {
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

pub(super) fn commands(book: &mut Book) {
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

pub(super) fn work(book: &mut Book) {
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
