// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// How urgent a packet says that it is.
#pragma once

#include "parse.h"

// The upper three bits of what IPv4 calls TOS and IPv6 traffic class (RFC 2474, section 4.2.2); 0
// for other packets.
static __always_inline __u32 precedence_of(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u16 ethertype;

    if (!parse_ethernet(&cursor, &ethertype))
        return 0;
    if (ethertype == ETH_P_IP) {
        struct iphdr *ip = TAKE(&cursor, struct iphdr);

        return ip ? ip->tos >> 5 : 0;
    }
    if (ethertype == ETH_P_IPV6) {
        struct ipv6hdr *ip = TAKE(&cursor, struct ipv6hdr);

        return ip ? ip->priority >> 1 : 0;
    }
    return 0;
}
