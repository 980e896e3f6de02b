// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// "Too big": the ICMP error that tells a sender which size would fit (RFC 792 and RFC 1191; RFC
// 4443, 3.2). It quotes the packet's first bytes, and goes back where the packet came from.
#pragma once

#include "icmp.h"

#define QUOTED_IPV4 28  // the IP header and 8 bytes
#define QUOTED_IPV6 232 // what a program may well sum up

// Cuts the frame to what is quoted and puts a new network and ICMP header in front; the Ethernet
// header is turned round. Returns a cursor behind the Ethernet header, or one without room.
static __always_inline bool make_error(struct xdp_md *ctx, __u32 header_bytes, __u32 quoted_bytes,
                                       struct cursor *cursor)
{
    struct ethhdr *ethernet = (void *)(long)ctx->data, before;
    int change;

    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return false;
    before = *ethernet;
    change = (int)(sizeof(before) + quoted_bytes) - (int)linear_bytes(ctx);
    if (change > 0 || bpf_xdp_adjust_tail(ctx, change))
        return false;
    if (bpf_xdp_adjust_head(ctx, -(int)header_bytes))
        return false;
    *cursor = cursor_at_start(ctx);
    ethernet = TAKE(cursor, struct ethhdr);
    if (!ethernet)
        return false;
    __builtin_memcpy(ethernet->h_dest, before.h_source, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, before.h_dest, ETH_ALEN);
    ethernet->h_proto = before.h_proto;
    return true;
}

static __always_inline int answer_too_big_ipv4(struct xdp_md *ctx, __u32 fits)
{
    struct icmp_header *icmp;
    struct cursor cursor;
    struct iphdr *quoted;
    struct iphdr *ip;

    if (!make_error(ctx, sizeof(*ip) + sizeof(*icmp), QUOTED_IPV4, &cursor))
        return XDP_DROP;
    ip = take(&cursor, sizeof(*ip) + sizeof(*icmp) + QUOTED_IPV4);
    if (!ip)
        return XDP_DROP;
    icmp = (void *)(ip + 1);
    quoted = (void *)(icmp + 1);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 4;
    ip->ihl = 5;
    ip->tot_len = bpf_htons(sizeof(*ip) + sizeof(*icmp) + QUOTED_IPV4);
    ip->ttl = 64;
    ip->protocol = IPPROTO_ICMP;
    ip->saddr = quoted->daddr;
    ip->daddr = quoted->saddr;
    ip->check = ipv4_checksum(ip);
    __builtin_memset(icmp, 0, sizeof(*icmp));
    icmp->type = ICMP_UNREACHABLE;
    icmp->code = ICMP_FRAGMENTATION_NEEDED;
    icmp->sequence = bpf_htons(fits);
    icmp->checksum =
        checksum_fold(bpf_csum_diff(NULL, 0, (__be32 *)icmp, sizeof(*icmp) + QUOTED_IPV4, 0));
    return XDP_TX;
}

static __always_inline int answer_too_big_ipv6(struct xdp_md *ctx, __u32 fits)
{
    const __u32 message_bytes = sizeof(struct icmp_header) + QUOTED_IPV6;
    struct icmp_header *icmp;
    struct ipv6hdr *quoted;
    struct cursor cursor;
    struct ipv6hdr *ip;
    __u64 sum;

    if (!make_error(ctx, sizeof(*ip) + sizeof(*icmp), QUOTED_IPV6, &cursor))
        return XDP_DROP;
    ip = take(&cursor, sizeof(*ip) + message_bytes);
    if (!ip)
        return XDP_DROP;
    icmp = (void *)(ip + 1);
    quoted = (void *)(icmp + 1);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 6;
    ip->payload_len = bpf_htons(message_bytes);
    ip->nexthdr = IPPROTO_ICMPV6;
    ip->hop_limit = 64;
    ip->saddr = quoted->daddr;
    ip->daddr = quoted->saddr;
    __builtin_memset(icmp, 0, sizeof(*icmp));
    icmp->type = ICMPV6_TOO_BIG;
    icmp->sequence = bpf_htons(fits);
    sum = pseudo_sum_ipv6(ip, IPPROTO_ICMPV6, message_bytes);
    sum += (__u32)bpf_csum_diff(NULL, 0, (__be32 *)icmp, message_bytes, 0);
    icmp->checksum = checksum_fold(sum);
    return XDP_TX;
}

static __always_inline int answer_too_big(struct xdp_md *ctx, __u16 family, __u32 fits)
{
    return family == AF_INET ? answer_too_big_ipv4(ctx, fits) : answer_too_big_ipv6(ctx, fits);
}
