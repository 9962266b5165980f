/* Nurseries: what runs in one has ended when it is over; failure, cancellation, nesting, supervision, leftovers. */

#include "check.h"

static atomic_int ran;
static atomic_int canceled;

static int32_t count(void *arg) {
  (void)arg;
  atomic_fetch_add(&ran, 1);
  return JT_OK;
}

static int32_t fail_with(void *arg) { return (int32_t)(intptr_t)arg; }

/* Ends by cancellation only, and tells it. */
static int32_t wait_for_ever(void *arg) {
  (void)arg;
  jt_status status = jt_sleep_ms(FAR_MS);
  EXPECT(JT_ECANCELED, status);
  EXPECT(JT_ECANCELED, jt_sleep_ms(0));
  EXPECT(JT_ECANCELED, jt_checkpoint());
  atomic_fetch_add(&canceled, 1);
  return status;
}

static void many_jobs(void) {
  jt_nursery_t nursery;
  jt_nursery_state_t state;
  int32_t code = 77;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_state(nursery, &state));
  CHECK(state == JT_NURSERY_OPEN);
  atomic_store(&ran, 0);
  for (int i = 0; i < 100; i++) {
    EXPECT(JT_OK, jt_nursery_spawn(nursery, count, NULL, NULL));
  }
  EXPECT(JT_OK, jt_nursery_await(nursery, &code));
  CHECK(atomic_load(&ran) == 100);
  CHECK(code == 0);
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_state(nursery, &state));
  CHECK(state == JT_NURSERY_CLOSED);
  EXPECT(JT_ECLOSED, jt_nursery_spawn(nursery, count, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

static void first_failure(void) {
  jt_nursery_t nursery;
  jt_job_t failed, sibling;
  jt_job_state_t state;
  int32_t code = 0;
  char detail[256];
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  atomic_store(&canceled, 0);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, wait_for_ever, NULL, &sibling));
  UNTIL(jt_job_state(sibling, &state) == JT_OK && state == JT_JOB_ACTIVE);
  EXPECT(JT_EBUSY, jt_job_result(sibling, &code));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail_with, (void *)42, &failed));
  EXPECT(JT_EFAILED, jt_nursery_await(nursery, &code));
  CHECK(code == 42);
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(atomic_load(&canceled) == 1);
  EXPECT(JT_EFAILED, jt_job_result(failed, &code));
  CHECK(code == 42);
  EXPECT(JT_ECANCELED, jt_job_result(sibling, &code));
  EXPECT(JT_OK, jt_job_state(sibling, &state));
  CHECK(state == JT_JOB_CANCELED);
  EXPECT(JT_EFAILED, jt_nursery_await(nursery, &code));
  CHECK(code == 42);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_EHANDLE, jt_job_state(failed, &state));
}

static void supervisor(void) {
  jt_nursery_t nursery;
  jt_job_t failed;
  int32_t code = 0;
  EXPECT(JT_OK, jt_nursery_create_supervisor(&nursery));
  atomic_store(&ran, 0);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail_with, (void *)7, &failed));
  EXPECT(JT_EFAILED, jt_job_join(failed, &code));
  CHECK(code == 7);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, count, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  CHECK(atomic_load(&ran) == 1);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

static void cancel_from_outside(void) {
  jt_nursery_t nursery;
  jt_nursery_state_t state;
  char detail[256];
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  atomic_store(&canceled, 0);
  for (int i = 0; i < 10; i++) {
    jt_job_t job;
    jt_job_state_t job_state;
    EXPECT(JT_OK, jt_nursery_spawn(nursery, wait_for_ever, NULL, &job));
    UNTIL(jt_job_state(job, &job_state) == JT_OK && job_state == JT_JOB_ACTIVE);
    EXPECT(JT_OK, jt_job_release(job));
  }
  EXPECT(JT_OK, jt_nursery_cancel(nursery, "enough"));
  EXPECT(JT_OK, jt_nursery_cancel(nursery, NULL));
  EXPECT(JT_ECANCELED, jt_nursery_spawn(nursery, count, NULL, NULL));
  EXPECT(JT_ECANCELED, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(atomic_load(&canceled) == 10);
  EXPECT(JT_OK, jt_nursery_state(nursery, &state));
  CHECK(state == JT_NURSERY_CANCELED);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

static void destroy_without_await(void) {
  jt_nursery_t nursery;
  jt_job_t job;
  jt_job_state_t state;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  atomic_store(&canceled, 0);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, wait_for_ever, NULL, &job));
  UNTIL(jt_job_state(job, &state) == JT_OK && state == JT_JOB_ACTIVE);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  CHECK(atomic_load(&canceled) == 1);
}

/* Three levels: each opens a nursery, and the lowest one waits. */
static int32_t nest(void *arg) {
  int level = (int)(intptr_t)arg;
  jt_nursery_t nursery;
  if (level == 0) {
    atomic_fetch_add(&ran, 1);
    return wait_for_ever(NULL);
  }
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nest, (void *)(intptr_t)(level - 1), NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nest, (void *)(intptr_t)(level - 1), NULL));
  jt_status status = jt_nursery_await(nursery, NULL);
  EXPECT(JT_ECANCELED, status);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  return status;
}

static void cancel_through_levels(void) {
  jt_nursery_t nursery;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  atomic_store(&ran, 0);
  atomic_store(&canceled, 0);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nest, (void *)3, NULL));
  UNTIL(atomic_load(&ran) == 8);
  EXPECT(JT_OK, jt_cancel(nursery, "from above"));
  EXPECT(JT_ECANCELED, jt_nursery_await(nursery, NULL));
  CHECK(atomic_load(&canceled) == 8);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

/* Failing in a nursery below, handled there, is nothing to those above. */
static int32_t contain(void *arg) {
  jt_nursery_t nursery;
  int32_t code = 0;
  (void)arg;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail_with, (void *)5, NULL));
  EXPECT(JT_EFAILED, jt_nursery_await(nursery, &code));
  CHECK(code == 5);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_checkpoint());
  return JT_OK;
}

static jt_nursery_t left_open;

static int32_t leave_open(void *arg) {
  jt_job_t job;
  jt_job_state_t state;
  (void)arg;
  EXPECT(JT_OK, jt_nursery_create(&left_open));
  EXPECT(JT_OK, jt_nursery_spawn(left_open, wait_for_ever, NULL, &job));
  UNTIL(jt_job_state(job, &state) == JT_OK && state == JT_JOB_ACTIVE);
  return JT_OK;
}

static jt_nursery_t own;

static int32_t wait_for_myself(void *arg) {
  jt_job_t job;
  (void)arg;
  EXPECT(JT_EBUSY, jt_nursery_await(own, NULL));
  EXPECT(JT_EBUSY, jt_nursery_destroy(own));
  EXPECT(JT_OK, jt_job_current(&job));
  EXPECT(JT_EBUSY, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_EBUSY, jt_runtime_shutdown(0));
  /* But it may start a sibling, even while the nursery is awaited. */
  EXPECT(JT_OK, jt_nursery_spawn(own, count, NULL, NULL));
  return JT_OK;
}

static void in_jobs(void) {
  jt_nursery_t nursery;
  atomic_store(&canceled, 0);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, contain, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, leave_open, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  CHECK(atomic_load(&canceled) == 1);
  EXPECT(JT_EHANDLE, jt_nursery_destroy(left_open));

  atomic_store(&ran, 0);
  EXPECT(JT_OK, jt_nursery_create(&own));
  EXPECT(JT_OK, jt_nursery_spawn(own, wait_for_myself, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_await(own, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(own));
  CHECK(atomic_load(&ran) == 1);
}

int main(void) {
  EXPECT(JT_OK, jt_runtime_init(2));
  many_jobs();
  first_failure();
  supervisor();
  cancel_from_outside();
  destroy_without_await();
  cancel_through_levels();
  in_jobs();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
