//! What operators do: pauses, draining, signals, policy, schedules.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jobtree_protocol::{
    Advice, ApiError, CleanAnswer, CleanRequest, ErrorCode, FieldError, JobId, JobState, Json,
    LeaseId, Overlap, PauseRequest, ScheduleId, ScheduleSpec, ScheduleView, SignalsRequest,
    SubmitAnswer, whole_micros,
};
use jobtree_queue::cron::{Schedule, ScheduleError};
use jobtree_queue::planner::ListenScope;
use jobtree_queue::policy::{Policy, PolicyError};
use jobtree_queue::signals::{HostSignals, Sample};
use jobtree_store::{Firing, Pause, ScheduleRecord, Submission};

use super::{Scheduler, checked};
use crate::Reply;
use crate::core::schedules::{next_nominal, view_of};
use crate::core::upkeep;
use crate::core::{Call, Input, LeaseProcesses};
use crate::error::told;

/// Rows of each kind that one commit forgets: others wait for it no longer than for any other commit.
const CLEANED_AT_ONCE: usize = 500;
/// How often a schedule is read again that was changed while it was to be run.
const RUN_TRIES: usize = 8;

fn no_schedule(id: ScheduleId) -> ApiError {
    let message = format!("there is no schedule {id}: check the id");
    ApiError::new(ErrorCode::NotFound, message)
}

impl Scheduler {
    /// Skips an addon, or one of its types, until it is resumed. What runs goes on. When this is answered, nothing of it
    /// is started here any more; other schedulers on a shared store follow when they look at it.
    pub fn pause(&self, request: PauseRequest) -> Reply<()> {
        self.pause_by(request, None)
    }

    /// Skips jobs of an addon or of one type until it is resumed, and keeps who wanted that, in words.
    pub fn pause_by(&self, request: PauseRequest, by: Option<String>) -> Reply<()> {
        let stamp = self.stamp();
        let pause = Pause {
            addon_id: request.addon_id,
            job_type: request.job_type,
            since: stamp.now.wall,
            reason: request.reason,
            by,
        };
        let answer = self.store().pause(stamp, pause);
        self.followed(self.reply(answer, |()| ()))
    }

    /// Skips it no longer. Whether it was skipped.
    pub fn resume(&self, request: PauseRequest) -> Reply<bool> {
        let stamp = self.stamp();
        let pause = Pause {
            addon_id: request.addon_id,
            job_type: request.job_type,
            since: stamp.now.wall,
            reason: None,
            by: None,
        };
        let answer = self.store().resume(stamp, pause);
        self.followed(self.reply(answer, |was| was))
    }

    /// Answers when the engine has read what was written.
    fn followed<T: Send + 'static>(&self, written: Reply<T>) -> Reply<T> {
        let this = self.clone();
        Reply::new(async move {
            let answer = written.await?;
            this.call(Call::FollowSettings).await.map(|()| answer)
        })
    }

    /// Forgets old things now: by the policy, or ended jobs that are older than the request says.
    pub fn clean(&self, request: CleanRequest) -> Reply<CleanAnswer> {
        let this = self.clone();
        Reply::new(async move {
            let now = this.stamp().now.wall;
            let mut retention = upkeep::before(now, &this.policy().retention);
            if let Some(seconds) = request.older_than_sec {
                let age = Duration::from_secs(seconds.into());
                let before = now.checked_sub(age).unwrap_or(Timestamp::MIN);
                let of = |state: JobState| {
                    let named = request.state.is_empty() || request.state.contains(&state);
                    if named { before } else { Timestamp::MIN }
                };
                retention.done = of(JobState::Done);
                retention.failed = of(JobState::Failed);
                retention.canceled = of(JobState::Canceled);
            }
            let mut answer = CleanAnswer::default();
            loop {
                let step = this.store().prune(this.stamp(), retention, CLEANED_AT_ONCE);
                let step = step.await.map_err(|error| told(&error))?;
                answer.jobs += step.jobs;
                answer.events += step.events;
                answer.keys += step.keys;
                answer.leases += step.leases;
                if !step.more {
                    return Ok(answer);
                }
            }
        })
    }

    /// All that is paused.
    pub fn pauses(&self) -> Reply<Vec<Pause>> {
        let answer = self.store().pauses();
        self.reply(answer, |pauses| pauses)
    }

    /// What was noted under names that begin so, by name: small things that belong to whoever uses the queue.
    pub fn notes(&self, prefix: impl Into<String>) -> Reply<Vec<(String, Json)>> {
        let answer = self.store().notes(prefix.into());
        self.reply(answer, |notes| notes)
    }

    /// Notes something under a name, or with `None` forgets it.
    pub fn put_note(&self, name: impl Into<String>, value: Option<Json>) -> Reply<()> {
        let answer = self.store().put_note(self.stamp(), name.into(), value);
        self.reply(answer, |()| ())
    }

    /// Takes a look now, whatever the timers say.
    pub fn kick(&self) {
        self.engine.post(Input::Kick);
    }

    /// Starts nothing new on this node, or starts again; workers are told with their next heartbeat.
    pub fn drain(&self, draining: bool) {
        self.engine.post(Input::Drain(draining));
    }

    /// Advises the run under a lease to checkpoint, and so to pause, whatever the load is; or no longer. Forgotten when the lease
    /// ends or the scheduler stops.
    pub fn pause_lease(&self, lease: LeaseId, paused: bool) {
        self.engine.post(Input::PauseLease(lease, paused));
    }

    /// Writes into a running job's trail that its run is paused, or goes on. The run itself is told by whom its worker calls.
    pub fn tell_run_paused(&self, job: JobId, paused: bool, reason: String) -> Reply<()> {
        let answer = self.store().pause_run(self.stamp(), job, paused, reason);
        self.reply(answer, |()| ())
    }

    /// Returns what the run under a lease of this node is advised.
    pub fn advice(&self, lease: LeaseId) -> Advice {
        self.engine.advice(lease)
    }

    /// Says how many programs are told of dispatches of these job types: webhooks and event streams. The types are served,
    /// so dispatches are reserved for them.
    pub fn set_listeners(&self, scope: ListenScope, count: u32) {
        self.engine.post(Input::Listeners(scope, count));
    }

    /// Takes a measurement of this machine. Without one for `busy.stale_after` nothing is admitted.
    pub fn sample(&self, sample: Sample) {
        self.engine.post(Input::Sample(sample));
    }

    /// Takes what the host measured of itself.
    ///
    /// # Errors
    /// If it is of another machine.
    pub fn push_signals(&self, request: SignalsRequest) -> Result<(), ApiError> {
        let own = &self.options().node;
        if request.node_id.as_ref().is_some_and(|node| node != own) {
            let message = format!("is not the node of this scheduler, which is {own}");
            return Err(ApiError::invalid(vec![FieldError::new("node_id", message)]));
        }
        self.engine.post(Input::Signals(HostSignals {
            latency_ms: request.p95_latency_ms,
            in_flight: request.in_flight,
            requests_per_sec: request.requests_per_sec,
            error_rate: request.error_rate,
        }));
        Ok(())
    }

    /// Returns the processes that workers registered with each lease that holds here. Which of them are believed is the
    /// sampler's to decide.
    pub fn processes(&self) -> Vec<Arc<LeaseProcesses>> {
        self.engine.published().processes.clone()
    }

    /// The policy in force.
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.engine.published().policy)
    }

    /// Replaces the policy. What runs goes on; the next decision is by the new one.
    ///
    /// # Errors
    /// What is wrong with it; then the old one stays in force.
    pub fn set_policy(&self, policy: Policy) -> Result<(), PolicyError> {
        policy.validate()?;
        self.engine.set_policy(Arc::new(policy));
        Ok(())
    }

    /// Replaces the policy by one written as TOML.
    ///
    /// # Errors
    /// What is wrong with it; then the old one stays in force.
    pub fn load_policy(&self, text: &str) -> Result<(), PolicyError> {
        let policy = Policy::from_toml(text)?;
        self.engine.set_policy(Arc::new(policy));
        Ok(())
    }

    /// All schedules, by name.
    pub fn schedules(&self) -> Reply<Vec<ScheduleView>> {
        let answer = self.store().schedules();
        self.reply(answer, |all| all.iter().map(view_of).collect())
    }

    /// A schedule.
    pub fn schedule(&self, id: ScheduleId) -> Reply<ScheduleView> {
        let this = self.clone();
        Reply::new(async move {
            let all = this.schedules().await?;
            let found = all.into_iter().find(|view| view.schedule_id == id);
            found.ok_or_else(|| no_schedule(id))
        })
    }

    /// Writes a schedule: a new one, or with an id in place of the one it names. It fires from now on; what a changed one
    /// has missed is forgotten.
    pub fn put_schedule(&self, id: Option<ScheduleId>, spec: ScheduleSpec) -> Reply<ScheduleView> {
        if let Err(wrong) = checked(spec.validate(self.limits())) {
            return wrong;
        }
        let new = id.is_none();
        let id = id.unwrap_or_else(ScheduleId::generate);
        let schedule = match Schedule::new(id, &spec) {
            Ok(schedule) => schedule,
            Err(error) => {
                let field = match error {
                    ScheduleError::Cron(_) => "cron",
                    ScheduleError::Zone(_) => "time_zone",
                };
                let wrong = FieldError::new(field, error.to_string());
                return Reply::ready(Err(ApiError::invalid(vec![wrong])));
            }
        };
        let this = self.clone();
        Reply::new(async move {
            let stamp = this.stamp();
            let mut record = ScheduleRecord {
                id,
                revision: 1,
                next_at: (!spec.paused)
                    .then(|| next_nominal(&schedule, stamp.now.wall))
                    .flatten(),
                spec,
                last_at: None,
                last_job: None,
            };
            if !new {
                let all = this.store().schedules().await;
                let all = all.map_err(|error| told(&error))?;
                let Some(before) = all.into_iter().find(|before| before.id == id) else {
                    let message =
                        format!("there is no schedule {id}: leave the id out for a new one");
                    return Err(ApiError::new(ErrorCode::NotFound, message));
                };
                (record.last_at, record.last_job) = (before.last_at, before.last_job);
            }
            let engine = Arc::clone(&this.engine);
            let answer = this.store().put_schedule(stamp, record);
            let told = this.reply(answer, move |record| {
                engine.post(Input::SettingsChanged);
                view_of(&record)
            });
            told.await
        })
    }

    /// Submits a schedule's job now, besides its calendar: its next time stays. What it forbids to overlap is refused.
    pub fn run_schedule(&self, id: ScheduleId) -> Reply<SubmitAnswer> {
        let this = self.clone();
        Reply::new(async move {
            for _ in 0..RUN_TRIES {
                let record = this.schedule_record(id).await?;
                let intent = record.spec.job.clone().validate(this.limits());
                let intent = intent.map_err(ApiError::invalid)?;
                let stamp = this.stamp();
                let firing = Firing {
                    schedule_id: id,
                    revision: record.revision,
                    at: whole_micros(stamp.now.wall),
                    job: Some(Submission::new(intent)),
                    unless: record
                        .last_job
                        .filter(|_| record.spec.overlap == Overlap::Forbid),
                    next_at: record.next_at,
                };
                let engine = Arc::clone(&this.engine);
                let fired = this.store().fire(stamp, firing);
                let fired = this.reply(fired, move |fired| {
                    engine.post(Input::SettingsChanged);
                    fired
                });
                if let Some(answer) = fired.await? {
                    return Ok(answer);
                }
                let now = this.schedule_record(id).await?;
                if let Some(last) = now.last_job.filter(|_| now.spec.overlap == Overlap::Forbid)
                    && !this.job(last).await.is_ok_and(|job| job.state.is_ended())
                {
                    let message = format!(
                        "job {last} of this schedule has not ended, and the schedule forbids overlap: wait for it or cancel it"
                    );
                    return Err(ApiError::new(ErrorCode::Conflict, message));
                }
                // It fired or was changed meanwhile: again, by its new record.
            }
            let message = format!("schedule {id} changes all the time: ask again");
            Err(ApiError::new(ErrorCode::Unavailable, message))
        })
    }

    /// A schedule as the store has it.
    fn schedule_record(&self, id: ScheduleId) -> Reply<ScheduleRecord> {
        let all = self.store().schedules();
        Reply::new(async move {
            let all = all.await.map_err(|error| told(&error))?;
            let found = all.into_iter().find(|record| record.id == id);
            found.ok_or_else(|| no_schedule(id))
        })
    }

    /// Pauses or resumes a schedule. What it misses while it is paused is never fired.
    pub fn pause_schedule(&self, id: ScheduleId, paused: bool) -> Reply<ScheduleView> {
        let this = self.clone();
        Reply::new(async move {
            let mut spec = this.schedule(id).await?.spec;
            spec.paused = paused;
            this.put_schedule(Some(id), spec).await
        })
    }

    /// Forgets a schedule. Jobs that it submitted stay.
    pub fn delete_schedule(&self, id: ScheduleId) -> Reply<()> {
        let engine = Arc::clone(&self.engine);
        let answer = self.store().delete_schedule(self.stamp(), id);
        self.reply(answer, move |()| engine.post(Input::SettingsChanged))
    }
}
