-- When a piece of a log was kept; absent of pieces from before.
ALTER TABLE scheduler_job_logs ADD COLUMN at INTEGER
