//! How far a job is.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Whatever a job gives out on its way, besides how far it is.
pub type Payload = Arc<dyn Any + Send + Sync>;

/// How far a job is, and perhaps what it has to show for it.
///
/// ```
/// use jobtree_lanes::Progress;
///
/// assert_eq!(Progress::new(0.4).fraction(), 0.4);
/// assert_eq!(Progress::new(7.0).fraction(), 1.0);
/// assert_eq!(Progress::from_range(3, 4).fraction(), 0.75);
/// assert_eq!(Progress::from_range(0, 0).fraction(), 1.0, "nothing to do is done");
///
/// let halfway = Progress::new(0.5).with_payload("42 textures");
/// let shown = halfway.payload().unwrap().downcast_ref::<&str>();
/// assert_eq!(shown, Some(&"42 textures"));
/// ```
#[derive(Clone, Default)]
pub struct Progress {
    fraction: f32,
    payload: Option<Payload>,
}

impl Progress {
    /// So far, from 0 to 1. What lies outside counts as the nearer end, and what is no number as 0.
    pub fn new(fraction: f32) -> Progress {
        Progress {
            fraction: within_bounds(fraction),
            payload: None,
        }
    }

    /// `done` of `total`; 1 if there is nothing to do.
    pub fn from_range(done: u64, total: u64) -> Progress {
        let fraction = if total == 0 {
            1.0
        } else {
            // Divided before it is rounded, so that only what is done is 1.
            done as f64 / total as f64
        };
        let fraction = match fraction as f32 {
            1.0.. if done < total => 1.0 - f32::EPSILON / 2.0,
            fraction => fraction,
        };
        Progress::new(fraction)
    }

    /// With something to show.
    pub fn with_payload<T: Any + Send + Sync>(self, payload: T) -> Progress {
        self.with_shared_payload(Arc::new(payload))
    }

    /// With something to show that others have, too.
    pub fn with_shared_payload(mut self, payload: Payload) -> Progress {
        self.payload = Some(payload);
        self
    }

    /// How far, from 0 to 1.
    pub fn fraction(&self) -> f32 {
        self.fraction
    }

    /// What there is to show.
    pub fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// What there is to show, taken out.
    pub fn into_payload(self) -> Option<Payload> {
        self.payload
    }
}

/// `fraction`, or the end of 0..=1 that it is beyond; 0 if it is no number.
pub(crate) fn within_bounds(fraction: f32) -> f32 {
    // Not `clamp`, which keeps what is no number, and not below -0.0, which would be shown with its sign.
    if fraction > 0.0 {
        fraction.min(1.0)
    } else {
        0.0
    }
}

impl From<f32> for Progress {
    fn from(fraction: f32) -> Progress {
        Progress::new(fraction)
    }
}

impl From<f64> for Progress {
    fn from(fraction: f64) -> Progress {
        Progress::new(fraction as f32)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress")
            .field("fraction", &self.fraction)
            .field("has_payload", &self.payload.is_some())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_clamped_to_0_1_and_what_is_no_number_is_0() {
        let cases = [
            (-3.0, 0.0),
            (-0.0, 0.0),
            (0.25, 0.25),
            (1.5, 1.0),
            (f32::INFINITY, 1.0),
            (f32::NEG_INFINITY, 0.0),
            (f32::NAN, 0.0),
        ];
        for (given, shown) in cases {
            let fraction = Progress::new(given).fraction();
            assert_eq!(fraction.to_bits(), f32::to_bits(shown), "{given}");
        }
        assert_eq!(Progress::from(f64::NAN).fraction(), 0.0);
        assert_eq!(Progress::from(1e300).fraction(), 1.0);
    }

    #[test]
    fn a_range_of_nothing_is_done_and_more_than_all_is_all() {
        assert_eq!(Progress::from_range(0, 0).fraction(), 1.0);
        assert_eq!(Progress::from_range(5, 0).fraction(), 1.0);
        assert_eq!(Progress::from_range(5, 4).fraction(), 1.0);
        assert_eq!(Progress::from_range(0, 4).fraction(), 0.0);
        assert_eq!(Progress::from_range(u64::MAX, u64::MAX).fraction(), 1.0);
    }

    #[test]
    fn what_is_not_done_is_never_shown_as_done() {
        let almost = Progress::from_range(u64::MAX - 1, u64::MAX).fraction();
        assert!(almost < 1.0 && almost > 0.999, "{almost}");
    }
}
