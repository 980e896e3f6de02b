// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// arena_sketch: a count-min sketch of flows in memory that the program shares with user space.
//
// Every flow adds its bytes to one counter in each row; the least of the four is an upper bound of
// what the flow sent, however many flows there are. The rows lie in an arena: a process that maps
// it reads them with plain loads, no system call. The process also decides which pages exist:
// touching a page creates it, and what the program writes to a page that was never touched is lost.
//
// Needs: clang >= 19 (pointers in an address space), kernel 6.9.
//
// Maps
//   arena   ARENA  four rows of 1,024 counters: 8 pages, to be mapped at ARENA_ADDRESS
//   totals  ARRAY  0: frames counted
//
// Configure  nothing.
// Verdicts   always XDP_PASS.
#include "hash.h"

// Newer than Debian 12's headers.
#define BPF_MAP_TYPE_ARENA 33

#define ARENA_ADDRESS 0x20000000 // in user space; a pointer's lower half means the same to both
#define ARENA_PAGES 8
#define ROWS 4
#define COLUMNS 1024

#define __arena __attribute__((address_space(1)))

struct {
    __uint(type, BPF_MAP_TYPE_ARENA);
    __uint(map_flags, BPF_F_MMAPABLE);
    __uint(max_entries, ARENA_PAGES);
    __uint(map_extra, ARENA_ADDRESS);
} arena SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

SEC("xdp")
int arena_sketch(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u64 __arena *counters = (__u64 __arena *)ARENA_ADDRESS;
    __u64 bytes = linear_bytes(ctx);
    struct network network = {};
    struct flow flow = {};
    __u32 zero = 0;
    __u64 *total;

    // A program has the arena whose map it names; nothing else here does.
    asm volatile("" ::"r"(&arena));
    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
#pragma unroll
    for (__u32 row = 0; row < ROWS; row++) {
        __u64 column = hash_scale(hash_flow(&flow, row), COLUMNS);

        // Not atomic: a count lost to a race is less than what a sketch is wrong by anyway.
        counters[row * COLUMNS + column] += bytes;
    }
    total = bpf_map_lookup_elem(&totals, &zero);
    if (total)
        __sync_fetch_and_add(total, 1);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
