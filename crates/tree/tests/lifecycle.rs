//! The tree by itself, without anything that runs jobs: every call is one step, so every order can be tried.

use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use jobtree_tree::{
    Body, BodyResult, CancelToken, Cause, EventKind, Job, JobError, JobLocal, JobOptions, JobState,
    ParentEnded, Tree,
};

fn child(parent: &Job) -> (Job, Body) {
    parent.attach(JobOptions::new().started()).unwrap()
}

fn failed(message: &'static str) -> BodyResult {
    BodyResult::Failed(message.into())
}

/// Counts how often it was woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Bell {
    fn rings(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_parent_ends_after_its_body_and_its_children_whichever_is_last() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let (_, first) = child(&parent);
    let (_, second) = child(&parent);
    first.end(BodyResult::Value);
    body.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Completing);
    second.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Completed);
    let (parent, body) = child(tree.root());
    child(&parent).1.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Active);
    body.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Completed);
}

#[test]
fn a_child_can_be_attached_while_its_parent_is_completing_and_not_after_the_end() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let (first, first_body) = child(&parent);
    body.end(BodyResult::Value);
    let (_, second_body) = child(&parent);
    first_body.end(BodyResult::Value);
    assert_eq!(
        (first.state(), parent.state()),
        (JobState::Completed, JobState::Completing)
    );
    second_body.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Completed);
    assert_eq!(parent.attach(JobOptions::new()).unwrap_err(), ParentEnded);
}

#[test]
fn a_child_that_fails_while_its_parent_is_completing_fails_it() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let (_, failing) = child(&parent);
    let (other, other_body) = child(&parent);
    body.end(BodyResult::Value);
    failing.end(failed("no"));
    assert_eq!(
        (parent.state(), other.state()),
        (JobState::Cancelling, JobState::Cancelling)
    );
    other_body.end(BodyResult::Cancelled);
    assert_eq!(
        (parent.state(), other.state()),
        (JobState::Failed, JobState::Cancelled)
    );
}

#[test]
fn a_child_of_a_cancelling_parent_is_born_cancelled_and_does_not_start() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    assert!(parent.cancel("enough"));
    let (born, born_body) = parent.attach(JobOptions::new()).unwrap();
    assert!(!born_body.start());
    assert_eq!(born.cancellation().unwrap().origin(), parent.id());
    born_body.end(BodyResult::Cancelled);
    body.end(BodyResult::Value);
    assert_eq!(
        (born.state(), parent.state()),
        (JobState::Cancelled, JobState::Cancelled)
    );
}

#[test]
fn a_supervisor_and_a_contained_child_keep_a_failure_to_the_child() {
    let tree = Tree::new();
    let (supervisor, body) = tree
        .root()
        .attach(JobOptions::new().started().supervisor())
        .unwrap();
    child(&supervisor).1.end(failed("alone"));
    body.end(BodyResult::Value);
    assert_eq!(supervisor.state(), JobState::Completed);
    let (parent, body) = child(tree.root());
    let contained = JobOptions::new().started().contained();
    let (inner, inner_body) = parent.attach(contained).unwrap();
    inner_body.end(failed("told to the caller"));
    body.end(BodyResult::Value);
    assert_eq!(
        (inner.state(), parent.state()),
        (JobState::Failed, JobState::Completed)
    );
}

#[test]
fn a_cancelled_child_leaves_its_parent_alone_and_a_timed_out_one_fails_it() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let (cancelled, cancelled_body) = child(&parent);
    cancelled.cancel("not needed");
    cancelled_body.end(BodyResult::Cancelled);
    assert_eq!(parent.state(), JobState::Active);
    let (late, late_body) = child(&parent);
    late.cancel(Cause::Timeout);
    late_body.end(BodyResult::Cancelled);
    assert_eq!(late.state(), JobState::TimedOut);
    body.end(BodyResult::Value);
    assert_eq!(parent.state(), JobState::Failed);
    assert!(matches!(parent.error(), Some(JobError::TimedOut(_))));
}

#[test]
fn a_timeout_keeps_a_later_failure_as_what_came_after() {
    let tree = Tree::new();
    let (job, body) = child(tree.root());
    job.cancel(Cause::Timeout);
    body.end(failed("broke while ending"));
    let error = job.error().unwrap();
    assert!(error.is_timed_out() && error.more() == 1);
    assert!(
        error.secondary()[0]
            .to_string()
            .contains("broke while ending")
    );
}

#[test]
fn an_error_that_holds_the_jobs_own_cancellation_is_no_failure() {
    let tree = Tree::new();
    let (parent, parent_body) = child(tree.root());
    let (job, body) = child(&parent);
    parent.cancel("stop");
    let own = job.cancellation().unwrap();
    #[derive(Debug)]
    struct Wrapped(Box<dyn Error + Send + Sync>);
    impl std::fmt::Display for Wrapped {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("could not go on")
        }
    }
    impl Error for Wrapped {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&*self.0)
        }
    }
    body.end(BodyResult::Failed(Box::new(Wrapped(Box::new(own)))));
    assert_eq!(job.state(), JobState::Cancelled);
    // The child's cancellation came from the parent, so it is the parent's own.
    let from_child = job.error().unwrap();
    parent_body.end(BodyResult::Failed(Box::new(from_child)));
    assert_eq!(parent.state(), JobState::Cancelled);
}

#[test]
fn an_error_that_holds_another_jobs_cancellation_is_a_failure() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let (other, other_body) = child(&parent);
    other.cancel("just this one");
    other_body.end(BodyResult::Cancelled);
    body.end(BodyResult::Failed(Box::new(other.error().unwrap())));
    assert_eq!(parent.state(), JobState::Failed);
    // Even if the job itself was cancelled, for another reason.
    let (parent, body) = child(tree.root());
    parent.cancel("everything");
    body.end(BodyResult::Failed(Box::new(other.error().unwrap())));
    assert_eq!(parent.state(), JobState::Failed);
}

#[test]
fn a_shielded_child_is_not_reached_from_above_but_can_be_cancelled() {
    let tree = Tree::new();
    let (parent, body) = child(tree.root());
    let shielded = || JobOptions::new().started().shielded();
    let (inner, inner_body) = parent.attach(shielded()).unwrap();
    let (below, below_body) = child(&inner);
    parent.cancel("stop");
    assert!(!inner.is_cancelled() && !below.is_cancelled());
    // Not even born cancelled.
    let (late, late_body) = parent.attach(shielded()).unwrap();
    assert!(!late.is_cancelled());
    assert!(inner.cancel("now") && below.is_cancelled());
    for body in [below_body, inner_body, late_body, body] {
        body.end(BodyResult::Value);
    }
    assert_eq!(
        (late.state(), inner.state(), parent.state()),
        (
            JobState::Completed,
            JobState::Cancelled,
            JobState::Cancelled
        )
    );
}

#[test]
fn waiters_are_woken_once_and_one_who_gave_up_is_not() {
    let tree = Tree::new();
    let (job, body) = child(tree.root());
    let bells: Vec<Arc<Bell>> = (0..32).map(|_| Arc::default()).collect();
    let mut waits: Vec<_> = (0..32).map(|_| Box::pin(job.ended())).collect();
    for _ in 0..2 {
        for (bell, wait) in bells.iter().zip(&mut waits) {
            let waker = Waker::from(bell.clone());
            let polled = wait.as_mut().poll(&mut Context::from_waker(&waker));
            assert_eq!(polled, Poll::Pending);
        }
    }
    // One from the middle, the first and the last.
    for gone in [31, 16, 0] {
        drop(waits.remove(gone));
    }
    body.end(BodyResult::Value);
    for (index, bell) in bells.iter().enumerate() {
        let expected = usize::from(![0, 16, 31].contains(&index));
        assert_eq!(bell.rings(), expected, "waiter {index}");
    }
    let waker = Waker::from(bells[0].clone());
    let polled = pin!(job.ended()).poll(&mut Context::from_waker(&waker));
    assert_eq!(polled, Poll::Ready(()));
    let counters = tree.counters();
    assert_eq!(
        (counters.waiters_registered, counters.waiters_woken),
        (32, 29)
    );
}

#[test]
fn callbacks_are_called_once_at_once_if_it_is_late_and_not_when_taken_back() {
    let tree = Tree::new();
    let (parent, _body) = child(tree.root());
    let (job, body) = child(&parent);
    let calls = Arc::new(AtomicUsize::new(0));
    let count = |calls: &Arc<AtomicUsize>| {
        let calls = calls.clone();
        move |reason: &jobtree_tree::CancelReason| {
            assert_eq!(reason.message(), Some("stop"));
            calls.fetch_add(1, Ordering::SeqCst);
        }
    };
    let kept = job.on_cancel(count(&calls));
    drop(job.on_cancel(count(&calls)));
    parent.cancel("stop");
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    let late = job.on_cancel(count(&calls));
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    drop((kept, late));
    body.end(BodyResult::Cancelled);
    // A job that has ended does not know those above it any more, nor what was said there.
    let over = calls.clone();
    drop(job.on_cancel(move |reason| {
        assert_eq!((reason.cause(), reason.message()), (Cause::Parent, None));
        over.fetch_add(1, Ordering::SeqCst);
    }));
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let (ended, body) = child(tree.root());
    body.end(BodyResult::Value);
    drop(ended.on_cancel(|_| panic!("it was never cancelled")));
}

#[test]
fn a_tree_of_a_hundred_thousand_levels_is_cancelled_and_ends_without_recursion() {
    // Miri is slow, and a hundred levels are enough for what it looks at.
    let levels: u32 = if cfg!(miri) { 100 } else { 100_000 };
    let tree = Tree::new();
    let mut bodies = Vec::new();
    let mut parent = tree.root().clone();
    for _ in 0..levels {
        let (job, body) = child(&parent);
        bodies.push(body);
        parent = job;
    }
    let top = tree.root().children().pop().unwrap();
    top.cancel("from the top");
    assert!(parent.is_cancelled());
    // The bodies first, from the top down: the last one ends them all.
    for body in bodies {
        body.end(BodyResult::Cancelled);
    }
    assert_eq!(top.state(), JobState::Cancelled);
    assert_eq!(tree.counters().cancelled, u64::from(levels));
}

#[test]
fn a_body_that_is_dropped_ends_its_job_as_abandoned() {
    let tree = Tree::new();
    let (job, body) = child(tree.root());
    drop(body);
    assert_eq!(job.state(), JobState::Cancelled);
    let reason = job.cancellation().unwrap();
    assert_eq!(reason.reason().cause(), Cause::Abandoned);
}

#[test]
fn locals_are_inherited_and_hidden_by_nearer_ones() {
    static TRACE: JobLocal<String> = JobLocal::new();
    static OTHER: JobLocal<String> = JobLocal::new();
    let tree = Tree::new();
    let options = || JobOptions::new().started();
    let (outer, _a) = tree
        .root()
        .attach(options().local(&TRACE, "outer".to_owned()))
        .unwrap();
    let (inner, _b) = outer
        .attach(options().local(&TRACE, "inner".to_owned()))
        .unwrap();
    let (below, _c) = child(&inner);
    let value = |job: &Job| job.local(&TRACE).map(|value| value.to_string());
    assert_eq!(value(tree.root()), None);
    assert_eq!(value(&outer).as_deref(), Some("outer"));
    assert_eq!(value(&below).as_deref(), Some("inner"));
    assert_eq!(below.local(&OTHER), None);
}

#[test]
fn the_nearest_deadline_is_the_one_that_counts() {
    use std::time::{Duration, Instant};
    let tree = Tree::new();
    let now = Instant::now();
    let with = |seconds| {
        JobOptions::new()
            .started()
            .deadline(now + Duration::from_secs(seconds))
    };
    let (outer, _a) = tree.root().attach(with(10)).unwrap();
    let (inner, _b) = outer.attach(with(20)).unwrap();
    let (nearer, _c) = inner.attach(with(5)).unwrap();
    assert_eq!(tree.root().deadline(), None);
    assert_eq!(inner.deadline(), Some(now + Duration::from_secs(10)));
    assert_eq!(nearer.deadline(), Some(now + Duration::from_secs(5)));
    // What is shielded is not reached by a deadline outside.
    let (shielded, _d) = nearer
        .attach(JobOptions::new().started().shielded())
        .unwrap();
    let (inside, _e) = shielded.attach(with(60)).unwrap();
    assert_eq!(shielded.deadline(), None);
    assert_eq!(inside.deadline(), Some(now + Duration::from_secs(60)));
}

#[test]
fn a_dump_shows_the_tree_for_people_and_for_programs() {
    let tree = Tree::new();
    let labelled = |label: &'static str| JobOptions::new().label(label).started();
    let (server, _a) = tree.root().attach(labelled("server")).unwrap();
    let (_first, _b) = server.attach(labelled("re\"quest")).unwrap();
    let (second, _c) = server.attach(JobOptions::new()).unwrap();
    second.begin_waiting(jobtree_tree::WaitingFor::Job(server.id()));
    let (_other, _d) = tree.root().attach(labelled("other")).unwrap();
    let dump = tree.root().dump_tree();
    let lines: Vec<String> = dump.to_string().lines().map(str::to_owned).collect();
    assert!(lines[0].starts_with("root #"), "{lines:?}");
    assert!(lines[1].starts_with("├─ server #") && lines[1].contains(": active, "));
    assert!(lines[2].starts_with("│  ├─ re\"quest #"), "{lines:?}");
    assert!(lines[3].starts_with(&format!("│  └─ {}: pending", second.id())));
    assert!(lines[3].ends_with(&format!("waiting for job {}", server.id())));
    assert!(lines[4].starts_with("└─ other #"));
    let json = dump.to_json();
    let expected = format!(
        r#"{{"id":{},"label":"root","state":"active","age_ms":0,"waiting_for":null,"children":[{{"#,
        tree.root().id().as_u64()
    );
    let without_ages = |json: &str| {
        let mut out = String::new();
        let mut rest = json;
        while let Some(at) = rest.find("\"age_ms\":") {
            let digits = at + "\"age_ms\":".len();
            out.push_str(&rest[..digits]);
            out.push('0');
            rest = rest[digits..].trim_start_matches(|c: char| c.is_ascii_digit());
        }
        out + rest
    };
    let json = without_ages(&json);
    assert!(json.starts_with(&expected), "{json}");
    assert!(json.contains(r#""label":"re\"quest""#));
    assert!(json.ends_with(r#""children":[]}]}"#), "{json}");
    assert_eq!(json.matches('{').count(), 5);
    assert_eq!(json.matches('{').count(), json.matches('}').count());
}

#[test]
fn events_tell_a_jobs_life_in_order_and_counters_count_each_once() {
    let tree = Tree::new();
    tree.record_events(100);
    let (job, body) = tree.root().attach(JobOptions::new()).unwrap();
    assert!(body.start());
    let bell: Arc<Bell> = Arc::default();
    let waker = Waker::from(bell);
    let mut wait = Box::pin(job.ended());
    assert!(
        wait.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    assert!(job.cancel("stop") && !job.cancel("again"));
    body.end(BodyResult::Cancelled);
    let recorded = tree.take_events();
    assert_eq!(recorded.lost, 0);
    let names: Vec<&str> = recorded
        .events
        .iter()
        .map(|event| event.kind.name())
        .collect();
    assert_eq!(
        names,
        [
            "JOB_CREATE",
            "JOB_CHILD_ATTACH",
            "JOB_STATE",
            "JOB_WAIT_REGISTER",
            "JOB_CANCEL_REQ",
            "JOB_STATE",
            "JOB_FINALIZE",
            "JOB_WAIT_WAKE"
        ]
    );
    let end = recorded.events[6].kind;
    assert!(matches!(
        end,
        EventKind::Finalize {
            state: JobState::Cancelled
        }
    ));
    let counters = tree.counters();
    assert_eq!(
        (
            counters.created,
            counters.cancel_requests,
            counters.cancelled,
            counters.completed,
            counters.failed,
            counters.waiters_registered,
            counters.waiters_woken
        ),
        (1, 1, 1, 0, 0, 1, 1)
    );
}

#[test]
fn tokens_follow_their_parents_and_each_other() {
    let tree = Tree::new();
    let (job, body) = child(tree.root());
    let of_job = CancelToken::of_job(&job);
    let below = of_job.child();
    let alone = CancelToken::new();
    let either = CancelToken::any_of([&below, &alone]);
    assert!(either.check().is_ok());
    alone.cancel("alone");
    assert!(either.is_cancelled() && !below.is_cancelled());
    assert_eq!(either.reason().unwrap().message(), Some("alone"));
    job.cancel("the job");
    assert!(below.is_cancelled());
    assert_eq!(below.reason().unwrap().message(), Some("the job"));
    assert!(below.check().is_err());
    // The token of a job cancels the job.
    let (other, other_body) = child(tree.root());
    drop(CancelToken::of_job(&other).drop_guard());
    assert!(other.is_cancelled());
    let kept = CancelToken::new().drop_guard().disarm();
    assert!(!kept.is_cancelled());
    body.end(BodyResult::Cancelled);
    other_body.end(BodyResult::Cancelled);
}

#[test]
fn a_body_that_returns_before_its_children_is_told_as_completing() {
    let states_of = |job: &Job, tree: &Tree| -> Vec<JobState> {
        let events = tree.take_events().events.into_iter();
        let of_job = events.filter(|event| event.job == job.id());
        of_job
            .filter_map(|event| match event.kind {
                EventKind::State { to } => Some(to),
                EventKind::Finalize { state } => Some(state),
                _ => None,
            })
            .collect()
    };
    let tree = Tree::new();
    tree.record_events(100);
    let (job, body) = child(tree.root());
    let (_, below) = child(&job);
    body.end(BodyResult::Value);
    below.end(BodyResult::Value);
    let states = states_of(&job, &tree);
    assert_eq!(states, [JobState::Completing, JobState::Completed]);

    let (job, body) = child(tree.root());
    let (_, below) = child(&job);
    job.cancel("first");
    body.end(BodyResult::Value);
    below.end(BodyResult::Cancelled);
    let states = states_of(&job, &tree);
    assert_eq!(states, [JobState::Cancelling, JobState::Cancelled]);

    let (job, body) = child(tree.root());
    child(&job).1.end(BodyResult::Value);
    body.end(BodyResult::Value);
    assert_eq!(states_of(&job, &tree), [JobState::Completed]);
}

#[test]
fn every_job_that_is_asked_to_end_counts_once() {
    let tree = Tree::new();
    let requests = || tree.counters().cancel_requests;
    let (job, body) = child(tree.root());
    let (middle, middle_body) = child(&job);
    let (_, low_body) = child(&middle);
    middle.cancel("it and the one below");
    assert_eq!(requests(), 2);
    job.cancel("only it: the others were asked before");
    assert_eq!(requests(), 3);
    let (_, late_body) = child(&middle);
    assert_eq!(requests(), 4, "one that is born cancelled");
    for body in [late_body, low_body, middle_body, body] {
        body.end(BodyResult::Cancelled);
    }

    let (job, body) = child(tree.root());
    let (_, sibling) = child(&job);
    child(&job)
        .1
        .end(failed("fails its parent and asks its sibling"));
    assert_eq!(requests(), 5);
    sibling.end(BodyResult::Cancelled);
    body.end(BodyResult::Value);
}

#[test]
fn errors_show_their_message_and_no_internals() {
    let tree = Tree::new();
    let (job, body) = tree
        .root()
        .attach(JobOptions::new().label("load").started())
        .unwrap();
    body.end(failed("no such file"));
    let error = job.error().unwrap();
    assert_eq!(format!("{error:?}"), format!("Failed({error})"));
    assert_eq!(
        format!("{error:?}"),
        "Failed(root/load failed: no such file)"
    );
}
