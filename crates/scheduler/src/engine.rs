//! Drives the core for real: a thread with a mailbox, this machine's clock, and a store.
//!
//! Protocol. Everything that happens comes into one mailbox: calls, commits (from the store's listener, in the order of
//! commits), notifications of what other schedulers committed, answers of the store, samples. The thread takes all that is
//! there, gives it to the core at one instant, and does what the core says: it begins operations of the store, answers
//! callers, and sleeps until something comes or the core's next wake-up is due. A store tells of a commit before it
//! answers, so an answer never comes before the commit that it belongs to.
//!
//! The mailbox's lock is held to push and to swap, never while foreign code runs. The thread ends when it is told to, or
//! when the last handle is gone; then every answer that is owed says so.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jobtree_protocol::{Advice, InstanceId, LeaseId, LeaseLimits};
use jobtree_queue::policy::Policy;
use jobtree_queue::transitions::Rules;
use jobtree_store::{Hint, Listening, Stamp, Store};

use crate::clock::Clock;
use crate::core::{
    Call, CallId, Core, Input, LeaseProcesses, OpId, Output, Performing, Responder, perform,
    rules_of,
};
use crate::options::Options;
use crate::submissions::Mover;
use jobtree_worker::reply::{Promised, Result, promise};

/// The longest time that the last writes may take when the engine stops.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// What handles read without asking.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) policy: Arc<Policy>,
    pub(crate) rules: Arc<Rules>,
    pub(crate) limits: LeaseLimits,
    pub(crate) processes: Vec<Arc<LeaseProcesses>>,
}

#[derive(Default)]
struct Mailbox {
    inputs: Mutex<Vec<Mail>>,
    came: Condvar,
}

enum Mail {
    Input(Input),
    /// The operation's future is to be polled.
    Ready(OpId),
    Stop,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Mail>> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mail: Mail) {
        let mut inputs = self.lock();
        let first = inputs.is_empty();
        inputs.push(mail);
        drop(inputs);
        if first {
            self.came.notify_one();
        }
    }

    /// Has leases given back that no caller took.
    fn give_back(&self, leases: Vec<LeaseId>) {
        if !leases.is_empty() {
            self.push(Mail::Input(Input::Untaken(leases)));
        }
    }
}

/// A running engine.
pub(crate) struct Engine {
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
    next_call: AtomicU64,
    /// Moves what programs submit in transactions of their own, if the store has such.
    mover: Mutex<Option<Mover>>,
    _listening: Listening,
}

struct Shared {
    store: Store,
    options: Options,
    clock: Clock,
    published: RwLock<Arc<Published>>,
    /// What leases are told that are told something else than to go on.
    advices: RwLock<HashMap<LeaseId, Advice>>,
    rolls: AtomicU64,
    stopped: AtomicBool,
}

impl Engine {
    pub(crate) fn start(store: Store, options: Options) -> Self {
        let clock = Clock::system();
        let policy = Arc::new(options.policy.clone());
        let seed = seed();
        let core = Core::new(&options, Arc::clone(&policy), seed, clock.now());
        let shared = Arc::new(Shared {
            published: RwLock::new(Arc::new(published(&policy, &options, Vec::new()))),
            store,
            options,
            clock,
            advices: RwLock::default(),
            rolls: AtomicU64::new(seed.rotate_left(32)),
            stopped: AtomicBool::new(false),
        });
        let mailbox = Arc::new(Mailbox::default());
        let told = Arc::downgrade(&mailbox);
        let listening = shared.store.listen(Arc::new(move |written| {
            if let Some(mailbox) = told.upgrade() {
                mailbox.push(Mail::Input(Input::Committed(written.to_vec())));
            }
        }));
        // Before the core begins to read, so that nothing is committed between the two without a hint.
        let told = Arc::downgrade(&mailbox);
        shared.store.hints(Arc::new(move |hint| {
            if let Some(mailbox) = told.upgrade() {
                mailbox.push(Mail::Input(match hint {
                    // The mover's.
                    Hint::Submissions => return,
                    Hint::Jobs(jobs) => Input::JobsChanged(jobs.clone()),
                    Hint::Live => Input::SettingsChanged,
                    Hint::Everything => Input::Resync,
                }));
            }
        }));
        let running = Running {
            core,
            shared: Arc::clone(&shared),
            mailbox: Arc::clone(&mailbox),
            ops: HashMap::new(),
            processes: 0,
        };
        let thread = std::thread::Builder::new()
            .name("jobtree-engine".to_owned())
            .spawn(move || running.run())
            .expect("a thread for the engine");
        Self {
            mailbox,
            shared,
            thread: Mutex::new(Some(thread)),
            next_call: AtomicU64::new(0),
            mover: Mutex::default(),
            _listening: listening,
        }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    pub(crate) fn options(&self) -> &Options {
        &self.shared.options
    }

    pub(crate) fn published(&self) -> Arc<Published> {
        let published = self.shared.published.read();
        Arc::clone(&published.unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn advice(&self, lease: LeaseId) -> Advice {
        let advices = self.shared.advices.read();
        let advices = advices.unwrap_or_else(PoisonError::into_inner);
        advices.get(&lease).copied().unwrap_or_default()
    }

    pub(crate) fn stamp(&self) -> Stamp {
        Stamp {
            now: self.shared.clock.now(),
            roll: crate::core::rng::mixed(self.shared.rolls.fetch_add(1, Ordering::Relaxed)),
            rules: Arc::clone(&self.published().rules),
        }
    }

    pub(crate) fn post(&self, input: Input) {
        self.mailbox.push(Mail::Input(input));
    }

    pub(crate) fn set_policy(&self, policy: Arc<Policy>) {
        let processes = self.published().processes.clone();
        let new = Arc::new(published(&policy, &self.shared.options, processes));
        *self
            .shared
            .published
            .write()
            .unwrap_or_else(PoisonError::into_inner) = new;
        self.post(Input::Policy(policy));
    }

    /// Makes a call. `leases` says which leases an answer grants: they are given back if the caller does not take it.
    pub(crate) fn call<T: Send + 'static>(
        &self,
        leases: fn(&T) -> Vec<LeaseId>,
        make: impl FnOnce(Responder<T>) -> Call,
    ) -> Waiting<T> {
        let id = self.next_call.fetch_add(1, Ordering::Relaxed);
        let (promise, promised) = promise();
        let call = make(Responder::new(id, |answer| promise.keep(answer)));
        if !self.shared.stopped.load(Ordering::Acquire) {
            self.mailbox.push(Mail::Input(Input::Call(call)));
        }
        Waiting {
            call: id,
            promised,
            leases,
            mailbox: Arc::clone(&self.mailbox),
            answered: false,
        }
    }

    /// Keeps the thread that moves submissions until the engine stops.
    pub(crate) fn moves(&self, mover: Mover) {
        let mut place = self.mover.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(mover);
    }

    pub(crate) fn stop(&self) {
        let mover = self
            .mover
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(mover);
        self.shared.stopped.store(true, Ordering::Release);
        self.mailbox.push(Mail::Stop);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The engine's thread may drop the last handle itself, by a callback: then there is nobody to wait for.
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // A panic in there has been told by its message already.
            let _ = thread.join();
        }
        // What came after the end is answered by being dropped.
        self.mailbox.lock().clear();
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// An answer that a caller waits for. If it is dropped, the core is told: a long poll ends, and granted leases go back.
pub(crate) struct Waiting<T> {
    call: CallId,
    promised: Promised<T>,
    leases: fn(&T) -> Vec<LeaseId>,
    mailbox: Arc<Mailbox>,
    answered: bool,
}

impl<T> Future for Waiting<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.promised).poll(context);
        self.answered = polled.is_ready();
        polled
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        match self.promised.leave() {
            None => self.mailbox.push(Mail::Input(Input::Left(self.call))),
            Some(Ok(untaken)) => self.mailbox.give_back((self.leases)(&untaken)),
            Some(Err(_)) => {}
        }
    }
}

/// What the engine's thread has.
struct Running {
    core: Core,
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    ops: HashMap<OpId, Performing>,
    /// The version of the registered processes that was published.
    processes: u64,
}

/// Has the engine's thread poll an operation.
struct OpWaker {
    mailbox: std::sync::Weak<Mailbox>,
    op: OpId,
}

impl Wake for OpWaker {
    fn wake(self: Arc<Self>) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.push(Mail::Ready(self.op));
        }
    }
}

/// Wakes a thread that waits for the last writes.
struct Unparks(std::thread::Thread);

impl Wake for Unparks {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Running {
    fn run(mut self) {
        let mut outputs = self.core.begin(self.shared.clock.now());
        loop {
            let wake = self.handle(outputs);
            let mut inputs = Vec::new();
            let mut stops = false;
            for mail in self.mail(wake) {
                match mail {
                    Mail::Input(input) => inputs.push(input),
                    Mail::Ready(op) => inputs.extend(self.poll(op)),
                    Mail::Stop => stops = true,
                }
            }
            if stops {
                return self.end(inputs);
            }
            if let Some(why) = self.shared.store.stopped() {
                // Nothing that it says could be trusted any more. Callers are told by their own calls.
                self.core.store_stopped(&why);
            }
            outputs = self.core.step(inputs, self.shared.clock.now());
            self.publish();
        }
    }

    /// Has what is remembered written, and waits for that: not for long, since a store that does not answer must not keep the process.
    fn end(mut self, inputs: Vec<Input>) {
        let until = Instant::now() + LAST_WRITES;
        let waker = Waker::from(Arc::new(Unparks(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        let outputs = self.core.end(inputs, self.shared.clock.now());
        let mut writes: Vec<Performing> = outputs
            .into_iter()
            .filter_map(|output| match output {
                Output::Op { stamp, op, .. } => Some(perform(&self.shared.store, stamp, op)),
                Output::WakeAt(_) | Output::Respond(_) => None,
            })
            .collect();
        loop {
            writes.retain_mut(|write| write.as_mut().poll(&mut context).is_pending());
            let left = until.saturating_duration_since(Instant::now());
            if writes.is_empty() || left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// What has come; waits for something until that moment.
    fn mail(&self, wake: Option<Duration>) -> Vec<Mail> {
        let mut inputs = self.mailbox.lock();
        while inputs.is_empty() {
            let Some(wake) = wake else {
                inputs = self
                    .mailbox
                    .came
                    .wait(inputs)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = wake.saturating_sub(self.shared.clock.mono());
            if left.is_zero() {
                return vec![Mail::Input(Input::Timer)];
            }
            inputs = self
                .mailbox
                .came
                .wait_timeout(inputs, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        std::mem::take(&mut *inputs)
    }

    fn handle(&mut self, outputs: Vec<Output>) -> Option<Duration> {
        let mut wake = None;
        for output in outputs {
            match output {
                Output::WakeAt(at) => wake = Some(wake.map_or(at, |known| at.min(known))),
                Output::Op { id, stamp, op } => {
                    let operation = perform(&self.shared.store, stamp, op);
                    self.ops.insert(id, operation);
                    if let Some(answer) = self.poll(id) {
                        self.mailbox.push(Mail::Input(answer));
                    }
                }
                Output::Respond(response) => self.mailbox.give_back(response.deliver()),
            }
        }
        wake
    }

    fn poll(&mut self, op: OpId) -> Option<Input> {
        let operation = self.ops.get_mut(&op)?;
        let waker = OpWaker {
            mailbox: Arc::downgrade(&self.mailbox),
            op,
        };
        let waker = Waker::from(Arc::new(waker));
        match operation.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => None,
            Poll::Ready(answer) => {
                self.ops.remove(&op);
                let answer = Box::new(answer);
                Some(Input::Answer { op, answer })
            }
        }
    }

    /// What handles read without asking.
    fn publish(&mut self) {
        if let Some(advices) = self.core.advices(self.shared.clock.now()) {
            let known = self.shared.advices.write();
            *known.unwrap_or_else(PoisonError::into_inner) = advices;
        }
        if self.core.processes_version() != self.processes {
            self.processes = self.core.processes_version();
            let processes = self.core.processes();
            let mut published = self
                .shared
                .published
                .write()
                .unwrap_or_else(PoisonError::into_inner);
            let new = Published {
                processes,
                ..Published::clone(&published)
            };
            *published = Arc::new(new);
        }
    }
}

fn published(
    policy: &Arc<Policy>,
    options: &Options,
    processes: Vec<Arc<LeaseProcesses>>,
) -> Published {
    let rules = rules_of(policy, options);
    Published {
        policy: Arc::clone(policy),
        limits: LeaseLimits {
            ttl_sec: rules.lease_ttl_sec,
            max_active_leases: Some(policy.caps.leases),
            max_active_leases_per_addon: Some(policy.caps.addon_leases),
            max_runtime_sec: None,
        },
        rules: Arc::new(rules),
        processes,
    }
}

/// A seed of this machine's randomness.
fn seed() -> u64 {
    let (high, low) = InstanceId::generate().0.as_u64_pair();
    high ^ low.rotate_left(17)
}
