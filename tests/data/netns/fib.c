// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// fib: asks what the frame says, and writes the answer where the question was.
#include "xdp.h"

struct question {
    __s32 result;
    __u32 flags;
    struct bpf_fib_lookup params;
};

SEC("xdp")
int fib(struct xdp_md *ctx)
{
    struct question *question = (void *)(long)ctx->data;
    if ((void *)(question + 1) > (void *)(long)ctx->data_end)
        return XDP_ABORTED;

    struct bpf_fib_lookup params;
    __builtin_memcpy(&params, &question->params, sizeof(params));
    question->result = bpf_fib_lookup(ctx, &params, sizeof(params), question->flags);
    __builtin_memcpy(&question->params, &params, sizeof(params));
    return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
