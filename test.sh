#!/usr/bin/env bash
# Runs everything: formatting, lints, tests, documentation, the real command, benches, fuzzing.
# usage: ./test.sh [quick]      quick: formatting, lints and tests only
# FUZZ_SECONDS: per fuzz target (default 30). With CI=true, a skip of anything installable fails.
set -uo pipefail
cd "$(dirname "$0")"

failed=()
scratch=$(mktemp -d)
export TICKWIRE_SKIP_LOG=$scratch/skipped
: >"$TICKWIRE_SKIP_LOG"
trap 'kill $(jobs -p) 2>/dev/null; rm -rf "$scratch"' EXIT

skip() {
    echo "SKIPPED: $1: $2" >&2
    echo "$1: $2" >>"$TICKWIRE_SKIP_LOG"
}

step() { # title, command...
    local title=$1 start=$SECONDS
    shift
    echo "== $title"
    if "$@"; then
        echo "== $title: passed in $((SECONDS - start)) s"
    else
        echo "== $title: FAILED (status $?) after $((SECONDS - start)) s" >&2
        failed+=("$title")
    fi
}

install_needs() {
    local missing=()
    ldconfig -p | grep -q 'libfabric\.so\.1' || missing+=(libfabric1)
    [ -e /usr/include/rdma/fabric.h ] || missing+=(libfabric-dev)
    command -v cc >/dev/null || missing+=(gcc libc6-dev)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq && apt-get install -y -qq "${missing[@]}" >/dev/null
    else
        echo "missing and not installed (no root or no apt): ${missing[*]}" >&2
    fi
}

pingpong() {
    timeout 120 target/release/tickwire pingpong --iters 500 --sizes 8,4K,256K "$@"
}

real_command() {
    local faults=(--faults "loss=5%,dup=1%,reorder=5%,corrupt=0.5%" --seed 7) status=0
    cargo build --release || return 1
    pingpong --port udp && pingpong --port udp "${faults[@]}" && pingpong --port sim || status=1
    if ldconfig -p | grep -q 'libfabric\.so\.1'; then
        pingpong --port libfabric --provider udp || status=1
        pingpong --port libfabric --provider udp "${faults[@]}" || status=1
    else
        skip "pingpong over libfabric" "no libfabric.so.1 (apt-get install libfabric1)"
    fi
    return $status
}

fuzz() {
    local seconds=${FUZZ_SECONDS:-30} target status=0
    if ! cargo +nightly --version >/dev/null 2>&1; then
        skip "fuzz targets" "no nightly toolchain"
        return 0
    fi
    command -v cargo-fuzz >/dev/null || cargo install cargo-fuzz --locked || return 1
    for target in $(cargo +nightly fuzz list); do
        # The kept seeds stay as they are; what is found beyond them is thrown away.
        mkdir -p "$scratch/corpus/$target"
        cp fuzz/seeds/"$target"/* "$scratch/corpus/$target/" || status=1
        timeout $((seconds + 600)) cargo +nightly fuzz run "$target" "$scratch/corpus/$target" \
            -- -max_total_time="$seconds" -print_final_stats=1 || status=1
    done
    return $status
}

step "what is needed" install_needs
step "formatting" cargo fmt --all --check
step "lints" cargo clippy --workspace --all-targets -- -D warnings
step "tests" timeout 1500 cargo test --workspace
if [ "${1:-}" != quick ]; then
    step "documentation" env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps
    step "the real command" real_command
    step "benches, once each" timeout 1200 cargo bench --benches -p tickwire -- --test
    step "fuzz targets" fuzz
fi

if [ -s "$TICKWIRE_SKIP_LOG" ]; then
    echo "skipped:"
    sort -u "$TICKWIRE_SKIP_LOG" | sed 's/^/  /'
    [ "${CI:-}" != true ] || failed+=("skips on CI")
fi
if [ ${#failed[@]} -gt 0 ]; then
    echo "FAILED: ${failed[*]}"
    exit 1
fi
echo "all steps passed"
