//! Leases, and schedules.

use jobtree_protocol::{
    HeartbeatAnswer, HeartbeatBody, HeartbeatManyAnswer, HeartbeatManyRequest, LeaseAnswer,
    LeaseList, LeaseRequest, LeaseView, PidsRequest, ReleaseRequest, ReportBody, RevokeRequest,
    ScheduleList, ScheduleSpec, ScheduleView, Scope, paths,
};
use serde_json::json;

use super::{Book, ID, IN_THE_WAY, limit, name, uuid};

pub(super) fn leases(book: &mut Book) {
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

pub(super) fn schedules(book: &mut Book) {
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
