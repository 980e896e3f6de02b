// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// New flows in tables that nobody has written to yet: each frame is a flow of its own.
#include "flow.h"

// The benchmark knows this number.
#define ENTRIES 524288

struct entry {
    __u64 packets;
    __u64 bytes;
    __u64 words[2];
};

TABLE(hash, HASH, ENTRIES, struct flow, struct entry);
TABLE(lru_hash, LRU_HASH, ENTRIES, struct flow, struct entry);

#define FIRST(program, map)                                                                        \
    SEC("xdp") int program(struct xdp_md *ctx)                                                     \
    {                                                                                              \
        __u32 zero = 0;                                                                            \
        __u64 *number = bpf_map_lookup_elem(&numbers, &zero);                                      \
        if (!number)                                                                               \
            return 0;                                                                              \
        struct flow flow = {.source = *number, .target = 1, .ports = {5000, 443}, .protocol = 6};  \
        *number += 1;                                                                              \
        if (bpf_map_lookup_elem(&map, &flow))                                                      \
            return 0;                                                                              \
        struct entry entry = {.packets = 1};                                                       \
        return !bpf_map_update_elem(&map, &flow, &entry, BPF_ANY);                                 \
    }

FIRST(first_insert, hash)
FIRST(first_insert_lru, lru_hash)
