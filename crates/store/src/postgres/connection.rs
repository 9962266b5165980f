//! A connection that a thread of its own uses: calls block that thread, and no other.
//!
//! The connection's task is driven by the thread's own small runtime while it waits for an answer, so there is nothing
//! to be shared and no executor that a user would have to bring. Statements that do not depend on each other's answers
//! are sent together ([`Connection::pipeline`]): they cost one round trip, however many they are. A transaction may also be
//! begun behind the commit of the one before ([`Connection::send`]), so that the server never waits for this process.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
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
    parameters: Vec<Box<dyn ToSql + Send + Sync>>,
}

impl Call {
    pub(crate) fn new(sql: &'static str) -> Self {
        Self {
            sql,
            parameters: Vec::new(),
        }
    }

    /// Adds the next parameter.
    pub(crate) fn with(mut self, parameter: impl ToSql + Send + Sync + 'static) -> Self {
        self.parameters.push(Box::new(parameter));
        self
    }
}

/// Requests that were sent and whose answers come next, to be given to [`Connection::receive`].
pub(super) struct Sent {
    count: usize,
    begins: bool,
    ends: bool,
}

/// A connection, or the wish to have one: it is made when it is needed, again after it was lost.
pub(crate) struct Connection {
    runtime: Runtime,
    target: Target,
    /// What is said first on each connection.
    greeting: &'static str,
    client: Option<Arc<Client>>,
    /// Requests whose answers were not taken yet, in the order in which they were sent.
    sent: VecDeque<Reply>,
    /// By their texts, which are constants.
    prepared: HashMap<&'static str, Statement>,
    /// A statement failed, so the transaction can only be undone.
    failed: bool,
}

type Answered = std::result::Result<Vec<Row>, tokio_postgres::Error>;

/// A request that was sent, or its answer.
enum Reply {
    Pending(Pin<Box<dyn Future<Output = Answered> + Send>>),
    Came(Answered),
}

impl Reply {
    async fn answer(self) -> Answered {
        match self {
            Self::Pending(request) => request.await,
            Self::Came(answer) => answer,
        }
    }
}

/// Sends a request, and lets the connection write it: the server works on it while the next one is built.
async fn send(
    replies: &mut VecDeque<Reply>,
    request: impl Future<Output = Answered> + Send + 'static,
) {
    let mut request: Pin<Box<dyn Future<Output = Answered> + Send>> = Box::pin(request);
    let first = std::future::poll_fn(|context| Poll::Ready(request.as_mut().poll(context))).await;
    replies.push_back(match first {
        Poll::Ready(answer) => Reply::Came(answer),
        Poll::Pending => Reply::Pending(request),
    });
    tokio::task::yield_now().await;
}

async fn simple(client: Arc<Client>, sql: &'static str) -> Answered {
    client.batch_execute(sql).await.map(|()| Vec::new())
}

async fn call(client: Arc<Client>, statement: Statement, call: Call) -> Answered {
    let parameters: Vec<Parameter<'_>> = call.parameters.iter().map(|it| &**it as _).collect();
    client.query(&statement, &parameters).await
}

impl Connection {
    pub(super) fn new(target: Target, greeting: &'static str) -> std::io::Result<Self> {
        Ok(Self {
            runtime: Builder::new_current_thread().enable_all().build()?,
            target,
            greeting,
            client: None,
            sent: VecDeque::new(),
            prepared: HashMap::new(),
            failed: false,
        })
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Connects, unless it is connected. Returns `true` if the connection is new.
    pub(crate) fn connect(&mut self) -> Result<bool> {
        if self
            .client
            .as_ref()
            .is_some_and(|client| !client.is_closed())
        {
            return Ok(false);
        }
        self.prepared.clear();
        self.sent.clear();
        let connecting = self.target.connect();
        let (client, connection) = self.runtime.block_on(connecting).map_err(lost)?;
        self.runtime.spawn(async move {
            // Its end is seen by the client's next call.
            let _ = connection.await;
        });
        let greeted = self.runtime.block_on(client.batch_execute(self.greeting));
        greeted.map_err(|error| explain(&error))?;
        self.client = Some(Arc::new(client));
        self.failed = false;
        Ok(true)
    }

    /// Returns the number of the server's process, without a prepared statement, which poolers may not know.
    pub(super) fn server_process(&mut self) -> Result<String> {
        let client = self.client()?;
        let asking = client.simple_query("SELECT pg_backend_pid()");
        let outcome = self.runtime.block_on(asking);
        let messages = self.note(outcome)?;
        let number = messages.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(number.unwrap_or_default())
    }

    /// Returns the client of a connection on which nothing is under way. What was sent and not asked for any more, since
    /// something before it failed, is waited for: the connection reads no further while an answer waits to be taken.
    fn client(&mut self) -> Result<Arc<Client>> {
        if !self.sent.is_empty() {
            let sent = std::mem::take(&mut self.sent);
            self.runtime.block_on(async {
                for reply in sent {
                    drop(reply.answer().await);
                }
            });
        }
        self.client.clone().ok_or_else(not_connected)
    }

    fn note<T>(&mut self, outcome: std::result::Result<T, tokio_postgres::Error>) -> Result<T> {
        outcome.map_err(|error| {
            self.failed = true;
            explain(&error)
        })
    }

    /// Statements without parameters and answers, such as those that begin and end transactions.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<()> {
        let client = self.client()?;
        let outcome = self.runtime.block_on(client.batch_execute(sql));
        self.note(outcome)?;
        self.failed = false;
        Ok(())
    }

    fn prepare(&mut self, sql: &'static str) -> Result<()> {
        if !self.prepared.contains_key(sql) {
            let client = self.client()?;
            let outcome = self.runtime.block_on(client.prepare(sql));
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
        let client = self.client()?;
        let querying = client.query(&self.prepared[sql], parameters);
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
        let client = self.client()?;
        let executing = client.execute(&self.prepared[sql], parameters);
        let outcome = self.runtime.block_on(executing);
        self.note(outcome)
    }

    /// Sends all of it without waiting for answers, the statements that begin and end a transaction with the others, and
    /// returns the rows of each call. If one fails, so do all behind it, and the end of the transaction undoes it. The
    /// calls are taken one by one: the server works on the first while the second is built.
    pub(crate) fn pipeline(
        &mut self,
        begin: Option<&'static str>,
        calls: impl IntoIterator<Item = Call>,
        end: Option<&'static str>,
    ) -> Result<Vec<Vec<Row>>> {
        self.client()?;
        let sent = self.send(begin, calls, end)?;
        self.receive(&sent)
    }

    /// Sends all of it, behind what was sent before, and waits for no answer. It must be given to
    /// [`receive`](Self::receive) in the order in which it was sent.
    pub(super) fn send(
        &mut self,
        begin: Option<&'static str>,
        calls: impl IntoIterator<Item = Call>,
        end: Option<&'static str>,
    ) -> Result<Sent> {
        let Self {
            runtime,
            client,
            sent,
            prepared,
            ..
        } = self;
        let client = client.as_ref().ok_or_else(not_connected)?;
        let before = sent.len();
        runtime.block_on(async {
            if let Some(begin) = begin {
                send(sent, simple(Arc::clone(client), begin)).await;
            }
            for next in calls {
                let statement = match prepared.get(next.sql) {
                    Some(statement) => statement.clone(),
                    None => {
                        // The answers before are taken first: the connection reads no further while one of them waits.
                        for reply in sent.iter_mut() {
                            let pending = std::mem::replace(reply, Reply::Came(Ok(Vec::new())));
                            *reply = Reply::Came(pending.answer().await);
                        }
                        match client.prepare(next.sql).await {
                            Ok(statement) => {
                                prepared.insert(next.sql, statement.clone());
                                statement
                            }
                            Err(error) => {
                                sent.push_back(Reply::Came(Err(error)));
                                break;
                            }
                        }
                    }
                };
                send(sent, call(Arc::clone(client), statement, next)).await;
            }
            if let Some(end) = end {
                send(sent, simple(Arc::clone(client), end)).await;
            }
        });
        Ok(Sent {
            count: sent.len() - before,
            begins: begin.is_some(),
            ends: end.is_some(),
        })
    }

    /// Returns `true` if these can be sent without a word from the server in between.
    pub(super) fn are_prepared(&self, calls: &[Call]) -> bool {
        let is_open = self.client.as_ref().is_some_and(|it| !it.is_closed());
        is_open && calls.iter().all(|it| self.prepared.contains_key(it.sql))
    }

    /// Waits for the answers to what was sent first, and returns the rows of each call.
    pub(super) fn receive(&mut self, sent: &Sent) -> Result<Vec<Vec<Row>>> {
        let replies: Vec<Reply> = self.sent.drain(..sent.count.min(self.sent.len())).collect();
        let answers = self.runtime.block_on(async {
            let mut answers = Vec::with_capacity(replies.len());
            for reply in replies {
                answers.push(reply.answer().await);
            }
            answers
        });
        // The first error is the cause of those behind it.
        let answers: std::result::Result<Vec<Vec<Row>>, _> = answers.into_iter().collect();
        let mut rows = self.note(answers)?;
        if sent.ends {
            rows.pop();
            self.failed = false;
        }
        if sent.begins {
            rows.remove(0);
        }
        Ok(rows)
    }
}

fn not_connected() -> StoreError {
    StoreError::Disconnected {
        why: "there is no connection".into(),
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
