//! A look at a store without opening it: whether it could be opened, and why not. Nothing is written and no lock is taken, so a
//! store that another process has open may be looked at, too.

/// What a look at a store found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inspected {
    /// There is nothing yet: it is made when it is opened.
    Missing,
    /// It can be opened.
    Sound {
        /// The version of its tables.
        version: i64,
        /// The version that they get when it is opened.
        newest: i64,
        /// All of it was read; of a large file only its beginning is.
        whole: bool,
    },
}
