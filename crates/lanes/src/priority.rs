//! How urgent a job is.

use std::fmt;

/// How urgent a job is among the jobs of its lane.
///
/// A lane takes the most urgent job first, and among equally urgent ones the one that waits longest. A job that
/// waits for too long has turns beside that order: see [`JobManager`](crate::JobManager).
///
/// ```
/// use jobtree_lanes::Priority;
///
/// assert!(Priority::High > Priority::Normal);
/// assert_eq!(Priority::default(), Priority::Normal);
/// assert_eq!(Priority::Lowest.to_string(), "lowest");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Priority {
    /// Whenever nothing else is to be done.
    Lowest,
    /// Can wait.
    Low,
    /// Everything of which nothing else is known.
    #[default]
    Normal,
    /// Somebody waits for it.
    High,
    /// Before everything else.
    Highest,
}

impl Priority {
    /// How many there are.
    pub const COUNT: usize = 5;

    /// All of them, the least urgent first.
    pub const ALL: [Priority; Priority::COUNT] = [
        Priority::Lowest,
        Priority::Low,
        Priority::Normal,
        Priority::High,
        Priority::Highest,
    ];

    /// Its place in [`Priority::ALL`].
    #[inline]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name, in small letters.
    pub const fn name(self) -> &'static str {
        match self {
            Priority::Lowest => "lowest",
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
            Priority::Highest => "highest",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_five_in_ascending_order_each_at_its_index() {
        assert!(Priority::ALL.is_sorted());
        for (index, priority) in Priority::ALL.into_iter().enumerate() {
            assert_eq!(priority.index(), index);
        }
    }
}
