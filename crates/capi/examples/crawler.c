/* A crawler with bounded fan-out that stops at the first hit.
 *
 * Pages are numbers here: page n links to 2n and 2n + 1, and the one that is looked for is given on the command line.
 * Four workers take pages from a channel and put those they find into it. Whoever finds the right one says so by
 * failing with FOUND: a nursery cancels the rest as soon as one of its jobs fails.
 *
 *   cc -I crates/capi/include crates/capi/examples/crawler.c target/release/libjobtree_capi.a -lpthread -lm -ldl
 */

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "jobtree.h"

enum { WORKERS = 4, FOUND = 1 };

struct crawl {
  jt_channel_t pages;
  uint64_t wanted;
  atomic_int visited;
};

/* Takes its time, as a page that comes over a network does. Waiting does not keep a thread busy. */
static jt_status fetch(uint64_t page) {
  (void)page;
  return jt_sleep_ms(1);
}

static int32_t worker(void *arg) {
  struct crawl *crawl = arg;
  uint64_t page;
  jt_status status;
  while ((status = jt_channel_recv(crawl->pages, &page)) == JT_OK) {
    status = fetch(page);
    if (status != JT_OK) {
      break;
    }
    atomic_fetch_add(&crawl->visited, 1);
    if (page == crawl->wanted) {
      return FOUND;
    }
    jt_channel_send(crawl->pages, 2 * page);
    jt_channel_send(crawl->pages, 2 * page + 1);
  }
  return status; /* JT_ECANCELED: another one was faster. */
}

int main(int count, char **arguments) {
  struct crawl crawl = {0};
  jt_nursery_t nursery;
  jt_status status;
  int32_t code = 0;
  char detail[256];

  crawl.wanted = count > 1 ? strtoull(arguments[1], NULL, 10) : 100;
  if (jt_runtime_init(0) != JT_OK) {
    jt_last_error(detail, sizeof detail);
    fprintf(stderr, "no runtime: %s\n", detail);
    return 1;
  }
  jt_channel_create(JT_CHANNEL_UNBOUNDED, 0, &crawl.pages);
  jt_channel_send(crawl.pages, 1);

  jt_nursery_create(&nursery);
  for (int i = 0; i < WORKERS; i++) {
    jt_nursery_spawn(nursery, worker, &crawl, NULL);
  }
  status = jt_nursery_await(nursery, &code);
  jt_nursery_destroy(nursery);
  jt_channel_destroy(crawl.pages);
  jt_runtime_shutdown(1000);

  if (status != JT_EFAILED || code != FOUND) {
    fprintf(stderr, "not found: %s\n", jt_status_message(status));
    return 1;
  }
  printf("found page %llu after %d pages\n", (unsigned long long)crawl.wanted, atomic_load(&crawl.visited));
  return 0;
}
