/* What the runtime does without: a process that may start no more threads sleeps all the same, and says so. */

#define _GNU_SOURCE
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"
#include "kc.h"

/* Long enough to need the thread that keeps deadlines: under valgrind some milliseconds are over before the sleep begins. */
static int32_t sleep_a_little(void *arg) {
  (void)arg;
  return jt_sleep_ms(500);
}

/* Returns 0 if threads can still be started, as for a process that may not become another user. */
static int allow_no_more_threads(void) {
  struct rlimit none = {0, 0};
  if (setrlimit(RLIMIT_NPROC, &none) != 0) {
    return 0;
  }
  /* The limit does not hold for root. */
  return geteuid() != 0 || setuid(65534) == 0;
}

int main(void) {
  jt_counters_t counters = {.size = sizeof counters};
  char dump[2048];
  jt_event_t event;
  size_t count;
  uint64_t lost;
  int told = 0;
  jt_job_t job;
  EXPECT(JT_OK, jt_runtime_init(1));
  EXPECT(JT_OK, jt_events_record(64));
  EXPECT(JT_OK, jt_counters(&counters));
  CHECK(counters.timer_thread_failures == 0 && counters.blocking_thread_failures == 0);
  CHECK(counters.stack_failures == 0);
  if (!allow_no_more_threads()) {
    fprintf(stderr, "skipped: threads cannot be forbidden here\n");
    EXPECT(JT_OK, jt_runtime_shutdown(10000));
    return verdict();
  }
  EXPECT(JT_OK, jt_launch(0, sleep_a_little, NULL, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  while (kc_job_events_take(&event, 1, &count, &lost) == 0 && count == 1) {
    if (event.kind == JT_EVENT_DEGRADED) {
      told += event.lacking == JT_LACKING_TIMER_THREAD;
      CHECK(event.kind == KC_RUNTIME_DEGRADED && event.state == -1 && event.cause == -1);
    } else {
      CHECK(event.lacking == JT_LACKING_NONE);
    }
  }
  CHECK(told > 0);
  CHECK(strcmp(jt_event_name(JT_EVENT_DEGRADED), "RUNTIME_DEGRADED") == 0);
  EXPECT(JT_OK, jt_counters(&counters));
  CHECK(counters.timer_thread_failures > 0);
  EXPECT(JT_OK, jt_dump_tree(0, JT_DUMP_TEXT, dump, sizeof dump, NULL));
  CHECK(strstr(dump, "the thread that keeps deadlines") != NULL);
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
