//! Whether a store's trail and its records agree, and whether all of it is possible.

use std::sync::Arc;

use jobtree_protocol::JobQuery;
use jobtree_queue::audit::{Auditor, Violation};
use jobtree_queue::{JobRecord, LeaseRecord};

use crate::error::StoreError;
use crate::store::Store;
use crate::stream::stream;
use crate::tables::{Reading, Recorded, Result};

/// Violations that are told; more are counted.
const MOST_TOLD: usize = 1000;
const ROWS: usize = 1000;
const JOBS: usize = 100;

/// How far an audit is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Audited {
    /// Events that were read.
    pub events: u64,
    /// Records of jobs that were read.
    pub jobs: u64,
    /// Violations that were found.
    pub violations: u64,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditReport {
    /// Events that were read.
    pub events: u64,
    /// Records of jobs that were compared with them.
    pub jobs: u64,
    /// The trail does not begin with the first event, so the stories of old jobs begin in the middle.
    pub pruned: bool,
    /// How many violations there are.
    pub found: u64,
    /// The first thousand of them.
    pub violations: Vec<Violation>,
}

impl AuditReport {
    /// Whether everything is as it must be.
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }
}

enum Part {
    Begin { pruned: bool },
    Events(Vec<Recorded>),
    Jobs(Vec<Arc<JobRecord>>),
    Leases(Vec<LeaseRecord>),
}

/// Reads the whole trail and all records, of one moment, while the store is in use, and checks what must always hold;
/// see [`jobtree_queue::audit`].
///
/// ```
/// use jobtree_store::{Store, audit};
/// assert!(audit(&Store::in_memory(), |_| {})?.is_clean());
/// # Ok::<(), jobtree_store::StoreError>(())
/// ```
///
/// # Errors
/// If the store cannot be read.
pub fn audit(store: &Store, mut progress: impl FnMut(Audited)) -> Result<AuditReport> {
    let mut report = AuditReport {
        events: 0,
        jobs: 0,
        pruned: false,
        found: 0,
        violations: Vec::new(),
    };
    let mut auditor = Auditor::new(false);
    let read = stream(store, produce, |part| {
        match part {
            Part::Begin { pruned } => {
                report.pruned = pruned;
                auditor = Auditor::new(pruned);
            }
            Part::Events(events) => {
                report.events += events.len() as u64;
                for recorded in events {
                    report.add(auditor.event(recorded.cursor, &recorded.event));
                }
            }
            Part::Jobs(jobs) => {
                report.jobs += jobs.len() as u64;
                for job in jobs {
                    report.add(auditor.job(&job));
                }
            }
            Part::Leases(leases) => {
                for lease in leases {
                    report.add(auditor.live_lease(&lease));
                }
            }
        }
        progress(Audited {
            events: report.events,
            jobs: report.jobs,
            violations: report.found,
        });
        Ok::<(), StoreError>(())
    });
    read?.map(|()| {
        report.add(auditor.finish());
        report
    })
}

impl AuditReport {
    fn add(&mut self, wrong: impl IntoIterator<Item = Violation>) {
        for violation in wrong {
            self.found += 1;
            if self.violations.len() < MOST_TOLD {
                self.violations.push(violation);
            }
        }
    }
}

fn produce(tables: &mut dyn Reading, give: &mut dyn FnMut(Part) -> Result<()>) -> Result<()> {
    let first = match tables.shown_events_after(0, 1)?.first() {
        Some(first) => first.cursor,
        None => tables.next_event()?,
    };
    give(Part::Begin { pruned: first > 1 })?;
    let mut cursor = 0;
    loop {
        let events = tables.shown_events_after(cursor, ROWS)?;
        let Some(last) = events.last() else { break };
        cursor = last.cursor;
        give(Part::Events(events))?;
    }
    let mut query = JobQuery::default();
    loop {
        let page = tables.list(&query, JOBS)?;
        give(Part::Jobs(page.jobs))?;
        query.after = page.next;
        if query.after.is_none() {
            break;
        }
    }
    give(Part::Leases(tables.live_leases()?))
}
