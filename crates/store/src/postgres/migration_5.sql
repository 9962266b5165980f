-- When a piece of a log was kept; absent of pieces from before.
ALTER TABLE scheduler_job_logs ADD COLUMN at BIGINT;
-- The oldest version of the tables whose programs may go on using them: a newer program that only adds to the tables leaves it
-- as it is, so that daemons are replaced one after the other.
ALTER TABLE scheduler_version ADD COLUMN oldest INTEGER NOT NULL DEFAULT 5;
UPDATE scheduler_version SET version = 5
