# Sourced by scripts/test: the stages that every change must pass.

# debian_install PACKAGE…: installs what is missing on Debian and its relatives; elsewhere says what to install.
debian_install() {
  if ! command -v apt-get >/dev/null; then
    fail "please install: $* (Debian's names; yours may differ)"
  fi
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || fail "please install as root: apt-get install $*"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -qq
  # Recommended packages would bring in hundreds of megabytes that no test uses.
  DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@"
}

# rustup_component COMMAND COMPONENT: makes sure that a cargo subcommand's component is there.
rustup_component() {
  if cargo "$1" --version >/dev/null 2>&1; then
    return
  fi
  command -v rustup >/dev/null || fail "cargo $1 is missing: install the $2 of your Rust toolchain"
  rustup component add "$2"
}

stage_tools() {
  command -v cargo >/dev/null || fail "Rust is missing: see https://rustup.rs"
  local have want
  have=$(rustc --version | cut -d' ' -f2)
  want=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  if [[ $(printf '%s\n%s\n' "$want" "${have%%-*}" | sort -V | head -n1) != "$want" ]]; then
    fail "Rust $want or newer is needed, this is $have: run 'rustup update stable'"
  fi
  # Rust links through the C compiler, and the tests of the C interface compile programs, which needs headers, too.
  if ! command -v cc >/dev/null || ! cc -E -x c - <<<'#include <stdio.h>' >/dev/null 2>&1; then
    debian_install gcc libc6-dev
  fi
  # The store's tests start a PostgreSQL of their own.
  if ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && ! command -v initdb >/dev/null; then
    debian_install postgresql
  fi
  # A daemon is started behind a pooler.
  if [[ ! -x /usr/sbin/pgbouncer ]] && ! command -v pgbouncer >/dev/null; then
    debian_install pgbouncer
  fi
  # Programs in Node and Python submit jobs in SQL; the tests get the drivers from their registries.
  if ! command -v npm >/dev/null; then
    debian_install nodejs npm
  fi
  if ! python3 -m pip --version >/dev/null 2>&1; then
    debian_install python3 python3-pip
  fi
  # A test submits a job with it, as people do.
  if ! command -v curl >/dev/null; then
    debian_install curl
  fi
  # The dashboard is tested in it.
  if [[ -z ${CHROMIUM:-} ]] && ! command -v chromium >/dev/null && ! command -v google-chrome >/dev/null; then
    debian_install chromium
  fi
  # Shells whose completions are tested, and a terminal for `jobtree top`.
  local tool
  for tool in zsh fish tmux; do
    command -v "$tool" >/dev/null || debian_install "$tool"
  done
  # One of the workers in other languages, and the property-based tests of the HTTP interface.
  if ! command -v python3 >/dev/null; then
    debian_install python3
  fi
  rustup_component fmt rustfmt
  rustup_component clippy clippy
  rustc --version
  cc --version | head -n1
}

# Each workspace of the repository: the main one, and those in compat/, which have lockfiles of their own.
manifests() {
  echo Cargo.toml
  local manifest
  for manifest in compat/*/Cargo.toml; do
    [[ ! -f $manifest ]] || echo "$manifest"
  done
}

stage_format() {
  local manifest
  for manifest in $(manifests); do
    # --all follows path dependencies too; in compat/ that would only check the same files twice.
    if [[ $manifest == Cargo.toml ]]; then
      cargo fmt --all --check
    else
      cargo fmt --manifest-path "$manifest" --check
    fi
  done
}

# What users can switch on. Not --all-features: the pool's `sanitizer` links only under a sanitizer.
features=(--features jobtree/iter,jobtree/tracing,jobtree/durable,jobtree/tokio,jobtree/stream,jobtree-store/postgres,jobtree-scheduler/postgres,jobtree-cli/otel)

stage_lint() {
  local manifest switched_on
  for manifest in $(manifests); do
    switched_on=()
    [[ $manifest != Cargo.toml ]] || switched_on=("${features[@]}")
    # --locked: a lockfile that does not match its manifests is a change somebody forgot to commit.
    cargo clippy --locked --manifest-path "$manifest" --workspace "${switched_on[@]}" --all-targets -- -D warnings
  done
  # What is on by default can be switched off.
  local kept
  for kept in '' lanes macros; do
    cargo clippy --locked -p jobtree --no-default-features --features "$kept" -- -D warnings
  done
  # rustdoc has lints of its own: links that lead nowhere, examples that are not closed.
  RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace "${features[@]}" --no-deps --document-private-items
}

stage_web() {
  # The dashboard: what is committed is what its sources give, and its pure parts work.
  limited 300 scripts/web --check
  limited 120 npm --prefix web --loglevel=error test
}

stage_tests() {
  # --all-targets would run the benchmarks as tests as well; examples have a stage of their own.
  # One failure does not hide the others. A store's process is killed at random as often as this.
  JOBTREE_CRASHES=${JOBTREE_CRASHES:-200} limited 2400 cargo test --locked --workspace --no-fail-fast "${features[@]}" --lib --bins --tests
}

stage_browser() {
  # The dashboard as it is seen: Chromium, the daemon with SQLite, workers.
  limited 300 scripts/web --install
  # Everything is built already, if the stage `tests` was run. The example is the worker of the walk through the house.
  cargo build --locked --workspace "${features[@]}" --bin jobtree --example tree_worker
  JOBTREE_BIN="$target/debug/jobtree" limited 300 npm --prefix web --loglevel=error run e2e
}

stage_doctests() {
  limited 900 cargo test --locked --workspace "${features[@]}" --doc
}

stage_planted() {
  # The property test must find bugs: some are planted, one after the other, and it has to notice each.
  limited 900 cargo test --locked -p jobtree-runtime --features planted-bugs --test property planted::
}

stage_simulation() {
  # Two thousand runs of the durable queue's engine against everything that can go wrong, and planted bugs to be found.
  limited 900 cargo test --locked --release -p jobtree-scheduler --test simulation
  # A thousand runs of the whole system: the same engine with real workers on a simulated runtime.
  limited 300 cargo test --locked --release -p jobtree-scheduler --test system
}

# run_loom SECONDS: runs every loom model with the limits in the environment.
run_loom() {
  # A folder of its own: `--cfg loom` is part of every crate's fingerprint, and sharing would rebuild everything twice.
  local crate crates=() listed
  export RUSTFLAGS="${RUSTFLAGS:-} --cfg loom"
  for crate in jobtree-base jobtree-pool jobtree-tree jobtree-runtime; do
    # A filter that matches nothing passes; models that were renamed must not vanish in silence.
    # Not in a pipe: grep leaves at the first match, and the lister would fail on the closed pipe.
    listed=$(cargo test --locked --profile loom --target-dir "$target/loom" -p "$crate" --lib loom_ -- --list)
    grep -q ': test$' <<<"$listed" || fail "no loom model was found in $crate"
    crates+=(-p "$crate")
  done
  limited "$1" cargo test --locked --profile loom --target-dir "$target/loom" "${crates[@]}" --lib loom_
}

stage_loom() {
  # Each model has its own bound on preemptions, with which it takes seconds.
  run_loom 900
}

stage_examples() {
  cargo build --locked --workspace "${features[@]}" --examples
  local example name count=0
  for example in crates/*/examples/*.rs; do
    [[ -f $example ]] || continue
    name=$(basename "$example" .rs)
    echo "--> $example"
    limited 120 "$target/debug/examples/$name"
    count=$((count + 1))
  done
  ((count)) || skip "there are no examples"
  echo "$count examples ran"
}

stage_compat() {
  [[ -f compat/rayon-core/Cargo.toml ]] || skip "there is no compat/rayon-core"
  # The same target folder: the crates it shares with the main workspace are built already.
  limited 900 cargo test --locked --manifest-path compat/rayon-core/Cargo.toml
}
