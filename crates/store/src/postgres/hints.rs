//! Hints between the schedulers that share a database, by LISTEN and NOTIFY.
//!
//! A hint only saves time. Whoever misses one finds the same thing with its next look, so nothing here is confirmed or
//! waited for, and the only promise is that a listener is told [`Hint::Everything`] whenever it may have missed
//! something: after each connect.
//!
//! Protocol. One thread with a connection of its own both listens and notifies.
//!
//! - The writer notes what it committed ([`Outgoing::note`]) after the commit. It takes a lock that is held for a few
//!   instructions, and never waits for the database: a NOTIFY inside of its own transaction would take a lock on the
//!   whole database until the commit, one process after the other.
//! - The thread sends what was noted: at once if it has not sent for [`GAP`], else when that is over. Many commits are
//!   one notification. Jobs beyond what some notifications hold become *everything*, and after that the thread waits for
//!   longer, since it makes all others read all that waits.
//! - A payload begins with a number that the sender drew: its own come back to it, and are left out.
//! - The connection holds the name of its scheduler, as an advisory lock of the session: two schedulers of one name would
//!   count each other's leases as their own. A name that is taken is waited for, as long as a server needs to notice that a
//!   process is gone, and then the store is not opened.
//! - A connection that is lost is made again after a while that doubles, with jitter. What is noted meanwhile is sent
//!   then.

use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::pin::{Pin, pin};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use jobtree_protocol::{EventKind, JobId};
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_postgres::{AsyncMessage, Client};
use uuid::Uuid;

use super::tls::Target;
use crate::backend::{Hint, HintListener, HintListeners, Written};
use crate::error::OpenError;
use crate::ids::IdSet;

/// How long nothing is sent after something was.
const GAP: Duration = Duration::from_millis(25);
/// How long nothing is sent after *everything* was.
const GAP_AFTER_EVERYTHING: Duration = Duration::from_secs(1);
/// How long *live* is not sent again if only concurrency keys or leases without jobs ask for it.
const GAP_OF_KEYS: Duration = Duration::from_millis(200);
/// Jobs in one payload, which must stay below 8000 bytes.
const JOBS_IN_ONE: usize = 240;
/// Payloads at once.
const PAYLOADS: usize = 8;
/// The first wait before a lost connection is made again, and the longest.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(5);
/// A connection that lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(1);
/// How long a name is waited for, and how often it is asked for meanwhile.
const NAME_PATIENCE: Duration = Duration::from_secs(5);
const NAME_TRIES: u32 = 50;
/// How long the last hint may take when the store closes.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is to be told to the others.
#[derive(Debug, Default)]
struct Pending {
    jobs: IdSet<JobId>,
    /// Pauses or schedules were written.
    settings: bool,
    /// Who holds concurrency keys has changed, or a lease without jobs has ended.
    keys: bool,
    everything: bool,
    /// The thread was woken for it.
    rung: bool,
}

impl Pending {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && !self.settings && !self.keys && !self.everything
    }
}

enum Happening {
    /// There is something to be sent.
    Noted,
    /// Somebody told something.
    Told(String),
    /// A connection has ended: the present one, or one before.
    Lost,
}

/// What came of the first try to connect.
enum Tried {
    Done,
    NameTaken,
}

/// Where the writer notes what it committed.
pub(super) struct Outgoing {
    pending: Mutex<Pending>,
    bell: UnboundedSender<Happening>,
}

impl Outgoing {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a commit.
    pub(super) fn note(&self, written: &[Written], settings: bool) {
        let mut told = written.iter().filter(|it| concerns_others(it)).peekable();
        if told.peek().is_none() && !settings {
            return;
        }
        let mut pending = self.lock();
        pending.settings |= settings;
        let told: Vec<&Written> = told.collect();
        // A lease without jobs is told by no job: its node counts its units until it reads what is live.
        pending.keys |= told.iter().any(|written| ends_capacity(written));
        for job in told.iter().flat_map(|written| &written.changes.jobs) {
            // One that is new holds nothing yet.
            pending.keys |= job.intent.concurrency_key.is_some() && job.revision > 1;
            if !pending.everything {
                pending.jobs.insert(job.id);
            }
        }
        if pending.jobs.len() > JOBS_IN_ONE * PAYLOADS {
            pending.everything = true;
            pending.jobs.clear();
        }
        if !std::mem::replace(&mut pending.rung, true) {
            // If the thread is gone, the store is about to be.
            let _ = self.bell.send(Happening::Noted);
        }
    }
}

/// Whether another scheduler would do something else if it knew of this.
fn concerns_others(written: &Written) -> bool {
    let internal = |kind: EventKind| {
        matches!(
            kind,
            EventKind::Progress
                | EventKind::Denied
                | EventKind::DeadlineAtRisk
                | EventKind::CancelRequested
        )
    };
    let mut events = written.changes.events.iter();
    events.any(|event| !internal(event.kind))
}

/// Whether a lease without jobs has ended.
fn ends_capacity(written: &Written) -> bool {
    let ends = |kind: EventKind| {
        matches!(
            kind,
            EventKind::LeaseReleased | EventKind::LeaseRevoked | EventKind::LeaseExpired
        )
    };
    let changes = &written.changes;
    changes.jobs.is_empty() && changes.events.iter().any(|event| ends(event.kind))
}

/// The thread that sends and hears hints. It ends when this is dropped, after it has sent what was noted.
pub(super) struct Hints {
    listeners: Arc<HintListeners>,
    closed: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Hints {
    /// Starts it, on a channel that all who share the queue's tables use.
    pub(super) fn start(
        mut target: Target,
        channel: String,
        name: Option<String>,
    ) -> Result<(Self, Arc<Outgoing>), OpenError> {
        // So that an operator can tell it from those that work.
        target.config.application_name("jobtree hints");
        let (bell, heard) = unbounded_channel();
        let outgoing = Arc::new(Outgoing {
            pending: Mutex::default(),
            bell,
        });
        let listeners = Arc::new(HintListeners::default());
        let (closed, closing) = oneshot::channel();
        let station = Station {
            target,
            channel,
            name: name.clone(),
            own: random(),
            outgoing: Arc::clone(&outgoing),
            heard,
            listeners: Arc::clone(&listeners),
            unsent: Vec::new(),
            quiet_until: Instant::now(),
            keys_until: Instant::now(),
        };
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (tried, first_try) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("jobtree-hints".to_owned())
            .spawn(move || runtime.block_on(station.run(closing, tried)))?;
        // Whoever listens from now on need not read everything a second time. If it did not work out, it will be told so
        // when it does.
        let tried = first_try.recv();
        let hints = Self {
            listeners,
            closed: Some(closed),
            thread: Some(thread),
        };
        match (tried, name) {
            (Ok(Tried::NameTaken), Some(node)) => Err(OpenError::NameTaken { node }),
            _ => Ok((hints, outgoing)),
        }
    }

    pub(super) fn listen(&self, listener: HintListener) {
        self.listeners.add(listener);
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        drop(self.closed.take());
        // The last handle of a store may be dropped by a listener: then there is nobody to wait for.
        let thread = self.thread.take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// What the thread has.
struct Station {
    target: Target,
    channel: String,
    /// The name of the scheduler, which no other may have.
    name: Option<String>,
    /// What this store's own payloads begin with.
    own: u64,
    outgoing: Arc<Outgoing>,
    heard: UnboundedReceiver<Happening>,
    listeners: Arc<HintListeners>,
    /// Payloads of which nobody knows whether they were sent.
    unsent: Vec<String>,
    quiet_until: Instant,
    keys_until: Instant,
}

/// Waits for the work, unless the store closes.
async fn unless<T>(
    closing: &mut oneshot::Receiver<()>,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        if Pin::new(&mut *closing).poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

impl Station {
    async fn run(mut self, mut closing: oneshot::Receiver<()>, tried: Sender<Tried>) {
        let mut failures = 0;
        loop {
            let Some(connected) = unless(&mut closing, self.connect()).await else {
                return;
            };
            if matches!(connected, Ok(Some(_))) {
                // Whatever was told before this moment was not heard here.
                self.listeners.tell(&Hint::Everything);
            }
            // After the first time nobody waits for it any more.
            let _ = tried.send(match connected {
                Ok(None) => Tried::NameTaken,
                _ => Tried::Done,
            });
            if let Ok(Some(client)) = connected {
                let since = Instant::now();
                if unless(&mut closing, self.serve(&client)).await.is_none() {
                    // Nothing is left for later.
                    self.keys_until = Instant::now();
                    let _ = timeout(LAST_WORDS, self.send(&client)).await;
                    return;
                }
                if since.elapsed() >= GOOD {
                    failures = 0;
                }
            }
            let wait = jittered((FIRST_WAIT * 2_u32.pow(failures)).min(LAST_WAIT));
            failures = (failures + 1).min(10);
            if unless(&mut closing, sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Connects. None if another scheduler has the name.
    async fn connect(&self) -> Result<Option<Client>, tokio_postgres::Error> {
        let (client, mut connection) = self.target.connect().await?;
        let bell = self.outgoing.bell.clone();
        tokio::spawn(async move {
            loop {
                let message = std::future::poll_fn(|context| connection.poll_message(context));
                match message.await {
                    Some(Ok(AsyncMessage::Notification(told))) => {
                        let _ = bell.send(Happening::Told(told.payload().to_owned()));
                    }
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => {
                        // The client sees its end before anybody hears of it.
                        drop(connection);
                        let _ = bell.send(Happening::Lost);
                        return;
                    }
                }
            }
        });
        // A hint need not survive anything, and must not wait for a disk while others wait to send theirs.
        let begin = format!("SET synchronous_commit = off; LISTEN {}", self.channel);
        client.batch_execute(&begin).await?;
        let has_name = match &self.name {
            Some(name) => take_name(&client, name).await?,
            None => true,
        };
        Ok(has_name.then_some(client))
    }

    /// Hears and sends until the connection is lost.
    async fn serve(&mut self, client: &Client) {
        let mut noted = !self.unsent.is_empty() || !self.outgoing.lock().is_empty();
        loop {
            let next = if noted {
                timeout_at(self.quiet_until, self.heard.recv()).await
            } else {
                Ok(self.heard.recv().await)
            };
            match next {
                Ok(None) => return,
                Ok(Some(Happening::Noted)) => noted = true,
                Ok(Some(Happening::Told(payload))) => {
                    if let Some(hint) = read(&payload, self.own) {
                        self.listeners.tell(&hint);
                    }
                }
                Ok(Some(Happening::Lost)) if client.is_closed() => return,
                Ok(Some(Happening::Lost)) => {}
                Err(_) => match self.send(client).await {
                    Ok(left) => noted = left,
                    Err(_) => return,
                },
            }
        }
    }

    /// Sends what was noted; whether something is left for later.
    async fn send(&mut self, client: &Client) -> Result<bool, tokio_postgres::Error> {
        let mut pending = std::mem::take(&mut *self.outgoing.lock());
        let now = Instant::now();
        if pending.keys && !pending.settings && self.keys_until > now {
            let mut later = self.outgoing.lock();
            later.keys = true;
            // Nobody needs to ring for it: it is looked at again after the gap.
            later.rung = true;
            pending.keys = false;
        }
        let left = !self.outgoing.lock().is_empty();
        if pending.keys {
            self.keys_until = now + GAP_OF_KEYS;
        }
        self.unsent.extend(write(&pending, self.own));
        let gap = if pending.everything || self.unsent.len() > 2 * PAYLOADS {
            self.unsent = vec![everything(self.own)];
            GAP_AFTER_EVERYTHING
        } else {
            GAP
        };
        self.quiet_until = now + gap;
        if !self.unsent.is_empty() {
            let sql = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload";
            client.query(sql, &[&self.channel, &self.unsent]).await?;
            self.unsent.clear();
        }
        Ok(left)
    }
}

/// Takes the name of a scheduler for this session. False if another one keeps it.
async fn take_name(client: &Client, name: &str) -> Result<bool, tokio_postgres::Error> {
    // A server that does not hear from this machine any more must give the name back soon.
    client
        .batch_execute("SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 2")
        .await?;
    let sql = "SELECT pg_try_advisory_lock(hashtextextended($1, 'scheduler_version'::regclass::oid::bigint))";
    for _ in 0..NAME_TRIES {
        if client.query_one(sql, &[&name]).await?.get(0) {
            return Ok(true);
        }
        sleep(NAME_PATIENCE / NAME_TRIES).await;
    }
    Ok(false)
}

fn everything(own: u64) -> String {
    format!("{own:016x}e")
}

/// The payloads that tell all of it.
fn write(pending: &Pending, own: u64) -> Vec<String> {
    if pending.everything {
        return vec![everything(own)];
    }
    let mut payloads = Vec::new();
    let jobs: Vec<JobId> = pending.jobs.iter().copied().collect();
    for some in jobs.chunks(JOBS_IN_ONE) {
        let mut payload = format!("{own:016x}j");
        for job in some {
            payload.push_str(job.0.simple().encode_lower(&mut Uuid::encode_buffer()));
        }
        payloads.push(payload);
    }
    if pending.settings || pending.keys {
        payloads.push(format!("{own:016x}l"));
    }
    payloads
}

/// What a payload tells; nothing if it is this store's own, or nobody's.
fn read(payload: &str, own: u64) -> Option<Hint> {
    let (sender, told) = payload.split_at_checked(16)?;
    if u64::from_str_radix(sender, 16).ok()? == own {
        return None;
    }
    let (kind, ids) = told.split_at_checked(1)?;
    match kind {
        "l" => Some(Hint::Live),
        "s" => Some(Hint::Submissions),
        "j" => {
            let ids = ids.as_bytes().chunks(32);
            let ids: Option<Vec<JobId>> = ids
                .map(|id| Uuid::try_parse_ascii(id).ok().map(JobId))
                .collect();
            Some(ids.map_or(Hint::Everything, Hint::Jobs))
        }
        // Or something that a newer version tells.
        _ => Some(Hint::Everything),
    }
}

fn random() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// From three quarters of it to all of it: those who lost the same server must not come back together.
fn jittered(whole: Duration) -> Duration {
    whole.mul_f64(0.75 + 0.25 * (random() >> 32) as f64 / f64::from(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read_by_others() {
        let jobs: Vec<JobId> = (0..JOBS_IN_ONE + 5).map(|_| JobId::generate()).collect();
        let pending = Pending {
            jobs: jobs.iter().copied().collect(),
            settings: true,
            ..Pending::default()
        };
        let payloads = write(&pending, 7);
        assert_eq!(payloads.len(), 3);
        assert!(payloads.iter().all(|payload| payload.len() < 8000));
        let mut told = IdSet::default();
        for payload in &payloads {
            assert_eq!(read(payload, 7), None, "its own");
            match read(payload, 8) {
                Some(Hint::Jobs(jobs)) => told.extend(jobs),
                other => assert_eq!(other, Some(Hint::Live)),
            }
        }
        assert_eq!(told, pending.jobs);
    }

    /// What a store writes for so many submits.
    fn submits(count: usize) -> Vec<Written> {
        let written = Arc::new(Mutex::new(Vec::new()));
        let store = crate::Store::in_memory();
        let noted = Arc::clone(&written);
        let _listening = store.listen(Arc::new(move |news: &[Written]| {
            noted.lock().unwrap().extend_from_slice(news);
        }));
        let stamp = crate::Stamp {
            now: jobtree_queue::Now {
                wall: jiff::Timestamp::now(),
                mono: Duration::ZERO,
            },
            roll: 0,
            rules: Arc::default(),
        };
        let request = jobtree_protocol::SubmitRequest::new("a", "t", 1);
        let intent = request.validate(&jobtree_protocol::Limits::default());
        let submission = || crate::Submission::new(intent.clone().unwrap());
        let all = (0..count).map(|_| submission()).collect();
        store.submit_many(stamp, all).wait().unwrap();
        written.lock().unwrap().clone()
    }

    fn outgoing() -> (Outgoing, UnboundedReceiver<Happening>) {
        let (bell, heard) = unbounded_channel();
        let pending = Mutex::default();
        (Outgoing { pending, bell }, heard)
    }

    #[test]
    fn many_commits_ring_once() {
        let (outgoing, mut heard) = outgoing();
        outgoing.note(&[], false);
        assert!(heard.try_recv().is_err(), "nothing was written");
        for _ in 0..3 {
            outgoing.note(&submits(2), false);
        }
        outgoing.note(&[], true);
        assert!(matches!(heard.try_recv(), Ok(Happening::Noted)));
        assert!(heard.try_recv().is_err(), "it was rung for before");
        let pending = std::mem::take(&mut *outgoing.lock());
        assert_eq!(pending.jobs.len(), 6);
        assert_eq!(write(&pending, 7).len(), 2);
        outgoing.note(&submits(1), false);
        assert!(matches!(heard.try_recv(), Ok(Happening::Noted)));
    }

    #[test]
    fn too_much_is_everything() {
        let (outgoing, _heard) = outgoing();
        outgoing.note(&submits(JOBS_IN_ONE * PAYLOADS), false);
        assert_eq!(write(&outgoing.lock(), 7).len(), PAYLOADS);
        outgoing.note(&submits(1), false);
        let payloads = write(&outgoing.lock(), 7);
        assert_eq!(payloads.len(), 1);
        assert_eq!(read(&payloads[0], 8), Some(Hint::Everything));
    }

    #[test]
    fn what_nobody_of_us_wrote_is_no_hint() {
        for payload in [
            "",
            "hello",
            "not a number here, but long enough",
            "äöüäöüäöüäöü",
        ] {
            assert_eq!(read(payload, 8), None, "{payload:?}");
        }
        // A newer version may tell more.
        assert_eq!(read("0000000000000007z1", 8), Some(Hint::Everything));
        assert_eq!(read("0000000000000007jabc", 8), Some(Hint::Everything));
    }
}
