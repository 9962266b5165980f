//! Standard input that comes while a program runs, through a named pipe.
//!
//! The worker holds the pipe open for reading and writing, without blocking: so it can open it before the program does, a program
//! that does not read costs the worker no thread for ever, and one that has ended raises no signal here. The program sees the end
//! of its input when the worker closes the pipe, which it does when the program has read everything: what lies in a pipe that
//! nobody has open is gone.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, fcntl_setfl, mknodat};
use rustix::io::Errno;

/// How often a full pipe is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// The writing side of a program's standard input. Name its [`path`](Self::path) in
/// [`Program::stdin_from`](crate::Program::stdin_from).
#[derive(Debug)]
pub struct Feed {
    path: PathBuf,
    pipe: File,
}

impl Feed {
    /// Makes the pipe, in the folder for temporary files and for this user alone.
    ///
    /// # Errors
    /// If there can be none.
    pub fn create() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let path = loop {
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let name = format!("jobtree-stdin-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0) {
                // Of a process of this number that was killed.
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
                Ok(()) => break path,
            }
        };
        let open = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path);
        match open {
            Ok(pipe) => Ok(Self { path, pipe }),
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// Where the program finds it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes all of it, as fast as the program reads. Returns `false` if `goes_on` did before the end.
    ///
    /// # Errors
    /// If the pipe cannot be written.
    pub fn write(&mut self, mut bytes: &[u8], goes_on: impl Fn() -> bool) -> io::Result<bool> {
        while !bytes.is_empty() {
            match self.pipe.write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if !goes_on() {
                        return Ok(false);
                    }
                    thread::sleep(AGAIN);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Ends the input once the program has read all of it, or `goes_on` returns `false`.
    pub fn finish(self, goes_on: impl Fn() -> bool) {
        while goes_on() && rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|unread| unread > 0) {
            thread::sleep(AGAIN);
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        // If the program was started, it has the pipe open.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens the reading side for a program that is about to start: without waiting for a writer, who is there or has finished.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let pipe = OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let flags = fcntl_getfl(&pipe)?;
    fcntl_setfl(&pipe, flags - OFlags::NONBLOCK)?;
    Ok(pipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_reader_gets_everything_and_then_the_end() {
        let mut feed = Feed::create().unwrap();
        let mut reader = open_to_read(feed.path()).unwrap();
        let sent: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
        let expected = sent.clone();
        let writer = thread::spawn(move || {
            assert!(feed.write(&sent, || true).unwrap());
            feed.finish(|| true);
        });
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == expected);
        writer.join().unwrap();
    }

    #[test]
    fn an_input_that_ended_before_the_program_opened_it_is_empty() {
        let feed = Feed::create().unwrap();
        let path = feed.path().to_owned();
        let hold = open_to_read(&path).unwrap();
        feed.finish(|| true);
        assert_eq!((&hold).read(&mut [0]).unwrap(), 0);
        assert!(!path.exists());
    }

    #[test]
    fn a_program_that_does_not_read_is_given_up() {
        let mut feed = Feed::create().unwrap();
        let large = vec![0; 1 << 20];
        assert!(!feed.write(&large, || false).unwrap());
        feed.finish(|| false);
    }
}
