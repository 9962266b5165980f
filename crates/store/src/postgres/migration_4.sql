-- Jobs that programs submit in transactions of their own, by jobtree_submit: a daemon moves them into the queue, where they
-- have the same ids. A job that the queue refuses for good stays here with the reason.
CREATE TABLE scheduler_submissions (
  place BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, job_id UUID NOT NULL UNIQUE, addon_id TEXT NOT NULL, key TEXT,
  request TEXT NOT NULL, refused TEXT
);
CREATE UNIQUE INDEX scheduler_submissions_key ON scheduler_submissions (addon_id, key) WHERE key IS NOT NULL;
CREATE INDEX scheduler_submissions_waiting ON scheduler_submissions (place) WHERE refused IS NULL;

-- Lists what is wrong with a text of 1 to `most` bytes.
CREATE OR REPLACE FUNCTION jobtree_check_text(field TEXT, value JSON, most INTEGER) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  content TEXT := value #>> '{}';
BEGIN
  IF json_typeof(value) <> 'string' THEN
    RETURN format('%s: is no text: write a string', field);
  ELSIF content = '' THEN
    RETURN format('%s: is empty: write something, or leave it out', field);
  ELSIF octet_length(content) > most THEN
    RETURN format('%s: has %s bytes: shorten it to %s at most', field, octet_length(content), most);
  ELSIF content ~ '[[:cntrl:]]' THEN
    RETURN format('%s: holds a control character: leave it out', field);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION jobtree_check_name(field TEXT, value JSON) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  content TEXT := value #>> '{}';
BEGIN
  IF coalesce(content, '') = '' THEN
    RETURN format('%s: is missing: write 1 to 128 letters, digits, ''.'', ''_'', '':'' or ''-''', field);
  ELSIF json_typeof(value) <> 'string' THEN
    RETURN format('%s: is no text: write a string', field);
  ELSIF octet_length(content) > 128 THEN
    RETURN format('%s: has %s bytes: shorten it to 128 at most', field, octet_length(content));
  ELSIF content !~ '^[A-Za-z0-9._:-]+$' THEN
    RETURN format('%s: is %s: write letters, digits, ''.'', ''_'', '':'' or ''-'' only', field, value);
  END IF;
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION jobtree_check_number(field TEXT, value JSON, lowest NUMERIC, highest NUMERIC, whole BOOLEAN) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF json_typeof(value) <> 'number' OR (value #>> '{}')::numeric NOT BETWEEN lowest AND highest
    OR (whole AND (value #>> '{}') !~ '^-?[0-9]+$') THEN
    RETURN format('%s: is %s: write a %snumber from %s to %s', field, value, CASE WHEN whole THEN 'whole ' ELSE '' END,
      lowest, highest);
  END IF;
  RETURN NULL;
END $$;

-- Lists what is wrong with one field of a submission; NULL if nothing is.
CREATE OR REPLACE FUNCTION jobtree_check_field(field TEXT, value JSON) RETURNS TEXT LANGUAGE plpgsql STABLE AS $$
DECLARE
  kind TEXT := json_typeof(value);
  content TEXT := value #>> '{}';
  wrong TEXT;
BEGIN
  -- A field that is null is a field that is left out.
  IF kind = 'null' AND field NOT IN ('addon_id', 'job_type', 'cost_units') THEN
    RETURN NULL;
  END IF;
  CASE
    WHEN field IN ('addon_id', 'job_type', 'required_node') THEN
      RETURN jobtree_check_name(field, value);
    WHEN field = 'cost_units' THEN
      RETURN jobtree_check_number(field, value, 1, 100, true);
    WHEN field IN ('expected_duration_sec', 'max_runtime_sec') THEN
      RETURN jobtree_check_number(field, value, 1, 3155760000, true);
    WHEN field = 'max_attempts' THEN
      RETURN jobtree_check_number(field, value, 1, 1000, true);
    WHEN field = 'concurrency_limit' THEN
      RETURN jobtree_check_number(field, value, 1, 4294967295, true);
    WHEN field IN ('idempotency_key', 'unique_key', 'concurrency_key') THEN
      RETURN jobtree_check_text(field, value, 256);
    WHEN field = 'priority' THEN
      IF kind <> 'string' OR upper(content) NOT IN ('LOW', 'NORMAL', 'HIGH') THEN
        RETURN format('priority: is %s: write LOW, NORMAL or HIGH', value);
      END IF;
    WHEN field = 'late' THEN
      IF kind <> 'string' OR content NOT IN ('run', 'fail') THEN
        RETURN format('late: is %s: write "run" or "fail"', value);
      END IF;
    WHEN field = 'on_dependency_failure' THEN
      IF kind <> 'string' OR content NOT IN ('cancel', 'run') THEN
        RETURN format('on_dependency_failure: is %s: write "cancel" or "run"', value);
      END IF;
    WHEN field = 'time_sensitive' THEN
      IF kind <> 'boolean' THEN
        RETURN format('time_sensitive: is %s: write true or false', value);
      END IF;
    WHEN field = 'traceparent' THEN
      IF kind <> 'string' OR content !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}' THEN
        RETURN 'traceparent: is not as the W3C''s Trace Context writes it: leave it out';
      END IF;
    WHEN field IN ('earliest_start_at', 'deadline_at') THEN
      BEGIN
        IF kind <> 'string' OR content !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ].*([Zz]|[+-][0-9]{2}:?[0-9]{2})$'
          OR NOT isfinite(content::timestamptz) THEN
          RETURN format('%s: is %s: write a time such as 2026-01-31T12:00:00Z', field, value);
        END IF;
      EXCEPTION WHEN data_exception THEN
        RETURN format('%s: is %s: write a time such as 2026-01-31T12:00:00Z', field, value);
      END;
    WHEN field IN ('earliest_start_in_sec', 'deadline_in_sec') THEN
      RETURN format('%s: counts for jobs that are submitted over HTTP: write %s_at', field, replace(field, '_in_sec', ''));
    WHEN field = 'payload' THEN
      IF octet_length(value::text) > 1048576 THEN
        RETURN format('payload: has %s bytes, and 1048576 are allowed: put it into a file or bucket, and name that here',
          octet_length(value::text));
      END IF;
    WHEN field IN ('tags', 'required_labels') THEN
      IF kind <> 'array' THEN
        RETURN format('%s: is no list: write a list of texts', field);
      ELSIF json_array_length(value) > (CASE field WHEN 'tags' THEN 32 ELSE 16 END) THEN
        RETURN format('%s: has %s entries: write %s at most', field, json_array_length(value),
          CASE field WHEN 'tags' THEN 32 ELSE 16 END);
      END IF;
      SELECT string_agg(message, E'\n') INTO wrong FROM (SELECT jobtree_check_text(format('%s[%s]', field, place - 1), entry, 128)
        AS message FROM json_array_elements(value) WITH ORDINALITY AS all_of (entry, place)) AS checked;
      RETURN wrong;
    WHEN field = 'depends_on' THEN
      IF kind <> 'array' THEN
        RETURN 'depends_on: is no list: write a list of ids of jobs';
      ELSIF json_array_length(value) > 1024 THEN
        RETURN format('depends_on: has %s entries, and 1024 are allowed: let a job in between join them',
          json_array_length(value));
      ELSIF EXISTS (SELECT FROM json_array_elements_text(value) AS id WHERE id IS NULL
        OR id !~* '^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$') THEN
        RETURN 'depends_on: holds something else than ids of jobs: write a list of ids';
      END IF;
    WHEN field = 'job_id' THEN
      IF kind <> 'string' OR content !~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN 'job_id: is no UUID of version 7: ids sort by time; draw a new one, or leave this out';
      END IF;
    WHEN field = 'constraints' THEN
      IF kind <> 'object' OR EXISTS (SELECT FROM json_each(value) AS part (name, flag) WHERE json_typeof(flag) <> 'boolean'
        OR name NOT IN ('cpu_heavy', 'disk_write_heavy', 'network_heavy', 'memory_heavy')) THEN
        RETURN 'constraints: write an object with cpu_heavy, disk_write_heavy, network_heavy or memory_heavy, true or false';
      END IF;
    WHEN field = 'backoff' THEN
      IF kind <> 'object' OR EXISTS (SELECT FROM json_object_keys(value) AS name
        WHERE name NOT IN ('initial_sec', 'factor', 'max_sec', 'jitter')) THEN
        RETURN 'backoff: write an object with initial_sec, factor, max_sec or jitter';
      END IF;
      SELECT string_agg(message, E'\n') INTO wrong FROM (SELECT CASE name
        WHEN 'initial_sec' THEN jobtree_check_number('backoff.initial_sec', part, 0, 86400, false)
        WHEN 'factor' THEN jobtree_check_number('backoff.factor', part, 1, 10, false)
        WHEN 'max_sec' THEN jobtree_check_number('backoff.max_sec', part, 0, 604800, false)
        ELSE jobtree_check_number('backoff.jitter', part, 0, 1, false) END AS message
        FROM json_each(value) AS all_of (name, part)) AS checked;
      RETURN wrong;
    ELSE
      RETURN format('%s: is no field of a submission: leave it out', field);
  END CASE;
  RETURN NULL;
END $$;

-- Submits a job in the calling transaction, from the same JSON that POST …/queue/jobs/submit takes, and returns its id. The job
-- exists if and when the transaction commits. An idempotency key that was used before returns the job of that time.
CREATE OR REPLACE FUNCTION jobtree_submit(job JSON) RETURNS UUID LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  wrong TEXT;
  field TEXT;
  addon TEXT;
  idempotency TEXT;
  id UUID;
  before UUID;
  pending TEXT;
BEGIN
  IF job IS NULL OR json_typeof(job) <> 'object' THEN
    RAISE EXCEPTION 'the job cannot be submitted: it is no JSON object'
      USING ERRCODE = 'invalid_parameter_value', HINT = 'write {"addon_id": …, "job_type": …, "cost_units": …}';
  END IF;
  SELECT string_agg(message, E'\n') INTO wrong FROM (SELECT jobtree_check_field(name, content) AS message FROM json_each(job)
    AS part (name, content)) AS checked;
  FOREACH field IN ARRAY ARRAY['addon_id', 'job_type', 'cost_units'] LOOP
    IF job -> field IS NULL THEN
      wrong := concat_ws(E'\n', wrong, format('%s: is missing: write it', field));
    END IF;
  END LOOP;
  IF wrong IS NULL AND (job ->> 'deadline_at')::timestamptz <= (job ->> 'earliest_start_at')::timestamptz THEN
    wrong := format('deadline_at: is not after earliest_start_at (%s): write a later time', job ->> 'earliest_start_at');
  END IF;
  IF job ->> 'late' = 'fail' AND job ->> 'deadline_at' IS NULL THEN
    wrong := concat_ws(E'\n', wrong, 'late: is "fail" without a deadline: write deadline_at, or leave this out');
  END IF;
  IF job ->> 'concurrency_limit' IS NOT NULL AND job ->> 'concurrency_key' IS NULL THEN
    wrong := concat_ws(E'\n', wrong,
      'concurrency_limit: limits nothing without concurrency_key: write that too, or leave this out');
  END IF;
  IF wrong IS NULL AND job ->> 'job_id' IS NOT NULL AND job ->> 'depends_on' IS NOT NULL
    AND EXISTS (SELECT FROM json_array_elements_text(job -> 'depends_on') AS on_id WHERE on_id::uuid = (job ->> 'job_id')::uuid) THEN
    wrong := 'depends_on: holds the job itself: leave it out';
  END IF;
  IF wrong IS NOT NULL THEN
    RAISE EXCEPTION 'the job cannot be submitted: %', wrong USING ERRCODE = 'invalid_parameter_value';
  END IF;

  addon := job ->> 'addon_id';
  idempotency := job ->> 'idempotency_key';
  -- A UUID of version 7: 48 bits of the time, the rest random.
  id := coalesce((job ->> 'job_id')::uuid, encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid()) PLACING
    substring(int8send(floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1),
    'hex')::uuid);
  -- The queue first, then what waits to be moved there, then the queue again: between the first two it may have been moved.
  FOR attempt IN 1..2 LOOP
    IF idempotency IS NOT NULL THEN
      SELECT (record::json ->> 'job_id')::uuid INTO before FROM scheduler_keys AS known
        WHERE known.addon_id = addon AND known.key = idempotency;
    END IF;
    IF before IS NULL AND job ->> 'unique_key' IS NOT NULL THEN
      SELECT live.id INTO before FROM scheduler_jobs AS live WHERE live.addon_id = addon
        AND live.job_type = job ->> 'job_type' AND live.unique_key = job ->> 'unique_key';
    END IF;
    IF before IS NOT NULL THEN
      IF attempt = 2 THEN
        DELETE FROM scheduler_submissions WHERE job_id = id;
      END IF;
      RETURN before;
    END IF;
    EXIT WHEN attempt = 2;
    INSERT INTO scheduler_submissions (job_id, addon_id, key, request) VALUES (id, addon, idempotency, job::text)
      ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
      SELECT job_id, request INTO before, pending FROM scheduler_submissions AS waiting
        WHERE (waiting.addon_id = addon AND waiting.key = idempotency) OR waiting.job_id = id;
      IF before IS NOT NULL AND pending::jsonb <> job::jsonb THEN
        RAISE EXCEPTION 'the job cannot be submitted: %: was used for another submission: draw a new one',
          CASE WHEN idempotency IS NULL THEN 'job_id' ELSE 'idempotency_key' END USING ERRCODE = 'unique_violation';
      ELSIF before IS NOT NULL THEN
        RETURN before;
      END IF;
      -- It was moved meanwhile.
    END IF;
  END LOOP;
  -- The sender is no scheduler, so all schedulers hear it.
  PERFORM pg_notify('jobtree_' || 'scheduler_version'::regclass::oid, '0000000000000000s');
  RETURN id;
END $$;
-- Programs call it with their own search_path; who may is the owner's to say.
REVOKE ALL ON FUNCTION jobtree_submit(JSON) FROM PUBLIC;
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION jobtree_submit(JSON) SET search_path = %I, pg_temp', current_schema());
END $$;
UPDATE scheduler_version SET version = 4
