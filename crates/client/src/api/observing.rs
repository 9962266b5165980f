//! What operators and dashboards read, and probes.

use jiff::Timestamp;
use jobtree_protocol::operations::{
    DecisionQuery, GetHistory, Health, HistoryWindow, ListDecisions, ListLoad, ListWorkers,
    LoadStep, LoadWindow, Operation, Ready, WorkerQuery,
};
use jobtree_protocol::{Decision, HistoryStats, LoadSample, WorkerView};

use crate::call::Result;
use crate::client::Client;
use crate::error::ClientError;

/// Which measurements of the load are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadQuery {
    /// After this.
    pub since: Option<Timestamp>,
    /// Averages by the minute, which go back further, in place of each measurement.
    pub minutes: bool,
    /// The newest so many.
    pub limit: Option<u32>,
}

/// What a daemon says of itself without asking who wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Yes.
    Well,
    /// No, and why.
    Unwell(String),
}

impl Client {
    /// Returns statistics of ended jobs, by addon and type.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn history(&self) -> Result<Vec<HistoryStats>> {
        self.history_of(&HistoryWindow::default())
    }

    /// Returns statistics of the jobs that ended in a window of time or ran on one machine, by addon and type.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn history_of(&self, window: &HistoryWindow) -> Result<Vec<HistoryStats>> {
        Ok(self.call::<GetHistory>((), window, &())?.history)
    }

    /// Returns the last decisions, the newest first.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn decisions(&self, limit: Option<u32>) -> Result<Vec<Decision>> {
        let query = DecisionQuery { limit };
        Ok(self.call::<ListDecisions>((), &query, &())?.decisions)
    }

    /// Returns samples of the machine's load, the oldest first.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn load(&self, query: &LoadQuery) -> Result<Vec<LoadSample>> {
        let window = LoadWindow {
            since: query.since,
            by: query.minutes.then_some(LoadStep::Minute),
            limit: query.limit,
        };
        Ok(self.call::<ListLoad>((), &window, &())?.samples)
    }

    /// Returns the workers that report to the daemon.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn workers(&self) -> Result<Vec<WorkerView>> {
        let query = WorkerQuery::default();
        Ok(self.call::<ListWorkers>((), &query, &())?.workers)
    }

    /// Whether the process is alive.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn health(&self) -> Result<Probe> {
        self.probe::<Health>()
    }

    /// Asks whether the daemon can take jobs.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn ready(&self) -> Result<Probe> {
        self.probe::<Ready>()
    }

    fn probe<O: Operation>(&self) -> Result<Probe> {
        let call = self.prepare_at::<O>(O::INFO.path.to_owned());
        // Not repeated: a probe is about the state now.
        match call.repeated_if(false).done() {
            Ok(()) => Ok(Probe::Well),
            Err(ClientError::Refused { status: 503, error }) => Ok(Probe::Unwell(error.message)),
            Err(error) => Err(error),
        }
    }
}
