//! Programs of any language as the body of a job: started with their limits, listened to, and never left behind.
//!
//! Three processes stand in a row:
//!
//! ```text
//! worker ── socket ── supervisor ── child ── program and whatever it starts
//! ```
//!
//! - The **worker** asks for a [`Program`] to be started ([`Child::start`]), reads its output, and may stop, pause or
//!   resume it.
//! - The **supervisor** ([`supervise()`]) is this executable again. It does little, so it seldom dies. It is the reaper
//!   of all that the program starts, also of what left the process group, and it kills all of it when the program has
//!   ended, when it is told to, or when the worker is gone: the socket between them ends, however the worker died.
//! - The **launcher** ([`launch()`]) is this executable once more, in the place where the program will be: it sets niceness
//!   and limits on itself, asks to be killed with the supervisor, and becomes the program. No code runs between fork and
//!   exec, so nothing here is unsafe.
//!
//! A program is advised while it runs ([`Child::advise`]): by a line on a descriptor that it inherits, whose number stands in
//! [`ADVICE_FD`], and by a signal if it wants one ([`AdviceSignal`]).
//!
//! What the program says on its standard output is read by [`output`]: text is kept, lines that begin with `::progress`
//! and `::result` are for the worker.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod advice;
pub mod cgroup;
mod child;
mod ending;
mod family;
mod feed;
mod find;
mod launch;
mod open_files;
pub mod output;
mod program;
mod supervise;
mod talk;
mod used;

pub use advice::{ADVICE_FD, AdviceSignal, UnknownSignal};
pub use child::{Child, StartError, Stream, Supervisor, Tap};
pub use ending::{DATA_ERROR, Ending, TEMPORARY, Verdict};
pub use feed::Feed;
pub use find::{NoProgram, find_program};
pub use launch::{LAUNCH, launch};
pub use open_files::raise_open_files;
pub use program::{Program, Rlimits, safe_environment};
pub use supervise::{SUPERVISE, supervise};
pub use used::Used;
