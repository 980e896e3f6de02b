// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// New flows in tables that nobody has written to yet: each frame is a flow of its own.
#include "kfuncs.h"

// The benchmark knows this number.
#define ENTRIES 524288

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct flow {
    __u32 source;
    __u32 target;
    __u16 ports[2];
    __u32 protocol;
};

struct entry {
    __u64 packets;
    __u64 bytes;
    __u64 words[2];
};

#define TABLE(name, kind)                                                                          \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_##kind);                                                         \
        __uint(max_entries, ENTRIES);                                                              \
        __type(key, struct flow);                                                                  \
        __type(value, struct entry);                                                               \
    } name SEC(".maps")

TABLE(hash, HASH);
TABLE(lru_hash, LRU_HASH);

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} numbers SEC(".maps");

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
