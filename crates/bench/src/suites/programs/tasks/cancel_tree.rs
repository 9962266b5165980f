//! Twenty groups of fifty sessions, all of which have begun and wait for the next day, are cancelled at once; the program goes
//! on when every session has ended.
//!
//! tokio's users hand a token down and track the tasks, to know when the last one has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jobtree::{channel, nursery, sleep};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::suites::programs::inputs::work;
use crate::suites::programs::program::{Program, Scale};

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The work of a session before it waits: about 50 ns.
const STEPS: u32 = 35;

pub struct Input {
    groups: u64,
    /// Of each group.
    sessions: u64,
}

pub fn program(scale: Scale) -> Program<Input> {
    let (groups, sessions) = scale.pick((20, 50), (3, 5));
    let sessions_in_all = (groups * sessions) as usize;
    Program::new("session", sessions_in_all, Input { groups, sessions })
        .sequential(sequential)
        .our_jobs(ours)
        .tokio(by_tokio)
}

/// Counts a session that ends, however it does.
struct Session<'c>(&'c AtomicU64);

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The first value of a session; its last bit does not matter.
fn begin(session: u64) -> u64 {
    work(session, STEPS) | 1
}

fn sequential(input: &mut Input) -> u64 {
    let ended = AtomicU64::new(0);
    let mut open = Vec::new();
    for session in 0..input.groups * input.sessions {
        open.push((Session(&ended), begin(session)));
    }
    drop(open);
    ended.into_inner()
}

fn ours(runtime: &jobtree::Runtime, input: &mut Input) -> u64 {
    let (groups, sessions) = (input.groups, input.sessions);
    let ended = AtomicU64::new(0);
    let counted = &ended;
    let outcome = runtime.nursery(|n| {
        let (begun, all_begun) = channel::unbounded();
        for group in 0..groups {
            let begun = begun.clone();
            n.launch(move || {
                nursery(|n| {
                    for session in 0..sessions {
                        let begun = begun.clone();
                        n.launch(move || {
                            let _session = Session(counted);
                            begun.send(begin(group * sessions + session))?;
                            Ok(sleep(DAY)?)
                        });
                    }
                    Ok(())
                })?;
                Ok(())
            });
        }
        for _ in 0..groups * sessions {
            all_begun.recv()?;
        }
        n.cancel("the server stops");
        Ok(())
    });
    assert!(outcome.is_err_and(|error| error.is_cancelled()));
    ended.into_inner()
}

fn by_tokio(runtime: &tokio::runtime::Runtime, input: &mut Input) -> u64 {
    let (groups, sessions) = (input.groups, input.sessions);
    runtime.block_on(async move {
        let ended = Arc::new(AtomicU64::new(0));
        let (stop, tracker) = (CancellationToken::new(), TaskTracker::new());
        let (begun, mut all_begun) = mpsc::unbounded_channel();
        for group in 0..groups {
            let (stop, begun, ended) = (stop.child_token(), begun.clone(), Arc::clone(&ended));
            let sessions_of_group = tracker.clone();
            tracker.spawn(async move {
                for session in 0..sessions {
                    let (stop, begun) = (stop.child_token(), begun.clone());
                    let ended = Arc::clone(&ended);
                    sessions_of_group.spawn(async move {
                        let _session = Session(&ended);
                        let value = begin(group * sessions + session);
                        begun.send(value).expect("it is received");
                        stop.run_until_cancelled(tokio::time::sleep(DAY)).await;
                    });
                }
            });
        }
        for _ in 0..groups * sessions {
            all_begun.recv().await.expect("every session begins");
        }
        stop.cancel();
        tracker.close();
        tracker.wait().await;
        ended.load(Ordering::Relaxed)
    })
}
