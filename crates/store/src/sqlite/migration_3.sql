-- Who paused, in words; absent of pauses from before.
ALTER TABLE scheduler_pauses ADD COLUMN paused_by TEXT
