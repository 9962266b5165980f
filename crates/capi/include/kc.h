/* The job functions by the names of kcoro, on jobtree.
 *
 * Jobs, deferreds and dispatchers are pointers here, which are never followed: the numbers of jobtree's handles.
 * NULL is none. As in jobtree.h, every function returns 0 or a negative number. */

#ifndef KC_H
#define KC_H

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

/* As kc_cancel; the number is not kept. */
static inline int kc_cancel_job(kc_job_t *job, int reason) {
  (void)reason;
  return jt_cancel(kc_handle_(job), NULL);
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

/* Runs `function` in a scope under the current job and waits for all jobs that it launches. `parent` must be NULL: a
 * scope is under the job that opens it. `opts` may be NULL. */
static inline int kc_scope(kc_job_t *parent, int (*function)(void *), void *arg, const kc_scope_opts_t *opts) {
  kc_scope_call_ call;
  int32_t code = 0;
  jt_status status;
  if (parent != NULL) {
    return JT_EINVAL;
  }
  if (function == NULL) {
    return JT_ENULL;
  }
  call.function = function;
  call.arg = arg;
  call.opts = opts;
  if (opts == NULL || opts->timeout_ms == 0) {
    return kc_scope_open_(&call);
  }
  status = jt_with_timeout(opts->timeout_ms, kc_scope_open_, &call, &code);
  return kc_result_(status, code);
}

#endif
