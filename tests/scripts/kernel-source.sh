#!/usr/bin/env bash
# Unpacks what the parity tests need of a kernel source archive.
# usage: kernel-source.sh ARCHIVE OUT_DIR
set -eu
archive=$1 out=$2
rm -rf "$out.part"
mkdir -p "$out.part"
tar xf "$archive" -C "$out.part" --strip-components=1 --wildcards \
    '*/tools/testing/selftests/bpf/*' '*/tools/lib/*' '*/tools/include/*' '*/samples/bpf/*' \
    '*/include/uapi/*'
mv "$out.part" "$out"
