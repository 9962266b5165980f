//! What changes by itself with time.

use jiff::Timestamp;
use jobtree_protocol::JobId;

use super::Order;

impl Order {
    /// Handles what is due at `at`: jobs whose time has come, deadlines that came nearer, heads that rise. Returns the
    /// jobs that are at risk from now on.
    pub(crate) fn advance(&mut self, at: Timestamp) -> Vec<JobId> {
        self.clock = at;
        while let Some(&(time, id)) = self.delayed.first().filter(|(time, _)| *time <= at) {
            self.delayed.remove(&(time, id));
            self.replace(id);
        }
        while let Some(&(time, id)) = self.stages.first().filter(|(time, _)| *time <= at) {
            self.stages.remove(&(time, id));
            self.replace(id);
        }
        while let Some(&(time, group)) = self.aging.first().filter(|(time, _)| *time <= at) {
            self.aging.remove(&(time, group));
            if let Some(group) = &mut self.groups[group.0] {
                group.rises = None;
            }
            self.restand(group);
        }
        let mut risky = Vec::new();
        while let Some(&(time, id)) = self.risks.first().filter(|(time, _)| *time <= at) {
            self.risks.remove(&(time, id));
            if let Some(waiting) = self.jobs.get_mut(&id) {
                waiting.risk = None;
                waiting.candidate.warned = true;
                risky.push(id);
            }
        }
        risky
    }

    /// Puts a job where it belongs now.
    pub(crate) fn replace(&mut self, id: JobId) {
        self.work += 1;
        self.displace(id);
        self.place(id);
    }

    /// When something changes next by itself.
    pub(crate) fn next_time(&self) -> Option<Timestamp> {
        let jobs = [&self.delayed, &self.stages, &self.risks]
            .map(|set| set.first().map(|(time, _)| *time));
        let groups = self.aging.first().map(|(time, _)| *time);
        jobs.into_iter().chain([groups]).flatten().min()
    }
}
