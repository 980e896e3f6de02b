#!/usr/bin/env bash
# Builds what a test's guest boots from: an uncompressed kernel and an initramfs, both made of
# packages that are installed here. Nothing is downloaded.
#
# usage: build-image.sh DIRECTORY
#
# Leaves DIRECTORY/kernel and DIRECTORY/initramfs.gz, and does nothing when they are made of what is
# installed now. The kernel is the newest /boot/vmlinuz-* whose modules are in /lib/modules (Debian:
# linux-image-amd64). Exits with 3 and one line on standard error when something is missing.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build-image.sh DIRECTORY}
# What the guest needs beyond what is built in; what these need comes from modules.dep.
modules=(virtio_pci virtio_net virtio_console bonding)

missing() { echo "$1: scripts/install-deps.sh test" >&2; exit 3; }

busybox=$(command -v busybox) || missing "busybox is missing"
# Read to its end: a list that nobody reads on is a failure by itself.
"$busybox" --list | grep -x cpio >/dev/null || missing "this busybox has no cpio"
# It is alone in the image: a loader and libraries are not there.
! ldd "$busybox" >/dev/null 2>&1 || missing "busybox is not static"
version=
for image in $(printf '%s\n' /boot/vmlinuz-* | sort -V); do
    name=${image#/boot/vmlinuz-}
    if [ -r "$image" ] && [ -r "/lib/modules/$name/modules.dep" ]; then version=$name; fi
done
[ -n "$version" ] || missing "no kernel image with modules (linux-image-amd64)"
kernel=/boot/vmlinuz-$version
library=/lib/modules/$version

mkdir -p "$out"
exec 9>"$out/lock"
flock 9 # Tests run side by side.
inputs=$(cat "$0" "$here/init" "$library/modules.dep" <(stat -c '%n %s %Y' "$kernel" "$busybox") |
    sha256sum)
if [ "$(cat "$out/inputs" 2>/dev/null)" = "$inputs" ]; then exit 0; fi
rm -f "$out/inputs"
tree=$(mktemp -d "$out/tree.XXXXXX")
trap 'rm -rf "$tree"' EXIT

# Modules in an order in which each finds what it needs: modules.dep lists the last one first.
order=$(for module in "${modules[@]}"; do
    if grep -q "/$module\.ko" "$library/modules.builtin"; then continue; fi
    line=$(grep -E "/$module\.ko(\.xz|\.zst|\.gz)?:" "$library/modules.dep") ||
        missing "no module $module in $library"
    printf '%s\n' "${line%%:*}" ${line#*:} | tac
done | awk '!seen[$0]++')
mkdir -p "$tree"/{bin,dev,proc,sys,tmp,modules}
for file in $order; do
    plain=$(basename "${file%.xz}")
    plain=${plain%.zst} plain=${plain%.gz}
    case $file in
    *.xz) xz -dc "$library/$file" ;;
    *.zst) zstd -qdc "$library/$file" ;;
    *.gz) gzip -dc "$library/$file" ;;
    *) cat "$library/$file" ;;
    esac >"$tree/modules/$plain"
    echo "$plain" >>"$tree/modules/order"
done
cp "$busybox" "$tree/bin/busybox"
for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$tree/bin/$applet"
done
install -m 755 "$here/init" "$tree/init"
(cd "$tree" && find . | "$busybox" cpio -o -H newc 2>/dev/null | gzip -1) >"$out/initramfs.gz"

# A guest whose processor is emulated takes 5 s to unpack its kernel, and xz here a tenth of one.
# Where the payload is: Documentation/arch/x86/boot.rst, setup_sects and payload_offset.
number() { od -An -t "u$2" -j "$1" -N "$2" "$kernel" | tr -d ' '; }
offset=$((($(number 497 1) + 1) * 512 + $(number 584 4)))
length=$(number 588 4)
payload() { head -c $((offset + length)) "$kernel" | tail -c "$length"; }
# Behind the payload stands its unpacked length, which is no part of the archive: decompressors
# complain of it, when all is written.
for unpack in "xz -dc" "zstd -qdc" "gzip -dc"; do
    payload | $unpack >"$out/kernel" 2>/dev/null || true
    [ -s "$out/kernel" ] && break
done
# Packed in some other way: it unpacks itself.
[ -s "$out/kernel" ] || cp "$kernel" "$out/kernel"
echo "$inputs" >"$out/inputs"
