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

static int launch_failing_below(void *arg) {
  kc_job_t *parent = kc_job_parent(NULL);
  CHECK(parent != NULL);
  CHECK(kc_job_release(parent) == 0);
  return launch_failing(arg);
}

static int sleep_here(void *arg) {
  CHECK(kc_cancel_job((kc_job_t *)arg, 42) == 0);
  return jt_sleep_ms(FAR_MS);
}

/* Scopes under a named job, the reasons of cancellations, counters and events. */
static void under_a_parent(void) {
  kc_scope_opts_t supervised = {1, 0};
  kc_scope_opts_t limited = {0, 5};
  kc_job_counters_t before, after;
  kc_job_event_t event;
  kc_job_state_t state;
  kc_job_t *parent = NULL;
  size_t count = 0, needed = 0;
  uint64_t lost = 0;
  int reason = 0, finalized = 0;
  char text[8];
  CHECK(kc_job_counters(&before) == 0);
  CHECK(kc_job_events_record(256) == 0);
  CHECK(kc_launch_job(NULL, NULL, sleep_for_ever, NULL, 0, &parent) == 0);
  atomic_store(&ran, 0);
  CHECK(kc_scope(parent, launch_three, NULL, NULL) == 0);
  CHECK(atomic_load(&ran) == 3);
  CHECK(kc_scope(parent, launch_failing_below, (void *)6, NULL) == 6);
  CHECK(kc_scope(parent, launch_failing_below, (void *)6, &supervised) == 0);
  CHECK(kc_scope(parent, launch_sleeping, NULL, &limited) == KC_ETIMEDOUT);
  CHECK(kc_scope(parent, NULL, NULL, NULL) == JT_ENULL);
  CHECK(kc_job_cancel_reason(parent, &reason) == JT_EEMPTY);
  CHECK(kc_job_state(parent, &state) == 0 && state == KC_JOB_ACTIVE);
  CHECK(kc_job_dump(parent, NULL, 0, &needed) == 0 && needed > 1);
  CHECK(kc_job_dump(NULL, text, sizeof text, &needed) == JT_ETRUNCATED);
  CHECK(kc_scope(parent, sleep_here, parent, NULL) == KC_ECANCELED);
  CHECK(kc_job_cancel_reason(parent, &reason) == 0 && reason == 42);
  CHECK(kc_job_cancel_reason(parent, NULL) == JT_ENULL);
  CHECK(kc_job_cancel_reason(NULL, &reason) == JT_EEMPTY);
  CHECK(kc_job_join(parent) == KC_ECANCELED);
  CHECK(kc_job_state(parent, &state) == 0 && state == KC_JOB_CANCELLED);
  CHECK(kc_job_state(parent, NULL) == JT_ENULL);
  CHECK(kc_scope(parent, launch_three, NULL, NULL) == JT_ECLOSED);
  while (kc_job_events_take(&event, 1, &count, &lost) == 0 && count == 1) {
    finalized += event.kind == KC_JOB_FINALIZE && event.job == kc_job_id(parent);
  }
  CHECK(finalized == 1 && lost == 0);
  CHECK(kc_job_events_record(0) == 0);
  CHECK(kc_job_parent(NULL) == NULL && kc_job_id(NULL) == 0);
  CHECK(kc_job_release(parent) == 0);
  CHECK(kc_scope(parent, launch_three, NULL, NULL) == JT_EHANDLE);
  CHECK(kc_job_cancel_reason(parent, &reason) == JT_EHANDLE);
  CHECK(kc_job_state(parent, &state) == JT_EHANDLE);

  CHECK(kc_launch_job(NULL, NULL, sleep_for_ever, NULL, 0, &parent) == 0);
  CHECK(kc_cancel(parent) == 0);
  CHECK(kc_job_join(parent) == KC_ECANCELED);
  CHECK(kc_job_cancel_reason(parent, &reason) == 0 && reason == KC_ECANCELED);
  CHECK(kc_job_release(parent) == 0);
  CHECK(kc_job_counters(&after) == 0);
  CHECK(after.jobs_created > before.jobs_created + 5);
  CHECK(after.jobs_cancelled >= before.jobs_cancelled + 2);
  CHECK(after.cancellations_requested >= before.cancellations_requested + 2);
  CHECK(kc_job_counters(NULL) == JT_ENULL);
}

static int32_t succeed(void *arg) {
  (void)arg;
  return 0;
}

static int32_t compute_for_long(void *arg) {
  (void)arg;
  for (int i = 0; i < 15000; i++) {
    if (jt_tick() != JT_OK) {
      return JT_ECANCELED;
    }
  }
  return 0;
}

static int32_t recharge(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  (void)job;
  CHECK(lacking == JT_COUNTER_OPS);
  more->ops = 20000;
  atomic_fetch_add((atomic_int *)arg, 1);
  return JT_DECISION_RECHARGE;
}

/* In a job that has spawns and operations to give. */
static int32_t supervises(void *arg) {
  kc_job_t *job = NULL;
  kc_budget_t small = {500, 0, 0, 0, 0}, more = {20000, 0, 0, 0, 0}, left;
  CHECK(kc_job_budget(NULL, &left) == 0 && left.spawns > 0);
  /* Without a handler it waits to be given more by hand. */
  CHECK(kc_launch_limited(NULL, compute_for_long, NULL, &small, NULL, &job) == 0);
  while (kc_job_recharge(NULL, job, &more) == JT_EBUSY) {
    jt_yield();
  }
  CHECK(kc_job_join(job) == 0);
  CHECK(kc_job_recharge(NULL, job, &more) == JT_EBUSY && kc_job_recharge(NULL, job, NULL) == JT_ENULL);
  CHECK(kc_job_release(job) == 0);
  CHECK(kc_job_supervise(NULL, recharge, arg) == 0 && kc_job_supervise(NULL, NULL, NULL) == JT_ENULL);
  CHECK(kc_launch_limited(NULL, compute_for_long, NULL, &small, NULL, &job) == 0);
  CHECK(kc_job_join(job) == 0);
  return kc_job_release(job);
}

static int32_t launches_more(void *arg) {
  (void)arg;
  return kc_launch(succeed, NULL);
}

/* Profiles, budgets and capabilities. */
static void limits(void) {
  kc_budget_t budget = {1000000, 1 << 20, 100, 100, 100}, few = {1000, 1 << 20, 1, 10, 10}, left;
  kc_capabilities_t capabilities = {.size = sizeof capabilities}, none = {.size = sizeof none};
  kc_job_t *job = NULL;
  atomic_int recharged = 0;
  CHECK(kc_runtime_start(99, 1, NULL, NULL) == JT_EINVAL);
  CHECK(kc_job_budget(NULL, &left) == JT_ESHUTDOWN);

  CHECK(kc_runtime_start(KC_PROFILE_CORE, 1, NULL, NULL) == 0);
  CHECK(kc_launch(succeed, NULL) == JT_EREFUSED); /* Nothing can be spawned. */
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  CHECK(kc_runtime_start(KC_PROFILE_SERVICE, 2, NULL, NULL) == 0);
  CHECK(kc_launch_limited(NULL, sleep_for_ever, NULL, &few, NULL, &job) == 0);
  CHECK(kc_job_budget(job, &left) == 0 && left.spawns == 1 && left.ops == 1000);
  CHECK(kc_job_budget(job, NULL) == JT_ENULL && kc_job_budget(NULL, &left) == JT_EEMPTY);
  CHECK(kc_job_capabilities(job, &capabilities) == 0 && (capabilities.rights & JT_CAP_SPAWN) != 0);
  CHECK(kc_cancel(job) == 0 && kc_job_join(job) == KC_ECANCELED && kc_job_release(job) == 0);
  /* A job without rights may start none; that it had none is its own failure. */
  CHECK(kc_launch_limited(NULL, launches_more, NULL, NULL, &none, &job) == 0);
  CHECK(kc_job_join(job) == JT_EREFUSED && kc_job_release(job) == 0);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  CHECK(kc_runtime_start(KC_PROFILE_CLUSTER, 2, &budget, NULL) == 0);
  CHECK(kc_launch_limited(NULL, supervises, &recharged, &budget, NULL, &job) == 0);
  CHECK(kc_job_join(job) == 0 && atomic_load(&recharged) == 1);
  CHECK(kc_job_release(job) == 0);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
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

  under_a_parent();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  CHECK(kc_job_counters(&(kc_job_counters_t){0}) == JT_ESHUTDOWN);
  limits();
  return verdict();
}
