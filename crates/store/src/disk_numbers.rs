//! The numbers that stand for states, kinds and the like on disks.
//!
//! They are written down here, and do not follow from the order in which the protocol lists its variants: a variant may be
//! moved or added in between without a word of a file changing its meaning. **A number that was released is never given
//! to another meaning.** Statements name some of them (`state = 1`); a test compares all of them with what the first release
//! wrote.

use jobtree_protocol::{CompleteStatus, EventKind, JobState, Priority};
use jobtree_queue::LeaseEnd;

/// Declares both directions of a coding, so that neither can miss a variant of the other.
macro_rules! coding {
    ($(#[$doc:meta])* $to:ident, $from:ident: $type:ty { $($variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        pub(crate) const fn $to(value: $type) -> u8 {
            match value {
                $(<$type>::$variant => $number,)*
            }
        }

        /// The way back; none for a number that no release has written.
        pub(crate) const fn $from(number: u8) -> Option<$type> {
            match number {
                $($number => Some(<$type>::$variant),)*
                _ => None,
            }
        }
    };
}

coding! {
    /// The number of a state.
    state_number, state_of: JobState {
        Queued = 0,
        Dispatching = 1,
        Running = 2,
        Done = 3,
        Failed = 4,
        Canceled = 5,
    }
}

coding! {
    /// The number of a priority.
    priority_number, priority_of: Priority {
        Low = 0,
        Normal = 1,
        High = 2,
    }
}

coding! {
    /// The number of the way in which a lease ended.
    lease_end_number, lease_end_of: LeaseEnd {
        Completed = 0,
        Released = 1,
        Revoked = 2,
        Expired = 3,
    }
}

coding! {
    /// The number of what a worker said of a run.
    status_number, status_of: CompleteStatus {
        Done = 0,
        Failed = 1,
    }
}

coding! {
    /// The number of a kind of event.
    kind_number, kind_of: EventKind {
        Submitted = 0,
        Admitted = 1,
        Denied = 2,
        Dispatching = 3,
        Running = 4,
        Done = 5,
        Failed = 6,
        Canceled = 7,
        Timeout = 8,
        RetryScheduled = 9,
        Quarantined = 10,
        DeadlineAtRisk = 11,
        LeaseGranted = 12,
        LeaseExpired = 13,
        LeaseReleased = 14,
        LeaseRevoked = 15,
        CancelRequested = 16,
        Returned = 17,
        Progress = 18,
        Redriven = 19,
        Hastened = 20,
        DependencyEnded = 21,
        Paused = 22,
        Resumed = 23,
        Log = 24,
        LoadState = 25,
        Edited = 26,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares a coding with the words of the first release, whose numbers were the places in these lists.
    fn is_as_released<T: Copy + PartialEq + std::fmt::Debug>(
        released: &[&str],
        name: impl Fn(T) -> String,
        to: impl Fn(T) -> u8,
        from: impl Fn(u8) -> Option<T>,
    ) {
        for (number, word) in (0_u8..).zip(released) {
            let value = from(number).unwrap_or_else(|| panic!("{word} has lost its number"));
            assert_eq!((name(value).as_str(), to(value)), (*word, number));
        }
        let known = (0..=u8::MAX).filter_map(from);
        assert_eq!(
            known.count(),
            released.len(),
            "new ones are added to the list"
        );
    }

    #[test]
    fn numbers_on_disk_mean_what_the_first_release_wrote() {
        is_as_released(
            &[
                "QUEUED",
                "DISPATCHING",
                "RUNNING",
                "DONE",
                "FAILED",
                "CANCELED",
            ],
            |it: JobState| it.to_string(),
            state_number,
            state_of,
        );
        is_as_released(
            &["Low", "Normal", "High"],
            |it: Priority| format!("{it:?}"),
            priority_number,
            priority_of,
        );
        is_as_released(
            &["Completed", "Released", "Revoked", "Expired"],
            |it: LeaseEnd| format!("{it:?}"),
            lease_end_number,
            lease_end_of,
        );
        is_as_released(
            &["DONE", "FAILED"],
            |it: CompleteStatus| it.as_str().to_owned(),
            status_number,
            status_of,
        );
        is_as_released(
            &[
                "SUBMITTED",
                "ADMITTED",
                "DENIED",
                "DISPATCHING",
                "RUNNING",
                "DONE",
                "FAILED",
                "CANCELED",
                "TIMEOUT",
                "RETRY_SCHEDULED",
                "QUARANTINED",
                "DEADLINE_AT_RISK",
                "LEASE_GRANTED",
                "LEASE_EXPIRED",
                "LEASE_RELEASED",
                "LEASE_REVOKED",
                "CANCEL_REQUESTED",
                "RETURNED",
                "PROGRESS",
                "REDRIVEN",
                "HASTENED",
                "DEPENDENCY_ENDED",
                "PAUSED",
                "RESUMED",
                "LOG",
                "LOAD_STATE",
                "EDITED",
            ],
            |it: EventKind| it.to_string(),
            kind_number,
            kind_of,
        );
    }

    #[test]
    fn every_variant_has_a_number_that_leads_back_to_it() {
        for state in JobState::ALL {
            assert_eq!(state_of(state_number(state)), Some(state));
        }
        for priority in Priority::ALL {
            assert_eq!(priority_of(priority_number(priority)), Some(priority));
        }
        for kind in EventKind::ALL {
            assert_eq!(kind_of(kind_number(*kind)), Some(*kind));
        }
    }
}
