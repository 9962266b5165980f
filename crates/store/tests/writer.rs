//! The thread that writes: groups share a sync, failures hit who they must, and nobody waits for ever. And how a file is
//! opened, or refused.

mod support;
#[path = "../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use jobtree_protocol::{CompleteRequest, EventKind, JobState, LeaseId};
use jobtree_store::{
    Answer, Listening, OpenError, SqliteOptions, Stamp, Store, StoreError, Submission,
};
use jobtree_store_faults::{Fault, Machine};
use support::{Folder, claim, stamp, submission};
use watchdog::Watchdog;

/// A store whose writer stands still after its first commit, until it is let go. Then the queue is filled, and
/// whatever waits is one group.
struct Held {
    machine: Machine,
    store: Store,
    first: Answer<jobtree_protocol::SubmitAnswer>,
    go: Sender<()>,
    _listening: Listening,
}

fn held(change: impl Fn(SqliteOptions) -> SqliteOptions) -> Held {
    let machine = Machine::new();
    let options = change(SqliteOptions::new("jobs.db").vfs(machine.vfs_name()));
    let store = Store::open(&options).expect("a new file");
    let (reached, standing) = channel();
    let (go, gone): (Sender<()>, Receiver<()>) = channel();
    let gate = Mutex::new(Some((reached, gone)));
    let listening = store.listen(Arc::new(move |_| {
        let first = gate.lock().expect("nobody panics").take();
        if let Some((reached, gone)) = first {
            let _ = reached.send(());
            let _ = gone.recv();
        }
    }));
    let first = store.submit(stamp(), submission());
    standing
        .recv()
        .expect("the writer comes to its first commit");
    Held {
        machine,
        store,
        first,
        go,
        _listening: listening,
    }
}

fn submit(store: &Store) -> (Submission, Answer<jobtree_protocol::SubmitAnswer>) {
    let submission = submission();
    (submission.clone(), store.submit(stamp(), submission))
}

#[test]
fn calls_that_wait_share_one_sync() {
    let _watchdog = Watchdog::watching("group commit");
    let held = held(|options| options);
    let waiting: Vec<_> = (0..300).map(|_| submit(&held.store)).collect();
    let before = held.machine.syncs();
    held.go.send(()).expect("it stands still");
    held.first.wait().expect("taken");
    for (submission, answer) in waiting {
        assert_eq!(answer.wait().expect("taken").job_id, submission.id);
    }
    assert_eq!(
        held.machine.syncs() - before,
        1,
        "three hundred calls, one sync"
    );
}

#[test]
fn the_writer_is_counted() {
    let _watchdog = Watchdog::watching("numbers");
    let held = held(|options| options);
    let waiting: Vec<_> = (0..40).map(|_| submit(&held.store)).collect();
    assert_eq!(held.store.numbers().waiting, 40);
    held.go.send(()).expect("it stands still");
    held.first.wait().expect("taken");
    let job = waiting.into_iter().map(|(_, answer)| answer.wait()).last();
    let job = job.expect("some").expect("taken").job_id;
    let foreign = CompleteRequest::done(LeaseId::generate(), None);
    let refused = held.store.complete(stamp(), job, foreign).wait();
    assert!(refused.is_err());
    let numbers = held.store.numbers();
    assert_eq!((numbers.operations, numbers.commits), (42, 2));
    assert_eq!((numbers.failed_commits, numbers.waiting), (0, 0));
    let sizes = &numbers.batch_sizes;
    assert_eq!((sizes.count(), sizes.sum), (2, 41), "one alone, then forty");
    let bounds: Vec<_> = [0.5, 1.0].map(|part| sizes.quantile(part)).to_vec();
    assert_eq!(bounds, [Some(1), Some(64)]);
    assert_eq!(numbers.commit_micros.count(), 2);
    assert!(numbers.commit_micros.sum > 0);
    held.machine.inject(Fault::NoSpace, 0, 1);
    let failed = submit(&held.store).1.wait();
    assert_eq!(failed, Err(StoreError::NoSpace));
    assert_eq!(held.store.numbers().failed_commits, 1);
    let memory = Store::in_memory();
    memory.submit(stamp(), submission()).wait().expect("taken");
    let numbers = memory.numbers();
    assert_eq!((numbers.operations, numbers.commits), (1, 1));
}

#[test]
fn one_that_fails_does_not_hurt_the_others() {
    let _watchdog = Watchdog::watching("a failure in a group");
    let held = held(|options| options);
    let (good, good_answer) = submit(&held.store);
    let foreign = CompleteRequest::done(LeaseId::generate(), None);
    let refused = held.store.complete(stamp(), good.id, foreign);
    // The same id twice: the database refuses the second in the middle of its writes.
    let twice = held.store.submit(stamp(), good.clone());
    // The first of these is fine, and goes with the second.
    let ghost = submission();
    let both = held
        .store
        .submit_many(stamp(), vec![ghost.clone(), good.clone()]);
    let (last, last_answer) = submit(&held.store);
    let claimed = held
        .store
        .claim(stamp(), vec![good.id, last.id], claim(LeaseId::generate()));
    held.go.send(()).expect("it stands still");
    assert_eq!(good_answer.wait().expect("taken").job_id, good.id);
    assert!(matches!(refused.wait(), Err(StoreError::Refused(_))));
    assert!(matches!(twice.wait(), Err(StoreError::Database { .. })));
    assert!(matches!(both.wait(), Err(StoreError::Database { .. })));
    assert!(last_answer.wait().is_ok());
    let haunted = held
        .store
        .claim(stamp(), vec![ghost.id], claim(LeaseId::generate()))
        .wait();
    assert!(
        matches!(haunted, Err(StoreError::Refused(_))),
        "the writer remembers nothing that was undone: {haunted:?}"
    );
    assert_eq!(
        claimed.wait().expect("both are there").jobs.len(),
        2,
        "a group sees its own writes"
    );
    let events = held.store.events_of(good.id).wait().expect("a trail");
    let kinds: Vec<EventKind> = events.iter().map(|event| event.event.kind).collect();
    let expected = [
        EventKind::Submitted,
        EventKind::Admitted,
        EventKind::Running,
    ];
    assert_eq!(kinds, expected, "what was undone left no event");
    let last = held.store.job(last.id).wait().expect("it is there").job;
    assert_eq!(
        last.stage(),
        jobtree_queue::Stage::Held,
        "its turn has not come"
    );
}

/// An id that is in the file already, of a job that waits or has ended, and that the writer does not remember.
#[test]
fn an_old_id_is_refused_alone() {
    let _watchdog = Watchdog::watching("an old id");
    let held = held(|options| options.remembered(0));
    held.go.send(()).expect("it stands still");
    held.first.wait().expect("taken");
    let (waits, answer) = submit(&held.store);
    answer.wait().expect("taken");
    let (ended, answer) = submit(&held.store);
    answer.wait().expect("taken");
    let lease = LeaseId::generate();
    let claimed = held.store.claim(stamp(), vec![ended.id], claim(lease));
    claimed.wait().expect("a lease");
    let done = CompleteRequest::done(lease, None);
    let completed = held.store.complete(stamp(), ended.id, done);
    completed.wait().expect("it runs");
    let calls = [&waits, &ended].map(|known| {
        let before = submit(&held.store).1;
        let again = held.store.submit(stamp(), known.clone());
        (before, again, submit(&held.store).1)
    });
    for (before, again, after) in calls {
        before.wait().expect("taken");
        let refused = again.wait();
        assert!(
            matches!(&refused, Err(StoreError::Database { message }) if message.contains("there already")),
            "{refused:?}"
        );
        after.wait().expect("taken");
    }
}

#[test]
fn a_failed_commit_fails_all_of_its_group_and_no_other() {
    let _watchdog = Watchdog::watching("a failed commit");
    let held = held(|options| options);
    let waiting: Vec<_> = (0..50).map(|_| submit(&held.store)).collect();
    held.machine.inject(Fault::NoSpace, 0, 1);
    held.go.send(()).expect("it stands still");
    let first = held.first.wait().expect("it was committed before");
    for (submission, answer) in waiting {
        assert_eq!(answer.wait(), Err(StoreError::NoSpace));
        assert_eq!(
            held.store.job(submission.id).wait(),
            Err(StoreError::NoJob(submission.id)),
            "nothing took effect"
        );
    }
    // What the writer remembers of the failed group is forgotten.
    let (after, answer) = submit(&held.store);
    answer.wait().expect("there is room again");
    let jobs: Vec<_> = held.store.queued(None, 100).wait().expect("a page");
    let ids: Vec<_> = jobs.iter().map(|job| job.id).collect();
    assert_eq!(ids, [first.job_id, after.id]);
    let events = held.store.events_after(0, 100).wait().expect("the trail");
    assert_eq!(events.len(), 2);
}

#[test]
fn one_call_too_many_is_refused_at_once() {
    let _watchdog = Watchdog::watching("backpressure");
    let held = held(|options| options.max_waiting(5));
    let waiting: Vec<_> = (0..5).map(|_| submit(&held.store).1).collect();
    let refused = submit(&held.store).1.wait();
    assert_eq!(refused, Err(StoreError::Overloaded { waiting: 5 }));
    assert!(refused.is_err_and(|error| error.is_transient()));
    held.go.send(()).expect("it stands still");
    for answer in waiting {
        answer.wait().expect("taken");
    }
}

#[test]
fn closing_finishes_what_waits() {
    let _watchdog = Watchdog::watching("closing");
    let held = held(|options| options);
    let waiting: Vec<_> = (0..20).map(|_| submit(&held.store).1).collect();
    held.go.send(()).expect("it stands still");
    drop(held.store);
    for answer in waiting {
        answer.wait().expect("it was taken before the store closed");
    }
}

#[test]
fn a_stamp_can_be_awaited_on_any_executor() {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let _watchdog = Watchdog::watching("a future");
    let machine = Machine::new();
    let store = Store::open(&SqliteOptions::new("jobs.db").vfs(machine.vfs_name())).expect("new");
    let stamp: Stamp = stamp();
    let mut future = Box::pin(async {
        let submitted = store.submit(stamp, submission()).await?;
        store.job(submitted.job_id).await
    });
    let waker = std::task::Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    let told = loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(told) => break told,
            std::task::Poll::Pending => std::thread::park(),
        }
    };
    assert_eq!(told.expect("it is there").job.state, JobState::Queued);
}

#[test]
fn a_second_store_on_the_file_is_refused() {
    let folder = Folder::new("lock");
    let options = SqliteOptions::new(folder.file("jobs.db"));
    let store = Store::open(&options).expect("a new file");
    let second = Store::open(&options);
    assert!(matches!(second, Err(OpenError::InUse { .. })), "{second:?}");
    let told = second.map(drop).expect_err("it is in use").to_string();
    assert!(told.contains("in use by another process"), "{told}");
    drop(store);
    Store::open(&options).expect("it is free again");
}

#[cfg(unix)]
#[test]
fn a_store_that_is_open_is_in_use_by_whatever_name() {
    let folder = Folder::new("lock-names");
    let names = ["jobs.db", "symbolic.db", "hard.db"].map(|name| folder.file(name));
    let [own, symbolic, hard] = &names;
    std::os::unix::fs::symlink("jobs.db", symbolic).expect("a link to a file that will be there");
    // The one that makes the file, by whichever name, keeps the others out.
    let store = Store::open(&SqliteOptions::new(symbolic)).expect("a new file");
    std::fs::hard_link(own, hard).expect("a second name");
    for name in &names {
        let second = Store::open(&SqliteOptions::new(name));
        assert!(
            matches!(second, Err(OpenError::InUse { .. })),
            "{name:?}: {second:?}"
        );
    }
    drop(store);
    let store = Store::open(&SqliteOptions::new(own)).expect("it is free again");
    for name in [symbolic, hard] {
        let second = Store::open(&SqliteOptions::new(name));
        assert!(
            matches!(second, Err(OpenError::InUse { .. })),
            "{name:?}: {second:?}"
        );
    }
    drop(store);
    Store::open(&SqliteOptions::new(symbolic)).expect("it is free again");
}

#[test]
fn what_somebody_else_changes_is_noticed_before_anything_is_overwritten() {
    let _watchdog = Watchdog::watching("somebody else");
    let folder = Folder::new("somebody-else");
    let options = SqliteOptions::new(folder.file("jobs.db"));
    let store = Store::open(&options).expect("a new file");
    let job = store.submit(stamp(), submission()).wait().expect("taken");
    let db = rusqlite::Connection::open(folder.file("jobs.db")).expect("the file");
    db.execute("UPDATE scheduler_jobs SET revision = 7", [])
        .expect("a change from outside");
    drop(db);
    let lease = LeaseId::generate();
    let refused = store
        .claim(stamp(), vec![job.job_id], claim(lease))
        .wait()
        .expect_err("what it remembers is old");
    assert!(
        refused.to_string().contains("another program changed"),
        "{refused}"
    );
    drop(store);
    let store = Store::open(&options).expect("the same file");
    let claimed = store.claim(stamp(), vec![job.job_id], claim(lease)).wait();
    assert_eq!(claimed.expect("it waits").jobs[0].revision, 8);
}

#[test]
fn jobs_of_many_kinds_lie_in_rows_of_their_own() {
    let _watchdog = Watchdog::watching("many kinds");
    let folder = Folder::new("many-kinds");
    let options = SqliteOptions::new(folder.file("jobs.db")).remembered(0);
    let store = Store::open(&options).expect("a new file");
    // Runs of like jobs, of lengths for one statement, for several, and for each size of one.
    let kinds = [1, 2, 8, 9, 31, 32, 33, 45, 100];
    let batch: Vec<Submission> = kinds
        .iter()
        .flat_map(|count| (0..*count).map(move |_| count))
        .map(|count| {
            let mut submission = submission();
            submission.intent.addon_id = format!("addon{count}").parse().expect("a name");
            submission
        })
        .collect();
    store
        .submit_many(stamp(), batch.clone())
        .wait()
        .expect("taken");
    let (mut claims, mut done, mut left) = (Vec::new(), Vec::new(), batch.as_slice());
    for count in kinds {
        let (alike, others) = left.split_at(count);
        left = others;
        let lease = LeaseId::generate();
        let ids = alike.iter().map(|submission| submission.id).collect();
        claims.push(store.claim(stamp(), ids, claim(lease)));
        let request = CompleteRequest::done(lease, None);
        let second = alike.iter().step_by(2);
        done.extend(second.map(|submission| (submission.id, request.clone())));
    }
    for claim in claims {
        claim.wait().expect("they wait");
    }
    let ended: Vec<_> = done.iter().map(|(id, _)| *id).collect();
    store.complete_many(stamp(), done).wait().expect("they run");
    for (number, submission) in batch.iter().enumerate() {
        let told = store.job(submission.id).wait().expect("it is there");
        let ends = ended.contains(&submission.id);
        let is_so = (told.job.state == JobState::Done, told.job.is_held());
        assert_eq!(is_so, (ends, !ends), "{number}");
        assert_eq!(told.job.intent.addon_id, submission.intent.addon_id);
    }
}

#[test]
fn newer_and_foreign_files_are_refused_untouched() {
    let folder = Folder::new("refused");
    let path = folder.file("jobs.db");
    drop(Store::open(&SqliteOptions::new(&path)).expect("a new file"));
    let db = rusqlite::Connection::open(&path).expect("the file");
    db.pragma_update(None, "user_version", 99)
        .expect("a newer version");
    drop(db);
    let newer = Store::open(&SqliteOptions::new(&path));
    assert!(
        matches!(newer, Err(OpenError::Newer { found: 99, .. })),
        "{newer:?}"
    );

    let foreign = folder.file("photos.db");
    let db = rusqlite::Connection::open(&foreign).expect("a file");
    db.execute_batch("CREATE TABLE photos (id)")
        .expect("somebody's table");
    drop(db);
    let before = std::fs::read(&foreign).expect("the file");
    let refused = Store::open(&SqliteOptions::new(&foreign));
    assert!(
        matches!(refused, Err(OpenError::Foreign { .. })),
        "{refused:?}"
    );
    assert!(
        std::fs::read(&foreign).expect("the file") == before,
        "it was not touched"
    );
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("mode");
    let store = Store::open(&SqliteOptions::new(folder.file("jobs.db"))).expect("a new file");
    store.submit(stamp(), submission()).wait().expect("taken");
    for entry in std::fs::read_dir(folder.path()).expect("the folder") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("its rights").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?}", entry.path());
    }
}

#[test]
fn what_was_written_is_there_after_opening_again() {
    let folder = Folder::new("again");
    let options = SqliteOptions::new(folder.file("jobs.db"));
    let store = Store::open(&options).expect("a new file");
    let lease = LeaseId::generate();
    let jobs: Vec<_> = (0..3)
        .map(|_| {
            store
                .submit(stamp(), submission())
                .wait()
                .expect("taken")
                .job_id
        })
        .collect();
    store
        .claim(stamp(), jobs[..2].to_vec(), claim(lease))
        .wait()
        .expect("a lease");
    let before = (
        store.live_leases().wait(),
        store.queued(None, 10).wait(),
        store.events_after(0, 99).wait(),
    );
    drop(store);
    let store = Store::open(&options).expect("the file");
    let after = (
        store.live_leases().wait(),
        store.queued(None, 10).wait(),
        store.events_after(0, 99).wait(),
    );
    assert_eq!(before, after);
    store
        .complete(stamp(), jobs[0], CompleteRequest::done(lease, None))
        .wait()
        .expect("the lease holds");
}
