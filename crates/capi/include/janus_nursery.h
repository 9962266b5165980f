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
