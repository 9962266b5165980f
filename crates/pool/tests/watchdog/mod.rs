//! Ends a test program that hangs. Tests of other crates use it too, by its path.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends the process if what it watches does not end. Only a hang comes that far, so it may be generous.
pub struct Watchdog {
    ended: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Watches `what` until it is dropped.
    pub fn watching(what: impl Into<String>) -> Watchdog {
        let (ended, watched) = channel();
        let what = what.into();
        let watch = move || {
            if watched.recv_timeout(Duration::from_secs(300)) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what} does not end");
                std::process::abort();
            }
        };
        Watchdog {
            ended: Some(ended),
            thread: Some(std::thread::spawn(watch)),
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        drop(self.ended.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a watchdog does not panic");
        }
    }
}
