//! Telling other programs: when a job ends, or waits to be taken up.
//!
//! A webhook is a note in the store, and so is how far it has come in the trail: what happened while the daemon was down is
//! delivered after its start, and nothing is delivered out of order. A delivery is repeated until it is taken (any 2xx), with
//! growing pauses, and given up after some hours (`deliver::ATTEMPTS`); so a receiver may get one twice, and tells by `cursor`. One
//! webhook waits for no other. Each belongs to the daemon that it was registered at, also where the store is shared.
//!
//! Only administrators register them: the daemon would otherwise call any address of its network for anybody.

mod book;
mod deliver;
mod sign;

pub use book::Webhooks;
pub use sign::{SIGNATURE, signature};
