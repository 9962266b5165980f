//! Visits of the pool's workers, for a layer that decides only then what they do.
//!
//! A worker that finds a ticket calls the layer, which looks for the best that it has at that moment: so a layer with a
//! thousand jobs and four tickets takes no more room among the pool's tasks than four of them. A ticket belongs to no job,
//! so nobody runs it on top of a frame that waits for forks.
//!
//! A ticket is there once: posting takes it, and the visit gives it back. So the layer holds as many as it may have
//! visits at a time, and needs no memory to post.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use jobtree_pool::Worker;
use jobtree_pool::raw::PoolRef;
use jobtree_pool::raw::task::{RawContext, RawTask, RawTaskKind};

use crate::runtime::Runtime;

/// Where tickets come from, and what a visit is.
///
/// ```
/// use std::sync::mpsc::channel;
/// use jobtree_runtime::{Runtime, scheduled::Tickets};
///
/// let runtime = Runtime::builder().workers(1).build()?;
/// let (visits, visited) = channel();
/// let tickets = Tickets::new(&runtime, move |ticket| {
///     visits.send(ticket).unwrap();
///     1
/// });
/// tickets.post(tickets.issue());
/// let ticket = visited.recv()?;
/// tickets.post(ticket);
/// visited.recv()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tickets {
    source: Arc<Source>,
}

struct Source {
    pool: PoolRef,
    visit: Box<dyn Fn(Ticket) -> usize + Send + Sync>,
}

/// One visit of a worker; see [`Tickets`].
pub struct Ticket {
    posted: Box<Posted>,
}

/// What lies in the pool's queue.
#[repr(C)]
struct Posted {
    /// First, so that the pool's pointer is a pointer to the whole.
    raw: RawTask,
    source: Arc<Source>,
}

static KIND: RawTaskKind = RawTaskKind::new(run, || "a ticket");

/// # Safety
/// `raw` is the first field of a `Posted` that [`Tickets::post`] gave away.
unsafe fn run(raw: NonNull<RawTask>, worker: &Worker) {
    // SAFETY: made of a box by `post`, and the pool runs it once.
    let posted = unsafe { Box::from_raw(raw.cast::<Posted>().as_ptr()) };
    let source = Arc::clone(&posted.source);
    let ran = (source.visit)(Ticket { posted });
    worker.ran_more_tasks(ran.saturating_sub(1));
}

impl Tickets {
    /// `visit` is called on a worker for each ticket that was posted, and given it back. It tells how many pieces of work it
    /// did: workers leave those of others alone that are tiny, as long as they have not to sleep instead. If it unwinds, the process aborts.
    ///
    /// Somebody has to keep the runtime: one that has ended visits nobody, and forgets the ticket. Since tickets keep
    /// `visit`, that should not keep the runtime itself.
    pub fn new(
        runtime: &Runtime,
        visit: impl Fn(Ticket) -> usize + Send + Sync + 'static,
    ) -> Tickets {
        Tickets {
            source: Arc::new(Source {
                pool: runtime.inner().pool().clone(),
                visit: Box::new(visit),
            }),
        }
    }

    /// Another ticket.
    pub fn issue(&self) -> Ticket {
        Ticket {
            posted: Box::new(Posted {
                raw: RawTask::new(&KIND, std::ptr::null()),
                source: Arc::clone(&self.source),
            }),
        }
    }

    /// Has a worker come as soon as one has time. The calling worker does so itself, if nobody else does first.
    pub fn post(&self, ticket: Ticket) {
        let posted = NonNull::from(Box::leak(ticket.posted));
        // SAFETY: the box stays where it is until `run` takes it back, which is the function for it and can be called
        // anywhere; it was the ticket's, so it is in no queue. The outermost context is always there.
        unsafe {
            self.source
                .pool
                .submit_raw(posted.cast(), RawContext::outermost());
        }
    }

    /// For a visit that leaves and wants to come back: has a worker come after all that the calling worker has to do.
    pub fn post_behind(&self, ticket: Ticket) {
        let posted = NonNull::from(Box::leak(ticket.posted));
        // SAFETY: as in `post`.
        unsafe {
            self.source
                .pool
                .submit_raw_behind(posted.cast(), RawContext::outermost());
        }
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tickets")
            .field("pool", &self.source.pool)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}
