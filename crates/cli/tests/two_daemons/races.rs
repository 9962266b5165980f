//! The same call at both daemons at the same time, and a daemon that stands still in the middle of one. The calls are made by
//! hand: the client's library repeats what is refused for a moment, and here no call may be.

use std::collections::HashMap;
use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_client::Client;
use jobtree_protocol::{
    ClaimAnswer, ClaimRequest, CompleteRequest, Each, EventKind, HistoryStats, InstanceId, JobId,
    JobState, LeaseId, SubmitManyRequest, SubmitRequest,
};
use jobtree_store::{PostgresOptions, Store};
use serde_json::{Value, json};

use crate::http::{Endpoint, Sent};
use crate::pair::{Pair, client_of};
use crate::support::{ALWAYS, Daemon, Folder, signal, until, watch};
use crate::{ADDON, addon};

const JOBS: &str = "/api/system/scheduler/queue/jobs";
const CLAIM: &str = "/api/system/scheduler/queue/claim";

/// Writes the policy of other tests, with this term of leases, and without the ramp, which lets in one lease a sample.
fn policy(folder: &Folder, term: &str) -> String {
    let text = fs::read_to_string(ALWAYS).expect("a policy");
    let term = format!("lease_ttl = {term:?}");
    let other = text.replace("lease_ttl = \"5s\"", &term);
    assert!(other.contains(&term), "the policy has a term of leases");
    // The calls of these tests race for many leases at once, of which the ramp would let in one a sample.
    folder.write("policy.toml", &(other + "\n[ramp]\nunits_per_sample = 0\n"))
}

fn endpoints(pair: &Pair) -> [Endpoint; 2] {
    pair.daemons.each_ref().map(|daemon| Endpoint {
        address: daemon.url.replace("http://", ""),
        token: daemon.token(),
    })
}

/// Calls a daemon, and returns its answer, which must not be a refusal: of a collision the daemons may not tell.
fn post(at: &Endpoint, path: &str, body: &Value) -> Value {
    let sent = at.send("POST", path, Some(body)).expect("it is sent");
    let (status, answer) = sent.answer().expect("the daemon answers");
    assert_eq!(status / 100, 2, "{path}: {status} {answer}");
    answer
}

/// Calls both daemons at the same time.
fn at_both<T: Send>(at: &[Endpoint; 2], call: impl Fn(&Endpoint, usize) -> T + Sync) -> [T; 2] {
    let start = Barrier::new(2);
    let run = |node: usize| {
        start.wait();
        call(&at[node], node)
    };
    thread::scope(|scope| {
        let second = scope.spawn(|| run(1));
        let first = run(0);
        [first, second.join().expect("the call is answered")]
    })
}

fn request() -> SubmitRequest {
    SubmitRequest::new(ADDON, "index", 1)
}

fn submit_many(client: &Client, count: usize) -> Vec<JobId> {
    let jobs = vec![request(); count];
    let answer = client.submit_many(SubmitManyRequest { jobs });
    let answers = answer.expect("they are taken").jobs.into_iter();
    let taken = answers.map(|answer| match answer {
        Each::Done(answer) => answer.job_id,
        Each::Refused { error } => panic!("{error:?}"),
    });
    taken.collect()
}

fn claim(lease: LeaseId, max_jobs: u32) -> Value {
    let request = ClaimRequest {
        lease_id: Some(lease),
        max_jobs,
        wait_sec: 5,
        ..ClaimRequest::one_job(addon(), InstanceId::generate())
    };
    serde_json::to_value(request).expect("JSON")
}

fn leases(answer: &Value) -> Vec<ClaimAnswer> {
    serde_json::from_value(answer["leases"].clone()).expect("leases")
}

fn ids(lease: &ClaimAnswer) -> Vec<JobId> {
    lease.jobs.iter().map(|job| job.job_id).collect()
}

/// The times of the events of a kind, of each lease.
fn times(store: &Store, kind: EventKind) -> HashMap<LeaseId, Vec<Timestamp>> {
    let events = store.events_after(0, 100_000).wait();
    let mut found: HashMap<_, Vec<_>> = HashMap::new();
    for recorded in events.expect("it can be read") {
        let event = recorded.event;
        if let Some(lease) = event.lease_id.filter(|_| event.kind == kind) {
            found.entry(lease).or_default().push(event.at);
        }
    }
    found
}

fn one_claim_is_one_grant(pair: &Pair, at: &[Endpoint; 2]) {
    let [n1, n2] = pair.clients();
    let claims: Vec<LeaseId> = (0..15).map(|_| LeaseId::generate()).collect();
    for lease in claims.iter().copied() {
        submit_many(&n1, 4);
        let body = claim(lease, 2);
        let answers = at_both(at, |node, _| post(node, CLAIM, &body));
        let granted: Vec<ClaimAnswer> = answers.iter().flat_map(leases).collect();
        let first = granted.first().expect("there are jobs");
        for other in &granted {
            assert_eq!((other.lease_id, ids(other)), (lease, ids(first)));
        }
        for job in ids(first) {
            let done = CompleteRequest::done(lease, None);
            let answer = n2.complete(job, &done).expect("it is this lease's");
            assert_eq!(answer.state, JobState::Done);
        }
        n1.cancel_many(jobtree_protocol::JobQuery::default(), None)
            .expect("the other two are cancelled");
    }
    let store = Store::connect(&PostgresOptions::new(&pair.url)).expect("the database is there");
    let grants = times(&store, EventKind::LeaseGranted);
    for lease in claims {
        assert_eq!(grants[&lease].len(), 1, "the lease is granted once");
    }
}

/// 600 calls, of eight callers.
fn cancels_in_opposite_orders(pair: &Pair, at: &[Endpoint; 2]) {
    let [n1, n2] = pair.clients();
    let jobs = submit_many(&n1, 300);
    thread::scope(|scope| {
        for caller in 0..8 {
            let (node, jobs) = (&at[caller % 2], &jobs);
            scope.spawn(move || {
                let mine = (0..jobs.len()).filter(|place| place % 4 == caller / 2);
                let mut mine: Vec<JobId> = mine.map(|place| jobs[place]).collect();
                if caller % 2 == 1 {
                    mine.reverse();
                }
                for job in mine {
                    let path = format!("{JOBS}/{job}/cancel");
                    let sent = node.send("POST", &path, Some(&json!({})));
                    let answer = sent.and_then(Sent::answer).expect("the daemon answers");
                    // 409: the other one was first.
                    assert!(matches!(answer.0, 200 | 409), "{answer:?}");
                }
            });
        }
    });
    for job in [jobs[0], jobs[150], jobs[299]] {
        assert_eq!(n2.job(job).expect("it exists").state, JobState::Canceled);
    }
}

/// Of two answers to the same submission, one made the job and the other one says so.
fn assert_one_job(answers: [&Value; 2]) {
    let [first, second] = answers;
    assert!(first["job_id"].is_string(), "{first}");
    assert_eq!(first["job_id"], second["job_id"], "{first} {second}");
    let made = answers.iter().filter(|it| it["duplicate"] != true);
    assert_eq!(made.count(), 1, "{first} {second}");
}

fn keys_make_one_job(at: &[Endpoint; 2]) {
    let keyed = |kind: &str, key: String| {
        let mut body = serde_json::to_value(request()).expect("JSON");
        body[kind] = key.into();
        body
    };
    for round in 0..40 {
        let kind = ["idempotency_key", "unique_key"][round % 2];
        let body = keyed(kind, format!("alone {round}"));
        let answers = at_both(at, |node, _| post(node, &format!("{JOBS}/submit"), &body));
        assert_one_job(answers.each_ref());
    }
    for round in 0..10 {
        let all: Vec<Value> = (0..20)
            .map(|key| {
                keyed(
                    ["idempotency_key", "unique_key"][key % 2],
                    format!("{round} {key}"),
                )
            })
            .collect();
        let [first, mut second] = at_both(at, |node, which| {
            let mut jobs = all.clone();
            if which == 1 {
                jobs.reverse();
            }
            let answer = post(
                node,
                &format!("{JOBS}/submit-many"),
                &json!({ "jobs": jobs }),
            );
            answer["jobs"].as_array().expect("an answer each").clone()
        });
        second.reverse();
        assert_eq!((first.len(), second.len()), (20, 20));
        for answers in first.iter().zip(&second) {
            assert_one_job(answers.into());
        }
    }
}

/// No call is refused because the same one is made at the other daemon, and the database never has to end a transaction.
#[test]
fn the_same_calls_at_both_daemons_at_once_take_effect_once() {
    let _watchdog = watch();
    let folder = Folder::new();
    let pair = Pair::with_policy(&policy(&folder, "30s"));
    let at = endpoints(&pair);
    one_claim_is_one_grant(&pair, &at);
    cancels_in_opposite_orders(&pair, &at);
    keys_make_one_job(&at);
    let Pair {
        daemons, database, ..
    } = pair;
    // The database counts what a connection did when the connection ends, if not before.
    drop(daemons);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'";
    assert_eq!(database.sql(deadlocks), "0");
}

/// Claims are on their way when the daemon is stopped for almost as long as a lease lasts. By the time at which the calls came,
/// the leases would be over soon after they are granted.
fn a_lease_lasts_its_term(pair: &Pair, at: &[Endpoint; 2]) {
    let [_, n2] = pair.clients();
    let store = Store::connect(&PostgresOptions::new(&pair.url)).expect("the database is there");
    let term = Duration::from_secs(3);
    let (mut expired, mut rounds) = (0, 0);
    while expired == 0 {
        // A stop may begin before all claims are granted, or behind them; and the database ends a transaction that
        // stands still for three seconds, which on a busy machine may be this one.
        assert!(rounds < 5, "no claim was granted in five rounds");
        rounds += 1;
        submit_many(&n2, 8);
        let sent: Vec<_> = (0..8)
            .map(|_| {
                let lease = LeaseId::generate();
                let body = claim(lease, 1);
                let sent = at[0].send("POST", CLAIM, Some(&body));
                thread::sleep(Duration::from_millis(2));
                (lease, sent.expect("it is sent"))
            })
            .collect();
        signal("STOP", pair.daemons[0].pid());
        thread::sleep(Duration::from_millis(2500));
        signal("CONT", pair.daemons[0].pid());
        for (lease, sent) in sent {
            let (status, answer) = sent.answer().expect("the daemon answers");
            if status == 503 {
                continue;
            }
            assert_eq!(status, 200, "{answer}");
            let Some(granted) = leases(&answer).pop() else {
                continue;
            };
            assert_eq!(Duration::from_secs(granted.ttl_sec.into()), term);
            until(|| times(&store, EventKind::LeaseExpired).contains_key(&lease));
            let began = times(&store, EventKind::LeaseGranted)[&lease][0];
            let lasted = times(&store, EventKind::LeaseExpired)[&lease][0].duration_since(began);
            let lasted = Duration::try_from(lasted).expect("it ends after it begins");
            assert!(lasted >= term, "a lease of {term:?} ended after {lasted:?}");
            expired += 1;
        }
    }
    n2.cancel_many(jobtree_protocol::JobQuery::default(), None)
        .expect("what is left is cancelled");
}

/// Each daemon keeps the history of its own machine, also over a restart: those of the other one are kept beside it.
fn histories_are_kept_beside_each_other(pair: &mut Pair) {
    let ran = [3, 5];
    for (daemon, jobs) in pair.daemons.iter().zip(ran) {
        let client = client_of(daemon);
        for _ in 0..jobs {
            let submitted = client.submit(SubmitRequest::new(ADDON, "history", 1));
            let job = submitted.expect("it is taken").job_id;
            let request = ClaimRequest {
                job_types: vec!["history".parse().expect("a name")],
                wait_sec: 5,
                lease_id: Some(LeaseId::generate()),
                ..ClaimRequest::one_job(addon(), InstanceId::generate())
            };
            let granted = client.claim(&request).expect("the daemon answers");
            let done = CompleteRequest::done(granted[0].lease_id, None);
            client.complete(job, &done).expect("it is this lease's");
        }
    }
    let ended = |daemon: &Daemon| {
        let history = client_of(daemon).history().expect("the daemon answers");
        let of_type = |stats: &&HistoryStats| {
            stats
                .job_type
                .as_ref()
                .is_some_and(|it| it.as_str() == "history")
        };
        history.iter().find(of_type).map_or(0, |stats| stats.ended)
    };
    until(|| pair.daemons.each_ref().map(ended) == ran);
    for daemon in &mut pair.daemons {
        assert_eq!(daemon.ends_and_returns("TERM"), Some(0));
    }
    until(|| pair.daemons.each_ref().map(ended) == ran);
}

#[test]
fn leases_last_their_term_and_histories_are_kept_beside_each_other() {
    let _watchdog = watch();
    let folder = Folder::new();
    let mut pair = Pair::with_policy(&policy(&folder, "3s"));
    let at = endpoints(&pair);
    a_lease_lasts_its_term(&pair, &at);
    histories_are_kept_beside_each_other(&mut pair);
}
