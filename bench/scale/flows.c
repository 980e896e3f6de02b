// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What `bench --bin scale` runs on many threads over shared maps: programs that do one thing with
// the entry of a flow, another one for each frame, and return 1 when it went as expected.
#include "flow.h"

// The benchmark knows these numbers, and fills the maps.
#define FLOWS 1000000
#define PLACES 131072
#define COUNTERS 65536

struct entry {
    __u64 packets;
    __u64 bytes;
};

struct prefix {
    __u32 bits;
    __u32 address;
};

TABLE(stamps, ARRAY, 1, __u32, __u64);
TABLE(lru, LRU_HASH, 1250000, struct flow, struct entry);
TABLE(small_lru, LRU_HASH, PLACES, struct flow, struct entry);
TABLE(hash, HASH, 1250000, struct flow, struct entry);
TABLE(percpu_hash, PERCPU_HASH, PLACES, struct flow, struct entry);
TABLE(counters, ARRAY, COUNTERS, __u32, __u64);
TABLE(order, LRU_HASH, PLACES, __u64, __u64);

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, 300000);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix);
    __type(value, __u64);
} routes SEC(".maps");

// A table of connections that is too small for its flows.
SEC("xdp") int lru_evict(struct xdp_md *ctx)
{
    struct flow flow = flow_of(below(FLOWS));
    struct entry *known = bpf_map_lookup_elem(&small_lru, &flow);
    if (known) {
        known->packets++;
        return 1;
    }
    struct entry entry = {.packets = 1};
    return !bpf_map_update_elem(&small_lru, &flow, &entry, BPF_ANY);
}

// A flood: no frame's flow was seen before.
SEC("xdp") int lru_flood(struct xdp_md *ctx)
{
    struct flow flow = flow_of(next_number());
    if (bpf_map_lookup_elem(&small_lru, &flow))
        return 1;
    struct entry entry = {.packets = 1};
    return !bpf_map_update_elem(&small_lru, &flow, &entry, BPF_ANY);
}

// A flow that comes and goes, beside a million that stay.
SEC("xdp") int hash_insert_delete(struct xdp_md *ctx)
{
    struct flow flow = flow_of(next_number() | 1ULL << 47);
    struct entry entry = {.packets = 1};
    if (bpf_map_update_elem(&hash, &flow, &entry, BPF_NOEXIST))
        return 0;
    return !bpf_map_delete_elem(&hash, &flow);
}

#define HIT(name, map)                                                                             \
    SEC("xdp") int name(struct xdp_md *ctx)                                                        \
    {                                                                                              \
        struct flow flow = flow_of(below(FLOWS));                                                  \
        struct entry *entry = bpf_map_lookup_elem(&map, &flow);                                    \
        return entry && entry->packets == 1;                                                       \
    }

HIT(hash_hit, hash)
HIT(lru_hit, lru)

SEC("xdp") int percpu_hash_hit(struct xdp_md *ctx)
{
    struct flow flow = flow_of(below(PLACES));
    struct entry *entry = bpf_map_lookup_elem(&percpu_hash, &flow);
    if (!entry)
        return 0;
    entry->packets++;
    entry->bytes += ctx->data_end - ctx->data;
    return 1;
}

SEC("xdp") int lpm_lookup(struct xdp_md *ctx)
{
    struct prefix prefix = {.bits = 32, .address = next_number()};
    return !!bpf_map_lookup_elem(&routes, &prefix);
}

SEC("xdp") int array_count(struct xdp_md *ctx)
{
    __u32 index = below(COUNTERS);
    __u64 *counter = bpf_map_lookup_elem(&counters, &index);
    if (!counter)
        return 0;
    __sync_fetch_and_add(counter, 1);
    return 1;
}

// Not measured by time: keys are numbers in the order of insertion, whoever inserts.
SEC("xdp") int stamped_insert(struct xdp_md *ctx)
{
    __u32 zero = 0;
    __u64 *stamp = bpf_map_lookup_elem(&stamps, &zero);
    if (!stamp)
        return 0;
    __u64 key = __sync_fetch_and_add(stamp, 1);
    return !bpf_map_update_elem(&order, &key, &key, BPF_ANY);
}
