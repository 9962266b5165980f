//! Runs a program on a real runtime, step by step, beside the model.
//!
//! After each step it waits until what is seen of the real tree is what one of the possible worlds says: every
//! job's state, cause, children and error, every report of a body, every wake of a waiter, every counter. If
//! that does not come, the program has failed.

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::task::Poll;
use std::time::{Duration, Instant};

use jobtree_runtime::{Counters, Job, JobHandle, JobState, Runtime, WaitingFor};

use crate::bodies::{Answer, Command, Mailbox, StartingLine, Strand, Value, detach, reason};
use crate::events::Lives;
use crate::invariants::Watch;
use crate::ledger::{Kind, Ledger};
use crate::model::{Awaited, Tally};
use crate::program::{Op, Step};
use crate::script::Script;
use crate::told::{Id, Numbers};
use crate::waiters::Waiter;
use crate::world::{Doing, Report, World};

/// Events of one program at most; more would be lost.
pub const MOST_EVENTS: usize = 1 << 14;

/// Why a program failed.
pub struct Mismatch {
    pub program: Vec<Step>,
    pub difference: String,
    pub dump: String,
}

/// One program on its way.
pub struct Conductor<'a> {
    runtime: &'a Runtime,
    single_worker: bool,
    patience: Duration,
    sender: Sender<(Id, Answer)>,
    answers: Receiver<(Id, Answer)>,
    ledger: Arc<Ledger>,
    numbers: Numbers,
    jobs: Vec<Option<Job>>,
    /// The jobs whose end was compared already.
    compared: Vec<bool>,
    handles: Vec<Option<JobHandle<Value>>>,
    mailboxes: Vec<Option<Arc<Mailbox>>>,
    reports: Vec<Vec<Report>>,
    waiters: Vec<Waiter>,
    watch: Watch,
    counters_before: Counters,
    worlds: Vec<World>,
}

/// Runs the program that `script` makes up, and calls `progress` after each step.
pub fn conduct(
    runtime: &Runtime,
    workers: usize,
    patience: Duration,
    mut script: Script,
    progress: &dyn Fn(),
) -> Result<usize, Mismatch> {
    let (sender, answers) = channel();
    // What a failed program leaves behind may wait for ever: it is not dropped.
    let mut conductor = ManuallyDrop::new(Conductor {
        runtime,
        single_worker: workers == 1,
        patience,
        sender,
        answers,
        ledger: Arc::default(),
        numbers: Numbers::default(),
        jobs: Vec::new(),
        compared: Vec::new(),
        handles: Vec::new(),
        mailboxes: Vec::new(),
        reports: Vec::new(),
        waiters: Vec::new(),
        watch: Watch::default(),
        counters_before: runtime.counters(),
        worlds: vec![World::default()],
    });
    let mut program = Vec::new();
    let fail = |program: Vec<Step>, difference: String| {
        let dump = runtime.dump_tree().to_string();
        Err(Mismatch {
            program,
            difference,
            dump,
        })
    };
    while let Some(step) = script.next(&conductor.worlds[0]) {
        program.push(step.clone());
        let result = conductor.step(&step);
        progress();
        if let Err(difference) = result {
            return fail(program, difference);
        }
    }
    match ManuallyDrop::into_inner(conductor).finish() {
        Ok(()) => Ok(program.len()),
        Err(difference) => fail(program, difference),
    }
}

impl Conductor<'_> {
    fn step(&mut self, step: &[Op]) -> Result<(), String> {
        let possible: Vec<World> = std::mem::take(&mut self.worlds)
            .into_iter()
            .flat_map(|world| world.after(step, self.single_worker))
            .collect();
        self.reports.iter_mut().for_each(Vec::clear);
        self.act(step);
        self.worlds = self.seen_of(possible)?;
        let world = &self.worlds[0];
        for (job, is_compared) in self.compared.iter_mut().enumerate() {
            *is_compared |= world.tree.jobs[job].end.is_some();
        }
        self.watch.check(&self.jobs, world)
    }

    fn act(&mut self, step: &[Op]) {
        let line = StartingLine::new(step.len());
        // Bodies first: those outside are the first at the line, and wait there.
        for op in step.iter().filter(|op| op.strand().is_some()) {
            self.tell(op, &line);
        }
        for op in step.iter().filter(|op| op.strand().is_none()) {
            line.go();
            self.act_outside(op);
        }
    }

    fn strand(&mut self, job: Id) -> Strand {
        let (strand, mailbox) = Strand::new(
            job,
            self.sender.clone(),
            Arc::clone(&self.ledger),
            self.runtime.clone(),
        );
        self.make_room(job);
        self.mailboxes[job] = Some(mailbox);
        strand
    }

    fn make_room(&mut self, job: Id) {
        let len = self.jobs.len().max(job + 1);
        self.jobs.resize_with(len, || None);
        self.compared.resize(len, false);
        self.handles.resize_with(len, || None);
        self.mailboxes.resize_with(len, || None);
        self.reports.resize_with(len, Vec::new);
    }

    fn take_handle(&mut self, job: Id) -> JobHandle<Value> {
        let handle = self.handles[job].take();
        handle.expect("the model knows who has the handle")
    }

    fn job(&self, job: Id) -> &Job {
        self.jobs[job]
            .as_ref()
            .expect("the model knows who is known")
    }

    fn tell(&mut self, op: &Op, line: &Arc<StartingLine>) {
        let (strand, command) = match *op {
            Op::DetachBy { strand, child } => {
                let child = self.strand(child);
                (strand, Command::Detach { strand: child })
            }
            Op::Spawn {
                strand,
                child,
                how,
                then_cancel,
            } => {
                let command = Command::Spawn {
                    strand: self.strand(child),
                    how,
                    then_cancel,
                };
                (strand, command)
            }
            Op::Open {
                strand,
                scope,
                kind,
            } => {
                self.make_room(scope);
                (strand, Command::Open { scope, kind })
            }
            Op::Join {
                strand,
                target,
                or_return,
            } => {
                let handle = self.take_handle(target);
                let command = Command::Join {
                    target,
                    handle,
                    or_return,
                };
                (strand, command)
            }
            Op::Check { strand } => (strand, Command::Check),
            Op::Return { strand, ending } => (strand, Command::Return(ending)),
            Op::CancelBy { strand, job, why } => {
                let job = self.job(job).clone();
                (strand, Command::Cancel { job, why })
            }
            ref outside => unreachable!("{outside:?} is not for a body"),
        };
        let mailbox = self.mailboxes[strand].take().expect("the body listens");
        self.mailboxes[strand] = Some(mailbox.send(command, Arc::clone(line)));
    }

    fn act_outside(&mut self, op: &Op) {
        match *op {
            Op::Detach { child } => {
                let strand = self.strand(child);
                let handle = detach(strand, self.runtime);
                self.keep(child, Some(handle));
            }
            Op::Cancel { job, why } => {
                self.job(job).cancel(reason(why));
            }
            Op::Wait { job, awaited, .. } => {
                let waiter = match awaited {
                    Awaited::Outcome => Waiter::for_handle(self.take_handle(job)),
                    Awaited::End | Awaited::Cancellation => Waiter::for_job(self.job(job), awaited),
                };
                self.waiters.push(waiter);
            }
            Op::Renew { waiter } => {
                let _ = self.waiters[waiter].poll();
            }
            Op::StopWaiting { waiter } => self.waiters[waiter].stop(),
            Op::DropHandle { job } => drop(self.take_handle(job)),
            ref inside => unreachable!("{inside:?} is for a body"),
        }
    }

    fn know(&mut self, number: Id, job: &Job) {
        self.numbers.learn(job.id(), number);
        self.jobs[number].get_or_insert_with(|| job.clone());
    }

    fn keep(&mut self, number: Id, handle: Option<JobHandle<Value>>) {
        if let Some(handle) = &handle {
            self.know(number, handle.job());
        }
        self.handles[number] = handle;
    }

    fn hear(&mut self, strand: Id, answer: Answer) {
        let report = match answer {
            Answer::Began(job) => {
                self.know(strand, &job);
                Report::Began
            }
            Answer::Detached(child, handle) => {
                self.keep(child, Some(handle));
                Report::Detached(child)
            }
            Answer::Spawned(child, handle) => {
                self.keep(child, handle);
                Report::Spawned(child)
            }
            Answer::Opened(scope, job) => {
                self.know(scope, &job);
                Report::Opened(scope)
            }
            Answer::Closed(scope, outcome) => {
                if let (None, Err(jobtree_runtime::JobError::Cancelled(cancelled))) =
                    (&self.jobs[scope], &outcome)
                {
                    // It never ran, so nobody has seen it before.
                    self.numbers.learn(cancelled.job(), scope);
                }
                Report::Closed(scope, outcome.map_err(|error| self.numbers.told(&error)))
            }
            Answer::Joined(target, outcome) => {
                Report::Joined(target, outcome.map_err(|error| self.numbers.told(&error)))
            }
            Answer::Cancelled(was_first) => Report::Cancelled(was_first),
            Answer::Unharmed => Report::Unharmed,
        };
        self.reports[strand].push(report);
    }

    /// Waits until at least one of the possible worlds is what is seen; all of them that are.
    fn seen_of(&mut self, possible: Vec<World>) -> Result<Vec<World>, String> {
        let deadline = Instant::now() + self.patience;
        loop {
            while let Ok((strand, answer)) = self.answers.try_recv() {
                self.hear(strand, answer);
            }
            let reported = possible
                .iter()
                .any(|world| self.difference_of_reports(world).is_none());
            let is_seen = |world: &&World| self.difference(world).is_none();
            if reported && possible.iter().any(|world| is_seen(&world)) {
                // Now that everything has come to rest, those that were looked at before get their chance.
                return Ok(possible.iter().filter(is_seen).cloned().collect());
            }
            if Instant::now() > deadline {
                let differences: Vec<String> = possible
                    .iter()
                    .filter_map(|world| self.difference(world))
                    .take(5)
                    .collect();
                return Err(format!(
                    "{} possible worlds, none of them is seen:\n    {}",
                    possible.len(),
                    differences.join("\n    ")
                ));
            }
            if reported {
                // Words change a moment after bodies have told.
                std::thread::yield_now();
                continue;
            }
            match self.answers.recv_timeout(Duration::from_millis(1)) {
                Ok((strand, answer)) => self.hear(strand, answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("it has a sender itself"),
            }
        }
    }

    fn difference_of_reports(&self, world: &World) -> Option<String> {
        for (job, reports) in self.reports.iter().enumerate() {
            let strand = world.strands.get(job).and_then(Option::as_ref);
            let expected = strand.map_or(&[][..], |strand| &strand.reports);
            if reports != expected {
                return Some(format!(
                    "the body of {job} told {reports:?}, but {expected:?} was expected"
                ));
            }
        }
        None
    }

    /// The first thing that is seen otherwise than `world` says.
    fn difference(&self, world: &World) -> Option<String> {
        self.difference_of_reports(world)
            .or_else(|| {
                (0..self.jobs.len())
                    .find_map(|job| self.difference_of_job(world, job, self.jobs[job].as_ref()?))
            })
            .or_else(|| self.difference_of_root(world))
            .or_else(|| self.difference_of_waiters(world))
            .or_else(|| self.difference_of_counters(world))
    }

    fn difference_of_job(&self, world: &World, number: Id, job: &Job) -> Option<String> {
        let expected = &world.tree.jobs[number];
        let differs = |what: &str, seen: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
            Some(format!(
                "{what} of job {number}: {seen:?}, but {expected:?} was expected"
            ))
        };
        let state = job.state();
        if state != expected.state() {
            return differs("state", &state, &expected.state());
        }
        if self.compared[number] {
            return None;
        }
        let cancellation = job.cancellation();
        let origin = cancellation.as_ref().map(|c| self.numbers.of(c.origin()));
        let expected_origin = expected.request.as_ref().map(|request| request.origin);
        if origin != expected_origin {
            return differs("origin of the cancellation", &origin, &expected_origin);
        }
        let reason = cancellation.as_ref().map(|cancelled| {
            let message = cancelled.reason().message();
            let number = message.map(|message| message.parse().unwrap_or(u32::MAX));
            (cancelled.reason().cause(), number)
        });
        let expected_reason = world.tree.reason(number);
        if reason != expected_reason {
            return differs("reason", &reason, &expected_reason);
        }
        let error = job.error().map(|error| self.numbers.told(&error));
        let expected_error = world.tree.error(number);
        if error != expected_error {
            return differs("error", &error, &expected_error);
        }
        let children = self.children(job);
        let expected_children: Vec<Id> = world.tree.active_children(Some(number)).collect();
        if children != expected_children {
            return differs("children", &children, &expected_children);
        }
        let waits_for = self.expected_wait(world, number);
        if let Some(expected) = waits_for
            && job.waiting_for() != Some(expected)
        {
            return differs("what it waits for", &job.waiting_for(), &expected);
        }
        None
    }

    fn children(&self, job: &Job) -> Vec<Id> {
        let children = job.children();
        let mut numbers: Vec<Id> = children
            .iter()
            .map(|child| self.numbers.of(child.id()))
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// A job tells its parent last of all, so one that has left the root's children has woken all its waiters.
    fn difference_of_root(&self, world: &World) -> Option<String> {
        let children = self.children(self.runtime.root());
        let expected: Vec<Id> = world.tree.active_children(None).collect();
        (children != expected)
            .then(|| format!("children of the root: {children:?}, but {expected:?} was expected"))
    }

    /// What the job has to say that it waits for, if that is certain.
    fn expected_wait(&self, world: &World, job: Id) -> Option<WaitingFor> {
        let strands = world.strands.iter().flatten();
        let mut on_top = strands.filter(|strand| strand.top().job == job);
        match on_top.next()?.doing {
            Doing::Joins { target, .. } => Some(WaitingFor::Job(self.job(target).id())),
            Doing::Closes => Some(WaitingFor::Children),
            Doing::Nothing | Doing::Listens | Doing::Cancels { .. } | Doing::Returned => None,
        }
    }

    fn difference_of_waiters(&self, world: &World) -> Option<String> {
        let expected = world.tree.waiters.iter().map(|waiter| &waiter.wakes);
        let mut pairs = self.waiters.iter().zip(expected).enumerate();
        pairs.find_map(|(number, (waiter, expected))| {
            let wakes = waiter.wakes();
            (wakes != *expected).then(|| {
                format!("waiter {number} was woken {wakes:?} times, but {expected:?} was expected")
            })
        })
    }

    fn difference_of_counters(&self, world: &World) -> Option<String> {
        let (now, before) = (self.runtime.counters(), &self.counters_before);
        let exactly = |number: u64| Tally {
            certain: number,
            uncertain: 0,
        };
        let tree = &world.tree;
        let ended = |state: JobState| exactly(tree.ended_as(state));
        let totals = &tree.totals;
        [
            (
                "created",
                now.created - before.created,
                exactly(totals.created),
            ),
            (
                "cancel_requests",
                now.cancel_requests - before.cancel_requests,
                exactly(totals.cancel_requests),
            ),
            (
                "completed",
                now.completed - before.completed,
                ended(JobState::Completed),
            ),
            (
                "failed",
                now.failed - before.failed,
                ended(JobState::Failed),
            ),
            (
                "cancelled",
                now.cancelled - before.cancelled,
                ended(JobState::Cancelled),
            ),
            (
                "timed_out",
                now.timed_out - before.timed_out,
                ended(JobState::TimedOut),
            ),
            (
                "waiters_registered",
                now.waiters_registered - before.waiters_registered,
                totals.registered,
            ),
            (
                "waiters_woken",
                now.waiters_woken - before.waiters_woken,
                totals.woken,
            ),
        ]
        .into_iter()
        .find_map(|(name, seen, expected)| {
            let range = expected.certain..=expected.certain + expected.uncertain;
            (!range.contains(&seen))
                .then(|| format!("counter {name}: {seen}, but {range:?} was expected"))
        })
    }

    /// All bodies have returned: every job has ended, every waiter has heard of it, and nothing is left.
    fn finish(mut self) -> Result<(), String> {
        let world = self.worlds[0].clone();
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            let job = world.tree.waiters[number].job;
            if !world.is_ready(number) {
                continue;
            }
            if let Poll::Ready(Some(outcome)) = waiter.poll() {
                let outcome = outcome
                    .map(|value| value.made_by)
                    .map_err(|error| self.numbers.told(&error));
                let expected = world.tree.outcome(job);
                if outcome != expected {
                    return Err(format!(
                        "waiter {number} got {outcome:?}, but {expected:?} was expected"
                    ));
                }
            }
        }
        for number in 0..self.handles.len() {
            let Some(handle) = self.handles[number].take() else {
                continue;
            };
            let outcome = handle
                .join()
                .map(|value| value.made_by)
                .map_err(|error| self.numbers.told(&error));
            let expected = world.tree.outcome(number);
            if outcome != expected {
                return Err(format!(
                    "handle of {number} gave {outcome:?}, but {expected:?} was expected"
                ));
            }
        }
        let now = self.runtime.counters();
        let before = &self.counters_before;
        let created = now.created - before.created;
        let ended = (now.completed + now.failed + now.cancelled + now.timed_out)
            - (before.completed + before.failed + before.cancelled + before.timed_out);
        if created != ended {
            return Err(format!("{created} jobs were made, and {ended} have ended"));
        }
        self.jobs.clear();
        self.waiters.clear();
        self.mailboxes.clear();
        // The last reference to a job is given back a moment after its end is seen.
        self.wait_until(|this| this.ledger.unbalanced().is_empty())
            .map_err(|()| {
                let left = self.ledger.unbalanced();
                let made: Vec<i64> = left
                    .iter()
                    .map(|(kind, _)| self.ledger.made(*kind))
                    .collect();
                format!("leaked: {left:?} of {made:?} made")
            })?;
        if self.ledger.made(Kind::Body) == 0 {
            return Err("no body was made, so nothing was tested".to_owned());
        }
        // And so is the event of its end.
        let events = RefCell::new(Lives::default());
        let all_told = self.wait_until(|this| {
            let mut events = events.borrow_mut();
            events.add(&this.runtime.take_events());
            events.ended() >= world.tree.totals.created
        });
        // If some are missing, the check says which.
        let _ = all_told;
        events.into_inner().check(&self.numbers, &world)
    }

    fn wait_until(&self, has_come: impl Fn(&Self) -> bool) -> Result<(), ()> {
        let deadline = Instant::now() + self.patience;
        while !has_come(self) {
            if Instant::now() > deadline {
                return Err(());
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}
