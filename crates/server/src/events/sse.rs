//! A stream of server-sent events for one listener.
//!
//! Each event that is kept carries its place as its id, so a browser or a client that comes back says with
//! `Last-Event-ID` what it has seen, and gets everything since, in order, once. What is only told (progress, output,
//! load) has no id, and is not told again.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use hyper::body::{Body, Frame};
use jobtree_protocol::{AddonId, EventKind, JobId, JobType};
use jobtree_queue::planner::ListenScope;
use jobtree_store::StoreError;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

use super::dispatch_listeners::DispatchListeners;
use super::hub::{Hub, LOAD, Listener, Told};

/// Something is sent at least this often, so that both ends notice when the other is gone.
const STILL_HERE: Duration = Duration::from_secs(15);
/// A reader that takes nothing for this long is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Messages on their way to one reader.
const ON_THE_WAY: usize = 64;

/// Which events a listener wants. All that is given must hold.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only this addon's: what somebody asked for, or all that it may see.
    pub addon_id: Option<AddonId>,
    /// Only of jobs of this type.
    pub job_type: Option<JobType>,
    /// Only of this job.
    pub job_id: Option<JobId>,
    /// Only these kinds; none means all.
    pub kinds: Vec<&'static str>,
}

impl Filter {
    /// Returns `true` if a program with this filter listens for dispatches: it names them, and not one job. A stream of all
    /// events is watched by people and dashboards, for which nothing is to be reserved.
    pub fn names_dispatches(&self) -> bool {
        self.job_id.is_none() && self.kinds.contains(&EventKind::Dispatching.as_str())
    }

    /// The job types that it wants events of.
    fn scope(&self) -> ListenScope {
        ListenScope {
            addon: self.addon_id.clone(),
            job_type: self.job_type.clone(),
        }
    }

    /// Whether it wants this one.
    pub fn wants(&self, told: &Told) -> bool {
        let kind = self.kinds.is_empty() || self.kinds.contains(&told.kind);
        // The load is nobody's: whoever asks for one job does not ask for it.
        if told.kind == LOAD {
            return kind && self.job_id.is_none() && self.job_type.is_none();
        }
        kind && (self.addon_id.is_none() || self.addon_id == told.addon_id)
            && (self.job_type.is_none() || self.job_type == told.job_type)
            && (self.job_id.is_none() || self.job_id == told.job_id)
    }
}

/// The body of an answer that goes on for as long as both want.
pub struct Stream(mpsc::Receiver<Bytes>);

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.0.poll_recv(context);
        next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug)]
pub enum Position {
    /// With what comes from now on.
    Now,
    /// With what came after this place.
    After(u64),
}

/// Begins a stream.
///
/// It ends when the reader is gone, when `turned_away` ends, or when `stopping` turns true. The permit is given back then. While it lasts, a filter that
/// names dispatches makes the job types that it wants events of served.
///
/// # Errors
/// If the trail cannot be read.
pub async fn begin(
    hub: &Arc<Hub>,
    dispatches: &Arc<DispatchListeners>,
    filter: Filter,
    position: Position,
    permit: OwnedSemaphorePermit,
    turned_away: impl Future<Output = ()> + Send + 'static,
    stopping: watch::Receiver<bool>,
) -> Result<Stream, StoreError> {
    let listener = hub.listen().await?;
    let served = filter
        .names_dispatches()
        .then(|| dispatches.listen(filter.scope()));
    let (sender, receiver) = mpsc::channel(ON_THE_WAY);
    let teller = Teller {
        hub: Arc::clone(hub),
        filter,
        last: match position {
            Position::Now => listener.start,
            Position::After(place) => place,
        },
        sender,
    };
    tokio::spawn(async move {
        let behind = matches!(position, Position::After(_));
        tokio::select! {
            () = teller.tell(listener, behind, stopping) => {}
            () = turned_away => {}
        }
        drop((served, permit));
    });
    Ok(Stream(receiver))
}

struct Teller {
    hub: Arc<Hub>,
    filter: Filter,
    /// The place of the last event that was looked at.
    last: u64,
    sender: mpsc::Sender<Bytes>,
}

/// The reader is gone.
struct Gone;

/// The daemon stops.
async fn stopped(stopping: &mut watch::Receiver<bool>) {
    // An error means that the daemon is gone already.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}

impl Teller {
    async fn tell(
        mut self,
        mut listener: Listener,
        mut behind: bool,
        mut stopping: watch::Receiver<bool>,
    ) {
        // At once, so that whoever opened the stream knows that it is heard.
        if self.send(Bytes::from_static(b": here\n\n")).await.is_err() {
            return;
        }
        loop {
            if std::mem::take(&mut behind) && self.catch_up().await.is_err() {
                return;
            }
            let told = tokio::select! {
                told = listener.receiver.recv() => told,
                () = tokio::time::sleep(STILL_HERE) => {
                    if self.send(Bytes::from_static(b": still here\n\n")).await.is_err() {
                        return;
                    }
                    continue;
                }
                () = self.sender.closed() => return,
                () = stopped(&mut stopping) => return,
            };
            match told {
                Ok(told) => {
                    if self.pass(&told).await.is_err() {
                        return;
                    }
                }
                Err(RecvError::Lagged(_)) => behind = true,
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Reads the trail up to its end.
    async fn catch_up(&mut self) -> Result<(), Gone> {
        loop {
            let page = match self.hub.page(self.last, 1000).await {
                Ok(page) => page,
                Err(error) => {
                    // The reader comes back with the last id it has seen.
                    tracing::warn!(%error, "an event stream ends: the trail cannot be read");
                    return Err(Gone);
                }
            };
            if page.is_empty() {
                return Ok(());
            }
            for told in page {
                self.pass(&told).await?;
            }
        }
    }

    async fn pass(&mut self, told: &Told) -> Result<(), Gone> {
        if let Some(cursor) = told.cursor {
            if cursor <= self.last {
                return Ok(());
            }
            self.last = cursor;
        }
        if !self.filter.wants(told) {
            return Ok(());
        }
        self.send(written(told)).await
    }

    async fn send(&self, bytes: Bytes) -> Result<(), Gone> {
        let sent = tokio::time::timeout(PATIENCE, self.sender.send(bytes));
        match sent.await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }
}

/// The event as it goes over the wire. JSON has no line breaks of its own, so one line of data is enough.
fn written(told: &Told) -> Bytes {
    let mut text = BytesMut::with_capacity(told.data.len() + 64);
    if let Some(cursor) = told.cursor {
        text.put_slice(b"id: ");
        text.put_slice(cursor.to_string().as_bytes());
        text.put_slice(b"\n");
    }
    text.put_slice(b"event: ");
    text.put_slice(told.kind.as_bytes());
    text.put_slice(b"\ndata: ");
    text.put_slice(&told.data);
    text.put_slice(b"\n\n");
    text.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(kind: &'static str, addon: Option<&str>) -> Told {
        Told {
            cursor: Some(7),
            kind,
            addon_id: addon.map(|addon| AddonId::new(addon).unwrap()),
            job_type: None,
            job_id: None,
            data: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn an_event_is_written_with_its_place() {
        let text = written(&told("DONE", None));
        assert_eq!(&text[..], b"id: 7\nevent: DONE\ndata: {}\n\n");
    }

    #[test]
    fn what_belongs_to_another_addon_or_to_nobody_is_not_told() {
        let filter = Filter {
            addon_id: AddonId::new("photos").ok(),
            ..Filter::default()
        };
        assert!(filter.wants(&told("DONE", Some("photos"))));
        assert!(!filter.wants(&told("DONE", Some("mail"))));
        assert!(!filter.wants(&told("LEASE_RELEASED", None)));
        assert!(filter.wants(&told(LOAD, None)), "the load is everybody's");
    }

    #[test]
    fn only_the_kinds_asked_for() {
        let filter = Filter {
            kinds: vec!["FAILED"],
            ..Filter::default()
        };
        assert!(filter.wants(&told("FAILED", None)));
        assert!(!filter.wants(&told("DONE", None)));
        assert!(!filter.wants(&told(LOAD, None)));
    }
}
