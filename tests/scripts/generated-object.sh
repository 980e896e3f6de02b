#!/bin/sh
# Compiles one generated source with the headers of tests/data/calls.
# usage: generated-object.sh SOURCE.c OUT.o FOLDER-OF-VMLINUX.H
set -eu
headers=$(cd "$(dirname "$0")/../data/calls" && pwd)
clang=$(command -v clang-19 || command -v clang)
"$clang" -O2 -g -target bpf -mcpu=v3 -I"$3" -I"$headers" -w -c "$1" -o "$2"
