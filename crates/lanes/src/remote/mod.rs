//! Work that another process does: requests, answers, and what carries them.
//!
//! A [`RemoteService`] has operations under names. A [`RemoteServer`] offers it on a TCP or Unix socket; a [`RemoteClient`]
//! connects to that and stays connected; a [`MemoryTransport`] does the same within a process, and in simulations. All that
//! carries requests is a [`RemoteTransport`].
//!
//! * A request is carried out **at most once**: one whose connection is lost fails, and is not sent again.
//! * Whoever stops waiting (by a timeout, a cancellation, a dropped future) cancels the job at the other side.
//! * Whatever a peer does, memory and threads stay bounded: messages have a largest size, which is checked before there is
//!   memory for them; what waits to be written is bounded; a message that takes too long, and a peer that is silent for too
//!   long, end the connection; connections and operations at a time are counted.
//!
//! Sockets are none of a simulation's: use a [`MemoryTransport`] there, whose time is the simulation's.
//!
//! Nothing is encrypted or signed: servers listen on loopback addresses and on sockets that only their owner may use, unless
//! told otherwise.
//!
//! # Threads
//!
//! Sockets block, so connections run on the runtime's blocking threads
//! ([`RuntimeBuilder::blocking_threads`](jobtree_runtime::RuntimeBuilder::blocking_threads)): two for each connection, on
//! either side, and one more for a server. If none is free within `connect_timeout`, the connection does not come about, and
//! the error says so ([`RemoteError::NoThread`]).

mod answering;
mod client;
mod codec;
#[cfg(test)]
mod codec_tests;
mod conversation;
mod dial;
mod error;
mod frame;
mod gate;
mod lane;
mod listener;
mod memory;
mod message;
mod outbox;
mod pending;
mod request;
mod response;
mod server;
mod service;
mod settings;
#[cfg(unix)]
mod socket_file;
mod stream;
mod threads;
mod transport;
mod waiting;

pub use client::RemoteClient;
pub use error::RemoteError;
pub(crate) use gate::RemoteGate;
pub(crate) use lane::MAX_UNDER_WAY;
pub use lane::{RemoteLane, RemoteQueue, RemoteWork};
pub use memory::{Fate, MemoryTransport, Way};
pub use request::{RemoteRequest, TransferMode};
pub use response::RemoteResponse;
pub use server::{RemoteServer, RemoteServerBuilder, StillRunning};
pub use service::RemoteService;
pub use settings::RemoteSettings;
pub use transport::{Answer, RemoteTransport};
pub(crate) use waiting::{First, first_of};
