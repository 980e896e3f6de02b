// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// The headers that vip_balancer puts around a packet: IP alone (RFC 2003, RFC 2473), or IP and UDP
// (GUE, variant 1 of draft-ietf-intarea-gue: the inner packet follows at once).
#pragma once

#include "checksum.h"
#include "hash.h"

#define GUE_PORT 6080
#define OUTER_TTL 64

// A server behind a virtual address.
struct real {
    struct in6_addr address;
    __u16 family;
    __u16 zero;
};

struct gateway {
    __u8 mac[ETH_ALEN];
    __u8 zero[2];
};

// What the outer headers have to say.
struct outer {
    struct in6_addr source;
    const struct gateway *gateway;
    __u32 hash;
    __u16 bytes; // of the packet inside
    __u8 tos;
    bool is_ipv4_inside;
    bool is_gue;
};

static __always_inline void write_outer_ethernet(struct ethhdr *to, const __u8 *own_mac,
                                                 const struct outer *outer, __u16 ethertype)
{
    __builtin_memcpy(to->h_source, own_mac, ETH_ALEN);
    __builtin_memcpy(to->h_dest, outer->gateway->mac, ETH_ALEN);
    to->h_proto = bpf_htons(ethertype);
}

// The source port carries the flow's hash, for whatever spreads frames on the way.
static __always_inline void write_udp(struct udphdr *udp, const struct outer *outer)
{
    udp->source = bpf_htons(0x8000 | (outer->hash & 0x7fff));
    udp->dest = bpf_htons(GUE_PORT);
    udp->len = bpf_htons(outer->bytes + sizeof(*udp));
    udp->check = 0;
}

// Makes room for the outer headers. Returns what the frame was addressed to, or NULL.
static __always_inline bool make_room(struct xdp_md *ctx, __u32 bytes, __u8 *own_mac)
{
    struct ethhdr *ethernet = (void *)(long)ctx->data;

    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return false;
    __builtin_memcpy(own_mac, ethernet->h_dest, ETH_ALEN);
    return bpf_xdp_adjust_head(ctx, -(int)bytes) == 0;
}

static __always_inline int encapsulate_ipv4(struct xdp_md *ctx, const struct real *real,
                                            const struct outer *outer)
{
    __u32 udp_bytes = outer->is_gue ? sizeof(struct udphdr) : 0;
    struct ethhdr *ethernet;
    __u8 own_mac[ETH_ALEN];
    struct cursor cursor;
    struct iphdr *ip;

    if (!make_room(ctx, sizeof(*ip) + udp_bytes, own_mac))
        return XDP_DROP;
    cursor = cursor_at_start(ctx);
    ethernet = TAKE(&cursor, struct ethhdr);
    ip = TAKE(&cursor, struct iphdr);
    if (!ethernet || !ip)
        return XDP_DROP;
    write_outer_ethernet(ethernet, own_mac, outer, ETH_P_IP);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 4;
    ip->ihl = 5;
    ip->tos = outer->tos;
    ip->tot_len = bpf_htons(outer->bytes + udp_bytes + sizeof(*ip));
    ip->ttl = OUTER_TTL;
    ip->protocol = outer->is_gue ? IPPROTO_UDP : IPPROTO_IPIP;
    ip->saddr = ipv4_of(&outer->source);
    if (!outer->is_gue)
        ip->saddr ^= bpf_htonl(outer->hash & 0xffff); // receivers spread IPIP by its addresses
    ip->daddr = ipv4_of(&real->address);
    ip->check = ipv4_checksum(ip);
    if (outer->is_gue) {
        struct udphdr *udp = TAKE(&cursor, struct udphdr);

        if (!udp)
            return XDP_DROP;
        write_udp(udp, outer);
    }
    return XDP_TX;
}

static __always_inline int encapsulate_ipv6(struct xdp_md *ctx, const struct real *real,
                                            const struct outer *outer)
{
    __u32 udp_bytes = outer->is_gue ? sizeof(struct udphdr) : 0;
    struct ethhdr *ethernet;
    __u8 own_mac[ETH_ALEN];
    struct cursor cursor;
    struct ipv6hdr *ip;

    if (!make_room(ctx, sizeof(*ip) + udp_bytes, own_mac))
        return XDP_DROP;
    cursor = cursor_at_start(ctx);
    ethernet = TAKE(&cursor, struct ethhdr);
    ip = TAKE(&cursor, struct ipv6hdr);
    if (!ethernet || !ip)
        return XDP_DROP;
    write_outer_ethernet(ethernet, own_mac, outer, ETH_P_IPV6);
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 6;
    ip->priority = outer->tos >> 4;
    ip->flow_lbl[0] = outer->tos << 4;
    ip->payload_len = bpf_htons(outer->bytes + udp_bytes);
    ip->hop_limit = OUTER_TTL;
    ip->nexthdr = outer->is_gue            ? IPPROTO_UDP
                  : outer->is_ipv4_inside ? IPPROTO_IPIP
                                           : IPPROTO_IPV6;
    ip->saddr = outer->source;
    if (!outer->is_gue)
        ip->saddr.in6_u.u6_addr32[2] = bpf_htonl(outer->hash);
    ip->daddr = real->address;
    if (outer->is_gue) {
        struct udphdr *udp = TAKE(&cursor, struct udphdr);

        if (!udp)
            return XDP_DROP;
        write_udp(udp, outer);
    }
    return XDP_TX;
}
