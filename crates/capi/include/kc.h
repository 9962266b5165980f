/* The job functions by the names of kcoro, on jobtree.
 *
 * Jobs, deferreds and dispatchers are pointers here, which are never followed: the numbers of jobtree's handles.
 * NULL is none. As in jobtree.h, every function returns 0 or a negative number. */

#ifndef KC_H
#define KC_H

#include <stdio.h>
#include <stdlib.h>

#include "jobtree.h"

#if UINTPTR_MAX < UINT64_MAX
#error "kc.h keeps 64-bit handles in pointers; use jobtree.h on this platform"
#endif

#define KC_ECANCELED JT_ECANCELED
#define KC_ETIMEDOUT JT_ETIMEDOUT

#define KC_JOB_ACTIVE JT_JOB_ACTIVE
#define KC_JOB_CANCELLING JT_JOB_CANCELLING
#define KC_JOB_CANCELLED JT_JOB_CANCELED
#define KC_JOB_COMPLETED JT_JOB_COMPLETED
#define KC_JOB_FAILED JT_JOB_FAILED

typedef struct kc_job kc_job_t;
typedef struct kc_deferred kc_deferred_t;
typedef struct kc_dispatcher kc_dispatcher_t;
typedef jt_job_state_t kc_job_state_t;
typedef int32_t (*kcoro_fn_t)(void *arg);
/* As kcoro_fn_t, with a place for the payload that kc_await gives. */
typedef int32_t (*kcoro_async_fn_t)(void *arg, void **payload);

static inline uint64_t kc_handle_(const void *pointer) { return (uint64_t)(uintptr_t)pointer; }

/* The current job, or NULL outside of jobs; to be released with kc_job_release. */
static inline kc_job_t *kc_job_current(void) {
  jt_job_t job = 0;
  return jt_job_current(&job) == JT_OK ? (kc_job_t *)(uintptr_t)job : NULL;
}

/* Starts a job under the current one, and forgets it. */
static inline int kc_launch(kcoro_fn_t function, void *arg) {
  return jt_launch(0, function, arg, NULL, NULL);
}

/* Starts a job with a stack of so many bytes (0 for the default) under `parent`; under the current job if that is
 * NULL. `job_out` may be NULL; else release it with kc_job_release. */
static inline int kc_launch_job(kc_dispatcher_t *dispatcher, kc_job_t *parent, kcoro_fn_t function, void *arg,
                                size_t stack, kc_job_t **job_out) {
  struct jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job = 0;
  jt_status status;
  opts.dispatcher = kc_handle_(dispatcher);
  opts.stack_size = stack;
  status = jt_launch(kc_handle_(parent), function, arg, &opts, job_out == NULL ? NULL : &job);
  if (status == JT_OK && job_out != NULL) {
    *job_out = (kc_job_t *)(uintptr_t)job;
  }
  return status;
}

/* Starts a job whose payload can be awaited; release it with kc_deferred_release. */
static inline int kc_async(kcoro_async_fn_t function, void *arg, kc_deferred_t **deferred_out) {
  jt_deferred_t deferred = 0;
  jt_status status = deferred_out == NULL ? JT_ENULL : jt_async(0, function, arg, NULL, &deferred);
  if (status == JT_OK) {
    *deferred_out = (kc_deferred_t *)(uintptr_t)deferred;
  }
  return status;
}

/* What a call that waited returns: the task's own code if it is that which failed. */
static inline int kc_result_(jt_status status, int32_t code) { return status == JT_EFAILED ? code : status; }

/* Waits for a deferred. Without success the payload is NULL. */
static inline int kc_await(kc_deferred_t *deferred, void **payload_out) {
  void *payload = NULL;
  int32_t code = 0;
  jt_status status = jt_await(kc_handle_(deferred), &payload);
  if (status == JT_EFAILED) {
    (void)jt_job_result(kc_handle_(deferred), &code);
  }
  if (payload_out != NULL) {
    *payload_out = payload;
  }
  return kc_result_(status, code);
}

/* Waits for a job. Returns 0, what its task has returned, or why it ended otherwise. */
static inline int kc_job_join(kc_job_t *job) {
  int32_t code = 0;
  jt_status status = jt_job_join(kc_handle_(job), &code);
  return kc_result_(status, code);
}

/* Gives what kc_job_join has returned; JT_EBUSY if the job has not ended. */
static inline int kc_job_result(kc_job_t *job, int *code_out) {
  int32_t code = 0;
  jt_status status = jt_job_result(kc_handle_(job), &code);
  if (status == JT_EBUSY || status == JT_EHANDLE || status == JT_ESHUTDOWN) {
    return status;
  }
  if (code_out == NULL) {
    return JT_ENULL;
  }
  *code_out = kc_result_(status, code);
  return 0;
}

/* 1 if the job was asked to end, else 0. */
static inline int kc_job_is_canceled(kc_job_t *job) {
  int32_t canceled = 0;
  return jt_job_is_canceled(kc_handle_(job), &canceled) == JT_OK && canceled;
}

/* Asks a job and everything below it to end. */
static inline int kc_cancel(kc_job_t *job) { return jt_cancel(kc_handle_(job), NULL); }

/* As kc_cancel, with a number that kc_job_cancel_reason gives. In reports it is the text of the reason. */
static inline int kc_cancel_job(kc_job_t *job, int reason) {
  char text[16];
  (void)snprintf(text, sizeof text, "%d", reason);
  return jt_cancel(kc_handle_(job), text);
}

/* Gives why a job was asked to end: the number of kc_cancel_job, KC_ETIMEDOUT if its time was over, else KC_ECANCELED. NULL
 * is the current job. JT_EEMPTY if it was not asked to end. */
static inline int kc_job_cancel_reason(kc_job_t *job, int *reason_out) {
  char text[16] = "", *end = text;
  jt_cause_t cause = JT_CAUSE_EXPLICIT;
  jt_status status = reason_out == NULL ? JT_ENULL : jt_cancel_reason(kc_handle_(job), &cause, text, sizeof text, NULL);
  long number;
  if (status != JT_OK && status != JT_ETRUNCATED) {
    return status;
  }
  number = strtol(text, &end, 10);
  if (cause == JT_CAUSE_EXPLICIT && status == JT_OK && end != text && *end == 0) {
    *reason_out = (int)number;
  } else {
    *reason_out = cause == JT_CAUSE_TIMEOUT ? KC_ETIMEDOUT : KC_ECANCELED;
  }
  return 0;
}

/* Asks the current job to end. */
static inline int kc_cancel_current(void) { return jt_cancel_current(NULL); }

/* Releases a job's handle. */
static inline int kc_job_release(kc_job_t *job) { return jt_job_release(kc_handle_(job)); }

/* Releases a deferred's handle. */
static inline int kc_deferred_release(kc_deferred_t *deferred) { return jt_job_release(kc_handle_(deferred)); }

typedef struct kc_scope_opts {
  /* Whether jobs in it fail alone. */
  int supervisor;
  /* How many milliseconds it may take; 0 for no limit. */
  int64_t timeout_ms;
} kc_scope_opts_t;

typedef struct kc_scope_call_ {
  int (*function)(void *arg);
  void *arg;
  const kc_scope_opts_t *opts;
} kc_scope_call_;

static inline int32_t kc_scope_enter_(jt_scope_t scope, void *arg) {
  kc_scope_call_ *call = (kc_scope_call_ *)arg;
  (void)scope;
  return call->function(call->arg);
}

static inline int32_t kc_scope_open_(void *arg) {
  kc_scope_call_ *call = (kc_scope_call_ *)arg;
  int32_t code = 0;
  jt_status status = call->opts != NULL && call->opts->supervisor ? jt_supervisor(kc_scope_enter_, call, &code)
                                                                  : jt_scope(kc_scope_enter_, call, &code);
  return kc_result_(status, code);
}

static inline int kc_scope_here_(kc_scope_call_ *call) {
  int32_t code = 0;
  jt_status status;
  if (call->opts == NULL || call->opts->timeout_ms == 0) {
    return kc_scope_open_(call);
  }
  status = jt_with_timeout(call->opts->timeout_ms, kc_scope_open_, call, &code);
  return kc_result_(status, code);
}

static inline int32_t kc_scope_under_(jt_scope_t scope, void *arg) {
  (void)scope;
  return kc_scope_here_((kc_scope_call_ *)arg);
}

/* Runs `function` on the calling thread in a scope under `parent`, and waits for all jobs that it launches. With NULL the
 * scope is under the current job. Under another job it is cancelled with that one, and not with the calling job. `opts`
 * may be NULL. */
static inline int kc_scope(kc_job_t *parent, int (*function)(void *), void *arg, const kc_scope_opts_t *opts) {
  kc_scope_call_ call;
  int32_t code = 0;
  jt_status status;
  if (function == NULL) {
    return JT_ENULL;
  }
  call.function = function;
  call.arg = arg;
  call.opts = opts;
  if (parent == NULL) {
    return kc_scope_here_(&call);
  }
  status = jt_scope_in(kc_handle_(parent), 0, kc_scope_under_, &call, &code);
  return kc_result_(status, code);
}

/* What was counted since the runtime was started. */
typedef struct kc_job_counters {
  uint64_t jobs_created;
  uint64_t cancellations_requested;
  uint64_t jobs_failed;
  uint64_t jobs_completed;
  uint64_t jobs_cancelled;
  uint64_t waiters_registered;
  uint64_t waiters_woken;
} kc_job_counters_t;

/* Gives what was counted. Jobs whose time was over have failed. */
static inline int kc_job_counters(kc_job_counters_t *counters_out) {
  jt_counters_t counters;
  jt_status status;
  if (counters_out == NULL) {
    return JT_ENULL;
  }
  counters.size = sizeof counters;
  status = jt_counters(&counters);
  if (status == JT_OK) {
    counters_out->jobs_created = counters.created;
    counters_out->cancellations_requested = counters.cancel_requests;
    counters_out->jobs_failed = counters.failed + counters.timed_out;
    counters_out->jobs_completed = counters.completed;
    counters_out->jobs_cancelled = counters.canceled;
    counters_out->waiters_registered = counters.waiters_registered;
    counters_out->waiters_woken = counters.waiters_woken;
  }
  return status;
}

#define KC_JOB_CREATE JT_EVENT_CREATE
#define KC_JOB_STATE JT_EVENT_STATE
#define KC_JOB_CANCEL_REQ JT_EVENT_CANCEL_REQUEST
#define KC_JOB_FINALIZE JT_EVENT_FINALIZE
#define KC_JOB_CHILD_ATTACH JT_EVENT_CHILD_ATTACH
#define KC_JOB_WAIT_REGISTER JT_EVENT_WAIT_REGISTER
#define KC_JOB_WAIT_WAKE JT_EVENT_WAIT_WAKE
/* The runtime does without something: `lacking` is a jt_lacking_t, and `job` the root. */
#define KC_RUNTIME_DEGRADED JT_EVENT_DEGRADED

/* Something that happened to a job: its `kind` is one of the above, its `job` what kc_job_id gives. */
typedef jt_event_t kc_job_event_t;

/* Keeps the newest `capacity` events from now on; 0 stops it. */
static inline int kc_job_events_record(size_t capacity) { return jt_events_record(capacity); }

/* Takes up to `capacity` of the oldest events; `lost_out` may be NULL. */
static inline int kc_job_events_take(kc_job_event_t *events, size_t capacity, size_t *count_out, uint64_t *lost_out) {
  return jt_events_take(events, capacity, count_out, lost_out);
}

/* The number of a job in events; 0 if it is none. NULL is the current job. */
static inline uint64_t kc_job_id(kc_job_t *job) {
  uint64_t id = 0;
  return jt_job_id(kc_handle_(job), &id) == JT_OK ? id : 0;
}

/* The job above one, to be released with kc_job_release; NULL if there is none. NULL is the current job. */
static inline kc_job_t *kc_job_parent(kc_job_t *job) {
  jt_job_t parent = 0;
  return jt_job_parent(kc_handle_(job), &parent) == JT_OK ? (kc_job_t *)(uintptr_t)parent : NULL;
}

/* Where a job is in its life; a job that waits to begin is active, one whose time was over has failed. */
static inline int kc_job_state(kc_job_t *job, kc_job_state_t *state_out) {
  jt_job_state_t state = JT_JOB_ACTIVE;
  jt_status status = state_out == NULL ? JT_ENULL : jt_job_state(kc_handle_(job), &state);
  if (status == JT_OK) {
    switch ((int32_t)state) {
    case JT_JOB_PENDING:
    case JT_JOB_COMPLETING:
      state = JT_JOB_ACTIVE;
      break;
    case JT_JOB_TIMEDOUT:
      state = JT_JOB_FAILED;
      break;
    default:
      break;
    }
    *state_out = state;
  }
  return status;
}

/* What a runtime allows its jobs: a jt_profile_t. */
#define KC_PROFILE_OPEN JT_PROFILE_OPEN
#define KC_PROFILE_CORE JT_PROFILE_CORE
#define KC_PROFILE_SERVICE JT_PROFILE_SERVICE
#define KC_PROFILE_CLUSTER JT_PROFILE_CLUSTER
#define KC_PROFILE_SOVEREIGN JT_PROFILE_SOVEREIGN

/* What a job may use, and what it may ask for; set `size` of the capabilities to sizeof(kc_capabilities_t). */
typedef jt_budget_t kc_budget_t;
typedef jt_capabilities_t kc_capabilities_t;

/* Starts the runtime with a profile; 0 workers for the default. `budget` and `capabilities` are those of a job directly under
 * the runtime; NULL for what the profile gives. End it with jt_runtime_shutdown. */
static inline int kc_runtime_start(int profile, unsigned workers, const kc_budget_t *budget,
                                   const kc_capabilities_t *capabilities) {
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  opts.profile = profile;
  opts.workers = workers;
  opts.root_budget = budget;
  opts.root_capabilities = capabilities;
  return jt_runtime_init_with(&opts);
}

/* Starts a job under `parent`, or under the current job if that is NULL, with a budget and capabilities out of those of the
 * job above; NULL for what the profile gives. `job_out` may be NULL; else release it with kc_job_release. */
static inline int kc_launch_limited(kc_job_t *parent, kcoro_fn_t function, void *arg, const kc_budget_t *budget,
                                    const kc_capabilities_t *capabilities, kc_job_t **job_out) {
  struct jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job = 0;
  jt_status status;
  opts.budget = budget;
  opts.capabilities = capabilities;
  status = jt_launch(kc_handle_(parent), function, arg, &opts, job_out == NULL ? NULL : &job);
  if (status == JT_OK && job_out != NULL) {
    *job_out = (kc_job_t *)(uintptr_t)job;
  }
  return status;
}

/* Gives what a job has left; JT_EEMPTY if nothing limits it. NULL is the current job. */
static inline int kc_job_budget(kc_job_t *job, kc_budget_t *budget_out) {
  jt_job_budget_t budget;
  jt_status status;
  if (budget_out == NULL) {
    return JT_ENULL;
  }
  budget.size = sizeof budget;
  status = jt_job_budget(kc_handle_(job), &budget);
  if (status == JT_OK) {
    *budget_out = budget.remaining;
  }
  return status;
}

/* Gives what a job may ask for: jt_job_capabilities. NULL is the current job. */
static inline int kc_job_capabilities(kc_job_t *job, kc_capabilities_t *capabilities_out) {
  return jt_job_capabilities(kc_handle_(job), capabilities_out);
}

/* Has `handler` decide about jobs under `job` that have used up their budget: jt_supervise_budgets. NULL is the current job. */
static inline int kc_job_supervise(kc_job_t *job, jt_exhausted_fn handler, void *arg) {
  return jt_supervise_budgets(kc_handle_(job), handler, arg, NULL);
}

/* Gives a job that has used up its budget more, out of that of the job above: jt_recharge. NULL for `parent` is the current
 * job. */
static inline int kc_job_recharge(kc_job_t *parent, kc_job_t *job, const kc_budget_t *more) {
  return jt_recharge(kc_handle_(parent), kc_handle_(job), more, NULL);
}

/* Writes a picture of a job and all below it, or of all jobs for NULL: jt_dump_tree. */
static inline int kc_job_dump(kc_job_t *job, char *buffer, size_t length, size_t *needed_out) {
  return jt_dump_tree(kc_handle_(job), JT_DUMP_TEXT, buffer, length, needed_out);
}

#endif
