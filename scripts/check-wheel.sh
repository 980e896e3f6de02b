#!/usr/bin/env bash
# Does what a new user does: installs a wheel into a fresh environment, makes a folder with `towpath
# new`, and runs its tests there, with nothing on the path but the environment and the system's own.
#
# usage: check-wheel.sh WHEEL [PYTHON...]
#
#   PYTHON  Pythons to try [python3]
set -euo pipefail
wheel=$(realpath "${1:?usage: check-wheel.sh WHEEL [PYTHON...]}")
shift
pythons=("$@")
[ ${#pythons[@]} -gt 0 ] || pythons=(python3)
fail() { echo "check-wheel: $*" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

for python in "${pythons[@]}"; do
    started=$SECONDS
    rm -rf "$root/venv" "$root/edge"
    "$python" -m venv "$root/venv"
    export PATH=$root/venv/bin:/usr/bin:/bin
    pip install -q --disable-pip-version-check "$wheel"
    cd "$root"
    towpath new edge >/dev/null
    cd edge
    said=$(towpath test) || fail "towpath test: $said"
    took=$((SECONDS - started))
    grep -q '6 passed, 0 failed, 0 skipped' <<<"$said" || fail "$said"
    share=$root/venv/share
    towpath test "$share/towpath/programs/cases" --exec interp >/dev/null ||
        fail "the example programs' cases"
    [ -s "$share/man/man1/towpath-run.1" ] || fail "no manual pages"
    if pip install -q --disable-pip-version-check pytest 2>/dev/null; then
        python -m pytest -q -p no:cacheprovider tests || fail "pytest of what towpath new made"
    else
        python -c 'import towpath; towpath.Object("filter.o").program()' || fail "the library"
        echo "pytest can't be installed: its file is left out"
    fi
    echo "check-wheel: $("$root/venv/bin/python" -V): wheel to green in $took s"
done
