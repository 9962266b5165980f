//! How a scheduler is set up.

use std::time::Duration;

use jobtree_protocol::{Limits, NodeId};
use jobtree_queue::policy::Policy;

/// What a scheduler is started with.
///
/// ```
/// use jobtree_scheduler::Options;
///
/// let options = Options { labels: vec!["gpu".into()], ..Options::default() };
/// assert_eq!(options.node.as_str(), "local");
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of this machine among those that share the store.
    pub node: NodeId,
    /// What this machine has that jobs may require.
    pub labels: Vec<String>,
    /// Admission and order.
    pub policy: Policy,
    /// How large things may be.
    pub limits: Limits,
    /// Other schedulers use the same store: what they do is looked for each [`Options::look`], and where the store brings
    /// their hints, at once. And what is dispatched here and not taken up is left to the others for a while: first for as
    /// long as a dispatch may take, then for longer each time, to some minutes, or until somebody of its addon asks here.
    /// (A scheduler that is alone dispatches it again at once.)
    pub shared: bool,
    /// How often a shared store is looked through.
    pub look: Duration,
    /// With its so manieth rescue a job is quarantined.
    pub quarantine_after: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            node: NodeId::new("local").expect("a name"),
            labels: Vec::new(),
            policy: Policy::default(),
            limits: Limits::default(),
            shared: false,
            look: Duration::from_secs(5),
            quarantine_after: 3,
        }
    }
}
