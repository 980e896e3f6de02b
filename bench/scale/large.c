// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Look-ups of flows that come at random, in tables of as many as the benchmark says. A frame brings
// its flow with it, as frames do, and leaves the one of the next run in its place: so the same
// packet can be run again and again.
#include "flow.h"

struct entry {
    __u64 packets;
    __u64 bytes;
};

// The benchmark makes room for all flows, and fills the tables.
TABLE(hash, HASH, 1, struct flow, struct entry);
TABLE(lru, LRU_HASH, 1, struct flow, struct entry);

const volatile __u32 flows = 1;

static __always_inline struct flow *flow_in(struct xdp_md *ctx)
{
    struct flow *flow = (void *)(long)ctx->data;

    return (void *)(flow + 1) > (void *)(long)ctx->data_end ? 0 : flow;
}

// What the other programs do beside their look-up.
SEC("xdp") int no_table(struct xdp_md *ctx)
{
    struct flow *place = flow_in(ctx);
    if (!place)
        return 0;
    struct flow flow = *place;
    *place = flow_of(below(flows));
    return flow.protocol == 6 && flow.source < flows;
}

#define LARGE(name, map)                                                                           \
    SEC("xdp") int name(struct xdp_md *ctx)                                                        \
    {                                                                                              \
        struct flow *place = flow_in(ctx);                                                         \
        if (!place)                                                                                \
            return 0;                                                                              \
        struct flow flow = *place;                                                                 \
        *place = flow_of(below(flows));                                                            \
        struct entry *entry = bpf_map_lookup_elem(&map, &flow);                                    \
        return entry && entry->packets == 1;                                                       \
    }

LARGE(large_hash, hash)
LARGE(large_lru, lru)
