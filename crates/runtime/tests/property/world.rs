//! The model of a whole program: the tree, and the bodies that act in it.
//!
//! A step may be answered in more than one way: two operations at the same time happen in either order, a
//! cancellation takes its time to come down, and a body that waits for two things hears of either first. So a step turns a world into all the worlds that it
//! may lead to; what is then seen of the real tree tells which of them are possible.

use std::collections::{BTreeSet, HashSet};

use crate::model::{Awaited, Nature, Return, Tree};
use crate::program::{Ending, How, Op, Why};
use crate::told::{Id, Told, What};

/// What a body tells when it has done something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Report {
    Began,
    Detached(Id),
    Spawned(Id),
    Opened(Id),
    Closed(Id, Result<Id, Told>),
    Joined(Id, Result<Id, Told>),
    /// Whether the request was the first one.
    Cancelled(bool),
    /// The checkpoint found nothing.
    Unharmed,
}

/// What a body is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doing {
    /// It has not begun.
    Nothing,
    /// It waits to be told what to do.
    Listens,
    /// It is about to cancel a job that it has just spawned.
    Cancels {
        child: Id,
        why: Why,
    },
    Joins {
        target: Id,
        or_return: bool,
    },
    /// It waits for the children of the scope that it leaves.
    Closes,
    Returned,
}

/// A scope that a body is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    pub job: Id,
    /// The nursery that jobs are spawned in.
    pub nursery: Option<Id>,
    /// The last error that a join or an inner scope gave.
    pub held: Option<Told>,
}

/// Whether a body that waits had to enter itself as a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wait {
    /// What it waits for had come.
    Needless,
    InThisStep,
    Earlier,
}

/// The body of a job that runs on the pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Strand {
    pub frames: Vec<Frame>,
    pub doing: Doing,
    wait: Wait,
    /// What it has told in this step.
    pub reports: Vec<Report>,
}

impl Strand {
    pub fn top(&self) -> &Frame {
        self.frames.last().expect("a body is in its job")
    }
}

/// See the module's head.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct World {
    pub tree: Tree,
    /// By the number of the job; none for scopes.
    pub strands: Vec<Option<Strand>>,
    /// The jobs that the one outside knows.
    pub known: Vec<bool>,
    /// The jobs whose handle the one outside has.
    pub handles: Vec<bool>,
    /// Waits that ended in this step: whose job it was, for which one, and what is known of it.
    waits_over: Vec<(Id, Id, Wait)>,
    is_race: bool,
}

impl World {
    /// All worlds that `step` leads to. With a single worker nothing begins before a body that spawns has parked.
    pub fn after(mut self, step: &[Op], single_worker: bool) -> Vec<World> {
        for strand in self.strands.iter_mut().flatten() {
            strand.reports.clear();
            strand.wait = Wait::Earlier;
        }
        self.is_race = step.len() > 1;
        let mut ends = HashSet::new();
        let mut seen = HashSet::new();
        let mut open = vec![(self, step.to_vec())];
        while let Some((mut world, left)) = open.pop() {
            world.pass_on_unnoticed(&left);
            let reactions = world.reactions();
            if left.is_empty() && reactions.is_empty() {
                ends.insert(world.closed_step());
                continue;
            }
            let mut consider = |world: World, left: Vec<Op>| {
                let place = (world, left.len(), left.first().and_then(Op::strand));
                if !seen.contains(&place) {
                    open.push((place.0.clone(), left));
                    seen.insert(place);
                }
            };
            for index in 0..left.len() {
                let mut rest = left.clone();
                let op = rest.remove(index);
                for next in world.clone().with(&op, single_worker) {
                    consider(next, rest.clone());
                }
            }
            for reaction in reactions {
                let mut next = world.clone();
                next.react(reaction);
                consider(next, left.clone());
            }
        }
        ends.into_iter().collect()
    }

    pub fn strand(&self, job: Id) -> &Strand {
        self.strands[job].as_ref().expect("the job has a body")
    }

    fn strand_mut(&mut self, job: Id) -> &mut Strand {
        self.strands[job].as_mut().expect("the job has a body")
    }

    fn report(&mut self, job: Id, report: Report) {
        self.strand_mut(job).reports.push(report);
    }

    fn make_room(&mut self, job: Id) {
        let jobs = self.strands.len().max(job + 1);
        self.strands.resize(jobs, None);
        self.known.resize(jobs, false);
        self.handles.resize(jobs, false);
    }

    fn spawn(&mut self, job: Id, parent: Option<Id>, how: How) {
        self.make_room(job);
        let nature = Nature {
            supervisor: how == How::Supervisor,
            ..Nature::default()
        };
        self.tree.attach(job, parent, nature);
        self.handles[job] = how != How::Launched;
        self.known[job] = how != How::Launched;
        self.strands[job] = Some(Strand {
            frames: vec![Frame {
                job,
                nursery: parent,
                held: None,
            }],
            doing: Doing::Nothing,
            wait: Wait::Needless,
            reports: Vec::new(),
        });
        if self.tree.is_cancelled(job) {
            self.refuse(job);
        }
    }

    /// The job was cancelled before it began.
    fn refuse(&mut self, job: Id) {
        self.strand_mut(job).doing = Doing::Returned;
        self.tree.return_body(job, Return::Cancelled);
    }

    fn begin(&mut self, job: Id) {
        self.tree.begin(job);
        self.known[job] = true;
        self.strand_mut(job).doing = Doing::Listens;
        self.report(job, Report::Began);
    }

    fn with(mut self, op: &Op, single_worker: bool) -> Vec<World> {
        match *op {
            Op::Detach { child } => {
                self.spawn(child, None, How::Plain);
                self.begin(child);
            }
            Op::DetachBy { strand, child } => {
                self.spawn(child, None, How::Plain);
                self.begin(child);
                self.report(strand, Report::Detached(child));
            }
            Op::Spawn {
                strand,
                child,
                how,
                then_cancel,
            } => {
                let nursery = self.strand(strand).top().nursery;
                self.spawn(child, nursery, how);
                let mut worlds = vec![self.clone()];
                let has_no_time = single_worker && then_cancel.is_some();
                if !self.tree.is_cancelled(child) && !has_no_time {
                    self.begin(child);
                    worlds.push(self);
                }
                match then_cancel {
                    Some(why) => {
                        for world in &mut worlds {
                            world.strand_mut(strand).doing = Doing::Cancels { child, why };
                        }
                    }
                    None => {
                        // If it may begin, it will.
                        worlds.drain(..worlds.len() - 1);
                        worlds[0].report(strand, Report::Spawned(child));
                    }
                }
                return worlds;
            }
            Op::Open {
                strand,
                scope,
                kind,
            } => {
                let Frame { job, nursery, .. } = *self.strand(strand).top();
                self.make_room(scope);
                self.tree.attach(scope, Some(job), kind.nature());
                self.tree.begin(scope);
                if self.tree.is_cancelled(scope) {
                    self.tree.return_body(scope, Return::Cancelled);
                    self.hear(strand, scope, Report::Closed);
                } else {
                    self.known[scope] = true;
                    let nursery = if kind.has_children() {
                        Some(scope)
                    } else {
                        nursery
                    };
                    let frame = Frame {
                        job: scope,
                        nursery,
                        held: None,
                    };
                    self.strand_mut(strand).frames.push(frame);
                    self.report(strand, Report::Opened(scope));
                }
            }
            Op::Join {
                strand,
                target,
                or_return,
            } => {
                self.handles[target] = false;
                self.strand_mut(strand).doing = Doing::Joins { target, or_return };
                self.strand_mut(strand).wait = if self.tree.has_ended(target) {
                    Wait::Needless
                } else {
                    Wait::InThisStep
                };
            }
            Op::Check { strand } => {
                let job = self.strand(strand).top().job;
                if self.tree.is_cancelled(job) {
                    self.leave(strand, Return::Cancelled);
                } else {
                    self.report(strand, Report::Unharmed);
                }
            }
            Op::Return { strand, ending } => {
                let held = self.strand(strand).top().held.clone();
                let how = match ending {
                    Ending::Value => Return::Value,
                    Ending::Error(number) => Return::Fault(What::Error(number)),
                    Ending::Panic(number) => Return::Fault(What::Panic(number)),
                    Ending::Held { layered } => {
                        let held = held.expect("it holds an error");
                        if layered {
                            Return::Fault(What::Layered(Box::new(held)))
                        } else {
                            passed_on(held)
                        }
                    }
                };
                self.leave(strand, how);
            }
            Op::CancelBy { strand, job, why } => {
                let was_first = self.tree.cancel(job, why.cause(), why.message());
                self.report(strand, Report::Cancelled(was_first));
            }
            Op::Cancel { job, why } => {
                self.tree.cancel(job, why.cause(), why.message());
            }
            Op::Wait {
                waiter,
                job,
                awaited,
            } => {
                self.tree.add_waiter(waiter, job, awaited);
                if awaited == Awaited::Outcome {
                    self.handles[job] = false;
                }
            }
            Op::Renew { waiter } => self.tree.renew_waiter(waiter),
            Op::StopWaiting { waiter } => self.tree.remove_waiter(waiter),
            Op::DropHandle { job } => self.handles[job] = false,
        }
        vec![self]
    }

    /// The body leaves its innermost scope.
    fn leave(&mut self, strand: Id, how: Return) {
        let job = self.strand(strand).top().job;
        self.tree.return_body(job, how);
        if self.strand(strand).frames.len() == 1 {
            self.strand_mut(strand).doing = Doing::Returned;
            return;
        }
        self.strand_mut(strand).wait = if self.tree.has_ended(job) && !self.is_race {
            Wait::Needless
        } else {
            Wait::InThisStep
        };
        self.strand_mut(strand).doing = Doing::Closes;
    }

    /// The body gets the outcome of `job`, and goes on.
    fn hear(&mut self, strand: Id, job: Id, report: fn(Id, Result<Id, Told>) -> Report) {
        let outcome = self.tree.outcome(job);
        self.hear_outcome(strand, report(job, outcome.clone()), outcome);
    }

    fn hear_outcome(&mut self, strand: Id, report: Report, outcome: Result<Id, Told>) {
        self.report(strand, report);
        let strand = self.strand_mut(strand);
        strand.doing = Doing::Listens;
        if let (Err(error), Some(frame)) = (outcome, strand.frames.last_mut()) {
            frame.held = Some(error);
        }
    }

    /// Lets cancellations go on as far as nobody who acts in this step would notice when.
    fn pass_on_unnoticed(&mut self, left: &[Op]) {
        let mut actors: Vec<Id> = Vec::new();
        for op in left {
            actors.extend(op.strand().map(|strand| self.strand(strand).top().job));
            match *op {
                Op::Cancel { job, .. } | Op::CancelBy { job, .. } => actors.push(job),
                Op::StopWaiting { waiter } => actors.push(self.tree.waiters[waiter].job),
                _ => {}
            }
        }
        for strand in self.strands.iter().flatten() {
            match strand.doing {
                Doing::Nothing | Doing::Joins { .. } => actors.push(strand.top().job),
                Doing::Cancels { child, .. } => actors.extend([strand.top().job, child]),
                Doing::Listens | Doing::Closes | Doing::Returned => {}
            }
        }
        let mut noticed = HashSet::new();
        for actor in actors {
            let mut above = self.tree.jobs[actor].parent;
            while let Some(job) = above.filter(|job| noticed.insert(*job)) {
                above = self.tree.jobs[job].parent;
            }
        }
        let unnoticed = |passing_on: &BTreeSet<Id>| {
            let mut jobs = passing_on.iter().copied();
            jobs.find(|job| !noticed.contains(job))
        };
        while let Some(job) = unnoticed(&self.tree.passing_on) {
            self.tree.pass_on(job);
        }
    }

    /// What may happen by itself now.
    fn reactions(&self) -> Vec<Reaction> {
        let passing_on = self.tree.passing_on.iter();
        let mut reactions: Vec<Reaction> = passing_on.copied().map(Reaction::PassOn).collect();
        for (job, strand) in self.strands.iter().enumerate() {
            let Some(strand) = strand else { continue };
            let top = strand.top().job;
            match strand.doing {
                Doing::Nothing if self.tree.is_cancelled(job) => {
                    reactions.push(Reaction::Refuse(job));
                }
                Doing::Cancels { .. } => reactions.push(Reaction::Cancel(job)),
                Doing::Closes if self.tree.has_ended(top) => reactions.push(Reaction::Close(job)),
                Doing::Joins { target, .. } => {
                    if self.tree.has_ended(target) {
                        reactions.push(Reaction::HearEnd(job));
                    }
                    if self.tree.is_cancelled(top) {
                        reactions.push(Reaction::HearCancellation(job));
                    }
                }
                Doing::Nothing | Doing::Listens | Doing::Closes | Doing::Returned => {}
            }
        }
        reactions
    }

    fn react(&mut self, reaction: Reaction) {
        match reaction {
            Reaction::PassOn(job) => self.tree.pass_on(job),
            Reaction::Refuse(job) => self.refuse(job),
            Reaction::Cancel(strand) => {
                let Doing::Cancels { child, why } = self.strand(strand).doing else {
                    unreachable!("it is about to cancel");
                };
                self.tree.cancel(child, why.cause(), why.message());
                self.strand_mut(strand).doing = Doing::Listens;
                self.report(strand, Report::Spawned(child));
            }
            Reaction::Close(strand) => {
                let scope = self.strand(strand).top().job;
                self.note_wait_over(strand, scope, scope);
                self.strand_mut(strand).frames.pop();
                self.hear(strand, scope, Report::Closed);
            }
            Reaction::HearEnd(strand) => {
                let Doing::Joins { target, .. } = self.strand(strand).doing else {
                    unreachable!("it joins");
                };
                self.join_over(strand, self.tree.outcome(target));
            }
            Reaction::HearCancellation(strand) => {
                let own = self.tree.cancellation(self.strand(strand).top().job);
                self.join_over(strand, Err(Told::new(own.expect("it was cancelled"))));
            }
        }
    }

    fn join_over(&mut self, strand: Id, outcome: Result<Id, Told>) {
        let Doing::Joins { target, or_return } = self.strand(strand).doing else {
            unreachable!("it joins");
        };
        let waiting = self.strand(strand).top().job;
        self.note_wait_over(strand, waiting, target);
        self.hear_outcome(
            strand,
            Report::Joined(target, outcome.clone()),
            outcome.clone(),
        );
        if let (true, Err(error)) = (or_return, outcome) {
            self.leave(strand, passed_on(error));
        }
    }

    fn note_wait_over(&mut self, strand: Id, waiting: Id, target: Id) {
        let wait = self.strand(strand).wait;
        self.waits_over.push((waiting, target, wait));
    }

    /// Counts the waits of this step, now that its end is known. Which of two things that come at once wakes a body
    /// is not certain, nor whether it still had to wait for what came in the same step.
    fn closed_step(mut self) -> World {
        let totals = &mut self.tree.totals;
        let still_waits = |strand: &&Strand| {
            let waits = matches!(strand.doing, Doing::Joins { .. } | Doing::Closes);
            waits && strand.wait == Wait::InThisStep
        };
        let begun = self.strands.iter().flatten().filter(still_waits);
        totals.registered.certain += begun.count() as u64;
        for (waiting, target, wait) in std::mem::take(&mut self.waits_over) {
            let ended = self.tree.jobs[target].end.is_some();
            let cancelled = waiting != target && self.tree.jobs[waiting].request.is_some();
            match (wait, ended, cancelled) {
                (Wait::Needless, _, _) | (Wait::Earlier, false, _) => {}
                (Wait::InThisStep, _, _) => {
                    totals.registered.uncertain += 1;
                    totals.woken.uncertain += 1;
                }
                (Wait::Earlier, true, true) => totals.woken.uncertain += 1,
                (Wait::Earlier, true, false) => totals.woken.certain += 1,
            }
        }
        self
    }

    /// Whether `waiter` would be ready.
    pub fn is_ready(&self, waiter: usize) -> bool {
        let waiter = &self.tree.waiters[waiter];
        waiter.awaited != Awaited::Cancellation && self.tree.has_ended(waiter.job)
    }
}

/// Something that happens because of what happened before.
#[derive(Clone, Copy)]
enum Reaction {
    /// A cancellation goes on to the children of a job.
    PassOn(Id),
    /// A job that was cancelled before it began never will.
    Refuse(Id),
    /// The second half of spawning and cancelling.
    Cancel(Id),
    /// All children of a scope have ended.
    Close(Id),
    /// The job that it joins has ended.
    HearEnd(Id),
    /// Its own job was cancelled while it joins another.
    HearCancellation(Id),
}

fn passed_on(error: Told) -> Return {
    Return::Fault(What::Passed(Box::new(error)))
}
