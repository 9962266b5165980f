//! What the fork-join sides run: one fork a node or call, and no cutoff, since the cost of a fork is what is measured.

pub mod fib;
pub mod queens;
pub mod quicksort;
pub mod spin;
pub mod ternary;
pub mod tree;
