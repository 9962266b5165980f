//! What is looked at before anybody looks at what is asked.

pub(crate) mod fetch_metadata;
pub(crate) mod host;
pub(crate) mod rate;
