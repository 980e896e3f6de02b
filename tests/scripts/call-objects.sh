#!/bin/sh
# Compiles tests/data/calls into a folder, against the running kernel's types.
# usage: call-objects.sh OUT
set -eu
out=$1
here=$(cd "$(dirname "$0")/../data/calls" && pwd)
clang=$(command -v clang-19 || command -v clang)
mkdir -p "$out"
bpftool btf dump file /sys/kernel/btf/vmlinux format c > "$out/vmlinux.h"
for source in "$here"/*.c; do
	"$clang" -O2 -g -target bpf -mcpu=v3 -I"$out" -w -c "$source" \
		-o "$out/$(basename "$source" .c).o"
done
