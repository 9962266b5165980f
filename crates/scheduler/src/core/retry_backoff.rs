//! The retry backoff of refused jobs: each is read again after a pause that doubles with each refusal.
//!
//! The number of refusals is remembered while the job may come back, and not for ever: where several schedulers share a
//! store, a refused job usually runs and ends on another node, and this one never hears of it.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use jobtree_protocol::JobId;

/// The first pause before a refused job is read again.
const FIRST: Duration = Duration::from_millis(20);

/// A job that was due for so long and has not been refused again begins anew.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The refused jobs, and when each is read again.
#[derive(Debug, Default)]
pub(super) struct RetryBackoff {
    due: BTreeSet<(Duration, JobId)>,
    known: HashMap<JobId, Refused>,
    /// When old entries are forgotten next.
    next_forgetting: Duration,
}

#[derive(Debug)]
struct Refused {
    /// When the job is read again, or was.
    at: Duration,
    /// The number of refusals before.
    times: u32,
}

impl RetryBackoff {
    /// Returns how long a job pauses that is refused now, before jitter.
    pub(super) fn pause_of(&self, job: JobId) -> Duration {
        let times = self.known.get(&job).map_or(0, |refused| refused.times + 1);
        FIRST * 2_u32.saturating_pow(times.min(16))
    }

    /// Counts a refusal; the job is due at `at`.
    pub(super) fn refuse(&mut self, job: JobId, at: Duration, now: Duration) {
        self.forget_old(now);
        let times = match self.known.get(&job) {
            Some(refused) => {
                self.due.remove(&(refused.at, job));
                refused.times + 1
            }
            None => 0,
        };
        self.due.insert((at, job));
        self.known.insert(job, Refused { at, times });
    }

    /// Forgets a job: it runs or has ended.
    pub(super) fn forget(&mut self, job: JobId) {
        if let Some(refused) = self.known.remove(&job) {
            self.due.remove(&(refused.at, job));
        }
    }

    /// Takes a job off the timer, and remembers how often it was refused.
    pub(super) fn disarm(&mut self, job: JobId) {
        if let Some(refused) = self.known.get(&job) {
            self.due.remove(&(refused.at, job));
        }
    }

    /// Takes the jobs that are to be read now.
    pub(super) fn take_due(&mut self, now: Duration) -> Vec<JobId> {
        let mut due = Vec::new();
        while let Some((_, job)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.pop_first();
            due.push(job);
        }
        due
    }

    /// Returns when the next job is due.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Rarely, so that it costs each refusal little.
    fn forget_old(&mut self, now: Duration) {
        if now < self.next_forgetting {
            return;
        }
        self.next_forgetting = now + REMEMBERED;
        let due = &self.due;
        self.known.retain(|job, refused| {
            refused.at + REMEMBERED > now || due.contains(&(refused.at, *job))
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
    fn each_refusal_doubles_the_pause_until_the_job_is_forgotten() {
        let mut backoff = RetryBackoff::default();
        for times in 0..5 {
            assert_eq!(backoff.pause_of(job(1)), FIRST * 2_u32.pow(times));
            backoff.refuse(job(1), seconds(1), seconds(0));
        }
        backoff.forget(job(1));
        assert_eq!(backoff.pause_of(job(1)), FIRST);
        assert_eq!(backoff.next_due(), None);
    }

    #[test]
    fn a_job_is_due_once_however_often_it_was_refused() {
        let mut backoff = RetryBackoff::default();
        backoff.refuse(job(1), seconds(1), seconds(0));
        backoff.refuse(job(1), seconds(3), seconds(0));
        backoff.refuse(job(2), seconds(2), seconds(0));
        assert_eq!(backoff.take_due(seconds(1)), []);
        assert_eq!(backoff.take_due(seconds(3)), [job(2), job(1)]);
        assert_eq!(backoff.next_due(), None);
    }

    #[test]
    fn a_disarmed_job_is_not_due_and_keeps_its_count() {
        let mut backoff = RetryBackoff::default();
        backoff.refuse(job(1), seconds(1), seconds(0));
        backoff.disarm(job(1));
        assert_eq!(backoff.take_due(seconds(9)), []);
        assert_eq!(backoff.pause_of(job(1)), FIRST * 2);
    }

    /// A job that another scheduler takes is never heard of again.
    #[test]
    fn jobs_that_do_not_come_back_are_forgotten() {
        let mut backoff = RetryBackoff::default();
        for number in 0..1000 {
            let now = seconds(number);
            backoff.refuse(job(number.into()), now, now);
            backoff.take_due(now);
        }
        assert!(backoff.known.len() <= 122, "{}", backoff.known.len());
    }

    #[test]
    fn a_job_that_is_still_due_is_remembered_however_long_it_takes() {
        let mut backoff = RetryBackoff::default();
        backoff.refuse(job(1), seconds(0), seconds(0));
        backoff.refuse(job(2), seconds(500), seconds(500));
        assert_eq!(backoff.take_due(seconds(500)), [job(1), job(2)]);
    }
}
