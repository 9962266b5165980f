//! The queue in a PostgreSQL database, shared by the schedulers of several machines.
//!
//! Each process has one connection that writes, in groups as the SQLite backend does, and some that read. What keeps
//! several processes from stepping on each other:
//!
//! - Whatever a command reads to decide by is locked until its commit, in one order for all processes; see `locking`.
//! - Events of different processes get their places in one order and are committed in another one. Readers know how far
//!   the trail is whole; see `events`.
//! - Time is the database's, since the machines' clocks differ.
//! - A process that stands still in the middle of a transaction, or whose machine is gone, holds up the others for some
//!   seconds only: then the database undoes the transaction.
//!
//! Listeners hear of this process's own commits only. What others commit is hinted at; see `hints`.

mod connection;
mod events;
mod flush;
mod hints;
mod late_locks;
mod locking;
mod logs;
mod moving;
mod names;
mod overlay;
mod password_file;
mod pruned;
mod reading;
mod submissions;
mod tables;
mod tls;

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use connection::Connection;
use hints::Hints;
use tables::PgTables;
use tls::Target;

use crate::backend::{Backend, HintListener, Listen, Listeners, Query, Submissions, Work};
use crate::error::{OpenError, StoreError};
use crate::inspect::Inspected;
use crate::moving::MOVING;
use crate::writer::{Bounds, Ledger, Writer};

/// How a store on PostgreSQL is opened.
///
/// ```
/// use jobtree_store::PostgresOptions;
/// let options = PostgresOptions::new("host=localhost user=jobtree dbname=jobs").readers(4);
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    url: String,
    readers: usize,
    max_waiting: usize,
    max_group: usize,
    database_time: bool,
    hints: bool,
    node: Option<String>,
}

impl PostgresOptions {
    /// The database that this connection string names. Its tables are made if they are missing.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            readers: 2,
            max_waiting: 16_384,
            max_group: 1024,
            database_time: true,
            hints: true,
            node: None,
        }
    }

    /// How many connections answer queries.
    pub fn readers(mut self, connections: usize) -> Self {
        self.readers = connections.max(1);
        self
    }

    /// How many calls may wait; one more is refused as overloaded.
    pub fn max_waiting(mut self, calls: usize) -> Self {
        self.max_waiting = calls.max(1);
        self
    }

    /// The name of the scheduler that uses the store: opening fails if another one that is connected has it. Without hints,
    /// names are not compared.
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.node = Some(name.into());
        self
    }

    /// Neither tells others of what is written here, nor hears of what they write. Hints need a connection of their own
    /// on which LISTEN works, and a pooler between may not give one. Without them, what others write is found a few
    /// seconds later.
    pub fn without_hints(mut self) -> Self {
        self.hints = false;
        self
    }

    /// Goes by the callers' time instead of the database's: for tests that let days pass, and never for several
    /// machines.
    pub fn callers_time(mut self) -> Self {
        self.database_time = false;
        self
    }
}

/// An open database.
pub(crate) struct Postgres {
    queries: Option<SyncSender<Box<dyn Query>>>,
    threads: Vec<JoinHandle<()>>,
    writer: Writer,
    /// Dropped after the writer, whose last commits it tells of.
    hints: Option<Hints>,
    listeners: Arc<Listeners>,
    max_waiting: usize,
    target: Target,
}

/// Step `n` leads from version `n` to version `n + 1`. Steps are never changed once released; new ones are added. A step that
/// older programs cannot live with sets `oldest`: then daemons cannot be replaced one after the other.
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("migration_2.sql"),
    include_str!("migration_3.sql"),
    include_str!("migration_4.sql"),
    include_str!("migration_5.sql"),
    include_str!("migration_6.sql"),
];
const VERSION: i32 = STEPS.len() as i32;
/// How long the first try of a migration waits for each lock: less than the second after which the database looks for
/// deadlocks, so that no writer is its victim. Later tries wait for longer, since the database's own maintenance gives way
/// to a lock after that second.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);
/// How long a migration is tried.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(60);
/// For the connection that writes. Others wait for its locks, so it may not stand still. Its statements look up rows by
/// arrays of keys, and one plan is right for all of them: to go through an index. A plan that was made when a table was
/// empty would read all of it for ever.
const WRITER: &str = "SET idle_in_transaction_session_timeout = '3s'; SET plan_cache_mode = force_generic_plan; \
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off";
/// How long a server may be silent to a connection before it is given up, where the system can tell.
const SILENT: Duration = Duration::from_secs(15);

/// Where the user said nothing of it, a server whose machine is gone is noticed within some seconds.
fn impatient(config: &mut tokio_postgres::Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(SILENT / 3);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENT);
    }
    if config.get_keepalives_idle() > SILENT {
        config.keepalives_idle(SILENT);
    }
}

/// Refuses a pooler that gives each transaction another connection: two of ours that are open at once are one of the
/// server's, which no server does.
fn refuse_poolers(target: &Target) -> Result<(), OpenError> {
    let failed = |error: StoreError| OpenError::Database(error.to_string());
    let mut both = [
        Connection::new(target.clone(), "")?,
        Connection::new(target.clone(), "")?,
    ];
    let mut servers = Vec::new();
    for connection in &mut both {
        connection.connect().map_err(failed)?;
        servers.push(connection.server_process().map_err(failed)?);
    }
    if servers[0] == servers[1] {
        return Err(OpenError::Pooled);
    }
    Ok(())
}

/// Returns what is in the database, and changes nothing.
pub(crate) fn inspect(options: &PostgresOptions) -> Result<Inspected, OpenError> {
    let failed = |error: StoreError| OpenError::Database(error.to_string());
    let mut target = Target::of(&options.url)?;
    password_file::fill_in(&mut target.config)?;
    impatient(&mut target.config);
    let mut connection = Connection::new(target, "")?;
    connection.connect().map_err(failed)?;
    let mut number = |sql: &'static str| -> Result<Option<i32>, OpenError> {
        let rows = connection.query(sql, &[]).map_err(failed)?;
        Ok(rows.first().map(|row| row.get(0)))
    };
    let exists = number("SELECT 1 WHERE to_regclass('scheduler_version') IS NOT NULL")?;
    let Some(version) = exists
        .map(|_| number("SELECT version FROM scheduler_version"))
        .transpose()?
        .flatten()
    else {
        return Ok(Inspected::Missing);
    };
    let (found, known) = (version.into(), VERSION.into());
    if version > VERSION {
        let oldest = number("SELECT oldest FROM scheduler_version")?;
        if oldest.is_some_and(|oldest| oldest > VERSION) {
            return Err(OpenError::Newer { found, known });
        }
    }
    Ok(Inspected::Sound {
        version: found,
        newest: known,
        whole: true,
    })
}

/// Makes the tables, or brings them to the newest version, if they are ours and not too new. Several processes may try at once. Gives the name of
/// the channel for hints, which all who use these tables share.
///
/// A migration locks whole tables, one after the other, while older daemons may be writing to them in another order. So it
/// waits for each lock for a short time only, and if it gets none, gives up those that it has, lets the writers pass, and
/// tries again. To wait for longer would stop all writers meanwhile, and some waits have no end: where a writer waits for a
/// table that the migration has.
fn prepare(connection: &mut Connection) -> Result<String, OpenError> {
    let begun = Instant::now();
    let mut patience = FIRST_PATIENCE;
    loop {
        if let Some(channel) = try_to_prepare(connection, patience)? {
            return Ok(channel);
        }
        if begun.elapsed() > MIGRATION_PATIENCE {
            return Err(OpenError::Locked {
                version: VERSION.into(),
            });
        }
        std::thread::sleep(FIRST_PATIENCE);
        patience = (patience * 2).min(LONGEST_PATIENCE);
    }
}

/// Does what [`prepare`] says, or returns `None` if a lock was not to be had in this time.
fn try_to_prepare(
    connection: &mut Connection,
    patience: Duration,
) -> Result<Option<String>, OpenError> {
    let failed = |error: StoreError| OpenError::Database(error.to_string());
    connection.connect().map_err(failed)?;
    // Any number, as long as all take the same.
    connection
        .execute("BEGIN; SELECT pg_advisory_xact_lock(7306086967000000001)")
        .map_err(failed)?;
    let exists = connection
        .query("SELECT to_regclass('scheduler_version') IS NOT NULL", &[])
        .map_err(failed)?;
    let mut version = 0;
    if exists[0].get::<_, bool>(0) {
        let found: i32 = connection
            .query("SELECT version FROM scheduler_version", &[])
            .map_err(failed)?[0]
            .get(0);
        if found > VERSION {
            // A newer program says which older ones understand its tables.
            let oldest: i32 = connection
                .query("SELECT oldest FROM scheduler_version", &[])
                .map_err(failed)?[0]
                .get(0);
            if oldest > VERSION {
                return Err(OpenError::Newer {
                    found: found.into(),
                    known: VERSION.into(),
                });
            }
        }
        let half = connection
            .query("SELECT 1 FROM scheduler_notes WHERE name = $1", &[&MOVING])
            .map_err(failed)?;
        if !half.is_empty() {
            return Err(OpenError::HalfMoved);
        }
        version = found.max(0);
    }
    let steps = STEPS.iter().skip(version as usize);
    if steps.len() > 0 {
        let limit = format!("SET LOCAL lock_timeout = {}", patience.as_millis());
        connection.execute(&limit).map_err(failed)?;
    }
    for step in steps {
        match connection.execute(step) {
            Ok(()) => {}
            Err(StoreError::CommitFailed { .. }) => {
                connection.execute("ROLLBACK").map_err(failed)?;
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        }
    }
    // A database may hold several queues, each in a schema of its own.
    let table = connection
        .query("SELECT 'scheduler_version'::regclass::oid", &[])
        .map_err(failed)?[0]
        .get::<_, u32>(0);
    connection.execute("COMMIT").map_err(failed)?;
    Ok(Some(format!("jobtree_{table}")))
}

impl Postgres {
    pub(crate) fn open(options: &PostgresOptions) -> Result<Self, OpenError> {
        let mut target = Target::of(&options.url)?;
        target.config.application_name("jobtree");
        password_file::fill_in(&mut target.config)?;
        impatient(&mut target.config);
        refuse_poolers(&target)?;
        let channel = prepare(&mut Connection::new(target.clone(), "")?)?;

        let database_time = options.database_time;
        let (sender, receiver) = sync_channel(options.max_waiting);
        let receiver = Arc::new(Mutex::new(receiver));
        let threads = (0..options.readers)
            .map(|_| {
                let receiver = Arc::clone(&receiver);
                let connection = Connection::new(target.clone(), "")?;
                std::thread::Builder::new()
                    .name("jobtree-reader".to_owned())
                    .spawn(move || answer_all(PgTables::new(connection, database_time), &receiver))
            })
            .collect::<std::io::Result<_>>()?;
        let bounds = Bounds {
            max_waiting: options.max_waiting,
            max_group: options.max_group,
        };
        let listeners = Arc::new(Listeners::default());
        let (hints, outgoing) = if options.hints {
            let (hints, outgoing) = Hints::start(target.clone(), channel, options.node.clone())?;
            (Some(hints), Some(outgoing))
        } else {
            (None, None)
        };
        let connection = Connection::new(target.clone(), WRITER)?;
        let make = move || PgTables::new(connection, database_time).telling(outgoing);
        let writer = Writer::start(make, bounds, Arc::clone(&listeners))?;
        Ok(Self {
            queries: Some(sender),
            threads,
            writer,
            hints,
            listeners,
            max_waiting: options.max_waiting,
            target,
        })
    }
}

fn answer_all(mut tables: PgTables, queries: &Mutex<Receiver<Box<dyn Query>>>) {
    loop {
        // The lock is held while waiting for a query, not while it runs.
        let next = queries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        let Ok(query) = next else { return };
        match tables.begin_snapshot() {
            Err(error) => query.refuse(error),
            Ok(()) => query.ask(&mut tables),
        }
        // It only read; if this fails, the connection is made anew.
        let _ = tables.execute("ROLLBACK");
    }
}

impl Backend for Postgres {
    fn transact(&self, work: Box<dyn Work>) {
        self.writer.transact(work);
    }

    fn snapshot(&self, query: Box<dyn Query>) {
        let sender = self.queries.as_ref().expect("only taken by drop");
        match sender.try_send(query) {
            Ok(()) => {}
            Err(TrySendError::Full(query)) => query.refuse(StoreError::Overloaded {
                waiting: self.max_waiting,
            }),
            Err(TrySendError::Disconnected(query)) => query.refuse(StoreError::closed()),
        }
    }

    fn listen(&self, listener: Weak<Listen>) {
        self.listeners.add(listener);
    }

    fn hints(&self, listener: HintListener) {
        if let Some(hints) = &self.hints {
            hints.listen(listener);
        }
    }

    fn submissions(&self) -> Option<Box<dyn Submissions>> {
        let connection = Connection::new(self.target.clone(), submissions::GREETING).ok()?;
        Some(Box::new(submissions::PgSubmissions::new(connection)))
    }

    fn stopped(&self) -> Option<StoreError> {
        self.writer.stopped()
    }

    fn trouble(&self) -> Option<StoreError> {
        self.writer.trouble()
    }

    fn numbers(&self) -> crate::StoreNumbers {
        self.writer.numbers()
    }

    fn backup(&self, _: &std::path::Path) -> Result<crate::BackupDone, StoreError> {
        Err(StoreError::NoBackup {
            why: "this store is in PostgreSQL; use pg_dump, which copies it while it is in use"
                .to_owned(),
        })
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.queries.take());
        for thread in self.threads.drain(..) {
            // A query that panicked was answered as stopped; there is nobody else to tell.
            let _ = thread.join();
        }
    }
}
