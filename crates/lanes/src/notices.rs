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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
    listener: Option<Listener>,
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
            listener,
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
        #[cfg(feature = "tracing")]
        tracing::warn!(target: "jobtree::lanes", "{notice}");
        if let Some(listener) = &self.listener {
            // The job that was noticed is not at fault, so it goes on; the panic was reported when it began.
            _ = catch_unwind(AssertUnwindSafe(|| listener(notice)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::from_nanos(millis * 1_000_000)
    }

    /// What was said, and the notices that say it.
    fn recorded() -> (Arc<Mutex<Vec<Notice>>>, Notices) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let notes = said.clone();
        let listener = move |notice: &Notice| notes.lock().unwrap().push(notice.clone());
        (said, Notices::new(Some(Arc::new(listener))))
    }

    const TWO: Duration = Duration::from_secs(2);

    #[test]
    fn starvation_is_said_once_in_ten_seconds_a_label_and_counts_what_was_left_out() {
        let (said, notices) = recorded();
        for millis in (0..20_000).step_by(100) {
            notices.starved("load", &Lane::Any, Priority::Low, TWO, at(millis));
        }
        notices.starved("save", &Lane::Main, Priority::High, TWO, at(19_999));
        let said = said.lock().unwrap();
        let short: Vec<_> = said
            .iter()
            .map(|notice| match notice {
                Notice::Starved {
                    label, left_out, ..
                } => (label.as_str(), *left_out),
                other => panic!("{other}"),
            })
            .collect();
        assert_eq!(short, [("load", 0), ("load", 99), ("save", 0)]);
        let text = said[1].to_string();
        assert!(text.starts_with("job `load` of priority low waited 2s in lane any"));
        assert!(text.ends_with("(99 more like it since the last notice)"));
    }

    #[test]
    fn labels_without_number_take_no_memory_and_say_at_most_64_notices_in_ten_seconds() {
        let (said, notices) = recorded();
        for number in 0..100_000 {
            let label = format!("asset {number}");
            notices.starved(&label, &Lane::Any, Priority::Low, TWO, at(number / 10));
        }
        let count = said.lock().unwrap().len();
        assert!(count <= PLACES, "{count}");
        assert!(count > PLACES / 2, "{count}: the hash spreads labels badly");
    }

    #[test]
    fn a_long_bucket_is_said_once_a_second_and_bucket() {
        let mut limits = LengthLimits::default();
        let mut due = Vec::new();
        for millis in (0..=2000).step_by(10) {
            let queued = 50 + millis as usize;
            for priority in [Priority::Low, Priority::High] {
                if limits.is_due(priority, queued, 100, at(millis)) {
                    due.push((priority, millis));
                }
            }
        }
        let (low, high) = (Priority::Low, Priority::High);
        assert_eq!(due, [(low, 50), (high, 50), (low, 1050), (high, 1050)]);
    }

    #[test]
    fn backpressure_is_said_once_a_second_however_many_wait() {
        let (said, notices) = recorded();
        for millis in (1000..4000).step_by(50) {
            for _ in 0..3 {
                notices.backpressure(8192, Duration::from_millis(millis), at(millis));
            }
        }
        let said = said.lock().unwrap();
        assert_eq!(said.len(), 3);
        assert!(
            said[2]
                .to_string()
                .contains("waited 3s for one of 8192 slots")
        );
    }

    #[test]
    fn from_1_ms_on_a_job_is_slow_and_from_250_ms_on_it_stalls() {
        let (said, notices) = recorded();
        let lane = Lane::frame("physics");
        for (micros, label) in [(999, "a"), (1000, "b"), (249_999, "c"), (250_000, "d")] {
            let took = Duration::from_micros(micros);
            notices.pumped(label, "mesh", &lane, took, at(0));
        }
        // A frame later nothing is said again; a stall is another matter than slowness.
        notices.pumped("b", "mesh", &lane, SLOW, at(8));
        notices.pumped("b", "mesh", &lane, STALLED, at(16));
        notices.pumped("b", "mesh", &lane, SLOW, at(1000));
        let said = said.lock().unwrap();
        let short: Vec<_> = said
            .iter()
            .map(|notice| match notice {
                Notice::Slow {
                    label,
                    stalled,
                    left_out,
                    ..
                } => (label.as_str(), *stalled, *left_out),
                other => panic!("{other}"),
            })
            .collect();
        let expected = [
            ("b", false, 0),
            ("c", false, 0),
            ("d", true, 0),
            ("b", true, 0),
            ("b", false, 1),
        ];
        assert_eq!(short, expected);
        assert!(
            said[2]
                .to_string()
                .contains("of kind mesh stalled lane physics")
        );
    }

    #[test]
    fn a_listener_may_panic_and_may_cause_notices() {
        let count = Arc::new(Mutex::new(0));
        let notices = Arc::new_cyclic(|notices: &std::sync::Weak<Notices>| {
            let (count, notices) = (count.clone(), notices.clone());
            Notices::new(Some(Arc::new(move |notice: &Notice| {
                *count.lock().unwrap() += 1;
                if matches!(notice, Notice::Backpressure { .. }) {
                    let notices = notices.upgrade().unwrap();
                    notices.long_queue(&Lane::Any, Priority::Low, 9, 8);
                    std::panic::resume_unwind(Box::new("a listener's"));
                }
            })))
        });
        notices.backpressure(1, PAUSE, at(0));
        notices.backpressure(1, PAUSE, at(1000));
        assert_eq!(*count.lock().unwrap(), 4);
    }

    #[cfg(feature = "tracing")]
    #[test]
    fn notices_go_to_tracing_as_warnings() {
        use tracing::field::{Field, Visit};
        use tracing::span::{Attributes, Id, Record};

        #[derive(Clone, Default)]
        struct Lines(Arc<Mutex<Vec<String>>>);

        impl Visit for Lines {
            fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
                self.0.lock().unwrap().push(format!("{field}: {value:?}"));
            }
        }

        impl tracing::Subscriber for Lines {
            fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
                metadata.target() == "jobtree::lanes"
            }
            fn new_span(&self, _: &Attributes<'_>) -> Id {
                Id::from_u64(1)
            }
            fn record(&self, _: &Id, _: &Record<'_>) {}
            fn record_follows_from(&self, _: &Id, _: &Id) {}
            fn event(&self, event: &tracing::Event<'_>) {
                assert_eq!(*event.metadata().level(), tracing::Level::WARN);
                event.record(&mut self.clone());
            }
            fn enter(&self, _: &Id) {}
            fn exit(&self, _: &Id) {}
        }

        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            Notices::new(None).long_queue(&Lane::Main, Priority::Low, 9, 8);
        });
        let lines = lines.0.lock().unwrap();
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("message: 9 jobs of priority low wait in lane main"));
    }
}
