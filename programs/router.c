// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// router: forwards IPv4 and IPv6 by the routing table, port to port.
//
// The host's (or Towpath's) FIB gives the next hop and both MAC addresses. TTL or hop limit goes
// down by one with the checksum adjusted, not recomputed. The frame leaves through a devmap whose
// entries may carry `router_egress`, a program that runs once more on the way out.
//
// Maps
//   ports      DEVMAP_HASH   ifindex -> {ifindex, egress program}; only these are forwarded to
//   outcomes   PERCPU_ARRAY  result of bpf_fib_lookup (BPF_FIB_LKUP_RET_*), and 16.. below
//   egress     PERCPU_ARRAY  0: frames and bytes that left
//
// Configure  nothing; entries of `ports` say where forwarding is wanted.
// Verdicts   XDP_REDIRECT forwarded; XDP_DROP blackhole, unreachable, prohibited; XDP_PASS for the
//            host: its own addresses, no neighbour yet, TTL expired, too big, options, multicast.
#include "checksum.h"
#include "parse.h"

#define PORTS_MAX 64

enum outcome {
    OUTCOME_TTL = 16,
    OUTCOME_NOT_ROUTABLE,
    OUTCOME_TOO_BIG,
    OUTCOME_NO_PORT,
    OUTCOME_COUNT,
};

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, struct bpf_devmap_val);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, OUTCOME_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} outcomes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counter);
} egress SEC(".maps");

static __always_inline void note(__u32 outcome)
{
    __u64 *times = bpf_map_lookup_elem(&outcomes, &outcome);

    if (times)
        *times += 1;
}

// Fills the lookup's key. Returns an outcome to stop with, or 0.
static __always_inline __u32 prepare_ipv4(struct cursor *cursor, struct bpf_fib_lookup *fib)
{
    struct iphdr *ip = TAKE(cursor, struct iphdr);

    if (!ip || ip->ihl != 5) // options are the host's business
        return OUTCOME_NOT_ROUTABLE;
    if ((ip->daddr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000))
        return OUTCOME_NOT_ROUTABLE;
    if (ip->ttl <= 1)
        return OUTCOME_TTL;
    fib->family = AF_INET;
    fib->tos = ip->tos;
    fib->l4_protocol = ip->protocol;
    fib->tot_len = bpf_ntohs(ip->tot_len);
    fib->ipv4_src = ip->saddr;
    fib->ipv4_dst = ip->daddr;
    return 0;
}

static __always_inline __u32 prepare_ipv6(struct cursor *cursor, struct bpf_fib_lookup *fib)
{
    struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);

    if (!ip || ip->daddr.in6_u.u6_addr8[0] == 0xff)
        return OUTCOME_NOT_ROUTABLE;
    if (ip->hop_limit <= 1)
        return OUTCOME_TTL;
    fib->family = AF_INET6;
    fib->flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
    fib->l4_protocol = ip->nexthdr;
    fib->tot_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
    __builtin_memcpy(fib->ipv6_src, &ip->saddr, sizeof(fib->ipv6_src));
    __builtin_memcpy(fib->ipv6_dst, &ip->daddr, sizeof(fib->ipv6_dst));
    return 0;
}

// Rewrites the frame for its next hop and hands it to the port.
static __always_inline int forward(struct xdp_md *ctx, const struct bpf_fib_lookup *fib)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    __u32 mtu = 0;

    if (!ethernet)
        return XDP_DROP;
    if (bpf_check_mtu(ctx, fib->ifindex, &mtu, 0, 0)) {
        note(OUTCOME_TOO_BIG);
        return XDP_PASS; // the host answers with "fragmentation needed"
    }
    if (!bpf_map_lookup_elem(&ports, &fib->ifindex)) {
        note(OUTCOME_NO_PORT);
        return XDP_PASS;
    }
    if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(&cursor, struct iphdr);

        if (!ip)
            return XDP_DROP;
        ipv4_decrease_ttl(ip);
    } else {
        struct ipv6hdr *ip = TAKE(&cursor, struct ipv6hdr);

        if (!ip)
            return XDP_DROP;
        ip->hop_limit--;
    }
    __builtin_memcpy(ethernet->h_dest, fib->dmac, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, fib->smac, ETH_ALEN);
    return bpf_redirect_map(&ports, fib->ifindex, 0);
}

SEC("xdp")
int router(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct bpf_fib_lookup fib = {};
    __u32 outcome;

    if (!ethernet)
        return XDP_DROP;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP))
        outcome = prepare_ipv4(&cursor, &fib);
    else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
        outcome = prepare_ipv6(&cursor, &fib);
    else
        outcome = OUTCOME_NOT_ROUTABLE;
    if (outcome) {
        note(outcome);
        return XDP_PASS;
    }
    fib.ifindex = ctx->ingress_ifindex;
    outcome = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
    note(outcome);
    switch (outcome) {
    case BPF_FIB_LKUP_RET_SUCCESS:
        return forward(ctx, &fib);
    case BPF_FIB_LKUP_RET_BLACKHOLE:
    case BPF_FIB_LKUP_RET_UNREACHABLE:
    case BPF_FIB_LKUP_RET_PROHIBIT:
        return XDP_DROP;
    default:
        return XDP_PASS;
    }
}

// Runs on the way out of a port whose entry in `ports` names it.
SEC("xdp/devmap")
int router_egress(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct counter *stats;
    __u32 index = 0;

    if (!ethernet || ctx->egress_ifindex == ctx->ingress_ifindex)
        return XDP_DROP; // a hairpin: the sender should have known better
    stats = bpf_map_lookup_elem(&egress, &index);
    if (stats)
        count(stats, linear_bytes(ctx));
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
