//! One lease: its jobs are run one after the other, each as a job of the tree, and answered for.
//!
//! A completion is put out when its job has ended, and the next job begins before the answer is there: what a crash undoes is
//! run again anyway, and a batch shares commits. The next job is taken in hand before the completion goes out, so that the
//! same call can tell of its begin. Before the lease is left, all of them are answered, or the lease is lost.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_base::user_code::{Place, call_user};
use jobtree_protocol::{
    Advice, ClaimAnswer, CompleteOne, CompleteStatus, JobId, JobView, Json, ReleaseRequest,
};
use jobtree_runtime::{
    BoxError, Cancelled, Dispatcher, Job, JobError, Panic, block_on, checkpoint, shield, sleep,
    supervisor,
};

use crate::batch::Batch;
use crate::claiming::Asked;
use crate::handler::{GiveBack, Handler, Permanent, Run};
use crate::held::{Held, YIELDED};
use crate::outbox::{EndedRun, FIRST_PAUSE, LONGEST_PAUSE, is_passing};
use crate::reply::Reply;
use crate::worker::Shared;

/// How long answers may take once the worker was told to end.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What came of one run.
enum Ended {
    Done(Option<Json>),
    Failed {
        error: String,
        retry: bool,
    },
    /// Neither done nor failed: it waits again.
    Back(GiveBack),
    /// The lease is lost; there is nobody to tell.
    Lost,
}

impl Ended {
    /// For traces.
    fn name(&self) -> &'static str {
        match self {
            Ended::Done(_) => "done",
            Ended::Failed { .. } => "failed",
            Ended::Back(_) => "given back",
            Ended::Lost => "lost",
        }
    }
}

/// Runs the jobs of a lease.
pub(crate) fn run(shared: &Arc<Shared>, lease: ClaimAnswer, asked: Asked) {
    let (held, is_recent) = hold(shared, lease, asked);
    if asked.is_repeated || !is_recent {
        // It may have been granted long ago, and be over soon. If it is lost, nothing of it begins.
        let _ = block_on(held.confirm());
    }
    let mut back = None;
    // Its turn may take a while; it is renewed meanwhile.
    let Ok(turn) = shared.running.acquire(1) else {
        return never_begun(shared, &held);
    };
    let (mut ran, begun) = (0, shared.clock.now());
    let mut next = next_job(shared, &held);
    while let Some(job) = next {
        let job_id = job.job_id;
        let ended = if held.is_wanted_stopped(job_id) {
            stopped_by_wish()
        } else {
            run_job(shared, &held, job)
        };
        let (status, result, error, retry) = match ended {
            Ended::Done(result) => (CompleteStatus::Done, result, None, true),
            Ended::Failed { error, retry } => (CompleteStatus::Failed, None, Some(error), retry),
            Ended::Back(given) => {
                back = Some(given);
                break;
            }
            Ended::Lost => break,
        };
        let now = shared.grantor().mono();
        let times = held.ended().map(|began| (began, now));
        let usage = held.take_usage();
        held.outbox.put(EndedRun {
            told: CompleteOne {
                job_id,
                status,
                result,
                error,
                retry,
                began_ms_ago: None,
                ended_ms_ago: None,
                // A scheduler that does not know begins does not know this either.
                usage: usage.filter(|_| times.is_some()),
            },
            times,
        });
        next = next_job(shared, &held);
        shared.move_on(&held);
        ran += 1;
    }
    if shared.is_stopping() && held.has_waiting() {
        back = back.or_else(|| Some(GiveBack::because("the worker is stopping")));
    }
    if held.advice() == Advice::Yield && held.has_waiting() {
        back = back.or_else(|| Some(GiveBack::because(YIELDED)));
    }
    shared.pace.ran(ran, shared.clock.now() - begun);
    // The next may begin while this one's answers are on their way.
    drop(turn);
    last_words(shared, &held, || {
        block_on(poll_fn(|context| shared.poll_settled(&held, context)))
    });
    if held.is_unconfirmed() {
        back = back.or_else(|| Some(GiveBack::because("another worker could begin it sooner")));
    }
    if let Some(back) = back {
        give_back(shared, &held, &back);
    }
    shared.board.remove(held.lease);
}

/// Takes the next job in hand, unless the worker is stopping, is asked to yield, or has lost the lease.
fn next_job(shared: &Shared, held: &Held) -> Option<JobView> {
    if held.lost().is_some() || shared.is_stopping() || held.advice() == Advice::Yield {
        return None;
    }
    held.take(shared.grantor().mono(), shared.pace.is_short())
}

fn never_begun(shared: &Shared, held: &Held) {
    give_back(shared, held, &GiveBack::because("the worker was stopped"));
    shared.board.remove(held.lease);
}

/// What has not ended waits again, and nothing is counted.
fn give_back(shared: &Shared, held: &Held, back: &GiveBack) {
    if held.lost().is_some() {
        return;
    }
    let request = ReleaseRequest {
        return_jobs: true,
        snooze_sec: back.snooze_sec(),
        reason: Some(back.reason().to_owned()),
    };
    last_words(shared, held, || {
        let mut pause = FIRST_PAUSE;
        loop {
            let released = shared.grantor().release(held.lease, request.clone());
            let Err(error) = block_on(released)? else {
                return Ok(());
            };
            shared.note(&error);
            // Without an answer it is repeated, or nobody could run the jobs until the lease runs out. If the lost
            // answer was a success, the scheduler no longer knows the lease, and the repeated call or a heartbeat says so.
            if !is_passing(&error) || held.lost().is_some() {
                return Ok(());
            }
            sleep(pause)?;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    });
}

/// A worker that is told to end still says what it did. If even that takes too long, the lease runs out.
fn last_words(shared: &Shared, held: &Held, say: impl Fn() -> Result<(), Cancelled>) {
    loop {
        let said = shield(LAST_WORDS, || Ok(say()?));
        // Nobody wants it to end yet: it is said for as long as the lease holds.
        let again = said.is_err() && held.lost().is_none() && !shared.is_stopping();
        if !again || checkpoint().is_err() {
            return;
        }
    }
}

/// Puts the lease where it is renewed. Returns with it whether the lease is surely recent: it was granted after it was
/// asked for. If that was long ago, either there was nothing to grant for a while, or the answer was late; only the
/// answer to a heartbeat tells how long the lease holds.
fn hold(shared: &Arc<Shared>, lease: ClaimAnswer, asked: Asked) -> (Arc<Held>, bool) {
    let ttl = Duration::from_secs(lease.ttl_sec.into());
    let now = shared.grantor().mono();
    let recent = now.saturating_sub(ttl / 6);
    let board = Arc::clone(&shared.board);
    let batch = Batch::new(lease.jobs, asked.reports, shared.setup.planted);
    let ring = move || board.ring();
    let granted = asked.at.max(recent);
    let planted = shared.setup.planted;
    let held = Held::new(lease.lease_id, ttl, granted, batch, planted, ring);
    let held = Arc::new(held);
    shared.board.add(&held, now);
    (held, asked.at >= recent)
}

fn run_job(shared: &Arc<Shared>, held: &Arc<Held>, job: JobView) -> Ended {
    let Some(handler) = shared.setup.handlers.get(job.job_type.as_str()) else {
        return Ended::Failed {
            error: format!("this worker has no handler for {}", job.job_type),
            retry: true,
        };
    };
    let run = Run::new(job, Arc::clone(held));
    let value = Arc::new(Mutex::new(None));
    let mut tree = None;
    // It is over when everything below it is, whoever wanted it to end.
    let _ = supervisor(|n| {
        let label = format!("{} {}", run.job().job_type, run.id());
        let body = body_of(handler, run.clone(), &value);
        let spawner = n.job_options().label(label);
        let handle = if handler.blocks {
            spawner.on(&Dispatcher::io()).spawn(body)
        } else {
            spawner.spawn(body)
        };
        let job = handle.job().clone();
        tree = Some(job.clone());
        shared.begin(run.id(), &job);
        held.begin(run.clone(), job, shared.grantor().mono());
        let _ = handle.join();
        Ok(())
    });
    if let Some(tree) = &tree {
        shared.end(tree);
    }
    // Once the run counts as ended, nobody takes its words any more.
    passed_on(held, run.run_log().flush());
    let ended = came_of(shared, held, &run, tree.as_ref(), &value);
    if matches!(ended, Ended::Done(_) | Ended::Failed { .. }) {
        // A job that goes back has no progress: it begins again.
        passed_on(held, held.tell_all());
    }
    held.end();
    let error = match &ended {
        Ended::Failed { error, .. } => Some(error.as_str()),
        _ => None,
    };
    run.trace().ended(ended.name(), error);
    ended
}

/// Waits until the thread of the heartbeats has passed something on, if there is something.
fn passed_on(held: &Held, telling: Option<Reply<()>>) {
    if let Some(telling) = telling {
        held.ring();
        let _ = shield(LAST_WORDS, || Ok(block_on(telling)?));
    }
}

fn came_of(
    shared: &Shared,
    held: &Held,
    run: &Run,
    tree: Option<&Job>,
    value: &Mutex<Option<Option<Json>>>,
) -> Ended {
    let Some(tree) = tree else {
        return Ended::Back(GiveBack::because("the worker was stopped"));
    };
    let value = value.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (tree.error(), value) {
        (None, value) => Ended::Done(value.flatten()),
        // It did what it had to do: the wish that it stop came too late.
        (Some(JobError::Cancelled(_)), Some(value)) => Ended::Done(value),
        (Some(error), _) => failed(shared, held, run.id(), &error),
    }
}

/// What the handler returned, if it has.
type Value = Arc<Mutex<Option<Option<Json>>>>;

fn body_of(
    handler: &Handler,
    run: Run,
    value: &Value,
) -> impl FnOnce() -> Result<(), BoxError> + Send + use<> {
    let (handler, value) = (handler.clone(), Arc::clone(value));
    move || {
        let result = run.trace().around(handler.blocks, || handler.run(&run))?;
        *value.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        Ok(())
    }
}

fn failed(shared: &Shared, held: &Held, id: JobId, error: &JobError) -> Ended {
    if held.lost().is_some() {
        return Ended::Lost;
    }
    if held.is_wanted_stopped(id) {
        return stopped_by_wish();
    }
    if held.has_yielded() {
        return stopped_to_yield(error);
    }
    match error {
        JobError::Failed(failure) => of_handler(failure.error()),
        JobError::Panicked(panic) => panicked(panic),
        JobError::Cancelled(_) if shared.is_stopping() => {
            Ended::Back(GiveBack::because("the worker was stopped"))
        }
        // A runtime that is shut down takes its jobs with it, without asking us.
        JobError::Cancelled(_) if checkpoint().is_err() => {
            Ended::Back(GiveBack::because("its runtime was shut down"))
        }
        other => Ended::Failed {
            error: other.to_string(),
            retry: true,
        },
    }
}

/// What the end of a run means that was stopped since it was asked to yield: it goes back, unless it ended in a way that
/// being stopped does not explain.
fn stopped_to_yield(error: &JobError) -> Ended {
    let ended = match error {
        JobError::Failed(failure) => of_handler(failure.error()),
        JobError::Panicked(panic) => return panicked(panic),
        _ => return Ended::Back(GiveBack::because(YIELDED)),
    };
    match ended {
        Ended::Failed { retry: true, .. } => Ended::Back(GiveBack::because(YIELDED)),
        other => other,
    }
}

fn panicked(panic: &Panic) -> Ended {
    let place = panic.location().map(|place| format!(" ({place})"));
    Ended::Failed {
        error: format!("panicked: {}{}", panic.message(), place.unwrap_or_default()),
        retry: true,
    }
}

/// What a handler's error means; it may have come up through scopes.
fn of_handler(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Ended {
    if let Some(back) = error.downcast_ref::<GiveBack>() {
        return Ended::Back(back.clone());
    }
    if let Some(JobError::Failed(inner)) = error.downcast_ref::<JobError>() {
        return of_handler(inner.error());
    }
    Ended::Failed {
        error: text_of(error),
        retry: !error.is::<Permanent>(),
    }
}

/// The text of a handler's error, which the handler's program writes: that code may panic, and the run has to end all the same.
fn text_of(error: &(dyn std::error::Error + 'static)) -> String {
    call_user(Place::Error, || error.to_string()).unwrap_or_else(|| {
        "failed, with an error that panics when it is written as text".to_owned()
    })
}

/// The answer to a wish that it stop: the scheduler makes CANCELED of it.
fn stopped_by_wish() -> Ended {
    Ended::Failed {
        error: "canceled while it ran".to_owned(),
        retry: false,
    }
}
