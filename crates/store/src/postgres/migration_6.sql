-- How much of a log is kept of the run that printed last: each run has a limit of its own. All of an older log counts as
-- that of its last run.
ALTER TABLE scheduler_log_ends ADD COLUMN run_kept BIGINT NOT NULL DEFAULT 0;
UPDATE scheduler_log_ends SET run_kept = kept;
-- An event may be about the job of the one before it without naming it (sqlite/trail.rs): older programs cannot read that.
UPDATE scheduler_version SET version = 6, oldest = 6
