-- A job that a worker has claimed and not begun is DISPATCHING (1) with a lease: it waits to be begun, not to be taken up.
DROP INDEX scheduler_jobs_dispatching;
CREATE INDEX scheduler_jobs_reserved ON scheduler_jobs (id) WHERE state = 1 AND lease_id IS NULL;
UPDATE scheduler_version SET version = 2
