#!/usr/bin/env bash
# Compiles programs/*.c to BPF objects: build/programs/NAME.o, or OUT/NAME.o.
#
# usage: build-programs.sh [--clang CLANG] [--from DIR] [--out DIR] [--ship] [NAME...]
#
# Only what changed is compiled again. A program whose header says "Needs: clang >= N" is skipped,
# and named, when the compiler is older. --ship is for objects that are part of a binary: they have
# types and lines (BTF) and no other debug information, and name no directory of this machine.
set -euo pipefail
cd "$(dirname "$0")/.."

clang=${CLANG:-}
from=programs
out=build/programs
ship=
names=()
while [ $# -gt 0 ]; do
    case $1 in
    --clang) clang=$2; shift 2 ;;
    --from) from=$2; shift 2 ;;
    --out) out=$2; shift 2 ;;
    --ship) ship=1; shift ;;
    -*) echo "build-programs.sh: unknown option $1" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
    esac
done
if [ -z "$clang" ]; then
    for clang in clang-19 clang clang-18 clang-17 clang-16 clang-15 clang-14 none; do
        command -v "$clang" >/dev/null && break
    done
    [ "$clang" != none ] || { echo "build-programs.sh: no clang found; run make deps" >&2; exit 1; }
fi
version=$("$clang" -dumpversion | cut -d. -f1)
[ ${#names[@]} -gt 0 ] || names=($(cd "$from" && ls ./*.c | sed 's|^\./||; s|\.c$||'))
flags=(-O2 -g -target bpf -Wall -Werror -Wno-unused-function -Iprograms/include)
# Debian keeps <asm/types.h> in a directory that only the host target searches.
flags+=("-I/usr/include/$(uname -m)-linux-gnu")
[ -z "$ship" ] || flags+=(-fdebug-compilation-dir=.)
# Further ones, of who calls.
read -ra more <<<"${BPF_CFLAGS-}"
flags+=("${more[@]}")

mkdir -p "$out"
built=0
failed=()
for name in "${names[@]}"; do
    source=$from/$name.c
    object=$out/$name.o
    needs=$(sed -n 's/.*Needs: clang >= \([0-9]*\).*/\1/p' "$source" | head -1)
    if [ -n "$needs" ] && [ "$version" -lt "$needs" ]; then
        echo "skipped $name: needs clang >= $needs, $clang is $version"
        continue
    fi
    extra=($(sed -n 's|^// Flags: ||p' "$source"))
    if [ "$object" -nt "$source" ] && [ "$object" -nt scripts/build-programs.sh ] &&
        [ -z "$(find programs "$from" -newer "$object" -name '*.h')" ]; then
        continue
    fi
    if "$clang" "${flags[@]}" "${extra[@]}" -c "$source" -o "$object.$$"; then
        [ -z "$ship" ] || llvm-strip -g "$object.$$"
        mv "$object.$$" "$object"
        built=$((built + 1))
    else
        rm -f "$object.$$"
        failed+=("$name")
    fi
done
echo "$from: ${#names[@]} in $out ($built compiled by $clang)"
[ ${#failed[@]} -eq 0 ] || { echo "build-programs.sh: failed: ${failed[*]}" >&2; exit 1; }
