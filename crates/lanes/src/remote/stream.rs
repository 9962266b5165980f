//! One socket, of either kind. It is shared by the thread that reads, the one that writes, and whoever ends both.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
#[cfg(unix)]
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(super) enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// The same call on whichever socket it is.
macro_rules! either {
    ($stream:expr, $socket:ident => $call:expr) => {
        match $stream {
            Stream::Tcp($socket) => $call,
            #[cfg(unix)]
            Stream::Unix($socket) => $call,
        }
    };
}

impl Stream {
    /// Small messages go at once.
    pub(super) fn of_tcp(socket: TcpStream) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        Ok(Stream::Tcp(socket))
    }

    /// How long one call may block. A limit of nothing is none for the system, so it is a moment at least.
    pub(super) fn set_limits(&self, read: Duration, write: Duration) -> io::Result<()> {
        let (read, write) = (read.max(MOMENT), write.max(MOMENT));
        either!(self, socket => {
            socket.set_read_timeout(Some(read))?;
            socket.set_write_timeout(Some(write))
        })
    }

    /// Ends it, now: whoever is blocked in it returns.
    pub(super) fn end(&self) {
        // It may have ended by itself.
        let _ = either!(self, socket => socket.shutdown(Shutdown::Both));
    }

    /// Nothing more will be written.
    pub(super) fn end_writing(&self) {
        let _ = either!(self, socket => socket.shutdown(Shutdown::Write));
    }
}

const MOMENT: Duration = Duration::from_millis(1);

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        either!(self, socket => (&*socket).read(into))
    }
}

impl Write for &Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        either!(self, socket => (&*socket).write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        either!(self, socket => (&*socket).flush())
    }
}
