// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What the programs here have in common: flows as keys, tables of them, and random numbers.
#pragma once

#include "kfuncs.h"

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct flow {
    __u32 source;
    __u32 target;
    __u16 ports[2];
    __u32 protocol;
};

#define TABLE(name, kind, entries, key_type, value_type)                                           \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_##kind);                                                         \
        __uint(max_entries, entries);                                                              \
        __type(key, key_type);                                                                     \
        __type(value, value_type);                                                                 \
    } name SEC(".maps")

TABLE(numbers, PERCPU_ARRAY, 1, __u32, __u64);

// A number that differs from run to run and from processor to processor (splitmix64). The first one
// is the benchmark's.
static __always_inline __u64 next_number(void)
{
    __u32 zero = 0;
    __u64 *state = bpf_map_lookup_elem(&numbers, &zero);
    if (!state)
        return 0;
    __u64 number = *state += 0x9e3779b97f4a7c15;
    number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
    number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
    return number ^ (number >> 31);
}

static __always_inline __u32 below(__u32 limit)
{
    return (next_number() >> 32) * limit >> 32;
}

static __always_inline struct flow flow_of(__u64 number)
{
    struct flow flow = {
        .source = number,
        .target = 0x0a000001,
        .ports = {number >> 32, 443},
        .protocol = 6,
    };
    return flow;
}
