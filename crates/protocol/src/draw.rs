//! New ids of version 7, in the order in which they are drawn.
//!
//! The operating system is asked for randomness once a millisecond, and not for each id: a system call each would be a
//! tenth of what a job of a large batch costs. Within a millisecond a counter goes up, from a random start; the rest is
//! mixed from it with a random key. Ids only ever grow within a process, also when the clock goes back. After a fork
//! both processes draw anew with the next millisecond.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use uuid::Uuid;

/// Half of the counter's range is left to count up.
const START: u64 = (1 << COUNTER) / 2;
const COUNTER: u32 = 42;

struct Drawn {
    millis: u64,
    counter: u64,
    key: u64,
}

static LAST: Mutex<Drawn> = Mutex::new(Drawn {
    millis: 0,
    counter: 0,
    key: 0,
});

impl Drawn {
    /// The next id at this time, with randomness for a new millisecond.
    fn next(&mut self, millis: u64, random: impl FnOnce() -> u128) -> Uuid {
        self.counter += 1;
        if millis > self.millis || self.counter >> COUNTER != 0 {
            let random = random();
            self.millis = millis.max(self.millis + 1);
            self.counter = random as u64 % START;
            self.key = (random >> 64) as u64;
        }
        // The 12 bits after the version, 30 after the variant, and a tail.
        let mut bytes = [0; 10];
        let (high, low) = (self.counter >> 30, self.counter & ((1 << 30) - 1));
        bytes[..2].copy_from_slice(&(high as u16).to_be_bytes());
        bytes[2..6].copy_from_slice(&(low as u32).to_be_bytes());
        bytes[6..].copy_from_slice(&mixed(self.key ^ self.counter).to_be_bytes());
        uuid::Builder::from_unix_timestamp_millis(self.millis, &bytes).into_uuid()
    }
}

/// Each bit of the result depends on each bit of the number.
fn mixed(number: u64) -> u32 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number >> 32) as u32
}

/// An id of this machine's clock and randomness, greater than all before it.
pub(crate) fn version_7() -> Uuid {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let millis = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // 122 of these bits are random; those that are not are in the middle.
    last.next(millis, || Uuid::new_v4().as_u128().rotate_left(32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_whatever_the_clock_does() {
        let mut drawn = Drawn {
            millis: 0,
            counter: 0,
            key: 0,
        };
        let mut asked = 0;
        let mut last = Uuid::nil();
        for (millis, random) in [(5, 7), (5, 8), (9, u128::MAX), (3, 1), (3, 2), (10, 0)] {
            let id = drawn.next(millis, || {
                asked += 1;
                random
            });
            assert_eq!(id.get_version_num(), 7);
            assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            assert!(id > last, "{id} after {last}");
            last = id;
        }
        assert_eq!(asked, 3, "once a millisecond");
    }

    #[test]
    fn a_counter_at_its_end_borrows_from_the_next_millisecond() {
        let mut drawn = Drawn {
            millis: 5,
            counter: (1 << COUNTER) - 2,
            key: 0,
        };
        let last = drawn.next(5, || unreachable!("it is the same millisecond"));
        let next = drawn.next(5, || 0);
        assert!(next > last);
        assert_eq!(drawn.millis, 6);
    }

    #[test]
    fn ids_of_many_threads_are_different() {
        let draw = || (0..2000).map(|_| version_7()).collect::<Vec<_>>();
        let mut all: Vec<Uuid> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(draw)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.flat_map(|ids| ids.expect("it ends")).collect()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 8000);
    }
}
