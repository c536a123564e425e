#!/usr/bin/env bash
# Everything that has to hold before a change is merged.
#
#   ./test.sh         all steps, under 25 minutes
#   ./test.sh quick   formatting, lints and tests
#
# Environment:
#   FUZZ_SECONDS   seconds for each fuzz target (30)
#   CI=true        whatever had to be skipped and can be installed is a failure
#
# A failed step does not stop the others; the summary names it and the exit status is 1. Traffic
# stays on the loopback interface and in network namespaces of our own, and every step runs in a
# process group that is ended with it.

set -u
set -m # A step that runs in the background leads a process group of its own.
cd "$(dirname "${BASH_SOURCE[0]}")" || exit 1

mode=${1:-all}
case $mode in
all | quick) ;;
*)
    echo "usage: ./test.sh [quick]" >&2
    exit 2
    ;;
esac

: "${FUZZ_SECONDS:=30}"
scratch=$(mktemp -d)
export TICKWIRE_SKIP_LOG=$scratch/skipped
: >"$TICKWIRE_SKIP_LOG"
export NETNS_HOSTS=tw$$ # The hosts of this run are its own, whatever else is up.
group=
failed=()
lines=()
started_s=$SECONDS

end_group() {
    [ -n "$group" ] || return 0
    # A group without members is the usual case, and no error.
    if kill -TERM -- "-$group" 2>/dev/null; then
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            kill -0 -- "-$group" 2>/dev/null || break
            sleep 0.1
        done
        kill -KILL -- "-$group" 2>/dev/null
    fi
    group=
}

clean_up() {
    end_group
    scripts/netns-hosts down
    rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

note() { # note TITLE STATUS SECONDS
    lines+=("$(printf '%-8s %5d s  %s' "$2" "$3" "$1")")
    [ "$2" != FAILED ] || failed+=("$1")
}

# step TITLE LIMIT_S COMMAND...: runs the command in its own group; remembers how it ended.
step() {
    local title=$1 limit_s=$2 begin=$SECONDS status=ok code
    shift 2
    printf '\n=== %s\n' "$title"
    # `timeout` leads the group, so that ending the group ends all that the command left behind.
    timeout --kill-after=10 "$limit_s" "$@" </dev/null &
    group=$!
    wait "$group"
    code=$?
    end_group
    if [ "$code" -ne 0 ]; then
        status=FAILED
        [ "$code" -ne 124 ] || echo "--- still running after $limit_s s, ended"
    fi
    printf -- '--- %s: %s, %d s\n' "$title" "$status" $((SECONDS - begin))
    note "$title" "$status" $((SECONDS - begin))
    [ "$code" -eq 0 ]
}

# A step that cannot run here.
skip() { # skip TITLE REASON
    printf '\n=== %s\n--- SKIPPED: %s\n' "$1" "$2"
    if [ "${CI:-}" = true ]; then note "$1" FAILED 0; else note "$1" SKIPPED 0; fi
}

install_missing() {
    local package missing=()
    command -v apt-get >/dev/null && command -v dpkg-query >/dev/null || return 0
    for package in gcc make libc6-dev libfabric1 libfabric-dev nftables iproute2 python3-minimal \
        openmpi-bin libopenmpi-dev pkg-config valgrind python3-mpi4py; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
            missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        echo "not installed, and only root can: ${missing[*]}"
        return 0
    fi
    # shellcheck disable=SC2016 # The inner shell expands its own arguments.
    step "install ${missing[*]}" 300 env DEBIAN_FRONTEND=noninteractive sh -c \
        'apt-get update -qq && exec apt-get install -y -qq --no-install-recommends "$@"' \
        sh "${missing[@]}"
}

pingpong() { # pingpong ARGUMENT...
    step "tickwire pingpong $*" 120 target/release/tickwire pingpong \
        --iters 200 --sizes 8,4096,262144 "$@"
}

commands() {
    local bad='loss=5%,dup=1%,reorder=5%,corrupt=0.5%'
    if ! step 'cargo build --release' 900 cargo build --release; then
        note 'tickwire pingpong (nothing to run)' FAILED 0
        return
    fi
    pingpong --port sim
    pingpong --port udp
    pingpong --port udp --faults "$bad" --seed 7
    pingpong --port libfabric --provider udp
    pingpong --port libfabric --provider udp --faults "$bad" --seed 7
    step 'tickwire soak' 120 target/release/tickwire soak --seconds 5 --sizes 8,8K,1M
}

# Programs in C, and MPI programs over the Open MPI component.
c_programs() {
    if ! command -v make >/dev/null || ! command -v cc >/dev/null ||
        ! command -v pkg-config >/dev/null; then
        skip 'C and MPI programs' 'no make, cc or pkg-config (apt-get install gcc make pkg-config)'
        return
    fi
    command -v valgrind >/dev/null ||
        skip 'C and MPI programs under valgrind' 'no valgrind (apt-get install valgrind)'
    step 'C programs' 300 make -s -C tests/c check
    if ! command -v mpirun >/dev/null || ! command -v mpicc >/dev/null; then
        skip 'MPI programs' 'no Open MPI (apt-get install openmpi-bin libopenmpi-dev)'
        return
    fi
    /usr/bin/python3 -c 'import mpi4py' 2>/dev/null ||
        skip 'MPI programs in Python' 'no mpi4py (apt-get install python3-mpi4py)'
    step 'MPI programs' 400 make -s -C openmpi check
}

# On networks that really lose datagrams. Leave to make namespaces is nothing that CI could install.
simulated_hosts() {
    if ! unshare --net --mount --uts true 2>/dev/null; then
        printf '\n=== two hosts\n--- SKIPPED: no leave to make network namespaces\n'
        note 'two hosts' SKIPPED 0
        return
    fi
    if ! command -v nft >/dev/null || ! command -v ip >/dev/null; then
        skip 'two hosts' 'no nft or ip (apt-get install nftables iproute2)'
        return
    fi
    if command -v python3 >/dev/null; then
        step 'simulated hosts lose what they should' 120 scripts/netns-hosts selftest
    else
        skip 'simulated hosts lose what they should' 'no python3 (apt-get install python3-minimal)'
    fi
    step 'two hosts, 1 % loss' 180 scripts/two-hosts target/release/tickwire 1
    step 'lossy hosts' 300 scripts/lossy-hosts target/release/tickwire
}

fuzz() {
    local target targets corpus
    if [ ! -d fuzz ]; then
        skip fuzz 'there is no fuzz/ folder'
        return
    fi
    if ! cargo +nightly --version >/dev/null 2>&1; then
        skip fuzz 'no nightly toolchain (rustup toolchain install nightly)'
        return
    fi
    if ! cargo +nightly fuzz --version >/dev/null 2>&1; then
        step 'cargo install cargo-fuzz' 600 cargo install cargo-fuzz --locked || return
    fi
    if ! targets=$(cargo +nightly fuzz list) || [ -z "$targets" ]; then
        note 'fuzz (no targets)' FAILED 0
        return
    fi
    step 'cargo fuzz build' 600 cargo +nightly fuzz build || return
    for target in $targets; do
        # What this run finds goes to a copy: the kept seeds change by hand only.
        corpus=$scratch/corpus/$target
        mkdir -p "$corpus"
        if [ -d "fuzz/seeds/$target" ]; then cp -r "fuzz/seeds/$target/." "$corpus"; fi
        step "fuzz $target" $((FUZZ_SECONDS + 120)) \
            cargo +nightly fuzz run "$target" "$corpus" -- "-max_total_time=$FUZZ_SECONDS"
    done
}

install_missing
step 'cargo fmt' 60 cargo fmt --all --check
step 'cargo clippy' 600 cargo clippy --workspace --all-targets -- -D warnings
step 'cargo test' 1200 cargo test --workspace
if [ "$mode" = all ]; then
    step 'cargo doc' 300 env RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps
    commands
    c_programs
    simulated_hosts
    step 'cargo bench, each once' 1500 cargo bench --bench '*' -- --test
    fuzz
fi

printf '\n=== Summary, %d s\n' $((SECONDS - started_s))
printf '%s\n' "${lines[@]}"
if [ -s "$TICKWIRE_SKIP_LOG" ]; then
    printf '\n=== SKIPPED by tests\n'
    sort -u "$TICKWIRE_SKIP_LOG"
    if [ "${CI:-}" = true ] && grep -qv '(not installable)$' "$TICKWIRE_SKIP_LOG"; then
        failed+=('tests were skipped that CI=true allows to install')
    fi
fi
if [ ${#failed[@]} -gt 0 ]; then
    printf '\n=== FAILED\n'
    printf '%s\n' "${failed[@]}"
    exit 1
fi
printf '\nAll is well.\n'
