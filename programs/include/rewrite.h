// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Edits that turn a request into its reply.
#pragma once

#include "parse.h"

static __always_inline void swap_mac(struct ethhdr *ethernet)
{
    __u8 mac[ETH_ALEN];

    __builtin_memcpy(mac, ethernet->h_source, ETH_ALEN);
    __builtin_memcpy(ethernet->h_source, ethernet->h_dest, ETH_ALEN);
    __builtin_memcpy(ethernet->h_dest, mac, ETH_ALEN);
}

// Swapping two words of a sum leaves the sum as it is: no checksum to update.
static __always_inline void swap_ipv4(struct iphdr *ip)
{
    __be32 source = ip->saddr;

    ip->saddr = ip->daddr;
    ip->daddr = source;
}

static __always_inline void swap_ipv6(struct ipv6hdr *ip)
{
    struct in6_addr source = ip->saddr;

    ip->saddr = ip->daddr;
    ip->daddr = source;
}
