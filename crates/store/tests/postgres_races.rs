//! Two stores on one database stand for two nodes: the same call at both at the same time takes effect once, the loser of
//! a race is answered with the winner's answer, and no caller pays for the collision of another one.
#![cfg(feature = "postgres")]

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

use jobtree_protocol::{
    CancelRequest, CompleteRequest, EventKind, JobId, JobState, LeaseId, Limits, ReleaseRequest,
    RevokeRequest, SubmitAnswer, SubmitRequest,
};
use jobtree_store::{Answer, PostgresOptions, Store, StoreError, Submission};
use support::postgres::Server;
use support::{claim, stamp, submission};
use watchdog::Watchdog;

fn two_nodes(server: &Server) -> [Store; 2] {
    let place = server.new_place();
    [(), ()]
        .map(|()| Store::connect(&PostgresOptions::new(&place)).expect("the server accepts a node"))
}

fn request() -> SubmitRequest {
    SubmitRequest::new("visuals", "indexing", 3)
}

fn submission_of(request: SubmitRequest) -> Submission {
    Submission::new(request.validate(&Limits::default()).expect("valid"))
}

/// Calls both nodes at the same time.
fn at_both<T: Send>(nodes: &[Store; 2], call: impl Fn(&Store, usize) -> T + Sync) -> [T; 2] {
    let start = Barrier::new(2);
    let run = |node: usize| {
        start.wait();
        call(&nodes[node], node)
    };
    std::thread::scope(|scope| {
        let second = scope.spawn(|| run(1));
        let first = run(0);
        [first, second.join().expect("the call does not panic")]
    })
}

fn deadlocks(server: &Server) -> String {
    server.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
}

/// One of the two answers is the job's, the other one says so.
fn assert_one_job(answers: &[SubmitAnswer; 2]) {
    assert_eq!(answers[0].job_id, answers[1].job_id);
    assert!(
        answers[0].duplicate != answers[1].duplicate,
        "{answers:?}: one of the two made the job"
    );
}

#[test]
fn the_same_idempotency_key_at_both_nodes_makes_one_job() {
    let _watchdog = Watchdog::watching("an idempotency key at two nodes");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for round in 0..100 {
        let answers = at_both(&nodes, |node, _| {
            let request = SubmitRequest {
                idempotency_key: Some(format!("key {round}")),
                ..request()
            };
            let answer = node.submit(stamp(), submission_of(request)).wait();
            answer.expect("the loser reads the winner's answer")
        });
        assert_one_job(&answers);
    }
}

/// More names than are locked one by one: all names are one lock then.
#[test]
fn more_than_512_names_in_a_group_are_one_lock() {
    let _watchdog = Watchdog::watching("many names at two nodes");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for round in 0..5 {
        let of = |key: usize| {
            submission_of(SubmitRequest {
                idempotency_key: Some(format!("{round} {key}")),
                ..request()
            })
        };
        let answers = at_both(&nodes, |node, which| {
            // Beside it a call with a name of both, which shares the lock.
            let alone = (which == 1).then(|| node.submit(stamp(), of(7)));
            let all = node.submit_many(stamp(), (0..600).map(of).collect());
            let all = all.wait().expect("all are answered");
            let alone = alone.map(|answer| answer.wait().expect("it is answered"));
            let all: Vec<SubmitAnswer> = all.into_iter().map(|it| it.expect("taken")).collect();
            (all, alone)
        });
        let [(first, _), (second, alone)] = answers;
        let alone = alone.expect("it was called");
        for (place, (one, other)) in first.iter().zip(&second).enumerate() {
            assert_eq!(one.job_id, other.job_id, "name {place} in round {round}");
            let made = [one, other].iter().filter(|it| !it.duplicate).count();
            let made = made + usize::from(place == 7 && !alone.duplicate);
            assert_eq!(made, 1, "name {place} in round {round}");
        }
        assert_eq!(alone.job_id, first[7].job_id);
    }
    assert_eq!(deadlocks(&server), "0");
}

#[test]
fn the_same_unique_key_at_both_nodes_makes_one_job() {
    let _watchdog = Watchdog::watching("a unique key at two nodes");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for round in 0..100 {
        let answers = at_both(&nodes, |node, _| {
            let request = SubmitRequest {
                unique_key: Some(format!("key {round}")),
                ..request()
            };
            let answer = node.submit(stamp(), submission_of(request)).wait();
            answer.expect("the loser reads the winner's answer")
        });
        assert_one_job(&answers);
    }
}

#[test]
fn the_same_id_at_both_nodes_makes_one_job() {
    let _watchdog = Watchdog::watching("a job id at two nodes");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for _ in 0..100 {
        let id = JobId::generate();
        let answers = at_both(&nodes, |node, _| {
            let intent = request().validate(&Limits::default()).expect("valid");
            let answer = node.submit(stamp(), Submission::with_id(id, intent)).wait();
            answer.expect("the loser reads the winner's answer")
        });
        assert_one_job(&answers);
    }
}

/// Keys of two bulk calls meet in opposite orders, and so do those of calls that share their commits.
#[test]
fn a_key_that_collides_fails_neither_its_bulk_call_nor_other_callers() {
    let _watchdog = Watchdog::watching("colliding keys in bulk");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for round in 0..40 {
        at_both(&nodes, |node, which| {
            let mut keys: Vec<usize> = (0..20).collect();
            if which == 1 {
                keys.reverse();
            }
            let of = |key: usize| {
                let request = match key % 2 {
                    0 => SubmitRequest {
                        idempotency_key: Some(format!("{round} {key}")),
                        ..request()
                    },
                    _ => SubmitRequest {
                        unique_key: Some(format!("{round} {key}")),
                        ..request()
                    },
                };
                submission_of(request)
            };
            let alone: Vec<Answer<SubmitAnswer>> = (0..10)
                .map(|_| node.submit(stamp(), submission()))
                .collect();
            let many = node.submit_many(stamp(), keys.into_iter().map(of).collect());
            for answer in many.wait().expect("the call is taken") {
                answer.expect("each is taken, or was");
            }
            for answer in alone {
                assert!(!answer.wait().expect("taken").duplicate);
            }
        });
    }
    let submitted = server.sql("SELECT count(*) FROM place0.scheduler_jobs");
    assert_eq!(submitted, (40 * (20 + 2 * 10)).to_string());
    assert_eq!(deadlocks(&server), "0");
}

#[test]
fn cancels_in_opposite_orders_do_not_lock_each_other_out() {
    let _watchdog = Watchdog::watching("cancels in opposite orders");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for _ in 0..15 {
        let all: Vec<Submission> = (0..40).map(|_| submission()).collect();
        let jobs: Vec<JobId> = all.iter().map(|job| job.id).collect();
        nodes[0]
            .submit_many(stamp(), all)
            .wait()
            .expect("the call is taken");
        // Some of them run: their cancels want the lease, too.
        nodes[0]
            .claim(stamp(), jobs[..20].to_vec(), claim(LeaseId::generate()))
            .wait()
            .expect("they wait");
        at_both(&nodes, |node, which| {
            let mut jobs = jobs.clone();
            if which == 1 {
                jobs.reverse();
            }
            let calls: Vec<_> = jobs
                .iter()
                .map(|job| node.cancel(stamp(), *job, CancelRequest::default()))
                .collect();
            for call in calls {
                match call.wait() {
                    // One that has ended is refused by the rules.
                    Ok(_) | Err(StoreError::Refused(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
    }
    drop(nodes);
    assert_eq!(deadlocks(&server), "0");
}

/// The same claim in flight at both nodes, for jobs that only one of them may have proposed.
#[test]
fn the_same_claim_at_both_nodes_is_one_grant() {
    let _watchdog = Watchdog::watching("a claim at two nodes");
    let server = Server::start();
    let nodes = two_nodes(&server);
    for round in 0..50 {
        let all: Vec<Submission> = (0..4).map(|_| submission()).collect();
        let jobs: Vec<JobId> = all.iter().map(|job| job.id).collect();
        nodes[0]
            .submit_many(stamp(), all)
            .wait()
            .expect("the call is taken");
        let lease = LeaseId::generate();
        let claimed = at_both(&nodes, |node, which| {
            let mine = match round % 2 {
                0 => jobs[which * 2..which * 2 + 2].to_vec(),
                _ => jobs.clone(),
            };
            let claimed = node.claim(stamp(), mine, claim(lease)).wait();
            claimed.expect("the loser reads the winner's grant")
        });
        let ids = |of: usize| -> Vec<JobId> { claimed[of].jobs.iter().map(|job| job.id).collect() };
        assert_eq!(ids(0), ids(1));
        assert_eq!(claimed[0].lease, claimed[1].lease);
        let running: Vec<JobId> = jobs
            .iter()
            .copied()
            .filter(|job| {
                let job = nodes[0].job(*job).wait().expect("it exists").job;
                job.lease_id == Some(lease)
            })
            .collect();
        assert_eq!(running, ids(0), "no other job has the lease");
        for job in running {
            let done = CompleteRequest::done(lease, None);
            let answer = nodes[1].complete(stamp(), job, done).wait();
            assert_eq!(answer.expect("it runs").state, JobState::Done);
        }
    }
    let granted = nodes[0].events_after(0, 100_000).wait().expect("events");
    let granted = granted
        .iter()
        .filter(|recorded| recorded.event.kind == EventKind::LeaseGranted);
    let mut leases: Vec<_> = granted.map(|recorded| recorded.event.lease_id).collect();
    let count = leases.len();
    leases.sort();
    leases.dedup();
    assert_eq!(leases.len(), count, "one grant a lease");
}

/// Two nodes write at the same time, some of their commands without any event; a third one follows the trail. Blocks of
/// places are committed in another order than they were drawn in, and the follower tells each event once, in order.
#[test]
fn a_reader_that_follows_two_writers_misses_no_event() {
    let _watchdog = Watchdog::watching("a reader of two writers");
    let server = Server::start();
    let place = server.new_place();
    let connect = || Store::connect(&PostgresOptions::new(&place)).expect("a node");
    let (nodes, reader) = ([connect(), connect()], connect());
    let writing = AtomicUsize::new(4);
    let mut followed: Vec<(u64, Option<JobId>)> = Vec::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (node, writing) = (&nodes[thread % 2], &writing);
            scope.spawn(move || {
                for round in 0..150 {
                    let job = node.submit(stamp(), submission()).wait().expect("taken");
                    if round % 3 == 0 {
                        // Refused, after places were drawn for its event.
                        let foreign = CompleteRequest::done(LeaseId::generate(), None);
                        assert!(node.complete(stamp(), job.job_id, foreign).wait().is_err());
                    }
                }
                writing.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let is_over = writing.load(Ordering::Acquire) == 0;
            let after = followed.last().map_or(0, |(cursor, _)| *cursor);
            let page = reader.events_after(after, 50).wait().expect("a page");
            followed.extend(page.iter().map(|it| (it.cursor, it.event.job_id)));
            if is_over && page.is_empty() {
                break;
            }
        }
    });
    assert!(followed.is_sorted_by(|a, b| a.0 < b.0));
    let all = reader
        .read(|tables| tables.shown_events_after(0, 10_000))
        .wait();
    let all = all.expect("the trail");
    let all: Vec<_> = all.iter().map(|it| (it.cursor, it.event.job_id)).collect();
    assert_eq!(all.len(), 600);
    assert_eq!(followed, all);
    let last = reader.read(|tables| tables.last_event()).wait();
    assert_eq!(last, Ok(all[all.len() - 1].0));
}

/// Leaves a gap: a block of places that no transaction will write.
fn leave_a_gap(server: &Server) {
    server.sql("SELECT nextval('scheduler_event_blocks')");
}

/// Returns the jobs of all events that a reader is told, once the event of this job is among them.
fn read_until(reader: &Store, last: JobId) -> Vec<JobId> {
    // Each reading waits some milliseconds for what is not final.
    for _ in 0..200 {
        let events = reader.events_after(0, 1000).wait().expect("a page");
        let jobs: Vec<JobId> = events.iter().filter_map(|it| it.event.job_id).collect();
        if jobs.contains(&last) {
            return jobs;
        }
    }
    panic!("the event of the last job is not told: a transaction of another program holds it up");
}

/// Programs hold transactions open for minutes, in which they submitted jobs or wrote tables of their own.
#[test]
fn transactions_of_other_programs_hold_up_no_reader_of_events() {
    let _watchdog = Watchdog::watching("a reader beside other programs");
    let server = Server::start();
    let connect = || Store::connect(&PostgresOptions::new(server.place("public"))).expect("a node");
    let (node, reader) = (connect(), connect());
    server.sql("CREATE TABLE orders (item TEXT)");
    let (mut submitting, mut ordering) = (server.session(), server.session());
    submitting.sql(
        "BEGIN; SELECT jobtree_submit('{\"addon_id\": \"shop\", \"job_type\": \"invoice\", \"cost_units\": 5}')",
    );
    ordering.sql("BEGIN; INSERT INTO orders VALUES ('a book')");
    let first = node.submit(stamp(), submission()).wait().expect("taken");
    leave_a_gap(&server);
    let second = node.submit(stamp(), submission()).wait().expect("taken");
    let told = read_until(&reader, second.job_id);
    assert_eq!(told, [first.job_id, second.job_id]);
    let last = reader.read(|tables| tables.last_event()).wait();
    let shown = reader
        .read(|tables| tables.shown_events_after(0, 10))
        .wait()
        .expect("the trail");
    assert_eq!(last, Ok(shown[1].cursor));
    // They were open all the time.
    ordering.sql("COMMIT");
    submitting.sql("COMMIT");
    assert_eq!(server.sql("SELECT count(*) FROM orders"), "1");
}

/// A transaction that has drawn places and not ended holds up readers, whatever else it waits for: its events come first.
#[test]
fn an_event_is_not_told_before_one_that_may_still_be_written() {
    let _watchdog = Watchdog::watching("a reader behind a slow writer");
    let server = Server::start();
    let connect = || Store::connect(&PostgresOptions::new(server.place("public"))).expect("a node");
    let (node, reader) = (connect(), connect());
    let first = node.submit(stamp(), submission()).wait().expect("taken");
    assert_eq!(read_until(&reader, first.job_id), [first.job_id]);
    leave_a_gap(&server);
    let (mut slow, mut undone) = (server.session(), server.session());
    let block = slow.sql("BEGIN; SELECT nextval('scheduler_event_blocks')");
    undone.sql("BEGIN; SELECT nextval('scheduler_event_blocks')");
    let last = node.submit(stamp(), submission()).wait().expect("taken");
    let jobs_told = || -> Vec<JobId> {
        let events = reader.events_after(0, 1000).wait().expect("a page");
        events.iter().filter_map(|it| it.event.job_id).collect()
    };
    assert_eq!(jobs_told(), [first.job_id]);
    // A second reader, which has read nothing yet.
    let end = node.read(|tables| tables.last_event()).wait();
    assert!(end.expect("a place") < block.parse::<u64>().expect("a number") * 64);
    undone.sql("ROLLBACK");
    assert_eq!(jobs_told(), [first.job_id]);
    // Rows of older versions are one event, which is a copy here.
    let job = JobId::generate();
    let event = server.sql("SELECT 1 FROM scheduler_job_events") == "1\n1";
    assert!(event, "the events of both jobs are there");
    slow.sql(&format!(
        "INSERT INTO scheduler_job_events (id, at, record) SELECT {block} * 64, at, \
         '{{\"at\": \"2026-01-01T00:00:00Z\", \"event\": \"SUBMITTED\", \"job_id\": \"{}\"}}' \
         FROM scheduler_job_events LIMIT 1; COMMIT",
        job.0
    ));
    assert_eq!(
        read_until(&reader, last.job_id),
        [first.job_id, job, last.job_id]
    );
}

/// A small generator: the test must not depend on a crate for it.
fn next(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Whatever collides at two nodes is answered by the rules, and never by the database.
#[test]
fn colliding_calls_of_all_kinds_are_answered_by_the_rules() {
    let _watchdog = Watchdog::watching("colliding calls");
    let server = Server::start();
    let nodes = two_nodes(&server);
    let (mut jobs, mut before) = (Vec::new(), None);
    for number in 0..60 {
        let mut request = SubmitRequest {
            concurrency_key: (number % 3 == 0).then(|| format!("printer {}", number % 4)),
            concurrency_limit: (number % 3 == 0).then_some(2),
            max_attempts: Some(100),
            ..request()
        };
        // Some wait for the one before.
        request
            .depends_on
            .extend(before.filter(|_| number % 5 == 0));
        let answer = nodes[0].submit(stamp(), submission_of(request)).wait();
        let id = answer.expect("taken").job_id;
        before = Some(id);
        jobs.push(id);
    }
    let leases: Vec<LeaseId> = (0..12).map(|_| LeaseId::generate()).collect();
    let took_effect = AtomicUsize::new(0);
    let check = |outcome: Result<(), StoreError>| match outcome {
        Ok(()) => {
            took_effect.fetch_add(1, Ordering::Relaxed);
        }
        Err(StoreError::Refused(_) | StoreError::NoLease(_)) => {}
        Err(error) => panic!("{error}"),
    };
    let caller = |node: &Store, seed: u64| {
        let mut state = seed;
        let mut pending: Vec<Answer<()>> = Vec::new();
        for _ in 0..150 {
            let job = jobs[next(&mut state) as usize % jobs.len()];
            let other = jobs[next(&mut state) as usize % jobs.len()];
            let lease = leases[next(&mut state) as usize % leases.len()];
            match next(&mut state) % 8 {
                0..=2 => check(
                    node.claim(stamp(), vec![job, other], claim(lease))
                        .wait()
                        .map(drop),
                ),
                3 => check(
                    node.complete(stamp(), job, CompleteRequest::failed(lease, "broken"))
                        .wait()
                        .map(drop),
                ),
                4 => {
                    let requests =
                        [job, other].map(|job| (job, CompleteRequest::done(lease, None)));
                    check(
                        node.complete_many(stamp(), requests.to_vec())
                            .wait()
                            .map(drop),
                    );
                }
                5 => pending.push(node.release(
                    stamp(),
                    lease,
                    ReleaseRequest {
                        return_jobs: true,
                        ..ReleaseRequest::default()
                    },
                )),
                6 => pending.push(node.revoke(stamp(), lease, RevokeRequest::default())),
                _ => {
                    check(
                        node.cancel(stamp(), job, CancelRequest::default())
                            .wait()
                            .map(drop),
                    );
                    check(node.redrive(stamp(), job, None).wait().map(drop));
                }
            }
        }
        for answer in pending {
            check(answer.wait());
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..8_u64 {
            let node = &nodes[seed as usize % 2];
            scope.spawn(move || caller(node, seed));
        }
    });
    assert!(took_effect.into_inner() > 100);
    // What the trail tells is what the records say.
    let report = jobtree_store::audit(&nodes[0], |_| {}).expect("the store can be read");
    assert!(report.is_clean(), "{report:?}");
    drop(nodes);
    assert_eq!(deadlocks(&server), "0");
}
