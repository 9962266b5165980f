//! What happens, as it happens: one reader of the trail for everybody who listens.
//!
//! [`Hub`] follows the store's trail while somebody listens, and hands each event to all; [`sse`] turns that into a stream
//! of server-sent events that can be resumed.

pub(crate) mod dispatch_listeners;
pub(crate) mod hub;
pub(crate) mod sse;

pub(crate) use dispatch_listeners::{DispatchListener, DispatchListeners};
pub(crate) use hub::{Hub, LOAD, Told};
pub(crate) use sse::Position;
