/* What the test programs share: checks that say what failed, and a way to wait for something. */

#ifndef CHECK_H
#define CHECK_H

#include <stdatomic.h>
#include <stdio.h>

#include "jobtree.h"

static atomic_int failures;

/* Fails unless the condition holds. */
#define CHECK(condition)                                                        \
  do {                                                                          \
    if (!(condition)) {                                                         \
      fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      atomic_fetch_add(&failures, 1);                                           \
    }                                                                           \
  } while (0)

/* Fails unless the call returns that status. */
#define EXPECT(expected, call) expect(__FILE__, __LINE__, #call, (expected), (call))

static inline void expect(const char *file, int line, const char *call, int32_t expected, int32_t status) {
  char detail[256] = "";
  if (status == expected) {
    return;
  }
  jt_last_error(detail, sizeof detail);
  fprintf(stderr, "%s:%d: %s\n  returned %d (%s), not %d (%s); last error: %s\n", file, line, call, (int)status,
          jt_status_message(status), (int)expected, jt_status_message(expected), detail);
  atomic_fetch_add(&failures, 1);
}

/* Returns when the condition holds; others run meanwhile. */
#define UNTIL(condition)     \
  do {                       \
    while (!(condition)) {   \
      jt_yield();            \
    }                        \
  } while (0)

/* What `main` returns. */
static inline int verdict(void) { return atomic_load(&failures) == 0 ? 0 : 1; }

/* Longer than any test. */
#define FAR_MS 3600000

#endif
