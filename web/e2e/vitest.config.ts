// Tests with a real browser, a real daemon and real workers: `scripts/test browser`. Two files at a time: most of it is waiting.
import { defineConfig } from "vitest/config";

export default defineConfig({
  root: import.meta.dirname,
  test: {
    // The pictures of the documentation are taken by hand.
    include: process.env.SCREENSHOTS ? ["screenshots.ts"] : ["*.e2e.ts"],
    environment: "node",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
