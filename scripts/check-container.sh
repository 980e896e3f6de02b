#!/usr/bin/env bash
# Builds the image of the Containerfile with buildah, and runs in it what its first lines say.
# Needs root; no daemon, no registry: base images that can't be fetched are made of what is here.
#
# usage: check-container.sh
#
#   CONTAINER_ROOT  where images and containers lie meanwhile [build/container]
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "check-container: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root"
scripts/install-deps.sh container
root=${CONTAINER_ROOT:-$PWD/build/container}
mkdir -p "$root"
driver=vfs
grep -q overlay /proc/filesystems && driver=overlay
storage=(--root "$root/images" --runroot "$root/run" --storage-driver "$driver")
build() { buildah "${storage[@]}" "$@"; }

# NAME FOLDER: an image of what is in a folder, under a name of the registry's.
image_of() {
    local container
    container=$(build from scratch)
    build add -q "$container" "$2" / >/dev/null
    build config --env "PATH=/usr/local/cargo/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin" \
        --env CARGO_HOME=/usr/local/cargo "$container"
    build commit -q "$container" "$1" >/dev/null
    build rm "$container" >/dev/null
}

# Debian as its archive has it, and for the build with the compilers that are here.
base_images() {
    local debian=docker.io/library/debian:bookworm-slim files=$root/debian
    local rust=docker.io/library/rust:1.95-bookworm toolchain
    if ! timeout 60 buildah "${storage[@]}" pull -q "$debian" >/dev/null 2>&1; then
        echo "$debian can't be fetched: made by debootstrap"
        [ -d "$files" ] || debootstrap --variant=minbase bookworm "$files" >"$root/debootstrap.log"
        image_of "$debian" "$files"
    fi
    if ! timeout 60 buildah "${storage[@]}" pull -q "$rust" >/dev/null 2>&1; then
        echo "$rust can't be fetched: made of Debian and the toolchain that is here"
        files=$root/rust
        if [ ! -d "$files" ]; then
            debootstrap --variant=minbase --include=gcc,libc6-dev,make,git,ca-certificates \
                bookworm "$files" >>"$root/debootstrap.log"
            toolchain=$(rustc --print sysroot)
            mkdir -p "$files/usr/local/cargo/bin"
            cp -a "$toolchain"/{bin,lib} "$files/usr/local/cargo/"
        fi
        image_of "$rust" "$files"
    fi
}

base_images
volumes=()
cargo_home=${CARGO_HOME:-$HOME/.cargo}
# What was downloaded once need not be again.
[ ! -d "$cargo_home/registry" ] ||
    volumes+=(--volume "$cargo_home/registry:/usr/local/cargo/registry")
build bud -q --isolation chroot --pull-never --layers=false "${volumes[@]}" \
    -t towpath -f Containerfile .

container=$(build from --pull-never towpath)
run() { build run --isolation chroot --volume "$PWD:/src" "$container" -- "$@"; }
run towpath --version
# A program is compiled and tested by what is in the image.
run sh -c 'cd /tmp && towpath new edge >/dev/null && cd edge && make -s && towpath test' |
    tee "$root/test.log"
grep -q '6 passed, 0 failed' "$root/test.log" || fail "towpath test in the image"
build rm "$container" >/dev/null
build images --format '{{.Name}} {{.Size}}' | grep towpath
echo "check-container: built and used"
