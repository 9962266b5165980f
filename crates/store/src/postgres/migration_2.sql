-- A job that a worker has claimed and not begun is DISPATCHING (1) with a lease: it waits to be begun, not to be taken up.
DROP INDEX scheduler_jobs_dispatching;
CREATE INDEX scheduler_jobs_reserved ON scheduler_jobs (id) WHERE state = 1 AND lease_id IS NULL;
-- The name of the request that a lease of capacity answers. Few leases have one.
ALTER TABLE scheduler_leases ADD COLUMN request TEXT;
CREATE INDEX scheduler_leases_requested ON scheduler_leases (request) WHERE live AND request IS NOT NULL;
UPDATE scheduler_version SET version = 2
