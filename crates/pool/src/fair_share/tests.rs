//! Unit tests with bursts whose times the tests choose.

use super::*;

const SLICE: u32 = 10_000;

fn burst(ticks: u64, ops: u32) -> Burst {
    Burst {
        ticks,
        ops,
        slice_ops: SLICE,
    }
}

#[test]
fn bursts_are_told_apart() {
    let cases = [
        (burst(600, 200), BurstKind::Useful),
        (burst(600, FEW_OPS), BurstKind::Useful),
        (burst(600, 0), BurstKind::Empty),
        (burst(SHORT - 1, FEW_OPS - 1), BurstKind::Empty),
        (burst(SHORT, FEW_OPS - 1), BurstKind::Unknown),
        (burst(30_000, SLICE / 4), BurstKind::Excessive),
        (burst(30_000, SLICE / 4 - 1), BurstKind::Useful),
        (burst(600, SLICE), BurstKind::Excessive),
    ];
    for (burst, kind) in cases {
        assert_eq!(burst.kind(), kind, "{burst:?}");
    }
}

/// Has each of `shares` do its `burst` in turn, each job that is over its share waiting for 19 times what it owes, as on a
/// worker with a neighbour that uses the rest; returns which part of the time they had.
fn part_of_time(shares: &[(&Share, Burst)], rounds: u32, neighbours: u64) -> f64 {
    let (mut now, mut ran) = (1_000_000, 0);
    let start = now;
    for _ in 0..rounds {
        for (share, burst) in shares {
            if share.is_over(now) {
                now += share.settle(now) * OTHERS;
            }
            now += burst.ticks;
            ran += burst.ticks;
            share.count(burst, now);
        }
        now += neighbours;
    }
    ran as f64 / (now - start) as f64
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic, and too many rounds")]
fn who_yields_without_work_or_for_work_of_nearly_a_slice_is_slowed_down() {
    for (name, bad) in [
        ("a yielder", burst(100, 0)),
        ("a future that wakes itself", burst(500, 1)),
        ("one of two that wake each other", burst(900, 4)),
        ("nearly a slice", burst(30_000, SLICE - 100)),
        ("a quarter of a slice", burst(5_000, SLICE / 4)),
    ] {
        let share = Share::outermost();
        let part = part_of_time(&[(&share, bad)], 20_000, 1_000);
        assert!(part < 0.06, "{name} has {part} of the time");
    }
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic, and too many rounds")]
fn useful_and_unknown_bursts_are_not_slowed_down() {
    for (name, good) in [
        ("a unit of work", burst(600, 200)),
        ("a longer one", burst(12_000, 2_000)),
        ("code without ticks", burst(50_000, 0)),
    ] {
        let share = Share::outermost();
        let part = part_of_time(&[(&share, good)], 20_000, 0);
        assert!(part > 0.99, "{name} has {part} of the time");
    }
}

/// Less than a twentieth of the time in empty bursts.
#[test]
#[cfg_attr(miri, ignore = "arithmetic, and too many rounds")]
fn a_modest_job_is_never_over_its_share() {
    let share = Share::outermost();
    let mut now = 1;
    for _ in 0..20_000 {
        now += 20 * (900 + DISPATCH as u64);
        share.count(&burst(900, 2), now);
        assert!(!share.is_over(now));
    }
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic, and too many rounds")]
fn the_work_of_a_child_pays_for_its_parent() {
    let parent = Share::outermost();
    let mut now = 1;
    for _ in 0..20_000 {
        let child = Share::child_of(&parent);
        child.count(&burst(600, 200), now);
        now += 1_500;
        parent.count(&burst(1_500, 1), now);
        assert!(!parent.is_over(now));
    }
}

#[test]
#[cfg_attr(miri, ignore = "arithmetic, and too many rounds")]
fn a_family_has_no_more_than_one_job() {
    let supervisor = Share::outermost();
    let (family, modest) = (Share::child_of(&supervisor), Share::child_of(&supervisor));
    let children: Vec<_> = (0..100).map(|_| Share::child_of(&family)).collect();
    let mut now = 1;
    let (mut bursts, rounds) = (0, 20_000);
    for _ in 0..rounds {
        for child in &children {
            // Those that are over get nothing here.
            if !child.is_over(now) {
                bursts += 1;
                now += 100;
                child.count(&burst(100, 0), now);
            }
        }
        now += 5_000;
        modest.count(&burst(600, 200), now);
        assert!(!modest.is_over(now), "a sibling is not affected");
    }
    let charged = bursts * (100 + DISPATCH as u64);
    let saved = 101 * MOST_ALLOWANCE as u64;
    let part = charged.saturating_sub(saved) as f64 / now as f64;
    assert!(
        part < 0.07,
        "{part} of the time, but for what they had saved up"
    );
}

#[test]
fn a_child_owes_what_its_parent_owes() {
    let parent = Share::outermost();
    let now = 1_000_000_000;
    while !parent.is_over(now) {
        parent.count(&burst(1_000, 0), now);
    }
    assert!(Share::child_of(&parent).is_over(now));
}

#[test]
fn a_parent_of_many_hogs_is_over_its_share() {
    let parent = Share::outermost();
    let now = 1_000_000_000;
    let hogs: Vec<_> = (0..30).map(|_| Share::child_of(&parent)).collect();
    hogs[0].count_preemption(30_000, now);
    assert!(!parent.is_over(now), "one is nothing unusual");
    for _ in 0..30 {
        hogs[0].count_preemption(30_000, now);
    }
    assert!(!parent.is_over(now), "only first slices count");
    hogs.iter()
        .for_each(|hog| hog.count_preemption(30_000, now));
    assert!(parent.is_over(now));
}

#[test]
fn debts_are_bounded_and_forgotten_after_a_while() {
    let share = Share::outermost();
    let now = 1_000_000_000;
    share.count(&burst(u64::MAX, SLICE), now);
    assert!(share.is_over(now));
    assert!(!share.is_over(now + REFILL * LEAST_ALLOWANCE.unsigned_abs()));
    assert_eq!(share.settle(now), LEAST_ALLOWANCE.abs_diff(ADVANCE));
    assert!(!share.is_over(now));
    assert_eq!(share.settle(now), 0);
}

#[test]
fn families_served_longer_ago_come_first() {
    let root = Share::outermost();
    let (one, other) = (Share::child_of(&root), Share::child_of(&root));
    let (of_one, of_other) = (Share::child_of(&one), Share::child_of(&other));
    of_one.was_served(100, 10);
    assert!(of_other.precedes(&of_one) && !of_one.precedes(&of_other));
    assert!(other.precedes(&of_one) && of_other.precedes(&one));
    let sibling = Share::child_of(&one);
    assert!(of_other.precedes(&sibling), "its family was served");
    assert!(
        !of_one.precedes(&one) && !one.precedes(&of_one),
        "one family"
    );
    let stranger = Share::outermost();
    assert!(stranger.precedes(&of_one), "another tree was never served");
}
