#!/usr/bin/env python3
"""Writes an order and submits the job for its invoice in one transaction: both exist, or neither does.

    pip install 'psycopg[binary]'
    DATABASE_URL=postgres://shop@localhost/shop JOBTREE_SCHEMA=jobs ./shop.py "a book"

Prints the id of the job.
"""
import json
import os
import sys

import psycopg
from psycopg import sql


def order(connection, schema, item):
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute("INSERT INTO orders (item) VALUES (%s) RETURNING id", (item,))
        (number,) = cursor.fetchone()
        job = {
            "addon_id": "shop",
            "job_type": "invoice",
            "cost_units": 5,
            "payload": {"order": number},
            # A program that does not know whether its commit went through may do it again.
            "idempotency_key": f"invoice-{number}",
        }
        submit = sql.SQL("SELECT {}.jobtree_submit(%s::json)").format(sql.Identifier(schema))
        cursor.execute(submit, (json.dumps(job),))
        (job_id,) = cursor.fetchone()
        if item == "nothing":
            raise ValueError("an order of nothing: the transaction is rolled back, and its job with it")
        return job_id


if __name__ == "__main__":
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        print(order(connection, os.environ.get("JOBTREE_SCHEMA", "public"), sys.argv[1]))
