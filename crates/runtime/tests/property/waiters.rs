//! Those outside of the tree who wait for jobs, with wakers that count.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use jobtree_runtime::{CancelCallback, Job, JobHandle, Outcome};

use crate::bodies::Value;
use crate::model::Awaited;

#[derive(Default)]
struct Bell {
    rings: AtomicU32,
}

/// How long a waker takes: whoever it was woken by is held up, and others may go ahead.
const PAUSES: usize = 2000;

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rings.fetch_add(1, Ordering::AcqRel);
        for _ in 0..PAUSES {
            std::hint::spin_loop();
        }
    }
}

/// One who waits.
pub struct Waiter {
    /// One for each time that it was polled, or one for the callback.
    bells: Vec<Arc<Bell>>,
    wait: Option<Wait>,
}

enum Wait {
    End(Pin<Box<dyn Future<Output = ()>>>),
    Outcome(JobHandle<Value>),
    Cancellation {
        /// Only to be dropped.
        _callback: CancelCallback,
    },
}

impl Waiter {
    pub fn for_job(job: &Job, awaited: Awaited) -> Waiter {
        let mut waiter = Waiter {
            bells: Vec::new(),
            wait: None,
        };
        match awaited {
            Awaited::End => {
                waiter.wait = Some(Wait::End(Box::pin(job.ended())));
                let _ = waiter.poll();
            }
            Awaited::Outcome => unreachable!("only a handle gives the outcome"),
            Awaited::Cancellation => {
                let bell = Arc::new(Bell::default());
                waiter.bells.push(Arc::clone(&bell));
                let _callback = job.on_cancel(move |_| bell.wake());
                waiter.wait = Some(Wait::Cancellation { _callback });
            }
        }
        waiter
    }

    pub fn for_handle(handle: JobHandle<Value>) -> Waiter {
        let mut waiter = Waiter {
            bells: Vec::new(),
            wait: Some(Wait::Outcome(handle)),
        };
        let _ = waiter.poll();
        waiter
    }

    /// Polls with a new waker; if it is ready, returns the outcome if it was for that.
    ///
    /// A future that is ready stays where it is: its entry must be woken all the same.
    pub fn poll(&mut self) -> Poll<Option<Outcome<Value>>> {
        let bell = Arc::new(Bell::default());
        self.bells.push(Arc::clone(&bell));
        let waker = Waker::from(bell);
        let mut context = Context::from_waker(&waker);
        let result = match &mut self.wait {
            Some(Wait::End(ended)) => ended.as_mut().poll(&mut context).map(|()| None),
            Some(Wait::Outcome(handle)) => Pin::new(handle).poll(&mut context).map(Some),
            Some(Wait::Cancellation { .. }) | None => Poll::Pending,
        };
        if let (Poll::Ready(_), Some(Wait::Outcome(_))) = (&result, &self.wait) {
            // Must not be polled again.
            self.wait = None;
        }
        result
    }

    /// Goes away.
    pub fn stop(&mut self) {
        self.wait = None;
    }

    /// How often each of its wakers was woken.
    pub fn wakes(&self) -> Vec<u32> {
        let rings = |bell: &Arc<Bell>| bell.rings.load(Ordering::Acquire);
        self.bells.iter().map(rings).collect()
    }
}
