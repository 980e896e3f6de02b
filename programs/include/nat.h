// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Rewriting a packet so that it belongs to another flow: addresses, ports and the checksums that
// cover them (RFC 1624). Both flows are of the same family and protocol.
#pragma once

#include "icmp.h"
#include "parse.h"

// How the sum under a transport checksum changes when one flow becomes another. In IPv4 the same
// change, less the ports, is that of the header.
struct change {
    __u64 addresses;
    __u64 ports;
};

static __always_inline __u64 word_change(__u32 before, __u32 after)
{
    return (__u64)(__u32)~before + after;
}

static __always_inline struct change flow_change(const struct flow *before,
                                                 const struct flow *after)
{
    struct change change = {};

    if (before->family == AF_INET) {
        change.addresses = word_change(ipv4_of(&before->source), ipv4_of(&after->source));
        change.addresses += word_change(ipv4_of(&before->dest), ipv4_of(&after->dest));
    } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            change.addresses += word_change(before->source.in6_u.u6_addr32[i],
                                            after->source.in6_u.u6_addr32[i]);
            change.addresses += word_change(before->dest.in6_u.u6_addr32[i],
                                            after->dest.in6_u.u6_addr32[i]);
        }
    }
    change.ports = (__u64)(__u16)~before->source_port + after->source_port;
    change.ports += (__u64)(__u16)~before->dest_port + after->dest_port;
    return change;
}

static __always_inline __u16 checksum_change(__u16 checksum, __u64 change)
{
    return checksum_fold((__u16)~checksum + change);
}

// The transport header, at the cursor. Returns false when the frame ends before it does.
static __always_inline bool rewrite_transport(struct cursor *cursor, const struct flow *after,
                                              const struct change *change)
{
    struct icmp_header *icmp;
    struct udphdr *udp;
    struct tcphdr *tcp;

    switch (after->protocol) {
    case IPPROTO_TCP:
        tcp = TAKE(cursor, struct tcphdr);
        if (!tcp)
            return false;
        tcp->source = after->source_port;
        tcp->dest = after->dest_port;
        tcp->check = checksum_change(tcp->check, change->addresses + change->ports);
        return true;
    case IPPROTO_UDP:
        udp = TAKE(cursor, struct udphdr);
        if (!udp)
            return false;
        udp->source = after->source_port;
        udp->dest = after->dest_port;
        if (udp->check) // 0 is "none" (RFC 768)
            udp->check = checksum_change(udp->check, change->addresses + change->ports) ?: 0xffff;
        return true;
    case IPPROTO_ICMP: // an echo's id is its flow's port, the source's or the destination's
        icmp = TAKE(cursor, struct icmp_header);
        if (!icmp)
            return false;
        icmp->id = icmp->type == ICMP_ECHO_REPLY ? after->dest_port : after->source_port;
        icmp->checksum = checksum_change(icmp->checksum, change->ports);
        return true;
    case IPPROTO_ICMPV6:
        icmp = TAKE(cursor, struct icmp_header);
        if (!icmp)
            return false;
        icmp->id = icmp->type == ICMPV6_ECHO_REPLY ? after->dest_port : after->source_port;
        icmp->checksum = checksum_change(icmp->checksum, change->addresses + change->ports);
        return true;
    default:
        return false;
    }
}

// The packet behind the Ethernet header. The cursor stands there.
static __always_inline bool rewrite_flow(struct cursor *cursor, const struct flow *before,
                                         const struct flow *after)
{
    struct change change = flow_change(before, after);
    struct network network = {};
    struct ipv6hdr *ipv6;
    struct iphdr *ipv4;

    if (before->family == AF_INET) {
        ipv4 = parse_ipv4(cursor);
        if (!ipv4)
            return false;
        ipv4->saddr = ipv4_of(&after->source);
        ipv4->daddr = ipv4_of(&after->dest);
        ipv4->check = checksum_change(ipv4->check, change.addresses);
    } else {
        ipv6 = parse_ipv6(cursor, &network);
        if (!ipv6)
            return false;
        ipv6->saddr = after->source;
        ipv6->daddr = after->dest;
    }
    return rewrite_transport(cursor, after, &change);
}
