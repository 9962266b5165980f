//! The face of the manager.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobtree_runtime::binding::{self, is_unwinding};
use jobtree_runtime::{Job, Runtime};

use crate::Priority;
use crate::bodies::JobBody;
use crate::builder::JobManagerBuilder;
use crate::handle::LaneHandle;
use crate::job::LaneJob;
use crate::lane::Lane;
use crate::metrics::{ManagerStats, Slots};
use crate::pump::{PumpError, PumpLimit, PumpReport};
use crate::refused::{ScheduleRefused, WhyRefused};
use crate::shared::{Admission, Shared};
use crate::shutdown::ShutdownError;
use crate::slots::NoSlot;
use crate::tracker::Tracker;

/// Schedules jobs by priority and age, on the workers of a runtime and on threads of the program.
///
/// Clones are the same manager. Dropping the last one shuts it down without waiting.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::{JobManager, Lane, LaneJob, PumpLimit};
///
/// let manager = JobManager::builder().build()?;
/// let load = manager.schedule(LaneJob::action(|| Ok("a texture")));
/// let show = LaneJob::action(|| Ok("shown by the main thread")).lane(Lane::Main);
/// let show = manager.schedule(show.after([&load.dependency()]));
/// while !show.is_finished() {
///     // Once a frame.
///     manager.pump(&Lane::Main, PumpLimit::default())?;
/// }
/// assert_eq!(load.join()?, "a texture");
/// manager.shutdown(Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct JobManager {
    owner: Arc<Owner>,
}

/// What the handles to a manager share; with the last one its jobs are cancelled.
struct Owner {
    shared: Arc<Shared>,
    /// Kept, since the manager's jobs need its threads.
    runtime: Runtime,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.begin_shutdown();
        self.shared.tracking.close();
    }
}

impl JobManager {
    /// Starts to describe a manager.
    pub fn builder() -> JobManagerBuilder {
        JobManagerBuilder::new()
    }

    pub(crate) fn new(shared: Arc<Shared>, runtime: Runtime) -> JobManager {
        JobManager {
            owner: Arc::new(Owner { shared, runtime }),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    /// The runtime whose workers it uses.
    pub fn runtime(&self) -> &Runtime {
        &self.owner.runtime
    }

    /// The job above all jobs of this manager.
    pub fn job(&self) -> &Job {
        self.shared().scope.job()
    }

    /// Schedules a job. If all slots are taken, it waits for one: the stack of a job is parked meanwhile, any other thread
    /// sleeps. Not on a thread whose pumping would free the slot.
    ///
    /// After the shutdown, and if the calling job is cancelled, the job is cancelled and never runs.
    pub fn schedule<T, B>(&self, job: LaneJob<T, B>) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        self.shared().schedule(job)
    }

    /// Schedules a job as a child of the calling one: it is a part of that job's tree, is cancelled with it, and
    /// that job ends after it. For code that runs elsewhere, such as a handler of a worker, and wants a part of its work
    /// done on a lane. Outside of a job this is [`schedule`](JobManager::schedule).
    ///
    /// Whether the calling job fails with its child is up to it: `join()?` says that it does. While it waits there, a
    /// cancellation reaches both: nobody is left waiting, and nothing is left running; on a pumped lane the child ends in
    /// the next pump. A shutdown of the manager cancels the child, and the calling job goes on.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    /// use jobtree_runtime::{Runtime, sleep};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().workers(2).build()?;
    /// let manager = JobManager::builder().runtime(&runtime).build()?;
    /// let (told, tells) = std::sync::mpsc::channel();
    /// let request = runtime.spawn(move || {
    ///     let index = LaneJob::action(move || {
    ///         told.send(jobtree_runtime::Job::current().unwrap())?;
    ///         Ok(sleep(Duration::from_secs(3600))?)
    ///     });
    ///     Ok(manager.schedule_child(index.label("index")).join()?)
    /// });
    /// let index = tells.recv()?;
    /// assert_eq!(index.parent().as_ref(), Some(request.job()));
    /// request.cancel("nobody waits for the answer");
    /// assert!(request.join().is_err());
    /// assert!(index.is_ended());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn schedule_child<T, B>(&self, job: LaneJob<T, B>) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        let shared = self.shared();
        if shared.lacks_transport(&job) {
            return shared.failed(job.about().priority, WhyRefused::NoTransport);
        }
        let host = binding::current_nursery();
        let admission = shared.admit();
        shared.start_below(host.as_ref(), job, admission)
    }

    /// Schedules a job if a slot is free.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, Lane, LaneJob, PumpLimit, WhyRefused};
    ///
    /// let manager = JobManager::builder().queue_limit(1).build()?;
    /// let first = manager.schedule(LaneJob::action(|| Ok(1)).lane(Lane::Main));
    /// let refused = manager.try_schedule(LaneJob::action(|| Ok(2))).unwrap_err();
    /// assert_eq!(refused.why(), WhyRefused::QueueFull);
    /// manager.pump(&Lane::Main, PumpLimit::default())?;
    /// let second = manager.try_schedule(refused.into_job())?;
    /// assert_eq!((first.join()?, second.join()?), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If not, with the job.
    pub fn try_schedule<T, B>(
        &self,
        job: LaneJob<T, B>,
    ) -> Result<LaneHandle<T>, ScheduleRefused<T, B>>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        let shared = self.shared();
        if shared.lacks_transport(&job) {
            return Err(ScheduleRefused::new(WhyRefused::NoTransport, job));
        }
        match shared.slots.try_take() {
            Ok(()) => Ok(shared.start(job, Admission::Slot)),
            Err(NoSlot::Closed) => Err(ScheduleRefused::new(WhyRefused::ShutDown, job)),
            Err(_) => Err(ScheduleRefused::new(WhyRefused::QueueFull, job)),
        }
    }

    /// [`schedule`](JobManager::schedule) for async code. Dropped before it is ready, it has scheduled nothing.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let value = manager.runtime().block_on(async {
    ///     manager.schedule_async(LaneJob::action(|| Ok(42))).await.await
    /// })??;
    /// assert_eq!(value, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn schedule_async<T, B>(&self, job: LaneJob<T, B>) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        let shared = Arc::clone(self.shared());
        if shared.lacks_transport(&job) {
            return shared.failed(job.about().priority, WhyRefused::NoTransport);
        }
        let admission = shared.admit_async().await;
        shared.start(job, admission)
    }

    /// Runs what is queued for the workers on the calling thread, each job for one dispatch. The workers go on beside it.
    ///
    /// ```
    /// use jobtree_lanes::{JobManager, LaneJob};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let handle = manager.schedule(LaneJob::action(|| Ok(42)));
    /// let report = manager.process();
    /// assert!(report.ran <= 1, "or a worker was faster");
    /// assert_eq!(handle.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A job that calls it runs other jobs on top of itself.
    ///
    /// # Panics
    /// If it is called by jobs or callbacks that it runs itself, or a pump does, more than sixteen deep on one stack: it would
    /// overflow. [`pump`](JobManager::pump) of [`Lane::Any`] returns that as an error. While the thread unwinds, nothing is run
    /// instead.
    pub fn process(&self) -> PumpReport {
        let shared = self.shared();
        match shared.run_nested(&shared.any, PumpLimit::unlimited()) {
            Ok(report) => report,
            // A second panic would end the process.
            Err(_) if is_unwinding() => PumpReport {
                left: shared.any.queued(),
                ..PumpReport::default()
            },
            Err(error) => panic!("{error}"),
        }
    }

    /// Runs what is queued on a lane, on the calling thread, which is the lane's from now on.
    ///
    /// # Errors
    /// If the lane is another thread's, or this is called from inside of a pump. [`Lane::Any`] can be pumped by any thread, also
    /// inside of a pump, but not more than sixteen deep on one stack.
    pub fn pump(&self, lane: &Lane, limit: PumpLimit) -> Result<PumpReport, PumpError> {
        let shared = self.shared();
        match lane {
            Lane::Any => shared.run_nested(&shared.any, limit),
            lane => shared.pump(&shared.find(lane), limit),
        }
    }

    /// Makes the calling thread the one that pumps `lane`; else the first that does is.
    ///
    /// # Errors
    /// If it is another's already, or not to be pumped.
    pub fn bind_lane(&self, lane: &Lane) -> Result<(), PumpError> {
        self.shared().bind(&self.shared().find(lane))
    }

    /// How many jobs are queued on a lane.
    pub fn queued(&self, lane: &Lane) -> usize {
        let shared = self.shared();
        let queued = shared.cell(&shared.find(lane)).queued();
        // Those that wait to be sent are queued, too.
        match *lane == Lane::Remote {
            true => queued + shared.gate.queued(),
            false => queued,
        }
    }

    /// How many jobs of this priority are queued on a lane.
    pub fn queued_at(&self, lane: &Lane, priority: Priority) -> usize {
        let shared = self.shared();
        let queued = shared.cell(&shared.find(lane)).queued_at(priority);
        match *lane == Lane::Remote {
            true => queued + shared.gate.queued_at(priority),
            false => queued,
        }
    }

    /// How many jobs were scheduled and have not ended, and how many may.
    pub fn slots(&self) -> Slots {
        self.shared().slots.count()
    }

    /// How long jobs of this priority waited for their turns on average, on all lanes, in the last 10 to 20 seconds;
    /// `None` if there were none.
    pub fn average_wait(&self, priority: Priority) -> Option<Duration> {
        self.shared().average_wait(priority)
    }

    /// What it counted so far.
    pub fn stats(&self) -> ManagerStats {
        self.shared().stats()
    }

    /// Shows its jobs, for user interfaces. Jobs are tracked from the first call on.
    pub fn tracker(&self) -> Tracker {
        let shared = Arc::clone(self.shared());
        shared.tracking.switch_on();
        Tracker::new(move || shared.tracking.view(shared.now()))
    }

    /// How many of the runtime's workers run its jobs at a time.
    pub fn workers(&self) -> usize {
        self.shared().settings.workers
    }

    /// Whether it was shut down.
    pub fn is_shut_down(&self) -> bool {
        self.shared().is_shut_down()
    }

    /// Cancels all jobs, and waits until they have ended, at most `limit`. Those who wait to schedule get cancelled jobs.
    ///
    /// It can be called from inside of a job, which is then not waited for; and again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use jobtree_lanes::{JobManager, LaneJob, Step};
    ///
    /// let manager = JobManager::builder().build()?;
    /// let waits = manager.schedule(LaneJob::steps([Step::wait(std::future::pending())]));
    /// manager.shutdown(Duration::from_secs(5))?;
    /// assert!(waits.is_canceled());
    /// assert!(manager.schedule(LaneJob::action(|| Ok(()))).is_canceled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `limit` was over first: with the jobs that were still there.
    pub fn shutdown(&self, limit: Duration) -> Result<(), ShutdownError> {
        self.shared().shut_down(limit)
    }
}

impl Shared {
    pub(crate) fn schedule<T, B>(self: &Arc<Shared>, job: LaneJob<T, B>) -> LaneHandle<T>
    where
        B: JobBody<T>,
        T: Send + 'static,
    {
        if self.lacks_transport(&job) {
            return self.failed(job.about().priority, WhyRefused::NoTransport);
        }
        let admission = self.admit();
        self.start(job, admission)
    }

    /// Whether a job is for the remote lane, and nobody could carry it.
    pub(crate) fn lacks_transport<T, B>(&self, job: &LaneJob<T, B>) -> bool {
        job.about().lane == Lane::Remote && !self.gate.has_transport()
    }
}

impl fmt::Debug for JobManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobManager")
            .field("job", self.job())
            .field("slots", &self.slots())
            .finish_non_exhaustive()
    }
}
