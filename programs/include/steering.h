// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What a transport header tells a load balancer beyond its ports: whether a conversation begins,
// and, with UNROLLED, which backend the client was told to name: in a TCP option, or in the first
// bytes of a QUIC connection ID. Those survive a client's change of address, which a hash does not.
#pragma once

#include "parse.h"

#define STEERING_TCP_OPTION 0xb7 // experimental: kind, length 6, backend number (big endian)
#define STEERING_QUIC_VERSION 0x77
#define QUIC_LONG_HEADER 0x80
#define QUIC_FIXED_BIT 0x40
#define QUIC_PORT 443

// `cursor` stands at the transport header.
static __always_inline bool is_first_segment(struct cursor *cursor, const struct flow *flow)
{
    struct tcphdr *tcp = cursor->pos;

    if (flow->protocol != IPPROTO_TCP || (void *)(tcp + 1) > cursor->end)
        return false;
    return tcp->syn && !tcp->ack;
}

#ifdef UNROLLED

// clang gives up unrolling a loop as large as these; the preprocessor does not.
#define TIMES_4(step) step step step step
#define TIMES_8(step) TIMES_4(step) TIMES_4(step)
#define TIMES_24(step) TIMES_8(step) TIMES_8(step) TIMES_8(step)

// 0 for the two kinds that are one byte and carry no length (RFC 9293, 3.1).
static const __u8 has_length[256] = {[2 ... 255] = 0xff};

// One option: the walk's state is where it stands and how many bytes are left.
struct option_walk {
    __u8 *pos;
    __u32 left;
};

// Looks at one TCP option (RFC 9293, 3.2). 1 found, 0 go on, -1 end or malformed. Padding steps on
// through the same arithmetic as every other kind: one path per option, or the verifier would
// follow 2^24 of them.
static __always_inline int tcp_option(struct option_walk *walk, void *end, __u32 *number)
{
    __u8 *option = walk->pos;
    __u32 mask, step;

    if (walk->left < 2 || (void *)(option + 2) > end)
        return -1;
    mask = has_length[option[0]];
    step = (option[1] & mask) | (~mask & 1);
    if (step == 0 || step > walk->left)
        return -1;
    if (option[0] == STEERING_TCP_OPTION && (void *)(option + 6) <= end) {
        *number = (__u32)option[2] << 24 | option[3] << 16 | option[4] << 8 | option[5];
        return 1;
    }
    walk->pos += step;
    walk->left -= step;
    return 0;
}

static __always_inline bool tcp_steering_number(struct cursor *cursor, __u32 *number)
{
    struct tcphdr *tcp = cursor->pos;
    struct option_walk walk;
    int found = 0;

    if ((void *)(tcp + 1) > cursor->end || tcp->doff < 5)
        return false;
    walk.pos = (__u8 *)(tcp + 1);
    walk.left = tcp->doff * 4 - sizeof(*tcp);
    TIMES_24(if (!found) found = tcp_option(&walk, cursor->end, number);)
    return found > 0;
}

// A short-header packet (RFC 9000, 17.3) starts with the connection ID that the server issued:
// version byte, then the backend's number.
static __always_inline bool quic_steering_number(struct cursor *cursor, const struct flow *flow,
                                                 __u32 *number)
{
    __u8 *payload = cursor->pos + sizeof(struct udphdr);

    if (flow->dest_port != bpf_htons(QUIC_PORT) || (void *)(payload + 6) > cursor->end)
        return false;
    if ((payload[0] & QUIC_LONG_HEADER) || !(payload[0] & QUIC_FIXED_BIT))
        return false;
    if (payload[1] != STEERING_QUIC_VERSION)
        return false;
    *number = (__u32)payload[2] << 24 | payload[3] << 16 | payload[4] << 8 | payload[5];
    return true;
}

static __always_inline bool steering_number(struct cursor *cursor, const struct flow *flow,
                                            __u32 *number)
{
    if (flow->protocol == IPPROTO_TCP)
        return tcp_steering_number(cursor, number);
    if (flow->protocol == IPPROTO_UDP)
        return quic_steering_number(cursor, flow, number);
    return false;
}

#else

static __always_inline bool steering_number(struct cursor *cursor, const struct flow *flow,
                                            __u32 *number)
{
    (void)cursor, (void)flow, (void)number;
    return false;
}

#endif
