//! may: a peer whose tasks have stacks. In a process of its own, as it has one scheduler a process.

use std::cell::RefCell;
use std::time::Duration;

use super::{channels, pending, skynet, spawn, yields};
use crate::harness::{Contender, Role};
use crate::servant::{Servant, Services};

const NAME: &str = "may";

/// What its process can measure.
pub const SERVICES: &Services = &Services {
    start,
    all: &[
        spawn::MAY,
        pending::MAY,
        yields::MAY,
        channels::MAY,
        skynet::MAY,
    ],
};

fn start(workers: usize) {
    let config = ::may::config();
    config.set_workers(workers);
    // Else its workers, while they have nothing to do, look around a hundred times a second, beside the others.
    config.set_timeout_ns(Duration::from_secs(1).as_nanos() as u64);
}

/// Its process, if there can be one.
pub struct May(Option<RefCell<Servant>>);

impl May {
    /// Starts it; if that fails, the rows go without it, and say so.
    pub fn start(workers: usize) -> Self {
        match Servant::start(workers) {
            Ok(servant) => Self(Some(RefCell::new(servant))),
            Err(error) => {
                eprintln!("  without {NAME}: {error}");
                Self(None)
            }
        }
    }

    /// Its side of a row, if it has one.
    pub fn contender(&self, service: &'static str) -> Option<Contender<'_, ()>> {
        let servant = self.0.as_ref()?;
        let measure = move |(): &mut (), iterations| {
            let measured = servant.borrow_mut().measure(service, iterations);
            measured.unwrap_or_else(|error| panic!("{service}: the peer's process: {error}"))
        };
        Some(Contender::new(NAME, Role::Peer, measure))
    }
}

/// Runs `measurement` as a task of may's, on a worker.
///
/// # Panics
///
/// If it panics.
pub fn in_may<T: Send + 'static>(measurement: impl FnOnce() -> T + Send + 'static) -> T {
    ::may::go!(measurement)
        .join()
        .expect("the measurement ends with its value")
}
