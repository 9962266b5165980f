//! A connection that a thread of its own uses: calls block that thread, and no other.
//!
//! The connection's task is driven by the thread's own small runtime while it waits for an answer, so there is nothing
//! to be shared and no executor that a user would have to bring. Statements that do not depend on each other's answers
//! are sent together ([`Connection::pipeline`]): they cost one round trip, however many they are.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row, SimpleQueryMessage, Statement};

use super::tls::Target;
use crate::error::StoreError;
use crate::tables::Result;

pub(crate) type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A statement with its parameters, to be sent together with others.
pub(crate) struct Call {
    sql: &'static str,
    parameters: Vec<Box<dyn ToSql + Sync>>,
}

impl Call {
    pub(crate) fn new(sql: &'static str) -> Self {
        Self {
            sql,
            parameters: Vec::new(),
        }
    }

    /// Adds the next parameter.
    pub(crate) fn with(mut self, parameter: impl ToSql + Sync + 'static) -> Self {
        self.parameters.push(Box::new(parameter));
        self
    }
}

/// A connection, or the wish to have one: it is made when it is needed, again after it was lost.
pub(crate) struct Connection {
    runtime: Runtime,
    target: Target,
    /// What is said first on each connection.
    greeting: &'static str,
    client: Option<Client>,
    /// By their texts, which are constants.
    prepared: HashMap<&'static str, Statement>,
    /// A statement failed, so the transaction can only be undone.
    failed: bool,
}

type Reply<'a> = Pin<Box<dyn Future<Output = Answered> + 'a>>;
type Answered = std::result::Result<Vec<Row>, tokio_postgres::Error>;

/// Waits for all replies. Each is polled before the first has come, in their order: so all requests are on their way.
async fn all(replies: Vec<Reply<'_>>) -> Vec<Answered> {
    let mut waiting: Vec<(Option<Reply<'_>>, Option<Answered>)> = replies
        .into_iter()
        .map(|reply| (Some(reply), None))
        .collect();
    std::future::poll_fn(move |context| {
        let mut all_came = true;
        for (reply, answer) in &mut waiting {
            let Some(pending) = reply else { continue };
            match pending.as_mut().poll(context) {
                Poll::Ready(came) => {
                    *answer = Some(came);
                    *reply = None;
                }
                Poll::Pending => all_came = false,
            }
        }
        if !all_came {
            return Poll::Pending;
        }
        let answers = waiting.drain(..).filter_map(|(_, answer)| answer);
        Poll::Ready(answers.collect())
    })
    .await
}

impl Connection {
    pub(super) fn new(target: Target, greeting: &'static str) -> std::io::Result<Self> {
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            target,
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
        let connecting = self.target.connect();
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

    /// Returns the number of the server's process, without a prepared statement, which poolers may not know.
    pub(super) fn server_process(&mut self) -> Result<String> {
        let asking = self.client()?.simple_query("SELECT pg_backend_pid()");
        let outcome = self.runtime.block_on(asking);
        let messages = self.note(outcome)?;
        let number = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(number.unwrap_or_default())
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

    fn prepare(&mut self, sql: &'static str) -> Result<()> {
        if !self.prepared.contains_key(sql) {
            let outcome = self.runtime.block_on(self.client()?.prepare(sql));
            let statement = self.note(outcome)?;
            self.prepared.insert(sql, statement);
        }
        Ok(())
    }

    pub(crate) fn query(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>> {
        self.prepare(sql)?;
        let querying = self.client()?.query(&self.prepared[sql], parameters);
        let outcome = self.runtime.block_on(querying);
        self.note(outcome)
    }

    /// How many rows it changed.
    pub(crate) fn change(
        &mut self,
        sql: &'static str,
        parameters: &[Parameter<'_>],
    ) -> Result<u64> {
        self.prepare(sql)?;
        let executing = self.client()?.execute(&self.prepared[sql], parameters);
        let outcome = self.runtime.block_on(executing);
        self.note(outcome)
    }

    /// Sends all of it at once, the statements that begin and end a transaction with the others, and returns the rows of
    /// each call. If one fails, so do all behind it, and the end of the transaction undoes it.
    pub(crate) fn pipeline(
        &mut self,
        begin: Option<&'static str>,
        calls: &[Call],
        end: Option<&'static str>,
    ) -> Result<Vec<Vec<Row>>> {
        for call in calls {
            self.prepare(call.sql)?;
        }
        let client = self.client()?;
        let simple = |sql: &'static str| -> Reply<'_> {
            Box::pin(async move { client.batch_execute(sql).await.map(|()| Vec::new()) })
        };
        let parameters: Vec<Vec<Parameter<'_>>> = calls
            .iter()
            .map(|call| call.parameters.iter().map(|it| &**it as _).collect())
            .collect();
        let mut replies: Vec<Reply<'_>> = Vec::with_capacity(calls.len() + 2);
        replies.extend(begin.map(simple));
        for (call, parameters) in calls.iter().zip(&parameters) {
            let statement = &self.prepared[call.sql];
            replies.push(Box::pin(client.query(statement, parameters)));
        }
        replies.extend(end.map(simple));
        let answers = self.runtime.block_on(all(replies));
        let answers: std::result::Result<Vec<Vec<Row>>, _> = answers.into_iter().collect();
        let mut rows = self.note(answers)?;
        if end.is_some() {
            rows.pop();
            self.failed = false;
        }
        if begin.is_some() {
            rows.remove(0);
        }
        Ok(rows)
    }
}

fn lost(error: tokio_postgres::Error) -> StoreError {
    StoreError::Disconnected {
        why: error.to_string().into(),
    }
}

/// What an error of the database means for the caller. Those that another scheduler's work caused go away when the
/// transaction is repeated: a deadlock, or a key or an id that was taken at the same moment and is now to be seen.
fn explain(error: &tokio_postgres::Error) -> StoreError {
    let Some(told) = error.as_db_error() else {
        return StoreError::Disconnected {
            why: error.to_string().into(),
        };
    };
    let message = told.message().to_owned();
    match told.code().code() {
        "40001" | "40P01" | "55P03" | "23505" => StoreError::CommitFailed {
            why: "another scheduler wrote the same records at the same time".into(),
        },
        "25P03" => StoreError::CommitFailed {
            why: "this process stood still for so long that the database ended its transaction"
                .into(),
        },
        "53100" => StoreError::NoSpace,
        // The server is going down, or coming up.
        "57P01" | "57P02" | "57P03" => StoreError::Disconnected {
            why: message.into(),
        },
        _ => StoreError::Database { message },
    }
}
