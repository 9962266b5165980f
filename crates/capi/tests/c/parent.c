/* Scopes and nurseries under a job that is named, and the way up from a job. */

#include <pthread.h>

#include "check.h"

static int32_t nothing(void *arg) {
  (void)arg;
  return JT_OK;
}

static int32_t fail(void *arg) {
  (void)arg;
  return 9;
}

static int32_t sleep_for_ever(void *arg) {
  (void)arg;
  return jt_sleep_ms(FAR_MS);
}

static uint64_t id_of(uint64_t handle) {
  uint64_t id = 0;
  EXPECT(JT_OK, jt_job_id(handle, &id));
  return id;
}

static uint64_t id_of_parent(uint64_t handle) {
  jt_job_t parent = 0;
  uint64_t id;
  EXPECT(JT_OK, jt_job_parent(handle, &parent));
  id = id_of(parent);
  EXPECT(JT_OK, jt_job_release(parent));
  return id;
}

static int32_t sleep_in(jt_scope_t scope, void *arg) {
  uint64_t parent = *(uint64_t *)arg;
  CHECK(id_of_parent(scope) == id_of(parent));
  CHECK(id_of_parent(0) == id_of(parent) && id_of(0) == id_of(scope));
  EXPECT(JT_OK, jt_launch(scope, sleep_for_ever, NULL, NULL, NULL));
  EXPECT(JT_OK, jt_cancel(parent, "the parent ends"));
  EXPECT(JT_ECANCELED, jt_sleep_ms(FAR_MS));
  return JT_ECANCELED;
}

static int32_t fail_one(jt_scope_t scope, void *arg) {
  jt_job_t job;
  (void)arg;
  EXPECT(JT_OK, jt_launch(scope, fail, NULL, NULL, &job));
  jt_status status = jt_job_join(job, NULL);
  CHECK(status == JT_EFAILED || status == JT_ECANCELED);
  return JT_OK;
}

/* A scope under a nursery is cancelled with it; a failure in it is its own. */
static void scopes_of_threads(void) {
  jt_nursery_t nursery;
  jt_job_t job;
  int32_t code = 0;
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_EFAILED, jt_scope_in(nursery, 0, fail_one, NULL, &code));
  CHECK(code == 9);
  EXPECT(JT_OK, jt_scope_in(nursery, JT_SCOPE_SUPERVISOR, fail_one, NULL, &code));
  EXPECT(JT_OK, jt_scope_in(0, JT_SCOPE_SUPERVISOR, fail_one, NULL, NULL));
  EXPECT(JT_EFAILED, jt_scope_in(0, 0, fail_one, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, nothing, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL)); /* The nursery has not been cancelled. */
  EXPECT(JT_ECLOSED, jt_scope_in(job, 0, fail_one, NULL, NULL));
  EXPECT(JT_EEMPTY, jt_job_parent(job, &job)); /* It has ended. */
  EXPECT(JT_ECANCELED, jt_scope_in(nursery, 0, sleep_in, &nursery, &code));
  EXPECT(JT_ECANCELED, jt_scope_in(nursery, 0, sleep_in, &nursery, &code));
  EXPECT(JT_ECANCELED, jt_nursery_create_in(nursery, 0, &job));
  EXPECT(JT_ECANCELED, jt_nursery_await(nursery, NULL));
  EXPECT(JT_ECLOSED, jt_nursery_create_in(nursery, 0, &job));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));

  EXPECT(JT_EHANDLE, jt_scope_in(nursery, 0, fail_one, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_create_in(nursery, 0, &job));
  EXPECT(JT_EHANDLE, jt_job_parent(nursery, &job));
  EXPECT(JT_EHANDLE, jt_job_id(nursery, &job));
  EXPECT(JT_ENULL, jt_scope_in(0, 0, NULL, NULL, NULL));
  EXPECT(JT_ENULL, jt_nursery_create_in(0, 0, NULL));
  EXPECT(JT_EINVAL, jt_scope_in(0, 2, fail_one, NULL, NULL));
  EXPECT(JT_EINVAL, jt_nursery_create_in(0, 7, &job));
  EXPECT(JT_EEMPTY, jt_job_parent(0, &job));
  EXPECT(JT_EEMPTY, jt_job_id(0, &job));
  EXPECT(JT_ENULL, jt_job_parent(0, NULL));
  EXPECT(JT_ENULL, jt_job_id(0, NULL));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_ENULL, jt_nursery_create_in(nursery, 0, NULL));
  EXPECT(JT_EEMPTY, jt_job_parent(nursery, &job)); /* Directly under the runtime. */
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &nursery));
  EXPECT(JT_EHANDLE, jt_scope_in(nursery, 0, fail_one, NULL, NULL));
  EXPECT(JT_EHANDLE, jt_job_id(nursery, &job));
  EXPECT(JT_OK, jt_channel_destroy(nursery));
}

/* A scope under another job runs on the stack of the job that opened it, which it cannot wait for. */
typedef struct handles {
  jt_nursery_t nursery;
  jt_job_t opener;
} handles;

static int32_t join_opener(jt_scope_t scope, void *arg) {
  handles *of = (handles *)arg;
  (void)scope;
  EXPECT(JT_EBUSY, jt_job_join(of->opener, NULL));
  EXPECT(JT_EBUSY, jt_nursery_destroy(of->nursery));
  EXPECT(JT_EBUSY, jt_nursery_await(of->nursery, NULL));
  EXPECT(JT_EBUSY, jt_runtime_shutdown(0));
  return JT_OK;
}

static int32_t open_elsewhere(void *arg) {
  handles *of = (handles *)arg;
  EXPECT(JT_OK, jt_job_current(&of->opener));
  EXPECT(JT_OK, jt_scope_in(of->nursery, 0, join_opener, of, NULL));
  EXPECT(JT_EBUSY, jt_job_join(of->opener, NULL));
  EXPECT(JT_OK, jt_job_release(of->opener));
  return JT_OK;
}

static void waiting_for_the_opener(void) {
  handles of;
  jt_job_t job;
  EXPECT(JT_OK, jt_nursery_create(&of.nursery));
  EXPECT(JT_OK, jt_launch(0, open_elsewhere, &of, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_nursery_destroy(of.nursery));
}

/* A nursery under another job belongs to the job that made it, and is destroyed with its function. */
static int32_t leave_it_open(void *arg) {
  handles *of = (handles *)arg;
  EXPECT(JT_OK, jt_nursery_create_in(of->opener, JT_SCOPE_SUPERVISOR, &of->nursery));
  CHECK(id_of_parent(of->nursery) == id_of(of->opener));
  EXPECT(JT_OK, jt_nursery_spawn(of->nursery, sleep_for_ever, NULL, NULL));
  return JT_OK;
}

/* One that waits for a nursery of its own that is elsewhere is woken by its own cancellation. */
static atomic_int awaits;

static int32_t await_it(void *arg) {
  handles *of = (handles *)arg;
  leave_it_open(arg);
  atomic_store(&awaits, 1);
  EXPECT(JT_ECANCELED, jt_nursery_await(of->nursery, NULL));
  EXPECT(JT_ECANCELED, jt_checkpoint());
  return JT_ECANCELED;
}

static void nurseries_under_others(void) {
  handles of;
  jt_job_t job;
  jt_nursery_state_t state;
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, NULL, &of.opener));
  EXPECT(JT_OK, jt_launch(0, leave_it_open, &of, NULL, &job));
  EXPECT(JT_OK, jt_job_join(job, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_state(of.nursery, &state));
  EXPECT(JT_OK, jt_job_release(job));

  EXPECT(JT_OK, jt_launch(0, await_it, &of, NULL, &job));
  UNTIL(atomic_load(&awaits));
  EXPECT(JT_OK, jt_cancel(job, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_EHANDLE, jt_nursery_state(of.nursery, &state));
  EXPECT(JT_OK, jt_job_release(job));

  /* Cancelled with its parent, wherever it was made. */
  EXPECT(JT_OK, jt_nursery_create_in(of.opener, 0, &of.nursery));
  EXPECT(JT_OK, jt_nursery_spawn(of.nursery, sleep_for_ever, NULL, NULL));
  EXPECT(JT_OK, jt_cancel(of.opener, NULL));
  EXPECT(JT_ECANCELED, jt_nursery_await(of.nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(of.nursery));
  EXPECT(JT_ECANCELED, jt_job_join(of.opener, NULL));
  EXPECT(JT_OK, jt_job_release(of.opener));

  /* One is left open for the shutdown. */
  EXPECT(JT_OK, jt_launch(0, sleep_for_ever, NULL, NULL, &of.opener));
  EXPECT(JT_OK, jt_nursery_create_in(of.opener, 0, &of.nursery));
  EXPECT(JT_OK, jt_nursery_spawn(of.nursery, sleep_for_ever, NULL, NULL));
}

/* Threads open scopes under a job that ends at any moment. */
static jt_job_t parent;

static int32_t start_one(jt_scope_t scope, void *arg) {
  (void)arg;
  jt_status status = jt_launch(scope, nothing, NULL, NULL, NULL);
  CHECK(status == JT_OK || status == JT_ECANCELED);
  return JT_OK;
}

static void *open_and_open(void *arg) {
  jt_status status;
  (void)arg;
  do {
    status = jt_scope_in(parent, 0, start_one, NULL, NULL);
    CHECK(status == JT_OK || status == JT_ECANCELED || status == JT_ECLOSED);
  } while (status == JT_OK);
  return NULL;
}

static int32_t wait_a_little(void *arg) {
  (void)arg;
  return jt_sleep_ms(2);
}

static void parents_that_end(void) {
  for (int round = 0; round < 40; round++) {
    pthread_t threads[2];
    EXPECT(JT_OK, jt_launch(0, wait_a_little, NULL, NULL, &parent));
    for (int i = 0; i < 2; i++) {
      CHECK(pthread_create(&threads[i], NULL, open_and_open, NULL) == 0);
    }
    if (round % 2) {
      EXPECT(JT_OK, jt_cancel(parent, NULL));
    }
    for (int i = 0; i < 2; i++) {
      pthread_join(threads[i], NULL);
    }
    EXPECT(JT_OK, jt_job_release(parent));
  }
}

int main(void) {
  EXPECT(JT_OK, jt_runtime_init(2));
  scopes_of_threads();
  waiting_for_the_opener();
  parents_that_end();
  nurseries_under_others();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
