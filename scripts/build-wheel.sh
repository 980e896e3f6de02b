#!/usr/bin/env bash
# Builds the wheels: the Python package, the `towpath` command, its manual pages, and the example
# programs with their cases, for glibc 2.28 and later and Python 3.9 and later.
#
# usage: build-wheel.sh [--out DIR] [TARGET...]
#
#   DIR     where wheels go [build/wheels]
#   TARGET  Rust's names of machines [this one]
set -euo pipefail
cd "$(dirname "$0")/.."
wheels=build/wheels
if [ "${1-}" = --out ]; then
    wheels=$2
    shift 2
fi
mkdir -p build/release "$wheels"
# shellcheck source=scripts/release-env.sh
. scripts/release-env.sh
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("$host")
prepare_for "${targets[@]}"

# The same for each machine: BPF is one of its own. No paths of this one are in objects.
share=$out/share
rm -rf "$share"
scripts/install-deps.sh demo
BPF_CFLAGS=-fdebug-compilation-dir=. scripts/build-programs.sh --out "$out/programs"
install -D -m 644 -t "$share/towpath/programs" "$out"/programs/*.o programs/*.c programs/routes.toml
install -D -m 644 -t "$share/towpath/programs/include" programs/include/*.h
install -D -m 644 -t "$share/towpath/programs/cases" programs/cases/*.toml
# In the repository objects are elsewhere.
sed -i 's|"../../build/programs/|"../|' "$share"/towpath/programs/cases/*.toml

sbom=$out/towpath.cdx.json
scripts/sbom.py >"$sbom"

build_for "$host" towpath-cli
"$CARGO_TARGET_DIR/$host/release/towpath" man --dir "$share/man/man1"

for target in "${targets[@]}"; do
    build_for "$target" towpath-cli
    built=$CARGO_TARGET_DIR/$target/release/towpath
    # Where maturin looks for what goes beside the package (pyproject.toml).
    data=crates/python/data
    (cd "$data" && rm -rf scripts data/share/man data/share/towpath/programs)
    mkdir -p "$data/scripts"
    cp -r "$share" "$data/data/"
    stripped "$target" "$built" "$data/scripts/towpath"
    check_glibc "$data/scripts/towpath"
    # It has flags of its own, for which all that the command is made of would be compiled again.
    CARGO_TARGET_DIR=$CARGO_TARGET_DIR/wheel maturin build \
        --release --locked --quiet --zig --target "$target" \
        --compatibility "manylinux_${GLIBC/./_}" --sbom-include "$PWD/$sbom" \
        -m crates/python/Cargo.toml -o "$wheels"
done
ls "$wheels"/towpath-"$version"-*.whl
