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
  # Release: the more often the threads meet, the more a stress test sees. The factor multiplies each test's counts.
  JOBTREE_STRESS="${JOBTREE_STRESS:-20}" limited 3600 \
    cargo test --locked --release --workspace --exclude jobtree-bench --lib --tests
}

# The sources that the compiler read when it last built these crates for Miri, by its own list (dep-info). Empty lists
# belong to test programs, which Miri compiles while it runs them.
files_compiled_for_miri() {
  local crate
  for crate in jobtree_pool jobtree_par; do
    # The newest one: older builds may know files that are gone.
    find "$target/miri" -name "$crate-*.d" -size +0 -printf '%T@ %p\n' | sort -n | tail -n1 | cut -d' ' -f2- \
      | xargs -r sed -n 's/^\([^ ]*\.rs\):$/\1/p'
  done | sort -u
}

stage_miri() {
  need_nightly miri rust-src
  # Isolation off: the pool reads the CPU limit from /sys and its variables from the environment.
  # jobtree-par is not only tested itself: as its dependency, the pool's library is built, and its sources listed.
  MIRIFLAGS="-Zmiri-disable-isolation ${MIRIFLAGS:-}" limited 7200 \
    cargo +nightly miri test --locked -p jobtree-pool -p jobtree-par --lib
  echo
  echo "files with unsafe code that Miri did not execute (AddressSanitizer covers those of the pool):"
  # What the compiler did not read is left out by `cfg(miri)` and build.rs: stacks that switch, mappings, signals.
  comm -23 <(files_with_unsafe) <(files_compiled_for_miri) | sed 's/^/  /'
}

stage_address_sanitizer() {
  [[ $(host) == *-linux-gnu ]] || skip "AddressSanitizer is set up for Linux only"
  need_nightly rust-src
  # --target keeps the sanitizer out of build scripts and macros, which run on the uninstrumented host side.
  # The feature (corosensei's) tells the sanitizer of each switch of stacks; without it every second frame is an error.
  # Leaks are looked for too; the global pool's threads live until the end and keep what they own reachable.
  RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_stack_use_after_return=0" limited 3600 \
    cargo +nightly test --locked --target "$(host)" --target-dir "$target/asan" \
    -p jobtree-pool --features sanitizer --lib --tests
}

stage_thread_sanitizer() {
  [[ $(host) == *-linux-gnu ]] || skip "ThreadSanitizer is set up for Linux only"
  # Off unless asked for: it does not understand `atomic::fence`, on which the deque and the sleep protocol rest, and
  # reports races that the loom models show to be none. It is of use for a look at code without fences.
  [[ ${JOBTREE_TSAN:-} == 1 ]] || skip "set JOBTREE_TSAN=1 to run it (it misreads fences: expect false alarms)"
  need_nightly rust-src
  # -Zbuild-std: the standard library's own locks must be instrumented, or each of them looks like a race.
  RUSTFLAGS="-Zsanitizer=thread" limited 3600 \
    cargo +nightly test --locked -Zbuild-std --target "$(host)" --target-dir "$target/tsan" \
    -p jobtree-pool --features sanitizer --lib --tests
}

stage_rayon_suite() {
  [[ -x scripts/rayon-suite ]] || skip "there is no scripts/rayon-suite"
  limited 7200 scripts/rayon-suite
}
