//! Moves jobs into the queue that programs have submitted in transactions of their own; see [`jobtree_store::Submissions`].
//!
//! A thread of its own does it: when a program's commit is told, and every few seconds, since what is told may be lost. The
//! queue takes a job under the id that it has already, so what is moved twice is moved once.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use jobtree_store::{Hint, StoreError, Submissions};

use crate::Scheduler;
use crate::error::told;
use crate::outbox::{AT_ONCE, OutboxError, forward};
use crate::scheduler::WeakScheduler;

/// How often it is looked for submissions that nothing was told of. Picked by feel.
const EVERY: Duration = Duration::from_secs(5);

/// What the thread is told.
enum Nudge {
    Look,
    Stop,
}

/// The thread. It ends when this is dropped.
pub(crate) struct Mover {
    nudge: SyncSender<Nudge>,
    thread: Option<JoinHandle<()>>,
}

impl Mover {
    /// Starts it. It does not keep the scheduler running.
    pub(crate) fn start(scheduler: &Scheduler, submissions: Box<dyn Submissions>) -> Self {
        // A second nudge before the first is taken says nothing new; the third place is for the end.
        let (nudge, nudged) = sync_channel(3);
        let told = nudge.clone();
        scheduler.store().hints(Arc::new(move |hint| {
            if matches!(hint, Hint::Submissions | Hint::Everything) {
                let _ = told.try_send(Nudge::Look);
            }
        }));
        let scheduler = scheduler.downgrade();
        let thread = std::thread::Builder::new().name("jobtree-submissions".to_owned());
        let thread = thread.spawn(move || run(&scheduler, submissions, &nudged));
        Self {
            nudge,
            thread: thread.ok(),
        }
    }
}

impl Drop for Mover {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        // Its thread may drop the last handle of the scheduler: then it cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() {
            let _ = self.nudge.send(Nudge::Stop);
            // A panic in there has been told by its message already.
            let _ = thread.join();
        }
    }
}

fn run(scheduler: &WeakScheduler, mut submissions: Box<dyn Submissions>, nudged: &Receiver<Nudge>) {
    loop {
        // If it fails, the store does, and says so to all other callers: what waits is found again.
        let _ = move_all(scheduler, &mut *submissions);
        match nudged.recv_timeout(EVERY) {
            Ok(Nudge::Look) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Nudge::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Moves what waits, until nothing does.
fn move_all(
    scheduler: &WeakScheduler,
    submissions: &mut dyn Submissions,
) -> Result<(), OutboxError> {
    loop {
        let waiting = submissions.lock(AT_ONCE).map_err(failed)?;
        let Some(scheduler) = scheduler.upgrade().filter(|_| !waiting.is_empty()) else {
            return Ok(());
        };
        let relayed = forward(&scheduler, waiting)?;
        let settled = submissions.settle(&relayed.moved, &relayed.refused);
        settled.map_err(failed)?;
    }
}

fn failed(error: StoreError) -> OutboxError {
    OutboxError::Queue(told(&error))
}
