-- How much of a log is kept of the run that printed last: each run has a limit of its own. All of an older log counts as
-- that of its last run. Besides, an event may be about the job of the one before it without naming it (trail.rs), which older
-- programs cannot read.
ALTER TABLE scheduler_log_ends ADD COLUMN run_kept INTEGER NOT NULL DEFAULT 0;
UPDATE scheduler_log_ends SET run_kept = kept
