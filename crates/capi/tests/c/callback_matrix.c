/* Functions that the library calls, and what they may do there: `callbacks PLACE BEHAVIOUR` is one cell of a small
 * matrix. Without arguments it prints the names of all cells.
 *
 * C code cannot panic. It may wait, fork, call back, cancel, leak its handles, and not return in time. A release function
 * must not wait (see jt_release_fn), so only what does not wait is tried there. */

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

/* A cell that takes longer than this hangs. */
#define LIMIT_SECONDS 30

static atomic_int runs;
static atomic_int is_released;
static jt_nursery_t nursery;
static jt_channel_t channel;

static int32_t nothing(void *arg) {
  (void)arg;
  return 0;
}

static int32_t nap(void *arg) {
  (void)arg;
  return jt_sleep_ms(1);
}

/* What the function does. */

static void do_nothing(void) {}

static void do_sleep(void) { jt_sleep_ms(1); }

static void do_join(void) {
  jt_job_t job;
  if (jt_launch(0, nap, NULL, NULL, &job) == JT_OK) {
    jt_job_join(job, NULL);
    jt_job_release(job);
  }
}

static void do_receive(void) {
  uint64_t value;
  jt_channel_recv_timeout(channel, &value, 2);
}

static int32_t fork_in(jt_scope_t scope, void *arg) {
  for (int count = 0; count < 4; count++) {
    jt_launch(scope, nap, arg, NULL, NULL);
  }
  return 0;
}

static void do_fork(void) { jt_scope(fork_in, NULL, NULL); }

static void do_reenter(void) {
  jt_nursery_state_t state;
  jt_job_t job;
  jt_nursery_state(nursery, &state);
  jt_nursery_spawn(nursery, nothing, NULL, NULL);
  if (jt_job_current(&job) == JT_OK) {
    jt_job_state_t at;
    jt_job_state(job, &at);
    CHECK(jt_job_join(job, NULL) != JT_OK);
    jt_job_release(job);
  }
  jt_yield();
}

static void do_destroy(void) { jt_nursery_destroy(nursery); }

static void do_shut_down(void) { CHECK(jt_runtime_shutdown(10) != JT_OK || jt_checkpoint() != JT_OK); }

static void do_cancel_own(void) { jt_cancel_current("planned"); }

static void do_cancel_nursery(void) { jt_nursery_cancel(nursery, "planned"); }

static void do_leak(void) {
  jt_job_t job;
  jt_channel_t leaked;
  jt_launch(0, nothing, NULL, NULL, &job);
  jt_channel_create(JT_CHANNEL_BOUNDED, 1, &leaked);
}

/* A task's nurseries end with it. A release function has no task whose end could close them, and its job would wait. */
static void do_leak_nursery(void) {
  jt_nursery_t leaked;
  jt_nursery_create(&leaked);
}

static void do_spawn(void) {
  for (int count = 0; count < 100; count++) {
    jt_launch(0, nothing, NULL, NULL, NULL);
  }
}

static void do_hold(void) {
  const struct timespec pause = {0, 1000000};
  while (!atomic_load(&is_released)) {
    nanosleep(&pause, NULL);
  }
}

static const struct {
  const char *name;
  void (*act)(void);
  int waits;
} behaviours[] = {
    {"nothing", do_nothing, 0},        {"sleep", do_sleep, 1},
    {"join", do_join, 1},              {"receive", do_receive, 1},
    {"fork", do_fork, 1},              {"reenter", do_reenter, 1},
    {"destroy", do_destroy, 1},        {"shut-down", do_shut_down, 1},
    {"cancel-own", do_cancel_own, 0},  {"cancel-nursery", do_cancel_nursery, 0},
    {"leak", do_leak, 0},              {"spawn", do_spawn, 0},
    {"leak-nursery", do_leak_nursery, 1}, {"hold", do_hold, 0},
};

static void (*act_now)(void);

static void act(void) {
  if (atomic_fetch_add(&runs, 1) == 0) {
    act_now();
  }
}

/* Where it is called. */

static int32_t task(void *arg) {
  (void)arg;
  act();
  return 0;
}

static int32_t deferred(void *arg, void **result) {
  act();
  *result = arg;
  return 0;
}

static int32_t scoped(jt_scope_t scope, void *arg) {
  jt_launch(scope, nap, arg, NULL, NULL);
  act();
  return 0;
}

static int32_t opens_scope(void *arg) {
  jt_scope(scoped, arg, NULL);
  return 0;
}

static int32_t opens_supervisor(void *arg) {
  jt_supervisor(scoped, arg, NULL);
  return 0;
}

static int32_t limits(void *arg) {
  jt_with_timeout(FAR_MS, task, arg, NULL);
  return 0;
}

static int32_t shields(void *arg) {
  jt_shield(FAR_MS, task, arg, NULL);
  return 0;
}

static void release(void *arg) {
  (void)arg;
  act();
}

static int32_t defers(void *arg) {
  jt_deferred_t job;
  if (jt_async(0, deferred, arg, NULL, &job) == JT_OK) {
    jt_await(job, NULL);
    jt_job_release(job);
  }
  return 0;
}

static int32_t dispatches(void *arg) {
  struct jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job;
  opts.dispatcher = JT_DISPATCHER_IO;
  if (jt_launch(0, task, arg, &opts, &job) == JT_OK) {
    jt_job_join(job, NULL);
    jt_job_release(job);
  }
  return 0;
}

static int32_t releases(void *arg) {
  struct jt_launch_opts opts = JT_LAUNCH_OPTS;
  opts.release = release;
  jt_launch(0, nothing, arg, &opts, NULL);
  return 0;
}

static int32_t releases_cancelled(void *arg) {
  struct jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_job_t job;
  opts.release = release;
  /* On the dispatcher's only thread, so that it has not begun when it is cancelled. */
  if (jt_dispatcher_create(1, &opts.dispatcher) != JT_OK) {
    return 0;
  }
  jt_launch(0, nap, arg, &(struct jt_launch_opts){.size = sizeof opts, .dispatcher = opts.dispatcher}, NULL);
  if (jt_launch(0, nap, arg, &opts, &job) == JT_OK) {
    jt_cancel(job, "planned");
    jt_job_join(job, NULL);
    jt_job_release(job);
  }
  return 0;
}

/* Decides about a job that has used up its budget. */
static int32_t decide(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  (void)arg;
  CHECK(lacking == JT_COUNTER_OPS);
  act();
  EXPECT(JT_OK, jt_job_release(job));
  more->ops = 10000;
  return JT_DECISION_RECHARGE;
}

/* In the profile cluster, in a nursery with that handler; see main. */
static int32_t exhausts(void *arg) {
  (void)arg;
  for (int count = 0; count < 15000; count++) {
    if (jt_tick() != JT_OK) {
      return JT_ECANCELED;
    }
  }
  return 0;
}

static const struct {
  const char *name;
  jt_task_fn run;
  int may_wait;
} places[] = {
    {"task", task, 1},
    {"deferred", defers, 1},
    {"scope", opens_scope, 1},
    {"supervisor", opens_supervisor, 1},
    {"with-timeout", limits, 1},
    {"shield", shields, 1},
    {"dispatched", dispatches, 1},
    {"exhausted", exhausts, 1},
    {"release", releases, 0},
    {"release-cancelled", releases_cancelled, 0},
};

#define COUNT(table) (sizeof(table) / sizeof((table)[0]))

static void list(void) {
  for (size_t place = 0; place < COUNT(places); place++) {
    for (size_t behaviour = 0; behaviour < COUNT(behaviours); behaviour++) {
      if (places[place].may_wait || !behaviours[behaviour].waits) {
        printf("%s %s\n", places[place].name, behaviours[behaviour].name);
      }
    }
  }
}

int main(int count, char **arguments) {
  jt_task_fn run = NULL;
  jt_job_t canary;
  int is_held;
  if (count < 3) {
    list();
    return 0;
  }
  for (size_t place = 0; place < COUNT(places); place++) {
    if (strcmp(arguments[1], places[place].name) == 0) {
      run = places[place].run;
    }
  }
  for (size_t behaviour = 0; behaviour < COUNT(behaviours); behaviour++) {
    if (strcmp(arguments[2], behaviours[behaviour].name) == 0) {
      act_now = behaviours[behaviour].act;
    }
  }
  if (run == NULL || act_now == NULL) {
    fprintf(stderr, "there is no such cell\n");
    return 2;
  }
  is_held = act_now == do_hold;
  alarm(LIMIT_SECONDS);
  EXPECT(JT_OK, jt_runtime_init_with(&(jt_runtime_opts){
                    .size = sizeof(jt_runtime_opts),
                    .workers = 2,
                    /* Only there a handler is asked. */
                    .profile = run == exhausts ? JT_PROFILE_CLUSTER : JT_PROFILE_OPEN,
                }));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &channel));
  if (run == exhausts) {
    EXPECT(JT_OK, jt_supervise_budgets(nursery, decide, NULL, NULL));
  }
  EXPECT(JT_OK, jt_nursery_spawn(nursery, run, NULL, NULL));
  UNTIL(atomic_load(&runs) > 0);
  if (is_held) {
    EXPECT(JT_ETIMEDOUT, jt_runtime_shutdown(30));
    atomic_store(&is_released, 1);
  } else {
    /* Whatever came of the nursery, the runtime works. */
    jt_nursery_await(nursery, NULL);
    jt_nursery_destroy(nursery);
    EXPECT(JT_OK, jt_launch(0, nap, NULL, NULL, &canary));
    EXPECT(JT_OK, jt_job_join(canary, NULL));
    EXPECT(JT_OK, jt_runtime_shutdown(FAR_MS));
  }
  return verdict();
}
