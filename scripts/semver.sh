#!/usr/bin/env bash
# Names what the crate `towpath` has taken back since a release: cargo-semver-checks compares it
# with an older commit, and the parts whose items it exports, which the tool does not follow.
#
# usage: semver.sh [COMMIT]
#
#   COMMIT  the release to compare with [the newest tag vX.Y.Z]
#
# Exit status: 0 nothing was taken back, 1 something was, 2 there is nothing to compare with.
set -euo pipefail
cd "$(dirname "$0")/.."

tool=0.51.0
tools=${TARGET:-target}/tools
fail() { echo "semver: $*" >&2; exit 2; }
base=${1:-$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null || true)}
[ -n "$base" ] || fail "no release is tagged: name a commit, as in scripts/semver.sh COMMIT"
git rev-parse -q --verify "$base^{commit}" >/dev/null || fail "$base is not a commit here"

export PATH=$PWD/$tools/bin:$PATH
if ! cargo semver-checks --version 2>/dev/null | grep -qF " $tool"; then
    cargo install --quiet --locked --root "$tools" --version "$tool" cargo-semver-checks
fi
cargo semver-checks --baseline-rev "$base" --package towpath --package towpath-bpf \
    --package towpath-jit --package towpath-maps --package towpath-xdp || exit 1
