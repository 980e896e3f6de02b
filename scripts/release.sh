#!/usr/bin/env bash
# Makes a release of what HEAD is, into dist/: wheels, tarballs, Debian packages, a bill of
# materials, notes, and the checksums of all of it. Paths, times and owners of this machine are
# kept out.
#
# usage: release.sh [TARGET...]
#
#   TARGET  x86_64-unknown-linux-gnu, aarch64-unknown-linux-gnu, or both [this machine's]
#
# Nothing is published, and no tag is made: `git tag v$version` is a person's decision. Changes that
# aren't committed are refused, as a tag named v$version of another commit is.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/release
# shellcheck source=scripts/release-env.sh
. scripts/release-env.sh
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=("$host")
prepare_for "${targets[@]}"
fail() { echo "release: $*" >&2; exit 1; }

[ -z "$(git status --porcelain)" ] || fail "there are changes that aren't committed"
tagged=$(git rev-parse -q --verify "v$version^{commit}" || true)
[ -z "$tagged" ] || [ "$tagged" = "$(git rev-parse HEAD)" ] ||
    fail "v$version is another commit: raise the version in Cargo.toml"
grep -q "^## $version" CHANGELOG.md || fail "CHANGELOG.md has no section $version"

dist=dist
rm -rf "$dist"
mkdir "$dist"
scripts/build-wheel.sh --out "$dist" "${targets[@]}"

# TARGET: programs, libraries and pages of that machine, in dist/.
release_for() {
    local target=$1 machine=${1%%-*} prefix='' name root architecture=arm64
    [ "$machine" != x86_64 ] || architecture=amd64
    [ "$target" = "$host" ] || prefix=$machine-linux-gnu-
    build_for "$target" towpath-cli towpath-capi towpath-xsk-capi towpath-udp-capi
    local built=$CARGO_TARGET_DIR/$target/release here=$CARGO_TARGET_DIR/$host/release
    agent "$target"
    check_glibc "$built"/lib{towpath_capi,towpath_xsk_capi,towpath_udp_capi}.so
    export TOWPATH=$here/towpath AGENT=$out/guest/$target/towpath-guest
    export AGENT_HERE=$out/guest/$host/towpath-guest SHARE=$out/share/towpath
    export STRIP=${prefix}strip OBJCOPY=${prefix}objcopy

    name=towpath-$version-$machine-linux-gnu
    root=$out/tarball
    rm -rf "$root"
    DESTDIR=$root PREFIX=/usr/local scripts/install.sh "$built"
    install -m 644 -t "$root/usr/local" README.md LICENSE-MIT LICENSE-APACHE
    mv "$root/usr/local" "$root/$name"
    packed "$root" "$name"

    rm -rf "$out/deb"
    ARCHITECTURE=$architecture TRIPLET=$machine-linux-gnu REVISION='' \
        DEPENDS="libc6 (>= $GLIBC), libgcc-s1 (>= 4.2)" scripts/make-deb.sh "$built" "$out/deb"
    mv "$out"/deb/*.deb "$dist/"
}

# TARGET: the static command for virtual machines, into its folder below $out/guest.
agent() {
    local upper
    upper=$(tr a-z- A-Z_ <<<"$1")
    if [ "$1" != "$host" ]; then
        export "CARGO_TARGET_${upper}_LINKER=${1%%-*}-linux-gnu-gcc"
    fi
    scripts/build-guest-agent.sh "$out/guest/$1" --release --locked --target "$1"
}

# FOLDER NAME: an archive without the time, the order and the owners of this machine.
packed() {
    tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --mode=go-w -C "$1" -cf - "$2" | gzip -9n >"$dist/$2.tar.gz"
}

agent "$host"
for target in "${targets[@]}"; do release_for "$target"; done
scripts/sbom.py >"$dist/towpath-$version.cdx.json"
scripts/release-notes.sh "$version" >"$dist/RELEASE_NOTES.md"
(cd "$dist" && LC_ALL=C sha256sum -- * >SHA256SUMS)
cat "$dist/SHA256SUMS"
