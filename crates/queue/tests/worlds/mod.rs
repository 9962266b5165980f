//! What the tests of decisions share: a clock that the test moves, and machines as busy as it says.

#![allow(dead_code, reason = "each test program uses its own part of this")]

#[path = "../../../pool/tests/watchdog/mod.rs"]
mod watchdog;

use std::sync::Arc;
use std::time::Duration;

use jobtree_queue::Now;
use jobtree_queue::admission::Admission;
use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;
pub use watchdog::Watchdog;

pub mod world;

/// Watches the calling test, which the thread is named after.
pub fn watch() -> Watchdog {
    Watchdog::watching(std::thread::current().name().unwrap_or("main"))
}

/// Seconds.
pub fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Noon of a Sunday in November, a day after the machine was started.
pub fn noon() -> Now {
    let wall = "2026-11-15T12:00:00Z".parse().unwrap();
    Now {
        wall,
        mono: secs(86_400),
    }
}

/// A policy of a text.
pub fn policy(text: &str) -> Arc<Policy> {
    Arc::new(Policy::from_toml(text).unwrap())
}

/// A sample that reads as this busy: by the CPU of others, which is 10..90 % for 0..=10, and, beyond BUSY, by CPU pressure, which
/// is 10..80 %.
pub fn busy(busy: f64) -> Sample {
    Sample {
        cpu_idle: 0.9 - 0.08 * busy,
        psi_cpu: (busy > 7.0).then_some(10.0 + 7.0 * busy),
        ..Sample::idle()
    }
}

/// Feeds a sample every two seconds for so long, and returns the moment of the last one.
pub fn feed(admission: &mut Admission, level: f64, used: u32, from: Now, lasting: Duration) -> Now {
    let mut now = from;
    for _ in 0..lasting.as_secs() / 2 {
        now = now.after(secs(2));
        admission.sample(busy(level), used, now);
    }
    now
}
