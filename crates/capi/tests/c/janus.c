/* The nursery functions by the names of janus_nursery.h. */

#include "check.h"
#include "janus_nursery.h"

static atomic_int ran;

static int32_t compute(void *arg) {
  atomic_fetch_add(&ran, (int)(intptr_t)arg);
  return 0;
}

static int32_t fail(void *arg) { return (int32_t)(intptr_t)arg; }

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
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

static int32_t own_a_nursery(void *arg) {
  janus_nursery *inner = janus_nursery_create();
  (void)arg;
  CHECK(inner != NULL && janus_nursery_spawn(inner, compute, NULL) == NULL); /* It has no spawns. */
  return 0;
}

static int32_t recharge(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  (void)job;
  CHECK(lacking == JT_COUNTER_OPS);
  more->ops = 10000;
  atomic_fetch_add((atomic_int *)arg, 1);
  return JT_DECISION_RECHARGE;
}

static void profiles(void) {
  janus_nursery *nursery, *owned;
  janus_task *task, *owner;
  janus_nursery_result result;
  janus_nursery_state_t state;
  janus_budget budget = {500, 1 << 20, 2, 10, 10}, left, more = {20000, 0, 0, 0, 0};
  janus_capabilities capabilities = {.size = sizeof capabilities};
  janus_stats stats;
  jt_cause_t cause;
  char text[64];
  atomic_int recharged = 0;
  CHECK(janus_runtime_start(99, 1, NULL, NULL) == JT_EINVAL);
  CHECK(janus_scheduler_stats(&stats) == JT_ESHUTDOWN);

  EXPECT(JT_OK, janus_runtime_start(JANUS_PROFILE_CORE, 1, NULL, NULL));
  nursery = janus_nursery_create();
  CHECK(janus_nursery_spawn(nursery, compute, NULL) == NULL); /* Forbidden. */
  janus_nursery_destroy(nursery);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  EXPECT(JT_OK, janus_runtime_start(JANUS_PROFILE_SERVICE, 2, NULL, NULL));
  nursery = janus_nursery_create();
  CHECK(janus_nursery_state(nursery, &state) == JT_OK && state == JT_NURSERY_OPEN);
  task = janus_nursery_spawn_with(nursery, sleep_for_ever, NULL, &budget, NULL);
  CHECK(task != NULL);
  CHECK(janus_task_budget(task, &left) == JT_OK && left.spawn_count == 2 && left.ops == 500);
  CHECK(janus_task_budget(task, NULL) == JT_ENULL && janus_task_budget(NULL, &left) == JT_EEMPTY);
  CHECK(janus_task_capabilities(task, &capabilities) == JT_OK && capabilities.max_tasks == 100);
  owner = janus_nursery_spawn(nursery, own_a_nursery, NULL);
  EXPECT(JT_OK, jt_job_join((jt_job_t)(uintptr_t)owner, NULL));
  owned = janus_nursery_create_in(task);
  CHECK(owned != NULL && janus_nursery_create_in(NULL) == NULL);
  CHECK(janus_nursery_spawn(owned, sleep_for_ever, NULL) != NULL);
  CHECK(janus_nursery_cancel_reason(owned, &cause, text, sizeof text) == JT_EEMPTY);
  janus_nursery_cancel(nursery); /* Goes down to what the task owns. */
  CHECK(janus_nursery_await(owned).status == JT_ECANCELED);
  CHECK(janus_nursery_cancel_reason(nursery, &cause, text, sizeof text) == JT_OK && cause == JT_CAUSE_EXPLICIT);
  CHECK(janus_nursery_cancel_reason(NULL, &cause, text, sizeof text) == JT_ENULL);
  janus_nursery_destroy(owned);
  janus_nursery_destroy(nursery);
  CHECK(janus_nursery_state(nursery, &state) == JT_EHANDLE);
  CHECK(janus_nursery_spawn_with(NULL, compute, NULL, NULL, NULL) == NULL);
  CHECK(janus_scheduler_stats(&stats) == JT_OK && stats.canceled >= 2 && stats.refusals >= 1);
  CHECK(janus_scheduler_stats(NULL) == JT_ENULL);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  EXPECT(JT_OK, janus_runtime_start(JANUS_PROFILE_CLUSTER, 2, NULL, NULL));
  nursery = janus_nursery_create();
  task = janus_nursery_spawn(nursery, compute_for_long, NULL);
  while (janus_nursery_recharge(nursery, task, &more) == JT_EBUSY) {
    jt_yield(); /* Until it has used up its budget. */
  }
  CHECK(janus_nursery_recharge(NULL, task, &more) == JT_ENULL);
  CHECK(janus_nursery_recharge(nursery, NULL, &more) == JT_EHANDLE);
  EXPECT(JT_OK, janus_nursery_supervise(nursery, recharge, &recharged));
  CHECK(janus_nursery_supervise(NULL, recharge, &recharged) == JT_ENULL);
  CHECK(janus_nursery_spawn(nursery, compute_for_long, NULL) != NULL);
  result = janus_nursery_await(nursery);
  CHECK(result.status == JT_OK && atomic_load(&recharged) == 1);
  janus_nursery_destroy(nursery);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  capabilities.rights = JT_CAP_SPAWN | JT_CAP_COOPERATIVE;
  capabilities.max_tasks = 1;
  EXPECT(JT_OK, janus_runtime_start(JANUS_PROFILE_SOVEREIGN, 1, &more, &capabilities));
  nursery = janus_nursery_create();
  CHECK(janus_nursery_spawn(nursery, compute, NULL) == NULL); /* The budget has no spawns. */
  janus_nursery_destroy(nursery);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
}

/* Events, pictures and numbers of tasks. */
static void monitor(void) {
  janus_nursery *nursery;
  janus_task *task;
  janus_event event;
  char text[512];
  size_t count = 0, needed = 0;
  uint64_t lost = 0, task_id;
  int created = 0, finalized = 0;
  EXPECT(JT_OK, jt_runtime_init(1));
  EXPECT(JT_OK, janus_events_record(64));
  nursery = janus_nursery_create();
  task = janus_nursery_spawn(nursery, sleep_for_ever, NULL);
  task_id = janus_task_id(task);
  CHECK(task_id != 0 && janus_nursery_id(nursery) != 0 && janus_nursery_id(nursery) != task_id);
  CHECK(janus_task_id(NULL) == 0 && janus_nursery_id(NULL) == 0);
  EXPECT(JT_OK, janus_nursery_dump(nursery, text, sizeof text, &needed));
  CHECK(needed > 1 && text[needed - 1] == 0);
  EXPECT(JT_OK, janus_nursery_dump(NULL, NULL, 0, &count));
  CHECK(count > needed); /* All jobs are more than one nursery. */
  EXPECT(JT_ETRUNCATED, janus_nursery_dump(NULL, text, 8, NULL));
  janus_nursery_cancel(nursery);
  CHECK(janus_nursery_await(nursery).status == JT_ECANCELED);
  while (janus_events_take(&event, 1, &count, &lost) == JT_OK && count == 1) {
    created += event.kind == JT_EVENT_CREATE && event.job == task_id;
    finalized += event.kind == JT_EVENT_FINALIZE && event.job == task_id && event.state == JT_JOB_CANCELED;
  }
  CHECK(created == 1 && finalized == 1 && lost == 0);
  EXPECT(JT_OK, janus_events_record(0));
  janus_nursery_destroy(nursery);
  EXPECT(JT_EHANDLE, janus_nursery_dump(nursery, text, sizeof text, NULL));
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  EXPECT(JT_ESHUTDOWN, janus_events_take(&event, 1, &count, NULL));
}

int main(void) {
  janus_nursery *nursery;
  janus_nursery_result result;
  CHECK(janus_nursery_create() == NULL); /* There is no runtime yet. */
  EXPECT(JT_OK, jt_runtime_init(2));

  nursery = janus_nursery_create();
  CHECK(nursery != NULL);
  CHECK(janus_nursery_spawn(nursery, compute, (void *)1) != NULL);
  CHECK(janus_nursery_spawn(nursery, compute, (void *)2) != NULL);
  result = janus_nursery_await(nursery);
  CHECK(result.status == JT_OK && result.code == 0);
  CHECK(atomic_load(&ran) == 3);
  janus_nursery_destroy(nursery);
  janus_nursery_destroy(nursery);
  janus_nursery_destroy(NULL);
  CHECK(janus_nursery_spawn(nursery, compute, (void *)1) == NULL);
  result = janus_nursery_await(nursery);
  CHECK(result.status == JT_EHANDLE && result.code == JT_EHANDLE);

  nursery = janus_nursery_create();
  CHECK(janus_nursery_spawn(nursery, sleep_for_ever, NULL) != NULL);
  CHECK(janus_nursery_spawn(nursery, fail, (void *)17) != NULL);
  result = janus_nursery_await(nursery);
  CHECK(result.status == JT_EFAILED && result.code == 17);
  janus_nursery_destroy(nursery);

  nursery = janus_nursery_create();
  CHECK(janus_nursery_spawn(nursery, sleep_for_ever, NULL) != NULL);
  janus_nursery_cancel(nursery);
  result = janus_nursery_await(nursery);
  CHECK(result.status == JT_ECANCELED);
  janus_nursery_destroy(nursery);

  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  profiles();
  monitor();
  return verdict();
}
