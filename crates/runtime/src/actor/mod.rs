//! Actors: a state that one job owns, changed by messages, one at a time.
//!
//! An [`Actor`] is started in a nursery and is known by its [`Address`]. Its mailbox is a channel; which kind, and what it
//! is called, say the [`ActorOptions`]. After each message it lets other work run, so a busy actor does not keep its worker
//! to itself.
//!
//! ```
//! use jobtree_runtime::actor::{Actor, ActorContext, ActorOptions, Reply};
//! use jobtree_runtime::{BoxError, nursery};
//!
//! enum Count {
//!     Add(u64),
//!     Total(Reply<u64>),
//! }
//!
//! struct Counter(u64);
//!
//! impl Actor for Counter {
//!     type Message = Count;
//!
//!     fn handle(&mut self, message: Count, _: &ActorContext<'_, Count>) -> Result<(), BoxError> {
//!         match message {
//!             Count::Add(number) => self.0 += number,
//!             Count::Total(reply) => {
//!                 reply.send(self.0);
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! let total = nursery(|n| {
//!     let counter = n.actor(ActorOptions::new().label("counter"), Counter(0));
//!     for number in 1..=10 {
//!         counter.send(Count::Add(number))?;
//!     }
//!     Ok(counter.ask(Count::Total)?)
//! })?;
//! assert_eq!(total, 55);
//! # Ok::<(), jobtree_runtime::JobError>(())
//! ```
//!
//! # How an actor ends
//!
//! * Its mailbox is closed: by [`Address::close`], or because all addresses are gone. It handles what is in it, and has
//!   completed.
//! * It is cancelled: by [`Address::cancel`], or with the scope. It handles nothing more; what is in the mailbox is dropped.
//! * It fails: [`handle`](Actor::handle) returns an error or panics. So does its scope then, unless that is a supervisor. To
//!   have it begin again, give it to a [`Supervisor`](crate::supervision::Supervisor).
//!
//! Whichever it is, [`ActorOptions::on_done`] is called exactly once.

mod address;
mod ask;
mod life;
mod options;

use jobtree_tree::{BoxError, JobOptions};

use crate::future;
use crate::nursery::Nursery;
use life::Prepared;

pub use address::Address;
pub use ask::{AskError, Reply};
pub use life::ActorContext;
pub use options::{ActorEnd, ActorOptions, Mailbox};

pub(crate) use address::About;
pub(crate) use life::run;
pub(crate) use options::OnDone;

/// A state that is changed by messages, one at a time; see the [module](self).
pub trait Actor: Send {
    /// What it understands.
    type Message: Send;

    /// Called once, before the first message.
    ///
    /// # Errors
    /// If it fails, so has the actor.
    fn started(&mut self, context: &ActorContext<'_, Self::Message>) -> Result<(), BoxError> {
        let _ = context;
        Ok(())
    }

    /// Called for each message. It may wait, for other jobs or for answers of other actors; its messages wait then, too.
    ///
    /// # Errors
    /// If it fails, so has the actor.
    fn handle(
        &mut self,
        message: Self::Message,
        context: &ActorContext<'_, Self::Message>,
    ) -> Result<(), BoxError>;

    /// Called after the last message, if [`started`](Actor::started) went well: also when a message failed or the actor
    /// was cancelled (then use a [`shield`](crate::shield) for whatever waits). Not after a panic.
    ///
    /// # Errors
    /// If it fails, so has the actor, unless it had failed before.
    fn stopped(&mut self, context: &ActorContext<'_, Self::Message>) -> Result<(), BoxError> {
        let _ = context;
        Ok(())
    }
}

/// An actor that is a function.
///
/// ```
/// use jobtree_runtime::{actor, nursery};
///
/// let mut seen = Vec::new();
/// nursery(|n| {
///     let log = n.actor(actor::ActorOptions::new(), actor::from_fn(|line: &str, _| Ok(seen.push(line))));
///     log.send("one")?;
///     log.send("two")?;
///     Ok(())
/// })?;
/// assert_eq!(seen, ["one", "two"]);
/// # Ok::<(), jobtree_runtime::JobError>(())
/// ```
pub fn from_fn<M, F>(handle: F) -> impl Actor<Message = M>
where
    M: Send,
    F: FnMut(M, &ActorContext<'_, M>) -> Result<(), BoxError> + Send,
{
    FnActor {
        handle,
        message: std::marker::PhantomData,
    }
}

struct FnActor<F, M> {
    handle: F,
    message: std::marker::PhantomData<fn(M)>,
}

impl<F, M> Actor for FnActor<F, M>
where
    M: Send,
    F: FnMut(M, &ActorContext<'_, M>) -> Result<(), BoxError> + Send,
{
    type Message = M;

    fn handle(&mut self, message: M, context: &ActorContext<'_, M>) -> Result<(), BoxError> {
        (self.handle)(message, context)
    }
}

impl<'scope, 'env> Nursery<'scope, 'env> {
    /// Starts an actor; see the [module](crate::actor).
    ///
    /// In a scope that is cancelled it is done at once, without having been started.
    ///
    /// # Panics
    /// If the limits of the calling code do not allow the mailbox, which is a channel
    /// ([`CapChannel`](crate::budget::CapChannel)), as in the profile [`Core`](crate::Profile::Core), where nothing may be spawned
    /// either.
    pub fn actor<A>(&'scope self, options: ActorOptions<'scope>, actor: A) -> Address<A::Message>
    where
        A: Actor + 'scope,
        A::Message: 'scope,
    {
        let Prepared {
            label,
            address,
            body,
        } = life::prepare(options, actor);
        let mut spawner = self.job_options();
        if let Some(label) = label {
            spawner = spawner.label(label);
        }
        let handle = spawner.spawn(body);
        address.about().set_job(handle.job());
        address
    }
}

impl future::Nursery {
    /// Starts an actor; see the [module](crate::actor).
    ///
    /// # Panics
    /// If the limits of the calling code do not allow the mailbox, which is a channel
    /// ([`CapChannel`](crate::budget::CapChannel)), as in the profile [`Core`](crate::Profile::Core), where nothing may be spawned
    /// either.
    pub fn actor<A>(&self, options: ActorOptions<'static>, actor: A) -> Address<A::Message>
    where
        A: Actor + 'static,
        A::Message: 'static,
    {
        let Prepared {
            label,
            address,
            body,
        } = life::prepare(options, actor);
        let mut options = JobOptions::new();
        if let Some(label) = label {
            options = options.label(label);
        }
        let handle = self.spawn_with(options, body);
        address.about().set_job(handle.job());
        address
    }
}
