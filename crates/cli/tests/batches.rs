//! Batches of the shipped workers at a daemon of its own process: how many jobs a program is given at a time, and that the time
//! limit of a job in a batch begins when the job does.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::Duration;

use jobtree_client::{Client, Worker};
use jobtree_protocol::{JobState, Json, SubmitManyRequest, SubmitRequest};
use support::{Beside, Daemon, until, watch};

/// Returns the lease that each of these jobs was given by.
fn leases(daemon: &Daemon, jobs: &[String]) -> BTreeMap<String, String> {
    let lease_of = |id: &String| {
        let job = daemon.job(id);
        let events = job["events"].as_array().expect("events").iter();
        let mut leases = events.filter_map(|event| event["lease_id"].as_str());
        let lease = leases.next_back().unwrap_or_else(|| panic!("{job}"));
        (id.clone(), lease.to_owned())
    };
    jobs.iter().map(lease_of).collect()
}

/// A program is not short, and nothing says how long it takes: while one runs, no other job waits behind it.
#[test]
fn a_program_is_given_one_job_at_a_time() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let jobs: Vec<String> = (0..20)
        .map(|_| daemon.run(&["submit", "photos", "index"]).text())
        .collect();
    let mut command = daemon.command();
    command.args([
        "work", "-q", "--addon", "photos", "--type", "index", "--", "true",
    ]);
    let _worker = Beside::start(&mut command);
    for id in &jobs {
        daemon.run(&["wait", id]).exits(0);
    }
    let leases: BTreeSet<String> = leases(&daemon, &jobs).into_values().collect();
    assert_eq!(leases.len(), jobs.len(), "a lease for each job");
}

/// The time limit of each job, and what one of them takes.
const LIMIT_SEC: u32 = 2;
const EACH: Duration = Duration::from_millis(60);
const BATCH: u32 = 50;

/// Jobs failed with "ran longer than 2 s" that had waited in a batch and never begun.
#[test]
fn jobs_of_a_batch_that_takes_longer_than_one_of_them_may_do_not_fail() {
    let _watchdog = watch();
    let daemon = Daemon::always();
    let client = Client::builder(&daemon.url).token(daemon.token());
    let client = client.build().expect("a client");
    let submit = |waits: Duration, count: u32| -> Vec<String> {
        let millis = u64::try_from(waits.as_millis()).expect("a short time");
        let mut job = SubmitRequest::new("photos", "index", 1);
        job.payload = Some(Json::of(&millis).expect("JSON"));
        job.max_runtime_sec = Some(LIMIT_SEC.into());
        let jobs = vec![job; count as usize];
        let request = SubmitManyRequest { jobs };
        let answer = client.submit_many(request).expect("they are taken");
        let ids = answer.jobs.into_iter().map(|each| match each {
            jobtree_protocol::Each::Done(submitted) => submitted.job_id.to_string(),
            refused => panic!("{refused:?}"),
        });
        ids.collect()
    };
    let ended = |jobs: &[String]| -> Vec<JobState> {
        let mut states = Vec::new();
        until(|| {
            let state = |id: &String| client.job(id.parse().expect("an id")).expect("it").state;
            states = jobs.iter().map(state).collect();
            states.iter().all(|state| state.is_ended())
        });
        states
    };
    let worker = Worker::new(client.clone())
        .addon("photos")
        .batch(BATCH)
        .handle("index", |millis: u64, _| {
            thread::sleep(Duration::from_millis(millis));
            Ok(())
        })
        .start()
        .expect("a worker");
    // Batches grow while jobs are short. On a machine that is busy, they may do so late.
    loop {
        let short = submit(Duration::ZERO, 4 * BATCH);
        ended(&short);
        let long = submit(EACH, BATCH);
        for (id, state) in long.iter().zip(ended(&long)) {
            assert_eq!(state, JobState::Done, "{}", daemon.job(id));
        }
        let mut sizes = BTreeMap::<String, u32>::new();
        for lease in leases(&daemon, &long).into_values() {
            *sizes.entry(lease).or_default() += 1;
        }
        let largest = sizes.values().max().copied().unwrap_or_default();
        if EACH * largest > Duration::from_secs(LIMIT_SEC.into()) {
            break;
        }
    }
    drop(worker);
}
