//! The client: where the daemon is, who one is, and the connections there are.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::tls::RootCerts;

use crate::builder::{ClientBuilder, OnRetry};
use crate::error::ClientError;

/// A client of one daemon. Clones share their connections; see the [crate].
#[derive(Clone)]
pub struct Client {
    pub(crate) settings: Arc<Settings>,
    pub(crate) agent: Agent,
}

pub(crate) struct Settings {
    pub(crate) url: String,
    /// The whole header, so that it is put together once.
    pub(crate) bearer: Option<String>,
    pub(crate) timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) patience: Duration,
    pub(crate) on_retry: Option<OnRetry>,
    pub(crate) roots: RootCerts,
}

impl Client {
    /// A client of the daemon at this address, without a token. It connects with its first call.
    ///
    /// # Errors
    /// If the address is none.
    pub fn new(url: impl Into<String>) -> Result<Client, ClientError> {
        Client::builder(url).build()
    }

    /// A client of the daemon at this address, of which more is to be said.
    pub fn builder(url: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(url)
    }

    pub(crate) fn of(settings: Arc<Settings>) -> Client {
        let agent = settings.agent();
        Client { settings, agent }
    }

    /// The same daemon over connections of its own.
    pub(crate) fn apart(&self) -> Client {
        Client::of(Arc::clone(&self.settings))
    }

    /// Where the daemon is.
    pub fn url(&self) -> &str {
        &self.settings.url
    }

    /// Ends all calls of this client and its clones that are under way, and refuses later ones.
    pub(crate) fn hang_up(&self) {
        self.agent.clone().shutdown();
    }
}

impl fmt::Debug for Client {
    /// Without the token: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("url", &self.settings.url)
            .finish_non_exhaustive()
    }
}
