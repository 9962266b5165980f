//! A thread that does nothing but wait on a futex: the least that waking and falling asleep again can cost.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use rustix::thread::futex;

/// Ends its thread when it is dropped.
pub struct Pinged {
    word: Arc<AtomicU32>,
    id: u32,
    thread: Option<JoinHandle<()>>,
}

/// The word's value that ends the thread.
const STOP: u32 = u32::MAX;

impl Pinged {
    /// Starts the thread, which waits for the first ping.
    pub fn start() -> Self {
        let word = Arc::new(AtomicU32::new(0));
        let waited_on = Arc::clone(&word);
        let (tell, told) = mpsc::channel();
        let thread = thread::spawn(move || {
            let _ = tell.send(current_thread_id());
            let mut seen = 0;
            while seen != STOP {
                // An error means that the word changed before the wait or that a signal came: both end in a new look.
                let _ = futex::wait(&waited_on, futex::Flags::PRIVATE, seen, None);
                seen = waited_on.load(Ordering::Acquire);
            }
        });
        Self {
            word,
            id: told.recv().expect("the thread has begun"),
            thread: Some(thread),
        }
    }

    /// The system's id of the thread.
    pub fn thread_id(&self) -> u32 {
        self.id
    }

    /// Wakes the thread, which goes straight back to sleep.
    pub fn ping(&self) {
        self.word.fetch_add(1, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
    }
}

/// The system's id of the calling thread.
pub fn current_thread_id() -> u32 {
    rustix::thread::gettid()
        .as_raw_nonzero()
        .get()
        .cast_unsigned()
}

impl Drop for Pinged {
    fn drop(&mut self) {
        self.word.store(STOP, Ordering::Release);
        let _ = futex::wake(&self.word, futex::Flags::PRIVATE, 1);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::ThreadSet;

    #[test]
    fn the_pinged_thread_wakes_for_each_ping_and_ends() {
        let pinged = Pinged::start();
        let thread = ThreadSet::one(pinged.thread_id());
        let before = thread.context_switches().unwrap();
        while thread.context_switches().unwrap() == before {
            pinged.ping();
            thread::yield_now();
        }
        drop(pinged);
    }
}
