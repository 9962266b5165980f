//! A Unix socket in the file system: only its owner may connect, and nothing else is ever removed for it.
//!
//! The socket is bound in a directory that nobody else can enter, gets its permissions there, and is then renamed to where it
//! belongs. So there is no moment in which others could connect, and a stale socket is replaced in one step.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// See the module's head. The file goes when this is dropped, if it is still the same.
pub(super) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is: device and number.
    file: (u64, u64),
}

impl SocketFile {
    /// Listens at `path`. A socket there that nobody listens on any more is replaced.
    pub(super) fn bind(path: &Path) -> io::Result<SocketFile> {
        make_room(path)?;
        let hidden = hidden_directory(path)?;
        let bound = bind_in(&hidden, path);
        // Empty by now, if all went well.
        let _ = fs::remove_file(hidden.join(NAME));
        let _ = fs::remove_dir(&hidden);
        bound
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Has whoever accepts return.
    pub(super) fn end(&self) {
        let is_ended = self.listener.try_clone().is_ok_and(|same| {
            let as_stream = UnixStream::from(OwnedFd::from(same));
            as_stream.shutdown(Shutdown::Both).is_ok()
        });
        if !is_ended {
            let _ = UnixStream::connect(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let same =
            fs::symlink_metadata(&self.path).is_ok_and(|it| (it.dev(), it.ino()) == self.file);
        if same {
            let _ = fs::remove_file(&self.path);
        }
    }
}

const NAME: &str = "s";

fn refused(kind: ErrorKind, path: &Path, why: &str) -> io::Error {
    io::Error::new(kind, format!("{}: {why}", path.display()))
}

/// Sees that what is at `path` may go.
fn make_room(path: &Path) -> io::Result<()> {
    let there = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    if !there.file_type().is_socket() {
        let why = "is there and no socket; remove it yourself, or choose another path";
        return Err(refused(ErrorKind::AlreadyExists, path, why));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            let why = "somebody listens there; end that server, or choose another path";
            Err(refused(ErrorKind::AddrInUse, path, why))
        }
    }
}

/// A new directory beside `path` with a short name, since paths of sockets are short.
fn hidden_directory(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!(".j{:x}-{number:x}", std::process::id());
        let directory = parent.join(name);
        match DirBuilder::new().mode(0o700).create(&directory) {
            Ok(()) => return Ok(directory),
            // Of a process that is no more.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

fn bind_in(hidden: &Path, path: &Path) -> io::Result<SocketFile> {
    let first = hidden.join(NAME);
    let listener = UnixListener::bind(&first)?;
    fs::set_permissions(&first, Permissions::from_mode(0o600))?;
    let metadata = fs::symlink_metadata(&first)?;
    fs::rename(&first, path)?;
    Ok(SocketFile {
        listener,
        path: path.to_owned(),
        file: (metadata.dev(), metadata.ino()),
    })
}
