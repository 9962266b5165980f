//! Durable jobs that do their work on a lane of a job manager.

use std::time::Duration;

use jobtree_lanes::{JobBody, JobManager, LaneJob};
use jobtree_runtime::{BoxError, block_on, shield};

/// How long work on a lane may take to end once it was asked to.
const GRACE: Duration = Duration::from_secs(60);

/// Has a job manager do this, and waits for it: for handlers whose work has a priority or a lane.
///
/// Such work belongs to the manager's tree, not to the handler's. If the handler is cancelled (the durable job is
/// canceled, or its lease lost), the work is, and this returns when it has ended: so the durable job ends with all that
/// was done for it.
///
/// ```no_run
/// use jobtree_client::{Client, Worker, on_lane};
/// use jobtree_lanes::{JobManager, LaneJob, Priority};
///
/// let manager = JobManager::builder().build()?;
/// Worker::new(Client::new("http://127.0.0.1:7717")?)
///     .handle("render", move |scene: String, _| {
///         let render = LaneJob::task(move |_| Ok(scene.len())).priority(Priority::High);
///         on_lane(&manager, render)
///     })
///     .run()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// Those of the work; and if the handler is cancelled.
pub fn on_lane<T, B>(manager: &JobManager, job: LaneJob<T, B>) -> Result<T, BoxError>
where
    B: JobBody<T>,
    T: Send + 'static,
{
    let handle = manager.schedule(job);
    if !handle.is_finished()
        && let Err(cancelled) = block_on(handle.job().ended())
    {
        handle.cancel("the durable job that it is for was cancelled");
        let _ = shield(GRACE, || Ok(block_on(handle.job().ended())?));
        return Err(cancelled.into());
    }
    Ok(handle.join()?)
}
