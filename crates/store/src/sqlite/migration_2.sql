-- A job that a worker has claimed and not begun is DISPATCHING (1) with a lease, where the first release knew no lease; it
-- is not in scheduler_dispatching, which lists reservations. A program of the first release must not open such a file: this
-- version keeps it out. In `flags` of a lease four more bits are used (leases.rs); unset, they say what held before.

-- Jobs that the worker is asked to give back, as JSON.
ALTER TABLE scheduler_leases ADD COLUMN asked_back TEXT;

-- The key of the request that a lease of capacity answers. Few leases have one.
ALTER TABLE scheduler_leases ADD COLUMN request_key TEXT;
CREATE INDEX scheduler_leases_requested ON scheduler_leases (addon_id, instance_id, request_key)
  WHERE request_key IS NOT NULL AND lease_end IS NULL
