/* Dispatchers: threads of one's own, and what becomes of jobs on them. */

#include <pthread.h>
#include <string.h>

#include "check.h"

static atomic_int ran;
static atomic_int at_once;
static atomic_int most_at_once;
static pthread_barrier_t together;

static jt_launch_opts on(jt_dispatcher_t dispatcher) {
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  opts.dispatcher = dispatcher;
  return opts;
}

static int32_t alone(void *arg) {
  int others = atomic_fetch_add(&at_once, 1);
  (void)arg;
  if (others + 1 > atomic_load(&most_at_once)) {
    atomic_store(&most_at_once, others + 1);
  }
  jt_yield();
  atomic_fetch_sub(&at_once, 1);
  atomic_fetch_add(&ran, 1);
  return JT_OK;
}

/* What runs on one thread never runs twice at once. */
static void one_after_another(void) {
  jt_dispatcher_t dispatcher;
  jt_nursery_t nursery;
  EXPECT(JT_OK, jt_dispatcher_create(1, &dispatcher));
  jt_launch_opts opts = on(dispatcher);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  for (int i = 0; i < 100; i++) {
    EXPECT(JT_OK, jt_launch(nursery, alone, NULL, &opts, NULL));
  }
  EXPECT(JT_OK, jt_dispatcher_drain(dispatcher, -1));
  CHECK(atomic_load(&ran) == 100);
  CHECK(atomic_load(&most_at_once) == 1);
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_dispatcher_destroy(dispatcher));
}

static int32_t meet(void *arg) {
  (void)arg;
  pthread_barrier_wait(&together);
  return JT_OK;
}

/* As many as there are threads may block theirs, while there is only one worker. */
static void all_at_once(void) {
  jt_dispatcher_t dispatcher;
  jt_nursery_t nursery;
  pthread_barrier_init(&together, NULL, 4);
  EXPECT(JT_OK, jt_dispatcher_create(4, &dispatcher));
  jt_launch_opts opts = on(dispatcher);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  for (int i = 0; i < 4; i++) {
    EXPECT(JT_OK, jt_launch(nursery, meet, NULL, &opts, NULL));
  }
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_dispatcher_destroy(dispatcher));
  pthread_barrier_destroy(&together);
}

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

/* What does not end in time is named, and cancelled with its scope wherever it runs. */
static void drain_in_vain(void) {
  jt_dispatcher_t dispatcher;
  jt_nursery_t nursery;
  char detail[256];
  EXPECT(JT_OK, jt_dispatcher_create(2, &dispatcher));
  jt_launch_opts opts = on(dispatcher);
  opts.label = "the sleeper";
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_launch(nursery, sleep_for_ever, NULL, &opts, NULL));
  EXPECT(JT_ETIMEDOUT, jt_dispatcher_drain(dispatcher, 5));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strstr(detail, "the sleeper") != NULL);
  EXPECT(JT_OK, jt_nursery_cancel(nursery, "enough"));
  EXPECT(JT_OK, jt_dispatcher_drain(dispatcher, -1));
  EXPECT(JT_ECANCELED, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_dispatcher_destroy(dispatcher));
}

static int32_t drain_it(void *arg) { return jt_dispatcher_drain(*(jt_dispatcher_t *)arg, -1); }

/* Who waits for a dispatcher can be cancelled. */
static void cancel_a_drain(void) {
  jt_dispatcher_t dispatcher;
  jt_nursery_t nursery;
  jt_job_t sleeper, waiter;
  EXPECT(JT_OK, jt_dispatcher_create(1, &dispatcher));
  jt_launch_opts opts = on(dispatcher);
  EXPECT(JT_OK, jt_nursery_create_supervisor(&nursery));
  EXPECT(JT_OK, jt_launch(nursery, sleep_for_ever, NULL, &opts, &sleeper));
  EXPECT(JT_OK, jt_launch(nursery, drain_it, &dispatcher, NULL, &waiter));
  EXPECT(JT_OK, jt_cancel(waiter, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(waiter, NULL));
  EXPECT(JT_OK, jt_cancel(sleeper, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(sleeper, NULL));
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_dispatcher_destroy(dispatcher));
}

/* What was started on a dispatcher that is given up runs all the same. */
static void destroyed_early(void) {
  jt_dispatcher_t dispatcher;
  jt_nursery_t nursery;
  atomic_store(&ran, 0);
  EXPECT(JT_OK, jt_dispatcher_create(1, &dispatcher));
  jt_launch_opts opts = on(dispatcher);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  for (int i = 0; i < 20; i++) {
    EXPECT(JT_OK, jt_launch(nursery, alone, NULL, &opts, NULL));
  }
  EXPECT(JT_OK, jt_dispatcher_destroy(dispatcher));
  EXPECT(JT_EHANDLE, jt_launch(nursery, alone, NULL, &opts, NULL));
  EXPECT(JT_EHANDLE, jt_dispatcher_drain(dispatcher, 0));
  EXPECT(JT_EHANDLE, jt_dispatcher_destroy(dispatcher));
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  CHECK(atomic_load(&ran) == 20);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
}

static void those_of_the_runtime(void) {
  jt_dispatcher_t dispatcher;
  jt_launch_opts opts = on(JT_DISPATCHER_IO);
  atomic_store(&ran, 0);
  EXPECT(JT_OK, jt_launch(0, alone, NULL, &opts, NULL));
  EXPECT(JT_OK, jt_dispatcher_drain(JT_DISPATCHER_IO, -1));
  CHECK(atomic_load(&ran) == 1);
  EXPECT(JT_EINVAL, jt_dispatcher_drain(JT_DISPATCHER_DEFAULT, 0));
  EXPECT(JT_EINVAL, jt_dispatcher_destroy(JT_DISPATCHER_DEFAULT));
  EXPECT(JT_EINVAL, jt_dispatcher_destroy(JT_DISPATCHER_IO));
  EXPECT(JT_EINVAL, jt_dispatcher_create(0, &dispatcher));
  EXPECT(JT_ENULL, jt_dispatcher_create(1, NULL));
}

int main(void) {
  jt_dispatcher_t kept;
  EXPECT(JT_OK, jt_runtime_init(1));
  one_after_another();
  all_at_once();
  drain_in_vain();
  cancel_a_drain();
  destroyed_early();
  those_of_the_runtime();
  /* The shutdown ends threads that nobody has given up, and what sleeps on them. */
  EXPECT(JT_OK, jt_dispatcher_create(2, &kept));
  jt_launch_opts opts = on(kept);
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, &opts, NULL));
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  EXPECT(JT_ESHUTDOWN, jt_dispatcher_drain(kept, 0));
  EXPECT(JT_OK, jt_runtime_init(1));
  EXPECT(JT_EHANDLE, jt_dispatcher_drain(kept, 0));
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
