#!/usr/bin/env bash
# Prints the notes of a release: its section of CHANGELOG.md.
#
# usage: release-notes.sh VERSION
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?usage: release-notes.sh VERSION}
notes=$(awk -v heading="## $version" '
    /^## / { is_in = $0 == heading || index($0, heading " ") == 1; next }
    is_in { print }' CHANGELOG.md)
[ -n "$notes" ] || { echo "CHANGELOG.md has no section $version" >&2; exit 1; }
printf '# Towpath %s\n%s\n' "$version" "$notes"
