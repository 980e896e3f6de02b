// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// fdb: sends frames where the bridge above would, without the bridge; and a program that must be
// refused.
#include "fdb.h"

enum { FOUND, NO_ENTRY, NO_BRIDGE, OTHER, RESULTS };

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, RESULTS);
    __type(key, __u32);
    __type(value, __u64);
} results SEC(".maps");

static __always_inline void note(__u32 result)
{
    __u64 *counter = bpf_map_lookup_elem(&results, &result);
    if (counter)
        *counter += 1;
}

SEC("xdp")
int shortcut(struct xdp_md *ctx)
{
    struct ethhdr *eth = (void *)(long)ctx->data;
    if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;

    struct bpf_fdb_lookup fdb = {};
    __builtin_memcpy(fdb.addr, eth->h_dest, ETH_ALEN);
    if (!bpf_fdb_lookup)
        return XDP_PASS;
    switch (bpf_fdb_lookup(ctx, &fdb, sizeof(fdb))) {
    case 0:
        note(FOUND);
        return bpf_redirect(fdb.ifindex, 0);
    case -2: // ENOENT
        note(NO_ENTRY);
        return XDP_PASS;
    case -19: // ENODEV
        note(NO_BRIDGE);
        return XDP_PASS;
    default:
        note(OTHER);
        return XDP_PASS;
    }
}

SEC("xdp")
int overread(struct xdp_md *ctx)
{
    struct bpf_fdb_lookup fdb = {};
    return bpf_fdb_lookup ? bpf_fdb_lookup(ctx, &fdb, 4096) : XDP_PASS;
}

char _license[] SEC("license") = "GPL";
