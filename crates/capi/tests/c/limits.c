/* Profiles, budgets and capabilities. */

#include <pthread.h>
#include <string.h>

#include "check.h"

static int32_t nothing(void *arg) {
  (void)arg;
  return JT_OK;
}

static int32_t nothing_deferred(void *arg, void **result) {
  (void)result;
  return nothing(arg);
}

static atomic_int released;

static void release(void *arg) {
  (void)arg;
  atomic_fetch_add(&released, 1);
}

static void start(int32_t profile) {
  jt_profile_t running = -1;
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  opts.workers = 2;
  opts.profile = profile;
  EXPECT(JT_OK, jt_runtime_init_with(&opts));
  EXPECT(JT_OK, jt_runtime_profile(&running));
  CHECK((int32_t)running == profile);
}

static void stop(void) { EXPECT(JT_OK, jt_runtime_shutdown(10000)); }

static void profiles(void) {
  jt_budget_t budget = {0, 0, 0, 0, 0};
  jt_capabilities_t capabilities = {.size = sizeof capabilities};
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  EXPECT(JT_OK, jt_profile_budget(JT_PROFILE_OPEN, &budget));
  CHECK(budget.ops == 100000 && budget.spawns == JT_UNLIMITED);
  EXPECT(JT_OK, jt_profile_budget(JT_PROFILE_CORE, &budget));
  CHECK(budget.ops == 0);
  EXPECT(JT_OK, jt_profile_capabilities(JT_PROFILE_SERVICE, &capabilities));
  CHECK(capabilities.size == sizeof capabilities);
  CHECK((capabilities.rights & JT_CAP_SPAWN) && capabilities.max_tasks == 100);
  CHECK((capabilities.rights & JT_CAP_CHANNEL) && capabilities.max_buffer == 10000);
  EXPECT(JT_OK, jt_profile_capabilities(JT_PROFILE_SOVEREIGN, &capabilities));
  CHECK(capabilities.rights == 0);

  EXPECT(JT_ENULL, jt_profile_budget(JT_PROFILE_OPEN, NULL));
  EXPECT(JT_ENULL, jt_profile_capabilities(JT_PROFILE_OPEN, NULL));
  EXPECT(JT_EINVAL, jt_profile_budget(-1, &budget));
  EXPECT(JT_EINVAL, jt_profile_budget(5, &budget));
  EXPECT(JT_EINVAL, jt_profile_capabilities(5, &capabilities));
  capabilities.size = 8;
  EXPECT(JT_EINVAL, jt_profile_capabilities(JT_PROFILE_OPEN, &capabilities));

  opts.profile = 17;
  EXPECT(JT_EINVAL, jt_runtime_init_with(&opts));
  opts.profile = JT_PROFILE_OPEN;
  opts.small_stacks = 2;
  EXPECT(JT_EINVAL, jt_runtime_init_with(&opts));
  opts.small_stacks = 1;
  opts.size = 12;
  EXPECT(JT_EINVAL, jt_runtime_init_with(&opts));
  opts.size = sizeof opts;
  opts.workers = 1000000;
  opts.on_exhausted_release = release;
  EXPECT(JT_EINVAL, jt_runtime_init_with(&opts));
  CHECK(atomic_load(&released) == 0); /* It was not started. */
  capabilities.size = sizeof capabilities;
  capabilities.rights = (uint64_t)1 << 50;
  opts.workers = 1;
  opts.root_capabilities = &capabilities;
  EXPECT(JT_EINVAL, jt_runtime_init_with(&opts));
  opts.root_capabilities = NULL;
  opts.blocking_threads = 2;
  EXPECT(JT_OK, jt_runtime_init_with(&opts));
  EXPECT(JT_EBUSY, jt_runtime_init_with(&opts));
  EXPECT(JT_EBUSY, jt_runtime_init_with(NULL));
  EXPECT(JT_ENULL, jt_runtime_profile(NULL));
  stop();
  CHECK(atomic_load(&released) == 1);
  EXPECT(JT_OK, jt_runtime_init_with(NULL));
  stop();
}

/* In core nothing can be spawned: in no way. */
static int32_t spawn_nothing(jt_scope_t scope, void *arg) {
  jt_job_t job;
  jt_nursery_t nursery;
  char detail[128];
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  (void)arg;
  opts.release = release;
  EXPECT(JT_EREFUSED, jt_launch(scope, nothing, NULL, &opts, &job));
  EXPECT(JT_OK, jt_last_error(detail, sizeof detail));
  CHECK(strstr(detail, "core") != NULL);
  EXPECT(JT_EREFUSED, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(JT_EREFUSED, jt_async(scope, nothing_deferred, NULL, &opts, &job));
  opts.dispatcher = JT_DISPATCHER_IO;
  EXPECT(JT_EREFUSED, jt_launch(scope, nothing, NULL, &opts, NULL));
  EXPECT(JT_EREFUSED, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &job));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_EREFUSED, jt_nursery_spawn(nursery, nothing, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  return JT_OK;
}

static void core(void) {
  jt_nursery_t nursery;
  jt_counters_t counters = {.size = sizeof counters};
  atomic_store(&released, 0);
  start(JT_PROFILE_CORE);
  EXPECT(JT_OK, jt_scope(spawn_nothing, NULL, NULL));
  EXPECT(JT_EREFUSED, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_EREFUSED, jt_nursery_spawn(nursery, nothing, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  CHECK(atomic_load(&released) == 0); /* What was refused is still the caller's. */
  EXPECT(JT_OK, jt_counters(&counters));
  CHECK(counters.refusals >= 7);
  stop();
}

static int32_t look_at_budget(void *arg) {
  jt_budget_t remaining;
  jt_job_budget_t budget = {.size = sizeof budget};
  jt_capabilities_t capabilities = {.size = sizeof capabilities};
  (void)arg;
  EXPECT(JT_OK, jt_budget_remaining(&remaining));
  CHECK(remaining.spawns == 3 && remaining.ops <= 500);
  EXPECT(JT_OK, jt_job_budget(0, &budget));
  CHECK(budget.granted.ops == 500 && budget.granted.spawns == 3);
  CHECK(budget.profile == JT_PROFILE_SERVICE && budget.exhausted == -1);
  EXPECT(JT_OK, jt_job_capabilities(0, &capabilities));
  CHECK(capabilities.max_tasks == 2 && !(capabilities.rights & JT_CAP_CHANNEL));
  return JT_OK;
}

static int32_t wait_for_cancel(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

/* Two jobs of two are there; a third one, started in whatever way, is too many. */
static int32_t spawn_too_many(void *arg) {
  jt_job_t jobs[2], self;
  uint64_t channel;
  jt_nursery_t nursery;
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  look_at_budget(arg);
  EXPECT(JT_OK, jt_launch(0, wait_for_cancel, NULL, NULL, &jobs[0]));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, wait_for_cancel, NULL, &jobs[1]));
  EXPECT(JT_OK, jt_job_current(&self));
  EXPECT(JT_EREFUSED, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(JT_EREFUSED, jt_launch(self, nothing, NULL, NULL, NULL));
  EXPECT(JT_EREFUSED, jt_nursery_spawn(nursery, nothing, NULL, NULL));
  EXPECT(JT_EREFUSED, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &channel));
  opts.dispatcher = JT_DISPATCHER_IO;
  EXPECT(JT_EREFUSED, jt_launch(0, nothing, NULL, &opts, NULL));
  /* A job in them has no spawns, if nothing else was said. */
  EXPECT(JT_OK, jt_cancel(jobs[0], NULL));
  EXPECT(JT_ECANCELED, jt_job_join(jobs[0], NULL));
  EXPECT(JT_OK, jt_launch(0, nothing, NULL, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_job_release(jobs[0]));
  EXPECT(JT_OK, jt_job_release(self));
  return JT_OK;
}

static int32_t keep_computing(void *arg) {
  (void)arg;
  for (int i = 0; i < 100000; i++) {
    EXPECT(JT_OK, jt_tick());
  }
  EXPECT(JT_OK, jt_charge(1000));
  EXPECT(JT_OK, jt_charge_syscall());
  return JT_OK;
}

static void service(void) {
  jt_nursery_t nursery;
  jt_job_t job, child;
  uint64_t channel;
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_budget_t budget = {500, 1 << 20, 3, 100, 10};
  jt_job_budget_t picture = {.size = sizeof picture};
  jt_capabilities_t capabilities = {.size = sizeof capabilities};
  jt_counters_t counters = {.size = sizeof counters};
  start(JT_PROFILE_SERVICE);
  EXPECT(JT_OK, jt_profile_capabilities(JT_PROFILE_SERVICE, &capabilities));
  capabilities.rights = JT_CAP_SPAWN | JT_CAP_COOPERATIVE;
  capabilities.max_tasks = 2;
  opts.budget = &budget;
  opts.capabilities = &capabilities;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_job_budget(nursery, &picture));
  CHECK(picture.granted.ops == 100000);
  EXPECT(JT_OK, jt_launch(nursery, spawn_too_many, NULL, &opts, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_launch(nursery, keep_computing, NULL, NULL, &child));
  EXPECT(JT_OK, jt_job_join(child, NULL));
  EXPECT(JT_OK, jt_job_budget(child, &picture));
  CHECK(picture.exhaustions >= 9 && picture.granted.spawns == 0);
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  /* Rights that do not exist, and sizes. */
  capabilities.rights = JT_CAP_ALL + 1;
  EXPECT(JT_EINVAL, jt_launch(nursery, nothing, NULL, &opts, NULL));
  capabilities.size = 3;
  EXPECT(JT_EINVAL, jt_launch(nursery, nothing, NULL, &opts, NULL));
  picture.size = 1;
  EXPECT(JT_EINVAL, jt_job_budget(nursery, &picture));
  EXPECT(JT_EINVAL, jt_job_capabilities(nursery, &capabilities));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));

  /* A channel that is too large, in a job; a thread of the program's own has no limits. */
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &channel));
  EXPECT(JT_OK, jt_channel_destroy(channel));
  EXPECT(JT_OK, jt_budget_remaining(&budget));
  CHECK(budget.ops == JT_UNLIMITED);
  EXPECT(JT_EEMPTY, jt_job_budget(0, &(jt_job_budget_t){.size = sizeof picture}));
  EXPECT(JT_EEMPTY, jt_job_capabilities(0, &(jt_capabilities_t){.size = sizeof capabilities}));
  EXPECT(JT_OK, jt_counters(&counters));
  CHECK(counters.exhaustions >= 9 && counters.refusals >= 5);
  stop();
}

/* Each time the job has used up its operations, it gets some more. */
typedef struct supervisor {
  atomic_int calls;
  int32_t decision;
  jt_job_t seen;
} supervisor;

static int32_t decide(jt_job_t job, int32_t lacking, jt_budget_t *more, void *arg) {
  supervisor *of = (supervisor *)arg;
  jt_job_budget_t budget = {.size = sizeof budget};
  char text[256];
  CHECK(lacking == JT_COUNTER_OPS);
  EXPECT(JT_OK, jt_job_budget(job, &budget));
  CHECK(budget.exhausted == JT_COUNTER_OPS);
  /* It may call back, wait, and release what it was given. */
  jt_status dumped = jt_dump_tree(job, JT_DUMP_TEXT, text, sizeof text, NULL);
  CHECK(dumped == JT_OK || dumped == JT_ETRUNCATED);
  EXPECT(JT_EBUSY, jt_runtime_shutdown(0));
  EXPECT(JT_OK, jt_sleep_ms(1));
  of->seen = job;
  EXPECT(JT_OK, jt_job_release(job));
  more->ops = 1000;
  atomic_fetch_add(&of->calls, 1);
  return of->decision;
}

static int32_t compute_15000(void *arg) {
  (void)arg;
  for (int i = 0; i < 15000; i++) {
    if (jt_tick() != JT_OK) {
      return JT_ECANCELED;
    }
  }
  return JT_OK;
}

static void *recharge_by_hand(void *arg) {
  uint64_t *handles = (uint64_t *)arg; /* The nursery, and a job in it. */
  jt_budget_t more = {20000, 0, 0, 0, 0}, given = {0, 0, 0, 0, 0};
  jt_job_budget_t budget = {.size = sizeof budget};
  jt_job_t other;
  UNTIL(jt_job_budget(handles[1], &budget) == JT_OK && budget.exhausted == JT_COUNTER_OPS);
  EXPECT(JT_ENULL, jt_recharge(handles[0], handles[1], NULL, NULL));
  EXPECT(JT_EHANDLE, jt_recharge(handles[0], handles[0], &more, NULL));
  EXPECT(JT_EEMPTY, jt_recharge(0, handles[1], &more, NULL)); /* Not in a job. */
  EXPECT(JT_OK, jt_launch(0, wait_for_cancel, NULL, NULL, &other));
  EXPECT(JT_EINVAL, jt_recharge(other, handles[1], &more, NULL)); /* It was not started there. */
  EXPECT(JT_OK, jt_recharge(handles[0], handles[1], &more, &given));
  CHECK(given.ops == 20000);
  EXPECT(JT_OK, jt_cancel(other, NULL));
  EXPECT(JT_OK, jt_job_release(other));
  return NULL;
}

static void cluster(void) {
  jt_nursery_t nursery;
  jt_job_t job;
  pthread_t thread;
  uint64_t handles[2];
  jt_budget_t more = {1000, 0, 0, 0, 0};
  jt_counters_t counters = {.size = sizeof counters};
  supervisor generous = {0, JT_DECISION_RECHARGE, 0}, strict = {0, JT_DECISION_CANCEL, 0}, wrong = {0, 77, 0};
  start(JT_PROFILE_CLUSTER);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_ENULL, jt_supervise_budgets(nursery, NULL, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_supervise_budgets(1, decide, NULL, NULL));
  EXPECT(JT_EEMPTY, jt_supervise_budgets(0, decide, NULL, NULL));
  atomic_store(&released, 0);
  EXPECT(JT_OK, jt_supervise_budgets(nursery, decide, &generous, release));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, compute_15000, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  CHECK(atomic_load(&generous.calls) >= 5);
  EXPECT(JT_EHANDLE, jt_job_release(generous.seen));
  EXPECT(JT_EBUSY, jt_recharge(nursery, job, &more, NULL));

  EXPECT(JT_OK, jt_supervise_budgets(nursery, decide, &strict, release));
  CHECK(atomic_load(&released) == 1);
  EXPECT(JT_OK, jt_nursery_spawn(nursery, compute_15000, NULL, &job));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  CHECK(atomic_load(&strict.calls) == 1);

  EXPECT(JT_OK, jt_supervise_budgets(nursery, decide, &wrong, release));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, compute_15000, NULL, &job));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  CHECK(atomic_load(&wrong.calls) == 1);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));

  /* Without a handler they wait. */
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, compute_15000, NULL, &job));
  handles[0] = nursery;
  handles[1] = job;
  CHECK(pthread_create(&thread, NULL, recharge_by_hand, handles) == 0);
  EXPECT(JT_OK, jt_job_join(job, NULL));
  pthread_join(thread, NULL);
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_counters(&counters));
  CHECK(counters.recharges >= 6);
  stop();
  CHECK(atomic_load(&released) == 3);
}

/* Nothing but what was given. */
static void sovereign(void) {
  jt_runtime_opts opts = JT_RUNTIME_OPTS;
  jt_capabilities_t capabilities = {.size = sizeof capabilities};
  jt_budget_t budget = {2000, 1 << 20, 10, 10, 10};
  supervisor generous = {0, JT_DECISION_RECHARGE, 0};
  jt_job_t job;
  start(JT_PROFILE_SOVEREIGN);
  EXPECT(JT_EREFUSED, jt_launch(0, nothing, NULL, NULL, NULL));
  stop();
  capabilities.rights = JT_CAP_SPAWN | JT_CAP_COOPERATIVE;
  capabilities.max_tasks = 5;
  opts.profile = JT_PROFILE_SOVEREIGN;
  opts.root_budget = &budget;
  opts.root_capabilities = &capabilities;
  opts.on_exhausted = decide;
  opts.on_exhausted_arg = &generous;
  opts.on_exhausted_release = release;
  atomic_store(&released, 0);
  EXPECT(JT_OK, jt_runtime_init_with(&opts));
  EXPECT(JT_OK, jt_launch(0, compute_15000, NULL, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  CHECK(atomic_load(&generous.calls) >= 13);
  stop();
  CHECK(atomic_load(&released) == 1);
}

/* An open runtime limits only those for whom a budget is asked. */
static void open_runtime(void) {
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  jt_budget_t budget = {500, 1 << 20, 3, 100, 10};
  jt_job_budget_t picture = {.size = sizeof picture};
  jt_nursery_t nursery;
  jt_job_t job;
  start(JT_PROFILE_OPEN);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_EEMPTY, jt_job_budget(nursery, &picture));
  EXPECT(JT_EEMPTY, jt_supervise_budgets(nursery, decide, NULL, release));
  opts.budget = &budget;
  EXPECT(JT_OK, jt_launch(nursery, keep_computing, NULL, &opts, &job));
  EXPECT(JT_OK, jt_job_budget(job, &picture));
  CHECK(picture.granted.ops == 500);
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  stop();
}

int main(void) {
  profiles();
  core();
  service();
  cluster();
  sovereign();
  open_runtime();
  return verdict();
}
