# Sourced by scripts/test: runs one stage after the other, and remembers how each went.

stage_names=()
stage_results=()
stage_seconds=()
# A stage that cannot run here exits with this code, after saying why. 77 is what automake uses for it.
readonly skipped_code=77

# What each stage prints is kept here, so that the summary can repeat what failed.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

# run_stage NAME: runs the function stage_NAME in a subshell of its own.
run_stage() {
  local name=$1 started=$SECONDS code=0 result
  printf '\n==> %s\n' "$name"
  # Not `if ( … )`: a condition would switch `errexit` off inside the stage, and a failing command in its middle
  # would go unnoticed.
  set +e
  (
    set -euo pipefail
    "stage_${name//-/_}"
  ) > >(tee "$logs/$name") 2>&1
  code=$?
  # Not a pipe: it would wait for every process that a stage leaves behind. So give `tee` a moment for the last lines.
  sleep 0.1
  set -e
  case $code in
    0) result=ok ;;
    "$skipped_code") result=skipped ;;
    *) result=FAILED ;;
  esac
  stage_names+=("$name")
  stage_results+=("$result")
  stage_seconds+=($((SECONDS - started)))
  printf '<== %s: %s in %d s\n' "$name" "$result" $((SECONDS - started))
}

# repeat_failures NAME: the lines of a failed stage's output that tell what failed, and its end. Long outputs are cut where
# they are kept, in front.
repeat_failures() {
  printf '\n--- %s\n' "$1"
  grep -nE '^test .* FAILED|^error|panicked at|test result: FAILED|^✖|not ok ' "$logs/$1" | head -n 40 || true
  tail -n 25 "$logs/$1"
}

# Prints what failed and a line a stage; fails if one of them did.
summary() {
  local index failed=0 total=0
  for index in "${!stage_names[@]}"; do
    [[ ${stage_results[index]} != FAILED ]] || repeat_failures "${stage_names[index]}"
  done
  printf '\n%-20s %-8s %s\n' stage result seconds
  for index in "${!stage_names[@]}"; do
    printf '%-20s %-8s %7d\n' "${stage_names[index]}" "${stage_results[index]}" "${stage_seconds[index]}"
    total=$((total + stage_seconds[index]))
    [[ ${stage_results[index]} != FAILED ]] || failed=$((failed + 1))
  done
  printf '%-20s %-8s %7d\n' total "" "$total"
  if ((failed)); then
    echo "$failed stage(s) failed"
    return 1
  fi
}

# skip REASON: ends the current stage as skipped.
skip() {
  echo "skipped: $*"
  exit "$skipped_code"
}

# fail REASON: ends the current stage as failed.
fail() {
  echo "error: $*" >&2
  exit 1
}

# limited SECONDS COMMAND…: ends a command that hangs, where the system has `timeout`, unless JOBTREE_NO_TIME_LIMITS is set.
limited() {
  local seconds=$1
  shift
  if [[ -z ${JOBTREE_NO_TIME_LIMITS:-} ]] && command -v timeout >/dev/null; then
    # --foreground is left out on purpose: the whole process group must go, children included.
    timeout --kill-after=10 "$seconds" "$@"
  else
    "$@"
  fi
}
