//! A socket that others connect to, of either kind; and the rules about who may.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
#[cfg(unix)]
use std::os::fd::OwnedFd;

#[cfg(unix)]
use super::socket_file::SocketFile;
use super::stream::Stream;

pub(super) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(SocketFile),
}

impl Listener {
    /// Listens on an address, which must be the machine's own unless `anywhere`.
    pub(super) fn tcp(address: impl ToSocketAddrs, anywhere: bool) -> io::Result<Listener> {
        let addresses: Vec<SocketAddr> = address.to_socket_addrs()?.collect();
        if let Some(other) = addresses.iter().find(|it| !it.ip().is_loopback())
            && !anywhere
        {
            let what = format!(
                "{other} can be reached by others, and nothing is encrypted or signed; listen on a loopback address, or \
                 say `allow_non_loopback()`"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Ok(Listener::Tcp(TcpListener::bind(&*addresses)?))
    }

    pub(super) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Listener::Tcp(listener) => listener.local_addr().ok(),
            #[cfg(unix)]
            Listener::Unix(_) => None,
        }
    }

    /// Waits for the next one to connect.
    pub(super) fn accept(&self) -> io::Result<Stream> {
        match self {
            Listener::Tcp(listener) => Stream::of_tcp(listener.accept()?.0),
            #[cfg(unix)]
            Listener::Unix(file) => Ok(Stream::Unix(file.listener().accept()?.0)),
        }
    }

    /// Has [`accept`](Listener::accept) return, with an error. Where the system cannot end a socket that listens, somebody
    /// connects, and the one who accepts sees that it is over.
    pub(super) fn end(&self) {
        match self {
            Listener::Tcp(listener) => {
                if !end_tcp(listener)
                    && let Ok(address) = listener.local_addr()
                {
                    let _ = TcpStream::connect(address);
                }
            }
            #[cfg(unix)]
            Listener::Unix(file) => file.end(),
        }
    }
}

/// A socket is a socket: the one that listens can be ended as one that is connected.
#[cfg(unix)]
fn end_tcp(listener: &TcpListener) -> bool {
    listener.try_clone().is_ok_and(|same| {
        let as_stream = TcpStream::from(OwnedFd::from(same));
        as_stream.shutdown(Shutdown::Both).is_ok()
    })
}

#[cfg(not(unix))]
fn end_tcp(_: &TcpListener) -> bool {
    let _ = Shutdown::Both;
    false
}
