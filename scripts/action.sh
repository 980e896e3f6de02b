#!/usr/bin/env bash
# What action.yml does: builds `towpath` unless it is there, and runs the cases of the repository
# that the working directory is in.
#
# Environment: CASES (files and folders), EXEC, JUNIT and LCOV (files; may be empty), and
# GITHUB_STEP_SUMMARY, where a summary goes if it is set.
set -euo pipefail

own=$(cd "$(dirname "$0")/.." && pwd)
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
    { echo '```'; printf '%s\n' "$said" | grep -v '^  ok '; echo '```'; } >>"$GITHUB_STEP_SUMMARY"
fi
exit "$status"
