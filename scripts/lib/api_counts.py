"""Reads what each operation was answered, and fails if too few have succeeded: api_counts.py OPENAPI COUNTS"""

import json
import sys

SHARE = 0.95

with open(sys.argv[1], encoding="utf-8") as file:
    paths = json.load(file)["paths"]
with open(sys.argv[2], encoding="utf-8") as file:
    counts = json.load(file)

operations = [operation["operationId"] for methods in paths.values() for operation in methods.values()]
succeeded = [name for name in operations if any(status[0] == "2" for status in counts.get(name, {}))]
broken = [name for name in operations if any(status[0] == "5" for status in counts.get(name, {}))]
calls = sum(sum(answers.values()) for answers in counts.values())
for name in sorted(set(operations) - set(succeeded)):
    print(f"no success: {name}: {counts.get(name, 'never called')}")
print(f"{calls} calls; {len(succeeded)} of {len(operations)} operations succeeded at least once")
if broken:
    sys.exit(f"5xx of {', '.join(broken)}")
if len(succeeded) < SHARE * len(operations):
    sys.exit(f"that is less than {SHARE:.0%}")
