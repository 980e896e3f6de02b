#!/usr/bin/env bash
# Installs what the chosen chores need and the machine lacks, with apt; says so when it cannot.
#
# usage: install-deps.sh [demo|test|net|parity|wheel|aarch64|container]
#
#   demo    a C compiler for BPF (clang 14 or later), libbpf's and the kernel's headers, python3
#   test    the same, clang 14 and 19 side by side, LLVM 19's library, libxdp's headers, and what
#           `net` has;
#           what the tests with a guest run: QEMU, busybox, a kernel image with its modules; DPDK;
#           bpftool, which is compared with our calls; strongSwan; libipsec-mb;
#           pytest, numpy and Scapy for those of the Python package
#   net     what the tests in network namespaces and `demo live` run: ping, iperf3, ip, nsenter
#   parity  `test`'s, and what it takes to ask the running kernel: xdp-tools, its source
#   wheel   a Python that can make virtual environments
#   container  buildah and debootstrap
#   aarch64 a linker and a C library for aarch64, an emulator, and Rust's standard library for it
#
# Quiet when nothing is missing. Rust is not installed, only asked for: rustup is its own installer.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-demo}
missing=()

has_clang() { ls /usr/bin/clang-1[4-9] /usr/bin/clang-2[0-9] 2>/dev/null | grep -q . ||
    command -v clang >/dev/null; }
# The guest boots what is installed: only a machine without any, as in a container, needs one.
has_kernel() { for version in /lib/modules/*; do
    if [ -e "/boot/vmlinuz-${version##*/}" ]; then return 0; fi
done; return 1; }
# MODULE...: whether one Python has all of them; two that have a part each run no tests.
has_modules() {
    local imports
    imports=$(printf 'import %s\n' "$@")
    python3 -c "$imports" 2>/dev/null || /usr/bin/python3 -c "$imports" 2>/dev/null
}
need_command() { command -v "$1" >/dev/null || missing+=("$2"); }
need_file() { [ -e "$1" ] || missing+=("$2"); }

has_clang || missing+=(clang)
need_file /usr/include/bpf/bpf_helpers.h libbpf-dev
need_file /usr/include/linux/bpf.h linux-libc-dev
need_command python3 python3
need_command cc gcc
case $what in
demo) ;;
net | test | parity)
    need_command ping iputils-ping
    need_command iperf3 iperf3
    need_command ip iproute2
    need_command nsenter util-linux
    need_command ethtool ethtool
    ;;&
test | parity)
    need_command clang-14 clang-14
    need_command clang-19 clang-19
    # One application for libxdp's sockets and for ours.
    need_file /usr/include/xdp/xsk.h libxdp-dev
    need_command bpftool bpftool
    # An IKE daemon that manages the SAs of a port, and ESP of its own for the other end.
    need_file /usr/sbin/charon-systemd charon-systemd
    need_command swanctl strongswan-swanctl
    need_file /usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so libcharon-extra-plugins
    need_file /usr/lib/ipsec/plugins/libstrongswan-openssl.so libstrongswan-standard-plugins
    # Tier 2 opens it at run time; nothing is linked with it.
    ls /usr/lib/*/libLLVM*19* >/dev/null 2>&1 || missing+=(libllvm19)
    has_modules pytest numpy scapy || missing+=(python3-pytest python3-numpy python3-scapy)
    if [ "$(uname -m)" = x86_64 ]; then
        # Another driver of virtual machines' ports.
        need_command dpdk-testpmd dpdk-dev
        need_command qemu-system-x86_64 qemu-system-x86
        need_command busybox busybox-static
        need_command xz xz-utils
        # An engine of IPsec opens the library (libipsec-mb1); a test reads the header.
        need_file /usr/include/intel-ipsec-mb.h libipsec-mb-dev
        has_kernel || missing+=(linux-image-amd64)
    fi
    ;;&
parity)
    need_command xdp-loader xdp-tools
    need_command bc bc
    need_file /usr/src/linux-source-6.1.tar.xz linux-source-6.1
    ;;
container)
    need_command buildah buildah
    need_command debootstrap debootstrap
    ;;
wheel) python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv) ;;
aarch64)
    need_command aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
    need_file /usr/aarch64-linux-gnu/lib/libc.so.6 libc6-dev-arm64-cross
    need_command qemu-aarch64 qemu-user
    ;;
net | test) ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

if ! command -v cargo >/dev/null; then
    echo "Rust is missing: https://rustup.rs (1.95 or later), then run this again" >&2
    exit 1
fi
if [ "$what" = aarch64 ] && command -v rustup >/dev/null; then
    rustup --quiet target add aarch64-unknown-linux-gnu
fi
[ ${#missing[@]} -gt 0 ] || exit 0

give_up() {
    echo "missing: ${missing[*]}" >&2
    echo "$1; please install them and run this again" >&2
    exit 1
}
command -v apt-get >/dev/null || give_up "there is no apt on this machine"
as_root=()
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || give_up "installing needs root, and there is no sudo"
    as_root=(sudo)
fi
mkdir -p build
log=build/install-deps.log
echo "installing ${missing[*]} (log: $log)"
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get -qq update >"$log" 2>&1 || true # old lists may still do
optional=()
for package in "${missing[@]}"; do
    # Distributions carry different versions: one more is good to have, not a reason to stop.
    if [[ $package == clang-* || $package == libllvm* || $package == linux-image-* ||
        $package == bpftool || $package == libipsec-mb* ]] &&
        ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "note: this distribution has no $package; tests with it are skipped"
    else
        optional+=("$package")
    fi
done
[ ${#optional[@]} -eq 0 ] ||
    "${as_root[@]}" apt-get -qq install -y --no-install-recommends "${optional[@]}" >>"$log" 2>&1 ||
    { tail -5 "$log" >&2; give_up "apt could not install them (see $log)"; }
