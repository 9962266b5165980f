//! What is looked at before anybody is asked who they are.

pub(crate) mod fetch_metadata;
pub(crate) mod host;
pub(crate) mod rate;
