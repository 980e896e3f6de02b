// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The Internet checksum (RFC 1071) and its incremental update (RFC 1624, equation 3).
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>

#include "xdp.h"

// Adds the carries back until 16 bits remain. Four rounds are enough for a 64-bit sum.
static __always_inline __u16 checksum_fold(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return ~sum;
}

// The checksum after one 16-bit word changed from `before` to `after`.
static __always_inline __u16 checksum_replace(__u16 checksum, __u16 before, __u16 after)
{
    __u32 sum = (__u16)~checksum + (__u16)~before + after;

    sum = (sum & 0xffff) + (sum >> 16);
    return ~(sum + (sum >> 16));
}

// Of an IPv4 header without options whose `check` field is 0.
static __always_inline __u16 ipv4_checksum(struct iphdr *ip)
{
    const __u16 *words = (const __u16 *)ip;
    __u64 sum = 0;

#pragma unroll
    for (int i = 0; i < 10; i++)
        sum += words[i];
    return checksum_fold(sum);
}

// One router hop: TTL down by one, checksum to match. The TTL is the high byte of its word.
static __always_inline void ipv4_decrease_ttl(struct iphdr *ip)
{
    __u32 sum = ip->check + bpf_htons(0x0100);

    ip->check = sum + (sum >= 0xffff);
    ip->ttl--;
}

// Pseudo-header sums that TCP and UDP start from (RFC 9293, 3.1; RFC 8200, 8.1).
static __always_inline __u64 pseudo_sum_ipv4(struct iphdr *ip, __u16 length)
{
    return (__u64)ip->saddr + ip->daddr + bpf_htons(length) + bpf_htons(ip->protocol);
}

static __always_inline __u64 pseudo_sum_ipv6(struct ipv6hdr *ip, __u8 protocol, __u32 length)
{
    __u64 sum = bpf_htonl(length) + (__u64)bpf_htonl(protocol);

#pragma unroll
    for (int i = 0; i < 4; i++) {
        sum += ip->saddr.in6_u.u6_addr32[i];
        sum += ip->daddr.in6_u.u6_addr32[i];
    }
    return sum;
}
