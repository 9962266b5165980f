//! What several of the tests need.
#![allow(dead_code, reason = "not every test file uses everything")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicIsize, Ordering};

use jobtree_pool::Pool;

static POOLS: LazyLock<Vec<Pool>> = LazyLock::new(|| {
    [1, 2, 3, 8]
        .map(|workers| Pool::builder().workers(workers).build().unwrap())
        .into()
});

/// Runs `body` on a pool of each size.
pub fn on_every_pool(body: impl Fn() + Sync) {
    for pool in POOLS.iter() {
        pool.install(&body);
    }
}

/// Short lengths, those around block borders, and some longer ones.
pub fn lengths() -> impl Iterator<Item = usize> {
    (0..20).chain([
        31, 32, 33, 63, 64, 65, 127, 500, 1023, 1024, 1025, 5000, 20_011,
    ])
}

/// A seeded generator (SplitMix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn numbers(&mut self, len: usize, limit: u64) -> Vec<u64> {
        (0..len).map(|_| self.below(limit)).collect()
    }
}

/// Counts how many of its [`Tracked`] values are alive.
#[derive(Default)]
pub struct Alive(AtomicIsize);

impl Alive {
    pub fn track<T>(&self, value: T) -> Tracked<'_, T> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Tracked { value, alive: self }
    }

    pub fn count(&self) -> isize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A value that is counted from its making until its drop, and must be dropped once.
pub struct Tracked<'a, T> {
    pub value: T,
    alive: &'a Alive,
}

impl<T> Drop for Tracked<'_, T> {
    fn drop(&mut self) {
        self.alive.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `body`, which is to panic with a `String` or `&str`, and gives the message.
pub fn panic_message(body: impl FnOnce()) -> String {
    let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body))
        .expect_err("it should have panicked");
    match payload.downcast::<String>() {
        Ok(message) => *message,
        Err(payload) => payload.downcast_ref::<&str>().unwrap().to_string(),
    }
}

/// Keeps the panics that a test makes on purpose out of its output.
pub fn quiet_panics() {
    static QUIET: LazyLock<()> = LazyLock::new(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let on_purpose = info
                .payload_as_str()
                .is_some_and(|message| message.starts_with("on purpose"));
            if !on_purpose {
                usual(info);
            }
        }));
    });
    LazyLock::force(&QUIET);
}
