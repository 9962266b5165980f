//! Advice for a running program: a word a line on a descriptor that it inherits, and a signal if it wants one.
//!
//! The supervisor owns the pipe, and makes it: only the launcher is started from there, so the program's end cannot leak
//! into another process, as it could from a worker whose threads start programs side by side.
//!
//! A program need not read. At most one line is unread at any time: a newer word waits in the supervisor until that line
//! was read, and only the newest waits. So nothing here blocks, and a program that reads again after an hour reads one old
//! line and then what holds.
//!
//! Each line comes with one signal, so that a handler can read one line and never waits for a line that does not come. A
//! program that closes its descriptor, with no line unread, gets the signal alone, with each change.
//!
//! A signal that a program does not handle would end it, and a program needs a moment to install its handler. So the signal
//! is only sent once the kernel says that the program catches or blocks it; until then it waits, too, unless its line is
//! read first.

use std::fmt;
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::str::FromStr;
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio, ioctl_fionread};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// The variable that tells a program the number of the descriptor on which it can read advice.
pub const ADVICE_FD: &str = "JOBTREE_ADVICE_FD";

/// How soon something that could not be passed on is tried again, at first and at last.
const RETRY_FIRST: Duration = Duration::from_millis(10);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// The signal that a program wants with each change of the advice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AdviceSignal {
    /// `SIGHUP`.
    Hup,
    /// `SIGUSR1`.
    Usr1,
    /// `SIGUSR2`.
    Usr2,
    /// `SIGWINCH`.
    Winch,
}

impl AdviceSignal {
    const ALL: [AdviceSignal; 4] = [Self::Hup, Self::Usr1, Self::Usr2, Self::Winch];

    /// Its name without `SIG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hup => "HUP",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Winch => "WINCH",
        }
    }

    fn signal(self) -> Signal {
        match self {
            Self::Hup => Signal::HUP,
            Self::Usr1 => Signal::USR1,
            Self::Usr2 => Signal::USR2,
            Self::Winch => Signal::WINCH,
        }
    }
}

/// A name that is not the name of such a signal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSignal;

impl fmt::Display for UnknownSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("choose one of HUP, USR1, USR2, WINCH")
    }
}

impl std::error::Error for UnknownSignal {}

impl FromStr for AdviceSignal {
    type Err = UnknownSignal;

    /// ```
    /// use jobtree_process::AdviceSignal;
    ///
    /// assert_eq!("USR1".parse(), Ok(AdviceSignal::Usr1));
    /// assert_eq!("SIGUSR1".parse(), Ok(AdviceSignal::Usr1));
    /// assert!("KILL".parse::<AdviceSignal>().is_err());
    /// ```
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let name = text.strip_prefix("SIG").unwrap_or(text);
        let found = Self::ALL.into_iter().find(|signal| signal.name() == name);
        found.ok_or(UnknownSignal)
    }
}

/// The pipe, before the program is started.
pub(crate) struct AdvicePipe {
    reader: PipeReader,
    writer: PipeWriter,
}

impl AdvicePipe {
    /// Opens it. Opened before any other descriptor of the supervisor, the program's end is descriptor 3, which every shell
    /// can redirect.
    pub(crate) fn open() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        ioctl_fionbio(&writer, true)?;
        Ok(AdvicePipe { reader, writer })
    }

    /// The number of the program's end.
    pub(crate) fn number(&self) -> RawFd {
        self.reader.as_raw_fd()
    }

    /// Lets the process that is started next inherit the program's end.
    pub(crate) fn inherit(&self) -> io::Result<()> {
        Ok(fcntl_setfd(&self.reader, FdFlags::empty())?)
    }

    /// Begins to advise the program, which has its end: the supervisor's copy of that is closed.
    pub(crate) fn advise(self, leader: Pid, signal: Option<AdviceSignal>) -> Advisor {
        Advisor {
            leader,
            writer: Some(self.writer),
            wants: signal,
            latest: None,
            told: None,
            signal: Due::No,
            retry: RETRY_FIRST,
        }
    }
}

/// Passes advice on to one program.
pub(crate) struct Advisor {
    leader: Pid,
    /// `None` once the program has closed its end.
    writer: Option<PipeWriter>,
    wants: Option<AdviceSignal>,
    latest: Option<String>,
    /// The last word that was told.
    told: Option<String>,
    signal: Due,
    retry: Duration,
}

/// Whether the signal is to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Due {
    No,
    Now,
    /// When the program handles it.
    Later,
}

impl Advisor {
    /// Passes on a word, now or when the program can take it.
    pub(crate) fn advise(&mut self, word: String) {
        if self.latest.as_ref() == Some(&word) {
            return;
        }
        self.latest = Some(word);
        self.retry = RETRY_FIRST;
        self.pass_on();
    }

    /// When to call [`pass_on`](Advisor::pass_on) again, if something waits.
    pub(crate) fn retry_in(&self) -> Option<Duration> {
        let waits = self.latest != self.told || self.signal != Due::No;
        waits.then_some(self.retry)
    }

    /// Passes on what waits, as far as the program can take it.
    pub(crate) fn pass_on(&mut self) {
        self.retry = (self.retry * 2).min(RETRY_LAST);
        if self.signal == Due::Later && self.is_read() {
            self.signal = Due::No;
        }
        if self.latest != self.told && self.write() {
            self.told.clone_from(&self.latest);
            self.signal = Due::Now;
        }
        if self.signal != Due::No {
            self.signal = self.send();
        }
    }

    /// Returns `true` if the program has read the last line.
    fn is_read(&self) -> bool {
        let writer = self.writer.as_ref();
        writer.is_some_and(|writer| ioctl_fionread(writer) == Ok(0))
    }

    /// Writes the latest word, unless a line is unread. An empty pipe has room for it.
    fn write(&mut self) -> bool {
        let is_read = self.is_read();
        let (Some(writer), Some(word)) = (&mut self.writer, &self.latest) else {
            return true;
        };
        let written = match is_read {
            true => writer.write_all(format!("{word}\n").as_bytes()),
            false => return false,
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // The program has closed its end.
            Err(_) => {
                self.writer = None;
                true
            }
            Ok(()) => true,
        }
    }

    /// Sends the signal, if the program wants one and handles it.
    fn send(&self) -> Due {
        let Some(signal) = self.wants else {
            return Due::No;
        };
        if !expects(self.leader, signal) {
            return Due::Later;
        }
        // A program that is gone needs no advice.
        let _ = kill_process(self.leader, signal.signal());
        Due::No
    }
}

/// Returns `true` if the signal does not end the process: it catches or blocks it.
#[cfg(target_os = "linux")]
fn expects(pid: Pid, signal: AdviceSignal) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero()));
    status.is_ok_and(|status| expects_in(&status, signal))
}

/// Elsewhere the kernel does not say: a program that names a signal handles it.
#[cfg(not(target_os = "linux"))]
fn expects(_: Pid, _: AdviceSignal) -> bool {
    true
}

#[cfg(any(target_os = "linux", test))]
fn expects_in(status: &str, signal: AdviceSignal) -> bool {
    let bit = 1u64 << (signal.signal().as_raw() - 1);
    let is_in = |field: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(field));
        let mask = mask.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        mask.is_some_and(|mask| mask & bit != 0)
    };
    is_in("SigCgt:") || is_in("SigBlk:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_expected_if_it_is_caught_or_blocked() {
        let status = |blocked: &str, caught: &str| {
            format!("Name:\tx\nSigBlk:\t{blocked}\nSigIgn:\t0000000000000200\nSigCgt:\t{caught}\n")
        };
        // USR1 is the tenth.
        let none = "0000000000000000";
        let usr1 = "0000000000000200";
        assert!(expects_in(&status(none, usr1), AdviceSignal::Usr1));
        assert!(expects_in(&status(usr1, none), AdviceSignal::Usr1));
        assert!(!expects_in(&status(none, none), AdviceSignal::Usr1));
        assert!(!expects_in(&status(usr1, usr1), AdviceSignal::Usr2));
        assert!(!expects_in("", AdviceSignal::Usr1));
    }

    #[test]
    fn of_many_words_that_are_not_read_the_newest_waits() {
        use std::io::Read;

        let pipe = AdvicePipe::open().unwrap();
        let mut reader = pipe.reader.try_clone().unwrap();
        let mut advisor = pipe.advise(rustix::process::getpid(), None);
        for word in ["slow", "slow", "checkpoint", "yield", "drain"] {
            advisor.advise(word.into());
        }
        let mut read = |expected: &str| {
            let mut buffer = [0; 64];
            let count = reader.read(&mut buffer).unwrap();
            assert_eq!(std::str::from_utf8(&buffer[..count]), Ok(expected));
        };
        read("slow\n");
        assert!(advisor.retry_in().is_some());
        advisor.pass_on();
        read("drain\n");
        assert_eq!(advisor.retry_in(), None);
        // The line that is unread says what holds again: there is nothing to tell.
        advisor.advise("slow".into());
        advisor.advise("yield".into());
        advisor.advise("slow".into());
        assert_eq!(advisor.retry_in(), None);
        read("slow\n");
        drop(reader);
        advisor.advise("yield".into());
        assert_eq!(advisor.retry_in(), None, "a closed pipe is left alone");
    }
}
