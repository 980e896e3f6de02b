# What builds for others' machines agree on: sourced by build-wheel.sh and release.sh, in the
# repository's folder.
#
# Binaries need a glibc of 2.28 at most (Debian 10, RHEL 8), whatever is here: Zig's linker knows
# the symbols of each version. Nothing in them tells of this machine or of the time.
# shellcheck shell=bash

GLIBC=2.28
# Newer ones may make other bytes of the same sources.
TOOLS=(maturin==1.16.0 ziglang==0.17.1 cargo-zigbuild==0.24.1)
out=build/release
venv=$out/venv

if [ "$(cat "$venv/tools" 2>/dev/null)" != "${TOOLS[*]}" ]; then
    scripts/install-deps.sh wheel
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q "${TOOLS[@]}"
    echo "${TOOLS[*]}" >"$venv/tools"
fi

# Another checkout, and another folder of Cargo's, make no difference.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
RUSTFLAGS="--remap-path-prefix=$PWD=/towpath --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=/cargo"
# Debuggers find symbols by the build's id, which Zig's linker leaves out.
RUSTFLAGS+=" -C link-arg=-Wl,--build-id=sha1"
# C of dependencies (a disassembler): the same for its paths.
CFLAGS="-ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=/cargo -ffile-prefix-map=$PWD=/towpath"
# Zig compiles an unwinder into each binary, and its clang takes this option in no other way. Zig's
# cache does not tell compilations with another option apart.
CCC_OVERRIDE_OPTIONS="# +-ffile-prefix-map=$PWD=/towpath"
ZIG_GLOBAL_CACHE_DIR=$PWD/$out/zig
CARGO_INCREMENTAL=0
CARGO_TARGET_DIR=${RELEASE_TARGET_DIR:-$PWD/$out/target}
PATH=$PWD/$venv/bin:$PATH
export SOURCE_DATE_EPOCH RUSTFLAGS CFLAGS CCC_OVERRIDE_OPTIONS ZIG_GLOBAL_CACHE_DIR
export CARGO_INCREMENTAL CARGO_TARGET_DIR PATH

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
host=$(rustc -vV | sed -n 's/^host: //p')

# TARGET...: what the system needs for these machines, so that a lack of it is known at once.
prepare_for() {
    local target machine
    for target in "$@"; do
        machine=${target%%-*}
        [ "$target" != "$host" ] || continue
        [ "$machine" != aarch64 ] || scripts/install-deps.sh aarch64
        command -v "$machine-linux-gnu-strip" >/dev/null || {
            echo "$target needs $machine-linux-gnu-strip (binutils for that machine)" >&2
            return 1
        }
    done
}

# TARGET PACKAGE...: what of these Cargo builds for the target, for old C libraries, too.
build_for() {
    local target=$1
    shift
    if command -v rustup >/dev/null && [ "$target" != "$host" ]; then
        rustup --quiet target add "$target"
    fi
    cargo zigbuild --release --locked --quiet --target "$target.$GLIBC" "${@/#/--package=}"
}

# TARGET FILE TO: a file without its debug symbols; they are as large again as all the rest.
stripped() {
    local strip=${1%%-*}-linux-gnu-strip
    [ "$1" != "$host" ] || strip=strip
    "$strip" --strip-debug -o "$3" "$2"
}

# FILE...: refuses what needs a newer C library than was promised.
check_glibc() {
    local file newest
    for file in "$@"; do
        newest=$(objdump -T "$file" | grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV |
            tail -n 1)
        if [ "$(printf '%s\n' "$newest" $GLIBC | sort -V | tail -n 1)" != $GLIBC ]; then
            echo "$file needs glibc $newest, more than $GLIBC" >&2
            return 1
        fi
        echo "$file: glibc >= ${newest:-any}"
    done
}
