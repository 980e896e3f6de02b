// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// tail_chain: what a tail call costs, and one that leads nowhere.
//
// `chain` calls four programs, each the next one, and the last one decides. `slots` tries sixteen
// slots that are empty, as the root program of a chain of filters does before anybody is in it.
// Whatever a step adds to that is the tail call's price: there is nothing else to do.
//
// Maps
//   steps  PROG_ARRAY  1 to 4: the programs behind `chain`; filled from this object
//   empty  PROG_ARRAY  16 slots for others
//
// Configure  fill a slot of `empty` to have that program decide.
// Verdicts   XDP_PASS.
#include "xdp.h"

int chain_second(struct xdp_md *ctx);
int chain_third(struct xdp_md *ctx);
int chain_fourth(struct xdp_md *ctx);
int chain_last(struct xdp_md *ctx);

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 5);
    __uint(key_size, sizeof(__u32));
    __array(values, int(void *));
} steps SEC(".maps") = {
    .values = {
        [1] = (void *)&chain_second,
        [2] = (void *)&chain_third,
        [3] = (void *)&chain_fourth,
        [4] = (void *)&chain_last,
    },
};

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 16);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} empty SEC(".maps");

SEC("xdp")
int chain(struct xdp_md *ctx)
{
    bpf_tail_call(ctx, &steps, 1);
    return XDP_ABORTED;
}

SEC("xdp")
int chain_second(struct xdp_md *ctx)
{
    bpf_tail_call(ctx, &steps, 2);
    return XDP_ABORTED;
}

SEC("xdp")
int chain_third(struct xdp_md *ctx)
{
    bpf_tail_call(ctx, &steps, 3);
    return XDP_ABORTED;
}

SEC("xdp")
int chain_fourth(struct xdp_md *ctx)
{
    bpf_tail_call(ctx, &steps, 4);
    return XDP_ABORTED;
}

SEC("xdp")
int chain_last(struct xdp_md *ctx)
{
    return XDP_PASS;
}

SEC("xdp")
int slots(struct xdp_md *ctx)
{
#pragma unroll
    for (__u32 slot = 0; slot < 16; slot++)
        bpf_tail_call(ctx, &empty, slot);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
