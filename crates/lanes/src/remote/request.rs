//! What is asked of a peer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Priority;

/// Which way the data goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransferMode {
    /// The answer brings data.
    #[default]
    RequestFromRemote,
    /// The request brings data; the answer only tells that they were taken, and is empty.
    PushDataToRemote,
}

/// A request to a peer.
///
/// ```
/// use std::time::Duration;
/// use jobtree_lanes::Priority;
/// use jobtree_lanes::remote::RemoteRequest;
///
/// let request = RemoteRequest::new("asset.load")
///     .payload(b"rock.png".to_vec())
///     .metadata("format", "rgba8")
///     .priority(Priority::High)
///     .timeout(Duration::from_secs(5));
/// assert_eq!(request.operation, "asset.load");
/// assert_eq!(request.metadata["format"], "rgba8");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteRequest {
    /// Which one it is among those that wait; unlike all others of this process, unless it was set.
    pub id: u64,
    /// What is to be done, by the name under which the peer has registered it.
    pub operation: String,
    /// Which way the data goes.
    pub mode: TransferMode,
    /// What the operation is given.
    pub payload: Vec<u8>,
    /// What else is to be known.
    pub metadata: BTreeMap<String, String>,
    /// Who asks; without it, the transport's id.
    pub sender: Option<String>,
    /// Who is asked; without it, whoever is at the other end.
    pub target: Option<String>,
    /// How urgent it is among those that wait to be sent.
    pub priority: Priority,
    /// How long it may take, the wait for a connection included; without it, what the transport says.
    pub timeout: Option<Duration>,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl RemoteRequest {
    /// A request for `operation`, with an id that no other request of this process gets by itself.
    pub fn new(operation: impl Into<String>) -> RemoteRequest {
        RemoteRequest {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            operation: operation.into(),
            mode: TransferMode::default(),
            payload: Vec::new(),
            metadata: BTreeMap::new(),
            sender: None,
            target: None,
            priority: Priority::Normal,
            timeout: None,
        }
    }

    /// An id of one's own.
    pub fn id(mut self, id: u64) -> RemoteRequest {
        self.id = id;
        self
    }

    /// Which way the data goes.
    pub fn mode(mut self, mode: TransferMode) -> RemoteRequest {
        self.mode = mode;
        self
    }

    /// What the operation is given.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> RemoteRequest {
        self.payload = payload.into();
        self
    }

    /// One thing more to be known.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<String>) -> RemoteRequest {
        self.metadata.insert(key.into(), value.into());
        self
    }

    /// Who asks.
    pub fn sender(mut self, sender: impl Into<String>) -> RemoteRequest {
        self.sender = Some(sender.into());
        self
    }

    /// Who is asked. A peer of another id answers with [`WrongTarget`](super::RemoteError::WrongTarget).
    pub fn target(mut self, target: impl Into<String>) -> RemoteRequest {
        self.target = Some(target.into());
        self
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> RemoteRequest {
        self.priority = priority;
        self
    }

    /// How long it may take.
    pub fn timeout(mut self, limit: Duration) -> RemoteRequest {
        self.timeout = Some(limit);
        self
    }
}
