-- A record is JSON, as the program writes it; what is searched for is in columns beside it. Times are microseconds
-- since 1970, states their place in the protocol's list.

CREATE TABLE scheduler_version (version INTEGER NOT NULL);

-- Jobs that have not ended. Pages are filled in part only, so that a changed row finds room beside its old version and
-- indexes need not be touched.
CREATE TABLE scheduler_jobs (
  id UUID PRIMARY KEY,
  revision BIGINT NOT NULL,
  state SMALLINT NOT NULL,
  addon_id TEXT NOT NULL,
  job_type TEXT NOT NULL,
  unique_key TEXT,
  concurrency_key TEXT,
  lease_id UUID,
  lease_position INTEGER,
  quarantined BOOLEAN NOT NULL,
  created_at BIGINT NOT NULL,
  ended_at BIGINT,
  record TEXT NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX scheduler_jobs_unique ON scheduler_jobs (addon_id, job_type, unique_key)
  WHERE unique_key IS NOT NULL;
CREATE INDEX scheduler_jobs_leased ON scheduler_jobs (lease_id, lease_position) WHERE lease_id IS NOT NULL;
CREATE INDEX scheduler_jobs_dispatching ON scheduler_jobs (id) WHERE state = 1;
CREATE INDEX scheduler_jobs_holders ON scheduler_jobs (addon_id, concurrency_key)
  WHERE concurrency_key IS NOT NULL AND state <> 0;

CREATE TABLE scheduler_jobs_history (LIKE scheduler_jobs, PRIMARY KEY (id));
CREATE INDEX scheduler_jobs_history_ended ON scheduler_jobs_history (state, ended_at);
CREATE INDEX scheduler_jobs_history_not_done ON scheduler_jobs_history (state, id) WHERE state > 3;

CREATE TABLE scheduler_tags (tag TEXT NOT NULL, id UUID NOT NULL, PRIMARY KEY (tag, id));
CREATE INDEX scheduler_tags_job ON scheduler_tags (id);
-- What jobs print, a row a chunk; the place is where it ends.
CREATE TABLE scheduler_job_logs (
  job_id UUID NOT NULL, place BIGINT NOT NULL, chunk BYTEA NOT NULL, PRIMARY KEY (job_id, place)
);
CREATE TABLE scheduler_log_ends (
  job_id UUID PRIMARY KEY, lease_id UUID NOT NULL, run_offset BIGINT NOT NULL, kept BIGINT NOT NULL,
  left_out BIGINT NOT NULL, is_full BOOLEAN NOT NULL
) WITH (fillfactor = 70);

CREATE TABLE scheduler_waits (dependency UUID NOT NULL, id UUID NOT NULL, PRIMARY KEY (dependency, id));
CREATE INDEX scheduler_waits_job ON scheduler_waits (id);

-- The list of a lease's jobs is not in its record: each running job names its lease.
CREATE TABLE scheduler_leases (
  id UUID PRIMARY KEY, live BOOLEAN NOT NULL, ended_at BIGINT, record TEXT NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX scheduler_leases_live ON scheduler_leases (id) WHERE live;
CREATE INDEX scheduler_leases_ended ON scheduler_leases (ended_at) WHERE NOT live;

CREATE TABLE scheduler_keys (
  addon_id TEXT NOT NULL, key TEXT NOT NULL, created_at BIGINT NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (addon_id, key)
);
CREATE INDEX scheduler_keys_age ON scheduler_keys (created_at);

CREATE TABLE scheduler_job_events (
  id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id UUID, at BIGINT NOT NULL, record TEXT NOT NULL
);
CREATE INDEX scheduler_job_events_job ON scheduler_job_events (job_id, id) WHERE job_id IS NOT NULL;

CREATE TABLE scheduler_schedules (id UUID PRIMARY KEY, name TEXT NOT NULL UNIQUE, record TEXT NOT NULL);
CREATE TABLE scheduler_firings (
  schedule_id UUID NOT NULL, at BIGINT NOT NULL, job_id UUID, PRIMARY KEY (schedule_id, at)
);
CREATE TABLE scheduler_pauses (addon_id TEXT NOT NULL, job_type TEXT NOT NULL, record TEXT NOT NULL,
  PRIMARY KEY (addon_id, job_type));
CREATE TABLE scheduler_notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);

INSERT INTO scheduler_version VALUES (1)
