//! Where a job runs.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Where a job runs.
///
/// ```
/// use jobtree_lanes::{FrameLane, Lane};
///
/// assert_eq!(Lane::default(), Lane::Any);
/// assert_eq!(Lane::Main.to_string(), "main");
/// let swap = Lane::Frame(FrameLane::COLLECT_VISIBLE_SWAP);
/// assert_eq!(swap, Lane::frame("CollectVisibleSwap"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lane {
    /// On the runtime's workers.
    #[default]
    Any,
    /// On the program's main thread, when it pumps this lane.
    Main,
    /// On the thread that pumps this lane, at its point in the frame.
    Frame(FrameLane),
    /// In another process: for jobs that [name a task there](crate::LaneJob::remote). An action, coroutine or other job whose body is
    /// a closure of this program is not sent anywhere: on this lane, too, it runs on the workers here.
    Remote,
}

impl Lane {
    /// The frame lane of this name.
    pub fn frame(name: impl Into<Arc<str>>) -> Lane {
        Lane::Frame(FrameLane::named(name))
    }

    /// Its name, as metrics and messages give it.
    pub fn name(&self) -> &str {
        match self {
            Lane::Any => "any",
            Lane::Main => "main",
            Lane::Frame(frame) => frame.name(),
            Lane::Remote => "remote",
        }
    }
}

impl From<FrameLane> for Lane {
    fn from(frame: FrameLane) -> Lane {
        Lane::Frame(frame)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A lane that some thread of the program pumps once a frame. Two with the same name are the same lane.
#[derive(Clone)]
pub struct FrameLane(Name);

#[derive(Clone)]
enum Name {
    Fixed(&'static str),
    Given(Arc<str>),
}

impl FrameLane {
    /// The lane for what has to happen between collecting what is visible and swapping buffers. Every manager has it.
    pub const COLLECT_VISIBLE_SWAP: FrameLane = FrameLane(Name::Fixed("CollectVisibleSwap"));

    /// The lane of this name.
    pub fn named(name: impl Into<Arc<str>>) -> FrameLane {
        FrameLane(Name::Given(name.into()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match &self.0 {
            Name::Fixed(name) => name,
            Name::Given(name) => name,
        }
    }
}

impl From<&'static str> for FrameLane {
    fn from(name: &'static str) -> FrameLane {
        FrameLane(Name::Fixed(name))
    }
}

impl PartialEq for FrameLane {
    fn eq(&self, other: &FrameLane) -> bool {
        self.name() == other.name()
    }
}

impl Eq for FrameLane {}

impl Hash for FrameLane {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl fmt::Debug for FrameLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FrameLane").field(&self.name()).finish()
    }
}

impl fmt::Display for FrameLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_name_is_a_lane_however_it_was_written() {
        let lanes = HashSet::from([
            FrameLane::COLLECT_VISIBLE_SWAP,
            FrameLane::named("CollectVisibleSwap"),
            FrameLane::named("physics".to_string()),
            FrameLane::named("physics"),
        ]);
        assert_eq!(lanes.len(), 2);
    }

    #[test]
    fn a_frame_lane_named_like_another_lane_is_not_that_lane() {
        assert_ne!(Lane::frame("main"), Lane::Main);
    }
}
