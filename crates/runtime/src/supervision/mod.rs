//! Supervision with restart: children that are started again when they end.
//!
//! [`supervisor`](crate::supervisor()) lets its children fail alone; a [`Supervisor`] also starts them again. It knows how
//! to make each of them, in which order, [when](RestartPolicy) to do so again, and [whom](Strategy) an end concerns; and it
//! gives up when there are too many restarts within a period, so that its own supervisor can do something about it.
//!
//! ```
//! use std::sync::atomic::{AtomicUsize, Ordering};
//! use jobtree_runtime::supervision::{RestartPolicy, Strategy, Supervisor};
//!
//! let attempts = AtomicUsize::new(0);
//! let mut supervisor = Supervisor::new(Strategy::OneForOne);
//! supervisor.job("flaky", RestartPolicy::OnFailure, || {
//!     match attempts.fetch_add(1, Ordering::Relaxed) {
//!         0 | 1 => Err("not yet".into()),
//!         _ => Ok(()),
//!     }
//! });
//! supervisor.run()?;
//! assert_eq!(attempts.into_inner(), 3);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```
//!
//! # In the tree
//!
//! A supervisor is a job, and each life of a child is a new job below it. Children are started in the order in which they
//! were described, each after the one before it has begun: an actor after its [`started`](Actor::started). Cancelling the supervisor cancels all of them at
//! once. Where it stops children itself (for a restart, when it gives up, or by [`Stopper::stop`]), it does so one after
//! the other, in the reverse of their order: each is cancelled, and has ended before the next one is. A supervisor is
//! itself a child for another: start it in the body of a [`job`](Supervisor::job).
//!
//! # Actors
//!
//! An actor's [`Address`] and mailbox stay when it is restarted; its state is made anew. The message that was being handled
//! when it failed is lost: it may be what broke it. It is counted ([`Address::lost`]), its
//! [`Reply`](crate::actor::Reply) says that there is no answer, and the error goes to [`Supervisor::on_restart`]. All
//! others wait for the new one. An actor whose mailbox is closed and empty has completed, and is never started
//! again.

mod child;
mod error;
mod policy;
mod run;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jobtree_tree::{BoxError, JobError, JobOptions, Outcome};

use crate::actor::{Actor, ActorEnd, ActorOptions, Address};
use crate::channel::{self, Receiver, Sender};
use crate::handle::JobHandle;
use crate::nursery::{Nursery, open};
use crate::runtime;
use child::{ActorChild, Described, JobChild};
use run::{Event, Keeper};

pub use error::TooManyRestarts;
pub use policy::{Backoff, RestartPolicy, Strategy};

/// Starts its children, and starts them again; see the [module](self).
#[must_use = "nothing starts before `run`"]
pub struct Supervisor<'a> {
    strategy: Strategy,
    most_restarts: usize,
    period: Duration,
    backoff: Option<Backoff>,
    children: Vec<Described<'a>>,
    on_restart: Option<Box<OnRestart<'a>>>,
    tell: Sender<Event>,
    told: Receiver<Event>,
}

type OnRestart<'a> = dyn Fn(&Restart<'_>) + Send + Sync + 'a;

/// A restart that is about to happen; see [`Supervisor::on_restart`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Restart<'a> {
    /// The child that has ended.
    pub child: &'a str,
    /// What it ended with; `None` is success.
    pub error: Option<&'a JobError>,
    /// How many restarts there were within the period, this one included.
    pub restarts: usize,
    /// How long it will be until the start.
    pub pause: Duration,
}

impl<'a> Supervisor<'a> {
    /// A supervisor without children, that allows three restarts within five seconds.
    pub fn new(strategy: Strategy) -> Supervisor<'a> {
        // It sends no more than it has children, so it needs no bound.
        let (tell, told) = channel::uncounted(channel::Kind::Unbounded);
        Supervisor {
            strategy,
            most_restarts: 3,
            period: Duration::from_secs(5),
            backoff: None,
            children: Vec::new(),
            on_restart: None,
            tell,
            told,
        }
    }

    /// How many restarts, of all children together, there may be within `period`. One more, and the supervisor stops all
    /// children and fails with [`TooManyRestarts`].
    pub fn max_restarts(mut self, most: usize, period: Duration) -> Supervisor<'a> {
        self.most_restarts = most;
        self.period = period;
        self
    }

    /// A pause before each restart. Without it there is none.
    pub fn backoff(mut self, backoff: Backoff) -> Supervisor<'a> {
        self.backoff = Some(backoff);
        self
    }

    /// Called before each restart, by the supervisor, which does nothing else meanwhile.
    pub fn on_restart(
        mut self,
        callback: impl Fn(&Restart<'_>) + Send + Sync + 'a,
    ) -> Supervisor<'a> {
        self.on_restart = Some(Box::new(callback));
        self
    }

    /// Describes a child that is a function: each life calls it, in a job called `name`.
    pub fn job<F>(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        policy: RestartPolicy,
        body: F,
    ) -> &mut Supervisor<'a>
    where
        F: Fn() -> Result<(), BoxError> + Send + Sync + 'a,
    {
        self.children.push(Described {
            name: name.into(),
            policy,
            child: Box::new(JobChild(body)),
        });
        self
    }

    /// Describes a child that is an actor: each life has the state that `new` makes. The address can be used at once;
    /// messages wait until the actor has been started.
    pub fn actor<A, F>(
        &mut self,
        options: ActorOptions<'a>,
        policy: RestartPolicy,
        new: F,
    ) -> Address<A::Message>
    where
        A: Actor + 'a,
        A::Message: 'a,
        F: Fn() -> A + Send + Sync + 'a,
    {
        let opened = options.open();
        let about = Arc::default();
        let address = Address::new(opened.sender, Arc::clone(&about));
        self.children.push(Described {
            name: opened.label.unwrap_or(Cow::Borrowed("actor")),
            policy,
            child: Box::new(ActorChild {
                new,
                mailbox: opened.receiver,
                about,
                on_done: Mutex::new(Some(opened.on_done)),
            }),
        });
        address
    }

    /// What stops the supervisor in good order.
    pub fn stopper(&self) -> Stopper {
        Stopper {
            tell: self.tell.clone(),
        }
    }

    /// Starts the children, and keeps them until all have ended for good, or it is stopped.
    ///
    /// # Errors
    /// If there were too many restarts: `Failed` with [`TooManyRestarts`]. If it was cancelled.
    pub fn run(self) -> Outcome<()> {
        let options = JobOptions::new().supervisor().label("supervisor");
        let outcome = open(runtime::current(), options, |n| {
            Keeper::new(n, &self).keep()
        });
        self.told.close();
        for described in &self.children {
            described.child.done(ActorEnd::Cancelled);
        }
        outcome
    }
}

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// Starts a supervisor as a job of this scope: [`Supervisor::run`]. If it gives up, the scope fails, unless that is a
    /// supervisor.
    pub fn supervise(&'scope self, supervisor: Supervisor<'scope>) -> JobHandle<()> {
        self.spawn(move || Ok(supervisor.run()?))
    }
}

impl fmt::Debug for Supervisor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.children.iter().map(|child| &*child.name).collect();
        f.debug_struct("Supervisor")
            .field("strategy", &self.strategy)
            .field("most_restarts", &self.most_restarts)
            .field("period", &self.period)
            .field("backoff", &self.backoff)
            .field("children", &names)
            .finish_non_exhaustive()
    }
}

/// Stops a supervisor in good order; see [`Supervisor::stopper`].
#[derive(Clone, Debug)]
pub struct Stopper {
    tell: Sender<Event>,
}

impl Stopper {
    /// Asks the supervisor to stop its children, one after the other in the reverse of their order, and to end with success.
    /// `false` if it has ended already.
    pub fn stop(&self) -> bool {
        self.tell.try_send(Event::Stop).is_ok()
    }
}
