//! What can be said about an actor before it starts, and how it is told that one has ended.

use std::borrow::Cow;
use std::fmt;

use jobtree_base::user_code::{Place, call_user};
use jobtree_tree::{JobError, Outcome};

use crate::channel::{self, Receiver, Sender};

/// What kind of channel an actor's messages wait in: [`channel::Kind`], under the name that it has here.
pub use crate::channel::Kind as Mailbox;

/// Where messages wait if nothing is said. Picked by feel: enough for a burst, and a sender that is always faster
/// than the actor soon has to wait for it.
const USUAL_MAILBOX: Mailbox = Mailbox::Bounded(64);

/// How an actor has ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ActorEnd {
    /// Its mailbox was closed, and it has handled all that was in it.
    Completed,
    /// It failed, by an error or a panic.
    Failed(JobError),
    /// It was cancelled, or had never been started when its time was over.
    Cancelled,
}

impl ActorEnd {
    pub(crate) fn of(outcome: &Outcome<()>) -> ActorEnd {
        match outcome {
            Ok(()) => ActorEnd::Completed,
            Err(JobError::Cancelled(_)) => ActorEnd::Cancelled,
            Err(error) => ActorEnd::Failed(error.clone()),
        }
    }
}

/// What is said about an actor before it starts.
///
/// ```
/// use jobtree_runtime::actor::{ActorOptions, Mailbox};
///
/// let options = ActorOptions::new()
///     .label("display")
///     .mailbox(Mailbox::Conflated)
///     .on_done(|end| println!("the display has ended: {end:?}"));
/// ```
#[must_use = "nothing starts before an actor is given to a scope"]
pub struct ActorOptions<'a> {
    label: Option<Cow<'static, str>>,
    mailbox: Mailbox,
    on_done: OnDone<'a>,
}

impl<'a> ActorOptions<'a> {
    /// An actor without a name, with room for 64 messages in its mailbox; then senders wait.
    pub fn new() -> ActorOptions<'a> {
        ActorOptions {
            label: None,
            mailbox: USUAL_MAILBOX,
            on_done: OnDone::default(),
        }
    }

    /// What reports and dumps call it.
    pub fn label(mut self, label: impl Into<Cow<'static, str>>) -> ActorOptions<'a> {
        self.label = Some(label.into());
        self
    }

    /// Where its messages wait.
    pub fn mailbox(mut self, mailbox: Mailbox) -> ActorOptions<'a> {
        self.mailbox = mailbox;
        self
    }

    /// Called exactly once, when the actor is done: it completed, failed, or was cancelled, even if it never ran. A restart
    /// by a supervisor does not count; then it is called when there will be no other. Nobody can send any more by then.
    pub fn on_done(mut self, callback: impl FnOnce(ActorEnd) + Send + 'a) -> ActorOptions<'a> {
        self.on_done = OnDone {
            callback: Some(Box::new(callback)),
        };
        self
    }

    /// Opens the mailbox.
    #[track_caller]
    pub(crate) fn open<M>(self) -> Opened<'a, M> {
        let (sender, receiver) = channel::new(self.mailbox);
        Opened {
            label: self.label,
            sender,
            receiver,
            on_done: self.on_done,
        }
    }
}

impl Default for ActorOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

pub(crate) struct Opened<'a, M> {
    pub(crate) label: Option<Cow<'static, str>>,
    pub(crate) sender: Sender<M>,
    pub(crate) receiver: Receiver<M>,
    pub(crate) on_done: OnDone<'a>,
}

impl fmt::Debug for ActorOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ActorOptions")
            .field("label", &self.label)
            .field("mailbox", &self.mailbox)
            .finish_non_exhaustive()
    }
}

/// Somebody to be told of an end, once: at the latest when this is dropped.
#[derive(Default)]
pub(crate) struct OnDone<'a> {
    callback: Option<Box<dyn FnOnce(ActorEnd) + Send + 'a>>,
}

impl OnDone<'_> {
    pub(crate) fn tell(mut self, end: ActorEnd) {
        if let Some(callback) = self.callback.take() {
            callback(end);
        }
    }
}

impl Drop for OnDone<'_> {
    fn drop(&mut self) {
        if let Some(callback) = self.callback.take() {
            // In a destructor, perhaps because of a panic: a second one would end the process.
            call_user(Place::Callback, || callback(ActorEnd::Cancelled));
        }
    }
}
