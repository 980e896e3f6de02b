#!/usr/bin/env bash
# Puts what was built where a system expects it, or takes it away again: `make install`, `make
# uninstall`, and the packages of `make deb`.
#
# usage: install.sh [--uninstall] [BUILT]
#
#   BUILT       the folder with the binary and the libraries [target/release]
#
#   PREFIX      where it belongs [/usr/local]
#   DESTDIR     a folder that stands for /: nothing outside of it is touched
#   SYSCONFDIR  where configurations are [/etc]
#   TOWPATH     a `towpath` that runs here, to write pages and completions [the one in BUILT]
#   STRIP       what takes debug symbols away [strip]
#   AGENT       the command for virtual machines [build/guest/towpath-guest]; AGENT_HERE, one that
#               runs here
#   SHARE       a folder that becomes share/towpath: example programs, compiled [none]
#   LIBDIR      where libraries are [PREFIX/lib]
#   UNITDIR     where systemd's units are [PREFIX/lib/systemd/system]
#
# A configuration that is there stays as it is, also when all else is taken away.
set -euo pipefail
cd "$(dirname "$0")/.."

is_uninstall=
if [ "${1-}" = --uninstall ]; then
    is_uninstall=1
    shift
fi
built=${1:-${CARGO_TARGET_DIR:-target}/release}
prefix=${PREFIX:-/usr/local}
destdir=${DESTDIR-}
libdir=${LIBDIR:-$prefix/lib}
agent=${AGENT:-build/guest/towpath-guest}
unitdir=${UNITDIR:-$prefix/lib/systemd/system}
config=${SYSCONFDIR:-/etc}/towpath/towpath.toml
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
share=$prefix/share

# Everything that is installed, but for the configuration.
files=(
    "$prefix/bin/towpath"
    "$prefix/bin/towpath-guest"
    "$unitdir/towpath.service"
    "$share/man/man8/towpath-guest.8"
    "$share/bash-completion/completions/towpath"
    "$share/zsh/site-functions/_towpath"
    "$share/fish/vendor_completions.d/towpath.fish"
    "$share/doc/towpath/towpath.toml"
    "$share/doc/towpath/grafana.json"
    "$prefix/include/towpath/towpath.h"
    "$prefix/include/towpath/xsk.h"
    "$prefix/include/towpath/udp.h"
)
for name in towpath towpath_xsk_client towpath_udp; do
    files+=("$libdir/lib$name.so.0.$version" "$libdir/lib$name.so.0" "$libdir/lib$name.so"
        "$libdir/lib$name.a" "$libdir/pkgconfig/$name.pc")
done

if [ -n "$is_uninstall" ]; then
    # Pages of commands that this version doesn't have may be there, too.
    rm -f "$destdir$share"/man/man1/towpath.1 "$destdir$share"/man/man1/towpath-*.1
    for file in "${files[@]}"; do rm -f "$destdir$file"; done
    rmdir --ignore-fail-on-non-empty "$destdir$prefix/include/towpath" \
        "$destdir$share/doc/towpath" 2>/dev/null || true
    if [ -e "$destdir$config" ]; then echo "left: $destdir$config"; fi
    exit 0
fi

place() { install -D -m "$1" "$2" "$destdir$3"; }
written() { install -D -m 644 /dev/stdin "$destdir$1"; }
towpath=${TOWPATH:-$built/towpath}
strip=${STRIP:-strip}

place 755 "$built/towpath" "$prefix/bin/towpath"
place 755 "$agent" "$prefix/bin/towpath-guest"
# Debug symbols are as large again as all the rest.
"$strip" --strip-debug "$destdir$prefix/bin/towpath" "$destdir$prefix/bin/towpath-guest"
"${AGENT_HERE:-$agent}" man | written "$share/man/man8/towpath-guest.8"
mkdir -p "$destdir$share/man/man1"
"$towpath" man --dir "$destdir$share/man/man1"
chmod 644 "$destdir$share"/man/man1/towpath*.1
"$towpath" completions bash | written "$share/bash-completion/completions/towpath"
"$towpath" completions zsh | written "$share/zsh/site-functions/_towpath"
"$towpath" completions fish | written "$share/fish/vendor_completions.d/towpath.fish"
sed "s|/usr/bin/towpath|$prefix/bin/towpath|; s|/etc/towpath/towpath.toml|$config|" \
    packaging/towpath.service | written "$unitdir/towpath.service"
place 644 packaging/towpath.toml "$share/doc/towpath/towpath.toml"
place 644 packaging/grafana/towpath.json "$share/doc/towpath/grafana.json"
if [ -n "${SHARE-}" ]; then
    mkdir -p "$destdir$share"
    cp -rT "$SHARE" "$destdir$share/towpath"
fi
if [ ! -e "$destdir$config" ]; then place 644 packaging/towpath.toml "$config"; fi

# NAME, what Cargo calls it, its header, what it is
library() {
    local name=$1 cargo=$2 header=$3 description=$4 full=lib$1.so.0.$version
    place 644 "$built/lib$cargo.so" "$libdir/$full"
    place 644 "$built/lib$cargo.a" "$libdir/lib$name.a"
    "$strip" --strip-debug "$destdir$libdir/$full" "$destdir$libdir/lib$name.a"
    ln -sf "$full" "$destdir$libdir/lib$name.so.0"
    ln -sf "lib$name.so.0" "$destdir$libdir/lib$name.so"
    place 644 "$header" "$prefix/include/towpath/$(basename "$header")"
    written "$libdir/pkgconfig/$name.pc" <<END
prefix=$prefix
libdir=$libdir
includedir=$prefix/include

Name: $name
Description: $description
Version: $version
Libs: -L\${libdir} -l$name
Libs.private: -lpthread -ldl -lm
Cflags: -I\${includedir}
END
}
library towpath towpath_capi crates/capi/include/towpath/towpath.h \
    "XDP programs in user space: verify, compile, run"
library towpath_xsk_client towpath_xsk_capi crates/xsk/include/towpath/xsk.h \
    "AF_XDP sockets that Towpath serves"
library towpath_udp towpath_udp_capi crates/udp/include/towpath/udp.h \
    "UDP sockets over Towpath's AF_XDP sockets"
