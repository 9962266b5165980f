//! Jobs by the clock.

use jobtree_protocol::{ScheduleId, ScheduleList, ScheduleSpec, ScheduleView, paths};

use crate::call::Result;
use crate::client::Client;

impl Client {
    /// All schedules, by name.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn schedules(&self) -> Result<Vec<ScheduleView>> {
        let all: ScheduleList = self.get(paths::SCHEDULES).read()?;
        Ok(all.schedules)
    }

    /// One schedule.
    ///
    /// # Errors
    /// If there is no such schedule, or the daemon does not answer.
    pub fn schedule(&self, id: ScheduleId) -> Result<ScheduleView> {
        self.get(paths::at(paths::SCHEDULE, id)).read()
    }

    /// Writes a new schedule. It fires from now on.
    ///
    /// # Errors
    /// If it is refused (its name is taken, say), or the daemon does not answer.
    pub fn add_schedule(&self, spec: &ScheduleSpec) -> Result<ScheduleView> {
        self.post(paths::SCHEDULES).json(spec)?.read()
    }

    /// Writes a schedule in place of the one with this id. What it has missed is forgotten.
    ///
    /// # Errors
    /// If it is refused, there is no such schedule, or the daemon does not answer.
    pub fn put_schedule(&self, id: ScheduleId, spec: &ScheduleSpec) -> Result<ScheduleView> {
        self.put(paths::at(paths::SCHEDULE, id)).json(spec)?.read()
    }

    /// Forgets a schedule. Jobs that it submitted stay.
    ///
    /// # Errors
    /// If there is no such schedule, or the daemon does not answer.
    pub fn delete_schedule(&self, id: ScheduleId) -> Result<()> {
        self.delete(paths::at(paths::SCHEDULE, id)).done()
    }

    /// It fires no more, until it is resumed; what it misses is never fired.
    ///
    /// # Errors
    /// If there is no such schedule, or the daemon does not answer.
    pub fn pause_schedule(&self, id: ScheduleId) -> Result<ScheduleView> {
        let path = paths::at(paths::SCHEDULE_PAUSE, id);
        self.post(path).repeated().read()
    }

    /// It fires again.
    ///
    /// # Errors
    /// If there is no such schedule, or the daemon does not answer.
    pub fn resume_schedule(&self, id: ScheduleId) -> Result<ScheduleView> {
        let path = paths::at(paths::SCHEDULE_RESUME, id);
        self.post(path).repeated().read()
    }
}
