#!/usr/bin/env bash
# Compiles every XDP program of the kernel's samples and selftests that compiles outside its tree.
# usage: kernel-objects.sh KERNEL_SOURCE OUT_DIR
# So do, as XDP programs, the programs of other types that selftests try the verifier with.
# Objects go to OUT_DIR/{clang-14,clang-19}/{samples,selftests,verifier}/NAME.o, messages of those
# that fail beside them as NAME.err; OUT_DIR/count.txt says how many there are.
set -u
source_dir=$1 out=$2
self=$source_dir/tools/testing/selftests/bpf
mkdir -p "$out/include"
# Samples say uapi/linux/... for what user space calls linux/...
[ -e "$out/include/uapi" ] || ln -s /usr/include "$out/include/uapi"
# Samples without vmlinux.h take these from headers that only the kernel's own build has.
cat > "$out/include/sample_types.h" <<'TYPES'
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
#define __force
#define __packed __attribute__((packed))
#define htons(x) ((u16)__builtin_bswap16(x))
#define ntohs(x) ((u16)__builtin_bswap16(x))
#define htonl(x) __builtin_bswap32(x)
#define ntohl(x) __builtin_bswap32(x)
#define cpu_to_be32(x) __builtin_bswap32(x)
#define memcpy __builtin_memcpy
#define memset __builtin_memset
#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x) __builtin_expect(!!(x), 1)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define AF_INET 2
#define AF_INET6 10
#include <linux/tcp.h>
#include <linux/udp.h>
struct vlan_hdr {
    __be16 h_vlan_TCI;
    __be16 h_vlan_encapsulated_proto;
};
TYPES
[ -s "$out/include/vmlinux.h" ] ||
    bpftool btf dump file /sys/kernel/btf/vmlinux format c > "$out/include/vmlinux.h" || exit 1

# libbpf's headers as old as the source; what its build generates is the system's.
mkdir -p "$out/include/bpf"
cp "$source_dir"/tools/lib/bpf/*.h "$out/include/bpf/"
cp /usr/include/bpf/bpf_helper_defs.h "$out/include/bpf/" || exit 1

flags=(-g -O2 -target bpf -D__TARGET_ARCH_x86 -D__x86_64__ -Wno-everything
    -Werror=implicit-function-declaration
    -I"$out/include" -I"$self" -I"$self/progs" -I"$source_dir/samples/bpf"
    -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include)

# The three places where samples and selftests look for uapi headers newer than the system's.
uapi=(-I"$source_dir/tools/include/uapi" -I"$source_dir/include/uapi")

compile() { # clang source object extra-flags...
    local clang=$1 from=$2 to=$3
    shift 3
    nice "$clang" "${flags[@]}" "$@" -c "$from" -o "$to.part" 2> "${to%.o}.err" &&
        mv "$to.part" "$to" && rm -f "${to%.o}.err" && return 0
    rm -f "$to.part"
    return 1
}

# The *.bpf.c samples share a file of maps and counters that their build links to each. Here the two
# are one source: only then do types that one of them merely declares get a size.
with_shared() { # source
    local whole
    whole=$out/include/$(basename "$1")
    printf '#include "%s"\n' "$source_dir/samples/bpf/xdp_sample.bpf.c" "$1" > "$whole"
    echo "$whole"
}

# Programs of other types become XDP's: their sections, and the context where it has the fields.
as_xdp() { # source context
    local changed
    changed=$out/include/$(basename "$1")
    sed -E "/SEC\(\"[.]|SEC\(\"(license|version|maps)/! s/SEC\(\"[^\"]*\"\)/SEC(\"xdp\")/g
        s/struct __sk_buff/struct $2/g" "$1" > "$changed"
    echo "$changed"
}

: > "$out/count.txt"
for clang in clang-14 clang-19; do
    if ! command -v "$clang" > /dev/null; then
        echo "$clang: not installed" >> "$out/count.txt"
        continue
    fi
    for set in samples selftests verifier; do
        case $set in
        samples) files=$(grep -lE 'SEC\("\??xdp' "$source_dir"/samples/bpf/*.c) ;;
        selftests) files=$(grep -lE 'SEC\("\??xdp' "$self"/progs/*.c) ;;
        verifier)
            # Older compilers know neither all instructions nor all attributes.
            [ "$clang" = clang-14 ] && continue
            files=$(ls "$self"/progs/{verifier_,exceptions,dynptr_,iters,preempt_lock}*.c)
            ;;
        esac
        mkdir -p "$out/$clang/$set"
        tried=0 built=0
        for file in $files; do
            name=$(basename "${file%.c}")
            object=$out/$clang/$set/$name.o
            tried=$((tried + 1))
            case $set/$name in
            samples/*.bpf) file=$(with_shared "$file") ;;
            esac
            if [ -s "$object" ]; then
                built=$((built + 1))
            elif [ $set = verifier ]; then
                for context in xdp_md __sk_buff; do
                    compile "$clang" "$(as_xdp "$file" $context)" "$object" \
                        "${uapi[@]}" -mcpu=v4 && built=$((built + 1)) && break
                done
            elif compile "$clang" "$file" "$object" "${uapi[@]}" -mcpu=v3 ||
                compile "$clang" "$file" "$object" -mcpu=v3 ||
                compile "$clang" "$file" "$object" -mcpu=v3 -include sample_types.h; then
                built=$((built + 1))
            fi
        done
        echo "$clang $set: $built of $tried sources compile" >> "$out/count.txt"
    done
done
cat "$out/count.txt"
