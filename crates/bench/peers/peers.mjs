// Runs one of the peers on PostgreSQL, on command: `node peers.mjs graphile|pgboss URL`.
//
// A line on standard input is a work: `submit COUNT CALLERS`, `bulk COUNT SIZE` or `process COUNT BATCH`. The answer is a
// line with the seconds that it took. Each peer is set up for throughput: graphile-worker with a local queue and completions
// in batches, pg-boss with fetches and completions of a whole batch.

import { createInterface } from "node:readline";
import PgBoss from "pg-boss";
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const [, , name, connectionString] = process.argv;
const payload = { path: "/some/folder/with/a/file.jpg" };
const silent = new Logger(() => () => {});

async function graphile() {
  const pgPool = new pg.Pool({ connectionString, max: 10 });
  // A lost connection shows as a failed call; without listeners the library prints a warning.
  pgPool.on("error", () => {});
  pgPool.on("connect", (client) => client.on("error", () => {}));
  const utils = await makeWorkerUtils({ pgPool, logger: silent });
  await utils.migrate();
  return {
    submit: () => utils.addJob("index", payload),
    bulk: (size) => utils.addJobs(Array.from({ length: size }, () => ({ identifier: "index", payload }))),
    async process(count, batch) {
      let left = count;
      let allRan;
      const ran = new Promise((resolve) => (allRan = resolve));
      const runner = await run({
        logger: silent,
        noHandleSignals: true,
        taskList: {
          index: async () => {
            left -= 1;
            if (left === 0) allRan();
          },
        },
        preset: {
          worker: {
            connectionString,
            concurrentJobs: 24,
            maxPoolSize: 10,
            localQueue: { size: batch },
            completeJobBatchDelay: 0,
            failJobBatchDelay: 0,
          },
        },
      });
      await ran;
      // Stopping waits for the completions that are on their way.
      await runner.stop();
    },
    async end() {
      await utils.release();
      await pgPool.end();
    },
  };
}

async function pgboss() {
  const boss = new PgBoss({ connectionString, max: 10, supervise: false, schedule: false });
  await boss.start();
  await boss.createQueue("index");
  return {
    submit: () => boss.send("index", payload),
    bulk: (size) => boss.insert(Array.from({ length: size }, () => ({ name: "index", data: payload }))),
    async process(count, batch) {
      let left = count;
      const worker = async () => {
        while (left > 0) {
          const jobs = await boss.fetch("index", { batchSize: Math.min(batch, left) });
          left -= jobs.length;
          if (jobs.length > 0) await boss.complete("index", jobs.map((job) => job.id));
        }
      };
      await Promise.all([worker(), worker()]);
    },
    end: () => boss.stop({ graceful: false }),
  };
}

async function work(peer, line) {
  const [what, first, second] = line.split(" ");
  const [count, width] = [Number(first), Number(second)];
  if (what === "process") return peer.process(count, width);
  if (what === "bulk") {
    // Two calls on their way at a time, as the other side has.
    const half = async (from) => {
      for (let at = from * width; at < count; at += 2 * width) await peer.bulk(Math.min(width, count - at));
    };
    return Promise.all([half(0), half(1)]);
  }
  const caller = async () => {
    for (let at = 0; at < count / width; at += 1) await peer.submit();
  };
  return Promise.all(Array.from({ length: width }, caller));
}

const peer = await { graphile, pgboss }[name]();
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const start = process.hrtime.bigint();
  await work(peer, line);
  console.log(Number(process.hrtime.bigint() - start) / 1e9);
}
await peer.end();
