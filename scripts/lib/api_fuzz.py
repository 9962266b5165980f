"""Hooks for schemathesis: half of the well-formed calls are about things that exist, and successes are counted.

A fuzzer that draws ids at random only ever sees 404. So before a call, and only one that is well-formed, an id in it is
replaced by that of a job, lease or schedule that was just made for it, in the state that the call needs. Waits are cut
short. What each operation was answered is written to $JOBTREE_API_COUNTS at the end, for api-fuzz to look at.
"""

import atexit
import collections
import http.client
import json
import os
import random as randomness
import threading
import urllib.parse

import schemathesis
from hypothesis import strategies as st

URL = urllib.parse.urlsplit(os.environ["JOBTREE_URL"])
TOKEN = os.environ["JOBTREE_TOKEN"]
COUNTS = os.environ["JOBTREE_API_COUNTS"]
BASE = "/api/system/scheduler"

# One policy that keeps things moving, and what is none.
POLICY = """
[quiet]
enter_after = "0s"
[ramp]
units_per_sample = 0
[busy]
stale_after = "1h"
[caps]
leases = 1000
addon_leases = 1000
"""
schemathesis.openapi.media_type(
    "application/toml",
    st.sampled_from([POLICY.encode(), b"[caps]\nleases = 0\n", b"[", b"colour = 1\n"]),
)


@schemathesis.serializer("application/toml")
def toml(context, value):
    return value if isinstance(value, bytes) else str(value).encode()


# Not the one that the fuzzer seeds: names must differ from one run of a case to the next.
random = randomness.SystemRandom()
local = threading.local()


def call(method, path, body=None):
    """Asks the server itself, beside what is tried."""
    headers = {"authorization": f"Bearer {TOKEN}"}
    text = None
    if body is not None:
        headers["content-type"] = "application/json"
        text = json.dumps(body)
    try:
        status, told = send(method, BASE + path, text, headers)
    except (OSError, http.client.HTTPException):
        # It was idle for so long that the server closed it.
        del local.connection
        status, told = send(method, BASE + path, text, headers)
    if status >= 300:
        raise RuntimeError(f"{method} {path}: {status} {told!r}")
    return json.loads(told) if told else None


def send(method, path, text, headers):
    if not hasattr(local, "connection"):
        local.connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=30)
    local.connection.request(method, path, text, headers)
    answer = local.connection.getresponse()
    return answer.status, answer.read()


def job(**more):
    """A job that waits, in an addon of its own."""
    addon = f"fuzz-{random.getrandbits(64):x}"
    body = {"addon_id": addon, "job_type": "t", "cost_units": 1, **more}
    return addon, call("POST", "/queue/jobs/submit", body)["job_id"]


def later():
    """A job that nobody dispatches."""
    return job(earliest_start_at="2999-01-01T00:00:00Z")[1]


def dispatched():
    """A job whose dispatch waits to be taken up."""
    for _ in range(5):
        addon, job_id = job(priority="HIGH")
        if call("GET", f"/queue/dispatchable?addon_id={addon}&wait_sec=1")["jobs"]:
            return job_id
        make_room()
    raise RuntimeError("nothing is dispatched")


def make_room():
    """What other calls left behind must not fill the machine, nor keep it from starting anything."""
    call("POST", "/queue/jobs/cancel-many", {"query": {}})
    for lease in call("GET", "/lease?limit=500")["leases"]:
        try:
            call("POST", f"/lease/{lease['lease_id']}/revoke", {})
        except RuntimeError:
            pass  # It ended by itself.
    for pause in call("GET", "/queue/pauses")["pauses"]:
        call("POST", "/queue/resume", {"addon_id": pause["addon_id"], "job_type": pause["job_type"]})
    call("POST", "/drain", {"draining": False})
    call("POST", "/signals", {"p95_latency_ms": 0, "in_flight": 0, "requests_per_sec": 0, "error_rate": 0})


def running():
    """A job that runs: its id and its lease."""
    job_id = dispatched()
    return job_id, call("POST", f"/queue/jobs/{job_id}/ack", {})["lease_id"]


def schedule():
    name = f"fuzz-{random.getrandbits(64):x}"
    spec = {"name": name, "cron": "0 3 1 1 *", "job": {"addon_id": "fuzz", "job_type": "t", "cost_units": 1}}
    return call("POST", "/schedules", spec)["schedule_id"]


def token():
    made = call("POST", "/tokens", {"name": "fuzz", "addon_id": "fuzz", "scopes": ["read"]})
    return made["token_id"]


def webhook():
    made = call("POST", "/webhooks", {"url": "http://127.0.0.1:1/", "secret": "sixteen letters!", "addon_id": "nobody"})
    return made["webhook_id"]


def tree():
    job_id, lease = running()
    nodes = [{"depth": 0, "label": "run", "state": "Active", "age_ms": 1}]
    worker = {
        "instance_id": "00000000-0000-4000-8000-000000000001",
        "addon_id": "fuzz",
        "trees": [{"job_id": job_id, "nodes": nodes}],
    }
    call("POST", "/lease/heartbeat-many", {"leases": [{"lease_id": lease}], "worker": worker})
    return job_id


def about_job(make):
    def act(case):
        case.path_parameters["job_id"] = make()

    return act


def under_lease(case):
    _, case.path_parameters["lease_id"] = running()
    if isinstance(case.body, dict):
        # A job that is not the lease's is refused, and rightly.
        case.body.pop("job_id", None)


def completing(case):
    case.path_parameters["job_id"], case.body["lease_id"] = running()


def completing_many(case):
    _, case.body["lease_id"] = running()


def logging(case):
    case.path_parameters["job_id"], case.body["lease_id"] = running()
    case.body["offset"] = 0


def giving_back(case):
    under_lease(case)
    if isinstance(case.body, dict):
        case.body["return_jobs"] = True


def about_schedule(case):
    case.path_parameters["schedule_id"] = schedule()
    if isinstance(case.body, dict):
        sound_schedule(case)


def sound_schedule(case):
    case.body["cron"] = "0 3 * * *"
    case.body["time_zone"] = "UTC"
    case.body["name"] = f"fuzz-{random.getrandbits(64):x}"
    case.body["job"] = {"addon_id": "fuzz", "job_type": "t", "cost_units": 1}


def redriving(case):
    case.body["job_ids"] = [later()]
    case.body.pop("query", None)


def sound_token(case):
    case.body["addon_id"] = "fuzz"
    case.body["scopes"] = ["read"]
    case.body.pop("expires_at", None)
    case.body["name"] = "fuzz"


def about_bulk_action(case):
    made = call("POST", "/queue/bulk", {"action": "cancel", "query": {"addon_id": "nobody"}})
    case.path_parameters["bulk_id"] = made["bulk_id"]


def signing_in(case):
    case.body["code"] = call("POST", "/sign-in-links")["code"]


def sound_webhook(case):
    case.body["url"] = "http://127.0.0.1:1/"
    case.body["addon_id"] = "nobody"


def sound_claim(case):
    case.body.pop("node_id", None)
    case.body.pop("lease_id", None)
    case.body["pids"] = []


def sound_lease(case):
    case.body.pop("job_id", None)
    case.body["pids"] = []
    case.body.update(addon_id="fuzz", job_type="t", cost_units=1)


def sound_signals(case):
    case.body.pop("node_id", None)


def sound_submission(case):
    for field in ("job_id", "depends_on", "deadline_at", "late", "concurrency_limit", "backoff", "required_node"):
        case.body.pop(field, None)


SEEDS = {
    "get_job": about_job(later),
    "explain_job": about_job(later),
    "list_job_events": about_job(later),
    "get_job_log": about_job(later),
    "get_job_output": about_job(later),
    "cancel_job": about_job(later),
    "retry_job": about_job(later),
    "pause_job": about_job(lambda: running()[0]),
    "resume_job": about_job(lambda: running()[0]),
    "get_job_tree": about_job(tree),
    "get_job_trace": about_job(tree),
    "ack_job": lambda case: (about_job(dispatched)(case), case.body.clear() if isinstance(case.body, dict) else None),
    "complete_job": completing,
    "complete_jobs": completing_many,
    "append_job_log": logging,
    "append_job_output": logging,
    "get_lease": under_lease,
    "heartbeat": under_lease,
    "report": under_lease,
    "register_pids": under_lease,
    "release_lease": giving_back,
    "revoke_lease": under_lease,
    "get_schedule": about_schedule,
    "replace_schedule": about_schedule,
    "delete_schedule": about_schedule,
    "pause_schedule": about_schedule,
    "resume_schedule": about_schedule,
    "create_schedule": sound_schedule,
    "redrive_jobs": redriving,
    "create_token": sound_token,
    "sign_in": signing_in,
    "get_bulk_action": about_bulk_action,
    "start_bulk_action": about_bulk_action,
    "stop_bulk_action": about_bulk_action,
    "delete_token": lambda case: case.path_parameters.update(token_id=token()),
    "create_webhook": sound_webhook,
    "delete_webhook": lambda case: case.path_parameters.update(webhook_id=webhook()),
    "claim_jobs": sound_claim,
    "request_lease": sound_lease,
    "push_signals": sound_signals,
    "submit_job": sound_submission,
}


def is_wait(value):
    """Whether a value is a number of seconds that the server would wait for."""
    text = str(value)
    return text.isascii() and text.isdigit() and int(text) <= 600


def operation_id(case):
    return case.operation.definition.raw.get("operationId", case.operation.label)


@schemathesis.hook
def before_call(context, case, kwargs):
    # Ten minutes are too long for a test. A value that breaks the description is sent as it is, since it must be refused.
    if isinstance(case.query, dict) and is_wait(case.query.get("wait_sec")):
        case.query.pop("wait_sec", None)
    if isinstance(case.body, dict) and is_wait(case.body.get("wait_sec")):
        case.body["wait_sec"] = 0
    # A drained server starts nothing, and then there is little to try.
    if isinstance(case.body, dict) and case.body.get("draining") is True:
        case.body["draining"] = False
    meta = case.meta
    well_formed = meta is not None and meta.generation.mode.is_positive
    seed = SEEDS.get(operation_id(case))
    if seed and well_formed and random.random() < 0.6:
        try:
            seed(case)
        except (AttributeError, KeyError, TypeError, RuntimeError):
            # The call has no such part, or another one that is tried at the same time was in the way: it goes as it is.
            # Were this so each time, no success would be counted.
            pass


counts = collections.defaultdict(collections.Counter)


@schemathesis.hook
def after_call(context, case, response):
    counts[operation_id(case)][str(response.status_code)] += 1


@atexit.register
def write_counts():
    with open(COUNTS, "w", encoding="utf-8") as file:
        json.dump(counts, file, indent=1, sort_keys=True)
