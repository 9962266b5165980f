/* Select: one winner, the first of those that can, in jobs and on threads. */

#include "check.h"

static jt_channel_t a, b;

static jt_select_clause receive(jt_channel_t channel) {
  jt_select_clause clause = {channel, JT_SELECT_RECV, 1, 0};
  return clause;
}

static jt_select_clause give(jt_channel_t channel, uint64_t value) {
  jt_select_clause clause = {channel, JT_SELECT_SEND, 1, value};
  return clause;
}

static uint64_t length_of(jt_channel_t channel) {
  jt_channel_stats_t stats = {0};
  EXPECT(JT_OK, jt_channel_stats(channel, &stats));
  return stats.length;
}

static void at_once(void) {
  size_t index = 99;
  jt_select_clause clauses[2];
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &a));
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_BOUNDED, 1, &b));

  clauses[0] = receive(a);
  clauses[1] = receive(b);
  EXPECT(JT_EEMPTY, jt_select(clauses, 2, 0, &index));
  EXPECT(JT_ETIMEDOUT, jt_select(clauses, 2, 2, &index));
  CHECK(index == 99);

  EXPECT(JT_OK, jt_channel_send(b, 7));
  EXPECT(JT_OK, jt_select(clauses, 2, -1, &index));
  CHECK(index == 1 && clauses[1].status == JT_OK && clauses[1].value == 7 && clauses[0].status == 1);

  /* Both could: the first one wins, the other is as if it had never been written. */
  clauses[0] = give(a, 1);
  clauses[1] = give(b, 2);
  EXPECT(JT_OK, jt_select(clauses, 2, -1, &index));
  CHECK(index == 0 && clauses[0].status == JT_OK);
  CHECK(length_of(a) == 1 && length_of(b) == 0);
  EXPECT(JT_OK, jt_select(clauses, 2, FAR_MS, &index)); /* Now the first one is full. */
  CHECK(index == 1 && length_of(b) == 1);
  EXPECT(JT_EEMPTY, jt_select(clauses, 2, 0, &index));

  /* A closed channel is one with which one can go on. */
  EXPECT(JT_OK, jt_channel_close(a));
  clauses[0] = give(a, 1);
  EXPECT(JT_OK, jt_select(clauses, 1, -1, &index));
  CHECK(index == 0 && clauses[0].status == JT_ECLOSED);
  clauses[0] = receive(a);
  EXPECT(JT_OK, jt_select(clauses, 1, -1, &index));
  CHECK(clauses[0].status == JT_OK && clauses[0].value == 1);
  EXPECT(JT_OK, jt_select(clauses, 1, -1, &index));
  CHECK(clauses[0].status == JT_ECLOSED);
  EXPECT(JT_OK, jt_channel_destroy(a));
  EXPECT(JT_OK, jt_channel_destroy(b));
}

#define ROUNDS 500

static int32_t fill(void *arg) {
  jt_channel_t channel = *(jt_channel_t *)arg;
  for (int i = 0; i < ROUNDS; i++) {
    jt_status status = jt_channel_send(channel, 1);
    if (status != JT_OK) {
      return status;
    }
  }
  return JT_OK;
}

/* Two senders of a rendezvous each, and selects that take from both: every value once. */
static atomic_int received;

static int32_t take(void *arg) {
  (void)arg;
  while (atomic_fetch_add(&received, 1) < 2 * ROUNDS) {
    jt_select_clause clauses[2] = {receive(a), receive(b)};
    size_t index;
    jt_status status = jt_select(clauses, 2, -1, &index);
    EXPECT(JT_OK, status);
    CHECK(index < 2 && clauses[index].status == JT_OK && clauses[index].value == 1);
  }
  return JT_OK;
}

static void among_jobs(void) {
  jt_nursery_t nursery;
  jt_channel_stats_t stats_of_a, stats_of_b;
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_RENDEZVOUS, 0, &a));
  EXPECT(JT_OK, jt_channel_create(JT_CHANNEL_RENDEZVOUS, 0, &b));
  EXPECT(JT_OK, jt_nursery_create(&nursery));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, take, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, take, NULL, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fill, &a, NULL));
  EXPECT(JT_OK, jt_nursery_spawn(nursery, fill, &b, NULL));
  take(NULL); /* And from this thread. */
  EXPECT(JT_OK, jt_nursery_await(nursery, NULL));
  EXPECT(JT_OK, jt_nursery_destroy(nursery));
  EXPECT(JT_OK, jt_channel_stats(a, &stats_of_a));
  EXPECT(JT_OK, jt_channel_stats(b, &stats_of_b));
  CHECK(stats_of_a.received == ROUNDS && stats_of_b.received == ROUNDS);
}

static int32_t wait_in_vain(void *arg) {
  jt_select_clause clauses[2] = {receive(a), give(b, 1)};
  size_t index;
  (void)arg;
  EXPECT(JT_ECANCELED, jt_select(clauses, 2, -1, &index));
  EXPECT(JT_ECANCELED, jt_select(clauses, 2, 0, &index));
  EXPECT(JT_ECANCELED, jt_select(clauses, 2, FAR_MS, &index));
  return JT_ECANCELED;
}

static void cancellation(void) {
  jt_job_t job;
  jt_channel_stats_t stats = {0};
  EXPECT(JT_OK, jt_launch(0, wait_in_vain, NULL, NULL, &job));
  UNTIL(jt_channel_stats(a, &stats) == JT_OK && stats.receivers_waiting == 1);
  EXPECT(JT_OK, jt_cancel(job, NULL));
  EXPECT(JT_ECANCELED, jt_job_join(job, NULL));
  EXPECT(JT_OK, jt_job_release(job));
}

static void misuse(void) {
  jt_select_clause clauses[JT_SELECT_MAX + 1];
  size_t index;
  for (size_t i = 0; i <= JT_SELECT_MAX; i++) {
    clauses[i] = receive(a);
  }
  EXPECT(JT_EEMPTY, jt_select(clauses, JT_SELECT_MAX, 0, &index));
  EXPECT(JT_ETIMEDOUT, jt_select(clauses, JT_SELECT_MAX, 1, &index));
  EXPECT(JT_EINVAL, jt_select(clauses, JT_SELECT_MAX + 1, 0, &index));
  EXPECT(JT_EINVAL, jt_select(clauses, 0, -1, &index));
  EXPECT(JT_ENULL, jt_select(NULL, 1, -1, &index));
  EXPECT(JT_ENULL, jt_select(clauses, 1, -1, NULL));
  clauses[1].op = 5;
  EXPECT(JT_EINVAL, jt_select(clauses, 2, -1, &index));
  clauses[1] = receive(0);
  EXPECT(JT_EHANDLE, jt_select(clauses, 2, -1, &index));
}

int main(void) {
  EXPECT(JT_OK, jt_runtime_init(2));
  at_once();
  among_jobs();
  cancellation();
  misuse();
  EXPECT(JT_OK, jt_channel_destroy(a));
  EXPECT(JT_OK, jt_channel_destroy(b));
  EXPECT(JT_OK, jt_runtime_shutdown(10000));
  return verdict();
}
