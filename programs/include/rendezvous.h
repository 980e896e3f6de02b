// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Rendezvous hashing, unrolled: of a service's candidates, the one whose hash with the flow is the
// highest. Costs a hash for each candidate, but needs no ring: what remains when the ring's choice
// has left, and gives every balancer the same answer.
#pragma once

#include "hash.h"

#define CANDIDATES_MAX 48
#define CANDIDATE_NONE 0xffffffff

struct candidates {
    __u32 backend[CANDIDATES_MAX]; // CANDIDATE_NONE where there is none
};

// The winner so far. `draw` is the hash plus one, so that 0 is "nobody yet".
struct winner {
    __u64 draw;
    __u32 backend;
};

static __always_inline void draw_for(struct winner *winner, __u32 backend, __u32 flow_hash)
{
    __u64 draw = (__u64)hash_finish(hash_word(hash_word(flow_hash, backend), ~backend)) + 1;

    if (backend == CANDIDATE_NONE || draw < winner->draw)
        return;
    winner->draw = draw;
    winner->backend = backend;
}

static __always_inline __u32 rendezvous(const struct candidates *candidates, __u32 flow_hash)
{
    struct winner winner = {.backend = CANDIDATE_NONE};

#pragma unroll
    for (int i = 0; i < CANDIDATES_MAX; i++)
        draw_for(&winner, candidates->backend[i], flow_hash);
    return winner.backend;
}
