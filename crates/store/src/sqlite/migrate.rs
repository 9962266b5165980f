//! The tables' versions: each step leads from one to the next, in one transaction with its number, so a file has always
//! exactly one version. A newer file is refused: guessing at its tables could destroy what a newer program wrote.

use rusqlite::Connection;

use super::open::pragma;
use crate::error::OpenError;

/// Step `n` leads from version `n` to version `n + 1`. Steps are never changed once released; new ones are added.
const STEPS: &[&str] = &[
    include_str!("schema.sql"),
    include_str!("migration_2.sql"),
    include_str!("migration_3.sql"),
    include_str!("migration_4.sql"),
    include_str!("migration_5.sql"),
];

pub(crate) const NEWEST: i64 = STEPS.len() as i64;

pub(crate) fn refuse_newer(db: &Connection) -> Result<(), OpenError> {
    let found = pragma(db, "user_version")?;
    if found > NEWEST {
        return Err(OpenError::Newer {
            found,
            known: NEWEST,
        });
    }
    Ok(())
}

/// Takes all steps that the file lacks.
pub(crate) fn to_newest(db: &Connection, application_id: i64) -> Result<(), OpenError> {
    let version = pragma(db, "user_version")?;
    for (done, step) in (version + 1..).zip(&STEPS[version as usize..]) {
        db.execute_batch(&format!(
            "BEGIN IMMEDIATE; {step};
             PRAGMA application_id = {application_id}; PRAGMA user_version = {done}; COMMIT"
        ))?;
    }
    Ok(())
}
