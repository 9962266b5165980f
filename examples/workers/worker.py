#!/usr/bin/env python3
"""A jobtree worker in Python, with the standard library alone.

It claims jobs of one addon over HTTP, runs each with a function of its own, and renews its lease from a second
thread. What a worker must do, whatever its language:

- Claim with an id of this process, drawn at its start.
- Renew each lease well before its time is over, and stop the job when the daemon says so, or when it could not be
  renewed in time: somebody else may have the job then.
- Complete with the id of the lease. A refusal (409) means that the lease was lost: drop what was done.

What a worker should do: obey the advice that comes with each heartbeat. `slow`: use less. `checkpoint`: save. `yield`: save,
and release the lease, so that the job waits again. `drain`: finish; nothing new is granted.

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
CHECKPOINTS = os.environ.get("JOBTREE_CHECKPOINTS", ".")
stopping = threading.Event()


class Stopped(Exception):
    """The job shall not go on."""


class Yielded(Exception):
    """The job shall not go on here and now."""


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
        self.advice = "continue"
        self.stop = threading.Event()
        self.over = threading.Event()
        self.sent = 0

    def progress(self, fraction, message):
        """Tells how far it is, and ends the job if it shall end."""
        if self.stop.is_set():
            raise Stopped()
        self.told = {"fraction": fraction, "message": message}

    def checkpoint(self):
        """The file in which a run saves for the runs after it. Named after the job, which they share."""
        return os.path.join(CHECKPOINTS, f"jobtree-{self.job['job_id']}.json")

    def load(self, default):
        """What an earlier run saved."""
        try:
            with open(self.checkpoint()) as file:
                return json.load(file)
        except FileNotFoundError:
            return default

    def forget(self):
        """Removes what was saved: the job is done."""
        if os.path.exists(self.checkpoint()):
            os.remove(self.checkpoint())

    def obey(self, state):
        """Does what the daemon advises. To be called between two steps, with what the next run needs to go on."""
        if self.advice == "slow":
            time.sleep(0.1)
        if self.advice in ("checkpoint", "yield"):
            # Renamed into place, so that a crash leaves the old one or the new one.
            with open(self.checkpoint() + ".new", "w") as file:
                json.dump(state, file)
            os.replace(self.checkpoint() + ".new", self.checkpoint())
        if self.advice == "yield":
            raise Yielded()

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
                self.advice = answer["advice"]
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
    state = run.load({"next": 0, "letters": 0})
    for number, word in enumerate(words[state["next"]:], start=state["next"]):
        run.progress(number / len(words), word)
        run.obey(state)
        run.log(f"counting {word}")
        time.sleep((payload or {}).get("seconds_each", 0))
        state = {"next": number + 1, "letters": state["letters"] + len(word)}
    if (payload or {}).get("fail"):
        raise ValueError("asked to fail")
    return {"letters": state["letters"]}


def complete(run, body):
    """Answers for the run."""
    body["lease_id"] = run.lease
    answer(f"/queue/jobs/{run.job['job_id']}/complete", body)


def give_back(run):
    """Releases the lease: the job waits again, and nothing is counted."""
    answer(f"/lease/{run.lease}/release", {"return_jobs": True, "reason": "asked to yield"})


def answer(path, body):
    """Tells how a run ended. Repeating is safe, so a daemon that is away for a moment is asked again."""
    for _ in range(10):
        try:
            call(path, body)
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
        run.forget()
    except Yielded:
        give_back(run)
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
