# What pages find when their commands are run (crates/cli/tests/docs/mod.rs).
set -m
export TOWPATH_SOCKET=$PWD/towpath.sock
# Whoever runs the pages' tests has root or has not; with it nothing changes who one is.
sudo() { "$@"; }
# The objects are there before pages are run; building the rest is another test's work.
make() { [ "$*" = programs ] || { echo "pages don't run: make $*" >&2; return 1; }; }
# Waits for a daemon that was started in the background.
answers() {
    for _ in $(seq 600); do
        towpath status >/dev/null 2>&1 && return
        sleep 0.05
    done
    echo "no daemon at $TOWPATH_SOCKET" >&2
    return 1
}
# A C file of a page: a program for XDP, or one for this machine.
compile() {
    if grep -q 'int main(' "$1"; then
        cc -Wall -Werror -fsyntax-only -Icrates/capi/include "$1"
    else
        clang -O2 -g -target bpf -mcpu=v3 -Wall -Werror -Iprograms/include \
            "-I/usr/include/$(uname -m)-linux-gnu" -c "$1" -o "${1%.c}.o"
    fi
}
# Runs the commands of a step here, so that folders and variables stay.
steps=$PWD/.steps
step() {
    . "$steps/$1.sh" >"$steps/$1.out" 2>&1 </dev/null
    echo $? >"$steps/$1.status"
}
