#!/usr/bin/env bash
# What action.yml does: builds `towpath` unless it is there, and runs the cases of the repository
# that the working directory is in.
#
# usage: action.sh [--key]
#
#   --key  only say what the binary is made of, in a word: the key of a cache
#
# Environment: CASES (files and folders), EXEC, JUNIT and LCOV (files; may be empty), and
# GITHUB_STEP_SUMMARY, where a summary goes if it is set.
set -euo pipefail

own=$(cd "$(dirname "$0")/.." && pwd)
if [ "${1-}" = --key ]; then
    # No repository comes along with an action: what is hashed are the sources.
    cd "$own"
    find Cargo.toml Cargo.lock crates -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum |
        sha256sum | cut -c 1-16
    exit
fi
towpath=${CARGO_TARGET_DIR:-$own/target}/release/towpath
[ -x "$towpath" ] || (cd "$own" && cargo build --release --locked --quiet -p towpath-cli)

arguments=(--exec "${EXEC:-interp,jit}" --coverage)
if [ -n "${JUNIT-}" ]; then arguments+=(--junit "$JUNIT"); fi
if [ -n "${LCOV-}" ]; then arguments+=(--lcov "$LCOV"); fi
# Several of them are words of one text.
read -ra cases <<<"$CASES"
status=0
said=$("$towpath" test "${cases[@]}" "${arguments[@]}" 2>&1) || status=$?
printf '%s\n' "$said"
if [ -n "${GITHUB_STEP_SUMMARY-}" ]; then
    shown=$(grep -v '^  ok ' <<<"$said" || true)
    printf '```\n%s\n```\n' "$shown" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
