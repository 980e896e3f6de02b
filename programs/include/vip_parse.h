// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What vip_balancer reads of a packet: the flow it belongs to, and the server that it names itself.
// An ICMP error belongs to the flow of the packet that it quotes.
#pragma once

#include "icmp.h"
#include "rewrite.h"

#define GO_ON (-1) // no verdict yet

#define PACKET_SYN 1    // opens a connection
#define PACKET_QUOTED 2 // the flow is that of a packet inside an ICMP error

#define TCP_OPTION_END 0
#define TCP_OPTION_NOTHING 1
#define TCP_OPTION_SERVER_ID 0xb7 // experimental: kind, length 6, id (big endian)
#define TCP_OPTIONS_MAX 12

#define QUIC_LONG 0x80
#define QUIC_TYPE 0x30
#define QUIC_TYPE_HANDSHAKE 0x20 // before, the client has made the id up

struct packet {
    struct flow flow; // as the client sends it, whichever header it was read from
    __u16 bytes;      // of the whole IP packet
    __u8 tos;
    __u8 notes;
};

// A short header is followed by the connection id; a long one by version and length, too.
struct quic_long {
    __u8 flags;
    __be32 version;
    __u8 id_bytes;
    __u8 id[4];
} __attribute__((packed));

struct quic_short {
    __u8 flags;
    __u8 id[4];
};

// The server in a connection id, by the two bits in front: 1 is an id of 16 bits, 2 one of 24.
static __always_inline __u32 id_in_connection(const __u8 *id)
{
    switch (id[0] >> 6) {
    case 1:
        return (id[0] & 0x3f) << 10 | id[1] << 2 | id[2] >> 6;
    case 2:
        return id[1] << 16 | id[2] << 8 | id[3];
    default:
        return 0;
    }
}

// The server that a QUIC packet names, or 0. `cursor` stands at the UDP header.
static __always_inline __u32 quic_server_id(struct cursor *cursor)
{
    struct cursor at = *cursor;
    struct quic_short *with_short;
    struct quic_long *with_long;

    if (!TAKE(&at, struct udphdr))
        return 0;
    with_long = at.pos;
    with_short = TAKE(&at, struct quic_short);
    if (!with_short)
        return 0;
    if (!(with_short->flags & QUIC_LONG))
        return id_in_connection(with_short->id);
    if ((void *)(with_long + 1) > cursor->end || with_long->id_bytes < sizeof(with_long->id))
        return 0;
    if ((with_long->flags & QUIC_TYPE) < QUIC_TYPE_HANDSHAKE)
        return 0;
    return id_in_connection(with_long->id);
}

// The server that an option names, or 0. `cursor` stands at the TCP header.
static __always_inline __u32 tcp_server_id(struct cursor *cursor)
{
    struct tcphdr *tcp = cursor->pos;
    __u8 *option = (__u8 *)(tcp + 1);
    __u32 left;

    if ((void *)(tcp + 1) > cursor->end || tcp->doff < 5)
        return 0;
    left = tcp->doff * 4 - sizeof(*tcp);
    for (int i = 0; i < TCP_OPTIONS_MAX; i++) {
        __u32 step = 1;

        if (left < 6 || (void *)(option + 6) > cursor->end || option[0] == TCP_OPTION_END)
            return 0;
        if (option[0] == TCP_OPTION_SERVER_ID && option[1] == 6)
            return (__u32)option[2] << 24 | option[3] << 16 | option[4] << 8 | option[5];
        if (option[0] != TCP_OPTION_NOTHING)
            step = option[1];
        if (step == 0 || step > left)
            return 0;
        left -= step;
        option += step;
    }
    return 0;
}

static __always_inline int read_ports(struct cursor *cursor, struct packet *packet)
{
    struct ports *ports = cursor->pos;
    struct tcphdr *tcp = cursor->pos;
    bool is_quoted = packet->notes & PACKET_QUOTED;

    if (packet->flow.protocol != IPPROTO_TCP && packet->flow.protocol != IPPROTO_UDP)
        return XDP_PASS;
    if ((void *)(ports + 1) > cursor->end)
        return XDP_DROP;
    packet->flow.source_port = is_quoted ? ports->dest : ports->source;
    packet->flow.dest_port = is_quoted ? ports->source : ports->dest;
    if (packet->flow.protocol == IPPROTO_UDP || is_quoted)
        return GO_ON;
    if ((void *)(tcp + 1) > cursor->end)
        return XDP_DROP;
    if (tcp->syn && !tcp->ack)
        packet->notes |= PACKET_SYN;
    return GO_ON;
}

static __always_inline int answer_ping_ipv4(struct ethhdr *ethernet, struct iphdr *ip)
{
    ip->check = checksum_replace(ip->check, bpf_htons(ip->ttl << 8), bpf_htons(64 << 8));
    ip->ttl = 64;
    swap_ipv4(ip);
    swap_mac(ethernet);
    return XDP_TX;
}

static __always_inline int answer_ping_ipv6(struct ethhdr *ethernet, struct ipv6hdr *ip)
{
    ip->hop_limit = 64;
    swap_ipv6(ip);
    swap_mac(ethernet);
    return XDP_TX;
}

// An error about a packet that a real server sent, from the virtual address, to the client.
static __always_inline int read_quoted_ipv4(struct cursor *cursor, struct packet *packet)
{
    struct iphdr *quoted = TAKE(cursor, struct iphdr);

    if (!quoted || quoted->ihl != 5)
        return XDP_DROP;
    packet->notes |= PACKET_QUOTED;
    packet->flow.protocol = quoted->protocol;
    set_ipv4(&packet->flow.source, quoted->daddr);
    set_ipv4(&packet->flow.dest, quoted->saddr);
    return GO_ON;
}

static __always_inline int read_quoted_ipv6(struct cursor *cursor, struct packet *packet)
{
    struct ipv6hdr *quoted = TAKE(cursor, struct ipv6hdr);

    if (!quoted)
        return XDP_DROP;
    packet->notes |= PACKET_QUOTED;
    packet->flow.protocol = quoted->nexthdr;
    packet->flow.source = quoted->daddr;
    packet->flow.dest = quoted->saddr;
    return GO_ON;
}

static __always_inline int read_ipv4(struct ethhdr *ethernet, struct cursor *cursor,
                                     struct packet *packet)
{
    struct iphdr *ip = TAKE(cursor, struct iphdr);
    struct icmp_header *icmp;

    if (!ip || ip->ihl != 5)
        return XDP_DROP;
    if (ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
        return XDP_PASS; // without ports
    packet->flow.family = AF_INET;
    packet->flow.protocol = ip->protocol;
    packet->tos = ip->tos;
    packet->bytes = bpf_ntohs(ip->tot_len);
    if (packet->bytes > cursor->end - (void *)ip)
        return XDP_DROP;
    if (ip->protocol != IPPROTO_ICMP) {
        set_ipv4(&packet->flow.source, ip->saddr);
        set_ipv4(&packet->flow.dest, ip->daddr);
        return GO_ON;
    }
    icmp = TAKE(cursor, struct icmp_header);
    if (!icmp)
        return XDP_DROP;
    if (answer_echo(icmp, ICMP_ECHO_REQUEST, ICMP_ECHO_REPLY))
        return answer_ping_ipv4(ethernet, ip);
    if (icmp->type != ICMP_UNREACHABLE && icmp->type != ICMP_TIME_EXCEEDED)
        return XDP_PASS;
    return read_quoted_ipv4(cursor, packet);
}

static __always_inline int read_ipv6(struct ethhdr *ethernet, struct cursor *cursor,
                                     struct packet *packet)
{
    struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);
    struct icmp_header *icmp;

    if (!ip)
        return XDP_DROP;
    if (ip->nexthdr == IPPROTO_FRAGMENT)
        return XDP_PASS;
    packet->flow.family = AF_INET6;
    packet->flow.protocol = ip->nexthdr;
    packet->tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
    packet->bytes = bpf_ntohs(ip->payload_len) + sizeof(*ip);
    if (packet->bytes > cursor->end - (void *)ip)
        return XDP_DROP;
    if (ip->nexthdr != IPPROTO_ICMPV6) {
        packet->flow.source = ip->saddr;
        packet->flow.dest = ip->daddr;
        return GO_ON;
    }
    icmp = TAKE(cursor, struct icmp_header);
    if (!icmp)
        return XDP_DROP;
    if (answer_echo(icmp, ICMPV6_ECHO_REQUEST, ICMPV6_ECHO_REPLY))
        return answer_ping_ipv6(ethernet, ip);
    if (icmp->type > ICMPV6_ERROR_LAST)
        return XDP_PASS;
    return read_quoted_ipv6(cursor, packet);
}

// Fills `packet` and leaves the cursor at the transport header, or gives a verdict.
static __always_inline int read_packet(struct xdp_md *ctx, struct cursor *cursor,
                                       struct packet *packet)
{
    struct ethhdr *ethernet = TAKE(cursor, struct ethhdr);
    int verdict;

    if (!ethernet)
        return XDP_DROP;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP))
        verdict = read_ipv4(ethernet, cursor, packet);
    else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
        verdict = read_ipv6(ethernet, cursor, packet);
    else
        verdict = XDP_PASS;
    if (verdict != GO_ON)
        return verdict;
    return read_ports(cursor, packet);
}
