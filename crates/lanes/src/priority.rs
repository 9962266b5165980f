//! How urgent a job is: one of five classes.

/// How urgent a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// After everything else.
    Lowest,
    /// After what is normal.
    Low,
    /// What nobody said anything about.
    #[default]
    Normal,
    /// Before what is normal.
    High,
    /// Before everything else.
    Highest,
}
