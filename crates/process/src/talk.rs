//! What worker and supervisor say to each other: a line of JSON each, over one socket.
//!
//! The worker begins with [`Order::Start`]. The supervisor answers [`News::Started`] or [`News::Refused`], and last
//! [`News::Ended`], when nothing of the program is left. The end of the stream is an order, too: everything is killed.

use std::io::{self, BufRead, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::program::Program;
use crate::used::Used;

/// From the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Start this. Once, and first.
    Start(Box<Program>),
    /// TERM, and KILL when its grace is over.
    Stop,
    /// KILL.
    Kill,
    /// Stand still.
    Pause,
    /// Go on.
    Resume,
    /// Tell the program this word.
    Advise(String),
}

/// From the supervisor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum News {
    /// It runs; this is its process, and its process group.
    Started(u32),
    /// It could not be started.
    Refused(String),
    /// It has ended, and all that it started.
    Ended {
        /// What it exited with.
        exit_code: Option<i32>,
        /// Or the signal that ended it.
        signal: Option<i32>,
        /// The resources that the program used, with all that it started.
        used: Used,
    },
}

pub(crate) fn say(to: &mut impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// The next message; none at the end of the stream.
pub(crate) fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    match from.read_line(&mut line)? {
        0 => Ok(None),
        _ => Ok(Some(serde_json::from_str(&line)?)),
    }
}
