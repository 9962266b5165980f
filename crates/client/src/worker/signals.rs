//! A worker that runs until it is told to end, by a signal or from within.

use std::sync::mpsc;
use std::time::Duration;

use jobtree_worker::{Stragglers, Worker};

use super::WorkError;

enum Told {
    /// Somebody wants it to end.
    Signal,
    /// The worker has ended.
    Ended,
    /// It was made to end.
    Drained(Result<(), Stragglers>),
}

/// Returns when the worker has ended. The first signal lets it finish what runs, for as long as `limit`; the second does
/// not wait any longer.
pub(super) fn run(worker: &Worker, limit: Duration) -> Result<(), WorkError> {
    let (tell, told) = mpsc::channel();
    let signals = Signals::listen(tell.clone()).map_err(WorkError::Signals)?;
    // Neither this thread nor those below are awaited: jobs that go on whatever they are told must not keep the process.
    let (ended, tell_end) = (worker.handle().clone(), tell.clone());
    std::thread::spawn(move || {
        ended.join();
        // Whoever listened may have heard enough.
        let _ = tell_end.send(Told::Ended);
    });
    let mut limit = limit;
    let result = loop {
        match told.recv() {
            Err(_) | Ok(Told::Ended) => break Ok(()),
            Ok(Told::Drained(result)) => break result.map_err(WorkError::Stragglers),
            Ok(Told::Signal) => {
                let (worker, tell) = (worker.handle().clone(), tell.clone());
                let patience = std::mem::take(&mut limit);
                std::thread::spawn(move || tell.send(Told::Drained(worker.drain(patience))));
            }
        }
    };
    drop(signals);
    result
}

#[cfg(unix)]
struct Signals(signal_hook::iterator::Handle);

#[cfg(unix)]
impl Signals {
    fn listen(tell: mpsc::Sender<Told>) -> std::io::Result<Signals> {
        use signal_hook::consts::{SIGINT, SIGTERM};

        let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?;
        let handle = signals.handle();
        let thread = std::thread::Builder::new().name("jobtree-signals".to_owned());
        thread.spawn(move || {
            for _ in signals.forever() {
                if tell.send(Told::Signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(Signals(handle))
    }
}

#[cfg(unix)]
impl Drop for Signals {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Where there are no such signals.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn listen(_: mpsc::Sender<Told>) -> std::io::Result<Signals> {
        Ok(Signals)
    }
}
