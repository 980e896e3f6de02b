#!/usr/bin/env bash
# Checks that the captures and configurations in tests/data are what their scripts write.
set -euo pipefail
cd "$(dirname "$0")/.."

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
python3 tests/data/make_capture.py --out "$fresh"
python3 tests/data/make_config.py --out "$fresh"
for file in "$fresh"/*; do
    cmp "$file" "tests/data/$(basename "$file")"
done
echo "captures: $(ls "$fresh" | wc -l) files as their scripts write them"
