#!/usr/bin/env bash
# Asks the running kernel about objects: loads every program of each, says what it said.
#
# usage (root): load-programs.sh OBJECT.o...
#
# Uses a bpffs of its own and leaves no pin behind. An object that the kernel refuses is shown with
# the end of the verifier's log; the exit code is the number of refusals.
set -uo pipefail

[ $# -gt 0 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2; }
bpffs=$(mktemp -d)
mount -t bpf none "$bpffs" || { echo "load-programs.sh: needs root and bpffs" >&2; exit 2; }
trap 'umount "$bpffs"; rmdir "$bpffs"' EXIT

refused=0
for object in "$@"; do
    name=$(basename "$object" .o)
    if log=$(bpftool prog loadall "$object" "$bpffs/$name" 2>&1); then
        echo "accepted $object ($(ls "$bpffs/$name" | tr '\n' ' '))"
    else
        echo "refused  $object"
        printf '%s\n' "$log" | tail -${LINES_MAX:-25} | sed 's/^/    /'
        refused=$((refused + 1))
    fi
    rm -rf "${bpffs:?}/$name"
done
exit "$refused"
