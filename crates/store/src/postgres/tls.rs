//! How a server is reached: the connection string, and TLS as libpq does it.
//!
//! | `sslmode` | encrypted | certificate |
//! | --- | --- | --- |
//! | `disable` | no | |
//! | `prefer` (the default) | if the server can | not checked |
//! | `require` | yes | not checked; as `verify-ca` if there is a root certificate |
//! | `verify-ca` | yes | of an authority in the root certificate |
//! | `verify-full` | yes | and for the name of the host |
//!
//! The root certificate is the file that `sslrootcert` names, else `~/.postgresql/root.crt`. Certificates of clients are not
//! supported: `sslcert` and `sslkey` are refused by name.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
};
use tokio_rustls::{TlsConnector, client};

use crate::error::OpenError;

/// A server, and how to connect to it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) config: Config,
    tls: Connector,
}

/// What is checked of a certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Checks {
    Nothing,
    Authority,
    Name,
}

impl Target {
    /// Reads a connection string, and the root certificate if one is named.
    pub(super) fn of(text: &str) -> Result<Self, OpenError> {
        let refused = |message: String| OpenError::Database(message);
        let mut rest = text.to_owned();
        for name in ["sslcert", "sslkey"] {
            if take(&mut rest, name).is_some() {
                return Err(refused(format!(
                    "{name}: certificates of clients are not supported; use a password, in the file .pgpass"
                )));
            }
        }
        let mode = take(&mut rest, "sslmode");
        let root = take(&mut rest, "sslrootcert").map(PathBuf::from);
        let mut config: Config = rest
            .parse()
            .map_err(|error: Error| refused(error.to_string()))?;
        let (mode, checks) = match (mode.as_deref(), &root) {
            (Some("disable"), _) => (SslMode::Disable, Checks::Nothing),
            (None | Some("prefer" | "allow"), _) => (SslMode::Prefer, Checks::Nothing),
            (Some("require"), None) => (SslMode::Require, Checks::Nothing),
            (Some("require"), Some(_)) | (Some("verify-ca"), _) => {
                (SslMode::Require, Checks::Authority)
            }
            (Some("verify-full"), _) => (SslMode::Require, Checks::Name),
            (Some(other), _) => {
                return Err(refused(format!(
                    "sslmode: is {other:?}: write disable, prefer, require, verify-ca or verify-full"
                )));
            }
        };
        config.ssl_mode(mode);
        let tls = Connector::new(checks, root)?;
        Ok(Self { config, tls })
    }

    /// Connects.
    pub(super) async fn connect(&self) -> Result<(Client, Connection<Socket, Stream>), Error> {
        self.config.connect(self.tls.clone()).await
    }
}

/// Takes a parameter out of a connection string, which is a URL or `name=value` with spaces between.
fn take(text: &mut String, name: &str) -> Option<String> {
    let is_url = text.starts_with("postgres://") || text.starts_with("postgresql://");
    let (head, parameters, between) = match text.split_once('?') {
        Some((head, parameters)) if is_url => (format!("{head}?"), parameters.to_owned(), '&'),
        _ if is_url => return None,
        _ => (String::new(), text.clone(), ' '),
    };
    let (mut found, mut rest) = (None, Vec::new());
    for part in split(&parameters, between) {
        match part.split_once('=') {
            Some((key, value)) if key.trim() == name => {
                let value = value.trim().trim_matches('\'');
                found = Some(if is_url {
                    decoded(value)
                } else {
                    value.to_owned()
                });
            }
            _ => rest.push(part),
        }
    }
    *text = head + &rest.join(&between.to_string());
    found
}

/// Splits at a character that does not stand in quotes.
fn split(text: &str, at: char) -> Vec<String> {
    let (mut parts, mut is_quoted, mut is_escaped) = (vec![String::new()], false, false);
    for c in text.chars() {
        is_quoted ^= c == '\'' && !is_escaped && at == ' ';
        is_escaped = c == '\\' && !is_escaped;
        match parts.last_mut() {
            Some(part) if c != at || is_quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    parts
}

/// Decodes `%2F` and the like.
fn decoded(text: &str) -> String {
    let (bytes, mut out, mut place) = (text.as_bytes(), Vec::new(), 0);
    while place < bytes.len() {
        let code = text
            .get(place + 1..place + 3)
            .filter(|_| bytes[place] == b'%');
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                place += 3;
            }
            None => {
                out.push(bytes[place]);
                place += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn roots(file: Option<PathBuf>) -> Result<RootCertStore, OpenError> {
    let home =
        || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".postgresql/root.crt"));
    let file = file.or_else(home).unwrap_or_default();
    let failed = |why: String| {
        OpenError::Database(format!(
            "the root certificate {}: {why}; name its file with sslrootcert, or write sslmode=require",
            file.display()
        ))
    };
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(&file).map_err(|error| failed(error.to_string()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("it holds no certificate".to_owned()));
    }
    Ok(roots)
}

/// Makes TLS connections.
#[derive(Clone)]
pub(super) struct Connector(TlsConnector);

impl Connector {
    fn new(checks: Checks, root: Option<PathBuf>) -> Result<Self, OpenError> {
        let provider = Arc::new(ring::default_provider());
        let failed = |error: &dyn std::fmt::Display| OpenError::Database(format!("TLS: {error}"));
        let authority = match checks {
            Checks::Nothing => None,
            Checks::Authority | Checks::Name => {
                let roots = Arc::new(roots(root)?);
                let verifier =
                    WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider));
                Some(verifier.build().map_err(|error| failed(&error))?)
            }
        };
        let verifier = Verifier {
            authority,
            name: checks == Checks::Name,
            provider: Arc::clone(&provider),
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(&error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

/// Checks certificates as `sslmode` says.
#[derive(Debug)]
struct Verifier {
    /// Checks everything; none if nothing is checked.
    authority: Option<Arc<WebPkiServerVerifier>>,
    /// The name of the host counts, too.
    name: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authority) = &self.authority else {
            return Ok(ServerCertVerified::assertion());
        };
        let verified = authority.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is checked last, so all else was right.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if !self.name => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for Connector {
    type Stream = Stream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        // A socket of this machine has no name, and is not encrypted.
        let host = if host.is_empty() { "localhost" } else { host };
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        Ok(Handshake(self.0.clone(), name))
    }
}

/// A connection that is about to be encrypted.
pub(super) struct Handshake(TlsConnector, ServerName<'static>);

impl TlsConnect<Socket> for Handshake {
    type Stream = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let connecting = self.0.connect(self.1, socket);
        Box::pin(async move { connecting.await.map(|stream| Stream(Box::new(stream))) })
    }
}

/// An encrypted connection.
pub(super) struct Stream(Box<client::TlsStream<Socket>>);

impl tokio_postgres::tls::TlsStream for Stream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_taken_out_of_urls_and_of_names_with_values() {
        let mut url =
            "postgres://a@h/db?sslmode=verify-full&options=-c%20x&sslrootcert=%2Fa%20b".to_owned();
        assert_eq!(take(&mut url, "sslrootcert").as_deref(), Some("/a b"));
        assert_eq!(take(&mut url, "sslmode").as_deref(), Some("verify-full"));
        assert_eq!(take(&mut url, "sslmode"), None);
        assert_eq!(url, "postgres://a@h/db?options=-c%20x");
        let mut words = "host=h sslmode='require' options='-c a=sslmode'".to_owned();
        assert_eq!(take(&mut words, "sslmode").as_deref(), Some("require"));
        assert_eq!(words, "host=h options='-c a=sslmode'");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_name() {
        let refused = |text| Target::of(text).err().map(|error| error.to_string());
        let said = refused("host=h sslcert=mine.crt").unwrap_or_default();
        assert!(said.contains("sslcert"), "{said}");
        let said = refused("host=h sslmode=maybe").unwrap_or_default();
        assert!(said.contains("verify-full"), "{said}");
        let said = refused("host=h sslmode=verify-ca sslrootcert=/nowhere").unwrap_or_default();
        assert!(said.contains("/nowhere"), "{said}");
        assert!(Target::of("host=h sslmode=require").is_ok());
    }
}
