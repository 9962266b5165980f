/* Callbacks that do what they like: call back, cancel, destroy what they were given, end what calls them. */

#include <pthread.h>
#include <string.h>

#include "check.h"

static int32_t nothing(void *arg) {
  (void)arg;
  return JT_OK;
}

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

static int32_t keep_computing(void *arg) {
  (void)arg;
  for (;;) {
    if (jt_tick() != JT_OK) {
      return JT_ECANCELED;
    }
  }
}

static atomic_int released;
static jt_nursery_t nursery;

/* Uses the whole interface where it was not asked to. */
static void release_and_call(void *arg) {
  jt_counters_t counters = {.size = sizeof counters};
  jt_event_t event;
  size_t count;
  char text[64];
  jt_status status;
  (void)arg;
  EXPECT(JT_EBUSY, jt_runtime_shutdown(-1));
  EXPECT(JT_EBUSY, jt_runtime_init(1));
  status = jt_counters(&counters);
  CHECK(status == JT_OK || status == JT_ESHUTDOWN);
  status = jt_events_take(&event, 1, &count, NULL);
  CHECK(status == JT_OK || status == JT_ESHUTDOWN);
  status = jt_dump_tree(0, JT_DUMP_TEXT, text, sizeof text, NULL);
  CHECK(status == JT_OK || status == JT_ETRUNCATED || status == JT_ESHUTDOWN);
  status = jt_cancel(nursery, "by a callback");
  CHECK(status == JT_OK || status == JT_EHANDLE || status == JT_ESHUTDOWN);
  status = jt_launch(0, nothing, NULL, NULL, NULL);
  CHECK(status == JT_OK || status == JT_ECANCELED || status == JT_ESHUTDOWN || status == JT_EREFUSED);
  atomic_fetch_add(&released, 1);
}

static int32_t ignore(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  (void)job;
  (void)lacking;
  (void)more;
  (void)arg;
  return JT_DECISION_IGNORE;
}

/* Replaces the handler that replaces it: the third one stays. */
static void replace_again(void *arg) {
  EXPECT(JT_OK, jt_supervise_budgets(nursery, ignore, NULL, release_and_call));
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void handlers_that_replace_each_other(void) {
  atomic_int replaced = 0;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_supervise_budgets(nursery, ignore, &replaced, replace_again));
  EXPECT(JT_OK, jt_supervise_budgets(nursery, ignore, &replaced, NULL));
  CHECK(atomic_load(&replaced) == 1);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

/* Destroys, from inside of the decision, everything that it can reach. */
static atomic_int decisions;

static int32_t destroy_all(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  jt_job_t self;
  (void)lacking;
  (void)arg;
  atomic_fetch_add(&decisions, 1);
  EXPECT(JT_EBUSY, jt_nursery_destroy(nursery)); /* It is in there. */
  EXPECT(JT_EBUSY, jt_runtime_shutdown(-1));
  EXPECT(JT_OK, jt_supervise_budgets(nursery, ignore, NULL, release_and_call));
  EXPECT(JT_EEMPTY, jt_job_current(&self)); /* Outside of all jobs. */
  EXPECT(JT_EBUSY, jt_job_join(job, NULL)); /* It waits for this function. */
  EXPECT(JT_OK, jt_cancel(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_EHANDLE, jt_job_release(job));
  more->ops = 10;
  return JT_DECISION_RECHARGE;
}

static void decisions_that_destroy(void) {
  jt_job_t job;
  int before = atomic_load(&released);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_supervise_budgets(nursery, destroy_all, NULL, release_and_call));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, keep_computing, NULL, &job));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  CHECK(atomic_load(&decisions) == 1);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  /* Both handlers are released soon, and cancel what `nursery` names then. */
  while (atomic_load(&released) < before + 2) {
    EXPECT(JT_OK, jt_sleep_ms(1));
  }
}

/* Recharges by hand what it then lets wait. */
static int32_t recharge_by_hand(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  jt_budget_t some = {1000, 0, 0, 0, 0};
  (void)more;
  CHECK(lacking == JT_COUNTER_OPS);
  EXPECT(JT_OK, jt_recharge(nursery, job, &some, NULL));
  EXPECT(JT_EBUSY, jt_recharge(nursery, job, &some, NULL));
  if (atomic_fetch_add((atomic_int *)arg, 1) == 3) {
    EXPECT(JT_OK, jt_cancel(nursery, NULL));
  }
  return JT_DECISION_IGNORE;
}

static void decisions_that_recharge(void) {
  atomic_int calls = 0;
  jt_job_t job;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_supervise_budgets(nursery, recharge_by_hand, &calls, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, keep_computing, NULL, &job));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  CHECK(atomic_load(&calls) >= 4);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

/* Arguments of jobs that have begun, that have not, and that the shutdown ends. */
static void releases(void) {
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job;
  int before = atomic_load(&released);
  opts.release = release_and_call;
  for (int i = 0; i < 20; i++) {
    EXPECT(JT_OK, jt_nursery_create(&nursery));
    for (int j = 0; j < 10; j++) {
      jt_status status = jt_launch(nursery, j % 2 ? nothing : sleep_for_ever, NULL, &opts, &job);
      CHECK(status == JT_OK || status == JT_ECANCELED); /* By the release of another one. */
      before += status == JT_OK;
    }
    EXPECT(JT_OK, jt_nursery_destroy(nursery));
  }
  UNTIL(atomic_load(&released) == before);
  opts.dispatcher = JT_DISPATCHER_IO;
  for (int j = 0; j < 10; j++) {
    EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, &opts, NULL));
  }
  opts.dispatcher = JT_DISPATCHER_DEFAULT;
  for (int j = 0; j < 10; j++) {
    EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, &opts, NULL));
  }
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  CHECK(atomic_load(&released) == before + 20);
}

/* A scope whose function destroys the scope's own nursery, cancels itself and leaves things open. */
static int32_t make_a_mess(jt_scope_t scope, void *arg) {
  jt_nursery_t left;
  (void)arg;
  EXPECT(JT_EHANDLE, jt_job_release(scope));
  EXPECT(JT_EHANDLE, jt_nursery_destroy(scope));
  EXPECT(JT_OK, jt_nursery_create(&left));
  EXPECT(JT_OK, jt_nursery_spawn(left, sleep_for_ever, NULL, NULL));
  EXPECT(JT_OK, jt_cancel(scope, "by itself"));
  EXPECT(JT_ECANCELED, jt_launch(scope, nothing, NULL, NULL, NULL));
  EXPECT(JT_ECANCELED, jt_nursery_create(&left));
  return 5;
}

int main(void) {
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  int32_t code = 0;
  opts.workers = 2;
  opts.profile = JT_PROFILE_CLUSTER;
  opts.on_exhausted = ignore;
  opts.on_exhausted_release = release_and_call;
  EXPECT(JT_OK, jt_runtime_init_with(&opts));
  handlers_that_replace_each_other();
  decisions_that_destroy();
  decisions_that_recharge();
  EXPECT(JT_EFAILED, jt_scope(make_a_mess, NULL, &code));
  CHECK(code == 5);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  EXPECT(JT_OK, jt_runtime_init(2));
  releases();
  return verdict();
}
