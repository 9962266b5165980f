//! The policy that a new user gets, on a machine that idles: what tests that start jobs run with. Tests of other crates use
//! it too, by its path.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use jobtree_queue::policy::Policy;
use jobtree_queue::signals::Sample;

/// How often the machine is measured.
const EVERY: Duration = Duration::from_millis(20);

/// Returns the policy that a new user gets, but for the minute that a machine must be quiet first.
pub fn default_policy() -> Policy {
    let mut policy = Policy::default();
    // A test cannot wait for it.
    policy.quiet.enter_after = Duration::ZERO;
    policy
}

/// Measures a machine that idles, until it is dropped. What is admitted between two measurements is limited, so one is not
/// enough.
pub struct QuietMachine {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl QuietMachine {
    /// Gives samples to `tell`, the first of them before this returns.
    pub fn measured_by(tell: impl Fn(Sample) + Send + 'static) -> Self {
        tell(Sample::idle());
        let ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            while !end.load(Ordering::Acquire) {
                std::thread::sleep(EVERY);
                tell(Sample::idle());
            }
        });
        Self {
            ended,
            thread: Some(thread),
        }
    }
}

impl Drop for QuietMachine {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("it does not panic");
        }
    }
}
