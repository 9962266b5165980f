-- Ids are 16 bytes, which sort as text would; times are microseconds since 1970; states and kinds are their place in
-- the protocol's lists. Tables without a rowid are one tree instead of two. What is in a `body` is told in codec.rs and
-- trail.rs.
--
-- The tables of jobs have no indexes: SQLite would open each with every change of every job. What few jobs have is in
-- small tables beside them, written for those jobs alone.

-- Jobs that have not ended: small, so that what happens to a job costs the same however long the history is.
CREATE TABLE scheduler_jobs (
  id BLOB NOT NULL PRIMARY KEY,
  revision INTEGER NOT NULL,
  state INTEGER NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  body BLOB NOT NULL
) WITHOUT ROWID;

-- Of jobs of one addon, type and key, one has not ended.
CREATE TABLE scheduler_unique (
  addon_id TEXT NOT NULL, job_type TEXT NOT NULL, unique_key TEXT NOT NULL, id BLOB NOT NULL,
  PRIMARY KEY (addon_id, job_type, unique_key)
) WITHOUT ROWID;

-- Jobs with a place that waits to be taken up.
CREATE TABLE scheduler_dispatching (id BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID;

-- Who holds a concurrency key: the jobs that are dispatched or run, each with its lease or, without one, itself.
CREATE TABLE scheduler_holders (
  addon_id TEXT NOT NULL, concurrency_key TEXT NOT NULL, id BLOB NOT NULL, holder BLOB NOT NULL,
  PRIMARY KEY (addon_id, concurrency_key, id)
) WITHOUT ROWID;

-- Jobs that have ended.
CREATE TABLE scheduler_jobs_history (
  id BLOB NOT NULL PRIMARY KEY,
  revision INTEGER NOT NULL,
  state INTEGER NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  body BLOB NOT NULL
) WITHOUT ROWID;

-- Dead letters, and what was canceled. Most jobs are not in it.
CREATE TABLE scheduler_not_done (state INTEGER NOT NULL, id BLOB NOT NULL, PRIMARY KEY (state, id)) WITHOUT ROWID;

-- Payloads that are too long for a job's row, which is written anew with each change.
CREATE TABLE scheduler_payloads (id BLOB NOT NULL PRIMARY KEY, payload TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE scheduler_tags (tag TEXT NOT NULL, id BLOB NOT NULL, PRIMARY KEY (tag, id)) WITHOUT ROWID;

-- What jobs print, a row a chunk; the place is where it ends. Text, as bytes.
CREATE TABLE scheduler_job_logs (
  job_id BLOB NOT NULL, place INTEGER NOT NULL, text BLOB NOT NULL, PRIMARY KEY (job_id, place)
) WITHOUT ROWID;

-- How far a log has come: the run that printed last, how much of that is dealt with, what is kept and what is not.
CREATE TABLE scheduler_log_ends (
  job_id BLOB NOT NULL PRIMARY KEY,
  lease_id BLOB NOT NULL,
  run_offset INTEGER NOT NULL,
  kept INTEGER NOT NULL,
  left_out INTEGER NOT NULL,
  is_full INTEGER NOT NULL
) WITHOUT ROWID;

-- Who waits for whom.
CREATE TABLE scheduler_waits (
  dependency BLOB NOT NULL, id BLOB NOT NULL, PRIMARY KEY (dependency, id)
) WITHOUT ROWID;

CREATE TABLE scheduler_leases (
  id BLOB NOT NULL PRIMARY KEY,
  revision INTEGER NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  node_id TEXT NOT NULL,
  instance_id BLOB,
  priority INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  expected_duration_sec INTEGER,
  own_cost INTEGER NOT NULL,
  ttl_sec INTEGER NOT NULL,
  granted_at INTEGER NOT NULL,
  renewed_at INTEGER NOT NULL,
  expires_at INTEGER NOT NULL,
  named_current BLOB,
  current_since INTEGER NOT NULL,
  pids TEXT,
  lease_end INTEGER,
  ended_at INTEGER,
  end_reason TEXT,
  renewals INTEGER NOT NULL
) WITHOUT ROWID;

-- Which jobs a live lease was granted for, one id after the other, those of each grant under the first of them. Whether
-- a job still runs under it is in the job.
CREATE TABLE scheduler_leased (
  lease_id BLOB NOT NULL, first BLOB NOT NULL, jobs BLOB NOT NULL, PRIMARY KEY (lease_id, first)
) WITHOUT ROWID;

CREATE INDEX scheduler_leases_live ON scheduler_leases (id) WHERE lease_end IS NULL;
CREATE INDEX scheduler_leases_ended ON scheduler_leases (ended_at) WHERE lease_end IS NOT NULL;

-- Idempotency keys. They are kept for a time of their own, longer than the jobs that they made.
CREATE TABLE scheduler_keys (
  addon_id TEXT NOT NULL,
  key TEXT NOT NULL,
  fingerprint BLOB NOT NULL,
  job_id BLOB NOT NULL,
  state INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (addon_id, key)
) WITHOUT ROWID;
CREATE INDEX scheduler_keys_age ON scheduler_keys (created_at);

-- The audit trail, many events a row; the id is the place of the last.
CREATE TABLE scheduler_job_events (id INTEGER PRIMARY KEY, count INTEGER NOT NULL, body BLOB NOT NULL);

CREATE TABLE scheduler_schedules (
  id BLOB NOT NULL PRIMARY KEY,
  name TEXT NOT NULL UNIQUE,
  revision INTEGER NOT NULL,
  spec TEXT NOT NULL,
  next_at INTEGER,
  last_at INTEGER,
  last_job BLOB
) WITHOUT ROWID;

-- One row a firing: whoever inserts it submits the job.
CREATE TABLE scheduler_firings (
  schedule_id BLOB NOT NULL, at INTEGER NOT NULL, job_id BLOB, PRIMARY KEY (schedule_id, at)
) WITHOUT ROWID;

CREATE TABLE scheduler_pauses (
  addon_id TEXT NOT NULL, job_type TEXT NOT NULL, since INTEGER NOT NULL, reason TEXT, PRIMARY KEY (addon_id, job_type)
) WITHOUT ROWID;

-- What was learnt and must outlive a restart: statistics, the profile of quiet hours.
CREATE TABLE scheduler_notes (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID
