//! How a connection is made.

use std::io;
use std::net::{SocketAddr, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
#[cfg(unix)]
use std::path::PathBuf;
use std::time::Duration;

use super::stream::Stream;

/// Where the peer is.
#[derive(Clone, Debug)]
pub(super) enum Dial {
    Tcp(SocketAddr),
    #[cfg(unix)]
    Unix(PathBuf),
}

impl Dial {
    /// Connects. For a Unix socket the limit does not count: the system connects at once, unless the peer accepts nobody
    /// and its backlog is full.
    pub(super) fn connect(&self, limit: Duration) -> io::Result<Stream> {
        match self {
            Dial::Tcp(address) => Stream::of_tcp(TcpStream::connect_timeout(address, limit)?),
            #[cfg(unix)]
            Dial::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
        }
    }
}
