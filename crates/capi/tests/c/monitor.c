/* Counters, events, pictures of the tree, and why a job was cancelled. */

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int32_t nothing(void *arg) {
  (void)arg;
  return JT_OK;
}

static int32_t fail(void *arg) {
  (void)arg;
  return 3;
}

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

static void counters(void) {
  jt_counters_t before = {.size = sizeof before}, after = {.size = sizeof after};
  struct {
    jt_counters_t known;
    uint64_t newer;
  } longer = {.newer = 5};
  jt_job_t job;
  EXPECT(JT_OK, jt_counters(&before));
  EXPECT(JT_OK, jt_launch(0, nothing, NULL, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_launch(0, fail, NULL, NULL, &job));
  EXPECT(JT_EFAILED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, NULL, &job));
  EXPECT(JT_OK, jt_cancel(job, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_counters(&after));
  CHECK(after.size == sizeof after);
  CHECK(after.created >= before.created + 3 && after.completed >= before.completed + 1);
  CHECK(after.failed == before.failed + 1 && after.canceled == before.canceled + 1);
  CHECK(after.cancel_requests >= before.cancel_requests + 1);
  CHECK(after.waiters_woken <= after.waiters_registered);
  /* A later version of the struct gets zeros for what this one does not count. */
  longer.known.size = sizeof longer;
  EXPECT(JT_OK, jt_counters(&longer.known));
  CHECK(longer.newer == 0 && longer.known.created >= after.created && longer.known.size == sizeof longer);
  CHECK(after.blocked_callbacks == 0 && after.shutdown_thread_failures == 0 && after.hook_thread_failures == 0);
  /* An earlier version of the struct ended before `blocked_callbacks`; nothing beyond is written. */
  after.blocked_callbacks = 7;
  after.size = offsetof(jt_counters_t, blocked_callbacks);
  EXPECT(JT_OK, jt_counters(&after));
  CHECK(after.created >= before.created + 3 && after.blocked_callbacks == 7);
  after.size = sizeof after - 1;
  EXPECT(JT_EINVAL, jt_counters(&after));
  after.size = 0;
  EXPECT(JT_EINVAL, jt_counters(&after));
  EXPECT(JT_ENULL, jt_counters(NULL));
}

/* Takes one event at a time until there are none; returns how many there were. */
static size_t drain(jt_event_t *events, size_t room, uint64_t *lost) {
  size_t total = 0, count = 0;
  *lost = 0;
  do {
    uint64_t more = 0;
    jt_event_t event;
    EXPECT(JT_OK, jt_events_take(&event, 1, &count, &more));
    *lost += more;
    if (count == 1 && total < room) {
      events[total] = event;
    }
    total += count;
  } while (count == 1);
  return total;
}

static void events(void) {
  jt_event_t taken[64], *found[3] = {NULL, NULL, NULL};
  size_t count = 7;
  uint64_t lost = 7, id = 0;
  jt_job_t job;
  EXPECT(JT_OK, jt_events_take(taken, 64, &count, &lost));
  CHECK(count == 0 && lost == 0);
  EXPECT(JT_OK, jt_events_record(64));
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, NULL, &job));
  EXPECT(JT_OK, jt_job_id(job, &id));
  EXPECT(JT_OK, jt_cancel(job, "enough"));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  count = drain(taken, 64, &lost);
  CHECK(count >= 4 && count <= 64 && lost == 0);
  for (size_t i = 0; i < count; i++) {
    CHECK(i == 0 || taken[i].sequence == taken[i - 1].sequence + 1);
    CHECK(taken[i].lacking == JT_LACKING_NONE);
    if (taken[i].job != id) {
      continue;
    }
    switch (taken[i].kind) {
    case JT_EVENT_CREATE:
      found[0] = &taken[i];
      break;
    case JT_EVENT_CANCEL_REQUEST:
      found[1] = &taken[i];
      break;
    case JT_EVENT_FINALIZE:
      found[2] = &taken[i];
      break;
    default:
      break;
    }
  }
  CHECK(found[0] != NULL && found[0]->other != 0 && found[0]->state == -1 && found[0]->cause == -1);
  CHECK(found[1] != NULL && found[1]->cause == JT_CAUSE_EXPLICIT);
  CHECK(found[2] != NULL && found[2]->state == JT_JOB_CANCELED && found[0] < found[2]);
  CHECK(strcmp(jt_event_name(JT_EVENT_CREATE), "JOB_CREATE") == 0);
  CHECK(strcmp(jt_event_name(JT_EVENT_WAIT_WAKE), "JOB_WAIT_WAKE") == 0);
  CHECK(strcmp(jt_event_name(-5), "JOB_OTHER") == 0);

  /* The oldest find no room. */
  EXPECT(JT_OK, jt_events_record(2));
  for (int i = 0; i < 5; i++) {
    EXPECT(JT_OK, jt_launch(0, nothing, NULL, NULL, &job));
    EXPECT(JT_OK, jt_job_join(job, NULL));
    EXPECT(JT_OK, jt_job_release(job));
  }
  EXPECT(JT_OK, jt_events_record(0));
  count = drain(taken, 64, &lost);
  CHECK(count == 2 && lost > 5);

  EXPECT(JT_EINVAL, jt_events_take(taken, 0, &count, NULL));
  EXPECT(JT_ENULL, jt_events_take(NULL, 1, &count, NULL));
  EXPECT(JT_ENULL, jt_events_take(taken, 1, NULL, NULL));
  EXPECT(JT_OK, jt_events_take(taken, 1, &count, NULL));
}

static atomic_int begun;

static int32_t sleep_labelled(void *arg) {
  atomic_fetch_add(&begun, 1);
  return sleep_for_ever(arg);
}

static void dumps(void) {
  jt_nursery_t nursery;
  jt_job_t job;
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  size_t needed = 0, again = 0;
  char small[8] = "xxxxxxx", *text;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  opts.label = "the sleeper";
  EXPECT(JT_OK, jt_launch(nursery, sleep_labelled, NULL, &opts, &job));
  UNTIL(atomic_load(&begun) == 1);
  EXPECT(JT_OK, jt_dump_tree(0, JT_DUMP_TEXT, NULL, 0, &needed));
  CHECK(needed > 10);
  text = (char *)malloc(needed + 1000);
  EXPECT(JT_OK, jt_dump_tree(0, JT_DUMP_TEXT, text, needed + 1000, &again));
  CHECK(strstr(text, "root") == text && strstr(text, "the sleeper") != NULL && strlen(text) + 1 == again);
  EXPECT(JT_OK, jt_dump_tree(job, JT_DUMP_JSON, text, needed + 1000, NULL));
  CHECK(text[0] == '{' && strstr(text, "\"label\":\"the sleeper\"") != NULL);
  EXPECT(JT_OK, jt_dump_tree(nursery, JT_DUMP_TEXT, text, needed + 1000, NULL));
  CHECK(strstr(text, "root") == NULL && strstr(text, "the sleeper") != NULL);
  EXPECT(JT_ETRUNCATED, jt_dump_tree(0, JT_DUMP_TEXT, small, sizeof small, &again));
  CHECK(strlen(small) == sizeof small - 1 && again > sizeof small);
  EXPECT(JT_EINVAL, jt_dump_tree(0, 2, text, needed, NULL));
  EXPECT(JT_EINVAL, jt_dump_tree(0, -1, text, needed, NULL));
  EXPECT(JT_ENULL, jt_dump_tree(0, JT_DUMP_TEXT, NULL, 5, &needed));
  EXPECT(JT_EINVAL, jt_dump_tree(0, JT_DUMP_TEXT, small, 0, &needed));
  EXPECT(JT_OK, jt_dump_tree(0, JT_DUMP_TEXT, NULL, 0, NULL));
  EXPECT(JT_EHANDLE, jt_dump_tree(12345, JT_DUMP_TEXT, text, needed, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_EHANDLE, jt_dump_tree(nursery, JT_DUMP_TEXT, text, needed, NULL));
  free(text);
}

static int32_t ask_itself(void *arg) {
  jt_cause_t cause = -1;
  char text[64] = "";
  size_t needed = 0;
  EXPECT(JT_EEMPTY, jt_cancel_reason(0, &cause, text, sizeof text, NULL));
  CHECK((int)cause == -1);
  atomic_store((atomic_int *)arg, 1);
  EXPECT(JT_ECANCELED, jt_sleep_ms(FAR_MS));
  EXPECT(JT_OK, jt_cancel_reason(0, &cause, text, sizeof text, &needed));
  CHECK(cause == JT_CAUSE_EXPLICIT && strcmp(text, "it rains") == 0 && needed == 9);
  return JT_ECANCELED;
}

static void reasons(void) {
  atomic_int asked = 0;
  jt_nursery_t nursery;
  jt_job_t job;
  jt_cause_t cause = -1;
  char text[64] = "", small[4];
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, ask_itself, &asked, &job));
  UNTIL(atomic_load(&asked));
  EXPECT(JT_OK, jt_cancel(nursery, "it rains"));
  EXPECT(JT_OK, jt_cancel(nursery, "the second reason does not count"));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_cancel_reason(nursery, &cause, text, sizeof text, NULL));
  CHECK(cause == JT_CAUSE_EXPLICIT && strcmp(text, "it rains") == 0);
  EXPECT(JT_ETRUNCATED, jt_cancel_reason(nursery, NULL, small, sizeof small, NULL));
  CHECK(strcmp(small, "it ") == 0);
  EXPECT(JT_OK, jt_cancel_reason(nursery, &cause, NULL, 0, NULL));
  EXPECT(JT_ENULL, jt_cancel_reason(nursery, &cause, NULL, 3, NULL));
  EXPECT(JT_ECANCELED, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));

  /* A limit, a failure. */
  opts.timeout_ms = 1;
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, &opts, &job));
  EXPECT(JT_ETIMEDOUT, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_cancel_reason(job, &cause, text, sizeof text, NULL));
  CHECK(cause == JT_CAUSE_TIMEOUT && strlen(text) > 0);
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fail, NULL, NULL));
  EXPECT(JT_EFAILED, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_cancel_reason(nursery, &cause, text, sizeof text, NULL));
  CHECK(cause == JT_CAUSE_FAILURE);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));

  EXPECT(JT_EEMPTY, jt_cancel_reason(0, &cause, text, sizeof text, NULL)); /* Not in a job. */
  EXPECT(JT_EHANDLE, jt_cancel_reason(nursery, &cause, text, sizeof text, NULL));
}

/* All of it at once, by threads outside of jobs, while jobs come and go and the runtime ends. */
static atomic_int go_on = 1;

static void *watch(void *arg) {
  char text[512];
  jt_event_t taken[8];
  size_t count;
  jt_counters_t counters = {.size = sizeof counters};
  (void)arg;
  while (atomic_load(&go_on)) {
    jt_status status[3] = {jt_dump_tree(0, JT_DUMP_JSON, text, sizeof text, NULL),
                           jt_events_take(taken, 8, &count, NULL), jt_counters(&counters)};
    for (int i = 0; i < 3; i++) {
      CHECK(status[i] == JT_OK || status[i] == JT_ETRUNCATED || status[i] == JT_ESHUTDOWN);
    }
  }
  return NULL;
}

static void under_way(void) {
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) {
    CHECK(pthread_create(&threads[i], NULL, watch, NULL) == 0);
  }
  for (int round = 0; round < 5; round++) {
    jt_nursery_t nursery;
    EXPECT(JT_OK, jt_events_record(16));
    EXPECT(JT_OK, jt_nursery_create(&nursery));
    for (int i = 0; i < 50; i++) {
      EXPECT(JT_OK, jt_nursery_spawn(nursery, i % 2 ? nothing : sleep_for_ever, NULL, NULL));
    }
    EXPECT(JT_OK, jt_runtime_shutdown(10000));
    EXPECT(JT_OK, jt_runtime_init(2));
  }
  atomic_store(&go_on, 0);
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
  }
}

int main(void) {
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  jt_event_t event;
  size_t count = 0;
  opts.workers = 2;
  opts.events = 4;
  EXPECT(JT_OK, jt_runtime_init_with(&opts));
  EXPECT(JT_OK, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(JT_OK, jt_events_take(&event, 1, &count, NULL));
  CHECK(count == 1); /* Kept from the start on. */
  EXPECT(JT_OK, jt_runtime_shutdown(10000));

  EXPECT(JT_OK, jt_runtime_init(2));
  counters();
  events();
  dumps();
  reasons();
  under_way();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
