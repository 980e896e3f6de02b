// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// ICMP and ICMPv6 (RFC 792, RFC 4443): one header, two sets of numbers. The kernel's own headers
// for them include what no BPF target has.
#pragma once

#include "checksum.h"

#define ICMP_ECHO_REPLY 0
#define ICMP_UNREACHABLE 3
#define ICMP_FRAGMENTATION_NEEDED 4 // code of ICMP_UNREACHABLE
#define ICMP_ECHO_REQUEST 8
#define ICMP_TIME_EXCEEDED 11
#define ICMPV6_UNREACHABLE 1
#define ICMPV6_TOO_BIG 2
#define ICMPV6_TIME_EXCEEDED 3
#define ICMPV6_ERROR_LAST 4 // below 128, RFC 4443 has errors only
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

struct icmp_header {
    __u8 type;
    __u8 code;
    __u16 checksum;
    __be16 id;       // of an echo; what of an error is in its first 16 bits
    __be16 sequence; // the size that fits, in errors about size
};

// Turns an echo request into its reply; false if it is none.
static __always_inline bool answer_echo(struct icmp_header *echo, __u8 request, __u8 reply)
{
    if (!echo || echo->type != request || echo->code != 0)
        return false;
    echo->checksum = checksum_replace(echo->checksum, bpf_htons(request << 8),
                                      bpf_htons(reply << 8));
    echo->type = reply;
    return true;
}
