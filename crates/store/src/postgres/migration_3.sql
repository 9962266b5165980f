-- Events lie many to a row, as on SQLite: a row of its own, with two indexes, cost more than all else that was written for
-- an event. The id of a row is the place of its last event; places come in blocks, so that a transaction knows them before
-- it writes. Rows of older versions keep their form.
CREATE SEQUENCE scheduler_event_blocks;
SELECT setval('scheduler_event_blocks', (SELECT last_value / 64 + 1 FROM scheduler_job_events_id_seq), false);
ALTER TABLE scheduler_job_events ALTER COLUMN id DROP IDENTITY, ALTER COLUMN record DROP NOT NULL,
  ADD COLUMN count INTEGER, ADD COLUMN body BYTEA;
ALTER TABLE scheduler_job_events ALTER COLUMN body SET STORAGE EXTERNAL;
ALTER TABLE scheduler_job_events SET (toast_tuple_target = 8160);
-- Where the trail of a job ends. Each event names the one before it of the same job.
ALTER TABLE scheduler_jobs ADD COLUMN last_event BIGINT;
ALTER TABLE scheduler_jobs_history ADD COLUMN last_event BIGINT;
-- What a lease knows of each of its jobs, so that their records need not be read for it. Absent in rows of older versions.
ALTER TABLE scheduler_jobs ADD COLUMN cost INTEGER, ADD COLUMN max_runtime_sec BIGINT, ADD COLUMN cancel BOOLEAN;
-- Rows of these tables live for a short time. What is dead is found soon, before the tables have grown by it.
ALTER TABLE scheduler_jobs SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0.2);
ALTER TABLE scheduler_leases SET (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000,
  autovacuum_vacuum_cost_delay = 0);
UPDATE scheduler_version SET version = 3
