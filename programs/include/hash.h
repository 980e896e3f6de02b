// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// A keyed 32-bit hash for flows. MurmurHash3's mixing (public domain): two multiplications a word
// and a good avalanche, which consistent hashing needs in the low bits.
#pragma once

#include "parse.h"

static __always_inline __u32 hash_rotate(__u32 value, int bits)
{
    return (value << bits) | (value >> (32 - bits));
}

static __always_inline __u32 hash_word(__u32 hash, __u32 word)
{
    word = hash_rotate(word * 0xcc9e2d51, 15) * 0x1b873593;
    return hash_rotate(hash ^ word, 13) * 5 + 0xe6546b64;
}

static __always_inline __u32 hash_finish(__u32 hash)
{
    hash = (hash ^ (hash >> 16)) * 0x85ebca6b;
    hash = (hash ^ (hash >> 13)) * 0xc2b2ae35;
    return hash ^ (hash >> 16);
}

// Maps a hash to 0..limit-1. Multiplying is cheaper than a division, and the verifier can bound
// the result, which it cannot for `hash % limit`.
static __always_inline __u64 hash_scale(__u32 hash, __u32 limit)
{
    __u64 scaled = ((__u64)hash * limit) >> 32;

    // Or clang merges this shift with one for an array index, and the bound is off by a byte.
    barrier_var(scaled);
    return scaled;
}

static __always_inline __u32 hash_flow(const struct flow *flow, __u32 seed)
{
    const __u32 *words = (const __u32 *)flow;

#pragma unroll
    for (int i = 0; i < sizeof(*flow) / 4; i++)
        seed = hash_word(seed, words[i]);
    return hash_finish(seed);
}

// The same for both directions of a conversation: what spreads flows over CPUs wants that.
static __always_inline __u32 hash_flow_symmetric(const struct flow *flow)
{
    const __be32 *source = flow->source.in6_u.u6_addr32;
    const __be32 *dest = flow->dest.in6_u.u6_addr32;
    __u32 hash = flow->protocol;

#pragma unroll
    for (int i = 0; i < 4; i++)
        hash = hash_word(hash, source[i] ^ dest[i]);
    return hash_finish(hash_word(hash, flow->source_port ^ flow->dest_port));
}
