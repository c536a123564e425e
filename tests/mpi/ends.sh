#!/bin/sh
# ends.sh PROGRAM MPIRUN...: a job whose rank dies, and one that aborts, end within LIMIT_S seconds,
# with a status that is not 0, and leave no process.
set -eu
program=$1
shift
limit_s=${LIMIT_S:-20}

for how in kill abort; do
    status=0
    timeout -k 5 "$limit_s" "$@" "$program" "$how" >/dev/null 2>&1 || status=$?
    if [ "$status" -eq 0 ] || [ "$status" -eq 124 ]; then
        echo "ends $how: status $status" >&2
        exit 1
    fi
    # mpirun may be gone a moment before the last rank.
    tries=50
    while pgrep -f "^$program $how" >/dev/null; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "ends $how: left behind: $(pgrep -af "^$program $how" | tr '\n' ';')" >&2
            exit 1
        fi
        sleep 0.1
    done
    echo "ends $how: ok, status $status"
done
