//! The wheel against a sorted map, and what it costs in slots looked into.

use std::collections::BTreeMap;

use super::*;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A span of time; each order of magnitude up to `bits` is as likely as any other.
    fn span(&mut self, bits: u32) -> u64 {
        let bits = self.below(u64::from(bits) + 1) as u32;
        self.next().checked_shr(64 - bits).unwrap_or(0)
    }
}

/// The wheel's behaviour, in the simplest way.
#[derive(Default)]
struct Model {
    /// By deadline and number of insertion, which is the value, too.
    timers: BTreeMap<(u64, u64), TimerKey>,
    position: u64,
    now: u64,
    inserted: u64,
}

impl Model {
    fn earliest(&self) -> Option<u64> {
        self.timers
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }
}

/// A wheel and its model, always given the same to do.
struct Pair {
    wheel: Wheel<u64>,
    model: Model,
}

impl Pair {
    fn new() -> Pair {
        Pair {
            wheel: Wheel::new(),
            model: Model::default(),
        }
    }

    fn insert(&mut self, deadline: u64) -> TimerKey {
        let value = self.model.inserted;
        self.model.inserted += 1;
        let key = self.wheel.insert(deadline, value);
        let counted_as = deadline.max(self.model.position);
        self.model.timers.insert((counted_as, value), key);
        key
    }

    fn cancel_any(&mut self, random: &mut Random) -> Option<TimerKey> {
        let nth = random.below(self.model.timers.len().max(1) as u64) as usize;
        let (&(deadline, value), &key) = self.model.timers.iter().nth(nth)?;
        self.model.timers.remove(&(deadline, value));
        assert_eq!(self.wheel.cancel(key), Some(value));
        Some(key)
    }

    /// One timer or none, the same from both.
    fn pop(&mut self, now: u64) -> Option<TimerKey> {
        self.model.now = self.model.now.max(now);
        let popped = self.wheel.pop_expired(now);
        let due = self
            .model
            .timers
            .first_entry()
            .filter(|timer| timer.key().0 <= self.model.now);
        let Some(due) = due else {
            self.model.position = self.model.now;
            assert_eq!(popped, None);
            return None;
        };
        let ((deadline, value), key) = due.remove_entry();
        self.model.position = deadline;
        assert_eq!(popped, Some((key, value)));
        Some(key)
    }

    fn check(&self) {
        assert_eq!(self.wheel.len(), self.model.timers.len());
        assert_eq!(self.wheel.is_empty(), self.model.timers.is_empty());
        match (self.wheel.next_deadline(), self.model.earliest()) {
            (None, None) => {}
            (Some(bound), Some(earliest)) => assert!(bound <= earliest, "{bound} > {earliest}"),
            (bound, earliest) => panic!("the wheel says {bound:?}, but it is {earliest:?}"),
        }
    }

    /// Goes to the next deadline as a waiting thread would, and checks that this leads on.
    fn go_to_next_deadline(&mut self) -> bool {
        let Some(bound) = self.wheel.next_deadline() else {
            return false;
        };
        let waiting = self.wheel.len();
        while self.pop(bound).is_some() {}
        let fired = self.wheel.len() < waiting;
        let later = self.wheel.next_deadline().is_none_or(|next| next > bound);
        assert!(fired || later, "the wheel stays at {bound}");
        assert!(later, "a timer at {bound} was left");
        true
    }
}

#[test]
fn does_what_a_sorted_map_does() {
    // Spans of one level, two, four, six, and of all time.
    let spans = [6, 12, 24, 36, 50, 64].into_iter();
    for (seed, bits) in (0..).zip(spans.cycle().take(48)) {
        let mut random = Random(seed);
        let mut pair = Pair::new();
        // From wherever the wheel happens to stand.
        pair.pop(random.span(63));
        let mut gone = Vec::new();
        for _ in 0..1_500 {
            let now = pair.model.now;
            match random.below(12) {
                0..5 => {
                    let deadline = now.saturating_add(random.span(bits));
                    pair.insert(deadline);
                }
                5 => {
                    pair.insert(now.saturating_sub(random.span(bits)));
                }
                6 => gone.extend(pair.cancel_any(&mut random)),
                7 => {
                    // Some of what is due may stay for later.
                    let target = now.saturating_add(random.span(bits.min(60) / 2));
                    for _ in 0..random.below(4) {
                        gone.extend(pair.pop(target));
                    }
                }
                8 => {
                    let target = now.saturating_add(random.span(bits.min(58)));
                    while let Some(key) = pair.pop(target) {
                        gone.push(key);
                    }
                }
                9 => {
                    // Time that goes back does not.
                    gone.extend(pair.pop(now.saturating_sub(random.span(bits))));
                }
                10 => {
                    pair.go_to_next_deadline();
                }
                _ => {
                    let nth = random.below(gone.len().max(1) as u64) as usize;
                    if let Some(&stale) = gone.get(nth) {
                        assert_eq!(pair.wheel.cancel(stale), None);
                    }
                }
            }
            pair.check();
        }
        while pair.go_to_next_deadline() {
            pair.check();
        }
        assert!(pair.wheel.is_empty());
        assert!(pair.model.inserted > 500 && gone.len() > 100);
    }
}

#[test]
fn the_same_deadline_fires_in_the_order_of_insertion_from_whatever_distance() {
    let deadline = (3 << 60) + 12_345;
    let mut wheel = Wheel::new();
    let mut expected = Vec::new();
    let mut insert = |wheel: &mut Wheel<usize>| {
        for _ in 0..3 {
            wheel.insert(deadline, expected.len());
            expected.push(expected.len());
        }
    };
    // From each level down to the lowest.
    for level in (0..LEVELS as u32).rev() {
        let distance = 1 << (DIGIT_BITS * level);
        assert_eq!(wheel.pop_expired(deadline - distance), None);
        insert(&mut wheel);
    }
    // And from the very tick.
    let mut fired = Vec::from_iter(wheel.pop_expired(deadline));
    insert(&mut wheel);
    fired.extend(std::iter::from_fn(|| wheel.pop_expired(deadline)));
    let fired: Vec<_> = fired.into_iter().map(|(_, value)| value).collect();
    assert_eq!(fired, expected);
}

#[test]
fn a_deadline_in_the_past_fires_at_the_next_pop() {
    let mut wheel = Wheel::new();
    assert_eq!(wheel.pop_expired(1_000), None);
    let present = wheel.insert(1_000, "present");
    let past = wheel.insert(3, "past");
    wheel.insert(1_001, "future");
    assert_eq!(wheel.next_deadline(), Some(1_000));
    // Even if the clock went back.
    assert_eq!(wheel.pop_expired(0), Some((present, "present")));
    assert_eq!(wheel.pop_expired(0), Some((past, "past")));
    assert_eq!(wheel.pop_expired(0), None);
    assert_eq!(wheel.len(), 1);
}

#[test]
fn timers_inserted_between_pops_take_their_place() {
    let mut wheel = Wheel::new();
    wheel.insert(10, 10);
    wheel.insert(500, 500);
    assert_eq!(wheel.pop_expired(1_000).map(|(_, value)| value), Some(10));
    wheel.insert(400, 400);
    wheel.insert(600, 600);
    for expected in [400, 500, 600] {
        let popped = wheel.pop_expired(1_000).map(|(_, value)| value);
        assert_eq!(popped, Some(expected));
    }
    assert_eq!(wheel.pop_expired(1_000), None);
}

#[test]
fn a_key_names_nothing_once_its_timer_is_gone() {
    let mut wheel = Wheel::new();
    let cancelled = wheel.insert(5, 'a');
    assert_eq!(wheel.cancel(cancelled), Some('a'));
    assert_eq!(wheel.cancel(cancelled), None);
    let fired = wheel.insert(5, 'b');
    assert_eq!(fired.index, cancelled.index, "the memory is used again");
    assert_eq!(wheel.cancel(cancelled), None);
    assert_eq!(wheel.pop_expired(5), Some((fired, 'b')));
    assert_eq!(wheel.cancel(fired), None);
    let living = wheel.insert(9, 'c');
    assert_eq!((wheel.cancel(cancelled), wheel.cancel(fired)), (None, None));
    assert_eq!(wheel.cancel(living), Some('c'));
    assert!(wheel.is_empty());
}

#[test]
fn memory_grows_with_timers_at_one_time_only() {
    let mut wheel = Wheel::new();
    for round in 0..1_000 {
        let keys: Vec<_> = (0..10).map(|n| wheel.insert(round + n * 50, n)).collect();
        for key in keys.into_iter().step_by(2) {
            wheel.cancel(key);
        }
        while wheel.pop_expired(round + 1_000).is_some() {}
    }
    assert_eq!(wheel.timers.len(), 10);
}

#[test]
fn a_long_jump_visits_few_slots() {
    let mut wheel = Wheel::new();
    // Two years of nothing.
    assert_eq!(wheel.pop_expired(1 << 36), None::<(TimerKey, ())>);
    assert_eq!(wheel.visited, 0);
    // One timer after nearly two years more: once on each of the six levels in between.
    let deadline = (2 << 36) - 1;
    wheel.insert(deadline, ());
    assert_eq!(wheel.pop_expired(deadline - 1), None);
    assert!(wheel.pop_expired(deadline).is_some());
    assert_eq!(wheel.visited, 6);
    // And one at the end of time.
    wheel.visited = 0;
    wheel.insert(u64::MAX, ());
    assert!(wheel.pop_expired(u64::MAX).is_some());
    assert_eq!(wheel.visited, LEVELS as u64);
}

#[test]
fn a_timer_is_filed_a_bounded_number_of_times_however_many_there_are() {
    let mut random = Random(7);
    let mut wheel = Wheel::new();
    for value in 0..10_000 {
        wheel.insert(random.span(36), value);
    }
    let mut fired = 0;
    while wheel.pop_expired(1 << 36).is_some() {
        fired += 1;
    }
    assert_eq!(fired, 10_000);
    // One visit for each to fire, and at most five slots for each that lead down to it.
    assert!(wheel.visited <= 10_000 * 6, "{}", wheel.visited);
}

#[test]
fn a_lone_timer_is_waited_for_once() {
    let mut wheel = Wheel::new();
    let deadline = 7_654_321;
    wheel.insert(deadline, ());
    assert_eq!(wheel.next_deadline(), Some(deadline));
    let neighbour = wheel.insert(deadline + 1, ());
    let bound = wheel.next_deadline().expect("two timers wait");
    assert!(bound < deadline, "the start of the slot that they share");
    wheel.cancel(neighbour);
    assert_eq!(wheel.next_deadline(), Some(deadline));
}

#[test]
fn values_are_dropped_with_the_wheel() {
    let value = std::rc::Rc::new(());
    let mut wheel = Wheel::new();
    for deadline in [1, 100, 1 << 40] {
        wheel.insert(deadline, value.clone());
    }
    drop(wheel.pop_expired(1));
    assert_eq!(std::rc::Rc::strong_count(&value), 3);
    drop(wheel);
    assert_eq!(std::rc::Rc::strong_count(&value), 1);
}
