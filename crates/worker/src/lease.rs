//! One lease: its jobs are run one after the other, each as a job of the tree, and answered for.
//!
//! A completion is sent when its job has ended, and the next job begins before the answer is there: what a crash undoes is
//! run again anyway, and a batch shares commits. Before the lease is left, all of them are answered, or the lease is lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_protocol::{
    ClaimAnswer, CompleteManyAnswer, CompleteManyRequest, CompleteOne, CompleteRequest,
    CompleteStatus, Each, ErrorCode, JobId, JobView, Json, ReleaseRequest,
};
use jobtree_runtime::{
    BoxError, Dispatcher, JobError, block_on, checkpoint, shield, sleep, supervisor,
};

use crate::handler::{GiveBack, Handler, Permanent, Run};
use crate::held::Held;
use crate::reply::Reply;
use crate::worker::Shared;

/// How long answers may take once the worker was told to end.
const LAST_WORDS: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What came of one run.
enum Ended {
    Done(Option<Json>),
    Failed {
        error: String,
        retry: bool,
    },
    /// Neither done nor failed: somebody shall run it again.
    Back(String),
    /// The lease is lost; there is nobody to tell.
    Lost,
}

/// A completion on its way.
struct Sent {
    job: JobId,
    request: CompleteRequest,
    reply: Reply<CompleteManyAnswer>,
}

pub(crate) fn run(shared: &Arc<Shared>, lease: ClaimAnswer, asked: Duration) {
    let held = hold(shared, &lease, asked);
    let mut sent = Vec::new();
    let mut back = None;
    for job in lease.jobs {
        if held.lost().is_some() {
            break;
        }
        let id = job.job_id;
        let ended = if shared.is_stopping() {
            Ended::Back("the worker is stopping".to_owned())
        } else if held.is_wanted_stopped(id) {
            stopped_by_wish()
        } else {
            run_job(shared, &held, Arc::new(job))
        };
        let request = match ended {
            Ended::Done(result) => CompleteRequest::done(lease.lease_id, result),
            Ended::Failed { error, retry } => CompleteRequest {
                retry,
                ..CompleteRequest::failed(lease.lease_id, error)
            },
            Ended::Back(reason) => {
                back = Some(reason);
                break;
            }
            Ended::Lost => break,
        };
        sent.push(send(shared, id, request));
    }
    // A worker that is told to end still says what it did. If even that takes too long, the lease runs out.
    let _ = shield(LAST_WORDS, || {
        for one in sent {
            settle(shared, &held, one)?;
        }
        if let Some(reason) = back.filter(|_| held.lost().is_none()) {
            let request = ReleaseRequest {
                return_jobs: true,
                reason: Some(reason),
            };
            let released = block_on(shared.grantor().release(lease.lease_id, request))?;
            released.unwrap_or_else(|error| shared.note(&error));
        }
        Ok(())
    });
    shared.board.remove(lease.lease_id);
}

/// Puts the lease where it is renewed. It was granted after it was asked for; if that was long ago, because there was
/// nothing to grant, a first heartbeat at once tells how long it holds.
fn hold(shared: &Arc<Shared>, lease: &ClaimAnswer, asked: Duration) -> Arc<Held> {
    let ttl = Duration::from_secs(lease.ttl_sec.into());
    let now = shared.grantor().mono();
    let recent = now.saturating_sub(ttl / 6);
    let board = Arc::clone(&shared.board);
    let held = Held::new(lease.lease_id, ttl, asked.max(recent), move || board.ring());
    let held = Arc::new(held);
    shared.board.add(&held, now);
    if asked < recent {
        held.hurry();
    }
    held
}

fn run_job(shared: &Arc<Shared>, held: &Arc<Held>, job: Arc<JobView>) -> Ended {
    let id = job.job_id;
    let Some(handler) = shared.setup.handlers.get(job.job_type.as_str()) else {
        return Ended::Failed {
            error: format!("this worker has no handler for {}", job.job_type),
            retry: true,
        };
    };
    let value = Arc::new(Mutex::new(None));
    let mut tree = None;
    // It is over when everything below it is, whoever wanted it to end.
    let _ = supervisor(|n| {
        let limit = job
            .max_runtime_sec
            .map(|sec| Duration::from_secs(sec.into()));
        let label = format!("{} {id}", job.job_type);
        let body = body_of(
            handler,
            Run::new(Arc::clone(&job), Arc::clone(held)),
            &value,
        );
        let spawner = n.job_options().label(label);
        let handle = if handler.blocks {
            spawner.on(&Dispatcher::io()).spawn(body)
        } else {
            spawner.spawn(body)
        };
        let job = handle.job().clone();
        tree = Some(job.clone());
        shared.begin(id, &job);
        held.begin(id, job, shared.grantor().mono(), limit);
        let _ = handle.join();
        Ok(())
    });
    held.end();
    let Some(tree) = tree else {
        return Ended::Back("the worker was stopped".to_owned());
    };
    shared.end(&tree);
    let value = value.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (tree.error(), value) {
        (None, value) => Ended::Done(value.flatten()),
        // It did what it had to do: the wish that it stop came too late.
        (Some(JobError::Cancelled(_)), Some(value)) => Ended::Done(value),
        (Some(error), _) => failed(shared, held, id, &error),
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
        let result = handler.run(&run)?;
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
    match error {
        JobError::Failed(failure) => of_handler(failure.error()),
        JobError::Panicked(panic) => {
            let place = panic.location().map(|place| format!(" ({place})"));
            Ended::Failed {
                error: format!("panicked: {}{}", panic.message(), place.unwrap_or_default()),
                retry: true,
            }
        }
        JobError::Cancelled(_) if shared.is_stopping() => {
            Ended::Back("the worker was stopped".to_owned())
        }
        // A runtime that is shut down takes its jobs with it, without asking us.
        JobError::Cancelled(_) if checkpoint().is_err() => {
            Ended::Back("its runtime was shut down".to_owned())
        }
        other => Ended::Failed {
            error: other.to_string(),
            retry: true,
        },
    }
}

/// What a handler's error means; it may have come up through scopes.
fn of_handler(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Ended {
    if let Some(back) = error.downcast_ref::<GiveBack>() {
        return Ended::Back(back.reason().to_owned());
    }
    if let Some(JobError::Failed(inner)) = error.downcast_ref::<JobError>() {
        return of_handler(inner.error());
    }
    Ended::Failed {
        error: error.to_string(),
        retry: !error.is::<Permanent>(),
    }
}

/// The answer to a wish that it stop: the scheduler makes CANCELED of it.
fn stopped_by_wish() -> Ended {
    Ended::Failed {
        error: "canceled while it ran".to_owned(),
        retry: false,
    }
}

fn send(shared: &Shared, job: JobId, request: CompleteRequest) -> Sent {
    let CompleteRequest {
        lease_id,
        status,
        result,
        error,
        retry,
    } = request.clone();
    let one = CompleteOne {
        job_id: job,
        status,
        result,
        error,
        retry,
    };
    let reply = shared.grantor().complete_many(CompleteManyRequest {
        lease_id,
        jobs: vec![one],
    });
    Sent {
        job,
        request,
        reply,
    }
}

/// Waits for the answer, and sends again while it may help: a completion that took effect may be repeated.
fn settle(shared: &Shared, held: &Held, mut sent: Sent) -> Result<(), BoxError> {
    let mut pause = Duration::from_millis(20);
    loop {
        let error = match block_on(sent.reply)? {
            Ok(mut answer) => match answer.jobs.pop() {
                Some(Each::Refused { error }) => error,
                _ => return Ok(()),
            },
            Err(error) => error,
        };
        shared.note(&error);
        let request = match error.code {
            ErrorCode::Unavailable | ErrorCode::NotNow if held.lost().is_none() => {
                sleep(pause)?;
                pause = (pause * 2).min(LONGEST_PAUSE);
                sent.request
            }
            // A result that is too large, say: the job ran, but there is nothing to show for it.
            ErrorCode::Invalid | ErrorCode::Malformed
                if sent.request.status == CompleteStatus::Done =>
            {
                let error = format!("its result was refused: {}", error.message);
                CompleteRequest {
                    retry: false,
                    ..CompleteRequest::failed(sent.request.lease_id, error)
                }
            }
            _ => return Ok(()),
        };
        sent = send(shared, sent.job, request);
    }
}
