//! An outbox in somebody else's database: a job is written down in the transaction that makes it necessary.
//!
//! A program that changes its own tables and submits a job does two things that a crash can part. So it writes the job
//! into a table of its *own* database, in its own transaction; later somebody moves it into the queue. The id is drawn when
//! it is written, and is the id it has in the queue. So moving may happen twice, and has happened once:
//!
//! ```text
//! user's transaction:  change, write(job)           commit      either both or none
//! mover:               waiting()  →  submit with its id          durable in the queue, maybe again
//!                      forget(ids)                              gone from the outbox
//! ```
//!
//! A row that the queue refuses for good is [set aside](refuse) with the reason: it must hold up nobody behind it.

pub use rusqlite;

use jobtree_protocol::{JobId, SubmitRequest};
use rusqlite::{Connection, Result, params};

/// A job that waits to be moved.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting {
    /// The id that it has here and will have there.
    pub id: JobId,
    /// The submission; if it cannot be read, why.
    pub request: std::result::Result<SubmitRequest, String>,
}

/// Makes the table if it is missing. In a transaction or outside of one.
///
/// # Errors
/// Those of the database.
pub fn prepare(connection: &Connection) -> Result<()> {
    connection.execute_batch(
        "CREATE TABLE IF NOT EXISTS jobtree_outbox (
             place   INTEGER PRIMARY KEY AUTOINCREMENT,
             job_id  TEXT NOT NULL UNIQUE,
             request TEXT NOT NULL,
             refused TEXT
         ) STRICT;",
    )
}

/// Writes a job down. It exists when the transaction is committed. It has the id that the request names, or a new one.
///
/// # Errors
/// Those of the database: the table is missing (see [`prepare`]), or the id was written before.
pub fn write(transaction: &Connection, request: &SubmitRequest) -> Result<JobId> {
    let id = request.job_id.unwrap_or_else(JobId::generate);
    let request = SubmitRequest {
        job_id: Some(id),
        ..request.clone()
    };
    let text = serde_json::to_string(&request)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))?;
    let mut insert = transaction
        .prepare_cached("INSERT INTO jobtree_outbox (job_id, request) VALUES (?1, ?2)")?;
    insert.execute(params![id.to_string(), text])?;
    Ok(id)
}

/// The first so many that wait, in the order in which they were written.
///
/// # Errors
/// Those of the database.
pub fn waiting(connection: &Connection, most: usize) -> Result<Vec<Waiting>> {
    let mut select = connection.prepare_cached(
        "SELECT job_id, request FROM jobtree_outbox WHERE refused IS NULL ORDER BY place LIMIT ?1",
    )?;
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let rows = select.query_map([most], |row| {
        let id: String = row.get(0)?;
        let text: String = row.get(1)?;
        let id = id.parse().map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                0,
                rusqlite::types::Type::Text,
                Box::<dyn std::error::Error + Send + Sync>::from(format!("{error}")),
            )
        })?;
        let request = serde_json::from_str(&text).map_err(|error| error.to_string());
        Ok(Waiting { id, request })
    })?;
    rows.collect()
}

/// Forgets jobs that are in the queue.
///
/// # Errors
/// Those of the database.
pub fn forget(connection: &mut Connection, moved: &[JobId]) -> Result<()> {
    let transaction = connection.transaction()?;
    {
        let mut delete =
            transaction.prepare_cached("DELETE FROM jobtree_outbox WHERE job_id = ?1")?;
        for id in moved {
            delete.execute([id.to_string()])?;
        }
    }
    transaction.commit()
}

/// Sets a job aside that the queue will never take. It stays in the table, with the reason.
///
/// # Errors
/// Those of the database.
pub fn refuse(connection: &Connection, id: JobId, reason: &str) -> Result<()> {
    let update = "UPDATE jobtree_outbox SET refused = ?2 WHERE job_id = ?1";
    connection
        .execute(update, params![id.to_string(), reason])
        .map(drop)
}

/// Jobs that were set aside, and why.
///
/// # Errors
/// Those of the database.
pub fn refused(connection: &Connection) -> Result<Vec<(String, String)>> {
    let mut select = connection.prepare(
        "SELECT job_id, refused FROM jobtree_outbox WHERE refused IS NOT NULL ORDER BY place",
    )?;
    let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outbox() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        prepare(&connection).unwrap();
        prepare(&connection).unwrap();
        connection
    }

    fn request(job_type: &str) -> SubmitRequest {
        SubmitRequest::new("app", job_type, 1)
    }

    #[test]
    fn a_job_is_there_with_its_transaction_or_not_at_all() {
        let mut connection = outbox();
        let transaction = connection.transaction().unwrap();
        write(&transaction, &request("lost")).unwrap();
        transaction.rollback().unwrap();
        assert_eq!(waiting(&connection, 10).unwrap(), []);
        let transaction = connection.transaction().unwrap();
        let id = write(&transaction, &request("kept")).unwrap();
        transaction.commit().unwrap();
        let found = waiting(&connection, 10).unwrap();
        assert_eq!(found[0].id, id);
        let request = found[0].request.as_ref().unwrap();
        assert_eq!(
            (request.job_id, request.job_type.as_str()),
            (Some(id), "kept")
        );
    }

    #[test]
    fn in_order_and_forgotten_one_by_one() {
        let mut connection = outbox();
        let ids: Vec<JobId> = (0..5)
            .map(|number| write(&connection, &request(&format!("t{number}"))).unwrap())
            .collect();
        let first: Vec<JobId> = waiting(&connection, 3)
            .unwrap()
            .iter()
            .map(|row| row.id)
            .collect();
        assert_eq!(first, ids[..3]);
        forget(&mut connection, &ids[..2]).unwrap();
        forget(&mut connection, &ids[..2]).unwrap();
        refuse(&connection, ids[2], "too large").unwrap();
        let left: Vec<JobId> = waiting(&connection, 9)
            .unwrap()
            .iter()
            .map(|row| row.id)
            .collect();
        assert_eq!(left, ids[3..]);
        let aside = refused(&connection).unwrap();
        assert_eq!(aside, [(ids[2].to_string(), "too large".to_owned())]);
    }

    #[test]
    fn an_id_is_written_once_and_what_cannot_be_read_is_told() {
        let connection = outbox();
        let mut named = request("named");
        named.job_id = Some(JobId::generate());
        write(&connection, &named).unwrap();
        assert!(write(&connection, &named).is_err());
        connection
            .execute("UPDATE jobtree_outbox SET request = '{'", [])
            .unwrap();
        assert!(waiting(&connection, 1).unwrap()[0].request.is_err());
    }
}
