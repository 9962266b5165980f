//! What happens to jobs, as the trace tells it: with numbers of the run's own instead of ids.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use jobtree_pool::raw::sim::note;
use jobtree_tree::{EventKind, JobId, Watcher};

/// Numbers for jobs, in the order in which they appear: ids depend on what else ran in the process.
#[derive(Clone, Default)]
pub(super) struct Numbers {
    known: Arc<Mutex<HashMap<JobId, usize>>>,
}

impl Numbers {
    /// The number of a job.
    pub(super) fn of(&self, id: JobId) -> usize {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let next = known.len();
        *known.entry(id).or_insert(next)
    }

    /// Notes every event in the trace of the simulation that it happens in.
    pub(super) fn watcher(&self) -> Watcher {
        let numbers = self.clone();
        Arc::new(move |job, kind| {
            let mut text = format!("job {} ", numbers.of(job));
            let _ = match kind {
                EventKind::Create { parent: None } => write!(text, "is made"),
                EventKind::Create {
                    parent: Some(parent),
                } => write!(text, "is made under job {}", numbers.of(parent)),
                EventKind::State { to } => write!(text, "is {to}"),
                EventKind::CancelRequest { cause } => write!(text, "is asked to end: {cause:?}"),
                EventKind::Finalize { state } => write!(text, "has ended: {state}"),
                EventKind::ChildAttach { child } => write!(text, "gets job {}", numbers.of(child)),
                EventKind::WaitRegister => write!(text, "is waited for"),
                EventKind::WaitWake => write!(text, "wakes one who waits"),
                other => write!(text, "{}", other.name()),
            };
            note(&text);
        })
    }
}
