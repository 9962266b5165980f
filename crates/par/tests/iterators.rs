//! The iterators of `orx-parallel` on our pool.
#![cfg(feature = "iter")]

mod common;

use std::collections::HashSet;
use std::sync::Mutex;

use common::{lengths, on_every_pool, panic_message, quiet_panics};
use jobtree_par::iter::{self, prelude::*};
use jobtree_pool::Pool;

#[test]
fn they_give_what_sequential_ones_give() {
    on_every_pool(|| {
        for len in lengths() {
            let squares: Vec<usize> = (0..len)
                .into_par()
                .runner(iter::runner())
                .map(|n| n * n)
                .collect();
            assert_eq!(squares, (0..len).map(|n| n * n).collect::<Vec<_>>());
            let even = squares
                .par()
                .runner(iter::runner())
                .filter(|n| **n % 2 == 0)
                .count();
            assert_eq!(even, len.div_ceil(2));
        }
    });
}

#[test]
fn they_run_on_the_pool_they_are_given() {
    let pool = Pool::builder()
        .workers(3)
        .worker_name(|i| format!("given-{i}"))
        .build()
        .unwrap();
    let names = Mutex::new(HashSet::new());
    (0..10_000)
        .into_par()
        .runner(iter::runner_on(&pool))
        .for_each(|_| {
            let name = std::thread::current().name().map(String::from);
            names.lock().unwrap().insert(name);
        });
    let names = names.into_inner().unwrap();
    assert!(!names.is_empty());
    assert!(
        names.iter().all(|name| name
            .as_deref()
            .is_some_and(|name| name.starts_with("given-"))),
        "{names:?}"
    );
}

#[test]
fn they_take_the_pool_they_are_called_on() {
    let pool = Pool::builder().workers(2).build().unwrap();
    let inside = pool.install(|| {
        (0..1000)
            .into_par()
            .runner(iter::runner())
            .all(|_| jobtree_pool::current_workers() == 2)
    });
    assert!(inside);
}

#[test]
fn panics_reach_the_caller() {
    quiet_panics();
    on_every_pool(|| {
        let message = panic_message(|| {
            (0..1000)
                .into_par()
                .runner(iter::runner())
                .for_each(|n| assert!(n != 777, "on purpose"));
        });
        assert!(message.starts_with("on purpose"));
    });
}
