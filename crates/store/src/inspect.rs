//! A look at a store without opening it: whether it could be opened, and why not. Nothing is written and no lock is taken, so a
//! store that another process has open may be looked at, too.

/// The result of a look at a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// No store yet: opening makes one.
    Missing,
    /// A store that can be opened.
    Sound {
        /// The version of its tables.
        version: i64,
        /// The version that they get when it is opened.
        newest: i64,
        /// Says that all of it was read; of a large file only the beginning is.
        whole: bool,
    },
}
