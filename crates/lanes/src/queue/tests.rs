//! The queue against a model that does the same by looking at everything, and each rule by name.

use std::collections::HashMap;

use super::fifo::BLOCK;
use super::returned::{KEPT, Returned};
use super::*;

const AGING: Duration = Duration::from_nanos(100);

fn at(nanos: u64) -> Moment {
    Moment::from_nanos(nanos)
}

/// A small generator of its own: the same seed, the same sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn priority(&mut self) -> Priority {
        Priority::ALL[self.below(5) as usize]
    }
}

/// What the model knows of a waiting job.
#[derive(Clone, Debug)]
struct Waiting {
    id: u64,
    priority: Priority,
    first_enqueued: u64,
    enqueued: u64,
    arrival: u64,
    returned: bool,
    was_aged: bool,
}

impl Waiting {
    fn aged_at(&self) -> u64 {
        self.enqueued.max(self.first_enqueued + 100)
    }

    /// Who goes first by age.
    fn seniority(&self) -> (u64, u8, u8, u64) {
        let kind = u8::from(self.returned) + u8::from(self.was_aged);
        let urgency = if self.returned {
            0
        } else {
            4 - self.priority as u8
        };
        (self.aged_at(), kind, urgency, self.arrival)
    }
}

#[derive(Default)]
struct Model {
    waiting: Vec<Waiting>,
    arrivals: u64,
    latest: u64,
    last_turn_was_by_age: bool,
}

impl Model {
    fn push(&mut self, id: u64, priority: Priority, first_enqueued: Option<u64>, now: u64) {
        self.latest = self.latest.max(now);
        let first = first_enqueued.unwrap_or(self.latest);
        self.waiting.push(Waiting {
            id,
            priority,
            first_enqueued: first,
            enqueued: self.latest,
            arrival: self.arrivals,
            returned: first_enqueued.is_some(),
            was_aged: first_enqueued.is_some() && first + 100 <= self.latest,
        });
        self.arrivals += 1;
    }

    /// Takes a job that arrived before `mark`; says whether by age.
    fn pop(&mut self, mark: u64, now: u64) -> Option<(Waiting, bool)> {
        self.latest = self.latest.max(now);
        let unaged_back = |job: &&Waiting| job.returned && !job.was_aged;
        let heap_top = self.waiting.iter().filter(unaged_back);
        let heap_top = heap_top.min_by_key(|job| job.seniority());
        let hidden = heap_top.is_some_and(|top| top.arrival >= mark);
        let here = self.waiting.iter().filter(|job| job.arrival < mark);
        let aged = here
            .clone()
            .filter(|job| job.aged_at() <= self.latest && !(hidden && unaged_back(job)))
            .min_by_key(|job| job.seniority())
            .filter(|_| !self.last_turn_was_by_age);
        let urgent = here.max_by_key(|job| (job.priority, u64::MAX - job.arrival));
        let id = aged.or(urgent)?.id;
        let by_age = aged.is_some();
        self.last_turn_was_by_age = by_age;
        let position = self.waiting.iter().position(|job| job.id == id)?;
        Some((self.waiting.remove(position), by_age))
    }
}

#[test]
fn does_what_the_model_does() {
    for seed in 0..3000 {
        let mut random = Random(seed);
        let mut queue = LaneQueue::new(AGING);
        let mut model = Model::default();
        let (mut now, mut next_id) = (0, 0);
        let mut outside: Vec<Waiting> = Vec::new();
        let mut mark = None;
        let leaning = 1 + random.below(3);
        let pace = [1, 5, 40][random.below(3) as usize];
        for _ in 0..120 {
            now += random.below(pace);
            // Callers' clocks are read before they have the lock.
            let read = now.saturating_sub(random.below(3));
            match random.below(4 + leaning) {
                0 | 1 => {
                    let priority = random.priority();
                    queue.push_new(next_id, priority, at(read));
                    model.push(next_id, priority, None, read);
                    next_id += 1;
                }
                2 if !outside.is_empty() => {
                    let chosen = random.below(outside.len() as u64) as usize;
                    let job = outside.swap_remove(chosen);
                    let first = at(job.first_enqueued);
                    queue.push_again(job.id, job.priority, first, at(read));
                    model.push(job.id, job.priority, Some(job.first_enqueued), read);
                }
                3 => mark = Some((queue.mark(), model.arrivals)),
                _ => {
                    let marked = mark.filter(|_| random.below(2) == 0);
                    let picked = match marked {
                        Some((mark, _)) => queue.pop_before(&mark, at(read)),
                        None => queue.pop(at(read)),
                    };
                    let arrivals = marked.map_or(u64::MAX, |(_, arrivals)| arrivals);
                    let expected = model.pop(arrivals, read);
                    let expected_pick = expected.clone().map(|(job, aged)| Picked {
                        job: job.id,
                        priority: job.priority,
                        first_enqueued: at(job.first_enqueued),
                        waited: at(model.latest).since(at(job.enqueued)),
                        aged,
                        returned: job.returned,
                    });
                    assert_eq!(picked, expected_pick, "seed {seed}");
                    if let Some((job, _)) = expected
                        && random.below(3) > 0
                    {
                        outside.push(job);
                    }
                }
            }
            for priority in Priority::ALL {
                let of_it = |job: &&Waiting| job.priority == priority;
                let count = model.waiting.iter().filter(of_it).count();
                assert_eq!(queue.count(priority), count, "seed {seed}");
            }
            assert_eq!(queue.len(), model.waiting.len());
            assert_eq!(queue.is_empty(), model.waiting.is_empty());
        }
        let mut drained = queue.drain();
        let mut left: Vec<u64> = model.waiting.iter().map(|job| job.id).collect();
        drained.sort_unstable();
        left.sort_unstable();
        assert_eq!(drained, left, "seed {seed}");
        assert!(queue.is_empty() && queue.pop(at(now)).is_none());
    }
}

/// Random floods, of jobs that end and of jobs that come back: `2 · (O + 1)` turns after a job is aged, it had its turn.
#[test]
fn nobody_waits_for_longer_than_the_formula_says() {
    for seed in 0..60 {
        let mut random = Random(seed);
        let mut queue = LaneQueue::new(AGING);
        let mut model = Model::default();
        let mut bounds: HashMap<u64, u64> = HashMap::new();
        let (mut now, mut turns, mut next_id, mut latest_aged) = (0, 0, 0, 0);
        let mut longest = 0;
        let most_waiting = 1 + random.below(150) as usize;
        while turns < 1000 {
            now += random.below(4);
            let lowest = random.below(20) == 0;
            while model.waiting.len() < most_waiting && random.below(3) > 0 {
                let priority = if lowest {
                    Priority::Lowest
                } else {
                    random.priority().max(Priority::High)
                };
                queue.push_new(next_id, priority, at(now));
                model.push(next_id, priority, None, now);
                next_id += 1;
            }
            // Those that have become aged since the last turn: from now on their turns are counted.
            for job in &model.waiting {
                if job.aged_at() <= now && !bounds.contains_key(&job.arrival) {
                    let not_later = |other: &&Waiting| {
                        job.returned || other.first_enqueued <= job.first_enqueued
                    };
                    let others = model.waiting.iter().filter(not_later).count() as u64 - 1;
                    bounds.insert(job.arrival, turns + 2 * (others + 1));
                    latest_aged = now;
                }
            }
            let picked = queue.pop(at(now));
            let Some((job, _)) = model.pop(u64::MAX, now) else {
                assert_eq!(picked, None);
                continue;
            };
            turns += 1;
            assert_eq!(picked.unwrap().job, job.id);
            if let Some(bound) = bounds.remove(&job.arrival) {
                assert!(turns <= bound, "seed {seed}: turn {turns}, not {bound}");
                longest = longest.max(now - job.aged_at());
            }
            if random.below(4) == 0 {
                let first = at(job.first_enqueued);
                queue.push_again(job.id, job.priority, first, at(now));
                model.push(job.id, job.priority, Some(job.first_enqueued), now);
            }
            assert!(bounds.values().all(|bound| *bound > turns), "seed {seed}");
        }
        assert!(most_waiting < 100 || latest_aged > 0 && longest > 0);
    }
}

#[test]
fn under_a_flood_of_urgent_jobs_the_least_urgent_has_its_turn_as_soon_as_it_is_aged() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new("lowest", Priority::Lowest, at(0));
    for now in 0..100 {
        queue.push_new("flood", Priority::Highest, at(now));
        queue.push_new("flood", Priority::Highest, at(now));
        assert_eq!(queue.pop(at(now)).unwrap().job, "flood");
    }
    queue.push_new("flood", Priority::Highest, at(100));
    // Nothing but the flood was put in no later than it, and none of what was is left: O is 1, at most four turns.
    let turns: Vec<_> = (0..4).filter_map(|_| queue.pop(at(100))).collect();
    let aged: Vec<_> = turns.iter().filter(|turn| turn.job == "lowest").collect();
    assert_eq!(aged.len(), 1);
    assert!(aged[0].aged);
    assert_eq!(aged[0].waited, AGING);
}

#[test]
fn a_job_that_lives_for_long_has_at_most_every_second_turn_of_more_urgent_ones() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new("old", Priority::Lowest, at(0));
    let mut turns = Vec::new();
    for now in 1000..1100 {
        queue.push_new("urgent", Priority::High, at(now));
        queue.push_new("urgent", Priority::High, at(now));
        let picked = queue.pop(at(now)).unwrap();
        assert_eq!(picked.aged, picked.job == "old");
        turns.push(picked.job);
        if picked.job == "old" {
            queue.push_again("old", picked.priority, picked.first_enqueued, at(now));
        }
    }
    for pair in turns.chunks(2) {
        assert_eq!(pair, ["old", "urgent"]);
    }
}

#[test]
fn aged_jobs_that_come_back_have_their_turns_by_age_one_after_the_other() {
    let mut queue = LaneQueue::new(AGING);
    for job in ["a", "b", "c"] {
        queue.push_new(job, Priority::Low, at(0));
    }
    let mut by_age = String::new();
    for now in 1000..1018 {
        queue.push_new("urgent", Priority::High, at(now));
        let picked = queue.pop(at(now)).unwrap();
        if picked.aged {
            by_age += picked.job;
            queue.push_again(picked.job, picked.priority, picked.first_enqueued, at(now));
        }
    }
    assert_eq!(by_age, "abcabcabc");
}

#[test]
fn an_aged_job_keeps_the_turns_that_its_priority_gives_it() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new("urgent", Priority::Highest, at(0));
    queue.push_new("other", Priority::Low, at(950));
    for now in 1000..1049 {
        let picked = queue.pop(at(now)).unwrap();
        assert_eq!(picked.job, "urgent");
        queue.push_again(picked.job, picked.priority, picked.first_enqueued, at(now));
    }
}

#[test]
fn first_in_first_out_within_a_priority_and_whoever_comes_back_goes_to_the_end() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new(1, Priority::Normal, at(0));
    queue.push_new(2, Priority::Normal, at(0));
    queue.push_again(3, Priority::Normal, at(0), at(0));
    queue.push_new(4, Priority::Normal, at(0));
    queue.push_again(5, Priority::Normal, at(0), at(0));
    queue.push_again(6, Priority::High, at(0), at(0));
    let first = queue.pop(at(0)).unwrap();
    assert_eq!((first.job, first.returned), (6, true));
    let first = queue.pop(at(0)).unwrap();
    assert_eq!((first.job, first.returned), (1, false));
    queue.push_again(1, Priority::Normal, first.first_enqueued, at(0));
    let rest: Vec<_> = std::iter::from_fn(|| queue.pop(at(0))).collect();
    let rest: Vec<_> = rest.into_iter().map(|picked| picked.job).collect();
    assert_eq!(rest, [2, 3, 4, 5, 1]);
}

#[test]
fn what_comes_after_the_mark_waits_for_the_next_one() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new("new", Priority::Low, at(0));
    queue.push_again("old", Priority::Low, at(0), at(900));
    let mark = queue.mark();
    queue.push_new("later", Priority::Highest, at(1000));
    let mut ran = Vec::new();
    while let Some(picked) = queue.pop_before(&mark, at(1000)) {
        ran.push(picked.job);
        queue.push_again(picked.job, picked.priority, picked.first_enqueued, at(1000));
    }
    assert_eq!(ran, ["new", "old"]);
    assert_eq!(queue.len(), 3);
}

/// Steps that each of 1 000 turns needs at `now`, with `length` jobs waiting all the time, of which `returned` out of 4 came
/// back; those that have had their turn come back or are replaced by new ones.
fn steps_a_turn(length: u64, returned: u64, now: u64, come_back: bool) -> f64 {
    let mut random = Random(7);
    let mut queue = LaneQueue::new(AGING);
    for id in 0..length {
        let priority = random.priority();
        if id % 4 < returned {
            queue.push_again(id, priority, at(0), at(0));
        } else {
            queue.push_new(id, priority, at(0));
        }
    }
    let mut before = steps::taken();
    for round in 0..1010 {
        if round == 10 {
            before = steps::taken();
        }
        let now = at(now + round / 100);
        let picked = queue.pop(now).unwrap();
        if come_back {
            queue.push_again(picked.job, picked.priority, picked.first_enqueued, now);
        } else {
            queue.push_new(picked.job, picked.priority, now);
        }
    }
    (steps::taken() - before) as f64 / 1000.0
}

/// Work, not time: each look at an entry, each comparison and each move is counted.
#[test]
fn a_turn_costs_the_same_with_a_thousand_jobs_queued_and_with_a_million() {
    const YOUNG: u64 = 0;
    const AGED: u64 = 10_000;
    for (returned, now, come_back) in [
        (0, YOUNG, false),
        (0, AGED, false),
        (2, YOUNG, false),
        (2, YOUNG, true),
        (2, AGED, false),
        (2, AGED, true),
    ] {
        let short = steps_a_turn(1_000, returned, now, come_back);
        let long = steps_a_turn(1_000_000, returned, now, come_back);
        let case = format!("{returned} of 4 came back, now {now}, come back {come_back}");
        assert!(short <= 20.0, "{case}: {short}");
        assert!(long <= short + 3.0, "{case}: {short}, then {long}");
    }
    // Only where all have come back before they were aged, and now are, each leaves the heap by its top, once.
    let short = steps_a_turn(1_000, 4, AGED, true);
    let long = steps_a_turn(1_000_000, 4, AGED, true);
    let levels = 10.0;
    assert!(long <= short + 2.0 * levels, "{short}, then {long}");
}

#[test]
fn a_queued_job_takes_eight_bytes_beside_itself() {
    assert_eq!(size_of::<New<Box<u8>>>(), 16);
    const { assert!(Returned::<Box<u8>>::BYTES <= 112) };
}

#[test]
fn churn_does_not_make_it_grow_and_a_burst_gives_its_memory_back() {
    let mut queue = LaneQueue::new(AGING);
    let blocks = |queue: &LaneQueue<u64>| -> usize {
        let blocks = queue.fresh.iter().map(|fresh| fresh.waiting.capacity());
        blocks.sum()
    };
    for id in 0..100_000 {
        queue.push_new(id, Priority::Low, at(0));
        queue.push_again(id, Priority::Low, at(0), at(0));
    }
    // One job that stays all the time, behind the numbering of all others.
    queue.push_again(u64::MAX, Priority::Lowest, at(0), at(0));
    while queue.len() > 1 {
        assert_ne!(queue.pop(at(1)).unwrap().job, u64::MAX);
    }
    let (slots, heap) = queue.returned.capacity();
    assert!(
        slots <= KEPT && heap <= KEPT,
        "{slots} slots, {heap} in the heap"
    );
    assert!(blocks(&queue) <= 2 * BLOCK);
    for round in 0..50_000 {
        let now = at(2 + round / 1000);
        queue.push_again(round, Priority::High, at(2), now);
        queue.push_new(round, Priority::High, now);
        assert_eq!(queue.pop(now).unwrap().job, round);
        assert_eq!(queue.pop(now).unwrap().job, round);
    }
    let (slots, heap) = queue.returned.capacity();
    assert!(
        slots <= KEPT && heap <= KEPT,
        "{slots} slots, {heap} in the heap"
    );
    assert!(blocks(&queue) <= 4 * BLOCK);
    assert_eq!(queue.pop(at(60)).unwrap().job, u64::MAX);
}

#[test]
fn all_that_is_left_comes_out_at_once_the_most_urgent_first() {
    let mut queue = LaneQueue::new(AGING);
    queue.push_new(1, Priority::Low, at(0));
    queue.push_again(2, Priority::High, at(0), at(500));
    queue.push_new(3, Priority::High, at(500));
    assert_eq!(queue.drain(), [2, 3, 1]);
    assert_eq!(queue.len(), 0);
    queue.push_new(4, Priority::Low, at(600));
    assert_eq!(queue.pop(at(600)).unwrap().job, 4);
}
