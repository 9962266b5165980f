/* The nursery functions that a compiler may generate calls of, by the names it knows, on jobtree.
 *
 * A nursery is a pointer here, which is never followed: the number of a jt_nursery_t. NULL is none, so a
 * function that failed returns NULL, and jt_last_error tells why. */

#ifndef JANUS_NURSERY_H
#define JANUS_NURSERY_H

#include "jobtree.h"

#if UINTPTR_MAX < UINT64_MAX
#error "janus_nursery.h keeps 64-bit handles in pointers; use jobtree.h on this platform"
#endif

typedef struct janus_nursery janus_nursery;
typedef struct janus_task janus_task;
typedef int32_t (*janus_task_fn)(void *arg);

/* What came of a nursery. */
typedef struct janus_nursery_result {
  /* JT_OK, JT_EFAILED, JT_EPANIC, JT_ETIMEDOUT or JT_ECANCELED; or why it could not be awaited. */
  jt_status status;
  /* What the first task that failed has returned; else the same as `status`. */
  int32_t code;
} janus_nursery_result;

/* Opens a nursery; NULL if that failed. */
static inline janus_nursery *janus_nursery_create(void) {
  jt_nursery_t nursery = 0;
  return jt_nursery_create(&nursery) == JT_OK ? (janus_nursery *)(uintptr_t)nursery : NULL;
}

/* Starts a task; NULL if that failed. The task is valid until its nursery is destroyed. */
static inline janus_task *janus_nursery_spawn(janus_nursery *nursery, janus_task_fn function, void *arg) {
  jt_job_t job = 0;
  jt_status status = jt_nursery_spawn((jt_nursery_t)(uintptr_t)nursery, function, arg, &job);
  return status == JT_OK ? (janus_task *)(uintptr_t)job : NULL;
}

/* What a runtime allows. */
#define JANUS_PROFILE_CORE JT_PROFILE_CORE
#define JANUS_PROFILE_SERVICE JT_PROFILE_SERVICE
#define JANUS_PROFILE_CLUSTER JT_PROFILE_CLUSTER
#define JANUS_PROFILE_SOVEREIGN JT_PROFILE_SOVEREIGN

/* What a task may use, and the rights that it may be given. */
typedef struct janus_budget {
  uint64_t ops;
  uint64_t memory;
  uint64_t spawn_count;
  uint64_t channel_ops;
  uint64_t syscalls;
} janus_budget;
typedef jt_capabilities_t janus_capabilities;

static inline jt_budget_t janus_to_jt_budget_(const janus_budget *budget) {
  jt_budget_t same = {budget->ops, budget->memory, budget->spawn_count, budget->channel_ops, budget->syscalls};
  return same;
}

static inline janus_budget janus_of_jt_budget_(const jt_budget_t *budget) {
  janus_budget same = {budget->ops, budget->memory, budget->spawns, budget->channel_ops, budget->syscalls};
  return same;
}

/* Starts the runtime with a profile; 0 workers for the default. In sovereign nothing is allowed that `budget` and
 * `capabilities` do not give; NULL for what the profile gives. */
static inline jt_status janus_runtime_start(int32_t profile, uint32_t workers, const janus_budget *budget,
                                            const janus_capabilities *capabilities) {
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  jt_budget_t root = {0, 0, 0, 0, 0};
  opts.profile = profile;
  opts.workers = workers;
  if (budget != NULL) {
    root = janus_to_jt_budget_(budget);
    opts.root_budget = &root;
  }
  opts.root_capabilities = capabilities;
  return jt_runtime_init_with(&opts);
}

/* Starts a task with a budget and capabilities out of those of the nursery; NULL for what the profile gives. Returns NULL
 * if that failed: if the nursery may not, jt_last_error says what is missing. */
static inline janus_task *janus_nursery_spawn_with(janus_nursery *nursery, janus_task_fn function, void *arg,
                                                   const janus_budget *budget,
                                                   const janus_capabilities *capabilities) {
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_budget_t wanted = {0, 0, 0, 0, 0};
  jt_job_t job = 0;
  jt_status status;
  if (nursery == NULL) {
    return NULL;
  }
  if (budget != NULL) {
    wanted = janus_to_jt_budget_(budget);
    opts.budget = &wanted;
  }
  opts.capabilities = capabilities;
  status = jt_launch((jt_scope_t)(uintptr_t)nursery, function, arg, &opts, &job);
  return status == JT_OK ? (janus_task *)(uintptr_t)job : NULL;
}

/* Opens a nursery that is owned by a task: it is cancelled with it. NULL if that failed. */
static inline janus_nursery *janus_nursery_create_in(janus_task *owner) {
  jt_nursery_t nursery = 0;
  jt_status status = owner == NULL ? JT_ENULL : jt_nursery_create_in((uint64_t)(uintptr_t)owner, 0, &nursery);
  return status == JT_OK ? (janus_nursery *)(uintptr_t)nursery : NULL;
}

/* Gives what a task has left; JT_EEMPTY if nothing limits it. NULL is the current task. */
static inline jt_status janus_task_budget(janus_task *task, janus_budget *budget_out) {
  jt_job_budget_t budget;
  jt_status status;
  if (budget_out == NULL) {
    return JT_ENULL;
  }
  budget.size = sizeof budget;
  status = jt_job_budget((uint64_t)(uintptr_t)task, &budget);
  if (status == JT_OK) {
    *budget_out = janus_of_jt_budget_(&budget.remaining);
  }
  return status;
}

/* Gives what a task may ask for: jt_job_capabilities. */
static inline jt_status janus_task_capabilities(janus_task *task, janus_capabilities *capabilities_out) {
  return jt_job_capabilities((uint64_t)(uintptr_t)task, capabilities_out);
}

/* Decides about tasks of a nursery that have used up their budget: jt_supervise_budgets. */
static inline jt_status janus_nursery_supervise(janus_nursery *nursery, jt_exhausted_fn handler, void *arg) {
  return nursery == NULL ? JT_ENULL : jt_supervise_budgets((jt_scope_t)(uintptr_t)nursery, handler, arg, NULL);
}

/* Gives a task that has used up its budget more, out of its nursery's: jt_recharge. */
static inline jt_status janus_nursery_recharge(janus_nursery *nursery, janus_task *task, const janus_budget *more) {
  jt_budget_t wanted = {0, 0, 0, 0, 0};
  if (nursery == NULL || more == NULL) {
    return JT_ENULL;
  }
  wanted = janus_to_jt_budget_(more);
  return jt_recharge((jt_scope_t)(uintptr_t)nursery, (jt_job_t)(uintptr_t)task, &wanted, NULL);
}

/* The five states of a nursery. */
typedef jt_nursery_state_t janus_nursery_state_t;

/* Gives where a nursery is in its life. */
static inline jt_status janus_nursery_state(janus_nursery *nursery, janus_nursery_state_t *state_out) {
  return jt_nursery_state((jt_nursery_t)(uintptr_t)nursery, state_out);
}

/* Gives why a nursery was cancelled, and the text of it: jt_cancel_reason. */
static inline jt_status janus_nursery_cancel_reason(janus_nursery *nursery, jt_cause_t *cause_out, char *buffer,
                                                    size_t length) {
  return nursery == NULL ? JT_ENULL
                         : jt_cancel_reason((uint64_t)(uintptr_t)nursery, cause_out, buffer, length, NULL);
}

/* What the scheduler has counted since the runtime was started. */
typedef jt_counters_t janus_stats;

/* Gives what the scheduler has counted. */
static inline jt_status janus_scheduler_stats(janus_stats *stats_out) {
  if (stats_out == NULL) {
    return JT_ENULL;
  }
  stats_out->size = sizeof *stats_out;
  return jt_counters(stats_out);
}

/* Something that happened to a task, a nursery or the runtime. */
typedef jt_event_t janus_event;

/* Keeps the newest `capacity` events from now on; 0 stops it. */
static inline jt_status janus_events_record(size_t capacity) { return jt_events_record(capacity); }

/* Takes up to `capacity` of the oldest events: jt_events_take. `lost_out` may be NULL. */
static inline jt_status janus_events_take(janus_event *events, size_t capacity, size_t *count_out, uint64_t *lost_out) {
  return jt_events_take(events, capacity, count_out, lost_out);
}

/* The number of a task in events; 0 if it is none. NULL is the current task. */
static inline uint64_t janus_task_id(janus_task *task) {
  uint64_t id = 0;
  return jt_job_id((uint64_t)(uintptr_t)task, &id) == JT_OK ? id : 0;
}

/* The number of a nursery in events; 0 if it is none. */
static inline uint64_t janus_nursery_id(janus_nursery *nursery) {
  uint64_t id = 0;
  return nursery != NULL && jt_job_id((uint64_t)(uintptr_t)nursery, &id) == JT_OK ? id : 0;
}

/* Writes a picture of a nursery and all below it, or of all tasks of the runtime for NULL: jt_dump_tree. */
static inline jt_status janus_nursery_dump(janus_nursery *nursery, char *buffer, size_t length, size_t *needed_out) {
  return jt_dump_tree((uint64_t)(uintptr_t)nursery, JT_DUMP_TEXT, buffer, length, needed_out);
}

/* Waits for all tasks of a nursery. */
static inline janus_nursery_result janus_nursery_await(janus_nursery *nursery) {
  janus_nursery_result result = {JT_OK, 0};
  result.status = jt_nursery_await((jt_nursery_t)(uintptr_t)nursery, &result.code);
  if (result.status != JT_OK && result.code == 0) {
    result.code = result.status;
  }
  return result;
}

/* Asks all tasks of a nursery to end. */
static inline void janus_nursery_cancel(janus_nursery *nursery) {
  (void)jt_nursery_cancel((jt_nursery_t)(uintptr_t)nursery, NULL);
}

/* Ends a nursery, and cancels what was not awaited. Of NULL, or a second time, it does nothing. */
static inline void janus_nursery_destroy(janus_nursery *nursery) {
  (void)jt_nursery_destroy((jt_nursery_t)(uintptr_t)nursery);
}

#endif
