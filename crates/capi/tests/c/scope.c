/* Scopes, launch, deferreds, time limits and shields. */

#include <stdlib.h>
#include <string.h>

#include "check.h"

static atomic_int ran;
static atomic_int released;

static int32_t add(void *arg) {
  atomic_fetch_add((atomic_int *)arg, 1);
  return JT_OK;
}

static int32_t fail_with(void *arg) { return (int32_t)(intptr_t)arg; }

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

static void release(void *arg) {
  free(arg);
  atomic_fetch_add(&released, 1);
}

static int32_t square(void *arg, void **result) {
  intptr_t number = (intptr_t)arg;
  *result = (void *)(number * number);
  return JT_OK;
}

static int32_t fail_with_result(void *arg, void **result) {
  *result = arg;
  return 9;
}

static int32_t sleep_with_result(void *arg, void **result) {
  *result = arg;
  return jt_sleep_ms(FAR_MS);
}

/* What is launched may use what lies on the stack of whoever opened the scope. */
static int32_t borrow(jt_scope_t scope, void *arg) {
  for (int i = 0; i < 20; i++) {
    EXPECT(JT_OK, jt_launch(scope, add, arg, NULL, NULL));
    EXPECT(JT_OK, jt_launch(0, add, arg, NULL, NULL));
  }
  return JT_OK;
}

static jt_scope_t last_scope;
static jt_job_t last_job;

static int32_t fail_in_scope(jt_scope_t scope, void *arg) {
  last_scope = scope;
  EXPECT(JT_OK, jt_launch(scope, fail_with, arg, NULL, &last_job));
  /* Cancelled by it. */
  return jt_sleep_ms(FAR_MS);
}

static int32_t fail_alone(jt_scope_t scope, void *arg) {
  jt_job_t job;
  EXPECT(JT_OK, jt_launch(scope, fail_with, arg, NULL, &job));
  EXPECT(JT_EFAILED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_checkpoint());
  return JT_OK;
}

static int32_t fail_by_itself(jt_scope_t scope, void *arg) {
  (void)scope;
  return (int32_t)(intptr_t)arg;
}

static int32_t await_two(jt_scope_t scope, void *arg) {
  jt_deferred_t first, second;
  void *result = NULL;
  intptr_t sum = 0;
  EXPECT(JT_OK, jt_async(scope, square, (void *)3, NULL, &first));
  EXPECT(JT_OK, jt_async(scope, square, (void *)4, NULL, &second));
  EXPECT(JT_OK, jt_await(first, &result));
  sum += (intptr_t)result;
  EXPECT(JT_OK, jt_await(second, &result));
  sum += (intptr_t)result;
  EXPECT(JT_OK, jt_await(second, &result)); /* Once more gives the same. */
  CHECK((intptr_t)result == 16);
  *(intptr_t *)arg = sum;
  return JT_OK;
}

static void scopes(void) {
  atomic_int sum = 0;
  intptr_t squares = 0;
  int32_t code = 0;
  EXPECT(JT_OK, jt_scope(borrow, &sum, &code));
  CHECK(atomic_load(&sum) == 40);
  CHECK(code == 0);
  EXPECT(JT_EFAILED, jt_scope(fail_in_scope, (void *)11, &code));
  CHECK(code == 11);
  EXPECT(JT_EHANDLE, jt_launch(last_scope, add, &sum, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_job_join(last_job, NULL));
  EXPECT(JT_OK, jt_supervisor(fail_alone, (void *)12, &code));
  CHECK(code == 0);
  EXPECT(JT_EFAILED, jt_scope(fail_by_itself, (void *)13, &code));
  CHECK(code == 13);
  EXPECT(JT_OK, jt_scope(await_two, &squares, NULL));
  CHECK(squares == 25);
}

static void deferreds(void) {
  jt_deferred_t deferred;
  void *result = &deferred;
  int32_t code = 0;
  EXPECT(JT_OK, jt_async(0, fail_with_result, &code, NULL, &deferred));
  EXPECT(JT_EFAILED, jt_await(deferred, &result));
  CHECK(result == &deferred); /* Not written to. */
  EXPECT(JT_EFAILED, jt_job_result(deferred, &code));
  CHECK(code == 9);
  EXPECT(JT_OK, jt_job_release(deferred));

  EXPECT(JT_OK, jt_async(0, sleep_with_result, NULL, NULL, &deferred));
  EXPECT(JT_OK, jt_cancel(deferred, "nobody wants it"));
  EXPECT(JT_ECANCELED, jt_await(deferred, NULL));
  EXPECT(JT_OK, jt_job_release(deferred));
}

static int32_t see_label(void *arg) {
  (void)arg;
  return 3;
}

static void options(void) {
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job;
  int32_t code = 0;
  char detail[256];
  void *owned = malloc(16);
  opts.label = "fetch the page";
  EXPECT(JT_OK, jt_launch(0, see_label, NULL, &opts, &job));
  EXPECT(JT_EFAILED, jt_job_join(job, &code));
  CHECK(code == 3);
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strstr(detail, "fetch the page") != NULL);
  CHECK(strstr(detail, "3") != NULL);
  EXPECT(JT_OK, jt_job_release(job));

  opts.timeout_ms = 5;
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, &opts, &job));
  EXPECT(JT_ETIMEDOUT, jt_job_join(job, &code));
  CHECK(code == JT_ETIMEDOUT);
  EXPECT(JT_OK, jt_job_release(job));

  opts = (jt_launch_opts)JT_LAUNCH_OPTS;
  opts.release = release;
  atomic_store(&released, 0);
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, owned, &opts, &job));
  EXPECT(JT_OK, jt_cancel(job, NULL)); /* Perhaps before it begins: the argument is released all the same. */
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  UNTIL(atomic_load(&released) == 1);
  EXPECT(JT_OK, jt_job_release(job));

  opts.stack_size = JT_STACK_SIZE_MAX;
  opts.release = NULL;
  EXPECT(JT_OK, jt_launch(0, add, &ran, &opts, NULL));
  opts.stack_size = JT_STACK_SIZE_MAX + 1;
  EXPECT(JT_EINVAL, jt_launch(0, add, &ran, &opts, NULL));
  opts.stack_size = 0;
  opts.dispatcher = 12345;
  EXPECT(JT_EHANDLE, jt_launch(0, add, &ran, &opts, NULL));

  /* On a blocking thread, and on a small stack. */
  opts.dispatcher = JT_DISPATCHER_IO;
  EXPECT(JT_OK, jt_launch(0, add, &ran, &opts, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  opts.dispatcher = JT_DISPATCHER_DEFAULT;
  opts.stack_size = JT_STACK_SIZE_SMALL;
  EXPECT(JT_OK, jt_launch(0, add, &ran, &opts, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  opts.stack_size = 0;
  opts.timeout_ms = -1;
  EXPECT(JT_EINVAL, jt_launch(0, add, &ran, &opts, NULL));
  opts.timeout_ms = 0;
  opts.label = "\xff";
  EXPECT(JT_EINVAL, jt_launch(0, add, &ran, &opts, NULL));
  opts.label = NULL;
  opts.size = 3;
  EXPECT(JT_EINVAL, jt_launch(0, add, &ran, &opts, NULL));
}

/* The time of an inner limit is over; the outer one is not. */
static int32_t inner_limit(void *arg) {
  int32_t code = 0;
  EXPECT(JT_ETIMEDOUT, jt_with_timeout(5, sleep_for_ever, NULL, &code));
  EXPECT(JT_OK, jt_checkpoint());
  *(int *)arg = 1;
  return JT_OK;
}

static int32_t put_in_order(void *arg) {
  EXPECT(JT_OK, jt_checkpoint());
  EXPECT(JT_OK, jt_sleep_ms(1));
  *(int *)arg += 1;
  return JT_OK;
}

static int32_t cancel_myself(void *arg) {
  EXPECT(JT_OK, jt_checkpoint());
  EXPECT(JT_OK, jt_cancel_current("enough"));
  EXPECT(JT_ECANCELED, jt_checkpoint());
  EXPECT(JT_ECANCELED, jt_tick());
  EXPECT(JT_ECANCELED, jt_yield());
  EXPECT(JT_ECANCELED, jt_launch(0, add, &ran, NULL, NULL));
  EXPECT(JT_OK, jt_shield(FAR_MS, put_in_order, arg, NULL));
  EXPECT(JT_ECANCELED, jt_checkpoint());
  return JT_ECANCELED;
}

static void limits(void) {
  int seen = 0;
  int32_t code = 0;
  jt_job_t job;
  int32_t is_canceled = 0;
  EXPECT(JT_ETIMEDOUT, jt_with_timeout(5, sleep_for_ever, NULL, &code));
  CHECK(code == JT_ETIMEDOUT);
  EXPECT(JT_OK, jt_with_timeout(FAR_MS, inner_limit, &seen, &code));
  CHECK(seen == 1);
  EXPECT(JT_EFAILED, jt_with_timeout(FAR_MS, fail_with, (void *)21, &code));
  CHECK(code == 21);
  EXPECT(JT_EINVAL, jt_with_timeout(-1, fail_with, NULL, NULL));

  seen = 0;
  EXPECT(JT_OK, jt_launch(0, cancel_myself, &seen, NULL, &job));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_is_canceled(job, &is_canceled));
  CHECK(is_canceled == 1);
  CHECK(seen == 1);
  EXPECT(JT_OK, jt_job_release(job));
}

/* A job that returns JT_ECANCELED without having been cancelled has failed. */
static void false_alarm(void) {
  jt_job_t job;
  int32_t code = 0;
  EXPECT(JT_OK, jt_launch(0, fail_with, (void *)(intptr_t)JT_ECANCELED, NULL, &job));
  EXPECT(JT_EFAILED, jt_job_join(job, &code));
  CHECK(code == JT_ECANCELED);
  EXPECT(JT_OK, jt_job_release(job));
}

static atomic_int child_may_end;

static int32_t wait_for_leave(void *arg) {
  UNTIL(atomic_load(&child_may_end));
  return add(arg);
}

static int32_t return_early(void *arg) { return jt_launch(0, wait_for_leave, arg, NULL, NULL); }

/* A job ends after the jobs that were launched in it. */
static void children_count(void) {
  atomic_int done = 0;
  jt_job_t job;
  jt_job_state_t state;
  EXPECT(JT_OK, jt_launch(0, return_early, &done, NULL, &job));
  UNTIL(jt_job_state(job, &state) == JT_OK && state == JT_JOB_COMPLETING);
  EXPECT(JT_OK, jt_launch(job, add, &done, NULL, NULL)); /* Under that job, as long as it has not ended. */
  atomic_store(&child_may_end, 1);
  EXPECT(JT_OK, jt_job_join(job, NULL));
  CHECK(atomic_load(&done) == 2);
  EXPECT(JT_ECLOSED, jt_launch(job, add, &done, NULL, NULL));
  EXPECT(JT_OK, jt_job_release(job));
}

int main(void) {
  EXPECT(JT_OK, jt_runtime_init(2));
  scopes();
  deferreds();
  options();
  limits();
  false_alarm();
  children_count();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
