// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// echo: answers ping for IPv4 and IPv6 without the host.
//
// A request becomes its reply in place: addresses swapped, type changed, and the checksum adjusted
// by the one word that changed (RFC 1624), so a payload of any length costs nothing.
//
// Maps
//   answered  PERCPU_ARRAY  0: ICMP, 1: ICMPv6
//
// Configure  nothing.
// Verdicts   XDP_TX for an echo request that is whole; XDP_PASS for everything else.
#include "icmp.h"
#include "rewrite.h"

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct counter);
} answered SEC(".maps");

static __always_inline bool answer_ipv4(struct cursor *cursor)
{
    struct iphdr *ip = parse_ipv4(cursor);

    if (!ip || ip->protocol != IPPROTO_ICMP)
        return false;
    if (ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
        return false;
    if (!answer_echo(TAKE(cursor, struct icmp_header), ICMP_ECHO_REQUEST, ICMP_ECHO_REPLY))
        return false;
    swap_ipv4(ip);
    ip->check = checksum_replace(ip->check, bpf_htons(ip->ttl << 8), bpf_htons(64 << 8));
    ip->ttl = 64;
    return true;
}

static __always_inline bool answer_ipv6(struct cursor *cursor)
{
    struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);

    if (!ip || ip->nexthdr != IPPROTO_ICMPV6 || ip->daddr.in6_u.u6_addr8[0] == 0xff)
        return false;
    if (!answer_echo(TAKE(cursor, struct icmp_header), ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY))
        return false;
    swap_ipv6(ip);
    ip->hop_limit = 64;
    return true;
}

SEC("xdp")
int echo(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct counter *stats;
    struct ethhdr *ethernet;
    __u16 ethertype;
    __u32 index;

    ethernet = parse_ethernet(&cursor, &ethertype);
    if (!ethernet)
        return XDP_PASS;
    if (ethertype == ETH_P_IP && answer_ipv4(&cursor))
        index = 0;
    else if (ethertype == ETH_P_IPV6 && answer_ipv6(&cursor))
        index = 1;
    else
        return XDP_PASS;
    swap_mac(ethernet);
    stats = bpf_map_lookup_elem(&answered, &index);
    if (stats)
        count(stats, linear_bytes(ctx));
    return XDP_TX;
}

char _license[] SEC("license") = "Dual MIT/GPL";
