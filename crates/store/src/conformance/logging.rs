//! Logs: appended under a lease, once whatever is repeated, up to a limit, read page by page, gone with their jobs.

use jobtree_protocol::{
    CompleteRequest, EventKind, JobId, LeaseId, LogAppend, LogAppendAnswer, LogPage,
};
use jobtree_queue::transitions::{Rules, TransitionError};

use super::Case;
use super::keeping::{nothing, prune_all};
use super::world::{World, refused};
use crate::error::StoreError;
use crate::execute::Stamp;
use crate::tables::Retention;

pub(super) const CASES: &[Case] = &[
    ("a log is appended and read", a_log_is_appended_and_read),
    ("repeated text is kept once", repeated_text_is_kept_once),
    ("logs are fenced by the lease", logs_are_fenced_by_the_lease),
    ("a full log says so", a_full_log_says_so),
    (
        "each run has room for its log",
        each_run_has_room_for_its_log,
    ),
    ("a long log is read in pages", a_long_log_is_read_in_pages),
    ("a log goes with its job", a_log_goes_with_its_job),
];

fn append(lease_id: LeaseId, offset: u64, text: &str) -> LogAppend {
    LogAppend {
        lease_id,
        offset,
        text: text.to_owned(),
    }
}

fn send(
    world: &World,
    job: JobId,
    append: LogAppend,
) -> std::result::Result<LogAppendAnswer, StoreError> {
    world.store.append_log(world.stamp(), job, append).wait()
}

fn page(world: &World, job: JobId, after: u64) -> LogPage {
    let page = world.store.log(job, after, usize::MAX).wait();
    page.expect("the job is there")
}

fn a_log_is_appended_and_read(world: &World) {
    let job = world.plain();
    assert_eq!(
        page(world, job, 0),
        LogPage {
            job_id: job,
            text: String::new(),
            next: 0,
            ended: false,
            left_out: 0,
            times: Vec::new(),
        }
    );
    let lease = world.claim(&[job]).id;
    // A program may print anything, zeros included.
    let answer = send(world, job, append(lease, 0, "eins\0\n")).expect("it holds");
    assert_eq!((answer.next_offset, answer.full), (6, false));
    send(world, job, append(lease, 6, "zwei ½\n")).expect("it holds");
    let before = world.record(job);
    let all = page(world, job, 0);
    assert_eq!((all.text.as_str(), all.next), ("eins\0\nzwei ½\n", 14));
    assert!(!all.ended);
    // Each piece has the time at which it was kept, and so has a part of one.
    let places =
        |page: &LogPage| -> Vec<u64> { page.times.iter().map(|time| time.place).collect() };
    assert_eq!(places(&all), [0, 6]);
    assert!(all.times[0].at < all.times[1].at);
    assert_eq!(places(&page(world, job, 8)), [8]);
    assert_eq!(page(world, job, 6).text, "zwei ½\n");
    assert_eq!(page(world, job, 14).text, "");
    assert_eq!(page(world, job, 99).next, 14, "there is no more");
    // Listeners hear of it; the trail and the record do not.
    let told = world.told();
    let events = told.iter().flat_map(|written| &written.changes.events);
    let logged = events.filter(|event| event.kind == EventKind::Log && event.job_id == Some(job));
    assert_eq!(logged.count(), 2);
    assert_eq!(before.revision, 2, "submitted and claimed");
    // A second run goes on behind the first, with offsets of its own.
    let failed = world.store.revoke(world.stamp(), lease, Default::default());
    failed.wait().expect("revoked");
    let lease = world.claim(&[job]).id;
    send(world, job, append(lease, 0, "again")).expect("it holds");
    assert_eq!(page(world, job, 14).text, "again");
    world
        .complete(job, CompleteRequest::done(lease, None))
        .expect("it runs");
    assert!(page(world, job, 0).ended && page(world, job, 19).ended);
    let part = world.store.log(job, 0, 10).wait().expect("a part");
    assert_eq!((part.text.as_str(), part.ended), ("eins\0\nzwei", false));
    let nobody = world.job_id();
    assert_eq!(
        world.store.log(nobody, 0, 10).wait(),
        Err(StoreError::NoJob(nobody))
    );
}

fn repeated_text_is_kept_once(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    send(world, job, append(lease, 0, "abc")).expect("it holds");
    let again = send(world, job, append(lease, 0, "abc")).expect("a repetition");
    assert_eq!(again.next_offset, 3);
    let longer = send(world, job, append(lease, 1, "bcdef")).expect("half of it is new");
    assert_eq!(longer.next_offset, 6);
    send(world, job, append(lease, 10, "gap")).expect("it holds");
    let all = page(world, job, 0);
    assert_eq!((all.text.as_str(), all.left_out), ("abcdefgap", 4));
    let told = world.told();
    let events = told.iter().flat_map(|written| &written.changes.events);
    let logged = events.filter(|event| event.kind == EventKind::Log);
    assert_eq!(logged.count(), 3, "a repetition is no news");
}

fn logs_are_fenced_by_the_lease(world: &World) {
    let (job, other) = (world.plain(), world.plain());
    let lease = world.claim(&[job]).id;
    let strange = refused(send(world, other, append(lease, 0, "x")));
    assert!(matches!(strange, TransitionError::NotInLease { .. }));
    let unknown = world.lease_id();
    assert_eq!(
        send(world, job, append(unknown, 0, "x")),
        Err(StoreError::NoLease(unknown))
    );
    let revoke = world.store.revoke(world.stamp(), lease, Default::default());
    revoke.wait().expect("revoked");
    let ended = refused(send(world, job, append(lease, 0, "x")));
    assert!(matches!(ended, TransitionError::LeaseEnded { .. }));
    assert_eq!(page(world, job, 0).text, "");
}

/// Logs have ten bytes a run.
fn small(world: &World) -> Stamp {
    Stamp {
        rules: std::sync::Arc::new(Rules {
            log_bytes: 10,
            ..Rules::default()
        }),
        ..world.stamp()
    }
}

/// A run that fills its log leaves the next one its room, until all that are counted have used theirs.
fn each_run_has_room_for_its_log(world: &World) {
    let job = world.plain();
    let rules = Rules::default();
    let counted = world.record(job).intent.max_attempts + rules.quarantine_after;
    let mut wanted = String::new();
    for run in 1..=counted + 1 {
        let lease = world.claim(&[job]).id;
        let digit = char::from_digit(run % 10, 10).expect("a digit");
        let text = digit.to_string().repeat(12);
        let append = append(lease, 0, &text);
        let answer = world.store.append_log(small(world), job, append).wait();
        let answer = answer.expect("it holds");
        assert_eq!((answer.next_offset, answer.full), (12, true), "run {run}");
        if run <= counted {
            wanted.push_str(&text[..10]);
        }
        // Given back, it counts as no attempt: only the limit of all runs ends this.
        let back = world.store.revoke(world.stamp(), lease, Default::default());
        back.wait().expect("revoked");
    }
    let all = page(world, job, 0);
    assert_eq!(all.text, wanted);
    assert_eq!(all.left_out, u64::from(counted) * 2 + 12);
}

fn a_full_log_says_so(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    let send = |offset, text: &str| {
        let answer = world
            .store
            .append_log(small(world), job, append(lease, offset, text));
        answer.wait().expect("it holds")
    };
    assert!(!send(0, "12345678").full);
    let full = send(8, "9é and more");
    assert!(full.full);
    assert_eq!(full.next_offset, 20);
    assert!(send(20, "x").full);
    let all = page(world, job, 0);
    assert_eq!((all.text.as_str(), all.left_out), ("123456789", 12));
}

fn a_long_log_is_read_in_pages(world: &World) {
    let job = world.plain();
    let lease = world.claim(&[job]).id;
    let line = "0123456789 ½ ü 𝄞 abcdefgh\n";
    let text = line.repeat(300_000 / line.len());
    let mut offset = 0;
    for part in [&text[..], "short\n", &text[..]] {
        let answer = send(world, job, append(lease, offset, part)).expect("it holds");
        offset = answer.next_offset;
    }
    let wanted = format!("{text}short\n{text}");
    for most in [usize::MAX, 100_001, 70_000] {
        let (mut whole, mut at, mut pages) = (String::new(), 0, 0);
        loop {
            let page = world.store.log(job, at, most).wait().expect("a page");
            assert!(page.text.len() <= most.min(256 << 10));
            if page.text.is_empty() {
                break;
            }
            whole.push_str(&page.text);
            assert_eq!(page.next, whole.len() as u64);
            (at, pages) = (page.next, pages + 1);
        }
        assert!(pages > 2);
        assert!(whole == wanted, "{most} bytes a page");
    }
}

fn a_log_goes_with_its_job(world: &World) {
    let jobs = [world.plain(), world.plain(), world.plain()];
    for job in jobs {
        let lease = world.claim(&[job]).id;
        for offset in 0..20 {
            send(world, job, append(lease, offset, "x")).expect("it holds");
        }
        let done = CompleteRequest::done(lease, None);
        world.complete(job, done).expect("it runs");
        world.advance(100);
    }
    let done = world.record(jobs[1]).ended_at.expect("it ended");
    let retention = Retention {
        done: done + std::time::Duration::from_secs(1),
        ..nothing()
    };
    let first = world.store.prune(world.stamp(), retention, 7).wait();
    let first = first.expect("a step");
    assert!(first.more && first.jobs == 0, "a long log takes several");
    assert_eq!(prune_all(world, retention, 7).jobs, 2);
    assert_eq!(page(world, jobs[2], 0).text, "x".repeat(20));
    let left = world
        .store
        .read(move |tables| Ok((tables.log_end(jobs[0])?, tables.log_chunks(jobs[1], 0, 99)?)));
    assert_eq!(left.wait(), Ok((None, Vec::new())));
    world.pruned.borrow_mut().extend(&jobs[..2]);
}
