//! What the durable queue decides, and never does: admission, order, dispatch, transitions.

#![forbid(unsafe_code)]
