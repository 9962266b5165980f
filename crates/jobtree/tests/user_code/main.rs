//! A matrix of tests: every place where the library calls user code, times everything that user code may do there.
//!
//! User code is a closure, waker, destructor, comparator, error, panic payload or hook of the program. In each *cell* of
//! the matrix one such piece of code panics, waits, forks, re-enters the object that calls it, drops or shuts down its
//! runtime, cancels, leaks, spawns, or blocks for longer than a shutdown may take. No cell may crash, hang or corrupt
//! the library: after its program, every part of the library must still work ([`canary`]).
//!
//! A cell runs in a process of its own, with a time limit; see [`driver`] for how to run one, some or all of them. The
//! right outcome of a cell is part of the table of its place ([`place::Place`]).

#![deny(unsafe_code)]
#![allow(
    clippy::unit_arg,
    reason = "`Ok(stage.act())` is the body of a hundred closures"
)]

mod behaviour;
mod canary;
mod cell;
mod child;
mod cloning_waker;
mod driver;
mod leaks;
mod place;
mod places;
mod stage;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::var(child::CELL_OF_CHILD) {
        Ok(name) => cell::run(&name),
        Err(_) => driver::run(),
    }
}
