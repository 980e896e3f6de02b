#!/usr/bin/env bash
# Writes the kernel's verifier test tables to OUT as JSON lines.
# usage: verifier-tables.sh KERNEL_SOURCE OUT
set -eu
source_dir=$1 out=$2
here=$(cd "$(dirname "$0")" && pwd)
self=$source_dir/tools/testing/selftests/bpf
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

mkdir -p "$work/include/verifier"
for table in "$self"/verifier/*.c; do
    echo "#include \"$table\""
done > "$work/include/verifier/tests.h"

# The runner's other functions are never called: their sections, and what they would need to link,
# are dropped.
gcc -w -O0 -ffunction-sections -Wl,--gc-sections -Wl,--unresolved-symbols=ignore-all \
    -I"$work/include" -I"$self" -I"$source_dir/tools/include" -I"$source_dir/tools/include/uapi" \
    -I"$source_dir/tools/lib" -o "$work/dump" "$here/verifier-tables.c"
"$work/dump" > "$out.part"
mv "$out.part" "$out"
