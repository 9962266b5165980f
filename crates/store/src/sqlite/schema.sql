-- Ids are 16 bytes, which sort as text would; times are microseconds since 1970; states and kinds are their place in
-- the protocol's lists. Tables without a rowid are one tree instead of two. NULL means the default, so that an ordinary
-- job is a short row: see codec.rs for what is in which column.

-- Jobs that have not ended: small, so that what happens to a job costs the same however long the history is.
CREATE TABLE scheduler_jobs (
  id BLOB NOT NULL PRIMARY KEY,
  revision INTEGER NOT NULL,
  state INTEGER NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  cost_units INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  enqueued_at INTEGER,
  attempts INTEGER NOT NULL,
  rescues INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  not_before INTEGER,
  deadline_at INTEGER,
  expected_duration_sec INTEGER,
  max_runtime_sec INTEGER,
  lease_id BLOB,
  lease_position INTEGER,
  node_id TEXT,
  started_at INTEGER,
  ended_at INTEGER,
  cancel_requested_at INTEGER,
  schedule_id BLOB,
  unique_key TEXT,
  concurrency_key TEXT,
  concurrency_limit INTEGER,
  completions BLOB,
  last_event INTEGER,
  last_error TEXT,
  result TEXT,
  rest TEXT,
  live TEXT,
  payload TEXT
) WITHOUT ROWID;

-- Of jobs of one addon, type and key, one has not ended.
CREATE UNIQUE INDEX scheduler_jobs_unique ON scheduler_jobs (addon_id, job_type, unique_key)
  WHERE unique_key IS NOT NULL;
-- The jobs of a lease, in their order. Only running jobs are in it.
CREATE INDEX scheduler_jobs_leased ON scheduler_jobs (lease_id, lease_position) WHERE lease_id IS NOT NULL;
CREATE INDEX scheduler_jobs_dispatching ON scheduler_jobs (id) WHERE state = 1;
-- Who holds a concurrency key: counted from jobs that are dispatched or run.
CREATE INDEX scheduler_jobs_holders ON scheduler_jobs (addon_id, concurrency_key)
  WHERE concurrency_key IS NOT NULL AND state <> 0;

-- Jobs that have ended.
CREATE TABLE scheduler_jobs_history (
  id BLOB NOT NULL PRIMARY KEY,
  revision INTEGER NOT NULL,
  state INTEGER NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  cost_units INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  enqueued_at INTEGER,
  attempts INTEGER NOT NULL,
  rescues INTEGER NOT NULL,
  max_attempts INTEGER NOT NULL,
  not_before INTEGER,
  deadline_at INTEGER,
  expected_duration_sec INTEGER,
  max_runtime_sec INTEGER,
  lease_id BLOB,
  lease_position INTEGER,
  node_id TEXT,
  started_at INTEGER,
  ended_at INTEGER,
  cancel_requested_at INTEGER,
  schedule_id BLOB,
  unique_key TEXT,
  concurrency_key TEXT,
  concurrency_limit INTEGER,
  completions BLOB,
  last_event INTEGER,
  last_error TEXT,
  result TEXT,
  rest TEXT,
  live TEXT,
  payload TEXT
) WITHOUT ROWID;

-- Dead letters, and what was canceled. Most jobs are not in it.
CREATE INDEX scheduler_jobs_history_not_done ON scheduler_jobs_history (state, id) WHERE state > 3;

-- Payloads that are too long for a job's row, which is written anew with each change.
CREATE TABLE scheduler_payloads (id BLOB NOT NULL PRIMARY KEY, payload TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE scheduler_tags (tag TEXT NOT NULL, id BLOB NOT NULL, PRIMARY KEY (tag, id)) WITHOUT ROWID;

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

-- The audit trail. A job knows its last event, and each event the one before it of the same job: so a job's trail is
-- found without an index that every event would have to pay for.
CREATE TABLE scheduler_job_events (
  id INTEGER PRIMARY KEY,
  previous INTEGER,
  job_id BLOB,
  at INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  state INTEGER,
  lease_id BLOB,
  node_id TEXT,
  attempt INTEGER,
  revision INTEGER,
  reason TEXT
);

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
