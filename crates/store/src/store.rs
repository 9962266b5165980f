//! The store, as its users see it: each command and each question is a method, whichever backend is behind it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobtree_protocol::{
    AckRequest, AddonId, CancelRequest, CompleteAnswer, CompleteRequest, EditRequest, Heartbeat,
    HeartbeatAnswer, JobId, JobQuery, JobState, Json, LeaseId, LogAppend, LogAppendAnswer, LogPage,
    NodeId, ReleaseRequest, ReportRequest, RevokeRequest, ScheduleId, SubmitAnswer,
};
use jobtree_queue::transitions::{
    Admit, Claim, Claimed, LoadAdvice, Proof, Reserve, TakeUp, TimeOut, TransitionError, Unclaimed,
};
use jobtree_queue::{JobRecord, LeaseRecord, Reservation};

use crate::answer::Answer;
use crate::backend::{
    Backend, HintListener, Listener, Listening, Submissions, command, question, work,
};
use crate::error::{OpenError, StoreError};
use crate::execute::{Firing, Stamp, Submission, Unit};
use crate::inspect::Inspected;
use crate::logs;
use crate::memory::Memory;
use crate::needs::{Name, Needs};
use crate::numbers::StoreNumbers;
use crate::sqlite::{Sqlite, SqliteOptions};
use crate::tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Result, Retention, ScheduleRecord, Tables,
};

/// A job, with the lease that it is held under.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// The job.
    pub job: Arc<JobRecord>,
    /// Its lease, if a worker has it.
    pub lease: Option<LeaseRecord>,
}

/// What an addon holds of a node's capacity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Where.
    pub node_id: NodeId,
    /// Who.
    pub addon_id: AddonId,
    /// Units of live leases and of reservations.
    pub units: u32,
    /// How many leases hold.
    pub leases: u32,
    /// How many reservations wait to be taken up.
    pub reservations: u32,
}

/// The queue's jobs, leases, keys, events and schedules, wherever they are kept. Clones are the same store; it closes
/// with the last of them.
#[derive(Clone)]
pub struct Store {
    backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stopped = self.stopped();
        f.debug_struct("Store").field("stopped", &stopped).finish()
    }
}

impl Store {
    /// A store that forgets everything with the process.
    pub fn in_memory() -> Self {
        Self::on(Memory::default())
    }

    /// A store in a SQLite file.
    ///
    /// # Errors
    /// If the file is in use, not ours, too new, or cannot be opened; see [`OpenError`].
    pub fn open(options: &SqliteOptions) -> std::result::Result<Self, OpenError> {
        Sqlite::open(options).map(Self::on)
    }

    /// Looks at a file without opening it as a store: whether that would succeed, and what it has. Nothing is written. Not for a file
    /// that this process has open.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, not ours or too new.
    pub fn inspect(path: impl AsRef<std::path::Path>) -> std::result::Result<Inspected, OpenError> {
        crate::sqlite::inspect(path.as_ref())
    }

    /// Looks at a PostgreSQL database without opening it as a store. Nothing is written.
    ///
    /// # Errors
    /// If the database cannot be reached, or its tables are too new.
    #[cfg(feature = "postgres")]
    pub fn inspect_postgres(
        options: &crate::PostgresOptions,
    ) -> std::result::Result<Inspected, OpenError> {
        crate::postgres::inspect(options)
    }

    /// A store in a PostgreSQL database, which schedulers on several machines may share.
    ///
    /// # Errors
    /// If the database cannot be reached, or its tables are too new; see [`OpenError`].
    #[cfg(feature = "postgres")]
    pub fn connect(options: &crate::PostgresOptions) -> std::result::Result<Self, OpenError> {
        crate::postgres::Postgres::open(options).map(Self::on)
    }

    /// A store on any backend.
    pub fn on(backend: impl Backend + 'static) -> Self {
        Self {
            backend: Arc::new(backend),
        }
    }

    /// Calls the listener with what each commit of this process wrote, in the order of commits, before anybody is
    /// answered, until what is returned is dropped. It must neither block, nor call the store and wait, nor hold the
    /// store.
    pub fn listen(&self, listener: Listener) -> Listening {
        Listening::to(&*self.backend, listener)
    }

    /// Calls the listener when other processes that share the database tell that they wrote something; never for what
    /// this store wrote. Hints may be lost: see [`Hint`](crate::Hint). To miss nothing that is told, listen first and
    /// read then. The listener must neither block, nor call the store and wait, nor hold the store.
    pub fn hints(&self, listener: HintListener) {
        self.backend.hints(listener);
    }

    /// Returns the jobs that programs submit in transactions of their own, if the store has a place for them.
    pub fn submissions(&self) -> Option<Box<dyn Submissions>> {
        self.backend.submissions()
    }

    /// Why the store has stopped, if it has.
    pub fn stopped(&self) -> Option<StoreError> {
        self.backend.stopped()
    }

    /// Why the store does not take changes now, if it does not: it has stopped, its disk is full, or its database does not
    /// answer. It is forgotten with the next commit that goes well.
    pub fn trouble(&self) -> Option<StoreError> {
        self.backend.trouble()
    }

    /// Returns `true` if no other process can have this store open while this one has: then a worker inside this process
    /// has surely ended when another process opens the store.
    pub fn is_owned(&self) -> bool {
        self.backend.is_owned()
    }

    /// Returns the leases that held when this store was opened, of workers
    /// [inside the process](jobtree_queue::LeaseRecord::in_process) that owned the store before. That process has ended, or
    /// has closed the store, which it does not do while one of its workers runs.
    pub fn orphaned_leases(&self) -> &[LeaseId] {
        self.backend.orphaned_leases()
    }

    /// What its writer has done since it was opened: how many calls shared a commit, and how long commits took.
    pub fn numbers(&self) -> StoreNumbers {
        self.backend.numbers()
    }

    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        Arc::clone(&self.backend)
    }

    /// How many handles there are of it.
    pub(crate) fn handles(&self) -> usize {
        Arc::strong_count(&self.backend)
    }

    /// Runs something that is no command of the rules.
    pub(crate) fn transact<T, F>(&self, run: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Tables) -> Result<T> + Send + 'static,
    {
        let (work, answer) = work(run);
        self.backend.transact(work);
        answer
    }

    /// Runs a command with what it is given, after it has announced what it will read.
    fn command<T, D, N, F>(&self, stamp: Stamp, given: D, announce: N, run: F) -> Answer<T>
    where
        T: Send + 'static,
        D: Clone + Send + 'static,
        N: Fn(&D, &mut Needs) + Send + 'static,
        F: Fn(&mut Unit<'_>, D) -> Result<T> + Send + 'static,
    {
        let run = move |tables: &mut dyn Tables, given| run(&mut Unit::new(tables, &stamp)?, given);
        let (work, answer) = command(given, announce, run);
        self.backend.transact(work);
        answer
    }

    /// Asks anything of one snapshot.
    pub fn read<T, F>(&self, ask: F) -> Answer<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut dyn Reading) -> Result<T> + Send + 'static,
    {
        let (query, answer) = question(ask);
        self.backend.snapshot(query);
        answer
    }
}

/// Submitting.
impl Store {
    /// Submits a job, or finds the one that was submitted before.
    pub fn submit(&self, stamp: Stamp, submission: Submission) -> Answer<SubmitAnswer> {
        self.command(
            stamp,
            submission,
            |it, needs| needs.submission(it),
            |unit, it| unit.submit(it),
        )
    }

    /// Submits many at once, each answered for itself. They may depend on ones before them.
    pub fn submit_many(
        &self,
        stamp: Stamp,
        submissions: Vec<Submission>,
    ) -> Answer<Vec<std::result::Result<SubmitAnswer, TransitionError>>> {
        self.command(
            stamp,
            submissions,
            |all, needs| all.iter().for_each(|it| needs.submission(it)),
            |unit, all| unit.submit_many(all),
        )
    }
}

/// Dispatching.
impl Store {
    /// Reserves a place for a waiting job. How many hold its concurrency key is counted here.
    pub fn reserve(&self, stamp: Stamp, job: JobId, command: Reserve) -> Answer<Reservation> {
        self.command(
            stamp,
            (job, command),
            |(job, _), needs| {
                needs.jobs.push(*job);
                needs.keyed_jobs.push(*job);
            },
            |unit, (job, command)| unit.reserve(job, command),
        )
    }

    /// Lets a job wait again whose dispatch nobody took up.
    pub fn return_unclaimed(
        &self,
        stamp: Stamp,
        job: JobId,
        reservation: LeaseId,
        why: Unclaimed,
    ) -> Answer<JobState> {
        self.command(
            stamp,
            why,
            move |_, needs| needs.jobs.push(job),
            move |unit, why| unit.return_unclaimed(job, reservation, &why),
        )
    }

    /// Turns a reservation into a lease.
    pub fn take_up(&self, stamp: Stamp, job: JobId, command: TakeUp) -> Answer<LeaseRecord> {
        self.command(
            stamp,
            command,
            move |command, needs| {
                needs.job_with_lease(job);
                needs.grant(command.lease_id);
            },
            move |unit, command| unit.take_up(job, command),
        )
    }

    /// Takes a dispatch up under a lease that was requested before, or a new one.
    pub fn ack(
        &self,
        stamp: Stamp,
        job: JobId,
        request: AckRequest,
        new: LeaseId,
    ) -> Answer<LeaseRecord> {
        self.command(
            stamp,
            request,
            move |request, needs| {
                needs.job_with_lease(job);
                needs.grant(new);
                needs.leases.extend(request.lease_id);
            },
            move |unit, request| unit.ack(job, request, new),
        )
    }

    /// Grants one lease for those of the jobs that can have it, in this order.
    pub fn claim(&self, stamp: Stamp, jobs: Vec<JobId>, command: Claim) -> Answer<Claimed> {
        self.command(
            stamp,
            (jobs, command),
            |(jobs, command), needs| {
                needs.grant(command.lease_id);
                needs.free_jobs.extend(jobs);
            },
            |unit, (jobs, command)| unit.claim(&jobs, command),
        )
    }

    /// Grants a lease of capacity alone.
    pub fn admit(&self, stamp: Stamp, command: Admit) -> Answer<LeaseRecord> {
        self.command(
            stamp,
            command,
            |command, needs| {
                needs.grant(command.lease_id);
                needs
                    .names
                    .extend(command.request_name().map(Name::Request));
            },
            |unit, command| unit.admit(command),
        )
    }

    /// Notes why a waiting job is not admitted.
    pub fn deny(&self, stamp: Stamp, job: JobId, code: String, reason: String) -> Answer<()> {
        self.command(
            stamp,
            (code, reason),
            move |_, needs| needs.jobs.push(job),
            move |unit, (code, reason)| unit.deny(job, &code, &reason),
        )
    }

    /// Notes that a deadline will probably be missed.
    pub fn mark_at_risk(&self, stamp: Stamp, job: JobId, reason: String) -> Answer<()> {
        self.command(
            stamp,
            reason,
            move |_, needs| needs.jobs.push(job),
            move |unit, reason| unit.mark_at_risk(job, &reason),
        )
    }

    /// Fails a job that waited beyond its deadline.
    pub fn miss_deadline(&self, stamp: Stamp, job: JobId) -> Answer<JobState> {
        self.command(
            stamp,
            job,
            |job, needs| needs.ending_job(*job),
            |unit, job| unit.miss_deadline(job),
        )
    }
}

/// Working.
impl Store {
    /// Renews a lease.
    pub fn heartbeat(
        &self,
        stamp: Stamp,
        request: Heartbeat,
        load: LoadAdvice,
    ) -> Answer<HeartbeatAnswer> {
        self.command(
            stamp,
            (request, load),
            |(request, _), needs| needs.leases.push(request.lease_id),
            |unit, (request, load)| unit.heartbeat(request, load),
        )
    }

    /// Asks a lease's worker to give back those of the jobs that it has not begun, and answers which. They wait again when
    /// the worker has confirmed, by a heartbeat, that it will not begin them.
    pub fn ask_back(&self, stamp: Stamp, lease: LeaseId, jobs: Vec<JobId>) -> Answer<Vec<JobId>> {
        self.command(
            stamp,
            jobs,
            move |_, needs| needs.leases.push(lease),
            move |unit, jobs| unit.ask_back(lease, &jobs),
        )
    }

    /// Notes what a running job tells.
    pub fn report(&self, stamp: Stamp, request: ReportRequest) -> Answer<()> {
        self.command(
            stamp,
            request,
            |request, needs| {
                needs.jobs.extend(request.job_id);
                needs.leases.push(request.lease_id);
            },
            |unit, request| unit.report(request),
        )
    }

    /// Keeps what a running job printed, up to the rules' limit for its log. A text that was kept before, as its offset
    /// tells, is not kept again.
    pub fn append_log(
        &self,
        stamp: Stamp,
        job: JobId,
        append: LogAppend,
    ) -> Answer<LogAppendAnswer> {
        self.command(
            stamp,
            append,
            move |append, needs| {
                needs.jobs.push(job);
                needs.leases.push(append.lease_id);
            },
            move |unit, append| unit.append_log(job, &append),
        )
    }

    /// Takes a worker's answer.
    pub fn complete(
        &self,
        stamp: Stamp,
        job: JobId,
        request: CompleteRequest,
    ) -> Answer<CompleteAnswer> {
        self.command(
            stamp,
            request,
            move |request, needs| {
                needs.ending_job(job);
                needs.leases.push(request.lease_id);
            },
            move |unit, request| unit.complete(job, &request),
        )
    }

    /// Takes many answers at once, each answered for itself.
    pub fn complete_many(
        &self,
        stamp: Stamp,
        requests: Vec<(JobId, CompleteRequest)>,
    ) -> Answer<Vec<std::result::Result<CompleteAnswer, StoreError>>> {
        self.command(
            stamp,
            requests,
            |requests, needs| {
                for (job, request) in requests {
                    needs.ending_job(*job);
                    needs.leases.push(request.lease_id);
                }
            },
            |unit, requests| unit.complete_many(&requests),
        )
    }

    /// Gives a lease back.
    pub fn release(&self, stamp: Stamp, lease: LeaseId, request: ReleaseRequest) -> Answer<()> {
        self.command(
            stamp,
            request,
            move |_, needs| needs.whole_leases.push(lease),
            move |unit, request| unit.release(lease, &request),
        )
    }

    /// Takes a lease away.
    pub fn revoke(&self, stamp: Stamp, lease: LeaseId, request: RevokeRequest) -> Answer<()> {
        self.command(
            stamp,
            request,
            move |_, needs| needs.whole_leases.push(lease),
            move |unit, request| unit.revoke(lease, &request),
        )
    }

    /// Ends a lease that was not renewed.
    pub fn expire(&self, stamp: Stamp, lease: LeaseId, proof: Proof) -> Answer<()> {
        self.command(
            stamp,
            proof,
            move |_, needs| needs.whole_leases.push(lease),
            move |unit, proof| unit.expire(lease, proof),
        )
    }

    /// Ends a run that took too long.
    pub fn time_out(&self, stamp: Stamp, lease: LeaseId, command: TimeOut) -> Answer<JobState> {
        self.command(
            stamp,
            command,
            move |_, needs| needs.whole_leases.push(lease),
            move |unit, command| unit.time_out(lease, command),
        )
    }
}

/// Changing one's mind.
impl Store {
    /// Stops a job.
    pub fn cancel(&self, stamp: Stamp, job: JobId, request: CancelRequest) -> Answer<JobState> {
        self.command(
            stamp,
            request,
            move |_, needs| {
                needs.job_with_lease(job);
                needs.ending.push(job);
            },
            move |unit, request| unit.cancel(job, &request),
        )
    }

    /// Queues a dead letter again.
    pub fn redrive(&self, stamp: Stamp, job: JobId, reason: Option<String>) -> Answer<JobState> {
        self.command(
            stamp,
            reason,
            move |_, needs| needs.jobs.push(job),
            move |unit, reason| unit.redrive(job, reason.as_deref()),
        )
    }

    /// Ends a wait for a start time or a retry.
    pub fn hasten(&self, stamp: Stamp, job: JobId) -> Answer<()> {
        self.command(
            stamp,
            job,
            |job, needs| needs.jobs.push(*job),
            |unit, job| unit.hasten(job),
        )
    }

    /// Changes a job that waits; returns it as it is then.
    pub fn edit(&self, stamp: Stamp, job: JobId, request: EditRequest) -> Answer<Arc<JobRecord>> {
        self.command(
            stamp,
            request,
            move |_, needs| needs.jobs.push(job),
            move |unit, request| unit.edit(job, &request),
        )
    }

    /// Writes into a running job's trail that its run is paused, or goes on.
    pub fn pause_run(&self, stamp: Stamp, job: JobId, paused: bool, reason: String) -> Answer<()> {
        self.command(
            stamp,
            reason,
            move |_, needs| needs.jobs.push(job),
            move |unit, reason| unit.pause_run(job, paused, reason),
        )
    }

    /// Skips an addon or a type from now on.
    pub fn pause(&self, stamp: Stamp, pause: Pause) -> Answer<()> {
        self.command(
            stamp,
            pause,
            |_, needs| needs.settings = true,
            |unit, pause| unit.pause(&pause),
        )
    }

    /// Writes into the trail that the load state of a node has changed, in words.
    pub fn tell_load_state(&self, stamp: Stamp, node: NodeId, reason: String) -> Answer<()> {
        self.command(
            stamp,
            (node, reason),
            |_, _| {},
            |unit, (node, reason)| unit.tell_load_state(node, reason),
        )
    }

    /// Skips it no longer. Whether it was skipped; when and why do not matter.
    pub fn resume(&self, stamp: Stamp, pause: Pause) -> Answer<bool> {
        self.command(
            stamp,
            pause,
            |_, needs| needs.settings = true,
            |unit, pause| unit.resume(&pause),
        )
    }
}

/// Schedules, and what was learnt.
impl Store {
    /// Writes a schedule, a new one or a changed one.
    pub fn put_schedule(&self, stamp: Stamp, schedule: ScheduleRecord) -> Answer<ScheduleRecord> {
        self.command(
            stamp,
            schedule,
            |_, needs| needs.settings = true,
            |unit, schedule| unit.put_schedule(schedule),
        )
    }

    /// Forgets a schedule.
    pub fn delete_schedule(&self, stamp: Stamp, id: ScheduleId) -> Answer<()> {
        self.command(
            stamp,
            id,
            |_, needs| needs.settings = true,
            |unit, id| unit.delete_schedule(id),
        )
    }

    /// Fires a schedule, at most once for each time: `None` if it was fired before, or if this firing has no job.
    pub fn fire(&self, stamp: Stamp, firing: Firing) -> Answer<Option<SubmitAnswer>> {
        self.command(
            stamp,
            firing,
            |firing, needs| {
                needs.settings = true;
                needs.jobs.extend(firing.unless);
                firing.job.iter().for_each(|job| needs.submission(job));
            },
            |unit, firing| unit.fire(firing),
        )
    }

    /// Notes something under a name, or with `None` forgets it.
    pub fn put_note(&self, stamp: Stamp, name: String, value: Option<Json>) -> Answer<()> {
        self.command(
            stamp,
            (name, value),
            |_, _| {},
            |unit, (name, value)| unit.tables().put_note(&name, value.as_ref()),
        )
    }

    /// Forgets old things, at most `limit` of each kind.
    pub fn prune(&self, stamp: Stamp, retention: Retention, limit: usize) -> Answer<Pruned> {
        self.command(
            stamp,
            retention,
            |_, _| {},
            move |unit, retention| unit.tables().prune(&retention, limit),
        )
    }
}

/// Asking. Each answer is of one snapshot; for several questions to the same one, see [`Store::read`].
impl Store {
    /// A job, and its lease.
    pub fn job(&self, id: JobId) -> Answer<Told> {
        self.read(move |tables| {
            let job = tables.jobs(&[id])?.pop().ok_or(StoreError::NoJob(id))?;
            let lease = match job.lease_id {
                None => None,
                Some(id) => tables.lease(id)?,
            };
            Ok(Told { job, lease })
        })
    }

    /// A lease.
    pub fn lease(&self, id: LeaseId) -> Answer<LeaseRecord> {
        self.read(move |tables| tables.lease(id)?.ok_or(StoreError::NoLease(id)))
    }

    /// Jobs that a query finds.
    pub fn list(&self, query: JobQuery, limit: usize) -> Answer<Page> {
        self.read(move |tables| tables.list(&query, limit))
    }

    /// The trail of a job.
    pub fn events_of(&self, job: JobId) -> Answer<Vec<Recorded>> {
        self.read(move |tables| tables.events_of(job))
    }

    /// The trail of everything after a place.
    pub fn events_after(&self, cursor: u64, limit: usize) -> Answer<Vec<Recorded>> {
        self.read(move |tables| tables.events_after(cursor, limit))
    }

    /// What a job printed after a place, at most so many bytes and never more than 256 KiB.
    pub fn log(&self, job: JobId, after: u64, most: usize) -> Answer<LogPage> {
        self.read(move |tables| logs::read_log(tables, job, after, most))
    }

    /// All leases that hold: what is used is computed from them and from [`Store::dispatching`].
    pub fn live_leases(&self) -> Answer<Vec<LeaseRecord>> {
        self.read(|tables| tables.live_leases())
    }

    /// All jobs with a place that waits to be taken up.
    pub fn dispatching(&self) -> Answer<Vec<Arc<JobRecord>>> {
        self.read(|tables| tables.dispatching())
    }

    /// What is used, computed from live leases and reservations: there is no counter that could be wrong.
    pub fn usage(&self) -> Answer<Vec<Usage>> {
        self.read(|tables| {
            let mut used: BTreeMap<(NodeId, AddonId), Usage> = BTreeMap::new();
            let mut of = |node_id: &NodeId, addon_id: &AddonId, units, leases, reservations| {
                let usage = used
                    .entry((node_id.clone(), addon_id.clone()))
                    .or_insert_with(|| Usage {
                        node_id: node_id.clone(),
                        addon_id: addon_id.clone(),
                        units: 0,
                        leases: 0,
                        reservations: 0,
                    });
                usage.units += units;
                usage.leases += leases;
                usage.reservations += reservations;
            };
            for lease in tables.live_leases()? {
                of(&lease.node_id, &lease.addon_id, lease.cost(), 1, 0);
            }
            for job in tables.dispatching()? {
                if let Some(reservation) = &job.reservation {
                    of(&reservation.node_id, &job.intent.addon_id, job.cost(), 0, 1);
                }
            }
            Ok(used.into_values().collect())
        })
    }

    /// Waiting jobs, page by page.
    pub fn queued(&self, after: Option<JobId>, limit: usize) -> Answer<Vec<Arc<JobRecord>>> {
        self.read(move |tables| tables.queued(after, limit))
    }

    /// How many jobs are in each state. Reads every row.
    pub fn counts(&self, ended: bool) -> Answer<Vec<Count>> {
        self.read(move |tables| tables.counts(ended))
    }

    /// How many leases and reservations hold a concurrency key.
    pub fn key_holders(&self, addon: AddonId, key: String) -> Answer<u32> {
        self.read(move |tables| tables.key_holders(&addon, &key))
    }

    /// All schedules.
    pub fn schedules(&self) -> Answer<Vec<ScheduleRecord>> {
        self.read(|tables| tables.schedules())
    }

    /// All that is paused.
    pub fn pauses(&self) -> Answer<Vec<Pause>> {
        self.read(|tables| tables.pauses())
    }

    /// All notes whose names begin so.
    pub fn notes(&self, prefix: String) -> Answer<Vec<(String, Json)>> {
        self.read(move |tables| tables.notes(&prefix))
    }
}
