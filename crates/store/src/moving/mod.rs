//! Moving everything from one store to another, whatever is behind them: the same jobs, leases, keys, events, logs,
//! schedules, firings, pauses and notes under the same ids, and events at the same places, so that whoever followed the
//! old store goes on in the new one.
//!
//! - The source is read in one snapshot, by a thread that hands over page after page, so memory stays small; what is
//!   remembered of all of it is the place of each job's last event.
//! - The source must not be in use. That the handle given here is the only one of this process is checked; a SQLite file
//!   that is open here is locked against every other process; and whether an event was added while it was read, by
//!   another machine on the same PostgreSQL, is looked at before the end.
//! - The target must be empty, which is checked in the transaction that notes that a move has begun. That note is taken
//!   away in the last transaction, with which the target becomes usable: while it is there, nobody can open the store.
//!   A move that did not come to its end is begun anew, in a new file or after the tables were dropped.

mod produce;
mod taking;

use std::fmt;
use std::sync::Arc;

use jobtree_protocol::Json;
use jobtree_queue::Now;
use jobtree_queue::transitions::Changes;

use crate::error::StoreError;
use crate::ids::IdMap;
use crate::store::Store;
use crate::stream::stream;
use crate::tables::{Reading, Result, Tables};
use produce::{Part, produce};
pub use taking::{Fired, ReadAll, TakeIn};

/// While this note is there, the store is half of another.
pub(crate) const MOVING: &str = "store/moving";

/// Notes that a backend writes for itself.
pub(crate) const PRUNED_EVENTS: &str = "events/pruned";

/// How much was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Jobs, ended ones included.
    pub jobs: u64,
    /// Events.
    pub events: u64,
    /// Leases, ended ones included.
    pub leases: u64,
    /// Idempotency keys.
    pub keys: u64,
    /// Jobs with a log.
    pub logs: u64,
    /// Schedules.
    pub schedules: u64,
    /// Firings of schedules that are remembered.
    pub firings: u64,
    /// Pauses.
    pub pauses: u64,
    /// Notes.
    pub notes: u64,
}

/// Why a store was not moved.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum MoveError {
    /// Both are the same store.
    SameStore,
    /// Somebody else in this process uses the source or the target.
    InUse {
        /// Which: "source" or "target".
        which: &'static str,
    },
    /// The target has something in it. Nothing was written.
    NotEmpty,
    /// An earlier move into the target, or into the source, did not come to its end. Nothing was written.
    HalfMoved,
    /// The source was changed while it was read. The target is not usable.
    SourceChanged,
    /// The source cannot be read. The target is not usable.
    Source(StoreError),
    /// The target cannot be written, and is not usable.
    Target(StoreError),
}

impl fmt::Display for MoveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameStore => f.write_str("source and target are the same store: name another target"),
            Self::InUse { which } => write!(
                f,
                "the {which} is in use by this process: stop what uses it, and move it then"
            ),
            Self::NotEmpty => f.write_str("the target is not empty, and was not touched: name a new one"),
            Self::HalfMoved => f.write_str(
                "an earlier move did not come to its end: delete its target (the file, or the tables whose names begin \
                 with scheduler_), and move to a new one",
            ),
            Self::SourceChanged => f.write_str(
                "the source was changed while it was read: stop all that use it, delete the target, and move again",
            ),
            Self::Source(error) => write!(
                f,
                "the source could not be read; delete the target before another try: {error}"
            ),
            Self::Target(error) => write!(
                f,
                "the target could not be written; delete it before another try: {error}"
            ),
        }
    }
}

impl std::error::Error for MoveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Source(error) | Self::Target(error) => Some(error),
            _ => None,
        }
    }
}

/// Moves everything from one store to another, which must be empty. The source stays as it is.
///
/// `progress` is told how much was moved, again and again.
///
/// ```
/// use jobtree_store::{Store, move_store};
/// let (from, to) = (Store::in_memory(), Store::in_memory());
/// let moved = move_store(&from, &to, |_| {})?;
/// assert_eq!(moved.jobs, 0);
/// # Ok::<(), jobtree_store::MoveError>(())
/// ```
///
/// # Errors
/// If one of them is in use, the target is not empty, or one of them fails; see [`MoveError`].
pub fn move_store(
    from: &Store,
    to: &Store,
    mut progress: impl FnMut(Moved),
) -> std::result::Result<Moved, MoveError> {
    if Arc::ptr_eq(&from.backend(), &to.backend()) {
        return Err(MoveError::SameStore);
    }
    for (store, which) in [(from, "source"), (to, "target")] {
        if store.handles() > 1 {
            return Err(MoveError::InUse { which });
        }
    }
    begin(from, to)?;
    let (mut mover, mut last) = (Mover::default(), None);
    let read = stream(from, produce, |part| {
        if matches!(part, Part::Last { .. }) {
            last = Some(part);
            return Ok(());
        }
        mover = write(to, std::mem::take(&mut mover), part)?;
        progress(mover.moved);
        Ok(())
    })?;
    read.map_err(MoveError::Source)?;
    let last = last.ok_or(MoveError::Source(StoreError::closed()))?;
    let moved = finish(from, to, mover, last)?;
    progress(moved);
    Ok(moved)
}

/// Notes that a move has begun, if both are fit for it.
fn begin(from: &Store, to: &Store) -> std::result::Result<(), MoveError> {
    let half = from.read(|tables| tables.note(MOVING)).wait();
    if half.map_err(MoveError::Source)?.is_some() {
        return Err(MoveError::HalfMoved);
    }
    let begun = to.transact(|tables| {
        if tables.note(MOVING)?.is_some() {
            return Ok(Err(MoveError::HalfMoved));
        }
        if !is_empty(tables)? {
            return Ok(Err(MoveError::NotEmpty));
        }
        let note = Json::of(&true).expect("a JSON text");
        tables.put_note(MOVING, Some(&note)).map(Ok)
    });
    begun.wait().map_err(MoveError::Target)?
}

fn is_empty(tables: &mut dyn Tables) -> Result<bool> {
    Ok(tables.next_event()? == 1
        && tables.list(&Default::default(), 1)?.jobs.is_empty()
        && tables.all_leases(None, 1)?.is_empty()
        && tables.all_keys(None, 1)?.is_empty()
        && tables.schedules()?.is_empty()
        && tables.all_firings(None, 1)?.is_empty()
        && tables.pauses()?.is_empty()
        && tables.notes("")?.is_empty())
}

/// What is known while parts are taken.
#[derive(Default)]
struct Mover {
    moved: Moved,
    /// Each job's last event so far.
    last_events: IdMap<jobtree_protocol::JobId, u64>,
}

/// Writes a part in a transaction of its own.
fn write(to: &Store, mover: Mover, part: Part) -> std::result::Result<Mover, MoveError> {
    let written = to.transact(move |tables| {
        let mut mover = mover;
        mover.take(tables, part)?;
        Ok(mover)
    });
    written.wait().map_err(MoveError::Target)
}

/// Writes the last part, with which the target becomes usable, if the source is as it was.
fn finish(
    from: &Store,
    to: &Store,
    mover: Mover,
    last: Part,
) -> std::result::Result<Moved, MoveError> {
    if let Part::Last { next_event, .. } = &last {
        let now = from.read(|tables| tables.next_event()).wait();
        if now.map_err(MoveError::Source)? != *next_event {
            return Err(MoveError::SourceChanged);
        }
    }
    write(to, mover, last).map(|mover| mover.moved)
}

impl Mover {
    fn take(&mut self, tables: &mut dyn Tables, part: Part) -> Result<()> {
        let moved = &mut self.moved;
        match part {
            Part::Events(events) => {
                moved.events += events.len() as u64;
                let mut chained = Vec::with_capacity(events.len());
                for recorded in events {
                    let last = &mut self.last_events;
                    let previous = recorded
                        .event
                        .job_id
                        .and_then(|job| last.insert(job, recorded.cursor));
                    chained.push((recorded, previous));
                }
                tables.take_in_events(&chained)
            }
            Part::Jobs(jobs) => {
                moved.jobs += jobs.len() as u64;
                let last = |job: &jobtree_queue::JobRecord| self.last_events.get(&job.id).copied();
                let jobs: Vec<_> = jobs.into_iter().map(|job| (last(&job), job)).collect();
                tables.take_in_jobs(&jobs)
            }
            Part::Leases(leases) => {
                moved.leases += leases.len() as u64;
                put(
                    tables,
                    Changes {
                        leases,
                        ..Changes::default()
                    },
                )
            }
            Part::Keys(keys) => {
                moved.keys += keys.len() as u64;
                put(
                    tables,
                    Changes {
                        keys,
                        ..Changes::default()
                    },
                )
            }
            Part::Firings(firings) => {
                moved.firings += firings.len() as u64;
                for fired in firings {
                    tables.fire(fired.schedule_id, fired.at, fired.job_id)?;
                }
                Ok(())
            }
            Part::Log {
                job,
                end,
                chunks,
                is_first,
            } => {
                moved.logs += u64::from(is_first);
                tables.append_log(job, &end, &chunks)
            }
            Part::Last {
                schedules,
                pauses,
                notes,
                next_event,
            } => {
                moved.schedules += schedules.len() as u64;
                moved.pauses += pauses.len() as u64;
                moved.notes += notes.len() as u64;
                for schedule in &schedules {
                    tables.put_schedule(schedule)?;
                }
                for pause in &pauses {
                    tables.put_pause(pause)?;
                }
                for (name, value) in &notes {
                    tables.put_note(name, Some(value))?;
                }
                tables.go_on_from(next_event)?;
                tables.put_note(MOVING, None)
            }
        }
    }
}

/// Writes what needs no care. The time is for listeners, of which a store that is moved to has none.
fn put(tables: &mut dyn Tables, changes: Changes) -> Result<()> {
    let never = Now {
        wall: jiff::Timestamp::UNIX_EPOCH,
        mono: std::time::Duration::ZERO,
    };
    tables.write(changes, never)
}

/// All notes but those that a backend wrote for itself.
fn notes(tables: &mut dyn Reading) -> Result<Vec<(String, Json)>> {
    let mut notes = tables.notes("")?;
    notes.retain(|(name, _)| name != PRUNED_EVENTS && name != MOVING);
    Ok(notes)
}
