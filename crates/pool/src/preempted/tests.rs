//! Unit tests with clocks that the tests set, and a model of a worker.

use std::sync::Arc;

use super::*;

/// One fiber waits, and the others have the thread for as long.
fn with_one_that_waits_for(time: u64) -> PreemptedQueue {
    let queue = PreemptedQueue::new();
    // SAFETY: the share is null.
    unsafe { queue.push(std::ptr::dangling(), std::ptr::null()) };
    queue.looked.set(ticks());
    queue.not_before.set(ticks() + time);
    queue
}

fn looks_at_once(queue: &PreemptedQueue) -> u32 {
    let mut looks = 0;
    while queue.leaves_the_others_alone() {
        looks += 1;
    }
    looks
}

/// However long the test is interrupted.
fn look_right_after_the_last_one(queue: &PreemptedQueue) {
    queue.looked.set(u64::MAX);
    assert!(queue.moment() == Moment::TooEarly);
}

/// So long that no test is interrupted for more.
const AN_AGE: u64 = 1 << 50;

#[test]
fn the_clock_is_left_alone_while_tasks_are_tiny() {
    let queue = with_one_that_waits_for(AN_AGE);
    assert_eq!(looks_at_once(&queue), 0, "nothing is known yet");
    look_right_after_the_last_one(&queue);
    assert_eq!(looks_at_once(&queue), MOST_LOOKS_WITHOUT_CLOCK);
}

#[test]
fn the_clock_is_looked_at_when_tasks_are_long_or_it_is_nearly_time() {
    let queue = with_one_that_waits_for(AN_AGE);
    queue.looked.set(0);
    assert!(queue.moment() == Moment::TooEarly);
    assert_eq!(looks_at_once(&queue), 0, "the last one was long");

    let queue = with_one_that_waits_for(TINY);
    assert!(queue.moment() != Moment::Unused);
    assert_eq!(looks_at_once(&queue), 0, "it is nearly time");
}

#[test]
fn a_slice_that_is_used_up_is_seen_at_once() {
    let queue = with_one_that_waits_for(AN_AGE);
    look_right_after_the_last_one(&queue);
    // SAFETY: the share is null.
    unsafe { queue.end_slice(std::ptr::null(), 0) };
    assert_eq!(looks_at_once(&queue), 0);
}

/// A job that uses up one slice after the other, in a model of a worker.
struct Hog {
    share: Option<Arc<Share>>,
    slice: u64,
    ran: u64,
}

impl Hog {
    fn new(share: Option<&Arc<Share>>, slice: u64) -> Hog {
        Hog {
            share: share.cloned(),
            slice,
            ran: 0,
        }
    }

    fn share(&self) -> *const Share {
        self.share.as_ref().map_or(std::ptr::null(), Arc::as_ptr)
    }
}

/// Runs `hogs`, beside a neighbour that yields after each `unit` if there is one, for `time`; returns how long the neighbour ran.
fn play(hogs: &mut [Hog], unit: Option<u64>, time: u64) -> u64 {
    let queue = PreemptedQueue::new();
    let name = |number: usize| std::ptr::without_provenance::<Strand>(64 * (number + 1));
    let mut now = 1;
    for (number, hog) in hogs.iter().enumerate() {
        // SAFETY: the hog keeps its share.
        unsafe { queue.push(name(number), hog.share()) };
    }
    let mut neighbours = 0;
    while now < time {
        let moment = queue.moment_at(now);
        match unit {
            Some(unit) if moment == Moment::TooEarly => {
                neighbours += unit;
                now += unit;
            }
            _ => {
                let next = queue.next().expect("the hogs wait here");
                let number = next.addr() / 64 - 1;
                let hog = &mut hogs[number];
                hog.ran += hog.slice;
                now += hog.slice;
                // SAFETY: the hog keeps its share.
                unsafe {
                    queue.end_slice_at(hog.share(), 0, now);
                    queue.push(name(number), hog.share());
                }
            }
        }
    }
    neighbours
}

const LONG: u64 = 1_000_000_000;

#[test]
#[cfg_attr(miri, ignore = "too many rounds; other tests execute this code")]
fn hogs_together_get_a_twentieth_of_a_worker_that_others_want() {
    for count in [1, 2, 30] {
        for slice in [500, 30_000, 2_000_000] {
            let root = Share::outermost();
            let shares: Vec<_> = (0..count).map(|_| Share::child_of(&root)).collect();
            let mut hogs: Vec<_> = shares
                .iter()
                .map(|share| Hog::new(Some(share), slice))
                .collect();
            // Enough for each to have three.
            let time = 3 * 20 * count * slice.max(SHORTEST_SLICE);
            let kept = play(&mut hogs, Some(1_000), time) as f64 / time as f64;
            assert!(
                (0.94..1.0).contains(&kept),
                "{count} hogs, slice {slice}: {kept}"
            );
            for hog in &hogs {
                assert!(
                    hog.ran >= 2 * slice,
                    "{count} hogs, slice {slice}: {}",
                    hog.ran
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "too many rounds; other tests execute this code")]
fn hogs_without_a_share_get_a_third() {
    let mut hogs = [Hog::new(None, 30_000)];
    let kept = play(&mut hogs, Some(1_000), LONG) as f64 / LONG as f64;
    assert!((0.65..0.68).contains(&kept), "{kept}");
}

#[test]
#[cfg_attr(miri, ignore = "too many rounds; other tests execute this code")]
fn hogs_get_all_of_a_worker_that_no_other_work_wants() {
    let root = Share::outermost();
    let mut hogs = [Hog::new(Some(&Share::child_of(&root)), 30_000)];
    assert_eq!(play(&mut hogs, None, LONG), 0);
    assert!(hogs[0].ran >= LONG - 30_000);
}

/// A family of many hogs gets as much as a single one.
#[test]
#[cfg_attr(miri, ignore = "too many rounds; other tests execute this code")]
fn families_take_turns_not_fibers() {
    for unit in [None, Some(1_000)] {
        let root = Share::outermost();
        let (family, single) = (Share::child_of(&root), Share::child_of(&root));
        let mut hogs: Vec<_> = (0..10)
            .map(|_| Hog::new(Some(&Share::child_of(&family)), 30_000))
            .collect();
        hogs.push(Hog::new(Some(&single), 30_000));
        play(&mut hogs, unit, LONG);
        let together: u64 = hogs[..10].iter().map(|hog| hog.ran).sum();
        let ratio = together as f64 / hogs[10].ran as f64;
        assert!((0.8..1.25).contains(&ratio), "{unit:?}: {ratio}");
        let least = hogs[..10].iter().map(|hog| hog.ran).min().unwrap();
        let most = hogs[..10].iter().map(|hog| hog.ran).max().unwrap();
        assert!(most <= 2 * least, "{unit:?}: {least} to {most} within it");
    }
}

#[test]
fn a_debt_is_paid_by_waiting() {
    let share = Share::outermost();
    let queue = PreemptedQueue::new();
    // SAFETY: the share is alive.
    unsafe { queue.end_slice_at(Arc::as_ptr(&share), 100_000, 5_000) };
    assert_eq!(queue.not_before.get(), 5_000 + 100_000 * OTHERS);
}

#[test]
fn what_waits_no_longer_counts_as_preempted() {
    let share = Share::outermost();
    let queue = PreemptedQueue::new();
    // SAFETY: the share is alive.
    unsafe { queue.push(std::ptr::dangling(), Arc::as_ptr(&share)) };
    assert!(share.has_preempted());
    assert!(queue.next().is_some());
    assert!(!share.has_preempted());
}
