// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// careless: reads behind the packet's end without asking, so it is refused.
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

SEC("xdp")
int careless(struct xdp_md *ctx)
{
    unsigned char *data = (void *)(long)ctx->data;

    return data[12] == 8 ? XDP_PASS : XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
