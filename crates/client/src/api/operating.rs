//! What operators do: pauses, draining, signals, policy, backup, and the lists of schedules, webhooks, tokens.

use std::fmt::Display;
use std::time::Duration;

use jobtree_protocol::operations::{
    Backup, DeleteToken, DeleteWebhook, Drain, ListPauses, ListSchedules, ListTokens, ListWebhooks,
    PreviewPolicy, Resume, SetPolicy, ValidatePolicy,
};
use jobtree_protocol::{
    BackupAnswer, BackupRequest, DrainRequest, PauseRequest, PauseView, PolicyPreview,
    ScheduleView, TokenView, WebhookView, paths,
};

use crate::call::Result;
use crate::client::Client;

/// Copying a large database takes a while.
const BACKUP: Duration = Duration::from_secs(3600);

impl Client {
    /// Replaces the policy by one written as TOML.
    ///
    /// # Errors
    /// If it is refused, with a message for each field; or the daemon does not answer.
    pub fn put_policy(&self, toml: &str) -> Result<()> {
        self.call::<SetPolicy>((), &(), &toml.to_owned())
    }

    /// Whether this TOML is a policy.
    ///
    /// # Errors
    /// If it is none, with a message for each field; or the daemon does not answer.
    pub fn validate_policy(&self, toml: &str) -> Result<()> {
        let verdict = self.call::<ValidatePolicy>((), &(), &toml.to_owned());
        verdict.map(drop)
    }

    /// Tells what the recorded load and jobs of the last week would have come to under this TOML, beside the policy in force.
    ///
    /// # Errors
    /// If it is no policy, with a message for each field; another preview is being made; or the daemon does not answer.
    pub fn preview_policy(&self, toml: &str) -> Result<PolicyPreview> {
        self.call::<PreviewPolicy>((), &(), &toml.to_owned())
    }

    /// Starts nothing new on the daemon's machine, or starts again.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn drain(&self, draining: bool) -> Result<()> {
        let request = DrainRequest { draining };
        self.call::<Drain>((), &(), &request).map(drop)
    }

    /// Copies the database, while it is used, into a file of the daemon's folder `backups`.
    ///
    /// # Errors
    /// If it cannot be copied, or the daemon does not answer.
    pub fn backup(&self, request: &BackupRequest) -> Result<BackupAnswer> {
        let call = self.prepare::<Backup>((), &(), request)?;
        call.within(BACKUP).answer()
    }

    /// Skips it no longer. Whether it was skipped.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn resume(&self, request: &PauseRequest) -> Result<bool> {
        Ok(self.call::<Resume>((), &(), request)?.resumed)
    }

    /// All that is skipped.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn pauses(&self) -> Result<Vec<PauseView>> {
        Ok(self.call::<ListPauses>((), &(), &())?.pauses)
    }

    /// All schedules, by name.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn schedules(&self) -> Result<Vec<ScheduleView>> {
        Ok(self.call::<ListSchedules>((), &(), &())?.schedules)
    }

    /// All webhooks, without their secrets.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn webhooks(&self) -> Result<Vec<WebhookView>> {
        Ok(self.call::<ListWebhooks>((), &(), &())?.webhooks)
    }

    /// Forgets a webhook, named by its id.
    ///
    /// # Errors
    /// If there is none, or the daemon does not answer.
    pub fn delete_webhook(&self, id: impl Display) -> Result<()> {
        let path = paths::at(paths::WEBHOOK, id);
        self.prepare_at::<DeleteWebhook>(path).answer()
    }

    /// All tokens, without their secrets.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn tokens(&self) -> Result<Vec<TokenView>> {
        Ok(self.call::<ListTokens>((), &(), &())?.tokens)
    }

    /// Revokes a token, named by its id.
    ///
    /// # Errors
    /// If there is none, or the daemon does not answer.
    pub fn delete_token(&self, id: impl Display) -> Result<()> {
        let path = paths::at(paths::TOKEN, id);
        self.prepare_at::<DeleteToken>(path).answer()
    }
}
