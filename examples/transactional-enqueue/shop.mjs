#!/usr/bin/env node
// Writes an order and submits the job for its invoice in one transaction: both exist, or neither does.
//
//     npm install pg
//     DATABASE_URL=postgres://shop@localhost/shop JOBTREE_SCHEMA=jobs node shop.mjs "a book"
//
// Prints the id of the job.
import pg from "pg";

async function order(client, schema, item) {
  await client.query("BEGIN");
  try {
    const inserted = await client.query("INSERT INTO orders (item) VALUES ($1) RETURNING id", [item]);
    const number = inserted.rows[0].id;
    const job = {
      addon_id: "shop",
      job_type: "invoice",
      cost_units: 5,
      payload: { order: number },
      // A program that does not know whether its commit went through may do it again.
      idempotency_key: `invoice-${number}`,
    };
    const submit = `SELECT ${pg.escapeIdentifier(schema)}.jobtree_submit($1::json) AS job_id`;
    const submitted = await client.query(submit, [JSON.stringify(job)]);
    if (item === "nothing") {
      throw new Error("an order of nothing: the transaction is rolled back, and its job with it");
    }
    await client.query("COMMIT");
    return submitted.rows[0].job_id;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
try {
  console.log(await order(client, process.env.JOBTREE_SCHEMA ?? "public", process.argv[2]));
} finally {
  await client.end();
}
