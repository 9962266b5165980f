// Prints the size of what a browser loads, compressed as the daemon sends it.
import { readFileSync, readdirSync } from "node:fs";

const folder = new URL("../crates/server/assets/assets/", import.meta.url);
let total = 0;
for (const name of readdirSync(folder)) {
  if (!/\.(js|css)\.br$/.test(name)) continue;
  const size = readFileSync(new URL(name, folder)).length;
  total += size;
  console.log(`${name.slice(0, -3)}: ${(size / 1024).toFixed(1)} KiB by brotli`);
}
console.log(`all: ${(total / 1024).toFixed(1)} of 150 KiB`);
if (total > 150 * 1024) process.exitCode = 1;
