//! The first of several channel operations.
//!
//! The runtime's `select!` has a fixed number of clauses. Here the program says how many there are, up to one less than
//! the runtime allows: the last place is the time limit's. Places that are not used are off.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Context;

use jobtree_runtime::select::{
    Clause, ClauseSet, FutureClause, Kind, Moment, RecvClause, SendClause, after, block, look,
};

use crate::border::{required, running};
use crate::objects::{self, ChannelObject, jt_channel_t};
use crate::runtime::{limit, waiting};
use crate::status::CallError;
use crate::status::jt_status::{self, *};

/// What a clause of jt_select does.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum jt_select_op {
    /// Receives from the channel.
    JT_SELECT_RECV = 0,
    /// Sends `value` into the channel.
    JT_SELECT_SEND = 1,
}

/// One of the operations of which jt_select does one.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct jt_select_clause {
    /// The channel.
    pub channel: jt_channel_t,
    /// JT_SELECT_RECV or JT_SELECT_SEND.
    pub op: i32,
    /// Of the clause that was done: JT_OK, or JT_ECLOSED if its channel is closed. Of the others it is not written.
    pub status: i32,
    /// What is to be sent; or, of the clause that was done, what was received.
    pub value: u64,
}

/// The most clauses that jt_select takes.
pub const JT_SELECT_MAX: usize = 9;

const PLACES: usize = JT_SELECT_MAX + 1;

enum Place<'a> {
    Recv(Pin<Box<RecvClause<'a, u64>>>),
    Send(Pin<Box<SendClause<'a, u64>>>),
}

/// The clauses of a program, and its limit in the last place.
struct Places<'p, 'a> {
    channels: &'p mut [Place<'a>],
    limit: Option<Pin<&'p mut FutureClause<Moment>>>,
    unused: Off,
}

impl ClauseSet for Places<'_, '_> {
    const COUNT: usize = PLACES;

    fn get(&mut self, index: usize) -> Pin<&mut dyn Clause> {
        match (self.channels.get_mut(index), &mut self.limit) {
            (Some(Place::Recv(clause)), _) => clause.as_mut(),
            (Some(Place::Send(clause)), _) => clause.as_mut(),
            (None, Some(limit)) if index == PLACES - 1 => limit.as_mut(),
            (None, _) => {
                let unused: Pin<&mut Off> = Pin::new(&mut self.unused);
                unused
            }
        }
    }
}

struct Off;

impl Clause for Off {
    fn kind(&self) -> Kind {
        Kind::Off
    }

    fn attempt(self: Pin<&mut Self>, _: &mut Context<'_>) -> bool {
        false
    }
}

/// Waits for the first of several channel operations that can be done, does that one and none of the others, and
/// gives its number. If several can be done, it is the first of them. A closed channel counts as one that can: see
/// `status` in jt_select_clause.
///
/// It waits no longer than `timeout_ms` milliseconds: not at all if that is 0, for ever if it is negative. Returns
/// JT_ETIMEDOUT, JT_EEMPTY if it was not to wait, or JT_ECANCELED if the current job is cancelled; nothing was done then.
///
/// # Safety
/// `clauses` is NULL or points to `count` clauses, and `index_out` is NULL or may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jt_select(
    clauses: *mut jt_select_clause,
    count: usize,
    timeout_ms: i64,
    index_out: *mut usize,
) -> jt_status {
    running(|| {
        let clauses = required(clauses, "clauses")?;
        let index_out = required(index_out, "index_out")?;
        if count == 0 || count > JT_SELECT_MAX {
            return Err(
                JT_EINVAL.because(format!("give 1 to {JT_SELECT_MAX} clauses, not {count}"))
            );
        }
        // SAFETY: as this function's contract; nobody else uses them during the call.
        let clauses = unsafe { std::slice::from_raw_parts_mut(clauses.as_ptr(), count) };
        let channels: Vec<_> = clauses
            .iter()
            .map(|clause| objects::channel(clause.channel))
            .collect::<Result<_, _>>()?;
        let mut places: Vec<_> = clauses
            .iter()
            .zip(&channels)
            .map(|(clause, channel)| place(clause, channel))
            .collect::<Result<_, _>>()?;
        let index = winner(&mut places, timeout_ms)?;
        let outcome = output(&mut places[index]);
        clauses[index].status = match outcome {
            Some(_) => JT_OK as i32,
            None => JT_ECLOSED as i32,
        };
        if let Some(Some(received)) = outcome {
            clauses[index].value = received;
        }
        // SAFETY: as this function's contract.
        unsafe { index_out.write(index) };
        Ok(())
    })
}

fn place<'a>(
    clause: &jt_select_clause,
    channel: &'a Arc<ChannelObject>,
) -> Result<Place<'a>, CallError> {
    const RECV: i32 = jt_select_op::JT_SELECT_RECV as i32;
    const SEND: i32 = jt_select_op::JT_SELECT_SEND as i32;
    match clause.op {
        RECV => Ok(Place::Recv(Box::pin(channel.receiver.recv_clause()))),
        SEND => Ok(Place::Send(Box::pin(
            channel.sender.send_clause(clause.value),
        ))),
        other => Err(JT_EINVAL.because(format!("there is no operation {other} for a clause"))),
    }
}

fn winner(places: &mut [Place<'_>], timeout_ms: i64) -> Result<usize, CallError> {
    // As whoever calls, be it a job or a thread: nothing is waited for.
    let at_once = {
        let set = Places {
            channels: &mut *places,
            limit: None,
            unused: Off,
        };
        look(set, false).map_err(|cancelled| JT_ECANCELED.because(cancelled.to_string()))?
    };
    if at_once < PLACES {
        return Ok(at_once);
    }
    if timeout_ms == 0 {
        return Err(JT_EEMPTY.because("none of the clauses can be done now"));
    }
    waiting(|waiter| {
        // Made here, where the time is the runtime's.
        let mut moment = pin!(limit(timeout_ms).map(after));
        let set = Places {
            channels: &mut *places,
            limit: moment.as_mut().as_pin_mut(),
            unused: Off,
        };
        match block(set, false) {
            Ok(index) if index == PLACES - 1 => {
                Err(JT_ETIMEDOUT.because("none of the clauses could be done within the time"))
            }
            Ok(index) => Ok(index),
            Err(cancelled) => Err(waiter.is_cancelled(&cancelled)),
        }
    })
}

/// What came of the clause that was done: what it received, if it did; `None` if its channel is closed.
fn output(place: &mut Place<'_>) -> Option<Option<u64>> {
    match place {
        Place::Recv(clause) => {
            let received = clause.as_mut().take_output()?;
            received.ok().map(Some)
        }
        Place::Send(clause) => {
            let sent = clause.as_mut().take_output()?;
            sent.ok().map(|()| None)
        }
    }
}
