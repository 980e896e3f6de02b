#!/usr/bin/env bash
# Runs tests of code that shares memory between threads, applications and guests under
# AddressSanitizer and ThreadSanitizer, which take a nightly toolchain with rust-src.
#
# usage: sanitize.sh [address|thread]...
#
# Machine code of programs is made at run time and is not instrumented: what it does to memory is
# checked by `make parity`.
set -euo pipefail
cd "$(dirname "$0")/.."

toolchain=${SANITIZE_TOOLCHAIN:-nightly}
host=$(rustc -vV | sed -n 's/^host: //p')
packages=(-p towpath-ring -p towpath-maps -p towpath-engine -p towpath-xsk -p towpath-ports)
[ $# -gt 0 ] || set -- address thread

# Faults on guests' memory are ours to handle (ports), and end no process.
export ASAN_OPTIONS=handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1
export TSAN_OPTIONS=handle_segv=0:handle_sigbus=0:allow_user_segv_handler=1
export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_INCREMENTAL=0

# The first counts faults of pages, and a sanitizer's own memory has some. The second links a C
# program, which has no sanitizer's library.
skipped=(--skip insertions_into_what_is_populated_wait_for_no_memory --skip a_c_program_echoes)
rustup component add --toolchain "$toolchain" rust-src 2>/dev/null

for kind; do
    # The standard library's own synchronisation has to be seen, or all of it is a race.
    std=()
    [ "$kind" != thread ] || std=(-Zbuild-std)
    echo "== $kind, $(cargo "+$toolchain" --version)"
    RUSTFLAGS="-Zsanitizer=$kind" CARGO_TARGET_DIR=${TARGET:-target}/sanitize-$kind \
        cargo "+$toolchain" test --quiet --no-fail-fast "${std[@]}" --target "$host" \
        "${packages[@]}" --lib --tests -- "${skipped[@]}"
done
