# Sourced by scripts/test: the HTTP interface against its own description, by property-based tests.

# fuzz_api SECONDS ARGUMENT…: serves in memory, and lets schemathesis loose on it. No answer may be a 5xx or break the
# description, nothing that breaks it may be taken, and nearly every operation must have succeeded at least once.
fuzz_api() {
  local seconds=$1 tools="$target/schemathesis" root=$PWD
  shift
  if [[ ! -x $tools/bin/schemathesis ]]; then
    python3 -c 'import ensurepip' 2>/dev/null || debian_install python3 python3-venv
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'schemathesis==4.32.5' || fail "schemathesis could not be installed: is PyPI reachable?"
  fi
  cargo build --locked -p jobtree-server --example serve
  folder=$(mktemp -d)
  # It serves until its input ends, so that it goes with this stage, however that ends. Names that the trap needs are not
  # local: it runs when the function is over.
  mkfifo "$folder/input"
  "$target/debug/examples/serve" "$folder" <"$folder/input" >"$folder/url" &
  served=$!
  exec 9>"$folder/input"
  trap 'exec 9>&-; wait "$served" || true; rm -rf "$folder"' EXIT
  until [[ -s $folder/url ]]; do
    kill -0 "$served" || fail "the server did not start"
    sleep 0.1
  done
  JOBTREE_URL=$(<"$folder/url")
  JOBTREE_TOKEN=$(<"$folder/admin.token")
  export JOBTREE_URL JOBTREE_TOKEN JOBTREE_API_COUNTS="$folder/counts.json"
  # The stream of events does not end, so it cannot be called like the others; it has tests of its own.
  # Data that fits the description may still be refused, with 422: not all that is checked can be said there.
  # One thread: with two, Python 3.11 fails now and then where Hypothesis parses its own source ("AST constructor recursion
  # depth mismatch").
  # It writes files into the folder that it is called in.
  cd "$folder"
  PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$root/scripts/lib" SCHEMATHESIS_HOOKS=api_fuzz limited "$seconds" \
    "$tools/bin/schemathesis" run "$root/crates/server/openapi.json" --url "$JOBTREE_URL" \
    --header "Authorization: Bearer $JOBTREE_TOKEN" --exclude-operation-id stream_events \
    --exclude-checks positive_data_acceptance --suppress-health-check all --request-timeout 30 --no-color \
    --generation-database none --workers 1 "$@"
  python3 "$root/scripts/lib/api_counts.py" "$root/crates/server/openapi.json" "$JOBTREE_API_COUNTS"
}

stage_api_fuzz() {
  fuzz_api 300 --phases examples,coverage,fuzzing --max-examples 4
}

stage_api_fuzz_long() {
  fuzz_api 7200 --phases examples,coverage,fuzzing,stateful --max-examples "${JOBTREE_API_EXAMPLES:-300}"
}
