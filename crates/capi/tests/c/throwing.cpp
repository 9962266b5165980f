// What becomes of C++ exceptions that leave a callback: each is named on the command line, and ends the process.

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "jobtree.h"

static int32_t throw_from_task(void *) { throw std::runtime_error("out of a task"); }
static int32_t throw_from_scope(jt_scope_t, void *) { throw 7; }
static void throw_from_release(void *) { throw std::runtime_error("out of a release"); }
static int32_t nothing(void *) { return JT_OK; }

static int32_t throw_from_decision(jt_job_t, int32_t, jt_budget_t *, void *) { throw 8; }

static int32_t compute(void *) {
  while (jt_tick() == JT_OK) {
  }
  return JT_ECANCELED;
}

// One that is caught inside is nobody's business.
static int32_t catch_inside(void *) {
  try {
    throw_from_task(nullptr);
  } catch (const std::exception &) {
    jt_sleep_ms(1);
    return JT_OK;
  }
  return JT_EFAILED;
}

int main(int count, char **arguments) {
  const char *wanted = count > 1 ? arguments[1] : "";
  jt_runtime_opts runtime = JT_RUNTIME_OPTS;
  runtime.workers = 1;
  runtime.profile = JT_PROFILE_CLUSTER;
  jt_runtime_init_with(&runtime);
  jt_nursery_t nursery;
  jt_nursery_create(&nursery);
  jt_launch_opts opts = JT_LAUNCH_OPTS;
  if (std::strcmp(wanted, "task") == 0) {
    jt_nursery_spawn(nursery, throw_from_task, nullptr, nullptr);
  } else if (std::strcmp(wanted, "scope") == 0) {
    jt_scope(throw_from_scope, nullptr, nullptr);
  } else if (std::strcmp(wanted, "release") == 0) {
    opts.release = throw_from_release;
    jt_launch(nursery, nothing, nullptr, &opts, nullptr);
  } else if (std::strcmp(wanted, "decision") == 0) {
    jt_supervise_budgets(nursery, throw_from_decision, nullptr, nullptr);
    jt_nursery_spawn(nursery, compute, nullptr, nullptr);
  } else {
    jt_nursery_spawn(nursery, catch_inside, nullptr, nullptr);
  }
  int32_t status = jt_nursery_await(nursery, nullptr);
  jt_nursery_destroy(nursery);
  jt_runtime_shutdown(10000);
  std::printf("it went on: %d\n", static_cast<int>(status));
  return status == JT_OK ? 0 : 1;
}
