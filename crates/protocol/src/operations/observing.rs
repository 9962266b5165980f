//! What operators and dashboards read: status, statistics, decisions, load, workers.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;

use super::Answer;
use super::query::Kind;
use crate::{
    AddonId, DecisionList, FieldError, HistoryList, LoadHours, LoadList, NodeId, StatsView,
    StatusView, WorkerList,
};

use super::define::{access, define_operations, given, method, query_parameters};

query_parameters! {
    /// The query of [`ListDecisions`].
    pub struct DecisionQuery {
        /// The most decisions to return; 50 if absent.
        pub limit: Option<u32> = Kind::ROWS,
    }
}

query_parameters! {
    /// The query of [`GetHistory`]. Without any of these, the answer is what the scheduler of this daemon's machine has learnt from
    /// all jobs that ended there. With one, it is counted from the jobs that the store keeps.
    pub struct HistoryWindow {
        /// Only jobs that ended at this time or later.
        pub since: Option<Timestamp> = Kind::Time,
        /// Only jobs that ended before this time.
        pub until: Option<Timestamp> = Kind::Time,
        /// Only jobs that ran on this machine.
        pub node_id: Option<NodeId> = Kind::Name,
    }
}

query_parameters! {
    /// The query of [`ListLoad`].
    pub struct LoadWindow {
        /// Measurements since this time.
        pub since: Option<Timestamp> = Kind::Time,
        /// Each measurement, or averages by the minute, which go back further.
        pub by: Option<LoadStep> = Kind::OneOf(&["sample", "minute"]),
        /// The most measurements to return, the newest; 500 if absent.
        pub limit: Option<u32> = Kind::Number(1, 2000),
    }
}

query_parameters! {
    /// The query of [`ListLoadHours`].
    pub struct HourWindow {
        /// Measurements since this time.
        pub since: Option<Timestamp> = Kind::Time,
    }
}

query_parameters! {
    /// The query of [`ListWorkers`].
    pub struct WorkerQuery {
        /// Only this addon's workers.
        pub addon_id: Option<AddonId> = Kind::Name,
    }
}

/// The resolution of load measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadStep {
    /// Each measurement.
    #[default]
    Sample,
    /// Averages by the minute.
    Minute,
}

impl fmt::Display for LoadStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sample => "sample",
            Self::Minute => "minute",
        })
    }
}

impl FromStr for LoadStep {
    type Err = FieldError;

    fn from_str(text: &str) -> Result<Self, FieldError> {
        match text {
            "sample" => Ok(Self::Sample),
            "minute" => Ok(Self::Minute),
            _ => Err(FieldError::new("by", "write sample or minute")),
        }
    }
}

/// The entries; see [`operations`](super).
#[doc(hidden)]
#[macro_export]
macro_rules! observing_operations {
    ($read:ident) => {
        $read! {
            base: "/api/system/scheduler";
            STATUS = "/status" {
                /// Returns the state of nodes, addons and queues.
                get get_status: GetStatus {
                    scope: Read,
                    answer: Answer<StatusView> = "Nodes, addons, counts.",
                    client: status,
                }
            }
            STATS = "/stats" {
                /// Returns counts and histograms since the daemon's start.
                get get_stats: GetStats {
                    scope: Admin,
                    answer: Answer<StatsView> = "The statistics.",
                    client: stats,
                }
            }
            HISTORY = "/history" {
                /// Returns statistics of ended jobs, by addon and job type.
                get get_history: GetHistory {
                    scope: Read,
                    query: HistoryWindow,
                    answer: Answer<HistoryList> = "How jobs did, in the window and on the machine that were asked for.",
                }
            }
            DECISIONS = "/decisions" {
                /// Lists the last scheduling decisions.
                get list_decisions: ListDecisions {
                    scope: Read,
                    query: DecisionQuery,
                    answer: Answer<DecisionList> = "The decisions, newest first.",
                }
            }
            LOAD = "/load" {
                /// Lists measurements of the node's load.
                get list_load: ListLoad {
                    scope: Read,
                    query: LoadWindow,
                    answer: Answer<LoadList> = "The measurements, oldest first.",
                }
            }
            LOAD_HOURS = "/load/hours" {
                /// Lists how busy the node was, by the hour, for the last four weeks at most.
                get list_load_hours: ListLoadHours {
                    scope: Read,
                    query: HourWindow,
                    answer: Answer<LoadHours> = "The hours, oldest first.",
                }
            }
            WORKERS = "/workers" {
                /// Lists workers.
                get list_workers: ListWorkers {
                    scope: Read,
                    query: WorkerQuery,
                    answer: Answer<WorkerList> = "The workers, as they reported last.",
                }
            }
        }
    };
}

observing_operations!(define_operations);
