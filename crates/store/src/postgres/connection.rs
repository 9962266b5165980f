//! A connection that a thread of its own uses: calls block that thread, and nobody else.
//!
//! The connection's task is driven by the thread's own small runtime while it waits for an answer, so there is nothing
//! to be shared and no executor that a user would have to bring.

use std::collections::HashMap;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use crate::error::StoreError;
use crate::tables::Result;

pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A connection, or the wish to have one: it is made when it is needed, again after it was lost.
pub(crate) struct Connection {
    runtime: Runtime,
    config: Config,
    /// What is said first on each connection.
    greeting: &'static str,
    client: Option<Client>,
    /// By their texts, which are constants.
    prepared: HashMap<&'static str, Statement>,
    /// A statement failed, so the transaction can only be undone.
    failed: bool,
}

impl Connection {
    pub(crate) fn new(config: Config, greeting: &'static str) -> std::io::Result<Self> {
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            config,
            greeting,
            client: None,
            prepared: HashMap::new(),
            failed: false,
        })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Connects, unless it is connected.
    pub(crate) fn connect(&mut self) -> Result<()> {
        if self
            .client
            .as_ref()
            .is_some_and(|client| !client.is_closed())
        {
            return Ok(());
        }
        self.prepared.clear();
        let connecting = self.config.connect(NoTls);
        let (client, connection) = self.runtime.block_on(connecting).map_err(lost)?;
        self.runtime.spawn(async move {
            // Its end is seen by the client's next call.
            let _ = connection.await;
        });
        let greeted = self.runtime.block_on(client.batch_execute(self.greeting));
        greeted.map_err(|error| explain(&error))?;
        self.client = Some(client);
        self.failed = false;
        Ok(())
    }

    fn client(&self) -> Result<&Client> {
        self.client
            .as_ref()
            .ok_or_else(|| StoreError::Disconnected {
                why: "there is no connection".into(),
            })
    }

    fn note<T>(&mut self, outcome: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
        outcome.map_err(|error| {
            self.failed = true;
            explain(&error)
        })
    }

    /// Statements without parameters and answers, such as those that begin and end transactions.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<()> {
        let outcome = self.runtime.block_on(self.client()?.batch_execute(sql));
        self.note(outcome)?;
        self.failed = false;
        Ok(())
    }

    pub(crate) fn query(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        if !self.prepared.contains_key(sql) {
            let outcome = self.runtime.block_on(self.client()?.prepare(sql));
            let statement = self.note(outcome)?;
            self.prepared.insert(sql, statement);
        }
        let statement = self.prepared[sql].clone();
        let outcome = self
            .runtime
            .block_on(self.client()?.query(&statement, parameters));
        self.note(outcome)
    }

    /// How many rows it changed.
    pub(crate) fn change(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64> {
        if !self.prepared.contains_key(sql) {
            let outcome = self.runtime.block_on(self.client()?.prepare(sql));
            let statement = self.note(outcome)?;
            self.prepared.insert(sql, statement);
        }
        let statement = self.prepared[sql].clone();
        let outcome = self
            .runtime
            .block_on(self.client()?.execute(&statement, parameters));
        self.note(outcome)
    }
}

fn lost(error: tokio_postgres::Error) -> StoreError {
    StoreError::Disconnected {
        why: error.to_string().into(),
    }
}

/// What an error of the database means for the caller. Those that another scheduler's work caused go away when the call
/// is repeated: a deadlock, or a key or an id that was taken at the same moment and is now to be seen.
fn explain(error: &tokio_postgres::Error) -> StoreError {
    let Some(told) = error.as_db_error() else {
        return StoreError::Disconnected {
            why: error.to_string().into(),
        };
    };
    let message = told.to_string();
    match told.code().code() {
        // 25P03: this process stood still for so long that its transaction was undone.
        "40001" | "40P01" | "23505" | "25P03" => StoreError::CommitFailed {
            why: message.into(),
        },
        "53100" => StoreError::NoSpace,
        // The server is going down, or coming up.
        "57P01" | "57P02" | "57P03" => StoreError::Disconnected {
            why: message.into(),
        },
        _ => StoreError::Database { message },
    }
}
