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
  return verdict();
}
