#!/usr/bin/env bash
# Measures the public programs beside the running kernel: the kernel's samples and selftests, and
# those of xdp-tools. Needs root.
#
# usage: bench-corpus.sh TOWPATH [ARGUMENT...]    arguments are those of `towpath bench`
#
# Objects are those of `make parity` (TOWPATH_PARITY_DIR, else target/parity), made when missing.
set -euo pipefail
cd "$(dirname "$0")/.."

towpath=$1
shift
scripts/install-deps.sh parity
scratch=${TOWPATH_PARITY_DIR:-target/parity}
objects=$scratch/objects
if [ ! -e "$objects/count.txt" ]; then
    source_dir=${TOWPATH_KERNEL_SOURCE:-$scratch/linux}
    archive=$(ls /usr/src/linux-source-*.tar.xz | head -1)
    [ -d "$source_dir" ] || tests/scripts/kernel-source.sh "$archive" "$source_dir"
    tests/scripts/kernel-objects.sh "$source_dir" "$objects" >&2
fi
folders=("$objects/clang-19")
for folder in /usr/lib/*/bpf; do
    [ ! -d "$folder" ] || folders+=("$folder")
done
exec "$towpath" bench "${folders[@]}" --against kernel "$@"
