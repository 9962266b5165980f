//! A panic in any item reaches the caller, and no value is lost or dropped twice.

mod common;

use common::{Alive, on_every_pool, panic_message, quiet_panics};
use jobtree_par::{self as par, Grain};

const LENGTHS: [usize; 6] = [1, 2, 3, 17, 64, 300];

/// Runs `body` for some lengths, and for positions to panic at.
fn at_every_position(body: impl Fn(usize, usize) + Sync) {
    quiet_panics();
    on_every_pool(|| {
        for len in LENGTHS {
            for position in (0..len).step_by(len.div_ceil(40)) {
                body(len, position);
            }
        }
    });
}

fn panic_at(position: usize, index: usize) {
    if position == index {
        panic!("on purpose at {index}");
    }
}

#[test]
fn panics_reach_the_caller_from_every_kind_of_loop() {
    at_every_position(|len, position| {
        let expected = format!("on purpose at {position}");
        let check = |body: &dyn Fn()| assert_eq!(panic_message(body), expected);
        let over = || par::over(0..len).grain(Grain::of(1));
        check(&|| over().for_each(|index| panic_at(position, index)));
        check(&|| {
            over().map(|index| panic_at(position, index)).count();
        });
        check(&|| {
            over().any(|index| {
                panic_at(position, index);
                false
            });
        });
        check(&|| {
            over()
                .filter(|index| {
                    panic_at(position, *index);
                    true
                })
                .collect();
        });
        check(&|| {
            let _ = over().try_for_each(|index| {
                panic_at(position, index);
                Ok::<(), ()>(())
            });
        });
    });
}

#[test]
fn a_panic_while_collecting_drops_what_was_made() {
    at_every_position(|len, position| {
        let alive = Alive::default();
        let mut collected = vec![alive.track(7)];
        let message = panic_message(|| {
            par::over(0..len)
                .grain(Grain::of(2))
                .map(|index| {
                    panic_at(position, index);
                    alive.track(index)
                })
                .collect_into(&mut collected);
        });
        assert_eq!(message, format!("on purpose at {position}"));
        assert_eq!((collected.len(), alive.count()), (1, 1));

        panic_message(|| {
            par::over(0..len)
                .map(|index| {
                    panic_at(position, index);
                    alive.track(index)
                })
                .filter(|tracked| tracked.value % 3 != 0)
                .collect_into(&mut collected);
        });
        assert_eq!((collected.len(), alive.count()), (1, 1));
    });
}

#[test]
fn a_panic_while_draining_drops_the_rest() {
    at_every_position(|len, position| {
        let alive = Alive::default();
        let mut values: Vec<_> = (0..len).map(|index| alive.track(index)).collect();
        panic_message(|| {
            par::drain(&mut values)
                .grain(Grain::of(1))
                .for_each(|tracked| panic_at(position, tracked.value));
        });
        assert!(values.is_empty());
        assert_eq!(alive.count(), 0);
    });
}

#[test]
fn what_is_collected_and_drained_is_dropped_once() {
    on_every_pool(|| {
        for len in common::lengths() {
            let alive = Alive::default();
            let mut values = par::map(0..len, |index| alive.track(index));
            assert_eq!(alive.count(), len as isize);
            let (even, odd) = par::drain(&mut values).partition(|tracked| tracked.value % 2 == 0);
            assert_eq!((even.len(), odd.len()), (len.div_ceil(2), len / 2));
            assert_eq!(alive.count(), len as isize);
            drop(odd);
            let mut even = even;
            let found = par::drain(&mut even).find_any(|tracked| tracked.value * 2 >= len);
            assert_eq!(alive.count(), isize::from(found.is_some()));
            drop(found);

            let mut places = par::map(0..len, |_| alive.track(0));
            par::over(0..len)
                .map(|index| alive.track(index))
                .write_to(&mut places);
            assert_eq!(alive.count(), len as isize);
            let backwards: Vec<usize> = (0..len).rev().collect();
            par::over(0..len)
                .map(|index| alive.track(index))
                .scatter_to(&backwards, &mut places)
                .unwrap();
            assert_eq!(alive.count(), len as isize);
            drop(places);
            assert_eq!(alive.count(), 0);
        }
    });
}

#[test]
fn an_unfinished_loop_over_values_drops_them() {
    let alive = Alive::default();
    let mut values: Vec<_> = (0..10).map(|index| alive.track(index)).collect();
    let unused = par::drain(&mut values).map(|tracked| tracked.value);
    drop(unused);
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_source_that_lies_about_its_length_is_caught() {
    /// Says that it has more items than it gives.
    struct Liar(u8);

    impl par::Source for Liar {
        type Item = u8;
        fn len(&self) -> usize {
            usize::from(self.0)
        }
        fn split_at(self, index: usize) -> (Self, Self) {
            (Liar(index as u8), Liar(self.0 - index as u8))
        }
        fn items(self) -> impl Iterator<Item = u8> {
            0..self.0 / 2
        }
        fn items_from_back(self) -> impl Iterator<Item = u8> {
            (0..self.0 / 2).rev()
        }
    }

    quiet_panics();
    let message = panic_message(|| {
        par::over(Liar(100)).collect();
    });
    assert!(message.contains("fewer items than it said"), "{message}");
}
