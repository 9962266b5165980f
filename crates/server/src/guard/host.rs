//! Names that this server is called by.
//!
//! A page of somebody else's can make a browser resolve that page's own name to this machine, and then read our answers
//! as its own (DNS rebinding). Its requests still carry that name: so every request's `Host` must be one that we know.
//! An address in place of a name cannot be rebound.

use std::net::{IpAddr, SocketAddr};

use axum::http::header::HOST;
use axum::http::request::Parts;
use jobtree_protocol::ErrorCode;

use crate::problem::{Answered, Refusal};

/// The names.
#[derive(Debug)]
pub(crate) struct Hosts {
    names: Vec<String>,
    /// It listens on all addresses of this machine, which come and go.
    any_address: bool,
}

impl Hosts {
    pub(crate) fn new(listen: SocketAddr, allowed: &[String]) -> Self {
        let mut names: Vec<String> = ["localhost", "127.0.0.1", "::1"].map(String::from).into();
        names.push(listen.ip().to_string());
        let own = allowed.iter().map(|name| bare(name).to_ascii_lowercase());
        names.extend(own);
        Self {
            names,
            any_address: listen.ip().is_unspecified(),
        }
    }

    /// The request is for one of them.
    pub(crate) fn check(&self, parts: &Parts) -> Answered<()> {
        let mut given = parts.headers.get_all(HOST).iter();
        let host = given.next().and_then(|host| host.to_str().ok());
        let (Some(host), None) = (host, given.next()) else {
            return Err(Refusal::malformed(
                "the request needs exactly one Host header",
            ));
        };
        let asked = parts.uri.authority().map(|authority| authority.as_str());
        if self.know(host) && asked.is_none_or(|asked| self.know(asked)) {
            return Ok(());
        }
        Err(Refusal::with_status(
            421,
            ErrorCode::Forbidden,
            "this server is not called that: use its address, or allow the name when starting it",
        ))
    }

    /// Whether `host` or `host:port` is one of them. The port does not matter: it may have been forwarded.
    pub(crate) fn know(&self, host: &str) -> bool {
        let name = bare(without_port(host));
        let listed = |known: &String| known.eq_ignore_ascii_case(name);
        self.names.iter().any(listed) || (self.any_address && name.parse::<IpAddr>().is_ok())
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) && (name.ends_with(']') || !name.contains(':')) => name,
        _ => host,
    }
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Without the brackets of an address and without the dot at the end of a name.
fn bare(host: &str) -> &str {
    let inner = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inner.unwrap_or_else(|| host.strip_suffix('.').unwrap_or(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_known_with_and_without_a_port() {
        let hosts = Hosts::new(
            "127.0.0.1:7717".parse().unwrap(),
            &["queue.example".to_owned()],
        );
        for known in [
            "localhost",
            "LOCALHOST:7717",
            "127.0.0.1:1",
            "[::1]:7717",
            "queue.example.",
        ] {
            assert!(hosts.know(known), "{known}");
        }
        let others = [
            "",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example:7717",
            "10.0.0.1",
            "localhost:port",
            "user@localhost",
        ];
        for unknown in others {
            assert!(!hosts.know(unknown), "{unknown}");
        }
        let everywhere = Hosts::new("0.0.0.0:7717".parse().unwrap(), &[]);
        assert!(everywhere.know("10.0.0.1:7717"));
        assert!(!everywhere.know("evil.example"));
    }
}
