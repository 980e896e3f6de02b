// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What the programs here have in common: flows as keys, and tables of them.
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
