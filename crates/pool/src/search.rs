//! The places where a worker searches for work, and their order.
//!
//! 1. Fibers of its own that may go on: other code waits for them.
//! 2. Its own newest task: warm. Then tasks that were sent to it alone, then those that gave way. (Now and then
//!    before 1.)
//! 3. Other workers, from a random one on: their oldest public fork, their oldest task, the forks of
//!    their parked fibers.
//! 4. The injector.
//!
//! 5. Fibers of its own that have used up a time slice; before all others when they have waited long enough
//!    (`preempted.rs`).
//!
//! A task that was found is not always run: if fibers are parked here, it may go to an idle worker (`offer.rs`).
//!
//! Every 61st time the injector and the inbox come first, so that work from outside does not starve
//! behind a worker's own. (61: a prime, so that it keeps step with no loop of the program.)

use std::ptr;
use std::time::{Duration, Instant};

use crate::context::ContextRef;
use crate::deque::{Entry, Steal};
use crate::found::Found;
use crate::inbox::MailContent;
use crate::isolation::Isolation;
use crate::job::TaskHeader;
use crate::placement;
use crate::pool::shared::WorkerShared;
use crate::preempted::Moment;
use crate::raw::fuel::Meter;
use crate::sim;
use crate::sleep::{Searching, Sleep, Slept};
use crate::strand::Strand;
use crate::theft::Appetite;
use crate::worker::WorkerThread;

/// The steal delay: the time that a fork must have been public before a thief takes it. A fork that its owner takes back sooner
/// was not worth the transfer: the cache lines of a theft cost some hundreds of nanoseconds on both sides. Measured, see
/// `docs/lab-notebook.md`.
const SEASONING: Duration = Duration::from_nanos(2000);

/// The ages of forks that a thief takes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Age {
    /// Forks that have been public for [`SEASONING`].
    Seasoned,
    /// All.
    Any,
}

/// The reason of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The fiber cannot continue, or has used up its time slice.
    ByWaiter,
    /// The fiber could continue, and yields of its own accord.
    ByYield,
}

/// A fork that a thief has seen and waits to season.
#[derive(Clone, Copy)]
pub(crate) struct Watched {
    strand: *const Strand,
    index: usize,
    since: Instant,
}

const DISPATCHES_BETWEEN_FAIR_LOOKS: u32 = 61;

/// Not a power of two, so that it keeps step with no loop of the program.
const DISPATCHES_BETWEEN_TURNS: u32 = 7;

/// Looks between two checks that this worker is not in another's way.
const LOOKS_BETWEEN_MOVES: u32 = 16;

/// Tasks taken along with a stolen one, at most: the victim keeps at least half.
const MOST_TASKS_TAKEN_ALONG: usize = 15;

impl WorkerThread {
    /// One look everywhere, the last one before sleep if `searching` says so.
    pub(crate) fn look_again(&self, searching: &Searching) -> Option<Found> {
        let age = if searching.is_announced() {
            Age::Any
        } else {
            Age::Seasoned
        };
        self.look(age, Wanted::ByWaiter)
            .or_else(|| self.preempted.next().map(Found::ready))
    }

    /// One look everywhere.
    pub(crate) fn find_work(&self) -> Option<Found> {
        self.look(Age::Seasoned, Wanted::ByWaiter)
            .or_else(|| self.preempted.next().map(Found::ready))
    }

    /// One look everywhere, for a fiber that gives way of its own accord: it comes before those that have used up their
    /// turn, until it is time for one of them.
    pub(crate) fn find_work_for_yield(&self) -> Option<Found> {
        self.look(Age::Seasoned, Wanted::ByYield)
    }

    /// Returns the work that runs before everything else, if it is time for the preempted fibers.
    fn take_turn_of_preempted(&self, moment: Moment) -> Option<Found> {
        match moment {
            Moment::Unused | Moment::TooEarly => None,
            Moment::TimeForTask => {
                let task = self.own_task().or_else(|| self.take_injected());
                if task.is_some() {
                    self.preempted.begin_task();
                }
                task.or_else(|| self.preempted.next().map(Found::ready))
            }
            Moment::TimeForStrand => self.preempted.next().map(Found::ready),
        }
    }

    fn look(&self, age: Age, wanted: Wanted) -> Option<Found> {
        if self.is_simulated {
            return self.look_in_simulation();
        }
        let dispatches = self.dispatches.get().wrapping_add(1);
        self.dispatches.set(dispatches);
        if !self.shared().inbox.is_empty() {
            self.read_mail();
        }
        let moment = self.preempted.moment();
        if let Some(found) = self.take_turn_of_preempted(moment) {
            return Some(found);
        }
        if dispatches.is_multiple_of(DISPATCHES_BETWEEN_FAIR_LOOKS) {
            let sent = self.own_mail.borrow_mut().pop_front();
            if let Some(found) = sent.map(Found::bound_task).or_else(|| self.take_injected()) {
                return Some(found);
            }
        }
        // Those that give way to each other must not keep others from running; where turns are used up, that is seen to.
        let out_of_turn = match dispatches % DISPATCHES_BETWEEN_TURNS {
            0 if moment == Moment::Unused => self.own_task(),
            1 if moment == Moment::Unused => self.own_requeued(),
            0 if moment == Moment::TooEarly => self.own_task_in_turn(),
            1 if moment == Moment::TooEarly => self.own_requeued_in_turn(),
            _ => None,
        };
        if out_of_turn.is_some() {
            return out_of_turn;
        }
        if let Some(strand) = self.next_ready() {
            return Some(Found::ready(strand));
        }
        if wanted == Wanted::ByYield && moment == Moment::TooEarly {
            return None;
        }
        self.own_task()
            .or_else(|| self.own_requeued())
            .or_else(|| self.steal_from_somebody(age))
            .or_else(|| self.take_injected())
    }

    /// Returns `true` if a fiber that could run a task of its own choice must search first: other work can run nowhere else, or
    /// it is time to see what came from outside. Counts as a search if it is not so.
    pub(crate) fn somebody_comes_first(&self) -> bool {
        let dispatches = self.dispatches.get().wrapping_add(1);
        let comes_first = !self.ready.borrow().is_empty()
            || !self.shared().inbox.is_empty()
            || !self.own_mail.borrow().is_empty()
            || self.preempted.comes_before_task()
            || !self.shared().requeued.looks_empty()
            || (dispatches.is_multiple_of(DISPATCHES_BETWEEN_FAIR_LOOKS)
                && !self.pool.injector.is_empty());
        if !comes_first {
            // Otherwise the search that follows counts, and is the fair one.
            self.dispatches.set(dispatches);
        }
        comes_first
    }

    /// Queues a task that has just run here and gave way, as soon as its frames are gone.
    pub(crate) fn requeue(&self, entry: Entry) {
        self.shared().stats.made_tasks.add_release(1);
        debug_assert!(self.gave_way.get().is_none());
        self.gave_way.set(Some(entry));
    }

    /// A task that gave way goes behind those that did so before; the worker, which is about to look for work, gets
    /// the first of them if nothing else comes before it.
    pub(crate) fn exchange_requeued(&self, entry: Entry) -> Option<Found> {
        let own = self.shared();
        let dispatches = self.dispatches.get().wrapping_add(1);
        if dispatches % DISPATCHES_BETWEEN_TURNS <= 1
            || self.is_simulated
            || !entry.context.isolation().is_none()
            || !self.ready.borrow().is_empty()
            || !own.tasks.looks_empty_to_thief()
        {
            self.put_behind(entry);
            return None;
        }
        self.dispatches.set(dispatches);
        let next = own.requeued.exchange(entry);
        if !own.requeued.looks_empty() && self.pool.sleep.somebody_is_idle() {
            self.pool.sleep.new_work();
        }
        Some(Found::task(next))
    }

    /// Queues a task that gave way, behind those that did so before.
    pub(crate) fn put_behind(&self, entry: Entry) {
        if entry.context.isolation().is_none() {
            self.shared().requeued.push(entry);
        } else {
            self.pool.post_isolated(entry);
        }
    }

    /// This worker's newest task, if it is clear at a glance that nothing comes before it: the usual find of a worker that
    /// has many, without the price of a [look](WorkerThread::look).
    #[inline]
    pub(crate) fn newest_task_at_a_glance(&self) -> Option<Entry> {
        let dispatches = self.dispatches.get().wrapping_add(1);
        let own = self.shared();
        let something_may_come_first = !self.ready.borrow().is_empty()
            || self.is_simulated
            || !own.inbox.is_empty()
            || dispatches.is_multiple_of(DISPATCHES_BETWEEN_FAIR_LOOKS)
            || !own.requeued.looks_empty()
            || !self.preempted.leaves_the_others_alone();
        if something_may_come_first {
            return None;
        }
        // SAFETY: this thread owns its task deque.
        let entry = unsafe { own.tasks.pop_newest() }?;
        self.dispatches.set(dispatches);
        Some(entry)
    }

    /// This worker's oldest task that gave way.
    fn own_requeued(&self) -> Option<Found> {
        let requeued = &self.shared().requeued;
        let entry = requeued.pop()?;
        if !requeued.looks_empty() && self.pool.sleep.somebody_is_idle() {
            self.pool.sleep.new_work();
        }
        Some(Found::task(entry))
    }

    /// This worker's newest task, if its job may run in turn though fibers are preempted.
    #[cold]
    fn own_task_in_turn(&self) -> Option<Found> {
        // SAFETY: this thread owns its task deque.
        let entry = unsafe { self.shared().tasks.pop_newest() }?;
        if self.is_in_turn(&entry) {
            return Some(Found::task(entry));
        }
        self.put_back(entry);
        None
    }

    /// This worker's oldest task that gave way and whose job may run in turn though fibers are preempted.
    #[cold]
    fn own_requeued_in_turn(&self) -> Option<Found> {
        let requeued = &self.shared().requeued;
        let entry = requeued.steal(|entry| self.is_in_turn(entry))?;
        Some(Found::task(entry))
    }

    /// Returns `true` if the job of `entry` may run in turn though fibers are preempted. The entry is in a queue that the caller has
    /// locked, or was taken out of one by the caller and has not run.
    fn is_in_turn(&self, entry: &Entry) -> bool {
        // SAFETY: it has not run, so its context is alive.
        unsafe { self.may_run_in_turn(Meter::of(entry.context)) }
    }

    /// One look everywhere, in an order that the seed chooses.
    #[cold]
    fn look_in_simulation(&self) -> Option<Found> {
        if !self.shared().inbox.is_empty() {
            self.read_mail();
        }
        let sources: [fn(&WorkerThread) -> Option<Found>; 6] = [
            |this| this.take_some_ready().map(Found::ready),
            WorkerThread::own_task,
            WorkerThread::own_requeued,
            |this| this.preempted.next().map(Found::ready),
            |this| this.steal_from_somebody(Age::Any),
            WorkerThread::take_injected,
        ];
        // Mostly as in other pools.
        let first = match sim::choose(2 * sources.len()) {
            Some(first) if first < sources.len() => first,
            _ => 0,
        };
        (0..sources.len()).find_map(|next| sources[(first + next) % sources.len()](self))
    }

    /// This worker's own newest task, else one that was sent to it: a broadcast comes after what the
    /// worker has spawned itself.
    pub(crate) fn own_task(&self) -> Option<Found> {
        // SAFETY: this thread owns its task deque.
        let newest = unsafe { self.shared().tasks.pop_newest() };
        newest.map(Found::task).or_else(|| {
            let sent = self.own_mail.borrow_mut().pop_front();
            sent.map(Found::bound_task)
        })
    }

    /// Moves the inbox's letters to where the search looks.
    pub(crate) fn read_mail(&self) {
        // SAFETY: this thread owns its inbox; `Pool::send_task` boxes its letters.
        unsafe {
            self.shared().inbox.take_all(|content| match content {
                MailContent::Resume(strand) => self.ready.borrow_mut().push_back(strand),
                MailContent::Run(entry) => self.own_mail.borrow_mut().push_back(entry),
            });
        }
    }

    fn take_injected(&self) -> Option<Found> {
        let entry = self.pool.injector.pop()?;
        self.shared().stats.injected.add(1);
        Some(Found::task(entry))
    }

    fn steal_from_somebody(&self, age: Age) -> Option<Found> {
        let workers = &self.pool.workers;
        if workers.len() == 1 {
            return self.steal_from(self.index, age, Appetite::Nothing);
        }
        let first = if self.is_simulated {
            sim::choose(workers.len()).unwrap_or(0)
        } else {
            self.random.below(workers.len())
        };
        let appetite = match age {
            Age::Any => Appetite::All,
            Age::Seasoned if self.is_simulated => Appetite::All,
            Age::Seasoned => self.stolen.appetite(),
        };
        for victim in (first..workers.len()).chain(0..first) {
            if let Some(found) = self.steal_from(victim, age, appetite) {
                self.shared().stats.stolen.add(1);
                return Some(found);
            }
        }
        self.shared().stats.failed_steals.add(1);
        None
    }

    fn steal_from(&self, index: usize, age: Age, appetite: Appetite) -> Option<Found> {
        let victim = &self.pool.workers[index];
        if index != self.index {
            if let Some(entry) = self.steal_fork_of(index, age) {
                return Some(Found::fork(entry));
            }
            let own = self.shared().stats.waiting.read();
            if appetite.is_for_tasks_of(|| victim.strands_and_tasks(), own)
                && let Some(entry) = self.steal_task(victim)
            {
                return Some(Found::task(entry));
            }
        }
        victim.parked.steal(self.index, |_| true).map(Found::fork)
    }

    /// Steals the oldest public fork of the fiber that `victim` runs now, if it has been there for
    /// [`SEASONING`]; of any age if this worker would sleep otherwise, since the one who posted it may
    /// count on us.
    pub(crate) fn steal_fork_of(&self, victim: usize, age: Age) -> Option<Entry> {
        let strand = self.pool.workers[victim].current()?;
        let index = strand.forks.oldest_public_index()?;
        if age == Age::Seasoned && !self.is_simulated {
            let now = Instant::now();
            let watch = &self.watches[victim];
            match watch.get() {
                Some(seen) if ptr::eq(seen.strand, strand) && seen.index == index => {
                    if now.duration_since(seen.since) < SEASONING {
                        return None;
                    }
                }
                _ => {
                    let since = now;
                    watch.set(Some(Watched {
                        strand,
                        index,
                        since,
                    }));
                    return None;
                }
            }
        }
        self.steal_fork(strand, |_| true)
    }

    fn steal_fork(&self, strand: &Strand, suits: impl Fn(ContextRef) -> bool) -> Option<Entry> {
        let entry = strand.steal(self.index, suits)?;
        // More hands are free: have the victim put out the next one when it can.
        if self.pool.sleep.somebody_is_idle() && strand.forks.looks_empty_to_thief() {
            strand.forks.ask();
        }
        Some(entry)
    }

    fn steal_task(&self, victim: &WorkerShared) -> Option<Entry> {
        let first = loop {
            match victim.tasks.steal(|_| true) {
                Steal::Taken(entry) => break entry,
                Steal::Empty => {
                    let requeued = victim.requeued.steal(|_| true)?;
                    self.stolen.begin(1);
                    return Some(requeued);
                }
                Steal::Retry => {}
            }
        };
        // Flat spawns: take up to half of the rest along, and save the way back. Only of the same context: the first one may
        // wait for a lock whose holder, inside `isolate`, waits for the others, and looks for them at the ends of queues.
        let along = (victim.tasks.public_len() / 2).min(MOST_TASKS_TAKEN_ALONG);
        let mut taken = 0;
        for _ in 0..along {
            match victim.tasks.steal(|context| context == first.context) {
                // SAFETY: this thread owns its task deque, and the entry is ours to pass on.
                Steal::Taken(entry) => unsafe { self.shared().tasks.push_private(entry) },
                Steal::Empty | Steal::Retry => break,
            }
            taken += 1;
        }
        if taken > 0 {
            // SAFETY: this thread owns its task deque.
            unsafe { self.shared().tasks.publish_all() };
            // On the way they were in no queue: who looked meanwhile must be told.
            self.pool.sleep.new_work();
        }
        self.stolen.begin(1 + taken);
        // The caller counts the first one.
        self.shared().stats.stolen.add(taken as u64);
        Some(first)
    }

    /// Starts a search.
    pub(crate) fn start_searching(&self) -> Searching {
        if self.is_simulated {
            return Sleep::searching_in_simulation(self.index);
        }
        self.end_burst();
        self.shared().workplace.leave();
        self.pool
            .sleep
            .start_searching(self.index, &self.spin_memory)
    }

    /// A look was in vain: asks the other workers to put out work if it was not the first one, then
    /// pauses or sleeps.
    pub(crate) fn nothing_found(&self, searching: &mut Searching) {
        if self.is_simulated {
            return self.idle_in_simulation(false);
        }
        self.ask_around(searching);
        if self.leaves_tiny_tasks_alone(searching) {
            // Forks are another matter, and this may be too early in the search to have asked for them.
            self.ask_everybody();
            return Searching::pause_for_long();
        }
        self.pool.process.must_be_current();
        let limit = self.patience_with_spares();
        if self.pool.sleep.no_work_found(searching, limit) == Slept::TooLong {
            self.end_surplus_spares();
        }
        // After each sleep, and now and then.
        if searching.rounds().is_multiple_of(LOOKS_BETWEEN_MOVES) {
            placement::make_way(self.pool.workers.iter().map(|worker| &*worker.workplace));
        }
    }

    /// Returns `true` if this worker continues to scan instead of announcing itself sleepy, after which it would take tasks of
    /// any size: it has learnt that the tasks of others are tiny, and their owners make progress.
    fn leaves_tiny_tasks_alone(&self, searching: &Searching) -> bool {
        if !self.stolen.were_tiny() || !searching.is_about_to_announce() {
            return false;
        }
        let others = self.pool.workers.iter().enumerate();
        let tasks = others
            .filter(|(index, _)| *index != self.index)
            .map(|(_, victim)| victim.tasks.public_len())
            .sum();
        self.stolen.are_left_alone(tasks)
    }

    fn ask_around(&self, searching: &Searching) {
        /// Looks in vain before asking: short forks are then left alone. Measured, see
        /// `docs/lab-notebook.md`.
        const PATIENCE: u32 = 4;
        if searching.rounds() >= PATIENCE {
            self.ask_everybody();
        }
    }

    fn ask_everybody(&self) {
        for (index, victim) in self.pool.workers.iter().enumerate() {
            if index != self.index
                && let Some(strand) = victim.current()
            {
                strand.forks.ask_unless_public();
            }
        }
    }

    /// Ends a search. If no other thread searches while others sleep and there is more to do, wakes one.
    pub(crate) fn stop_searching(&self, searching: Searching) {
        if self.is_simulated {
            return;
        }
        self.shared().workplace.enter();
        let sleep = &self.pool.sleep;
        if sleep.work_found(searching, &self.spin_memory) && self.sees_more_work() {
            sleep.wake_one_sleeper();
        }
    }

    fn sees_more_work(&self) -> bool {
        !self.pool.injector.is_empty()
            || self.pool.workers.iter().any(WorkerShared::has_public_work)
    }

    /// Work made inside `isolation`: the only work that a thread that waits inside it may run. `strand` is the one that runs.
    ///
    /// Tasks that were made inside an isolation are never in the queues of single workers, except that of their own mail: they
    /// could lie there behind strangers, on a worker that is blocked. They are all in the injector (`Shared::submit`).
    pub(crate) fn find_work_inside(&self, strand: &Strand, isolation: Isolation) -> Option<Found> {
        if !self.shared().inbox.is_empty() {
            self.read_mail();
        }
        let suits = |context: ContextRef| context.isolation().is_within(isolation);
        let sent = {
            let mut mail = self.own_mail.borrow_mut();
            let position = mail.iter().position(|entry| suits(entry.context));
            position.and_then(|position| mail.remove(position))
        };
        let task = sent.or_else(|| self.pool.injector.pop_inside(isolation));
        if let Some(entry) = task {
            return Some(Found::task(entry));
        }
        let others = (0..self.pool.workers.len()).filter(|index| *index != self.index);
        let stolen = others
            .filter_map(|index| self.pool.workers[index].current())
            .find_map(|running| self.steal_fork(running, suits));
        // Those below the waiting frame last: the frame would take them back itself, unless it waits for one of them.
        let fork = stolen.or_else(|| strand.steal(self.index, suits));
        fork.map(Found::fork)
    }

    /// The last look before a worker that waits inside `isolation` sleeps: whether there are tasks for it.
    pub(crate) fn sees_work_inside(&self, isolation: Isolation) -> bool {
        !self.shared().inbox.is_empty() || self.pool.injector.has_work_inside(isolation)
    }

    /// The newest task of this worker, if it belongs to `owner`.
    pub(crate) fn pop_task_of(&self, owner: *const ()) -> Option<Entry> {
        // SAFETY: this thread owns its task deque.
        let entry = unsafe { self.shared().tasks.pop_newest() }?;
        // SAFETY: just taken out of a task deque, not yet run.
        if unsafe { TaskHeader::owner_of(entry) } == owner {
            return Some(entry);
        }
        self.put_back(entry);
        None
    }

    pub(crate) fn put_back(&self, entry: Entry) {
        // SAFETY: this thread owns its task deque, and the entry is ours to give back.
        unsafe {
            self.shared().tasks.push_private(entry);
            self.shared().tasks.publish_all();
        }
        self.pool.sleep.new_work();
    }
}
