//! What operators do with a running scheduler: schedules, policy, draining, redriving, following.

#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

mod support;

use std::time::Duration;

use jobtree_protocol::{
    Advice, CompleteRequest, ErrorCode, EventKind, Heartbeat, JobId, JobQuery, JobState, LogAppend,
    Missed, Overlap, RedriveRequest, ScheduleSpec, SubmitRequest, Usage,
};
use jobtree_queue::policy::Policy;
use jobtree_scheduler::Scheduler;
use jobtree_store::Store;
use support::quiet_machine::default_policy;
use support::{LONG, claim, start, start_with};
use watchdog::Watchdog;

fn each_second(name: &str) -> ScheduleSpec {
    ScheduleSpec {
        name: name.to_owned(),
        cron: "* * * * * *".to_owned(),
        time_zone: "UTC".to_owned(),
        jitter_sec: 0,
        missed: Missed::All,
        overlap: Overlap::Forbid,
        paused: false,
        job: SubmitRequest::new("a", "tick", 1),
    }
}

#[test]
fn a_schedule_fires_and_does_not_overlap() {
    let _watchdog = Watchdog::watching("schedules");
    let scheduler = start(Store::in_memory());
    let schedule = scheduler
        .put_schedule(None, each_second("ticks"))
        .wait()
        .unwrap();
    assert!(schedule.next_at.is_some());
    let first = scheduler.claim(claim("a", 9)).wait().unwrap();
    let job = &first[0].jobs[0];
    assert_eq!(job.schedule_id, Some(schedule.schedule_id));
    assert_eq!(first[0].jobs.len(), 1);
    // While that one runs, two more times come and are left out.
    let told = loop {
        let told = scheduler.schedule(schedule.schedule_id).wait().unwrap();
        let passed = told.next_at.unwrap() - Duration::from_secs(3);
        if told.last_at.is_some_and(|last| passed >= last) {
            break told;
        }
        std::thread::yield_now();
    };
    assert_eq!(told.last_job, Some(job.job_id));
    let all = scheduler.jobs(JobQuery::default()).wait().unwrap();
    assert_eq!(all.jobs.len(), 1);
    let done = CompleteRequest::done(first[0].lease_id, None);
    scheduler.complete(job.job_id, done).wait().unwrap();
    let second = scheduler.claim(claim("a", 9)).wait().unwrap();
    assert_ne!(second[0].jobs[0].job_id, job.job_id);

    let paused = scheduler
        .pause_schedule(schedule.schedule_id, true)
        .wait()
        .unwrap();
    assert_eq!(paused.next_at, None);
    let taken = scheduler.put_schedule(None, each_second("ticks")).wait();
    assert_eq!(taken.unwrap_err().code, ErrorCode::Conflict);
    scheduler
        .delete_schedule(schedule.schedule_id)
        .wait()
        .unwrap();
    assert!(scheduler.schedules().wait().unwrap().is_empty());
}

#[test]
fn a_schedule_that_cannot_be_read_is_refused() {
    let scheduler = start(Store::in_memory());
    let wrong = ScheduleSpec {
        cron: "61 * * * *".to_owned(),
        ..each_second("wrong")
    };
    let error = scheduler.put_schedule(None, wrong).wait().unwrap_err();
    assert_eq!(error.fields[0].field, "cron");
}

#[test]
fn another_policy_counts_at_once() {
    let _watchdog = Watchdog::watching("policy");
    let scheduler = start_with(Store::in_memory(), |options| {
        options.policy.caps.leases = 1;
    });
    for _ in 0..2 {
        let job = SubmitRequest::new("a", "t", 10);
        scheduler.submit(job).wait().unwrap();
    }
    let first = scheduler.claim(claim("a", 1)).wait().unwrap();
    assert_eq!(first.len(), 1);
    let second = scheduler.claim(claim("a", 1));
    assert!(scheduler.load_policy("[caps]\nleases = \"many\"").is_err());
    assert_eq!(scheduler.policy().caps.leases, 1, "the old one stays");
    let mut policy = Policy::clone(&scheduler.policy());
    policy.caps.leases = 2;
    scheduler.set_policy(policy).unwrap();
    assert_eq!(second.wait().unwrap().len(), 1);
}

#[test]
fn a_drained_node_takes_nothing_and_tells_its_workers() {
    let _watchdog = Watchdog::watching("drain");
    let scheduler = start(Store::in_memory());
    let job = SubmitRequest::new("a", "t", 10);
    scheduler.submit(job.clone()).wait().unwrap();
    let lease = scheduler.claim(claim("a", 1)).wait().unwrap()[0].lease_id;
    scheduler.drain(true);
    let queued = scheduler.submit(job).wait().unwrap();
    let waiting = scheduler.claim(claim("a", 1));
    let told = scheduler.explain(queued.job_id).wait().unwrap();
    assert!(told.reasons.iter().any(|it| it.code == "draining"));
    let beat = scheduler.heartbeat(Heartbeat::of(lease)).wait().unwrap();
    assert_eq!(beat.advice, Advice::Drain);
    scheduler.drain(false);
    assert_eq!(waiting.wait().unwrap()[0].jobs[0].job_id, queued.job_id);
}

#[test]
fn dead_letters_come_back() {
    let _watchdog = Watchdog::watching("redrive");
    let scheduler = start(Store::in_memory());
    let mut ids = Vec::new();
    for _ in 0..3 {
        let job = SubmitRequest::new("a", "t", 10);
        ids.push(scheduler.submit(job).wait().unwrap().job_id);
    }
    let lease = scheduler.claim(claim("a", 3)).wait().unwrap().remove(0);
    for job in &lease.jobs {
        let failed = CompleteRequest::failed(lease.lease_id, "no");
        let answer = scheduler.complete(job.job_id, failed).wait().unwrap();
        assert_eq!(answer.state, JobState::Failed);
    }
    let all = RedriveRequest {
        query: Some(JobQuery::default()),
        ..RedriveRequest::default()
    };
    let answer = scheduler.redrive(all).wait().unwrap();
    assert_eq!(answer.done, ids);
    assert!(answer.failed.is_empty());
    let again = scheduler.claim(claim("a", 3)).wait().unwrap();
    assert_eq!(again[0].jobs.len(), 3);
    let stats = scheduler.stats().wait().unwrap();
    assert_eq!(stats.events[EventKind::Redriven.as_str()], 3);
    let history = scheduler.history().wait().unwrap();
    assert_eq!(history[0].success_rate, Some(0.0));
}

/// Runs a job to its end; its worker says that it used two processors for as long as it ran.
fn run_measured(scheduler: &Scheduler, cost: u32) -> JobId {
    let job = SubmitRequest::new("a", "t", cost);
    let job = scheduler.submit(job).wait().unwrap().job_id;
    let lease = scheduler.claim(claim("a", 1)).wait().unwrap()[0].lease_id;
    let usage = Usage {
        cpu_ms: Some(20_000),
        processors: Some(2),
        ..Usage::default()
    };
    let done = CompleteRequest {
        usage: Some(usage),
        ..CompleteRequest::done(lease, None)
    };
    scheduler.complete(job, done).wait().unwrap();
    job
}

#[test]
fn measured_cost_is_shown_beside_declared_cost_and_charged_if_the_policy_learns() {
    let _watchdog = Watchdog::watching("measured cost");
    let scheduler = start(Store::in_memory());
    let mut last = run_measured(&scheduler, 30);
    for _ in 1..20 {
        last = run_measured(&scheduler, 30);
    }
    let history = scheduler.history().wait().unwrap();
    let of_type = history.iter().find(|stats| stats.job_type.is_some());
    let usage = of_type
        .and_then(|stats| stats.usage)
        .expect("it was measured");
    assert_eq!((usage.runs, usage.cost_factor), (20, Some(2.0)));

    // A job that has ended, and one that waits for it to be claimed.
    let charged = |job| {
        let cost = scheduler.explain(job).wait().unwrap().cost.unwrap();
        assert_eq!(cost.measured, Some(usage));
        (cost.declared, cost.charged)
    };
    let waiting = SubmitRequest::new("a", "t", 30);
    let waiting = scheduler.submit(waiting).wait().unwrap().job_id;
    assert_eq!((charged(last), charged(waiting)), ((30, 30), (30, 30)));
    let mut learns = default_policy();
    learns.cost.learn = true;
    scheduler.set_policy(learns).unwrap();
    assert_eq!((charged(last), charged(waiting)), ((30, 60), (30, 60)));
    scheduler.claim(claim("a", 1)).wait().unwrap();
    assert_eq!(scheduler.load().wait().unwrap().used, 60);
    scheduler.set_policy(default_policy()).unwrap();
    assert_eq!(charged(last), (30, 30));
}

#[test]
fn events_are_followed() {
    let _watchdog = Watchdog::watching("events");
    let scheduler = start(Store::in_memory());
    // The machine of this test has become quiet.
    let first = scheduler.events(0, 10, LONG).wait().unwrap().remove(0);
    assert_eq!(first.event.kind, EventKind::LoadState);
    assert_eq!(first.event.reason.as_deref(), Some("QUIET, after NORMAL"));
    let after = first.cursor;
    let nothing = scheduler.events(after, 10, Duration::ZERO).wait().unwrap();
    assert!(nothing.is_empty());
    let waiting = scheduler.events(after, 10, LONG);
    let job = SubmitRequest::new("a", "t", 10);
    let job = scheduler.submit(job).wait().unwrap();
    let came = waiting.wait().unwrap();
    assert_eq!(came[0].event.kind, EventKind::Submitted);
    assert_eq!(came[0].event.job_id, Some(job.job_id));
    let waiting = scheduler.wait_for(job.job_id, Duration::ZERO).wait();
    assert_eq!(waiting.unwrap().state, JobState::Queued);
}

#[test]
fn a_log_is_followed_to_its_end() {
    let _watchdog = Watchdog::watching("a log");
    let scheduler = start(Store::in_memory());
    let submitted = scheduler.submit(SubmitRequest::new("a", "t", 10)).wait();
    let job = submitted.unwrap().job_id;
    let lease_id = scheduler.claim(claim("a", 1)).wait().unwrap()[0].lease_id;
    let nothing = scheduler.log(job, 0, Duration::ZERO).wait().unwrap();
    assert_eq!((nothing.text.as_str(), nothing.ended), ("", false));
    let waiting = scheduler.log(job, 0, LONG);
    let append = LogAppend {
        lease_id,
        offset: 0,
        text: "one\n".to_owned(),
    };
    let answer = scheduler.append_log(job, append.clone()).wait().unwrap();
    assert_eq!(answer.next_offset, 4);
    let came = waiting.wait().unwrap();
    assert_eq!((came.text.as_str(), came.next), ("one\n", 4));
    let waiting = scheduler.log(job, came.next, LONG);
    scheduler
        .complete(job, CompleteRequest::done(lease_id, None))
        .wait()
        .unwrap();
    let end = waiting.wait().unwrap();
    assert_eq!((end.text.as_str(), end.ended), ("", true));
    let late = scheduler.append_log(job, append).wait().unwrap_err();
    assert_eq!(late.code, ErrorCode::LeaseLost);
    let stats = scheduler.stats().wait().unwrap();
    assert_eq!(stats.events[EventKind::Log.as_str()], 1);
}

#[test]
fn a_worker_that_lost_the_answer_gets_the_same_lease() {
    let _watchdog = Watchdog::watching("repeated claim");
    let scheduler = start(Store::in_memory());
    for _ in 0..2 {
        let job = SubmitRequest::new("a", "t", 10);
        scheduler.submit(job).wait().unwrap();
    }
    let mut request = claim("a", 1);
    request.lease_id = Some(jobtree_protocol::LeaseId::generate());
    let first = scheduler.claim(request.clone()).wait().unwrap();
    let again = scheduler.claim(request).wait().unwrap();
    assert_eq!(first[0].lease_id, again[0].lease_id);
    assert_eq!(first[0].jobs[0].job_id, again[0].jobs[0].job_id);
}

#[test]
fn what_nobody_took_is_given_back() {
    let _watchdog = Watchdog::watching("untaken");
    let scheduler = start(Store::in_memory());
    let gone = scheduler.claim(claim("a", 1));
    drop(gone);
    let job = SubmitRequest::new("a", "t", 100);
    let job = scheduler.submit(job).wait().unwrap();
    // If the first claim had been granted, this one would have to wait for its lease to run out.
    let lease = scheduler.claim(claim("a", 1)).wait().unwrap();
    assert_eq!(lease[0].jobs[0].job_id, job.job_id);
    assert_eq!(lease[0].jobs[0].rescues, 0);
}
