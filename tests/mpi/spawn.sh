#!/bin/sh
# spawn.sh MPIRUN... PROGRAM ARGUMENT...: the part `spawn` of correct. Once in some 50 times a child never
# comes out of PMIx_Init, in which no component is loaded yet, whatever carries the messages. Such a
# run is told by its process without the component, and is repeated, at most twice. Any other
# hang is a failure.
set -u
limit_s=${LIMIT_S:-40}

# Processes below mpirun, in all generations.
below() {
    for child in $(pgrep -P "$1"); do
        echo "$child"
        below "$child"
    done
}

for try in 1 2 3; do
    "$@" spawn &
    mpirun=$!
    waited=0
    while kill -0 "$mpirun" 2>/dev/null && [ "$waited" -lt $((limit_s * 10)) ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    if ! kill -0 "$mpirun" 2>/dev/null; then
        wait "$mpirun"
        exit
    fi
    strays=0
    for pid in $(below "$mpirun"); do
        grep -q mca_btl_tickwire "/proc/$pid/maps" 2>/dev/null || strays=$((strays + 1))
    done
    # mpirun ends what it started.
    kill "$mpirun"
    wait "$mpirun"
    if [ "$strays" -eq 0 ]; then
        echo "spawn hangs, with the component in all processes" >&2
        exit 1
    fi
    echo "spawn: $strays processes still in PMIx_Init after $limit_s s (try $try)" >&2
done
exit 1
