/* What a failing check looks like. */

#include "check.h"

int main(void) {
  CHECK(1 == 2);
  EXPECT(JT_OK, jt_checkpoint());
  return verdict();
}
