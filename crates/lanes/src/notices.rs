//! What a manager says of its own accord, and how often.
//!
//! A notice goes to the function that the builder was given and, with the feature `tracing`, there as a warning. Whoever
//! is flooded with jobs must not be flooded with notices about it, so each kind has its limit:
//!
//! - A job that waited for longer than the aging time: once a job, which the caller sees to, and once in ten seconds a
//!   label. The next one says how many were left out.
//! - A bucket with more jobs than the warning threshold: once a second and bucket.
//! - Callers that wait for a slot: once a second, however many wait.
//! - Slow and stalled jobs of a pump: once a second and label, each.
//!
//! Labels are a program's own and may be without number, so none is remembered: a label's hash picks one of 64 places, each
//! of which lets one through in its time. Labels that share a place share its limit, and all of them together have at
//! most 64 notices in that time. The hash is a fixed one, so that a simulated run says the same each time.
//!
//! Nothing here reads a clock.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jobtree_base::user_code::{Place, call_user};
use jobtree_base::user_owned::UserOwned;

use crate::lane::Lane;
use crate::moment::Moment;
use crate::priority::Priority;

/// How long nothing more is said of a label whose jobs starve.
pub(crate) const STARVATION_PAUSE: Duration = Duration::from_secs(10);
/// How long nothing more is said of anything else.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
/// A job that a pump runs for longer is slow.
pub(crate) const SLOW: Duration = Duration::from_millis(1);
/// A job that a pump runs for longer stalls the thread that pumps.
pub(crate) const STALLED: Duration = Duration::from_millis(250);

/// How many places there are for labels.
const PLACES: usize = 64;

/// Something that a manager noticed. See [`JobManagerBuilder::on_notice`](crate::JobManagerBuilder::on_notice).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A job waited for longer than the aging time. Said once a job, and once in ten seconds a label.
    Starved {
        /// The job's label; empty, if it has none.
        label: String,
        /// Where it waited.
        lane: Lane,
        /// How urgent it is.
        priority: Priority,
        /// For how long.
        waited: Duration,
        /// Of how many more jobs that starved nothing was said since the last time.
        left_out: u64,
    },
    /// A bucket holds more jobs than the warning threshold. Said once a second and bucket.
    LongQueue {
        /// The bucket's lane.
        lane: Lane,
        /// The bucket's priority.
        priority: Priority,
        /// How many jobs it holds.
        queued: usize,
        /// How many are too many.
        threshold: usize,
    },
    /// Callers wait for a slot. Said once a second.
    Backpressure {
        /// How many slots there are.
        capacity: usize,
        /// How long the caller has waited that noticed it.
        blocked: Duration,
    },
    /// A job held up the thread that pumps its lane. Said once a second and label.
    Slow {
        /// The job's label; empty, if it has none.
        label: String,
        /// The job's kind; empty, if it has none.
        kind: String,
        /// Where it ran.
        lane: Lane,
        /// For how long.
        took: Duration,
        /// Whether it took so long, 250 ms, that a user sees it.
        stalled: bool,
        /// Of how many more such jobs nothing was said since the last time.
        left_out: u64,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::Starved {
                label,
                lane,
                priority,
                waited,
                left_out,
            } => {
                write!(
                    f,
                    "job {} of priority {priority} waited {waited:?} in lane {lane}: schedule less, or give the \
                     lane more time",
                    Named(label)
                )?;
                write_left_out(f, *left_out)
            }
            Notice::LongQueue {
                lane,
                priority,
                queued,
                threshold,
            } => write!(
                f,
                "{queued} jobs of priority {priority} wait in lane {lane}, {threshold} or more are many: \
                 schedule less at once, or raise the warning threshold"
            ),
            Notice::Backpressure { capacity, blocked } => write!(
                f,
                "scheduling has waited {blocked:?} for one of {capacity} slots: schedule less, raise the queue \
                 limit, or use `try_schedule`"
            ),
            Notice::Slow {
                label,
                kind,
                lane,
                took,
                stalled,
                left_out,
            } => {
                let how = if *stalled { "stalled" } else { "held up" };
                write!(f, "job {} ", Named(label))?;
                if !kind.is_empty() {
                    write!(f, "of kind {kind} ")?;
                }
                write!(
                    f,
                    "{how} lane {lane} for {took:?}: give it smaller steps, or run it on the workers"
                )?;
                write_left_out(f, *left_out)
            }
        }
    }
}

/// A label, or that there is none.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("without label")
        } else {
            write!(f, "`{}`", self.0)
        }
    }
}

fn write_left_out(f: &mut fmt::Formatter<'_>, left_out: u64) -> fmt::Result {
    if left_out == 0 {
        return Ok(());
    }
    write!(f, " ({left_out} more like it since the last notice)")
}

/// Lets something through once in a while.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OnceIn {
    silent_until: Option<Moment>,
    left_out: u64,
}

impl OnceIn {
    /// How many were not let through since the last one that was; None, if it is too early for the next.
    pub(crate) fn lets_through(&mut self, pause: Duration, now: Moment) -> Option<u64> {
        if self.silent_until.is_some_and(|until| now < until) {
            self.left_out += 1;
            return None;
        }
        self.silent_until = Some(now.after(pause));
        Some(std::mem::take(&mut self.left_out))
    }
}

/// Lets something through once in a while for each label: see the module's head.
struct ByLabel {
    pause: Duration,
    places: [OnceIn; PLACES],
}

impl ByLabel {
    fn new(pause: Duration) -> ByLabel {
        ByLabel {
            pause,
            places: [OnceIn::default(); PLACES],
        }
    }

    fn lets_through(&mut self, label: &str, now: Moment) -> Option<u64> {
        self.places[place_of(label)].lets_through(self.pause, now)
    }
}

fn place_of(label: &str) -> usize {
    let mixed = label.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    });
    // A short label has changed few bits so far: these change all.
    let mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    (mixed >> 33) as usize % PLACES
}

/// The limits of one lane's buckets: the lane keeps it beside its queue, under the same lock.
#[derive(Debug, Default)]
pub(crate) struct LengthLimits([OnceIn; Priority::COUNT]);

impl LengthLimits {
    /// Whether it is to be said that so many jobs of this priority wait.
    #[inline]
    pub(crate) fn is_due(
        &mut self,
        priority: Priority,
        queued: usize,
        threshold: usize,
        now: Moment,
    ) -> bool {
        let limit = &mut self.0[priority.index()];
        queued >= threshold && limit.lets_through(PAUSE, now).is_some()
    }
}

/// Who hears of notices.
pub(crate) type Listener = Arc<dyn Fn(&Notice) + Send + Sync>;

/// What one manager says: see the module's head.
pub(crate) struct Notices {
    listener: Option<UserOwned<Listener>>,
    limits: Mutex<Limits>,
}

struct Limits {
    starved: ByLabel,
    slow: ByLabel,
    stalled: ByLabel,
    backpressure: OnceIn,
}

impl Notices {
    pub(crate) fn new(listener: Option<Listener>) -> Notices {
        Notices {
            listener: listener.map(|listener| UserOwned::new(Place::Captured, listener)),
            limits: Mutex::new(Limits {
                starved: ByLabel::new(STARVATION_PAUSE),
                slow: ByLabel::new(PAUSE),
                stalled: ByLabel::new(PAUSE),
                backpressure: OnceIn::default(),
            }),
        }
    }

    /// A job waited for longer than the aging time, and this was not said of it before.
    pub(crate) fn starved(
        &self,
        label: &str,
        lane: &Lane,
        priority: Priority,
        waited: Duration,
        now: Moment,
    ) {
        let let_through = self.limits().starved.lets_through(label, now);
        if let Some(left_out) = let_through {
            self.say(&Notice::Starved {
                label: label.to_owned(),
                lane: lane.clone(),
                priority,
                waited,
                left_out,
            });
        }
    }

    /// A bucket is as long as [`LengthLimits`] found. To be called without the lane's lock: a listener may schedule.
    pub(crate) fn long_queue(
        &self,
        lane: &Lane,
        priority: Priority,
        queued: usize,
        threshold: usize,
    ) {
        self.say(&Notice::LongQueue {
            lane: lane.clone(),
            priority,
            queued,
            threshold,
        });
    }

    /// A caller still waits for a slot.
    pub(crate) fn backpressure(&self, capacity: usize, blocked: Duration, now: Moment) {
        let let_through = self.limits().backpressure.lets_through(PAUSE, now);
        if let_through.is_some() {
            self.say(&Notice::Backpressure { capacity, blocked });
        }
    }

    /// A pump ran a job for so long: whether that is slow, or stalls, is found out here.
    #[inline]
    pub(crate) fn pumped(&self, label: &str, kind: &str, lane: &Lane, took: Duration, now: Moment) {
        if took >= SLOW {
            self.slow(label, kind, lane, took, now);
        }
    }

    #[cold]
    fn slow(&self, label: &str, kind: &str, lane: &Lane, took: Duration, now: Moment) {
        let stalled = took >= STALLED;
        let let_through = {
            let mut limits = self.limits();
            let by_label = if stalled {
                &mut limits.stalled
            } else {
                &mut limits.slow
            };
            by_label.lets_through(label, now)
        };
        if let Some(left_out) = let_through {
            self.say(&Notice::Slow {
                label: label.to_owned(),
                kind: kind.to_owned(),
                lane: lane.clone(),
                took,
                stalled,
                left_out,
            });
        }
    }

    fn limits(&self) -> MutexGuard<'_, Limits> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, notice: &Notice) {
        // The job that was noticed is not at fault, so it goes on, whatever a subscriber or listener does.
        #[cfg(feature = "tracing")]
        call_user(Place::Callback, || {
            tracing::warn!(target: "jobtree::lanes", "{notice}");
        });
        if let Some(listener) = &self.listener {
            call_user(Place::Callback, || listener(notice));
        }
    }
}

#[cfg(test)]
mod tests;
