#!/usr/bin/env bash
# Installs into a folder of its own, uses what is there, and takes it away again; makes the packages
# and looks into them. Nothing outside of the folder is touched.
#
# usage: check-install.sh [BUILT]
#
#   BUILT  the folder with the binary and the libraries [target/release]
set -euo pipefail
cd "$(dirname "$0")/.."

built=${1:-${CARGO_TARGET_DIR:-target}/release}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
export DESTDIR=$root PREFIX=/usr/local
fail() { echo "check-install: $*" >&2; exit 1; }

scripts/install.sh "$built"
bin=$root/usr/local/bin/towpath
"$bin" --version >/dev/null
if readelf -SW "$bin" | grep -q '\.debug_info'; then fail "the binary is not stripped"; fi
"$bin" check -c "$root/etc/towpath/towpath.toml" >/dev/null
"$root/usr/local/bin/towpath-guest" --help >/dev/null
grep -q '^\.TH towpath-guest 8' "$root/usr/local/share/man/man8/towpath-guest.8"
grep -q '^\.TH towpath 1' "$root/usr/local/share/man/man1/towpath.1"
grep -q '^\.TH towpath-map-update 1' "$root/usr/local/share/man/man1/towpath-map-update.1"
bash -n "$root/usr/local/share/bash-completion/completions/towpath"

# The libraries, as a program with pkg-config finds them.
export PKG_CONFIG_PATH=$root/usr/local/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
cat >"$root/use.c" <<'END'
#include <stdio.h>
#include <towpath/towpath.h>
#include <towpath/udp.h>
#include <towpath/xsk.h>

int main(void)
{
	struct towpath_object *object;

	towpath_udp_close(NULL);
	return towpath_object__open("/nonexistent", &object) != 0 && xsk_umem__delete(NULL) <= 0 ? 0 : 1;
}
END
flags=$(pkg-config --cflags --libs towpath towpath_xsk_client towpath_udp)
# shellcheck disable=SC2086
cc "$root/use.c" -o "$root/use" $flags
for name in towpath towpath_xsk_client towpath_udp; do
    readelf -d "$root/use" | grep -q "NEEDED.*lib$name.so.0" || fail "lib$name has no name"
done
LD_LIBRARY_PATH=$root/usr/local/lib "$root/use" || fail "a program of the libraries"

# The unit, as far as it can be judged without starting it, and the daemon with its capabilities.
unit=$root/usr/local/lib/systemd/system/towpath.service
grep -q "^ExecStart=/usr/local/bin/towpath up -c /etc/towpath/towpath.toml" "$unit"
if command -v systemd-analyze >/dev/null; then
    # The units that it names are the system's, the binary is not.
    mkdir "$root/unit"
    sed "s|/usr/local/bin/towpath|$bin|" "$unit" >"$root/unit/towpath.service"
    said=$(systemd-analyze verify --man=no "$root/unit/towpath.service" 2>&1 | grep towpath || true)
    [ -z "$said" ] || fail "systemd: $said"
    rm -r "$root/unit"
fi
if [ "$(id -u)" = 0 ] && [ -c /dev/net/tun ]; then
    bounding=$(sed -n 's/^CapabilityBoundingSet=//p' "$unit" | sed 's/CAP_/+/g; s/ /,/g' |
        tr '[:upper:]' '[:lower:]')
    sed "s|/run/towpath|$root|; s|/var/lib/towpath|$root/state|; s|127.0.0.1:9464|127.0.0.1:0|" \
        "$root/etc/towpath/towpath.toml" >"$root/here.toml"
    # In a network of its own: the example has a bridge and a tap.
    unshare --net setpriv --no-new-privs --bounding-set="-all,$bounding" \
        "$bin" up -c "$root/here.toml" --for 1s >"$root/log" 2>&1 ||
        fail "the daemon with the unit's capabilities: $(cat "$root/log")"
fi

echo changed >>"$root/etc/towpath/towpath.toml"
scripts/install.sh "$built"
grep -q changed "$root/etc/towpath/towpath.toml" || fail "a configuration was overwritten"
scripts/install.sh --uninstall "$built" | grep -q "left: $root/etc/towpath/towpath.toml"
rm -rf "$root/etc/towpath/towpath.toml" "$root"/{state,here.toml,log} "$root"/use* "$root"/*.sock
left=$(find "$root" -type f -o -type l)
[ -z "$left" ] || fail "left behind: $left"

if command -v dpkg-shlibdeps >/dev/null; then
    unset DESTDIR PREFIX
    scripts/make-deb.sh "$built" "$root/deb" >/dev/null
    package=$(ls "$root"/deb/towpath_*.deb)
    dpkg-deb --contents "$package" >"$root/contents"
    for file in usr/bin/towpath lib/systemd/system/towpath.service etc/towpath/towpath.toml \
        usr/share/man/man1/towpath.1.gz usr/share/man/man1/towpath-map-update.1.gz; do
        grep -q " ./$file\$" "$root/contents" || fail "the package lacks $file"
    done
    dpkg-deb --contents "$(ls "$root"/deb/towpath-dev_*.deb)" >"$root/dev"
    for file in usr/include/towpath/{xsk,udp}.h "usr/lib/.*/libtowpath.a"; do
        grep -q " ./$file\$" "$root/dev" || fail "the package for developers lacks $file"
        if grep -q " ./$file\$" "$root/contents"; then fail "$file is in two packages"; fi
    done
    dpkg-deb --contents "$(ls "$root"/deb/towpath-guest_*.deb)" >"$root/agent"
    grep -q " ./usr/bin/towpath-guest\$" "$root/agent" ||
        fail "the package for virtual machines lacks towpath-guest"
    if grep -q bin/towpath-guest "$root/contents"; then fail "towpath-guest is in two packages"; fi
    dpkg-deb --field "$package" Depends | grep -q libc6 || fail "the package depends on nothing"
fi
echo "check-install: all well"
