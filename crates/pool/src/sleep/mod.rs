//! The sleep of workers without work, and the wake-ups by which posters wake just as many as are needed. The protocol and why it
//! loses no wake-up: `README.md` in this folder.

mod counters;
mod roster;
mod sleeper;
mod spin;

pub(crate) use counters::MAX_WORKERS;
use counters::{AtomicCounters, Counters, JobsEventCounter};
use roster::Roster;
use sleeper::Sleeper;
pub(crate) use sleeper::Slept;
use spin::Spin;
pub(crate) use spin::SpinMemory;

use std::time::{Duration, Instant};

use crate::padded::Padded;
use crate::sync::step::{Step, fence_at, left_out};
use crate::sync::{AtomicUsize, Ordering};

/// All sleep state of a pool.
pub(crate) struct Sleep {
    counters: Padded<AtomicCounters>,
    roster: Padded<Roster>,
    sleepers: Box<[Padded<Sleeper>]>,
    /// The number of workers that sleep alone, or are about to.
    alone: AtomicUsize,
}

/// Evidence that a worker is counted as inactive. Made when it starts to search, given up when it has
/// found something; the rest of the protocol cannot be called without it.
#[must_use]
pub(crate) struct Searching {
    worker: usize,
    spin: Spin,
    announced: Option<JobsEventCounter>,
}

impl Searching {
    /// Returns the number of rounds that have found nothing since the search began or the worker last woke.
    pub(crate) fn rounds(&self) -> u32 {
        self.spin.rounds()
    }

    /// Returns `true` if the next scan in vain makes the worker announce itself sleepy.
    pub(crate) fn is_about_to_announce(&self) -> bool {
        self.announced.is_none() && self.spin.is_used_up()
    }

    /// Pauses between two looks as late in a search, and brings the worker no nearer to sleep.
    pub(crate) fn pause_for_long() {
        spin::longest_pause();
    }

    /// Returns `true` if the worker has announced itself sleepy, so that the next scan is the last before sleep.
    pub(crate) fn is_announced(&self) -> bool {
        self.announced.is_some()
    }
}

impl Sleep {
    pub(crate) fn new(workers: usize) -> Sleep {
        Sleep {
            counters: Padded(AtomicCounters::new()),
            roster: Padded(Roster::new(workers)),
            sleepers: (0..workers).map(|_| Padded(Sleeper::new())).collect(),
            alone: AtomicUsize::new(0),
        }
    }

    /// The sleep state of a simulated pool: no worker ever sleeps, and the counters show a sleeper while no worker searches,
    /// so that every post comes to [`Sleep::wake_one_sleeper`].
    #[cfg(jobtree_stacks)]
    pub(crate) fn for_simulation(workers: usize) -> Sleep {
        let sleep = Sleep::new(workers);
        sleep.counters.add_inactive();
        let announced = sleep.counters.announce_sleepy();
        let counted = sleep.counters.try_add_sleeping(announced);
        debug_assert!(counted, "nobody else knows the counters yet");
        sleep
    }

    /// Returns the token of a simulated worker that searches; it is in no count.
    pub(crate) fn searching_in_simulation(worker: usize) -> Searching {
        Searching {
            worker,
            spin: Spin::new(&SpinMemory::new()),
            announced: None,
        }
    }

    /// Returns `true` if `worker` was notified and has not read the notice yet.
    pub(crate) fn has_notice(&self, worker: usize) -> bool {
        self.sleepers[worker].has_notice()
    }

    /// `worker` has read its notice, if there was one.
    #[cfg(jobtree_stacks)]
    pub(crate) fn read_notice(&self, worker: usize) {
        self.sleepers[worker].stay_awake();
    }

    /// `worker` has run out of work and starts to look around.
    pub(crate) fn start_searching(&self, worker: usize, memory: &SpinMemory) -> Searching {
        self.counters.add_inactive();
        Searching {
            worker,
            spin: Spin::new(memory),
            announced: None,
        }
    }

    /// The worker has found work. Returns whether it was the last to search while others sleep: then
    /// no worker looks after what is still queued, and the caller wakes one if it sees more work.
    pub(crate) fn work_found(&self, searching: Searching, memory: &SpinMemory) -> bool {
        searching.spin.found(memory);
        let now = self.counters.sub_inactive();
        let was_last = now.searching() == 0 && now.sleeping() > 0;
        if was_last {
            // Pairs with the fence in `new_work`: a poster that still counts on this worker has posted
            // before the caller looks.
            fence_at(Step::SleepCascadeFence);
        }
        was_last && !left_out(Step::SleepCascade)
    }

    /// A look at every queue has found nothing: pauses, announces the worker sleepy, or sleeps, for no longer than
    /// `limit`. Returns how it has slept; the worker looks again in any case.
    pub(crate) fn no_work_found(
        &self,
        searching: &mut Searching,
        limit: Option<Duration>,
    ) -> Slept {
        if searching.spin.pause() {
            return Slept::NotAtAll;
        }
        let skip_announcement = left_out(Step::SleepAnnounce);
        match searching.announced {
            None if left_out(Step::SleepRecheck) => {
                let announced = self.announce_sleepy(skip_announcement);
                self.fall_asleep(searching, announced, limit)
            }
            None => {
                // The caller looks once more at everything before it calls again.
                searching.announced = Some(self.announce_sleepy(skip_announcement));
                Slept::NotAtAll
            }
            Some(announced) => self.fall_asleep(searching, announced, limit),
        }
    }

    fn announce_sleepy(&self, only_look: bool) -> JobsEventCounter {
        let announced = if only_look {
            self.counters.load().events()
        } else {
            self.counters.announce_sleepy()
        };
        // Pairs with the fence in `new_work`: of a worker that announces itself and then looks, and a
        // poster that posts and then reads the counters, one sees the other.
        fence_at(Step::SleepAnnounceFence);
        announced
    }

    fn fall_asleep(
        &self,
        searching: &mut Searching,
        announced: JobsEventCounter,
        limit: Option<Duration>,
    ) -> Slept {
        searching.announced = None;
        let sleeper = &self.sleepers[searching.worker];
        if !sleeper.become_sleepy() {
            return Slept::NotAtAll;
        }
        // On the roster before in the count: who reads the count finds a name.
        let enters_late = left_out(Step::SleepRosterFirst);
        if !enters_late {
            self.roster.enter(searching.worker);
        }
        if !self.counters.try_add_sleeping(announced) {
            self.roster.leave(searching.worker);
            sleeper.stay_awake();
            return Slept::NotAtAll;
        }
        if enters_late {
            self.roster.enter(searching.worker);
        }
        let began = Instant::now();
        let slept = sleeper.sleep(limit);
        if slept != Slept::UntilWoken {
            // No thread has woken us, so none has taken us out of the count.
            self.counters.sub_sleeping();
        }
        self.roster.leave(searching.worker);
        sleeper.stay_awake();
        if slept == Slept::UntilWoken {
            searching.spin.woke(began.elapsed());
        }
        slept
    }

    /// Work that any worker may take has been made visible. Wakes one sleeper if no worker searches.
    #[inline]
    pub(crate) fn new_work(&self) {
        fence_at(Step::SleepPostFence);
        let counters = self.counters.note_new_work();
        if counters.sleeping() > 0 && counters.searching() == 0 {
            self.wake_one_sleeper();
        }
    }

    /// Returns `true` if some worker has nothing to do.
    #[inline]
    pub(crate) fn somebody_is_idle(&self) -> bool {
        self.counters.load().inactive() > 0
    }

    /// Wakes some worker that is asleep or about to be.
    #[cold]
    pub(crate) fn wake_one_sleeper(&self) {
        if crate::sim::wake_one(self) {
            return;
        }
        while let Some(worker) = self.roster.take_one() {
            if self.sleepers[worker].wake_if_drowsy(|| self.counters.sub_sleeping()) {
                return;
            }
        }
    }

    /// Tells `worker` that something has come for it alone.
    pub(crate) fn notify(&self, worker: usize) {
        if left_out(Step::InboxNotify) {
            return;
        }
        self.sleepers[worker].notify(|| self.counters.sub_sleeping());
    }

    /// Sleeps until `worker` is notified, outside of all counts: it would not take what others post, except by
    /// [`Sleep::wake_alone`]. Looks whether `is_over` before. `false` if it has slept for `limit` and was not notified.
    pub(crate) fn sleep_alone(
        &self,
        worker: usize,
        is_over: impl Fn() -> bool,
        limit: Option<Duration>,
    ) -> bool {
        self.alone.fetch_add(1, Ordering::Relaxed);
        let is_over = || {
            // Pairs with the fence in `wake_alone`: of a worker that is sleepy and then looks, and a poster that posts and
            // then looks for such workers, one sees the other.
            fence_at(Step::SleepAloneFence);
            is_over()
        };
        let in_time = self.sleepers[worker].sleep_alone(is_over, limit);
        self.alone.fetch_sub(1, Ordering::Relaxed);
        in_time
    }

    /// Work that workers which sleep alone might take has been made visible. Wakes all of them.
    pub(crate) fn wake_alone(&self) {
        if crate::sim::wake_alone(self) {
            return;
        }
        fence_at(Step::SleepAlonePostFence);
        if self.alone.load(Ordering::Relaxed) == 0 {
            return;
        }
        for sleeper in &self.sleepers {
            sleeper.wake_if_alone();
        }
    }

    /// Returns how often `worker` has fallen asleep and been woken.
    pub(crate) fn sleeps_and_wakes(&self, worker: usize) -> (u64, u64) {
        self.sleepers[worker].sleeps_and_wakes()
    }

    /// The counters as they are now, for diagnosis.
    pub(crate) fn snapshot(&self) -> Counters {
        self.counters.load()
    }
}

#[cfg(all(test, loom))]
pub(crate) mod models;
