// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// padding: a key with three bytes that nobody sets, and one without.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

struct key {
    __u8 proto;
    __u32 addr;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16);
    __type(key, struct key);
    __type(value, __u64);
} flows SEC(".maps");

static __noinline int is_there(void)
{
    struct key k;

    __builtin_memset(&k, 0, sizeof(k));
    k.proto = 17;
    k.addr = 1;
    return bpf_map_lookup_elem(&flows, &k) != 0;
}

SEC("xdp")
int padded(struct xdp_md *ctx)
{
    struct key k;
    __u64 one = 1;

    k.proto = 17;
    k.addr = 1;
    bpf_map_update_elem(&flows, &k, &one, BPF_ANY);
    return is_there() ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int cleared(struct xdp_md *ctx)
{
    struct key k;
    __u64 one = 1;

    __builtin_memset(&k, 0, sizeof(k));
    k.proto = 17;
    k.addr = 1;
    bpf_map_update_elem(&flows, &k, &one, BPF_ANY);
    return is_there() ? XDP_PASS : XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
