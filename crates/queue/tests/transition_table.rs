//! Every command in every state: what becomes of the job, or which error it is.

mod support;

use std::collections::BTreeSet;

use jobtree_protocol::{
    AckRequest, CancelRequest, CompleteRequest, CompleteStatus, EditRequest, Heartbeat, JobId,
    JobState, LeaseId, Priority, ReleaseRequest, ReportRequest, RevokeRequest, SubmitRequest,
};
use jobtree_queue::record::Stage;
use jobtree_queue::transitions::{
    self as t, Admit, Proof, Redrive, Reserve, RuntimeProof, TakeUp, TimeOut, TransitionError,
    Unclaimed,
};
use support::{World, addon, node, simple, watch};

/// What is expected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Is {
    /// It takes effect, and this is the state afterwards.
    Now(JobState),
    /// It is answered, and nothing changes.
    Repeated,
    /// An error, by its name.
    Error(&'static str),
}

use Is::{Error, Now, Repeated};
use JobState::{Canceled, Dispatching, Done, Failed, Queued, Running};

const WRONG: Is = Error("WrongState");
const NOT_DUE: Is = Error("NotDue");
const ENDED: Is = Error("LeaseEnded");
const NOTHING: Is = Error("NothingToClaim");
const TAKEN: Is = Error("TakenUp");
const NOT_YOURS: Is = Error("NotYourLease");
const UNFINISHED: Is = Error("UnfinishedJobs");

macro_rules! commands {
    ($($name:ident of $function:literal: $expected:expr,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        enum Command { $($name,)* }

        /// The command, the function it calls, and what is expected in the order of [`Stage::ALL`].
        const TABLE: &[(Command, &str, [Is; 7])] = &[$((Command::$name, $function, $expected),)*];
    };
}

commands! {
    //                                       QUEUED           RESERVED         HELD             RUNNING              DONE        FAILED      CANCELED
    SubmitAgain      of "submit":         [Repeated,        Repeated,        Repeated,        Repeated,            Repeated,   Repeated,   Repeated],
    SubmitOther      of "submit":         [Error("IdConflict"); 7],
    Reserve          of "reserve":        [Now(Dispatching),WRONG,           WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
    ReserveAgain     of "reserve":        [Now(Dispatching),Repeated,        WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
    NotTakenUp       of "return_unclaimed":[NOT_DUE,         Now(Queued),     NOT_DUE,         NOT_DUE,             NOT_DUE,    NOT_DUE,    NOT_DUE],
    Decline          of "return_unclaimed":[NOT_DUE,         Now(Queued),     NOT_DUE,         NOT_DUE,             NOT_DUE,    NOT_DUE,    NOT_DUE],
    TakeUp           of "take_up":        [WRONG,           Now(Running),    TAKEN,           TAKEN,               WRONG,      WRONG,      WRONG],
    Ack              of "ack":            [WRONG,           Now(Running),    TAKEN,           TAKEN,               WRONG,      WRONG,      WRONG],
    AckWithLease     of "ack":            [WRONG,           Now(Running),    NOT_YOURS,       NOT_YOURS,           WRONG,      WRONG,      WRONG],
    AckOwnLease      of "ack":            [ENDED,           ENDED,           Repeated,        Repeated,            ENDED,      ENDED,      ENDED],
    Claim            of "claim":          [Now(Running),    Now(Running),    NOTHING,         NOTHING,             NOTHING,    NOTHING,    NOTHING],
    Heartbeat        of "heartbeat":      [ENDED,           ENDED,           Now(Dispatching),Now(Running),        ENDED,      ENDED,      ENDED],
    HeartbeatNaming  of "heartbeat":      [ENDED,           ENDED,           Now(Running),    Now(Running),        ENDED,      ENDED,      ENDED],
    GiveBack         of "heartbeat":      [ENDED,           ENDED,           Now(Queued),     Error("KeepsBatch"),         ENDED,      ENDED,      ENDED],
    AskBack          of "ask_back":       [ENDED,           ENDED,           Now(Dispatching),Error("KeepsBatch"), ENDED,      ENDED,      ENDED],
    Report           of "report":         [ENDED,           ENDED,           Now(Dispatching),Now(Running),        ENDED,      ENDED,      ENDED],
    Log              of "log":            [ENDED,           ENDED,           Now(Dispatching),Now(Running),        ENDED,      ENDED,      ENDED],
    PauseRun         of "pause_run":      [WRONG,           WRONG,           WRONG,           Now(Running),        WRONG,      WRONG,      WRONG],
    CompleteDone     of "complete":       [WRONG,           WRONG,           Now(Done),       Now(Done),           Repeated,   WRONG,      WRONG],
    CompleteFailed   of "complete":       [WRONG,           WRONG,           Now(Queued),     Now(Queued),         WRONG,      Repeated,   WRONG],
    CompleteFinal    of "complete":       [WRONG,           WRONG,           Now(Failed),     Now(Failed),         WRONG,      Repeated,   WRONG],
    CompleteStranger of "complete":       [WRONG,           WRONG,           NOT_YOURS,       NOT_YOURS,           WRONG,      WRONG,      WRONG],
    CompleteInBulk   of "complete_many":  [WRONG,           WRONG,           Now(Done),       Now(Done),           Repeated,   WRONG,      WRONG],
    Release          of "release":        [Repeated,        Repeated,        UNFINISHED,      UNFINISHED,          Repeated,   Repeated,   Repeated],
    ReleaseReturning of "release":        [Repeated,        Repeated,        Now(Queued),     Now(Queued),         Repeated,   Repeated,   Repeated],
    Revoke           of "revoke":         [Repeated,        Repeated,        Now(Queued),     Now(Queued),         Repeated,   Repeated,   Repeated],
    Expire           of "expire":         [NOT_DUE,         NOT_DUE,         Now(Queued),     Now(Queued),         NOT_DUE,    NOT_DUE,    NOT_DUE],
    ExpireByWall     of "expire":         [NOT_DUE,         NOT_DUE,         Now(Queued),     Now(Queued),         NOT_DUE,    NOT_DUE,    NOT_DUE],
    TimeOut          of "time_out":       [NOT_DUE,         NOT_DUE,         NOT_DUE,         Now(Queued),         NOT_DUE,    NOT_DUE,    NOT_DUE],
    MissDeadline     of "miss_deadline":  [Now(Failed),     NOT_DUE,         NOT_DUE,         NOT_DUE,             NOT_DUE,    NOT_DUE,    NOT_DUE],
    Cancel           of "cancel":         [Now(Canceled),   Now(Canceled),   Now(Dispatching),Now(Running),        WRONG,      WRONG,      Repeated],
    DependencyEnded  of "dependency_ended":[Repeated,        NOT_DUE,         NOT_DUE,         NOT_DUE,             NOT_DUE,    NOT_DUE,    NOT_DUE],
    Redrive          of "redrive":        [WRONG,           WRONG,           WRONG,           WRONG,               WRONG,      Now(Queued),Now(Queued)],
    Hasten           of "hasten":         [Repeated,        WRONG,           WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
    Edit             of "edit":           [Now(Queued),     WRONG,           WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
    Deny             of "deny":           [Now(Queued),     WRONG,           WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
    MarkAtRisk       of "mark_at_risk":   [Now(Queued),     WRONG,           WRONG,           WRONG,               WRONG,      WRONG,      WRONG],
}

/// The same, for a job that somebody wants to stop: held, and running.
const STOPPING: &[(Command, Is, Is)] = &[
    (Command::CompleteDone, Now(Done), Now(Done)),
    (Command::CompleteFailed, Now(Canceled), Now(Canceled)),
    (Command::CompleteFinal, Now(Canceled), Now(Canceled)),
    (Command::CompleteStranger, NOT_YOURS, NOT_YOURS),
    (Command::CompleteInBulk, Now(Done), Now(Done)),
    (Command::Release, Now(Canceled), Now(Canceled)),
    (Command::ReleaseReturning, Now(Canceled), Now(Canceled)),
    (Command::Revoke, Now(Canceled), Now(Canceled)),
    (Command::Expire, Now(Canceled), Now(Canceled)),
    (Command::ExpireByWall, Now(Canceled), Now(Canceled)),
    (Command::TimeOut, NOT_DUE, Now(Canceled)),
    (Command::Cancel, Repeated, Repeated),
    (Command::Heartbeat, Now(Dispatching), Now(Running)),
    (Command::HeartbeatNaming, Now(Running), Now(Running)),
    (Command::GiveBack, Now(Canceled), Error("KeepsBatch")),
    (Command::Report, Now(Dispatching), Now(Running)),
    (Command::Redrive, WRONG, WRONG),
    (Command::TakeUp, TAKEN, TAKEN),
    (Command::AckOwnLease, Repeated, Repeated),
];

fn request() -> SubmitRequest {
    SubmitRequest {
        max_attempts: Some(3),
        max_runtime_sec: Some(5),
        deadline_at: Some("2026-01-01T00:00:10Z".parse().unwrap()),
        late: jobtree_protocol::Late::Fail,
        ..simple()
    }
}

/// A world with a job in a stage, and the lease that it is held under or ran under last. It has run once and was given back,
/// so that there is a lease in every stage.
fn job_in(stage: Stage) -> (World, JobId, LeaseId) {
    let mut world = World::new();
    let job = world.submit(request());
    let mut lease = world.claim(&[job]);
    let back = ReleaseRequest {
        return_jobs: true,
        ..ReleaseRequest::default()
    };
    world
        .apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &back))
        .unwrap();
    match stage {
        Stage::Waiting => {}
        Stage::Reserved => {
            let reserve = reserve(world.lease_id());
            world
                .apply(|w| t::reserve(&w.cx(), w.job(job), reserve))
                .unwrap();
        }
        Stage::Held => lease = world.claim_unbegun(&[job]),
        Stage::Running => lease = world.claim(&[job]),
        Stage::Done => {
            lease = world.claim(&[job]);
            world
                .complete(job, &CompleteRequest::done(lease, None))
                .unwrap();
        }
        Stage::Failed => {
            lease = world.claim(&[job]);
            let last = CompleteRequest {
                retry: false,
                ..CompleteRequest::failed(lease, "broken")
            };
            world.complete(job, &last).unwrap();
        }
        Stage::Canceled => {
            world
                .apply(|w| t::cancel(&w.cx(), w.job(job), None, &CancelRequest::default()))
                .unwrap();
        }
    }
    assert_eq!(world.job(job).stage(), stage);
    // Deadline, limits and leases are all over, for those who look at the clock.
    world.pass(60);
    (world, job, lease)
}

fn reserve(reservation_id: LeaseId) -> Reserve {
    Reserve {
        reservation_id,
        node_id: node("here"),
        key_holders: 0,
        reason: "admitted".into(),
    }
}

fn run(
    world: &mut World,
    job: JobId,
    lease: LeaseId,
    command: Command,
) -> Result<bool, TransitionError> {
    let id = world.lease_id();
    let take_up = TakeUp {
        lease_id: id,
        instance_id: None,
        pids: Vec::new(),
        process_origin: None,
    };
    let completion = |status, retry| CompleteRequest {
        status,
        retry,
        ..CompleteRequest::done(lease, None)
    };
    let done = completion(CompleteStatus::Done, true);
    let reservation = world
        .job(job)
        .reservation
        .as_ref()
        .map_or(id, |reservation| reservation.id);
    let revision = world.job(job).revision;
    let lease_revision = world.lease(lease).revision;
    let current_since = world.lease(lease).current_since;
    let time_out = TimeOut {
        job_id: job,
        current_since,
        by: RuntimeProof::Wall,
    };
    match command {
        Command::SubmitAgain | Command::SubmitOther => {
            let cost_units = if command == Command::SubmitAgain {
                30
            } else {
                31
            };
            world
                .try_submit(SubmitRequest {
                    job_id: Some(job),
                    cost_units,
                    ..request()
                })
                .map(|done| done.1)
        }
        Command::Reserve => flag(world.apply(|w| t::reserve(&w.cx(), w.job(job), reserve(id)))),
        Command::ReserveAgain => {
            flag(world.apply(|w| t::reserve(&w.cx(), w.job(job), reserve(reservation))))
        }
        Command::NotTakenUp => {
            let late = Unclaimed::TimedOut(Proof::Seen { revision });
            flag(world.apply(|w| t::return_unclaimed(&w.cx(), w.job(job), reservation, &late)))
        }
        Command::Decline => {
            let declined = Unclaimed::Declined {
                reason: "full".into(),
            };
            flag(world.apply(|w| t::return_unclaimed(&w.cx(), w.job(job), reservation, &declined)))
        }
        Command::TakeUp => {
            flag(world.apply(|w| t::take_up(&w.cx(), w.job(job), w.lease_of(job), take_up)))
        }
        Command::Ack => {
            let ack = AckRequest::default();
            flag(world.apply(|w| t::ack(&w.cx(), w.job(job), w.lease_of(job), ack, id)))
        }
        Command::AckWithLease => {
            let granted = t::admit(&world.cx(), None, admission(id)).unwrap();
            world.commit(granted.changes);
            let ack = AckRequest {
                lease_id: Some(id),
                ..AckRequest::default()
            };
            flag(world.apply(|w| t::ack(&w.cx(), w.job(job), Some(w.lease(id)), ack, id)))
        }
        Command::AckOwnLease => {
            let ack = AckRequest {
                lease_id: Some(lease),
                ..AckRequest::default()
            };
            flag(world.apply(|w| t::ack(&w.cx(), w.job(job), Some(w.lease(lease)), ack, id)))
        }
        Command::Claim => flag(world.try_claim(&[job])),
        Command::Heartbeat => {
            let beat = Heartbeat::of(lease);
            world.beat(beat).map(|_| false)
        }
        Command::HeartbeatNaming => {
            let beat = Heartbeat {
                job_id: Some(job),
                ..Heartbeat::of(lease)
            };
            world.beat(beat).map(|_| false)
        }
        Command::GiveBack => {
            let beat = Heartbeat {
                given_back: vec![job],
                ..Heartbeat::of(lease)
            };
            world.beat(beat).map(|_| false)
        }
        Command::AskBack => flag(world.apply(|w| t::ask_back(w.lease(lease), &[job]))),
        Command::Report => {
            let report = ReportRequest {
                lease_id: lease,
                job_id: None,
                progress: None,
                metrics: [("pages".into(), 3.0)].into(),
                pids: None,
                process_origin: None,
            };
            flag(world.apply(|w| t::report(&w.cx(), w.lease(lease), Some(w.job(job)), report)))
        }
        Command::Log => flag(world.apply(|w| t::log(&w.cx(), w.lease(lease), w.job(job)))),
        Command::CompleteDone => flag(
            world.apply(|w| t::complete(&w.cx(), w.job(job), w.lease_of(job), &done, w.record())),
        ),
        Command::CompleteFailed | Command::CompleteFinal => {
            let failed = completion(CompleteStatus::Failed, command == Command::CompleteFailed);
            flag(
                world.apply(|w| {
                    t::complete(&w.cx(), w.job(job), w.lease_of(job), &failed, w.record())
                }),
            )
        }
        Command::CompleteStranger => {
            let stranger = CompleteRequest {
                lease_id: id,
                ..done
            };
            flag(world.apply(|w| {
                t::complete(&w.cx(), w.job(job), w.lease_of(job), &stranger, w.record())
            }))
        }
        Command::CompleteInBulk => {
            let mut many = t::complete_many(
                &world.cx(),
                world.lease_of(job),
                &[(world.job(job), &done)],
                world.record(),
            );
            world.commit(many.changes);
            flag(many.answers.remove(0))
        }
        Command::Release | Command::ReleaseReturning => {
            let release = ReleaseRequest {
                return_jobs: command == Command::ReleaseReturning,
                ..ReleaseRequest::default()
            };
            flag(world.apply(|w| t::release(&w.cx(), w.lease(lease), &w.jobs_of(lease), &release)))
        }
        Command::Revoke => {
            let revoke = RevokeRequest::default();
            flag(world.apply(|w| t::revoke(&w.cx(), w.lease(lease), &w.jobs_of(lease), &revoke)))
        }
        Command::Expire | Command::ExpireByWall => {
            let seen = Proof::Seen {
                revision: lease_revision,
            };
            let proof = if command == Command::Expire {
                seen
            } else {
                Proof::Wall
            };
            flag(world.apply(|w| t::expire(&w.cx(), w.lease(lease), &w.jobs_of(lease), proof)))
        }
        Command::TimeOut => {
            flag(world.apply(|w| t::time_out(&w.cx(), w.lease(lease), &w.jobs_of(lease), time_out)))
        }
        Command::MissDeadline => flag(world.apply(|w| t::miss_deadline(&w.cx(), w.job(job)))),
        Command::Cancel => {
            let cancel = CancelRequest::default();
            flag(world.apply(|w| t::cancel(&w.cx(), w.job(job), w.lease_of(job), &cancel)))
        }
        Command::DependencyEnded => {
            let other = JobId::from_random([9; 16]);
            flag(world.apply(|w| t::dependency_ended(&w.cx(), w.job(job), other, Done)))
        }
        Command::Redrive => {
            let redrive = Redrive {
                dependencies: &[],
                same_unique: None,
                reason: None,
            };
            flag(world.apply(|w| t::redrive(&w.cx(), w.job(job), redrive)))
        }
        Command::Hasten => flag(world.apply(|w| t::hasten(&w.cx(), w.job(job)))),
        Command::Edit => {
            let edit = EditRequest {
                priority: Some(Priority::High),
                ..EditRequest::default()
            };
            flag(world.apply(|w| t::edit(&w.cx(), w.job(job), &edit)))
        }
        Command::Deny => {
            flag(world.apply(|w| t::deny(&w.cx(), w.job(job), "capacity", "too much")))
        }
        Command::PauseRun => {
            flag(world.apply(|w| t::pause_run(&w.cx(), w.job(job), true, "by admin".into())))
        }
        Command::MarkAtRisk => {
            flag(world.apply(|w| t::mark_at_risk(&w.cx(), w.job(job), "too slow")))
        }
    }
}

fn flag<A>(outcome: Result<(A, bool), TransitionError>) -> Result<bool, TransitionError> {
    outcome.map(|(_, repeated)| repeated)
}

fn admission(lease_id: LeaseId) -> Admit {
    Admit {
        lease_id,
        addon_id: addon("visuals"),
        job_type: jobtree_protocol::JobType::new("indexing").unwrap(),
        cost_units: 10,
        priority: jobtree_protocol::Priority::Normal,
        constraints: jobtree_protocol::Constraints::default(),
        expected_duration_sec: None,
        node_id: node("here"),
        instance_id: None,
        request_key: None,
        pids: Vec::new(),
        process_origin: None,
        reason: "admitted".into(),
    }
}

/// Runs a command and says what it was. A refused one must leave everything as it is, and say which state was in the way.
fn outcome(world: &mut World, job: JobId, lease: LeaseId, command: Command) -> Is {
    let (before, events) = (world.jobs.clone(), world.events.len());
    let state = world.state(job);
    match run(world, job, lease, command) {
        Ok(repeated) => {
            assert!(!repeated || world.jobs == before, "{command:?} in {state}");
            if repeated {
                Repeated
            } else {
                Now(world.state(job))
            }
        }
        Err(error) => {
            assert_eq!(world.jobs, before, "{command:?} in {state}");
            // `AckWithLease` takes a lease first.
            let granted = usize::from(command == Command::AckWithLease);
            assert_eq!(
                world.events.len(),
                events + granted,
                "{command:?} in {state}"
            );
            let named = error.to_string().contains(state.as_str());
            let names = matches!(
                error,
                TransitionError::WrongState { .. } | TransitionError::NotYourLease { .. }
            );
            assert!(named || !names, "{error}");
            let told = format!("{error:?}");
            let name = told.split([' ', '{']).next().unwrap().to_owned();
            Error(Box::leak(name.into_boxed_str()))
        }
    }
}

#[test]
fn every_command_in_every_state() {
    let _watch = watch();
    let mut wrong = Vec::new();
    for (command, _, expected) in TABLE {
        for (stage, expected) in Stage::ALL.into_iter().zip(expected) {
            let (mut world, job, lease) = job_in(stage);
            let got = outcome(&mut world, job, lease, *command);
            if got != *expected {
                wrong.push(format!(
                    "{command:?} in {stage:?}: {got:?}, not {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_command_on_a_job_that_is_asked_to_stop() {
    let _watch = watch();
    let mut wrong = Vec::new();
    for (command, held, running) in STOPPING {
        for (stage, expected) in [(Stage::Held, held), (Stage::Running, running)] {
            let (mut world, job, lease) = job_in(stage);
            let cancel = CancelRequest::default();
            world
                .apply(|w| t::cancel(&w.cx(), w.job(job), w.lease_of(job), &cancel))
                .unwrap();
            let got = outcome(&mut world, job, lease, *command);
            if got != *expected {
                wrong.push(format!(
                    "{command:?} in {stage:?}: {got:?}, not {expected:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the module gives out is what the table walks: a transition that is added must be added here too.
#[test]
fn no_transition_is_left_out() {
    let _watch = watch();
    let source = include_str!("../src/transitions/mod.rs");
    let lists = source
        .split("pub use ")
        .skip(1)
        .map(|rest| rest.split(';').next().unwrap());
    let names = lists.flat_map(|list| list.split(|c: char| !c.is_alphanumeric() && c != '_'));
    let modules = [
        "begin", "command", "dispatch", "ending", "error", "grant", "held", "redrive", "state",
        "submit", "waiting",
    ];
    let functions = names.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    let functions: BTreeSet<&str> = functions
        // `redrive` and `submit` are both a module and its function.
        .filter(|name| !modules.contains(name) || ["redrive", "submit"].contains(name))
        .collect();
    let mut walked: BTreeSet<&str> = TABLE.iter().map(|(_, function, _)| *function).collect();
    // It has no job.
    walked.insert("admit");
    // It changes nothing: it tells what `heartbeat` needs.
    walked.insert("heartbeat_needs");
    // It is what `submit` calls.
    walked.insert("submit_among");
    assert_eq!(functions, walked);
}
