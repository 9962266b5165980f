//! Connections: accepted up to a number, each with limits on its heads and times, until the server stops.

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jobtree_protocol::{ApiError, ErrorCode, Problem};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::daemon::Daemon;
use crate::error::ServeError;
use crate::front::Front;
use crate::options::{HttpLimits, TlsFiles};
use crate::stall::Unstalled;

/// How long to wait when the system has no place for another connection.
const BREATH: Duration = Duration::from_millis(50);

/// All that a connection needs.
pub(crate) struct Door {
    front: Front,
    daemon: Arc<Daemon>,
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
}

impl Door {
    pub(crate) fn new(daemon: Arc<Daemon>, tls: Option<TlsAcceptor>) -> Self {
        let HttpLimits {
            connections,
            head_timeout,
            headers,
            head_bytes,
            ..
        } = *daemon.limits();
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_headers(headers)
            // Not `pipeline_flush`: with it nothing is sent while requests keep coming, and answers pile up.
            .max_buf_size(head_bytes.max(8192));
        Self {
            front: Front::new(Arc::clone(&daemon)),
            http,
            tls,
            places: Arc::new(Semaphore::new(connections.clamp(1, Semaphore::MAX_PERMITS))),
            daemon,
        }
    }

    /// Accepts until the daemon stops; ends when all connections have ended, or their time is over.
    pub(crate) async fn serve(self: Arc<Self>, listener: TcpListener) {
        let all = self.places.available_permits();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.daemon.stopped() => break,
            };
            match accepted {
                Ok((stream, _)) => self.welcome(stream),
                Err(error) if is_of_the_peer(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "no connection can be accepted now");
                    tokio::time::sleep(BREATH).await;
                }
            }
        }
        drop(listener);
        let all = u32::try_from(all).unwrap_or(u32::MAX);
        let ended = self.places.acquire_many(all);
        let limit = self.daemon.limits().stop_timeout;
        if tokio::time::timeout(limit, ended).await.is_err() {
            tracing::warn!("requests were under way when the time to stop was over");
        }
    }

    fn welcome(self: &Arc<Self>, mut stream: TcpStream) {
        // Answers are small and awaited: none waits for another to fill a packet.
        let _ = stream.set_nodelay(true);
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            // Never waited for: whoever fills all places must not keep us here.
            if self.tls.is_none() {
                tokio::spawn(async move {
                    let _ = tokio::time::timeout(BREATH, stream.write_all(&full())).await;
                });
            }
            return;
        };
        tokio::spawn(Arc::clone(self).converse(stream, place));
    }

    async fn converse(self: Arc<Self>, stream: TcpStream, place: OwnedSemaphorePermit) {
        let limits = self.daemon.limits();
        let stream = Unstalled::new(stream, limits.write_timeout);
        match &self.tls {
            None => self.speak(stream).await,
            Some(tls) => {
                let shaken = tokio::time::timeout(limits.head_timeout, tls.accept(stream));
                match shaken.await {
                    Ok(Ok(stream)) => self.speak(stream).await,
                    Ok(Err(error)) => tracing::debug!(%error, "no TLS was spoken"),
                    Err(_) => tracing::debug!("TLS was not spoken in time"),
                }
            }
        }
        drop(place);
    }

    async fn speak(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
        let answer =
            service_fn(|request| async { Ok::<_, Infallible>(self.front.answer(request).await) });
        let connection = self.http.serve_connection(TokioIo::new(stream), answer);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.daemon.stopped() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }
}

/// Said to who comes when all places are taken.
fn full() -> Vec<u8> {
    let message = "too many connections: close some, or come back in a moment";
    let error = ApiError::new(ErrorCode::TooMany, message);
    let problem = Problem::with_status(503, error);
    let body = serde_json::to_string(&problem).expect("a problem is JSON");
    let (kind, length) = (Problem::MEDIA_TYPE, body.len());
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: {kind}\r\nretry-after: 1\r\n\
         connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

/// The one who came went away again; others can still come.
fn is_of_the_peer(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Reads a certificate and its key.
pub(crate) fn tls(files: &TlsFiles) -> Result<TlsAcceptor, ServeError> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        ServeError::Tls(format!("{}: {why}", path.display()))
    };
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| failed(&files.certificate, &error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failed(&files.key, &error))?;
    // Named, since what is linked beside it must not decide.
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(&files.certificate, &error))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| failed(&files.certificate, &error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
