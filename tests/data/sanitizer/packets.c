// Packets that leave with bytes that nobody set, and redirects without a target.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

SEC("xdp") int head_room(struct xdp_md *ctx)
{
    // finds undefined-packet: the packet that leaves with XDP_TX: bytes 0 to 7 were never set
    if (bpf_xdp_adjust_head(ctx, -8))
        return XDP_DROP;
    return XDP_TX;
}

SEC("xdp") int half_a_header(struct xdp_md *ctx)
{
    void *data, *data_end;
    struct ethhdr *eth;

    // finds undefined-packet: bytes 12 to 13 were never set
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*eth)))
        return XDP_DROP;
    data = (void *)(long)ctx->data;
    data_end = (void *)(long)ctx->data_end;
    eth = data;
    if ((void *)(eth + 1) > data_end)
        return XDP_DROP;
    __builtin_memset(eth->h_dest, 1, ETH_ALEN);
    __builtin_memset(eth->h_source, 2, ETH_ALEN);
    return XDP_PASS;
}

SEC("xdp") int metadata(struct xdp_md *ctx)
{
    __u32 *meta, *data;

    // finds undefined-packet: the metadata in front of the packet that leaves with XDP_PASS:
    if (bpf_xdp_adjust_meta(ctx, -8))
        return XDP_DROP;
    meta = (void *)(long)ctx->data_meta;
    data = (void *)(long)ctx->data;
    if (meta + 2 > data)
        return XDP_DROP;
    meta[0] = 1;
    return XDP_PASS;
}

SEC("xdp") int stored(struct xdp_md *ctx)
{
    struct iphdr ip;

    ip.ttl = 1;
    ip.protocol = 17;
    // finds undefined-packet: data stored into the packet
    bpf_xdp_store_bytes(ctx, sizeof(struct ethhdr), &ip, sizeof(ip));
    return XDP_DROP;
}

SEC("xdp") int no_target(struct xdp_md *ctx)
{
    // finds redirect-target: no call of bpf_redirect or bpf_redirect_map
    return XDP_REDIRECT;
}

SEC("xdp") int no_such_port(struct xdp_md *ctx)
{
    bpf_redirect_map(&ports, 3, 0);
    // finds redirect-target: the call that sets the target failed
    return XDP_REDIRECT;
}

// Nothing is wrong from here on.

SEC("xdp") int there_and_back(struct xdp_md *ctx)
{
    if (bpf_xdp_adjust_head(ctx, 14) || bpf_xdp_adjust_head(ctx, -14))
        return XDP_DROP;
    return XDP_PASS;
}

SEC("xdp") int written(struct xdp_md *ctx)
{
    void *data, *data_end;
    struct ethhdr *eth;

    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(*eth)))
        return XDP_DROP;
    data = (void *)(long)ctx->data;
    data_end = (void *)(long)ctx->data_end;
    eth = data;
    if ((void *)(eth + 1) > data_end)
        return XDP_DROP;
    __builtin_memset(eth->h_dest, 1, ETH_ALEN);
    __builtin_memset(eth->h_source, 2, ETH_ALEN);
    eth->h_proto = bpf_htons(0x88b5);
    return XDP_TX;
}

SEC("xdp") int longer(struct xdp_md *ctx)
{
    // The kernel clears what it adds at the end.
    return bpf_xdp_adjust_tail(ctx, 8) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int dropped(struct xdp_md *ctx)
{
    bpf_xdp_adjust_head(ctx, -8);
    return XDP_DROP;
}

SEC("xdp") int whatever_the_map_says(struct xdp_md *ctx)
{
    return bpf_redirect_map(&ports, 3, XDP_PASS);
}

SEC("xdp") int to_an_interface(struct xdp_md *ctx)
{
    return bpf_redirect(ctx->ingress_ifindex, 0);
}

char _license[] SEC("license") = "GPL";
