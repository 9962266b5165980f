//! What operators do: pauses, draining, signals, policy, backup, webhooks, tokens.

use std::fmt::Display;
use std::time::Duration;

use jobtree_protocol::{
    BackupAnswer, BackupRequest, DrainRequest, NewToken, PauseList, PauseRequest, PauseView,
    PolicyVerdict, ResumeAnswer, SignalsRequest, TokenList, TokenRequest, TokenView, WebhookList,
    WebhookRequest, WebhookView, paths,
};

use crate::call::Result;
use crate::client::Client;

/// Copying a large database takes a while.
const BACKUP: Duration = Duration::from_secs(3600);

impl Client {
    /// Tells what the host measured of itself.
    ///
    /// # Errors
    /// If it is refused, or the daemon does not answer.
    pub fn signals(&self, request: &SignalsRequest) -> Result<()> {
        self.post(paths::SIGNALS).json(request)?.repeated().done()
    }

    /// The policy in force, as TOML.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn policy(&self) -> Result<String> {
        self.get(paths::POLICY).text()
    }

    /// Replaces the policy by one written as TOML.
    ///
    /// # Errors
    /// If it is refused, with a message for each field; or the daemon does not answer.
    pub fn put_policy(&self, toml: &str) -> Result<()> {
        self.put(paths::POLICY).toml(toml).done()
    }

    /// Whether this TOML is a policy.
    ///
    /// # Errors
    /// If it is none, with a message for each field; or the daemon does not answer.
    pub fn validate_policy(&self, toml: &str) -> Result<()> {
        let call = self.post(paths::POLICY_VALIDATE).toml(toml);
        call.repeated().read::<PolicyVerdict>().map(drop)
    }

    /// Starts nothing new on the daemon's machine, or starts again.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn drain(&self, draining: bool) -> Result<()> {
        let call = self.post(paths::DRAIN).json(&DrainRequest { draining })?;
        call.repeated().done()
    }

    /// Copies the database, while it is used, into a file of the daemon's folder `backups`.
    ///
    /// # Errors
    /// If it cannot be copied, or the daemon does not answer.
    pub fn backup(&self, request: &BackupRequest) -> Result<BackupAnswer> {
        self.post(paths::BACKUP)
            .json(request)?
            .within(BACKUP)
            .read()
    }

    /// Takes a look now, whatever the timers say.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn kick(&self) -> Result<()> {
        self.post(paths::KICK).repeated().done()
    }

    /// Skips an addon, or one of its types, until it is resumed.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn pause(&self, request: &PauseRequest) -> Result<()> {
        self.post(paths::PAUSE).json(request)?.repeated().done()
    }

    /// Skips it no longer. Whether it was skipped.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn resume(&self, request: &PauseRequest) -> Result<bool> {
        let answer: ResumeAnswer = self.post(paths::RESUME).json(request)?.read()?;
        Ok(answer.resumed)
    }

    /// All that is skipped.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn pauses(&self) -> Result<Vec<PauseView>> {
        let all: PauseList = self.get(paths::PAUSES).read()?;
        Ok(all.pauses)
    }

    /// All webhooks, without their secrets.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn webhooks(&self) -> Result<Vec<WebhookView>> {
        let all: WebhookList = self.get(paths::WEBHOOKS).read()?;
        Ok(all.webhooks)
    }

    /// Adds a webhook.
    ///
    /// # Errors
    /// If it is refused, or the daemon does not answer.
    pub fn add_webhook(&self, request: &WebhookRequest) -> Result<WebhookView> {
        self.post(paths::WEBHOOKS).json(request)?.read()
    }

    /// Forgets a webhook, named by its id.
    ///
    /// # Errors
    /// If there is none, or the daemon does not answer.
    pub fn delete_webhook(&self, id: impl Display) -> Result<()> {
        self.delete(paths::at(paths::WEBHOOK, id)).done()
    }

    /// All tokens, without their secrets.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn tokens(&self) -> Result<Vec<TokenView>> {
        let all: TokenList = self.get(paths::TOKENS).read()?;
        Ok(all.tokens)
    }

    /// Makes a token. Its secret is told this once.
    ///
    /// # Errors
    /// If it is refused, or the daemon does not answer.
    pub fn add_token(&self, request: &TokenRequest) -> Result<NewToken> {
        self.post(paths::TOKENS).json(request)?.read()
    }

    /// Revokes a token, named by its id.
    ///
    /// # Errors
    /// If there is none, or the daemon does not answer.
    pub fn delete_token(&self, id: impl Display) -> Result<()> {
        self.delete(paths::at(paths::TOKEN, id)).done()
    }
}
