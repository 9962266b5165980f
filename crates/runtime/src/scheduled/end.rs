//! The end of such a job, and who is told of it when.
//!
//! A job whose future is done ends at once, unless jobs below it are still there. So usually the layer can be told just
//! before: whoever sees the end then sees what the layer did about it, too. Otherwise it is told by the last one below.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

use jobtree_tree::{Body, BodyResult, Ended, raw};

use super::{Header, Schedule};

/// Ends the job of `header` with what its future left.
pub(super) fn end<S: Schedule>(header: &Header<S>, execution: Body, result: BodyResult) {
    let job = header.job();
    let completes = matches!(result, BodyResult::Value) && !job.is_cancelled();
    let is_last = !raw::has_children(job);
    if is_last {
        header.ending(completes);
    }
    execution.end(result);
    if job.is_ended() {
        if !is_last {
            header.ending(job.error().is_none());
        }
        return S::ended(header);
    }
    let watch = Arc::new(Watch {
        header: header.clone(),
        is_told: is_last,
        ended: Mutex::new(Some(Box::pin(job.ended()))),
    });
    watch.look();
}

/// Waits for the end of the last job below.
struct Watch<S: Schedule> {
    header: Header<S>,
    /// Whether [`Schedule::ending`] was called.
    is_told: bool,
    /// There until the end was seen.
    ended: Mutex<Option<Pin<Box<Ended>>>>,
}

impl<S: Schedule> Watch<S> {
    fn look(self: &Arc<Self>) {
        let waker = Waker::from(Arc::clone(self));
        let mut place = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ended) = place.as_mut() else {
            return;
        };
        if ended
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
        {
            return;
        }
        // Not dropped under the lock: it takes the job's.
        let seen = place.take();
        drop(place);
        drop(seen);
        if !self.is_told {
            self.header.ending(self.header.job().error().is_none());
        }
        S::ended(&self.header);
    }
}

impl<S: Schedule> Wake for Watch<S> {
    fn wake(self: Arc<Self>) {
        self.look();
    }
}
