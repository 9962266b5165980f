//! One call over HTTP: what is asked, how long it may take, whether it may be repeated; and what the answer says.
//!
//! A call may be repeated if doing it twice is the same as doing it once: it only looks, or it carries a key, an id or a
//! lease by which the daemon knows it again. Then a connection that breaks, and a daemon that is just starting, are no
//! errors until the client's patience is over.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::time::{Duration, Instant};

use jobtree_protocol::{ApiError, ErrorCode, Problem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::{Method, Request, Response};
use ureq::{Body, Timeout};

use crate::client::Client;
use crate::error::ClientError;
use crate::query::Query;

/// No answer of a daemon is larger: pages and logs are bounded.
const LARGEST_ANSWER: u64 = 256 * 1024 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Result<T> = std::result::Result<T, ClientError>;

pub(crate) struct Call<'a> {
    client: &'a Client,
    method: Method,
    path: String,
    query: Query,
    body: Option<(&'static str, Vec<u8>)>,
    headers: Vec<(&'static str, String)>,
    timeout: Duration,
    repeats: bool,
}

impl Client {
    /// A look at something: may be repeated.
    pub(crate) fn get(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::GET, path).repeated()
    }

    pub(crate) fn post(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::POST, path)
    }

    /// Both times the same comes of it.
    pub(crate) fn put(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::PUT, path).repeated()
    }

    pub(crate) fn delete(&self, path: impl Into<String>) -> Call<'_> {
        self.call(Method::DELETE, path)
    }

    fn call(&self, method: Method, path: impl Into<String>) -> Call<'_> {
        Call {
            client: self,
            method,
            path: path.into(),
            query: Query::default(),
            body: None,
            headers: Vec::new(),
            timeout: self.settings.timeout,
            repeats: false,
        }
    }
}

impl Call<'_> {
    pub(crate) fn query(mut self, query: Query) -> Self {
        self.query = query;
        self
    }

    pub(crate) fn json(mut self, body: &impl Serialize) -> Result<Self> {
        let text = serde_json::to_vec(body).map_err(|error| {
            ClientError::Setup(format!("the request cannot be written as JSON: {error}"))
        })?;
        self.body = Some(("application/json", text));
        Ok(self)
    }

    pub(crate) fn toml(mut self, text: &str) -> Self {
        self.body = Some(("application/toml", text.as_bytes().to_vec()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The daemon is asked to wait so long, which is not its slowness.
    pub(crate) fn waits(mut self, wait: Duration) -> Self {
        self.timeout = self.timeout.saturating_add(wait);
        self
    }

    /// All of it may take so long.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Doing it twice is the same as doing it once.
    pub(crate) fn repeated(mut self) -> Self {
        self.repeats = true;
        self
    }

    pub(crate) fn repeated_if(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
        self
    }

    /// Makes the call, and reads the answer as JSON.
    pub(crate) fn read<T: DeserializeOwned>(self) -> Result<T> {
        let url = self.url();
        let text = self.bytes()?;
        serde_json::from_slice(&text).map_err(|error| ClientError::Protocol {
            url,
            what: format!("its answer cannot be read: {error}"),
        })
    }

    /// Makes the call. What a success says more is not looked at.
    pub(crate) fn done(self) -> Result<()> {
        self.bytes().map(drop)
    }

    /// Makes the call, and reads the answer as text.
    pub(crate) fn text(self) -> Result<String> {
        let url = self.url();
        String::from_utf8(self.bytes()?).map_err(|_| ClientError::Protocol {
            url,
            what: "its answer is not UTF-8".to_owned(),
        })
    }

    /// Makes the call, and reads the answer.
    pub(crate) fn bytes(self) -> Result<Vec<u8>> {
        self.with_patience(|call| {
            let mut response = call.once(Some(call.timeout))?;
            let status = response.status().as_u16();
            let body = response.body_mut().with_config().limit(LARGEST_ANSWER);
            let body = body.read_to_vec();
            let body = body.map_err(|error| call.broken(error))?;
            match status {
                200..=299 => Ok(body),
                _ => Err(call.refused(status, &body)),
            }
        })
    }

    /// Makes the call, once, and leaves the answer to be read as it comes. Only the time up to its first byte is
    /// bounded; between two bytes no more than `silence` may pass.
    pub(crate) fn stream(self, silence: Duration) -> Result<Response<Body>> {
        let request = self.request()?.map(drop);
        let configured = self.client.agent.configure_request(request);
        let request = configured
            .timeout_recv_response(Some(self.timeout))
            .timeout_per_read(Some(silence))
            .build();
        let ran = self.client.agent.run(request);
        let mut response = ran.map_err(|error| self.broken(error))?;
        let status = response.status().as_u16();
        if (200..=299).contains(&status) {
            return Ok(response);
        }
        let body = response.body_mut().read_to_vec();
        let body = body.map_err(|error| self.broken(error))?;
        Err(self.refused(status, &body))
    }

    fn url(&self) -> String {
        self.client.url().to_owned()
    }

    fn with_patience<T>(&self, attempt: impl Fn(&Self) -> Result<T>) -> Result<T> {
        let begun = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match attempt(self) {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let again = match &error {
                ClientError::Unreachable { .. } => true,
                ClientError::Refused { error, .. } => error.code == ErrorCode::Unavailable,
                _ => false,
            };
            let wait = jittered(pause);
            let over = begun.elapsed() + wait > self.client.settings.patience;
            if !self.repeats || !again || over {
                return Err(error);
            }
            std::thread::sleep(wait);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn request(&self) -> Result<Request<Vec<u8>>> {
        let url = format!("{}{}{}", self.client.url(), self.path, self.query.as_str());
        let mut request = Request::builder().method(self.method.clone()).uri(url);
        if let Some(bearer) = &self.client.settings.bearer {
            request = request.header("Authorization", bearer);
        }
        if let Some((kind, _)) = &self.body {
            request = request.header("Content-Type", *kind);
        }
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let body = self.body.as_ref().map(|(_, body)| body.clone());
        let request = request.body(body.unwrap_or_default());
        request.map_err(|error| ClientError::Setup(format!("the call cannot be written: {error}")))
    }

    fn once(&self, limit: Option<Duration>) -> Result<Response<Body>> {
        let request = self.request()?;
        let agent = &self.client.agent;
        let ran = if self.method == Method::GET || self.method == Method::DELETE {
            let bare = request.map(drop);
            let bare = agent.configure_request(bare).timeout_global(limit);
            agent.run(bare.build())
        } else {
            let full = agent.configure_request(request).timeout_global(limit);
            agent.run(full.build())
        };
        ran.map_err(|error| self.broken(error))
    }

    /// There is no answer, or none to its end.
    fn broken(&self, error: ureq::Error) -> ClientError {
        let url = self.url();
        match error {
            ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve) => ClientError::Unreachable {
                url,
                source: "the connection took too long".into(),
            },
            ureq::Error::Timeout(_) => ClientError::TimedOut { url },
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
                ClientError::TimedOut { url }
            }
            // What TLS takes for wrong comes as data that are.
            ureq::Error::Io(error)
                if error.kind() == io::ErrorKind::InvalidData && url.starts_with("https:") =>
            {
                ClientError::Untrusted {
                    url,
                    source: Box::new(error),
                }
            }
            error @ (ureq::Error::Tls(_) | ureq::Error::Rustls(_)) => ClientError::Untrusted {
                url,
                source: Box::new(error),
            },
            ureq::Error::Io(error) => ClientError::Unreachable {
                url,
                source: Box::new(error),
            },
            error @ (ureq::Error::HostNotFound | ureq::Error::ConnectionFailed) => {
                ClientError::Unreachable {
                    url,
                    source: Box::new(error),
                }
            }
            ureq::Error::Protocol(error) if url.starts_with("http:") => ClientError::Protocol {
                url,
                what: format!("it speaks no HTTP ({error}); if it speaks TLS, write https://"),
            },
            other => ClientError::Protocol {
                url,
                what: other.to_string(),
            },
        }
    }

    /// There is an answer, and it is no.
    fn refused(&self, status: u16, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => ClientError::Refused {
                status,
                error: ApiError::from(problem),
            },
            Err(_) => ClientError::Protocol {
                url: self.url(),
                what: format!("it answers {status}, and does not say why"),
            },
        }
    }
}

/// Half of it and up to the other half: those who lost the same daemon do not come back at the same moment.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = RandomState::new().hash_one(0_u8) % 1000;
    let share = u32::try_from(random).unwrap_or(0);
    pause / 2 + pause * share / 2000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_half_to_all_of_it() {
        let pause = Duration::from_millis(800);
        let pauses: Vec<_> = (0..64).map(|_| jittered(pause)).collect();
        assert!(pauses.iter().all(|one| (pause / 2..=pause).contains(one)));
        assert!(pauses.iter().any(|one| *one != pauses[0]));
    }
}
