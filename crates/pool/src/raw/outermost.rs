//! Running code outside of the job that the thread works for.
//!
//! The end of a job calls wakers and drops values, errors and captured state. That is user code, and by then the frames
//! in which the job's context lies may be gone. So it runs in the outermost context: no user pointer, no stop signal, and
//! the fuel of no account. What it keeps is the isolation of the frames below it on the same stack: a task may run on
//! top of a wait inside [`isolate`](crate::isolate()), and must not let strangers run there either.

use crate::context::{self, ContextRef, Installed, Swapped};
use crate::isolation::Isolation;
use crate::raw::fuel::{Fuel, Turn};
use crate::worker::Worker;

/// Runs `body` in the outermost context, inside the isolation of the calling code.
///
/// For user code that is called in the middle of a job's body, such as a callback: the body's frames are below, and what
/// they keep to themselves by [`isolate`](crate::isolate()) stays theirs.
#[inline]
pub fn outermost<R>(body: impl FnOnce() -> R) -> R {
    Worker::with_running(|worker| {
        let isolation = context::of(worker).isolation();
        run_outermost(worker, isolation, Installed::new, body)
    })
}

/// Runs `body` in the outermost context, inside the isolation of the frames below the calling task, but no longer in that
/// of the task itself.
///
/// For the end of a task, from before the moment at which its end can be seen: after it, the frame that isolated the task
/// may be gone, and does not wait for the task any more. This function never looks at the current context, which may be
/// gone, too. It installs that again afterwards, so the caller must run no user code between this call and the return of
/// the task, unless it knows the context to be alive.
#[inline]
pub fn outermost_at_end<R>(body: impl FnOnce() -> R) -> R {
    Worker::with_running(|worker| {
        let isolation = worker.map_or(Isolation::NONE, |worker| worker.thread().isolation.get());
        run_outermost(worker, isolation, Swapped::new, body)
    })
}

#[inline]
fn run_outermost<'w, R, Guard>(
    worker: Option<&'w Worker>,
    isolation: Isolation,
    install: impl FnOnce(Option<&'w Worker>, ContextRef) -> Guard,
    body: impl FnOnce() -> R,
) -> R {
    let _put_aside = worker.map(|worker| PutAside::new(&worker.strand().fuel));
    let _installed = install(worker, ContextRef::outermost_inside(isolation));
    body()
}

/// The fuel that the calling code has, put aside until this value is dropped.
struct PutAside<'a> {
    fuel: &'a Fuel,
    turn: Turn,
}

impl PutAside<'_> {
    #[inline]
    fn new(fuel: &Fuel) -> PutAside<'_> {
        PutAside {
            turn: fuel.replace(Turn::OPEN),
            fuel,
        }
    }
}

impl Drop for PutAside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.fuel.set(self.turn);
    }
}
