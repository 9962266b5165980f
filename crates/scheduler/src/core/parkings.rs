//! Jobs whose proposal was refused: each is read again after a moment, which doubles each time.
//!
//! How often that happened is remembered while the job may come back, and not for ever: where several schedulers share a
//! store, a refused job usually runs and ends elsewhere, and nobody says so here.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jobtree_protocol::JobId;

/// The first wait before a job that was refused is read again.
const FIRST: Duration = Duration::from_millis(20);

/// A job that was due for so long and has not been refused again begins anew.
const REMEMBERED: Duration = Duration::from_secs(60);

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Parkings {
    due: BTreeSet<(Duration, JobId)>,
    known: HashMap<JobId, Parking>,
    /// When old ones are forgotten next.
    next_forgetting: Duration,
}

#[derive(Debug)]
struct Parking {
    /// When the job is read again, or was.
    at: Duration,
    /// How often it had been refused before.
    times: u32,
}

impl Parkings {
    /// How long a job waits that is refused now, before chance is added.
    pub(super) fn wait_for(&self, job: JobId) -> Duration {
        let times = self.known.get(&job).map_or(0, |parking| parking.times + 1);
        FIRST * 2_u32.saturating_pow(times.min(16))
    }

    /// The job is read again at `at`.
    pub(super) fn park(&mut self, job: JobId, at: Duration, now: Duration) {
        self.forget_old(now);
        let times = match self.known.get(&job) {
            Some(parking) => {
                self.due.remove(&(parking.at, job));
                parking.times + 1
            }
            None => 0,
        };
        self.due.insert((at, job));
        self.known.insert(job, Parking { at, times });
    }

    /// It is known what has become of the job.
    pub(super) fn unpark(&mut self, job: JobId) {
        if let Some(parking) = self.known.remove(&job) {
            self.due.remove(&(parking.at, job));
        }
    }

    /// Takes those that are to be read now.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<JobId> {
        let mut due = Vec::new();
        while let Some((_, job)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.pop_first();
            due.push(job);
        }
        due
    }

    /// When the next one is to be read.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Whether a moment is set at which the job is read.
    pub(super) fn is_due_later(&self, job: JobId) -> bool {
        self.known
            .get(&job)
            .is_some_and(|parking| self.due.contains(&(parking.at, job)))
    }

    /// Whether the job was refused, and it is remembered how often.
    pub(super) fn is_remembered(&self, job: JobId) -> bool {
        self.known.contains_key(&job)
    }

    /// Rarely, so that it costs each parking little.
    fn forget_old(&mut self, now: Duration) {
        if now < self.next_forgetting {
            return;
        }
        self.next_forgetting = now + REMEMBERED;
        let due = &self.due;
        self.known.retain(|job, parking| {
            parking.at + REMEMBERED > now || due.contains(&(parking.at, *job))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn job(number: u128) -> JobId {
        JobId::from_random(number.to_be_bytes())
    }

    #[test]
    fn each_refusal_doubles_the_wait_until_it_is_known_what_became_of_the_job() {
        let mut parkings = Parkings::default();
        for times in 0..5 {
            assert_eq!(parkings.wait_for(job(1)), FIRST * 2_u32.pow(times));
            parkings.park(job(1), seconds(1), seconds(0));
        }
        parkings.unpark(job(1));
        assert_eq!(parkings.wait_for(job(1)), FIRST);
        assert_eq!(parkings.next_due(), None);
    }

    #[test]
    fn a_job_is_due_once_however_often_it_was_parked() {
        let mut parkings = Parkings::default();
        parkings.park(job(1), seconds(1), seconds(0));
        parkings.park(job(1), seconds(3), seconds(0));
        parkings.park(job(2), seconds(2), seconds(0));
        assert_eq!(parkings.take_due(seconds(1)), []);
        assert!(parkings.is_due_later(job(1)));
        assert_eq!(parkings.take_due(seconds(3)), [job(2), job(1)]);
        assert!(!parkings.is_due_later(job(1)) && parkings.is_remembered(job(1)));
    }

    /// What other schedulers take is never heard of again.
    #[test]
    fn what_does_not_come_back_is_forgotten() {
        let mut parkings = Parkings::default();
        for number in 0..1000 {
            let now = seconds(number);
            parkings.park(job(number.into()), now, now);
            parkings.take_due(now);
        }
        assert!(parkings.known.len() <= 122, "{}", parkings.known.len());
    }

    #[test]
    fn what_is_still_due_is_remembered_however_long_it_takes() {
        let mut parkings = Parkings::default();
        parkings.park(job(1), seconds(0), seconds(0));
        parkings.park(job(2), seconds(500), seconds(500));
        assert!(parkings.is_due_later(job(1)));
        assert_eq!(parkings.take_due(seconds(500)), [job(1), job(2)]);
    }
}
