// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Header parsers: each takes a cursor, returns the header or NULL, and leaves the cursor behind it.
// They are inlined so that the verifier sees one straight path from the comparison to the access.
#pragma once

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "xdp.h"

#ifndef VLAN_DEPTH_MAX
#define VLAN_DEPTH_MAX 2 // 802.1ad outer and 802.1Q inner
#endif
#ifndef EXTENSION_HEADERS_MAX
#define EXTENSION_HEADERS_MAX 4 // longer chains are treated as an unknown protocol
#endif

#define IPV4_OFFSET_MASK 0x1fff
#define IPV4_MORE_FRAGMENTS 0x2000

struct vlan_header {
    __be16 tci;
    __be16 protocol;
};

// IPv6 extension headers share their first two bytes (RFC 8200, 4.3, 4.4, 4.6; RFC 4302 for AH).
struct extension_header {
    __u8 next;
    __u8 length; // in units of 8 bytes, not counting the first 8 (AH: units of 4, minus 2)
};

struct fragment_header {
    __u8 next;
    __u8 reserved;
    __be16 offset_and_more;
    __be32 id;
};

struct ports {
    __be16 source;
    __be16 dest;
};

// Addresses of both families in one form: IPv4 as an IPv4-mapped address (RFC 4291, 2.5.5.2).
static __always_inline void set_ipv4(struct in6_addr *address, __be32 ipv4)
{
    address->in6_u.u6_addr32[0] = 0;
    address->in6_u.u6_addr32[1] = 0;
    address->in6_u.u6_addr32[2] = bpf_htonl(0xffff);
    address->in6_u.u6_addr32[3] = ipv4;
}

static __always_inline __be32 ipv4_of(const struct in6_addr *address)
{
    return address->in6_u.u6_addr32[3];
}

// The five-tuple, laid out without holes because it is a map key.
struct flow {
    struct in6_addr source;
    struct in6_addr dest;
    __be16 source_port;
    __be16 dest_port;
    __u16 protocol;
    __u16 family;
};
_Static_assert(sizeof(struct flow) == 40, "a map key has no padding");

// What the network layer said about the transport layer behind it.
struct network {
    __u16 ethertype;  // host order, after VLAN tags
    __u16 bytes;      // of the whole IP packet, by its own header; padding is not counted
    __u8 protocol;    // of the transport header
    bool is_fragment; // any fragment, the first included
    bool has_ports;   // false for later fragments and portless protocols
};

// Ethernet and up to VLAN_DEPTH_MAX tags. `ethertype` is in host order.
static __always_inline struct ethhdr *parse_ethernet(struct cursor *cursor, __u16 *ethertype)
{
    struct ethhdr *ethernet = TAKE(cursor, struct ethhdr);
    __be16 protocol;

    if (!ethernet)
        return NULL;
    protocol = ethernet->h_proto;
#pragma unroll
    for (int depth = 0; depth < VLAN_DEPTH_MAX; depth++) {
        struct vlan_header *tag;

        if (protocol != bpf_htons(ETH_P_8021Q) && protocol != bpf_htons(ETH_P_8021AD))
            break;
        tag = TAKE(cursor, struct vlan_header);
        if (!tag)
            return NULL;
        protocol = tag->protocol;
    }
    *ethertype = bpf_ntohs(protocol);
    return ethernet;
}

// IPv4 with its options stepped over.
static __always_inline struct iphdr *parse_ipv4(struct cursor *cursor)
{
    struct iphdr *ip = TAKE(cursor, struct iphdr);

    if (!ip || ip->version != 4 || ip->ihl < 5)
        return NULL;
    if (!take(cursor, (ip->ihl * 4 - sizeof(*ip)) & 0x3f))
        return NULL;
    return ip;
}

// IPv6 with its extension headers stepped over; `network` receives the transport protocol.
static __always_inline struct ipv6hdr *parse_ipv6(struct cursor *cursor, struct network *network)
{
    struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);
    __u8 next;

    if (!ip || ip->version != 6)
        return NULL;
    next = ip->nexthdr;
#pragma unroll
    for (int depth = 0; depth < EXTENSION_HEADERS_MAX; depth++) {
        struct extension_header *extension;
        struct fragment_header *fragment;

        switch (next) {
        case IPPROTO_HOPOPTS:
        case IPPROTO_ROUTING:
        case IPPROTO_DSTOPTS:
            extension = TAKE(cursor, struct extension_header);
            if (!extension || !take(cursor, extension->length * 8 + 6))
                return NULL;
            next = extension->next;
            break;
        case IPPROTO_FRAGMENT:
            fragment = TAKE(cursor, struct fragment_header);
            if (!fragment)
                return NULL;
            network->is_fragment = true;
            if (fragment->offset_and_more & bpf_htons(0xfff8))
                network->has_ports = false;
            next = fragment->next;
            break;
        default:
            goto done;
        }
    }
done:
    network->protocol = next;
    return ip;
}

static __always_inline bool protocol_has_ports(__u8 protocol)
{
    return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP;
}

// Fills `flow` from the network header on. Returns 0, or -1 for what is neither IPv4 nor IPv6 or
// is cut short. Ports stay 0 where there are none to be had.
static __always_inline int parse_flow(struct cursor *cursor, struct network *network,
                                      struct flow *flow)
{
    network->is_fragment = false;
    network->has_ports = true;
    if (network->ethertype == ETH_P_IP) {
        struct iphdr *ip = parse_ipv4(cursor);

        if (!ip)
            return -1;
        flow->family = AF_INET;
        set_ipv4(&flow->source, ip->saddr);
        set_ipv4(&flow->dest, ip->daddr);
        network->protocol = ip->protocol;
        network->bytes = bpf_ntohs(ip->tot_len);
        network->is_fragment = ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS);
        network->has_ports = !(ip->frag_off & bpf_htons(IPV4_OFFSET_MASK));
    } else if (network->ethertype == ETH_P_IPV6) {
        struct ipv6hdr *ip = parse_ipv6(cursor, network);

        if (!ip)
            return -1;
        flow->family = AF_INET6;
        network->bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
        flow->source = ip->saddr;
        flow->dest = ip->daddr;
    } else {
        return -1;
    }
    flow->protocol = network->protocol;
    if (network->has_ports && protocol_has_ports(network->protocol)) {
        struct ports *ports = cursor->pos;

        if ((void *)(ports + 1) > cursor->end)
            return -1;
        flow->source_port = ports->source;
        flow->dest_port = ports->dest;
    } else {
        network->has_ports = false;
    }
    return 0;
}

// Ethernet to five-tuple in one go, for programs that need no header in between.
static __always_inline int parse_frame(struct cursor *cursor, struct network *network,
                                       struct flow *flow)
{
    if (!parse_ethernet(cursor, &network->ethertype))
        return -1;
    return parse_flow(cursor, network, flow);
}
