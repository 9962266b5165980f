//! Standard input of `jobtree run` on its way to the command, and the runner's end of it.
//!
//! What is read here is sent to the daemon, which holds a bounded part; it waits for the command, and so does whoever writes into
//! the pipe. A thread that reads and one that sends, since a sender that has nothing to send must say that it is there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use jobtree_client::Client;
use jobtree_client::protocol::operations::InputQuery;
use jobtree_process::Feed;
use jobtree_protocol::{INPUT_AT_ONCE, InputAppend, JobId, LeaseId};
use jobtree_scheduler::workers::Run;

/// How often the daemon is told that more may come: more often than it takes a sender for gone.
const STILL_HERE: Duration = Duration::from_secs(5);
/// How long a daemon that does not answer is waited for before it is asked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How often the command is looked at that input waits for.
const LOOK: Duration = Duration::from_millis(5);
/// How long one question waits for more.
const WAIT_SEC: u32 = 5;

/// Returns `true` if standard input is a pipe, a file or a socket: something that a command would read if it ran here. A terminal
/// is not: commands of the daemon are not interactive.
pub fn is_piped() -> bool {
    let Ok(own) = io::stdin().as_fd().try_clone_to_owned() else {
        return false;
    };
    File::from(own).metadata().is_ok_and(|about| {
        let kind = about.file_type();
        kind.is_file() || kind.is_fifo() || kind.is_socket()
    })
}

/// Sends standard input to the command of a job, from now on and beside what this thread does.
pub fn send(client: &Client, job: JobId) {
    let (read, sent) = mpsc::sync_channel::<Vec<u8>>(1);
    thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut buffer = vec![0; INPUT_AT_ONCE];
        // A read that fails ends the input, as it does for a command.
        while let Ok(count @ 1..) = stdin.read(&mut buffer) {
            if read.send(buffer[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    let client = client.clone();
    thread::spawn(move || {
        let mut offset = 0;
        loop {
            let (bytes, ended) = match sent.recv_timeout(STILL_HERE) {
                Ok(bytes) => (bytes, false),
                Err(RecvTimeoutError::Timeout) => (Vec::new(), false),
                Err(RecvTimeoutError::Disconnected) => (Vec::new(), true),
            };
            if !send_all(&client, job, &mut offset, &bytes, ended) || ended {
                return;
            }
        }
    });
}

/// Sends bytes until all are accepted. Returns `false` if nothing more need be sent.
fn send_all(client: &Client, job: JobId, offset: &mut u64, bytes: &[u8], ended: bool) -> bool {
    let begin = *offset;
    loop {
        let done = usize::try_from(*offset - begin).unwrap_or(usize::MAX);
        let rest = bytes.get(done..).unwrap_or_default();
        let request = InputAppend {
            ended,
            ..InputAppend::of(*offset, rest)
        };
        match client.append_input(job, &request) {
            Ok(answer) if answer.closed => return false,
            Ok(answer) => {
                let accepted = answer.next_offset.saturating_sub(*offset);
                *offset = answer.next_offset;
                if accepted >= rest.len() as u64 {
                    return true;
                }
            }
            Err(error) if error.is_passing() => thread::sleep(AGAIN_AFTER),
            // Who follows the job finds out why.
            Err(_) => return false,
        }
    }
}

/// The runner's end: standard input of one run.
pub struct Stdin {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// The command has the pipe open.
    started: AtomicBool,
    /// The run is over.
    over: AtomicBool,
    /// The rest never comes.
    lost: AtomicBool,
}

impl Stdin {
    /// Begins to pass input on to a command that reads from this pipe. Returns none if an earlier run has read a part of it.
    pub fn begin(client: &Client, run: &Run, lease: LeaseId, feed: Feed) -> Option<Self> {
        let job = run.id();
        if run.attempt() > 1 {
            // After a restart of the daemon, the sender tells what it has sent before within a second.
            let page = client.input(job, &reading(lease, 0));
            if page.is_ok_and(|page| page.lost) {
                return None;
            }
        }
        let shared = Arc::new(Shared::default());
        let (client, theirs) = (client.clone(), Arc::clone(&shared));
        thread::spawn(move || pass_on(&client, job, lease, feed, &theirs));
        Some(Self { shared })
    }

    /// Tells that the command was started: an input that is short may have come to its end before.
    pub fn started(&self) {
        self.shared.started.store(true, Ordering::Release);
    }

    /// Returns `true` if the rest never comes: its sender is gone, or an earlier run has read a part of it.
    pub fn is_lost(&self) -> bool {
        self.shared.lost.load(Ordering::Acquire)
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
    }
}

fn reading(lease: LeaseId, after: u64) -> InputQuery {
    InputQuery {
        lease_id: Some(lease),
        after: Some(after),
        wait_sec: Some(WAIT_SEC),
    }
}

fn pass_on(client: &Client, job: JobId, lease: LeaseId, mut feed: Feed, shared: &Shared) {
    let goes_on = || !shared.over.load(Ordering::Acquire);
    let mut after = 0;
    while goes_on() {
        let page = match client.input(job, &reading(lease, after)) {
            Ok(page) => page,
            Err(error) if error.is_passing() => {
                thread::sleep(AGAIN_AFTER);
                continue;
            }
            // The lease is lost; its run learns of that.
            Err(_) => return,
        };
        let bytes = page.bytes().filter(|_| !page.lost);
        let Some(bytes) = bytes else {
            // Before the pipe is closed: a part must not pass for the whole.
            shared.lost.store(true, Ordering::Release);
            while goes_on() {
                thread::sleep(LOOK);
            }
            return;
        };
        if !feed.write(&bytes, goes_on).unwrap_or(false) {
            return;
        }
        after = page.next;
        if page.ended {
            while goes_on() && !shared.started.load(Ordering::Acquire) {
                thread::sleep(LOOK);
            }
            return feed.finish(goes_on);
        }
    }
}
