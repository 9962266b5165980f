//! The file with the admin's token, made at the first start.
//!
//! Protocol. The token is written under another name, in a file that was new and closed to others from its first moment,
//! and synced; then it gets its name by a link, which never replaces a file. So a reader finds either no file or all of
//! it, nobody else can read it at any moment, and of two that start at once both end up with the same token.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use super::Secret;
use crate::error::ServeError;

const NAME: &str = "admin.token";

/// The token of the file in this folder, which is made if it is missing.
pub(crate) fn open(folder: &Path) -> Result<Secret, ServeError> {
    let path = folder.join(NAME);
    match fs::symlink_metadata(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(folder, &path).map_err(ServeError::file(&path))?;
        }
        Err(error) => return Err(ServeError::File { path, error }),
    }
    let text = read(&path)?;
    Secret::parse(text.trim_end()).ok_or(ServeError::NoToken { path })
}

fn read(path: &Path) -> Result<String, ServeError> {
    let file = File::open(path).map_err(ServeError::file(path))?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let known = file.metadata().map_err(ServeError::file(path))?;
        let mode = known.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            let path = path.to_owned();
            return Err(ServeError::OpenToAll { path, mode });
        }
    }
    io::read_to_string(file).map_err(ServeError::file(path))
}

fn make(folder: &Path, path: &Path) -> io::Result<()> {
    let secret = Secret::draw();
    let temporary = folder.join(format!("{NAME}.{}.new", Secret::draw().id.simple()));
    let made = write_new(&temporary, &secret.text()).and_then(|()| {
        match fs::hard_link(&temporary, path) {
            // Somebody else was faster: theirs it is.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            // A file system without links. Whoever is faster there is replaced by the slower one.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                fs::rename(&temporary, path)
            }
            done => done,
        }
    });
    // It has its name now, or is of no use.
    let _ = fs::remove_file(&temporary);
    made?;
    // So that the name outlives a power cut, too.
    File::open(folder)?.sync_all()
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    writeln!(file, "{text}")?;
    file.sync_all()
}
