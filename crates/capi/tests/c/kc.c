/* The job functions by the names of kc.h. */

#include "check.h"
#include "kc.h"

static atomic_int ran;

static int32_t count(void *arg) {
  (void)arg;
  atomic_fetch_add(&ran, 1);
  return 0;
}

static int32_t fail(void *arg) { return (int32_t)(intptr_t)arg; }

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

static int32_t answer(void *arg, void **payload) {
  *payload = arg;
  return 0;
}

static int32_t no_answer(void *arg, void **payload) {
  *payload = arg;
  return 4;
}

static int launch_three(void *arg) {
  kc_job_t *job = kc_job_current();
  CHECK(job != NULL);
  CHECK(kc_job_is_canceled(job) == 0);
  CHECK(kc_job_release(job) == 0);
  for (int i = 0; i < 3; i++) {
    CHECK(kc_launch(count, arg) == 0);
  }
  return 0;
}

static int launch_failing(void *arg) {
  kc_job_t *job = NULL;
  CHECK(kc_launch_job(NULL, NULL, fail, arg, 0, &job) == 0);
  int result = kc_job_join(job);
  /* Unless the scope is a supervisor, the failure cancels this function, too: perhaps before it hears of it. */
  CHECK(result == (int)(intptr_t)arg || result == KC_ECANCELED);
  CHECK(kc_job_release(job) == 0);
  return 0;
}

static int launch_sleeping(void *arg) { return kc_launch(sleep_for_ever, arg); }

static int cancel_itself(void *arg) {
  (void)arg;
  CHECK(kc_cancel_current() == 0);
  return jt_sleep_ms(FAR_MS);
}

int main(void) {
  kc_scope_opts_t supervised = {1, 0};
  kc_scope_opts_t limited = {0, 5};
  kc_job_t *job = NULL;
  kc_deferred_t *deferred = NULL;
  void *payload = NULL;
  int code = 0;
  EXPECT(JT_OK, jt_runtime_init(2));

  CHECK(kc_job_current() == NULL);
  CHECK(kc_scope(NULL, launch_three, NULL, NULL) == 0);
  CHECK(atomic_load(&ran) == 3);
  CHECK(kc_scope(NULL, launch_failing, (void *)6, NULL) == 6);
  CHECK(kc_scope(NULL, launch_failing, (void *)6, &supervised) == 0);
  CHECK(kc_scope(NULL, launch_sleeping, NULL, &limited) == KC_ETIMEDOUT);
  CHECK(kc_scope(NULL, cancel_itself, NULL, NULL) == KC_ECANCELED);
  CHECK(kc_scope(NULL, NULL, NULL, NULL) == JT_ENULL);

  CHECK(kc_launch_job(NULL, NULL, sleep_for_ever, NULL, 65536, &job) == 0);
  CHECK(kc_job_result(job, &code) == JT_EBUSY);
  CHECK(kc_cancel(job) == 0);
  CHECK(kc_cancel_job(job, 5) == 0);
  CHECK(kc_job_join(job) == KC_ECANCELED);
  CHECK(kc_job_is_canceled(job) == 1);
  CHECK(kc_job_result(job, &code) == 0 && code == KC_ECANCELED);
  CHECK(kc_job_release(job) == 0);
  CHECK(kc_job_release(job) == JT_EHANDLE);

  CHECK(kc_async(answer, &ran, &deferred) == 0);
  CHECK(kc_await(deferred, &payload) == 0 && payload == &ran);
  CHECK(kc_deferred_release(deferred) == 0);
  CHECK(kc_async(no_answer, &ran, &deferred) == 0);
  CHECK(kc_await(deferred, &payload) == 4 && payload == NULL);
  CHECK(kc_deferred_release(deferred) == 0);
  CHECK(kc_async(answer, NULL, NULL) == JT_ENULL);

  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
