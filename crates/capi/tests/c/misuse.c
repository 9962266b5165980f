/* Everything that one can do wrong has a status, and does no harm. */

#include <pthread.h>
#include <string.h>

#include "check.h"

static int32_t nothing(void *arg) {
  (void)arg;
  return JT_OK;
}

static int32_t nothing_in_scope(jt_scope_t scope, void *arg) {
  (void)scope;
  (void)arg;
  return JT_OK;
}

static int32_t nothing_deferred(void *arg, void **result) {
  (void)arg;
  (void)result;
  return JT_OK;
}

static int32_t decide_nothing(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  (void)job;
  (void)lacking;
  (void)more;
  (void)arg;
  return JT_DECISION_IGNORE;
}

/* Every function that needs a runtime, without one. */
static void without_runtime(jt_status expected) {
  uint64_t handle = 0, value = 0;
  int32_t number = 0;
  jt_nursery_state_t nursery_state;
  jt_job_state_t job_state;
  jt_channel_stats_t stats;
  jt_select_clause clause = {1, JT_SELECT_RECV, 0, 0};
  size_t index;
  void *result;
  EXPECT(expected, jt_nursery_create(&handle));
  EXPECT(expected, jt_nursery_create_supervisor(&handle));
  EXPECT(expected, jt_nursery_spawn(1, nothing, NULL, NULL));
  EXPECT(expected, jt_nursery_await(1, NULL));
  EXPECT(expected, jt_nursery_cancel(1, NULL));
  EXPECT(expected, jt_nursery_state(1, &nursery_state));
  EXPECT(expected, jt_nursery_destroy(1));
  EXPECT(expected, jt_scope(nothing_in_scope, NULL, NULL));
  EXPECT(expected, jt_supervisor(nothing_in_scope, NULL, NULL));
  EXPECT(expected, jt_with_timeout(1, nothing, NULL, NULL));
  EXPECT(expected, jt_shield(1, nothing, NULL, NULL));
  EXPECT(expected, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(expected, jt_async(0, nothing_deferred, NULL, NULL, &handle));
  EXPECT(expected, jt_await(1, &result));
  EXPECT(expected, jt_cancel(1, NULL));
  EXPECT(expected, jt_cancel_current(NULL));
  EXPECT(expected, jt_job_current(&handle));
  EXPECT(expected, jt_job_join(1, NULL));
  EXPECT(expected, jt_job_result(1, NULL));
  EXPECT(expected, jt_job_state(1, &job_state));
  EXPECT(expected, jt_job_is_canceled(1, &number));
  EXPECT(expected, jt_job_release(1));
  EXPECT(expected, jt_checkpoint());
  EXPECT(expected, jt_tick());
  EXPECT(expected, jt_yield());
  EXPECT(expected, jt_sleep_ms(0));
  EXPECT(expected, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &handle));
  EXPECT(expected, jt_channel_send(1, 1));
  EXPECT(expected, jt_channel_try_send(1, 1));
  EXPECT(expected, jt_channel_send_timeout(1, 1, 1));
  EXPECT(expected, jt_channel_recv(1, &value));
  EXPECT(expected, jt_channel_try_recv(1, &value));
  EXPECT(expected, jt_channel_recv_timeout(1, &value, 1));
  EXPECT(expected, jt_channel_close(1));
  EXPECT(expected, jt_channel_stats(1, &stats));
  EXPECT(expected, jt_channel_destroy(1));
  EXPECT(expected, jt_select(&clause, 1, -1, &index));
  EXPECT(expected, jt_dispatcher_create(1, &handle));
  EXPECT(expected, jt_dispatcher_drain(1, 0));
  EXPECT(expected, jt_dispatcher_destroy(1));
  EXPECT(expected, jt_runtime_shutdown(0));
  jt_profile_t profile;
  jt_budget_t budget = {0, 0, 0, 0, 0};
  jt_job_budget_t job_budget = {.size = sizeof job_budget};
  jt_capabilities_t capabilities = {.size = sizeof capabilities};
  jt_counters_t counters = {.size = sizeof counters};
  jt_event_t event;
  jt_cause_t cause;
  char text[16];
  EXPECT(expected, jt_runtime_profile(&profile));
  EXPECT(expected, jt_budget_remaining(&budget));
  EXPECT(expected, jt_job_budget(1, &job_budget));
  EXPECT(expected, jt_job_capabilities(1, &capabilities));
  EXPECT(expected, jt_charge(1));
  EXPECT(expected, jt_charge_syscall());
  EXPECT(expected, jt_supervise_budgets(1, decide_nothing, NULL, NULL));
  EXPECT(expected, jt_recharge(1, 1, &budget, NULL));
  EXPECT(expected, jt_counters(&counters));
  EXPECT(expected, jt_events_record(1));
  EXPECT(expected, jt_events_take(&event, 1, &index, NULL));
  EXPECT(expected, jt_dump_tree(0, JT_DUMP_TEXT, text, sizeof text, NULL));
  EXPECT(expected, jt_cancel_reason(1, &cause, text, sizeof text, NULL));
  EXPECT(expected, jt_scope_in(1, 0, nothing_in_scope, NULL, NULL));
  EXPECT(expected, jt_nursery_create_in(1, 0, &handle));
  EXPECT(expected, jt_job_parent(1, &handle));
  EXPECT(expected, jt_job_id(1, &handle));
}

/* Every function that takes a nursery, a job, a deferred or a channel, with one that is none. */
static void with_bad_handle(uint64_t bad) {
  uint64_t value = 0;
  int32_t number = 0;
  jt_nursery_state_t nursery_state;
  jt_job_state_t job_state;
  jt_channel_stats_t stats;
  EXPECT(JT_EHANDLE, jt_nursery_spawn(bad, nothing, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_await(bad, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_cancel(bad, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_state(bad, &nursery_state));
  EXPECT(JT_EHANDLE, jt_nursery_destroy(bad));
  EXPECT(JT_EHANDLE, jt_await(bad, NULL));
  EXPECT(JT_EHANDLE, jt_cancel(bad, NULL));
  EXPECT(JT_EHANDLE, jt_job_join(bad, NULL));
  EXPECT(JT_EHANDLE, jt_job_result(bad, NULL));
  EXPECT(JT_EHANDLE, jt_job_state(bad, &job_state));
  EXPECT(JT_EHANDLE, jt_job_is_canceled(bad, &number));
  EXPECT(JT_EHANDLE, jt_job_release(bad));
  EXPECT(JT_EHANDLE, jt_channel_send(bad, 1));
  EXPECT(JT_EHANDLE, jt_channel_try_send(bad, 1));
  EXPECT(JT_EHANDLE, jt_channel_recv(bad, &value));
  EXPECT(JT_EHANDLE, jt_channel_try_recv(bad, &value));
  EXPECT(JT_EHANDLE, jt_channel_close(bad));
  EXPECT(JT_EHANDLE, jt_channel_stats(bad, &stats));
  EXPECT(JT_EHANDLE, jt_channel_destroy(bad));
  if (bad != 0) {
    EXPECT(JT_EHANDLE, jt_launch(bad, nothing, NULL, NULL, NULL));
  }
  /* To these, 0 is the current job, or all of them. */
  if (bad != 0) {
    jt_budget_t budget = {0, 0, 0, 0, 0};
    jt_job_budget_t job_budget = {.size = sizeof job_budget};
    jt_capabilities_t capabilities = {.size = sizeof capabilities};
    jt_cause_t cause;
    char text[16];
    EXPECT(JT_EHANDLE, jt_job_budget(bad, &job_budget));
    EXPECT(JT_EHANDLE, jt_job_capabilities(bad, &capabilities));
    EXPECT(JT_EHANDLE, jt_supervise_budgets(bad, decide_nothing, NULL, NULL));
    EXPECT(JT_EHANDLE, jt_recharge(bad, bad, &budget, NULL));
    EXPECT(JT_EHANDLE, jt_dump_tree(bad, JT_DUMP_TEXT, text, sizeof text, NULL));
    EXPECT(JT_EHANDLE, jt_cancel_reason(bad, &cause, text, sizeof text, NULL));
    EXPECT(JT_EHANDLE, jt_scope_in(bad, 0, nothing_in_scope, NULL, NULL));
    EXPECT(JT_EHANDLE, jt_nursery_create_in(bad, 0, &value));
    EXPECT(JT_EHANDLE, jt_job_parent(bad, &value));
    EXPECT(JT_EHANDLE, jt_job_id(bad, &value));
  }
  /* These are the runtime's own dispatchers. */
  if (bad != JT_DISPATCHER_DEFAULT && bad != JT_DISPATCHER_IO) {
    jt_launch_opts opts = JT_LAUNCH_OPTS;
    opts.dispatcher = bad;
    EXPECT(JT_EHANDLE, jt_launch(0, nothing, NULL, &opts, NULL));
    EXPECT(JT_EHANDLE, jt_dispatcher_drain(bad, 0));
    EXPECT(JT_EHANDLE, jt_dispatcher_destroy(bad));
  }
}

static void null_pointers(jt_nursery_t nursery, jt_job_t job, jt_channel_t channel) {
  EXPECT(JT_ENULL, jt_nursery_create(NULL));
  EXPECT(JT_ENULL, jt_nursery_create_supervisor(NULL));
  EXPECT(JT_ENULL, jt_nursery_spawn(nursery, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_nursery_state(nursery, NULL));
  EXPECT(JT_ENULL, jt_scope(NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_supervisor(NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_with_timeout(1, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_shield(1, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_launch(0, NULL, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_async(0, nothing_deferred, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_async(0, NULL, NULL, NULL, &job));
  EXPECT(JT_ENULL, jt_job_current(NULL));
  EXPECT(JT_ENULL, jt_job_state(job, NULL));
  EXPECT(JT_ENULL, jt_job_is_canceled(job, NULL));
  EXPECT(JT_ENULL, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, NULL));
  EXPECT(JT_ENULL, jt_channel_recv(channel, NULL));
  EXPECT(JT_ENULL, jt_channel_try_recv(channel, NULL));
  EXPECT(JT_ENULL, jt_channel_recv_timeout(channel, NULL, 0));
  EXPECT(JT_ENULL, jt_channel_stats(channel, NULL));
  EXPECT(JT_ENULL, jt_last_error(NULL, 10));
  EXPECT(JT_ENULL, jt_budget_remaining(NULL));
  EXPECT(JT_ENULL, jt_job_budget(job, NULL));
  EXPECT(JT_ENULL, jt_job_capabilities(job, NULL));
}

static void wrong_kinds(jt_nursery_t nursery, jt_job_t job, jt_channel_t channel) {
  uint64_t value;
  char detail[128];
  EXPECT(JT_EHANDLE, jt_nursery_await(job, NULL));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strstr(detail, "a job, not a nursery") != NULL);
  EXPECT(JT_EHANDLE, jt_nursery_destroy(channel));
  EXPECT(JT_EHANDLE, jt_nursery_spawn(job, nothing, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_launch(channel, nothing, NULL, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_job_join(nursery, NULL));
  EXPECT(JT_EHANDLE, jt_job_release(nursery));
  EXPECT(JT_EHANDLE, jt_await(job, NULL));
  EXPECT(JT_EHANDLE, jt_cancel(channel, NULL));
  EXPECT(JT_EHANDLE, jt_channel_recv(nursery, &value));
  EXPECT(JT_EHANDLE, jt_channel_destroy(job));
  EXPECT(JT_EHANDLE, jt_dispatcher_drain(nursery, 0));
  EXPECT(JT_EHANDLE, jt_dispatcher_destroy(channel));
  EXPECT(JT_EHANDLE, jt_supervise_budgets(channel, decide_nothing, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_scope_in(channel, 0, nothing_in_scope, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_job_parent(channel, &value));
  /* None of that has destroyed anything. */
  EXPECT(JT_OK, jt_channel_try_send(channel, 1));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nothing, NULL, NULL));
}

static void bad_values(void) {
  uint64_t handle;
  EXPECT(JT_EINVAL, jt_channel_create(JT_CHANNEL_BOUNDED, 0, &handle));
  EXPECT(JT_EINVAL, jt_channel_create(JT_CHANNEL_DROPPING_OLDEST, 0, &handle));
  EXPECT(JT_EINVAL, jt_channel_create(JT_CHANNEL_DROPPING_NEWEST, 0, &handle));
  EXPECT(JT_EINVAL, jt_channel_create(-1, 1, &handle));
  EXPECT(JT_EINVAL, jt_channel_create(6, 1, &handle));
  EXPECT(JT_EEMPTY, jt_job_current(&handle));
  EXPECT(JT_EEMPTY, jt_cancel_current(NULL));
}

#define ROUNDS 200

static jt_nursery_t contested;
static atomic_int destroyed;
static pthread_barrier_t together;

static void *destroy_it(void *arg) {
  (void)arg;
  for (int i = 0; i < ROUNDS; i++) {
    pthread_barrier_wait(&together);
    jt_status status = jt_nursery_destroy(contested);
    CHECK(status == JT_OK || status == JT_EHANDLE);
    atomic_fetch_add(&destroyed, status == JT_OK);
    pthread_barrier_wait(&together);
  }
  return NULL;
}

/* One thread uses a nursery while two others destroy it. */
static void concurrent_destroy(void) {
  pthread_t threads[2];
  pthread_barrier_init(&together, NULL, 3);
  for (int i = 0; i < 2; i++) {
    CHECK(pthread_create(&threads[i], NULL, destroy_it, NULL) == 0);
  }
  for (int i = 0; i < ROUNDS; i++) {
    jt_status status;
    EXPECT(JT_OK, jt_nursery_create(&contested));
    pthread_barrier_wait(&together);
    do {
      status = jt_nursery_spawn(contested, nothing, NULL, NULL);
      CHECK(status == JT_OK || status == JT_EHANDLE || status == JT_ECANCELED || status == JT_ECLOSED);
    } while (status == JT_OK);
    pthread_barrier_wait(&together);
  }
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK(atomic_load(&destroyed) == ROUNDS);
  pthread_barrier_destroy(&together);
}

static jt_channel_t signal;

static int32_t fail_and_wait(void *arg) {
  uint64_t value;
  char detail[128];
  (void)arg;
  EXPECT(JT_EHANDLE, jt_job_join(0, NULL));
  EXPECT(JT_OK, jt_channel_recv(signal, &value));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strcmp(detail, "the handle is 0") == 0);
  return JT_OK;
}

static int32_t fail_and_signal(void *arg) {
  uint64_t handle;
  char detail[128];
  (void)arg;
  EXPECT(JT_EEMPTY, jt_last_error(detail, sizeof detail)); /* Nothing was wrong in this job. */
  EXPECT(JT_EINVAL, jt_channel_create(-1, 1, &handle));
  EXPECT(JT_OK, jt_channel_send(signal, 1));
  return JT_OK;
}

/* Two jobs take turns on one thread: each has its own last error. */
static void errors_of_jobs(void) {
  jt_nursery_t nursery;
  jt_channel_stats_t stats = {0};
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &signal));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail_and_wait, NULL, NULL));
  UNTIL(jt_channel_stats(signal, &stats) == JT_OK && stats.receivers_waiting == 1);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail_and_signal, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_channel_destroy(signal));
}

static atomic_int waiting;

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  atomic_fetch_add(&waiting, 1);
  jt_status status = jt_sleep_ms(FAR_MS);
  /* The runtime ends; putting things in order still works. */
  jt_channel_t channel;
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &channel));
  EXPECT(JT_OK, jt_channel_try_send(channel, 1));
  EXPECT(JT_OK, jt_channel_destroy(channel));
  return status;
}

static jt_channel_t silent;

static void *wait_outside(void *arg) {
  uint64_t value;
  (void)arg;
  atomic_fetch_add(&waiting, 1);
  EXPECT(JT_ESHUTDOWN, jt_channel_recv(silent, &value));
  EXPECT(JT_ESHUTDOWN, jt_sleep_ms(FAR_MS));
  return NULL;
}

/* Things are left open everywhere; the shutdown ends them, and wakes a thread that waits. */
static void shutdown_with_all_open(void) {
  jt_nursery_t nursery;
  jt_job_t job;
  pthread_t thread;
  jt_channel_stats_t stats = {0};
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &silent));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, sleep_for_ever, NULL, NULL));
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, NULL, &job));
  CHECK(pthread_create(&thread, NULL, wait_outside, NULL) == 0);
  UNTIL(atomic_load(&waiting) == 3);
  UNTIL(jt_channel_stats(silent, &stats) == JT_OK && stats.receivers_waiting == 1);
  EXPECT(JT_OK, jt_runtime_shutdown(-1));
  pthread_join(thread, NULL);
  without_runtime(JT_ESHUTDOWN);
  EXPECT(JT_ESHUTDOWN, jt_nursery_destroy(nursery));
  EXPECT(JT_ESHUTDOWN, jt_job_release(job));
  /* In the next runtime the handles of the last one are stale. */
  EXPECT(JT_OK, jt_runtime_init(1));
  with_bad_handle(nursery);
  with_bad_handle(job);
  with_bad_handle(silent);
  errors_of_jobs(); /* With one worker. */
}

static atomic_int straggler_may_end;
static atomic_int straggler_has_ended;

static int32_t straggle(void *arg) {
  (void)arg;
  atomic_fetch_add(&waiting, 1);
  while (!atomic_load(&straggler_may_end)) {
  }
  /* Long after the shutdown. */
  uint64_t handle;
  EXPECT(JT_ESHUTDOWN, jt_nursery_create(&handle));
  EXPECT(JT_ESHUTDOWN, jt_checkpoint());
  atomic_store(&straggler_has_ended, 1);
  return JT_ESHUTDOWN;
}

static void shutdown_with_straggler(void) {
  char detail[256];
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  opts.label = "the straggler";
  atomic_store(&waiting, 0);
  EXPECT(JT_OK, jt_launch(0, straggle, NULL, &opts, NULL));
  UNTIL(atomic_load(&waiting) == 1);
  EXPECT(JT_ETIMEDOUT, jt_runtime_shutdown(10));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strstr(detail, "the straggler") != NULL);
  atomic_store(&straggler_may_end, 1);
  while (!atomic_load(&straggler_has_ended)) {
  }
}

int main(void) {
  char detail[8];
  jt_nursery_t nursery;
  jt_job_t job;
  jt_channel_t channel;

  EXPECT(JT_EEMPTY, jt_last_error(detail, sizeof detail));
  without_runtime(JT_ESHUTDOWN);
  EXPECT(JT_EINVAL, jt_last_error(detail, 0));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strlen(detail) == sizeof detail - 1); /* Cut off. */
  CHECK(strcmp(jt_status_message(12345), "unknown status") == 0);
  CHECK(strcmp(jt_status_message(JT_EFULL), jt_status_message(JT_OK)) != 0);

  EXPECT(JT_EINVAL, jt_runtime_init(1000000));
  EXPECT(JT_OK, jt_runtime_init(2));
  EXPECT(JT_EBUSY, jt_runtime_init(2));

  with_bad_handle(0);
  with_bad_handle(1);
  with_bad_handle(UINT64_MAX);
  with_bad_handle(0x123456789abcdef0);
  bad_values();

  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nothing, NULL, &job));
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &channel));
  null_pointers(nursery, job, channel);
  wrong_kinds(nursery, job, channel);
  EXPECT(JT_OK, jt_job_release(job));
  with_bad_handle(job);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  with_bad_handle(nursery);
  EXPECT(JT_OK, jt_channel_destroy(channel));
  with_bad_handle(channel);

  concurrent_destroy();
  shutdown_with_all_open();
  shutdown_with_straggler();
  without_runtime(JT_ESHUTDOWN);
  EXPECT(JT_OK, jt_runtime_init(0));
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
