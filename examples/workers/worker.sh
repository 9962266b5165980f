#!/bin/sh
# A jobtree worker in shell, with curl: claims a job, renews its lease in the background, runs a command on its payload,
# and answers for it.
#
#     JOBTREE_URL=http://127.0.0.1:7717 JOBTREE_TOKEN=... ./worker.sh photos checksum
#
# For a command that only reads its payload and prints its result, `jobtree work` does all this, and does it better:
# this is here to show that nothing but HTTP is needed. Reading JSON with sed is good enough for ids.

set -u
addon=$1
job_type=$2
base="${JOBTREE_URL:-http://127.0.0.1:7717}/api/system/scheduler"
instance=$(cat /proc/sys/kernel/random/uuid)

# post PATH BODY: prints the answer; fails if it is no success.
post() {
    curl --silent --show-error --fail --max-time 30 --request POST "$base$1" \
        --header "Authorization: Bearer ${JOBTREE_TOKEN:-}" \
        --header 'Content-Type: application/json' --data "$2"
}

# field NAME: the first text of that name in the JSON on standard input.
field() {
    sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" | head -n 1
}

# Renews the lease as long as the job's process is there, and ends that process when the daemon says so or is lost.
# Obeys advice: `slow` makes the process nicer, `yield` ends it and leaves a note in the file $4, for the lease to be
# released. This job saves nothing, so there is nothing to do at `checkpoint`: it begins anew.
renew() {
    while sleep "$3" && kill -0 "$2" 2>/dev/null; do
        answer=$(post "/lease/$1/heartbeat" '{}') || answer='"advice":"cancel"'
        case $answer in
        *'"advice":"cancel"'*) kill "$2" 2>/dev/null ;;
        *'"advice":"slow"'*) renice -n 19 -p "$2" >/dev/null 2>&1 ;;
        *'"advice":"yield"'*) echo yield >"$4" && kill "$2" 2>/dev/null ;;
        esac
    done
}

# The job itself: replace this. It reads the payload, and prints a JSON value.
job() {
    printf '"%s"' "$(printf '%s' "$1" | cksum | cut -d ' ' -f 1)"
}

trap 'exit 0' TERM INT
while :; do
    ask="{\"addon_id\":\"$addon\",\"job_types\":[\"$job_type\"],\"instance_id\":\"$instance\",\"wait_sec\":5}"
    claimed=$(post /queue/claim "$ask") || { sleep 1; continue; }
    lease=$(printf '%s' "$claimed" | field lease_id)
    [ -n "$lease" ] || continue
    job=$(printf '%s' "$claimed" | field job_id)
    ttl=$(printf '%s' "$claimed" | sed -n 's/.*"ttl_sec":\([0-9]*\).*/\1/p')
    payload=$(printf '%s' "$claimed" | sed -n 's/.*"payload":\(.*\),"time_sensitive".*/\1/p')

    out=$(mktemp)
    job "$payload" >"$out" &
    pid=$!
    renew "$lease" "$pid" "$((ttl / 3 > 0 ? ttl / 3 : 1))" "$out.yield" &
    heart=$!
    wait "$pid"
    code=$?
    if [ "$code" = 0 ]; then
        body="{\"lease_id\":\"$lease\",\"status\":\"DONE\",\"result\":$(cat "$out")}"
    elif [ -s "$out.yield" ]; then
        body=''
    else
        body="{\"lease_id\":\"$lease\",\"status\":\"FAILED\",\"error\":\"exit code $code\"}"
    fi
    kill "$heart" 2>/dev/null
    rm -f "$out" "$out.yield"
    # Refused means that the lease was lost: what was done does not count.
    if [ -n "$body" ]; then
        post "/queue/jobs/$job/complete" "$body" >/dev/null || echo "not taken: $job" >&2
    else
        post "/lease/$lease/release" '{"return_jobs":true,"reason":"asked to yield"}' >/dev/null || echo "not taken: $job" >&2
    fi
done
