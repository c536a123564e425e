#!/bin/sh
# valgrind.sh FOLDER MPIRUN...: hello and ring of FOLDER under valgrind, two ranks. Fails when a finding
# has a function of ours in it. Not ours: ob1 leaves the padding of its headers as it finds it, and
# we send it; that the engine's own bytes are all written is checked in tests/c.
set -eu
folder=$1
shift
logs=$(mktemp -d)
trap 'rm -r "$logs"' EXIT

for program in hello ring; do
    timeout -k 5 200 "$@" -np 2 valgrind -q --leak-check=full --show-leak-kinds=definite \
        --log-file="$logs/$program.%p" "$folder/$program" >"$logs/out" 2>&1 ||
        { cat "$logs/out"; exit 1; }
    found=$(cat "$logs/$program".* | sed 's/^==[0-9]*== *//' |
        awk 'BEGIN { RS = "" } /tickwire/ && !/Syscall param (sendmsg|socketcall.sendto)/ {
            print; print "" }')
    if [ -n "$found" ]; then
        printf '%s under valgrind:\n%s\n' "$program" "$found" >&2
        exit 1
    fi
    echo "$program under valgrind: no finding of ours in $(ls "$logs/$program".* | wc -l) processes"
done
