#!/usr/bin/env bash
# Makes the Debian packages `towpath`, `towpath-dev`, `towpath-dbgsym` and `towpath-guest` of what
# was built.
#
# usage: make-deb.sh [BUILT] [OUT]
#
#   BUILT  the folder with the binary and the libraries [target/release]
#   OUT    where the packages go [build/deb]
#
#   ARCHITECTURE, TRIPLET  Debian's names of the machine that it was built for [this one]
#   DEPENDS                what binaries need [what is found out of this machine's packages]
#   REVISION               what a version is told by beside its number [commit and its time]
#
# What is in the packages is what `make install` installs, and Debian's own tools make it: no second
# list of files.
set -euo pipefail
cd "$(dirname "$0")/.."

built=${1:-${CARGO_TARGET_DIR:-target}/release}
out=${2:-build/deb}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# A build of another commit is another version, and a later commit a later one.
revision=${REVISION-+$(git log -1 --format=%cd.%h --date=format:%Y%m%d%H%M 2>/dev/null || echo 1)}
architecture=${ARCHITECTURE:-$(dpkg --print-architecture)}
triplet=${TRIPLET:-$(dpkg-architecture -qDEB_HOST_MULTIARCH)}
root=$out/towpath symbols=$out/towpath-dbgsym guest=$out/towpath-guest dev=$out/towpath-dev
rm -rf "$root" "$symbols" "$guest" "$dev"
mkdir -p "$root/DEBIAN" "$symbols/DEBIAN" "$guest/DEBIAN" "$dev/DEBIAN"

DESTDIR=$root PREFIX=/usr LIBDIR=/usr/lib/$triplet UNITDIR=/lib/systemd/system \
    scripts/install.sh "$built"
gzip -9nf "$root"/usr/share/man/man1/towpath*.1 "$root"/usr/share/man/man8/towpath-guest.8

# PACKAGE FILE...: what of the files below usr/ is of another package.
moved() {
    local to=$1 file
    shift
    for file in "$@"; do
        mkdir -p "$to/usr/$(dirname "$file")"
        mv "$root/usr/$file" "$to/usr/$file"
    done
}
# Virtual machines have no use for the rest, and hosts none for the command.
moved "$guest" bin/towpath-guest share/man/man8/towpath-guest.8.gz
# Static libraries, three quarters of all bytes, are for those who build programs with them.
lib=lib/$triplet
moved "$dev" include/towpath "$lib/pkgconfig" \
    "$lib"/lib{towpath,towpath_xsk_client,towpath_udp}.{a,so}
rmdir --ignore-fail-on-non-empty "$root/usr/include" "$root/usr/share/man/man8" 2>/dev/null || true
for package in towpath towpath-dev towpath-guest; do
    doc=$out/$package/usr/share/doc/$package
    install -D -m 644 LICENSE-MIT "$doc/copyright"
    gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
done

# Debug symbols where debuggers and `perf` look for them: by the build's id.
for file in "$built"/{towpath,libtowpath_{capi,xsk_capi,udp_capi}.so}; do
    id=$(readelf -n "$file" | sed -n 's/.*Build ID: //p')
    [ -n "$id" ] || continue
    target=$symbols/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
    mkdir -p "$(dirname "$target")"
    "${OBJCOPY:-objcopy}" --only-keep-debug --compress-debug-sections "$file" "$target"
    chmod 644 "$target"
done

# The libraries that binary and libraries need, as Debian's packages call them.
# This machine's packages know nothing of another machine's, or of an older C library.
needs=${DEPENDS-}
[ -n "$needs" ] || needs=$(mkdir -p "$out/debian" && cd "$out" && : >debian/control &&
    dpkg-shlibdeps -O --ignore-missing-info "towpath/usr/bin/towpath" \
        "towpath/usr/lib/$triplet/libtowpath.so.0.$version" 2>/dev/null |
    sed -n 's/^shlibs:Depends=//p')
rm -rf "$out/debian"

# PACKAGE ROOT EXTRA-FIELDS, then the description
control() {
    local package=$1 root=$2
    {
        echo "Package: $package"
        echo "Version: $version$revision"
        echo "Architecture: $architecture"
        echo "Maintainer: Towpath <towpath@localhost>"
        echo "Installed-Size: $(du -sk "$root" | cut -f1)"
        echo "Priority: optional"
        cat
    } >"$root/DEBIAN/control"
    (cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | LC_ALL=C sort -z |
        xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    dpkg-deb --root-owner-group -Zxz -z1 --build "$root" "$out" >/dev/null
}
echo /etc/towpath/towpath.toml >"$root/DEBIAN/conffiles"
install -m 755 packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm "$root/DEBIAN/"
control towpath "$root" <<END
Section: net
Depends: ${needs:-libc6}
Suggests: libllvm19 | libllvm21 | libllvm20 | libllvm18 | libllvm17 | libllvm16 | libllvm15,
 libipsec-mb2 | libipsec-mb1
Description: XDP in user space
 Takes compiled XDP programs, unchanged, proves them safe, compiles them to
 machine code and runs them on captures, taps, network interfaces, virtual
 machines and sockets, without a kernel module.
END
control towpath-guest "$guest" <<END
Section: net
Description: XDP programs of a virtual machine, run by its host
 Has the host of a virtual machine, where Towpath serves its interface, verify,
 compile and run the machine's XDP programs before frames get there. One static
 file: it runs in any virtual machine of this architecture.
END
control towpath-dev "$dev" <<END
Section: libdevel
Depends: towpath (= $version$revision)
Description: XDP in user space: headers and static libraries
 Headers, static libraries and pkg-config files of libtowpath (verify, compile
 and run XDP programs), libtowpath_xsk_client (AF_XDP sockets that Towpath
 serves) and libtowpath_udp (UDP sockets over these), for programs in C.
END
control towpath-dbgsym "$symbols" <<END
Section: debug
Depends: towpath (= $version$revision)
Description: debug symbols for towpath
END
ls "$out"/*.deb
