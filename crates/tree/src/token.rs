//! Cancellation without a job: something to hand to code that wants to be stopped but is no job itself.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::body::{Body, BodyResult};
use crate::error::{CancelReason, Cancelled};
use crate::job::Job;
use crate::options::JobOptions;
use crate::tree::Tree;
use crate::wait::{CancelCallback, CancelRequested};
use crate::word::Cause;

/// Says whether something should stop. Clones are the same token.
///
/// ```
/// use jobtree_tree::CancelToken;
///
/// let program = CancelToken::new();
/// let request = program.child();
/// let both = CancelToken::any_of([&request, &CancelToken::new()]);
/// program.cancel("the user closed the window");
/// assert!(request.is_cancelled() && both.is_cancelled());
/// assert_eq!(request.reason().unwrap().message(), Some("the user closed the window"));
/// ```
#[derive(Clone)]
pub struct CancelToken(Arc<Inner>);

struct Inner {
    job: Job,
    /// The body of a token that is no job's: it ends with the token.
    body: Option<Body>,
    /// The entries in the lists of the tokens that it follows.
    follows: Vec<CancelCallback>,
    /// The tokens that it follows. A program may drop a token in the middle of a chain and keep those below it: they are
    /// still cancelled with those above.
    followed: Vec<Arc<Inner>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(body) = self.body.take() {
            body.end(BodyResult::Value);
        }
        self.follows.clear();
        // A loop, since a chain of tokens may be longer than the stack is deep.
        let mut left = std::mem::take(&mut self.followed);
        while let Some(token) = left.pop() {
            if let Some(mut last) = Arc::into_inner(token) {
                left.append(&mut last.followed);
            }
        }
    }
}

/// Tokens that are no job's hang on a tree of their own.
fn nobodys_tree() -> &'static Tree {
    static TREE: OnceLock<Tree> = OnceLock::new();
    TREE.get_or_init(Tree::new)
}

impl CancelToken {
    /// A token that only its own `cancel` cancels.
    pub fn new() -> CancelToken {
        CancelToken::following(&[])
    }

    /// The token of a job: cancelled with it.
    pub fn of_job(job: &Job) -> CancelToken {
        CancelToken(Arc::new(Inner {
            job: job.clone(),
            body: None,
            follows: Vec::new(),
            followed: Vec::new(),
        }))
    }

    /// A token that is cancelled with this one, and can be cancelled alone.
    pub fn child(&self) -> CancelToken {
        CancelToken::following(&[self])
    }

    /// A token that is cancelled as soon as one of `tokens` is, and can be cancelled alone.
    pub fn any_of<'a>(tokens: impl IntoIterator<Item = &'a CancelToken>) -> CancelToken {
        let tokens: Vec<&CancelToken> = tokens.into_iter().collect();
        CancelToken::following(&tokens)
    }

    fn following(tokens: &[&CancelToken]) -> CancelToken {
        let options = JobOptions::new().contained().started();
        let (job, body) = match nobodys_tree().root().attach(options) {
            Ok(attached) => attached,
            Err(ended) => unreachable!("this tree is never closed, but {ended}"),
        };
        let follows = tokens
            .iter()
            .map(|token| CancelCallback::cancelling(token.0.job.clone(), job.clone()))
            .collect();
        CancelToken(Arc::new(Inner {
            job,
            body: Some(body),
            follows,
            followed: tokens.iter().map(|token| Arc::clone(&token.0)).collect(),
        }))
    }

    /// Cancels it and what follows it; `false` if it was cancelled before. The token of a job cancels the job.
    pub fn cancel(&self, reason: impl Into<CancelReason>) -> bool {
        self.0.job.cancel(reason)
    }

    /// Returns `true` if the token was cancelled.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.job.is_cancelled()
    }

    /// Returns the reason of the cancellation, if there was one.
    pub fn reason(&self) -> Option<CancelReason> {
        self.0
            .job
            .cancellation()
            .map(|cancelled| cancelled.reason().clone())
    }

    /// Returns the cancellation as an error.
    ///
    /// # Errors
    /// If it was cancelled.
    pub fn check(&self) -> Result<(), Cancelled> {
        match self.is_cancelled().then(|| self.0.job.cancellation()) {
            Some(Some(cancelled)) => Err(cancelled),
            _ => Ok(()),
        }
    }

    /// A future that is ready when it is cancelled.
    pub fn cancelled(&self) -> CancelRequested {
        // The token stays as long as the future: what it follows reaches the future through it.
        CancelRequested::new(self.0.job.clone(), Some(self.0.clone()))
    }

    /// Calls `callback` when it is cancelled; see [`Job::on_cancel`].
    pub fn on_cancel(
        &self,
        callback: impl FnOnce(&CancelReason) + Send + 'static,
    ) -> CancelCallback {
        // The token stays as long as the callback: what it follows reaches the callback through it.
        self.0.job.on_cancel(callback).keeping(self.0.clone())
    }

    /// Cancels it when what is returned is dropped: for code that may end by an early return, an error or a panic.
    pub fn drop_guard(self) -> DropGuard {
        DropGuard(Some(self))
    }
}

impl Default for CancelToken {
    fn default() -> CancelToken {
        CancelToken::new()
    }
}

impl fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancelToken")
            .field("is_cancelled", &self.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Cancels a token when it is dropped; see [`CancelToken::drop_guard`].
#[derive(Debug)]
#[must_use = "dropping it cancels the token"]
pub struct DropGuard(Option<CancelToken>);

impl DropGuard {
    /// Gives the token back, and cancels nothing.
    pub fn disarm(mut self) -> CancelToken {
        match self.0.take() {
            Some(token) => token,
            None => unreachable!("the token is there until the guard is gone"),
        }
    }
}

impl Drop for DropGuard {
    fn drop(&mut self) {
        if let Some(token) = self.0.take() {
            token.cancel(Cause::Abandoned);
        }
    }
}
