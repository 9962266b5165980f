//! Where the durable queue keeps its jobs.
//!
//! A [`Store`] runs the queue's commands in transactions: the rules are those of `jobtree_queue`, written once in
//! `execute`, and a backend only reads and writes records. An answer comes when its effects are durable.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use jobtree_protocol::{JobState, Limits, SubmitRequest};
//! use jobtree_queue::Now;
//! use jobtree_store::{Stamp, Store, Submission};
//!
//! let store = Store::in_memory();
//! let stamp = Stamp {
//!     now: Now { wall: jiff::Timestamp::now(), mono: Duration::ZERO },
//!     roll: 0,
//!     rules: Arc::default(),
//! };
//! let intent = SubmitRequest::new("visuals", "indexing", 30).validate(&Limits::default()).unwrap();
//! let answer = store.submit(stamp, Submission::new(intent)).wait()?;
//! assert_eq!(answer.state, JobState::Queued);
//! # Ok::<(), jobtree_store::StoreError>(())
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod audit;
mod backend;
mod backup;
mod bell;
mod cache;
pub mod conformance;
mod disk_numbers;
mod error;
mod execute;
mod ids;
mod inspect;
mod logs;
mod memory;
mod moving;
mod needs;
mod numbers;
pub mod outbox;
#[cfg(feature = "postgres")]
mod postgres;
mod search;
mod sqlite;
mod store;
mod stream;
mod tables;
mod writer;

pub use answer::Answer;
pub use audit::{AuditReport, Audited, audit};
pub use backend::{
    Backend, Hint, HintListener, Listen, Listener, Listening, Query, Submissions, Work, Written,
};
pub use backup::BackupDone;
pub use bell::Bell;
pub use error::{OpenError, StoreError};
pub use execute::{Firing, Stamp, Submission};
pub use inspect::Inspected;
pub use logs::{LogChunk, LogEnd, ReadLogs, WriteLogs, read_log};
pub use memory::{Memory, MemoryImage};
pub use moving::{Fired, MoveError, Moved, ReadAll, TakeIn, move_store};
pub use needs::{Name, Needs};
pub use numbers::{Histogram, StoreNumbers};
#[cfg(feature = "postgres")]
pub use postgres::PostgresOptions;
pub use sqlite::SqliteOptions;
#[doc(hidden)]
pub use sqlite::plans;
pub use store::{Store, Told, Usage};
pub use tables::{
    Count, Page, Pause, Pruned, Reading, Recorded, Retention, ScheduleRecord, Tables,
};
