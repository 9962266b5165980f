//! One call over HTTP: the operation, how long it may take, whether it may be repeated; and what the answer says.
//!
//! A call may be repeated if doing it twice is the same as doing it once: it only looks, or it carries a key, an id or a
//! lease by which the daemon knows it again. Then a connection that breaks, and a daemon that is just starting, are no
//! errors until the client's patience is over.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use jobtree_protocol::operations::query::Writer;
use jobtree_protocol::operations::{
    AnswerBody, AnswerOf, BodyOf, Method, Operation, PathId, RequestBody,
};
use jobtree_protocol::{ApiError, ErrorCode, Problem};
use ureq::http::{Request, Response};
use ureq::{Body, Timeout};

use crate::client::Client;
use crate::error::ClientError;

/// No answer of a daemon is larger: pages and logs are bounded.
const LARGEST_ANSWER: u64 = 256 * 1024 * 1024;
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub(crate) type Result<T> = std::result::Result<T, ClientError>;

/// A call of an operation.
pub(crate) struct Call<'a, O> {
    client: &'a Client,
    path: String,
    query: String,
    body: Option<(&'static str, Vec<u8>)>,
    headers: Vec<(&'static str, String)>,
    timeout: Duration,
    repeats: bool,
    operation: PhantomData<O>,
}

impl Client {
    /// Calls an operation of the table: with the id of its path, its query and its body, each `()` if it has none. The
    /// other methods of the client are made of this one.
    ///
    /// ```no_run
    /// use jobtree_client::protocol::operations::{DecisionQuery, ListDecisions};
    ///
    /// # let client = jobtree_client::Client::new("http://127.0.0.1:7717")?;
    /// let query = DecisionQuery { limit: Some(5) };
    /// let last = client.call::<ListDecisions>((), &query, &())?;
    /// # Ok::<(), jobtree_client::ClientError>(())
    /// ```
    ///
    /// # Errors
    /// If the daemon refuses the call, or does not answer.
    pub fn call<O: Operation>(
        &self,
        id: O::Path,
        query: &O::Query,
        body: &BodyOf<O>,
    ) -> Result<AnswerOf<O>> {
        self.prepare::<O>(id, query, body)?.answer()
    }

    /// Prepares a call, of which more is to be said.
    pub(crate) fn prepare<O: Operation>(
        &self,
        id: O::Path,
        query: &O::Query,
        body: &BodyOf<O>,
    ) -> Result<Call<'_, O>> {
        let mut call = self.prepare_at(id.fill(O::INFO.path));
        call.query = Writer::text(query);
        if let Some(media_type) = O::Body::MEDIA_TYPE {
            let text = O::Body::encode(body).map_err(|error| {
                ClientError::Setup(format!("the request cannot be written as JSON: {error}"))
            })?;
            call.body = Some((media_type, text));
        }
        Ok(call)
    }

    /// Prepares a call without a query and a body, at a path that is filled already.
    pub(crate) fn prepare_at<O: Operation>(&self, path: String) -> Call<'_, O> {
        Call {
            client: self,
            path,
            query: String::new(),
            body: None,
            headers: Vec::new(),
            timeout: self.settings.timeout,
            repeats: O::INFO.idempotent,
            operation: PhantomData,
        }
    }
}

impl<O: Operation> Call<'_, O> {
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

    /// Doing it twice is the same as doing it once, or not, whatever the table says of the operation.
    pub(crate) fn repeated_if(mut self, repeats: bool) -> Self {
        self.repeats = repeats;
        self
    }

    /// Makes the call, and reads the answer.
    pub(crate) fn answer(self) -> Result<AnswerOf<O>> {
        let url = self.url();
        O::Answer::decode(self.bytes()?).map_err(|what| ClientError::Protocol { url, what })
    }

    /// Makes the call. Ignores what a success says more.
    pub(crate) fn done(self) -> Result<()> {
        self.bytes().map(drop)
    }

    fn bytes(self) -> Result<Vec<u8>> {
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
            if let Some(tell) = &self.client.settings.on_retry {
                tell(&error);
            }
            std::thread::sleep(wait);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn request(&self) -> Result<Request<Vec<u8>>> {
        let url = format!("{}{}{}", self.client.url(), self.path, self.query);
        let mut request = Request::builder().method(O::INFO.method.as_str()).uri(url);
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
        let ran = if matches!(O::INFO.method, Method::Get | Method::Delete) {
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
