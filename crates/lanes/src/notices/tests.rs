//! Each limit by name, in a time that the tests make up.

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
