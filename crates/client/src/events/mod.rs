//! Events as they happen.
//!
//! The stream is opened again when it breaks, from the last event that was seen: nothing that is kept is missed or told
//! twice. What is only told (progress, load) while nobody listens is missed.

mod sse;

use std::fmt;
use std::io::BufReader;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jobtree_protocol::operations::{EventFilter, StreamEvents};
use jobtree_protocol::{AddonId, Event, EventKind, JobId, JobType, LoadSample};
use serde::Deserialize;
use ureq::BodyReader;

use crate::call::{Result, jittered};
use crate::client::Client;
use crate::error::ClientError;
use sse::{Message, Messages};

/// The daemon says something at least this often, if only that it is still there.
const SILENCE: Duration = Duration::from_secs(45);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Which events are wanted. All that is given must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this addon's.
    pub addon_id: Option<AddonId>,
    /// Only of jobs of this type.
    pub job_type: Option<JobType>,
    /// Only of this job.
    pub job_id: Option<JobId>,
    /// Only these kinds; none means all, and the load.
    pub kinds: Vec<EventKind>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub struct Happened {
    /// Its place in the trail, to go on from; none for what is only told.
    pub cursor: Option<u64>,
    /// Whose job it is about.
    pub addon_id: Option<AddonId>,
    /// Its type.
    pub job_type: Option<JobType>,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum What {
    /// To a job or lease.
    Event(Event),
    /// The load was measured.
    Load(LoadSample),
}

/// Events as they happen; see the [module](self). It ends only when the daemon refuses to tell, or
/// [`Client::events`] was told to give up.
pub struct Events {
    client: Client,
    filter: Filter,
    last: Option<u64>,
    stream: Option<Messages<BufReader<BodyReader<'static>>>>,
    pause: Duration,
    patience: Option<Duration>,
    /// Since when the daemon cannot be reached.
    lost: Option<Instant>,
    end: Arc<End>,
    /// The daemon refused to go on.
    over: bool,
}

/// Whether somebody has stopped the stream, and a bell for when one does.
#[derive(Default)]
struct End {
    stopped: Mutex<bool>,
    bell: Condvar,
}

impl End {
    fn stopped(&self) -> MutexGuard<'_, bool> {
        self.stopped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        *self.stopped()
    }

    fn stop(&self) {
        *self.stopped() = true;
        self.bell.notify_all();
    }

    /// Waits so long, or until it is stopped.
    fn sleep(&self, pause: Duration) {
        let bell = &self.bell;
        drop(bell.wait_timeout_while(self.stopped(), pause, |stopped| !*stopped));
    }
}

/// Ends a stream of events from another thread; see [`Events::stopper`].
#[derive(Clone)]
pub struct Stopper {
    client: Client,
    end: Arc<End>,
}

impl Stopper {
    /// Whoever waits for the next event gets none.
    pub fn stop(&self) {
        self.end.stop();
        self.client.hang_up();
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stopper")
            .field("stopped", &self.end.is_stopped())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// Events as they happen, from now on or after a place in the trail. The first call of `next` connects.
    ///
    /// ```no_run
    /// # let client = jobtree_client::Client::new("http://127.0.0.1:7717")?;
    /// for happened in client.events(Default::default(), None) {
    ///     println!("{:?}", happened?.what);
    /// }
    /// # Ok::<(), jobtree_client::ClientError>(())
    /// ```
    pub fn events(&self, filter: Filter, last_event_id: Option<u64>) -> Events {
        Events {
            // A stream that goes on for ever must not keep a connection that others wait for.
            client: self.apart(),
            filter,
            last: last_event_id,
            stream: None,
            pause: FIRST_PAUSE,
            patience: None,
            lost: None,
            end: Arc::default(),
            over: false,
        }
    }
}

impl Events {
    /// Gives up, with an error, when the daemon cannot be reached for so long; never if nothing is said.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = Some(patience);
        self
    }

    /// The place of the last event that was seen.
    pub fn last_event_id(&self) -> Option<u64> {
        self.last
    }

    /// Ends the stream from elsewhere, also while it waits.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            client: self.client.clone(),
            end: Arc::clone(&self.end),
        }
    }

    /// Connects now, if it is not connected: what happens from here on is told.
    ///
    /// # Errors
    /// If the daemon refuses, or does not answer.
    pub fn connect(&mut self) -> Result<()> {
        if self.stream.is_some() {
            return Ok(());
        }
        let filter = &self.filter;
        let query = EventFilter {
            event: filter.kinds.iter().map(ToString::to_string).collect(),
            addon_id: filter.addon_id.clone(),
            job_type: filter.job_type.clone(),
            job_id: filter.job_id,
            after: None,
        };
        let mut call = self.client.prepare::<StreamEvents>((), &query, &())?;
        call = call.header("Accept", "text/event-stream");
        if let Some(last) = self.last {
            call = call.header("Last-Event-ID", last.to_string());
        }
        let body = call.stream(SILENCE)?.into_body();
        let endless = body.into_with_config().limit(u64::MAX).reader();
        self.stream = Some(Messages::of(BufReader::new(endless)));
        (self.pause, self.lost) = (FIRST_PAUSE, None);
        Ok(())
    }

    /// Waits so long, or until the stream is stopped from elsewhere. For one that has ended, before another is begun.
    pub(crate) fn rest(&self, pause: Duration) {
        self.end.sleep(pause);
    }

    fn read(&mut self, message: Message) -> Result<Option<Happened>> {
        let cursor = message.id.and_then(|id| id.parse().ok());
        self.last = cursor.or(self.last);
        if message.data.is_empty() {
            return Ok(None);
        }
        let told = if message.kind == "LOAD" {
            serde_json::from_str(&message.data).map(|load| Happened {
                cursor,
                addon_id: None,
                job_type: None,
                what: What::Load(load),
            })
        } else {
            serde_json::from_str(&message.data).map(|told: Told| Happened {
                cursor,
                addon_id: told.addon_id,
                job_type: told.job_type,
                what: What::Event(told.event),
            })
        };
        match told {
            Ok(told) => Ok(Some(told)),
            // Newer than this client: others follow.
            Err(_)
                if EventKind::ALL
                    .iter()
                    .all(|kind| kind.as_str() != message.kind) =>
            {
                Ok(None)
            }
            Err(error) => Err(ClientError::Protocol {
                url: self.client.url().to_owned(),
                what: format!("an event cannot be read: {error}"),
            }),
        }
    }

    /// The connection is gone. An error if it should stay so.
    fn come_back(&mut self, error: ClientError) -> Result<()> {
        self.stream = None;
        let since = *self.lost.get_or_insert_with(Instant::now);
        let tired = self.patience.is_some_and(|most| since.elapsed() > most);
        if tired || !error.is_passing() {
            return Err(error);
        }
        self.end.sleep(jittered(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

#[derive(Deserialize)]
struct Told {
    addon_id: Option<AddonId>,
    job_type: Option<JobType>,
    #[serde(flatten)]
    event: Event,
}

impl Iterator for Events {
    type Item = Result<Happened>;

    fn next(&mut self) -> Option<Result<Happened>> {
        while !self.over && !self.end.is_stopped() {
            let message = match (self.connect(), &mut self.stream) {
                (Err(error), _) => Err(error),
                (Ok(()), None) => continue,
                (Ok(()), Some(stream)) => match stream.next() {
                    Ok(Some(message)) => Ok(message),
                    Ok(None) => Err(std::io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => Err(error),
                }
                .map_err(|error| ClientError::Unreachable {
                    url: self.client.url().to_owned(),
                    source: error.into(),
                }),
            };
            let told = match message {
                Ok(message) => self.read(message),
                Err(error) => self.come_back(error).map(|()| None),
            };
            match told {
                Ok(None) => {}
                Ok(Some(happened)) => return Some(Ok(happened)),
                Err(error) => {
                    self.over = true;
                    if self.end.is_stopped() {
                        return None;
                    }
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events")
            .field("filter", &self.filter)
            .field("last", &self.last)
            .field("connected", &self.stream.is_some())
            .finish_non_exhaustive()
    }
}
