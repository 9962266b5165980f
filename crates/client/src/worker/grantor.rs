//! A daemon, as a worker sees it.
//!
//! The worker never blocks, so its calls are made by threads here: one waits for jobs, two renew leases (one that hangs
//! does not keep the other from telling), some tell what came of jobs. No call outlasts a part of the leases' TTL, so the
//! worker can ask again before its fence; the exception is the wait for jobs, which holds no lease.
//!
//! Hints come over the event stream. Whoever may not read it, or loses it, hears with the next heartbeat.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jobtree_protocol::operations::{
    AppendJobLog, ClaimJobs, CompleteJobs, ReleaseLease, RenewLeases,
};
use jobtree_protocol::{
    AddonId, ClaimAnswer, ClaimRequest, CompleteManyAnswer, CompleteManyRequest, Each, EventKind,
    HeartbeatManyAnswer, HeartbeatManyRequest, JobId, LeaseId, LogAppend, LogAppendAnswer,
    ReleaseRequest,
};
use jobtree_worker::{Grantor, Poke, Reply, SchedulerPlace, mono};

use super::errands::Errands;
use super::place::place_of;
use crate::client::Client;
use crate::events::{Filter, Stopper, What};

/// How often the daemon hears how the worker does.
const REPORT_EVERY: Duration = Duration::from_secs(3);
/// Calls that tell what came of jobs, at a time.
const TELLERS: usize = 4;
/// How long to wait with another stream when the daemon refused one.
const UNHEARD: Duration = Duration::from_secs(10);

pub(super) struct OverHttp {
    client: Client,
    addon: AddonId,
    place: SchedulerPlace,
    claims: Errands,
    /// Over a connection of its own, which is cut when nobody waits any more: so the daemon knows.
    claiming: Arc<Mutex<Client>>,
    beats: Errands,
    answers: Arc<Errands>,
    /// The shortest TTL that a lease had, in seconds.
    ttl: Arc<AtomicU64>,
    hints: Mutex<Option<Hints>>,
}

struct Hints {
    over: Arc<AtomicBool>,
    stopper: Arc<Mutex<Option<Stopper>>>,
}

impl OverHttp {
    pub(super) fn new(client: Client, addon: AddonId) -> Self {
        OverHttp {
            claiming: Arc::new(Mutex::new(client.apart())),
            place: place_of(client.url()),
            client,
            addon,
            claims: Errands::new("jobtree-claims", 2),
            beats: Errands::new("jobtree-beats", 2),
            answers: Arc::new(Errands::new("jobtree-answers", TELLERS)),
            ttl: Arc::new(AtomicU64::new(60)),
            hints: Mutex::default(),
        }
    }

    /// A sixth of the TTL: from a third on, when a renewal is due, it can be asked for three times before the fence.
    fn patience(&self) -> Duration {
        let ttl = Duration::from_secs(self.ttl.load(Ordering::Relaxed));
        (ttl / 6).clamp(Duration::from_millis(200), Duration::from_secs(10))
    }
}

impl Grantor for OverHttp {
    fn claim(&self, request: ClaimRequest) -> Reply<Vec<ClaimAnswer>> {
        let apart = lock(&self.claiming).clone();
        let (cut, claiming) = (apart.clone(), Arc::clone(&self.claiming));
        let leave = move || {
            *lock(&claiming) = cut.apart();
            cut.hang_up();
        };
        let (ttl, patience) = (Arc::clone(&self.ttl), self.patience());
        let wait = Duration::from_secs(request.wait_sec.into());
        let call = move || {
            let call = apart
                .prepare::<ClaimJobs>((), &(), &request)?
                .repeated_if(false);
            let claimed = call.within(wait + patience).answer()?;
            for lease in &claimed.leases {
                ttl.fetch_min(lease.ttl_sec.into(), Ordering::Relaxed);
            }
            Ok(claimed.leases)
        };
        let (client, answers) = (self.client.clone(), Arc::clone(&self.answers));
        let give_back = move |leases: Vec<ClaimAnswer>| {
            for lease in leases {
                let reason = Some("the worker is stopping".to_owned());
                let request = ReleaseRequest {
                    return_jobs: true,
                    reason,
                    ..ReleaseRequest::default()
                };
                let client = client.clone();
                let release = move || Ok(client.release(lease.lease_id, &request)?);
                // It goes on by itself; if it does not arrive, the lease runs out.
                drop(answers.ask(release));
            }
        };
        self.claims.ask_unless_left(call, leave, give_back)
    }

    fn heartbeat_many(&self, request: HeartbeatManyRequest) -> Reply<HeartbeatManyAnswer> {
        let (client, patience) = (self.client.clone(), self.patience());
        let ttl = Arc::clone(&self.ttl);
        self.beats.ask(move || {
            let call = client
                .prepare::<RenewLeases>((), &(), &request)?
                .repeated_if(false);
            let answer = call.within(patience).answer()?;
            for lease in &answer.leases {
                if let Each::Done(lease) = lease {
                    ttl.fetch_min(lease.ttl_sec.into(), Ordering::Relaxed);
                }
            }
            Ok(answer)
        })
    }

    fn complete_many(&self, request: CompleteManyRequest) -> Reply<CompleteManyAnswer> {
        let (client, patience) = (self.client.clone(), self.patience());
        self.answers.ask(move || {
            let call = client
                .prepare::<CompleteJobs>((), &(), &request)?
                .repeated_if(false);
            Ok(call.within(patience).answer()?)
        })
    }

    fn release(&self, lease: LeaseId, request: ReleaseRequest) -> Reply<()> {
        let (client, patience) = (self.client.clone(), self.patience());
        self.answers.ask(move || {
            let call = client
                .prepare::<ReleaseLease>(lease, &(), &request)?
                .repeated_if(false);
            Ok(call.within(patience).answer()?)
        })
    }

    fn append_log(&self, job: JobId, request: LogAppend) -> Reply<LogAppendAnswer> {
        let (client, patience) = (self.client.clone(), self.patience());
        self.answers.ask(move || {
            let call = client
                .prepare::<AppendJobLog>(job, &(), &request)?
                .repeated_if(false);
            Ok(call.within(patience).answer()?)
        })
    }

    fn mono(&self) -> Duration {
        mono()
    }

    fn watch(&self, poke: Poke) {
        let hints = Hints {
            over: Arc::default(),
            stopper: Arc::default(),
        };
        let (over, stopper) = (Arc::clone(&hints.over), Arc::clone(&hints.stopper));
        let before = lock(&self.hints).replace(hints);
        drop(before);
        let (client, addon) = (self.client.clone(), self.addon.clone());
        let thread = std::thread::Builder::new().name("jobtree-hints".to_owned());
        // Without it the worker is slower to hear, which is all.
        let _ = thread.spawn(move || listen(&client, &addon, &over, &stopper, &poke));
    }

    fn place(&self) -> SchedulerPlace {
        self.place
    }

    fn loses_answers(&self) -> bool {
        true
    }

    fn report_every(&self) -> Option<Duration> {
        Some(REPORT_EVERY)
    }
}

impl Drop for Hints {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(stopper) = lock(&self.stopper).take() {
            stopper.stop();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on what happens to leases, for as long as somebody wants to know.
fn listen(
    client: &Client,
    addon: &AddonId,
    over: &AtomicBool,
    stopper: &Mutex<Option<Stopper>>,
    poke: &Poke,
) {
    let mut last = None;
    while !over.load(Ordering::Acquire) {
        let filter = Filter {
            addon_id: Some(addon.clone()),
            kinds: vec![
                EventKind::CancelRequested,
                EventKind::LeaseExpired,
                EventKind::LeaseRevoked,
                EventKind::Timeout,
                // Of a job: its run is paused, or goes on.
                EventKind::Paused,
                EventKind::Resumed,
            ],
            ..Filter::default()
        };
        let mut events = client.events(filter, last);
        *lock(stopper) = Some(events.stopper());
        if over.load(Ordering::Acquire) {
            // Whoever ended it may have come before there was something to stop.
            return;
        }
        for happened in events.by_ref().map_while(Result::ok) {
            if let What::Event(event) = happened.what
                && let Some(lease) = event.lease_id
            {
                poke(lease);
            }
        }
        last = events.last_event_id();
        events.rest(UNHEARD);
    }
}
