//! How things stand and how they went.

use jiff::Timestamp;
use jobtree_protocol::{
    Decision, DecisionList, HistoryList, HistoryStats, LoadList, LoadSample, StatsView, StatusView,
    WorkerList, WorkerView, paths,
};

use crate::call::Result;
use crate::client::Client;
use crate::error::ClientError;
use crate::query::Query;

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
    /// How things stand.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn status(&self) -> Result<StatusView> {
        self.get(paths::STATUS).read()
    }

    /// Counts and histograms since the daemon's start.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn stats(&self) -> Result<StatsView> {
        self.get(paths::STATS).read()
    }

    /// How jobs did, by addon and type.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn history(&self) -> Result<Vec<HistoryStats>> {
        let all: HistoryList = self.get(paths::HISTORY).read()?;
        Ok(all.history)
    }

    /// What was decided last, the newest first.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn decisions(&self, limit: Option<u32>) -> Result<Vec<Decision>> {
        let query = Query::default().with_some("limit", limit);
        let all: DecisionList = self.get(paths::DECISIONS).query(query).read()?;
        Ok(all.decisions)
    }

    /// How busy the machine was, oldest first.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn load(&self, query: &LoadQuery) -> Result<Vec<LoadSample>> {
        let query = Query::default()
            .with_some("since", query.since)
            .with_some("by", query.minutes.then_some("minute"))
            .with_some("limit", query.limit);
        let all: LoadList = self.get(paths::LOAD).query(query).read()?;
        Ok(all.samples)
    }

    /// Who works here.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn workers(&self) -> Result<Vec<WorkerView>> {
        let all: WorkerList = self.get(paths::WORKERS).read()?;
        Ok(all.workers)
    }

    /// Whether the process is alive.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn health(&self) -> Result<Probe> {
        self.probe(paths::HEALTH)
    }

    /// Whether it can take jobs.
    ///
    /// # Errors
    /// If nobody answers.
    pub fn ready(&self) -> Result<Probe> {
        self.probe(paths::READY)
    }

    fn probe(&self, path: &str) -> Result<Probe> {
        // Whoever asks this wants to know how it is now.
        match self.get(path).repeated_if(false).done() {
            Ok(()) => Ok(Probe::Well),
            Err(ClientError::Refused { status: 503, error }) => Ok(Probe::Unwell(error.message)),
            Err(error) => Err(error),
        }
    }

    /// What Prometheus reads.
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn metrics(&self) -> Result<String> {
        self.get(paths::METRICS).text()
    }

    /// The description of the interface (OpenAPI 3.1).
    ///
    /// # Errors
    /// If the daemon does not answer.
    pub fn openapi(&self) -> Result<serde_json::Value> {
        self.get(paths::OPENAPI).read()
    }
}
