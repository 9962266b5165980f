#!/usr/bin/env python3
"""A jobtree worker in Python, with the standard library alone.

It claims jobs of one addon over HTTP, runs each with a function of its own, and renews its lease from a second
thread. What a worker must do, whatever its language:

- Claim with an id of this process, drawn at its start.
- Renew each lease well before its time is over, and stop the job when the daemon says so, or when it could not be
  renewed in time: somebody else may have the job then.
- Complete with the id of the lease. A refusal (409) means that the lease was lost: drop what was done.

    JOBTREE_URL=http://127.0.0.1:7717 JOBTREE_TOKEN=... ./worker.py photos thumbnail
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

BASE = os.environ.get("JOBTREE_URL", "http://127.0.0.1:7717") + "/api/system/scheduler"
TOKEN = os.environ.get("JOBTREE_TOKEN", "")
INSTANCE = str(uuid.uuid4())
stopping = threading.Event()


class Stopped(Exception):
    """The job shall not go on."""


def call(path, body, timeout=30):
    """Posts JSON, and gives the answer as JSON."""
    request = urllib.request.Request(
        BASE + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"},
    )
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        text = answer.read()
        return json.loads(text) if text else None


class Run:
    """One run of a job, and the lease it runs under."""

    def __init__(self, lease, job):
        self.lease = lease["lease_id"]
        self.ttl = lease["ttl_sec"]
        self.job = job
        self.told = None
        self.stop = threading.Event()
        self.over = threading.Event()
        self.sent = 0

    def progress(self, fraction, message):
        """Tells how far it is, and ends the job if it shall end."""
        if self.stop.is_set():
            raise Stopped()
        self.told = {"fraction": fraction, "message": message}

    def log(self, line):
        """Adds a line to the job's log."""
        text = line + "\n"
        body = {"lease_id": self.lease, "offset": self.sent, "text": text}
        self.sent = call(f"/queue/jobs/{self.job['job_id']}/log", body)["next_offset"]

    def beat(self):
        """Renews the lease until the run is over: three times within its time."""
        renewed = time.monotonic()
        while not self.over.wait(self.ttl / 3):
            body = {"job_id": self.job["job_id"]}
            if self.told:
                body["progress"], self.told = self.told, None
            try:
                answer = call(f"/lease/{self.lease}/heartbeat", body, timeout=self.ttl / 3)
                renewed = time.monotonic()
                if self.job["job_id"] in answer.get("cancel", []):
                    self.stop.set()
            except urllib.error.HTTPError:
                # The lease is somebody else's, or nobody's.
                self.stop.set()
            except OSError:
                # No daemon. Stop before the lease can be somebody else's.
                if time.monotonic() - renewed > self.ttl * 2 / 3:
                    self.stop.set()


def handle(payload, run):
    """The job itself: replace this."""
    words = (payload or {}).get("words", [])
    for number, word in enumerate(words):
        run.progress(number / len(words), word)
        run.log(f"counting {word}")
        time.sleep((payload or {}).get("seconds_each", 0))
    if (payload or {}).get("fail"):
        raise ValueError("asked to fail")
    return {"letters": sum(map(len, words))}


def complete(run, body):
    """Answers for the run. Repeating is safe, so a daemon that is away for a moment is asked again."""
    body["lease_id"] = run.lease
    for _ in range(10):
        try:
            call(f"/queue/jobs/{run.job['job_id']}/complete", body)
            return
        except urllib.error.HTTPError as error:
            print(f"not taken: {error.read().decode()}", file=sys.stderr)
            return
        except OSError:
            time.sleep(1)


def work(lease, job):
    run = Run(lease, job)
    heart = threading.Thread(target=run.beat, daemon=True)
    heart.start()
    try:
        result = handle(job.get("payload"), run)
        complete(run, {"status": "DONE", "result": result})
    except Stopped:
        complete(run, {"status": "FAILED", "error": "stopped"})
    except Exception as error:
        complete(run, {"status": "FAILED", "error": f"{type(error).__name__}: {error}"})
    finally:
        run.over.set()
        heart.join()


def main():
    addon, *types = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    signal.signal(signal.SIGINT, lambda *_: stopping.set())
    while not stopping.is_set():
        ask = {"addon_id": addon, "job_types": types, "instance_id": INSTANCE, "wait_sec": 5}
        try:
            leases = call("/queue/claim", ask)["leases"]
        except OSError as error:
            print(f"no jobs: {error}", file=sys.stderr)
            stopping.wait(1)
            continue
        for lease in leases:
            for job in lease["jobs"]:
                work(lease, job)


if __name__ == "__main__":
    main()
