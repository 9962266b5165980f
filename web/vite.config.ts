// Builds the dashboard into the folder that the daemon embeds. Nothing here depends on the time or the machine: the same
// sources give the same bytes, and scripts/test compares them.
import { defineConfig } from "vite";

// Only for `npm run dev`: the daemon that answers, and the token for it. The built program signs in with a cookie.
const environment = (globalThis as { process?: { env: Record<string, string | undefined> } }).process?.env ?? {};
const daemon = environment.JOBTREE_URL ?? "http://127.0.0.1:7717";
const token = environment.JOBTREE_TOKEN;

export default defineConfig({
  // Relative to <base href>, which the daemon fills in.
  base: "./",
  build: {
    outDir: "../crates/server/assets",
    emptyOutDir: true,
    target: "es2022",
    // The polyfill would be one more script that browsers of the target do not need.
    modulePreload: { polyfill: false },
    // Inlined as data: URLs they would need a looser content security policy.
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
  server: {
    proxy: {
      "^/(api/|healthz|readyz|metrics|openapi.json)": {
        target: daemon,
        ...(token ? { headers: { Authorization: `Bearer ${token}` } } : {}),
      },
    },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node", css: true },
} as Parameters<typeof defineConfig>[0]);
