//! HTTPS, with a certificate of one's own.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use jobtree_protocol::paths;
use jobtree_server::{ServeError, Server, TlsFiles};
use support::{Folder, Watchdog, options};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

#[test]
fn it_speaks_https_on_any_address() {
    let _watchdog = Watchdog::watching("https");
    let folder = Folder::new("tls");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = TlsFiles {
        certificate: folder.path().join("certificate.pem"),
        key: folder.path().join("key.pem"),
    };
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    let mut exposed = options(folder.path());
    exposed.listen = "0.0.0.0:0".parse().unwrap();
    exposed.tls = Some(files.clone());
    let server = Server::start(exposed.clone()).unwrap();
    assert!(server.url().starts_with("https://"), "{}", server.url());

    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let port = server.addr().port();
    let ask = |host: &str| {
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(config.clone()), name).unwrap();
        let mut stream =
            StreamOwned::new(connection, TcpStream::connect(("127.0.0.1", port)).unwrap());
        let path = paths::HEALTH;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // Ended by closing, which may come without a farewell.
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    assert!(ask("localhost").starts_with("HTTP/1.1 200"));
    assert!(ask("127.0.0.1").starts_with("HTTP/1.1 200"));
    assert!(ask("evil.example").starts_with("HTTP/1.1 421"));
    // Who speaks plainly gets no answer in plain.
    let mut plain = TcpStream::connect(("127.0.0.1", port)).unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    server.stop();

    std::fs::write(&files.key, "no key").unwrap();
    let refused = Server::start(exposed).unwrap_err();
    assert!(matches!(refused, ServeError::Tls(_)), "{refused}");
}
