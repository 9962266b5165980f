/* Channels: every kind, both ends in jobs and on threads, limits, closing, cancellation. */

#include <pthread.h>

#include "check.h"

#define VALUES 1000

static jt_channel_t channel;

static jt_channel_t make(int32_t kind, size_t capacity) {
  jt_channel_t made = 0;
  EXPECT(JT_OK, jt_channel_create(kind, capacity, &made));
  return made;
}

static int32_t produce(void *arg) {
  uint64_t first = (uint64_t)(uintptr_t)arg;
  for (uint64_t i = 0; i < VALUES; i++) {
    jt_status status = jt_channel_send(channel, first + i);
    if (status != JT_OK) {
      return status;
    }
  }
  return JT_OK;
}

static atomic_uint_fast64_t sum;

static int32_t consume(void *arg) {
  uint64_t value;
  jt_status status;
  (void)arg;
  while ((status = jt_channel_recv(channel, &value)) == JT_OK) {
    atomic_fetch_add(&sum, value);
  }
  return status == JT_ECLOSED ? JT_OK : status;
}

static int32_t produce_all(void *arg) {
  jt_nursery_t producers;
  (void)arg;
  EXPECT(JT_OK, jt_nursery_create(&producers));
  for (uintptr_t i = 0; i < 4; i++) {
    EXPECT(JT_OK, jt_nursery_spawn(producers, produce, (void *)(i * VALUES), NULL));
  }
  EXPECT(JT_OK, jt_nursery_await(producers, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(producers));
  EXPECT(JT_OK, jt_channel_close(channel));
  return JT_OK;
}

static void in_jobs(int32_t kind, size_t capacity) {
  jt_nursery_t nursery;
  uint64_t count = 4 * VALUES;
  jt_channel_stats_t stats;
  channel = make(kind, capacity);
  atomic_store(&sum, 0);
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, produce_all, NULL, NULL));
  for (int i = 0; i < 3; i++) {
    EXPECT(JT_OK, jt_nursery_spawn(nursery, consume, NULL, NULL));
  }
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  CHECK(atomic_load(&sum) == count * (count - 1) / 2);
  EXPECT(JT_OK, jt_channel_stats(channel, &stats));
  CHECK(stats.sent == count && stats.received == count && stats.length == 0 && stats.closed == 1);
  EXPECT(JT_OK, jt_channel_destroy(channel));
}

static void *send_one(void *arg) {
  EXPECT(JT_OK, jt_channel_send(channel, (uint64_t)(uintptr_t)arg));
  return NULL;
}

static void *receive_nothing(void *arg) {
  uint64_t value;
  (void)arg;
  EXPECT(JT_ECLOSED, jt_channel_recv(channel, &value));
  return NULL;
}

static void until_a_receiver_waits(void) {
  jt_channel_stats_t stats = {0};
  UNTIL(jt_channel_stats(channel, &stats) == JT_OK && stats.receivers_waiting == 1);
}

static void on_threads(void) {
  pthread_t thread;
  uint64_t value = 0;
  channel = make(JT_CHANNEL_RENDEZVOUS, 0);
  CHECK(pthread_create(&thread, NULL, send_one, (void *)31) == 0);
  EXPECT(JT_OK, jt_channel_recv(channel, &value));
  CHECK(value == 31);
  pthread_join(thread, NULL);

  CHECK(pthread_create(&thread, NULL, receive_nothing, NULL) == 0);
  until_a_receiver_waits();
  EXPECT(JT_OK, jt_channel_destroy(channel)); /* Whoever waits in it returns. */
  pthread_join(thread, NULL);
}

static void full_and_empty(void) {
  jt_channel_t two = make(JT_CHANNEL_BOUNDED, 2);
  jt_channel_stats_t stats;
  uint64_t value = 99;
  EXPECT(JT_EEMPTY, jt_channel_try_recv(two, &value));
  EXPECT(JT_EEMPTY, jt_channel_recv_timeout(two, &value, 0));
  EXPECT(JT_ETIMEDOUT, jt_channel_recv_timeout(two, &value, 2));
  CHECK(value == 99);
  EXPECT(JT_OK, jt_channel_try_send(two, 1));
  EXPECT(JT_OK, jt_channel_send_timeout(two, 2, 5));
  EXPECT(JT_EFULL, jt_channel_try_send(two, 3));
  EXPECT(JT_EFULL, jt_channel_send_timeout(two, 3, 0));
  EXPECT(JT_ETIMEDOUT, jt_channel_send_timeout(two, 3, 2));
  EXPECT(JT_OK, jt_channel_stats(two, &stats));
  CHECK(stats.length == 2 && stats.capacity == 2 && stats.closed == 0 && stats.sent == 2);
  EXPECT(JT_OK, jt_channel_close(two));
  EXPECT(JT_ECLOSED, jt_channel_close(two));
  EXPECT(JT_ECLOSED, jt_channel_send(two, 3));
  EXPECT(JT_ECLOSED, jt_channel_try_send(two, 3));
  EXPECT(JT_OK, jt_channel_recv(two, &value));
  CHECK(value == 1);
  EXPECT(JT_OK, jt_channel_try_recv(two, &value));
  CHECK(value == 2);
  EXPECT(JT_ECLOSED, jt_channel_recv(two, &value));
  EXPECT(JT_ECLOSED, jt_channel_try_recv(two, &value));
  EXPECT(JT_ECLOSED, jt_channel_recv_timeout(two, &value, 5));
  EXPECT(JT_OK, jt_channel_destroy(two));
}

/* What a kind keeps of 1, 2 and 3, as the digits of a number. */
static uint64_t kept(int32_t kind, size_t capacity) {
  jt_channel_t made = make(kind, capacity);
  uint64_t digits = 0, value;
  for (uint64_t i = 1; i <= 3; i++) {
    EXPECT(JT_OK, jt_channel_send(made, i));
  }
  while (jt_channel_try_recv(made, &value) == JT_OK) {
    digits = digits * 10 + value;
  }
  EXPECT(JT_OK, jt_channel_destroy(made));
  return digits;
}

static int32_t receive_until_canceled(void *arg) {
  uint64_t value;
  (void)arg;
  EXPECT(JT_ECANCELED, jt_channel_recv(channel, &value));
  EXPECT(JT_ECANCELED, jt_channel_recv_timeout(channel, &value, FAR_MS));
  EXPECT(JT_ECANCELED, jt_channel_send(channel, 1));
  return JT_ECANCELED;
}

static void cancellation(void) {
  jt_job_t job;
  channel = make(JT_CHANNEL_UNBOUNDED, 0);
  EXPECT(JT_OK, jt_launch(0, receive_until_canceled, NULL, NULL, &job));
  until_a_receiver_waits();
  EXPECT(JT_OK, jt_cancel(job, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
  EXPECT(JT_OK, jt_channel_destroy(channel));
}

static void pointers(void) {
  jt_channel_t made = make(JT_CHANNEL_BOUNDED, 1);
  int something = 0;
  void *received = NULL;
  EXPECT(JT_OK, jt_channel_send_ptr(made, &something));
  EXPECT(JT_OK, jt_channel_recv_ptr(made, &received));
  CHECK(received == &something);
  EXPECT(JT_ENULL, jt_channel_recv_ptr(made, NULL));
  EXPECT(JT_OK, jt_channel_destroy(made));
}

int main(void) {
  EXPECT(JT_OK, jt_runtime_init(2));
  in_jobs(JT_CHANNEL_RENDEZVOUS, 0);
  in_jobs(JT_CHANNEL_BOUNDED, 3);
  in_jobs(JT_CHANNEL_UNBOUNDED, 0);
  on_threads();
  full_and_empty();
  CHECK(kept(JT_CHANNEL_UNBOUNDED, 0) == 123);
  CHECK(kept(JT_CHANNEL_CONFLATED, 0) == 3);
  CHECK(kept(JT_CHANNEL_DROPPING_OLDEST, 2) == 23);
  CHECK(kept(JT_CHANNEL_DROPPING_NEWEST, 2) == 12);
  cancellation();
  pointers();
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
