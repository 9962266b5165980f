//! What is said about a client before its first call.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::http::Uri;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::client::{Client, Settings};
use crate::error::ClientError;

/// What is said about a client before its first call.
#[derive(Clone)]
#[must_use = "there is no client before `build`"]
pub struct ClientBuilder {
    url: String,
    token: Option<String>,
    ca_file: Option<PathBuf>,
    timeout: Duration,
    connect_timeout: Duration,
    patience: Duration,
    on_retry: Option<OnRetry>,
}

/// Called before a call is repeated, with the reason.
pub(crate) type OnRetry = Arc<dyn Fn(&ClientError) + Send + Sync>;

impl ClientBuilder {
    pub(crate) fn new(url: impl Into<String>) -> Self {
        ClientBuilder {
            url: url.into(),
            token: None,
            ca_file: None,
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(5),
            patience: Duration::from_secs(3),
            on_retry: None,
        }
    }

    /// Who one is: what the daemon's token file or `jobtree token new` gave.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// The certificates (PEM) that the daemon's own must be signed by, for `https://`; those of the public web if
    /// nothing is said.
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// How long one call may take, beyond what it asks the daemon to wait; 30 seconds if nothing is said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How long a connection may take to be there; 5 seconds if nothing is said.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// For how long a call that may be repeated safely is repeated when the daemon cannot be reached; 3 seconds if
    /// nothing is said. With zero, each call is made once.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Calls this each time before a call is repeated, with what the last attempt failed with: somebody may wait in front
    /// of the program, and should know for what.
    pub fn on_retry(mut self, tell: impl Fn(&ClientError) + Send + Sync + 'static) -> Self {
        self.on_retry = Some(Arc::new(tell));
        self
    }

    /// The client. It connects with its first call.
    ///
    /// # Errors
    /// If the address is none, the token holds what no header can, or the certificates cannot be read.
    pub fn build(self) -> Result<Client, ClientError> {
        let url = checked(&self.url)?;
        if let Some(token) = &self.token
            && (token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()))
        {
            let wrong = "the token is empty or holds what no header can: copy it again, without spaces or line breaks";
            return Err(ClientError::Setup(wrong.to_owned()));
        }
        let roots = match &self.ca_file {
            Some(path) => certificates(path)?,
            None => RootCerts::WebPki,
        };
        let settings = Settings {
            url,
            bearer: self.token.map(|token| format!("Bearer {token}")),
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            patience: self.patience,
            on_retry: self.on_retry,
            roots,
        };
        Ok(Client::of(Arc::new(settings)))
    }
}

impl fmt::Debug for ClientBuilder {
    /// Without the token: it must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("url", &self.url)
            .field("ca_file", &self.ca_file)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The address without what would stand in the way of a path.
fn checked(url: &str) -> Result<String, ClientError> {
    let wrong = |what: &str| {
        let example = "write it like http://127.0.0.1:7717";
        Err(ClientError::Setup(format!(
            "{url:?} is no address of a daemon, {what}: {example}"
        )))
    };
    let Ok(uri) = url.parse::<Uri>() else {
        return wrong("it cannot be read");
    };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return wrong("it does not begin with http:// or https://");
    }
    if uri
        .authority()
        .is_none_or(|place| place.as_str().contains('@'))
    {
        return wrong("a host without a user is needed");
    }
    if uri.query().is_some() || !matches!(uri.path(), "" | "/") {
        return wrong("it goes on behind the host");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

fn certificates(path: &PathBuf) -> Result<RootCerts, ClientError> {
    let setup = |what: String| ClientError::Setup(format!("{}: {what}", path.display()));
    let text = std::fs::read(path).map_err(|error| setup(error.to_string()))?;
    let mut found = Vec::new();
    for item in parse_pem(&text) {
        if let PemItem::Certificate(certificate) = item.map_err(|error| setup(error.to_string()))? {
            found.push(certificate);
        }
    }
    if found.is_empty() {
        return Err(setup("holds no certificate: give a PEM file".to_owned()));
    }
    Ok(RootCerts::new_with_certs(&found))
}

impl Settings {
    /// Connections of their own: to be cut without cutting others'.
    pub(crate) fn agent(&self) -> Agent {
        let tls = TlsConfig::builder().root_certs(self.roots.clone()).build();
        Agent::config_builder()
            .tls_config(tls)
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            // A daemon is on this machine, or is named by its own address.
            .proxy(None)
            .user_agent(concat!("jobtree/", env!("CARGO_PKG_VERSION")))
            .max_idle_connections(64)
            .max_idle_connections_per_host(64)
            .timeout_connect(Some(self.connect_timeout))
            .timeout_resolve(Some(self.connect_timeout))
            .build()
            .new_agent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: ClientBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn an_address_is_checked_before_the_first_call() {
        for wrong in [
            "",
            "127.0.0.1:7717",
            "ftp://host",
            "http://host/path",
            "http://me@host",
        ] {
            let told = refused(ClientBuilder::new(wrong));
            assert!(told.contains("write it like"), "{wrong}: {told}");
        }
        let client = ClientBuilder::new("https://host:1/").build().unwrap();
        assert_eq!(client.url(), "https://host:1");
    }

    #[test]
    fn a_token_that_no_header_can_hold_is_refused_and_never_shown() {
        let builder = ClientBuilder::new("http://host").token("se cret\n");
        assert!(!format!("{builder:?}").contains("cret"));
        assert!(refused(builder).contains("copy it again"));
        let client = ClientBuilder::new("http://host").token("secret").build();
        assert!(!format!("{:?}", client.unwrap()).contains("secret"));
    }

    #[test]
    fn a_file_without_certificates_is_refused() {
        let builder = ClientBuilder::new("https://host").ca_file("/dev/null");
        assert!(refused(builder).contains("no certificate"));
        let builder = ClientBuilder::new("https://host").ca_file("/nowhere/ca.pem");
        assert!(refused(builder).contains("/nowhere/ca.pem"));
    }
}
