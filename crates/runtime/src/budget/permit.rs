//! Permission for what is neither a spawn nor a charge: making channels, using an executor.

use std::fmt;
use std::sync::Arc;

use super::account::Account;
use super::capability::Executor;
use super::refusal::{ChannelRefused, ExecutorRefused};
use super::tick::current_account;

/// The right to one channel; the channel keeps it as long as it exists. See [`may_create_channel`].
#[must_use = "dropping it says that the channel is gone"]
pub struct ChannelPermit {
    /// Who is charged; nobody where nothing is limited.
    account: Option<Arc<Account>>,
}

impl ChannelPermit {
    /// Where nothing is limited.
    pub(crate) fn unlimited() -> ChannelPermit {
        ChannelPermit { account: None }
    }
}

impl Drop for ChannelPermit {
    fn drop(&mut self) {
        if let Some(account) = &self.account {
            account.remove_channel();
        }
    }
}

impl fmt::Debug for ChannelPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelPermit")
            .field("is_limited", &self.account.is_some())
            .finish()
    }
}

/// Whether the current job may make a channel with room for `capacity`; `None` is without a bound. For channels of one's
/// own; ours ask themselves.
///
/// ```
/// let permit = jobtree_runtime::budget::may_create_channel(Some(10))?;
/// // Keep it in the channel.
/// # drop(permit);
/// # Ok::<(), jobtree_runtime::budget::ChannelRefused>(())
/// ```
///
/// # Errors
/// If its [`CapChannel`](super::CapChannel) is missing or does not allow it.
pub fn may_create_channel(capacity: Option<usize>) -> Result<ChannelPermit, ChannelRefused> {
    let Some(account) = current_account() else {
        return Ok(ChannelPermit { account: None });
    };
    let allowed = allow_channel(&account, capacity.map(|capacity| capacity as u64));
    match allowed {
        Ok(()) => Ok(ChannelPermit {
            account: Some(account),
        }),
        Err(refused) => {
            account.supervision.counters.refused();
            Err(refused)
        }
    }
}

fn allow_channel(account: &Account, wanted: Option<u64>) -> Result<(), ChannelRefused> {
    let Some(channel) = account.capabilities.channel else {
        return Err(ChannelRefused::NoChannelCapability);
    };
    let limit = channel.max_buffer;
    if wanted.unwrap_or(u64::MAX) > limit {
        return Err(ChannelRefused::BufferTooLarge { wanted, limit });
    }
    let limit = channel.max_channels;
    if !account.add_channel(limit) {
        return Err(ChannelRefused::ChannelLimitExceeded { limit });
    }
    Ok(())
}

/// Whether the current job may have something run in this way. For executors of one's own; ours ask themselves.
///
/// # Errors
/// If its [`CapExecutor`](super::CapExecutor) does not name it.
pub fn may_use_executor(executor: Executor) -> Result<(), ExecutorRefused> {
    match current_account() {
        Some(account) => allow_executor(&account, executor),
        None => Ok(()),
    }
}

/// [`may_use_executor`], of the code of `account`.
pub(super) fn allow_executor(account: &Account, executor: Executor) -> Result<(), ExecutorRefused> {
    if account.capabilities.executors.allows(executor) {
        return Ok(());
    }
    account.supervision.counters.refused();
    Err(ExecutorRefused { executor })
}
