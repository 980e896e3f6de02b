#!/usr/bin/env bash
# Builds towpath-guest, the command for virtual machines: one static file, which needs nothing of
# the machine that it is copied to but a Linux kernel.
#
# usage: build-guest-agent.sh DIRECTORY [CARGO OPTION...]
#
# Leaves DIRECTORY/towpath-guest. Options are cargo's: --release.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
out=${1:?usage: build-guest-agent.sh DIRECTORY [CARGO OPTION...]}
shift
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$top"
exec 9>"$out/lock"
flock 9 # Tests run side by side.
cargo rustc --quiet "$@" -p towpath-guest-client --bin towpath-guest --target-dir "$out/target" \
    --message-format json -- -C target-feature=+crt-static |
    sed -n 's/.*"executable":"\([^"]*towpath-guest\)".*/\1/p' >"$out/built"
built=$(tail -1 "$out/built")
[ -n "$built" ] || { echo "cargo built no towpath-guest" >&2; exit 1; }
# Of what has no loader, ldd says so; of what isn't even position-independent, that it is nothing.
if ldd "$built" 2>/dev/null | grep -qv 'statically linked'; then
    echo "$built is not static" >&2
    exit 1
fi
cp "$built" "$out/towpath-guest.new"
mv "$out/towpath-guest.new" "$out/towpath-guest"
