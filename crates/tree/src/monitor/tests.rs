//! Counts and ids are exact whatever threads come and go, and the ring keeps what it says.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;

use super::*;
use crate::word::{Cause, JobState};

const ALL: [Counter; COUNTERS] = [
    Counter::Created,
    Counter::CancelRequests,
    Counter::Completed,
    Counter::Failed,
    Counter::Cancelled,
    Counter::TimedOut,
    Counter::WaitersRegistered,
    Counter::WaitersWoken,
];

/// Held by tests that want all lines or need a free one: lines belong to the process.
static LINES: Mutex<()> = Mutex::new(());

/// Runs `body` on so many threads, and waits until they have ended with all their thread-locals.
fn on_threads(count: usize, body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let body = body.clone();
            thread::spawn(move || body(number))
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn each_counter_counts_for_itself() {
    let monitor = Monitor::new();
    for (times, counter) in (1..).zip(ALL) {
        for _ in 0..times {
            monitor.count(counter);
        }
    }
    let expected = Counters {
        created: 1,
        cancel_requests: 2,
        completed: 3,
        failed: 4,
        cancelled: 5,
        timed_out: 6,
        waiters_registered: 7,
        waiters_woken: 8,
    };
    assert_eq!(monitor.counters(), expected);
    assert_eq!(Monitor::new().counters(), Counters::default());
}

#[test]
fn counts_of_many_threads_are_exact() {
    let monitor = Arc::new(Monitor::new());
    let counting = monitor.clone();
    on_threads(8, move |number| {
        for _ in 0..10_000 {
            counting.count(Counter::Created);
            counting.count(ALL[number]);
        }
    });
    let counters = monitor.counters();
    assert_eq!(counters.created, 90_000);
    assert_eq!(counters.timed_out, 10_000);
    assert_eq!(counters.waiters_woken, 10_000);
}

#[test]
fn counts_are_exact_with_more_threads_than_lines() {
    const THREADS: usize = 100;
    let _alone = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let monitor = Arc::new(Monitor::new());
    let all_have_counted = Barrier::new(THREADS);
    let counting = monitor.clone();
    on_threads(THREADS, move |_| {
        counting.count(Counter::Created);
        // Until here nobody ends, so nobody gets somebody else's line.
        all_have_counted.wait();
        for _ in 0..1_000 {
            counting.count(Counter::Created);
        }
    });
    assert_eq!(monitor.counters().created, THREADS as u64 * 1_001);
    let shared = monitor.shared.0[Counter::Created as usize].load(Ordering::Relaxed);
    assert!(shared >= (THREADS - OWN_LINES) as u64);
}

#[test]
fn counts_are_exact_when_threads_take_the_lines_of_ended_ones() {
    let monitor = Arc::new(Monitor::new());
    let counting = monitor.clone();
    // Each of eight threads lives through a chain of short ones, beside one another.
    on_threads(8, move |_| {
        for _ in 0..50 {
            let counting = counting.clone();
            let short = thread::spawn(move || {
                for _ in 0..100 {
                    counting.count(Counter::Completed);
                }
            });
            short.join().unwrap();
        }
    });
    assert_eq!(monitor.counters().completed, 8 * 50 * 100);
}

#[test]
fn the_lines_of_ended_threads_are_used_again() {
    let _alone = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    let monitor = Arc::new(Monitor::new());
    for _ in 0..2 * OWN_LINES {
        let counting = monitor.clone();
        let counts_once = thread::spawn(move || counting.count(Counter::Created));
        counts_once.join().unwrap();
    }
    let shared = monitor.shared.0[Counter::Created as usize].load(Ordering::Relaxed);
    let own = monitor.counters().created - shared;
    assert!(own > OWN_LINES as u64, "only {own} threads had a line");
}

/// Counts when it is dropped.
struct CountsAtEnd(Arc<Monitor>);

impl Drop for CountsAtEnd {
    fn drop(&mut self) {
        self.0.count(Counter::Cancelled);
    }
}

thread_local! {
    static BEFORE: RefCell<Option<CountsAtEnd>> = const { RefCell::new(None) };
    static AFTER: RefCell<Option<CountsAtEnd>> = const { RefCell::new(None) };
}

#[test]
fn destructors_of_thread_locals_may_count() {
    let monitor = Arc::new(Monitor::new());
    let counting = monitor.clone();
    on_threads(8, move |_| {
        // One on either side of the destructor that gives the line back, in whichever order they run.
        BEFORE.with(|slot| *slot.borrow_mut() = Some(CountsAtEnd(counting.clone())));
        counting.count(Counter::Created);
        AFTER.with(|slot| *slot.borrow_mut() = Some(CountsAtEnd(counting.clone())));
    });
    assert_eq!(monitor.counters().created, 8);
    assert_eq!(monitor.counters().cancelled, 16);
    // The thread that comes last must not write a line that is somebody else's by then.
    let shared = monitor.shared.0[Counter::Cancelled as usize].load(Ordering::Relaxed);
    assert!(shared >= 8, "{shared}");
}

#[test]
fn no_reading_shows_more_ends_than_beginnings() {
    const JOBS: u64 = 200_000;
    let monitor = Monitor::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..JOBS {
                monitor.count(Counter::Created);
                monitor.count(Counter::Completed);
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let Counters {
                created, completed, ..
            } = monitor.counters();
            assert!(completed <= created, "{completed} > {created}");
        }
    });
    let counters = monitor.counters();
    assert_eq!((counters.created, counters.completed), (JOBS, JOBS));
}

#[test]
fn ids_are_unique_across_threads() {
    const THREADS: usize = 80;
    const IDS: usize = 3_000;
    let threads: Vec<_> = (0..THREADS)
        .map(|_| thread::spawn(|| Vec::from_iter((0..IDS).map(|_| next_id()))))
        .collect();
    let mut seen = HashSet::new();
    for thread in threads {
        seen.extend(thread.join().unwrap());
    }
    assert_eq!(seen.len(), THREADS * IDS);
    assert!(!seen.contains(&0));
}

/// Records an event that is told apart by its number.
fn event(monitor: &Monitor, number: u64) {
    monitor.event(JobId(number), EventKind::WaitRegister);
}

fn jobs(recorded: &Recorded) -> Vec<u64> {
    let jobs = recorded.events.iter().map(|event| event.job.as_u64());
    jobs.collect()
}

#[test]
fn nothing_is_recorded_when_nobody_asked() {
    let monitor = Monitor::new();
    event(&monitor, 1);
    assert_eq!(monitor.take_events(), Recorded::default());
    monitor.record_events(8);
    event(&monitor, 2);
    monitor.record_events(0);
    event(&monitor, 3);
    let recorded = monitor.take_events();
    assert_eq!((jobs(&recorded), recorded.lost), (vec![2], 0));
    assert_eq!(monitor.take_events(), Recorded::default());
}

#[test]
fn the_ring_keeps_the_newest_and_counts_the_lost() {
    let monitor = Monitor::new();
    monitor.record_events(3);
    for number in 1..=5 {
        event(&monitor, number);
    }
    let recorded = monitor.take_events();
    assert_eq!((jobs(&recorded), recorded.lost), (vec![3, 4, 5], 2));
    assert_eq!(recorded.events[0].sequence, 2);
    // What was told once is not told again.
    event(&monitor, 6);
    let recorded = monitor.take_events();
    assert_eq!((jobs(&recorded), recorded.lost), (vec![6], 0));
    assert_eq!(recorded.events[0].sequence, 5);
}

#[test]
fn a_smaller_ring_loses_the_oldest_and_a_larger_one_nothing() {
    let monitor = Monitor::new();
    monitor.record_events(4);
    for number in 1..=4 {
        event(&monitor, number);
    }
    monitor.record_events(2);
    monitor.record_events(3);
    event(&monitor, 5);
    let recorded = monitor.take_events();
    assert_eq!((jobs(&recorded), recorded.lost), (vec![3, 4, 5], 2));
}

#[test]
fn events_of_many_threads_are_all_there_or_counted() {
    let monitor = Arc::new(Monitor::new());
    monitor.record_events(1_000);
    let recording = monitor.clone();
    on_threads(8, move |number| {
        for _ in 0..500 {
            event(&recording, number as u64);
        }
    });
    let recorded = monitor.take_events();
    assert_eq!((recorded.events.len(), recorded.lost), (1_000, 3_000));
    let sequences = recorded.events.iter().map(|event| event.sequence);
    assert!(sequences.eq(3_000..4_000));
}

/// One of each kind, with its name.
fn kinds() -> [(EventKind, &'static str); 7] {
    let parent = Some(JobId(7));
    let (to, state) = (JobState::Active, JobState::TimedOut);
    let (cause, child) = (Cause::Timeout, JobId(9));
    [
        (EventKind::Create { parent }, "JOB_CREATE"),
        (EventKind::State { to }, "JOB_STATE"),
        (EventKind::CancelRequest { cause }, "JOB_CANCEL_REQ"),
        (EventKind::Finalize { state }, "JOB_FINALIZE"),
        (EventKind::ChildAttach { child }, "JOB_CHILD_ATTACH"),
        (EventKind::WaitRegister, "JOB_WAIT_REGISTER"),
        (EventKind::WaitWake, "JOB_WAIT_WAKE"),
    ]
}

#[test]
fn kinds_have_their_names_and_keep_their_details() {
    let monitor = Monitor::new();
    monitor.record_events(16);
    for (kind, _) in kinds() {
        monitor.event(JobId(1), kind);
    }
    let recorded = monitor.take_events().events;
    assert_eq!(recorded.len(), kinds().len());
    for (event, (kind, name)) in recorded.into_iter().zip(kinds()) {
        assert_eq!((event.kind, event.kind.name()), (kind, name));
    }
}

#[cfg(feature = "tracing")]
mod traced {
    use std::fmt::{Debug, Write};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Metadata, Subscriber};

    use super::*;

    /// Writes every event down as a line.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "jobtree"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            let mut fields = Fields(event.metadata().level().to_string());
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn every_event_goes_to_tracing_whether_or_not_the_ring_records() {
        let monitor = Monitor::new();
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            for (kind, _) in kinds() {
                monitor.event(JobId(5), kind);
            }
            monitor.event(JobId(6), EventKind::Create { parent: None });
        });
        let expected = [
            r#"TRACE event="JOB_CREATE" job=5 parent=7"#,
            r#"TRACE event="JOB_STATE" job=5 to="active""#,
            r#"TRACE event="JOB_CANCEL_REQ" job=5 cause=Timeout"#,
            r#"TRACE event="JOB_FINALIZE" job=5 state="timed out""#,
            r#"TRACE event="JOB_CHILD_ATTACH" job=5 child=9"#,
            r#"TRACE event="JOB_WAIT_REGISTER" job=5"#,
            r#"TRACE event="JOB_WAIT_WAKE" job=5"#,
            r#"TRACE event="JOB_CREATE" job=6"#,
        ];
        assert_eq!(*lines.0.lock().unwrap(), expected);
        assert_eq!(monitor.take_events(), Recorded::default());
    }
}
