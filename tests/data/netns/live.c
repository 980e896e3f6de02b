// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// live: what the tests in network namespaces attach, here and in the kernel: one program for each
// way out of a hook. All count what they see by kind, so that counters can be compared.
#include "checksum.h"
#include "rewrite.h"

enum kind { OTHER, ECHO, ECHO6, TCP, UDP, VLAN, KINDS };

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, KINDS);
    __type(key, __u32);
    __type(value, struct counter);
} seen SEC(".maps");

// 0: where `redirect` sends to
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} target SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CPUMAP);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u32);
} cpus SEC(".maps");

static __always_inline enum kind kind_of(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    __u8 *type;

    if (!ethernet)
        return OTHER;
    if (ethernet->h_proto == bpf_htons(ETH_P_8021Q))
        return VLAN;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(&cursor, struct iphdr);

        if (!ip)
            return OTHER;
        if (ip->protocol == IPPROTO_TCP)
            return TCP;
        if (ip->protocol == IPPROTO_UDP)
            return UDP;
        // Errors are sent at a rate that stacks choose; echoes are counted.
        type = TAKE(&cursor, __u8);
        return ip->protocol == IPPROTO_ICMP && type && (*type == 8 || *type == 0) ? ECHO : OTHER;
    }
    if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = TAKE(&cursor, struct ipv6hdr);

        if (ip && ip->nexthdr == IPPROTO_UDP)
            return UDP;
        if (!ip || ip->nexthdr != IPPROTO_ICMPV6)
            return OTHER;
        type = TAKE(&cursor, __u8);
        return type && (*type == 128 || *type == 129) ? ECHO6 : OTHER;
    }
    return OTHER;
}

static __always_inline enum kind see(struct xdp_md *ctx)
{
    __u32 kind = kind_of(ctx);
    struct counter *counter = bpf_map_lookup_elem(&seen, &kind);

    if (counter)
        count(counter, bpf_xdp_get_buff_len(ctx));
    return kind;
}

SEC("xdp.frags")
int pass(struct xdp_md *ctx)
{
    see(ctx);
    return XDP_PASS;
}

// As `pass`, for frames of one buffer: longer ones are made so.
SEC("xdp")
int pass_linear(struct xdp_md *ctx)
{
    see(ctx);
    return XDP_PASS;
}

// Drops UDP, and echo requests of IPv4 that are longer than 1000 bytes.
SEC("xdp.frags")
int filter(struct xdp_md *ctx)
{
    enum kind kind = see(ctx);

    if (kind == UDP || (kind == ECHO && bpf_xdp_get_buff_len(ctx) > 1000))
        return XDP_DROP;
    return XDP_PASS;
}

// Everything goes out of the port that `target` names.
SEC("xdp.frags")
int redirect(struct xdp_md *ctx)
{
    __u32 *ifindex = bpf_map_lookup_elem(&target, &(__u32){0});

    see(ctx);
    return ifindex ? bpf_redirect(*ifindex, 0) : XDP_ABORTED;
}

// The same by entry 0 of a devmap.
SEC("xdp.frags")
int redirect_map(struct xdp_md *ctx)
{
    see(ctx);
    return bpf_redirect_map(&ports, 0, XDP_DROP);
}

SEC("xdp.frags")
int broadcast(struct xdp_md *ctx)
{
    see(ctx);
    return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
}

// To another CPU, where it passes.
SEC("xdp.frags")
int to_cpu(struct xdp_md *ctx)
{
    see(ctx);
    return bpf_redirect_map(&cpus, 1, XDP_DROP);
}

// Takes the tag off and puts it on again: offsets of checksums that are left to do must follow.
SEC("xdp.frags")
int pop_push(struct xdp_md *ctx)
{
    see(ctx);
    if (bpf_xdp_adjust_head(ctx, -8) || bpf_xdp_adjust_head(ctx, 8))
        return XDP_ABORTED;
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
