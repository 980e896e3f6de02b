// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// ipv6_gateway: what stands between an IPv6 network and the rest: it reads every extension header
// and option, drops what has no business there, and translates to and from IPv4.
//
// Headers are walked in a loop, each against a rule of its own; options of hop-by-hop and
// destination headers by what their type says is to be done with the unknown (RFC 8200, 4.2).
// Fragments have the ports of their first. A destination behind the translation prefix becomes
// IPv4, and IPv4 for a host that is listed becomes IPv6 (RFC 7915, addresses as in RFC 6052 and
// RFC 7757): headers are exchanged, extension headers stay behind, checksums are mended.
//
// Maps
//   headers    ARRAY         protocol number -> what to do with a header of it
//   fragments  LRU_HASH      {addresses, id} -> ports
//   hosts_v6   HASH          IPv6 address -> its IPv4 address
//   hosts_v4   HASH          IPv4 address -> its IPv6 address
//   results    PERCPU_ARRAY  enum result -> packets, bytes
//   depths     PERCPU_ARRAY  number of extension headers -> packets
//
// Configure  prefix (64:ff9b::/96), drop_unlisted: no header whose rule is 0
// Verdicts   XDP_PASS read and fine; XDP_TX translated; XDP_DROP refused or malformed.
#include "icmp.h"
#include "parse.h"
#include "rewrite.h"

#define HEADERS_MAX 8
#define OPTIONS_MAX 12
#define CHAIN_BYTES_MAX 512
#define HEADERS_AT (sizeof(struct ethhdr) + sizeof(struct ipv6hdr)) // where they begin in a frame
#define FRAGMENTS_MAX 8192
#define HOSTS_MAX 4096

#define OPTION_PAD1 0
#define OPTION_PADN 1
#define OPTION_ROUTER_ALERT 5
#define OPTION_ACTION(type) ((type) >> 6) // 0: skip the unknown, else drop the packet

enum rule {
    RULE_UNLISTED,
    RULE_ALLOW,
    RULE_DROP,
    RULE_FIRST_ONLY, // allowed right behind the IPv6 header
    RULE_OPTIONS,    // allowed, if its options are
};

enum result {
    RESULT_PASSED,
    RESULT_TO_IPV4,
    RESULT_TO_IPV6,
    RESULT_REFUSED_HEADER,
    RESULT_REFUSED_OPTION,
    RESULT_TOO_MANY,
    RESULT_FRAGMENT_ALONE,
    RESULT_MALFORMED,
    RESULT_NO_HOST,
    RESULT_COUNT,
};

struct fragment_key {
    struct in6_addr source;
    struct in6_addr dest;
    __be32 id;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, __u32);
} headers SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, FRAGMENTS_MAX);
    __type(key, struct fragment_key);
    __type(value, struct ports);
} fragments SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, HOSTS_MAX);
    __type(key, struct in6_addr);
    __type(value, __be32);
} hosts_v6 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, HOSTS_MAX);
    __type(key, __be32);
    __type(value, struct in6_addr);
} hosts_v4 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, struct counter);
} results SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, HEADERS_MAX + 1);
    __type(key, __u32);
    __type(value, __u64);
} depths SEC(".maps");

const volatile __be32 prefix[3] = {bpf_htonl(0x0064ff9b), 0, 0};
const volatile bool drop_unlisted = true;

// The walk along the extension headers.
struct chain {
    __u32 offset; // of the header it stands at, from the first behind the IPv6 header
    __u32 depth;  // headers so far
    __u8 next;    // protocol number of that header
    __u8 is_fragment;
    __u8 is_later_fragment;
    __u8 zero;
    __be32 fragment_id;
    struct ports ports;
};

static __always_inline int finish(struct xdp_md *ctx, __u32 result, int verdict)
{
    struct counter *total = bpf_map_lookup_elem(&results, &result);

    if (total)
        count(total, linear_bytes(ctx));
    return verdict;
}

// Looks at the options of one header of `bytes` that starts at `offset` of the frame. A function of
// its own, which is verified once: inlined, its paths would be those of each header times those of
// each option.
__noinline __u32 read_options(struct xdp_md *ctx, __u32 offset, __u32 bytes)
{
    void *end = (void *)(long)ctx->data_end;
    void *start = (void *)(long)ctx->data;
    __u32 at = 2;

    if (offset > HEADERS_AT + CHAIN_BYTES_MAX)
        return RESULT_MALFORMED;
    start += offset;
    for (int i = 0; i < OPTIONS_MAX; i++) {
        __u8 *option = start + at;

        if (at >= bytes)
            return RESULT_PASSED;
        if ((void *)(option + 2) > end)
            return RESULT_MALFORMED;
        if (option[0] == OPTION_PAD1) {
            at += 1;
            continue;
        }
        if (option[0] != OPTION_PADN && option[0] != OPTION_ROUTER_ALERT &&
            OPTION_ACTION(option[0]))
            return RESULT_REFUSED_OPTION;
        at += 2 + option[1];
        if (at > CHAIN_BYTES_MAX)
            return RESULT_MALFORMED;
    }
    return at >= bytes ? RESULT_PASSED : RESULT_TOO_MANY;
}

static __always_inline bool is_extension(__u8 protocol)
{
    switch (protocol) {
    case IPPROTO_HOPOPTS:
    case IPPROTO_ROUTING:
    case IPPROTO_FRAGMENT:
    case IPPROTO_AH:
    case IPPROTO_DSTOPTS:
    case 135: // mobility (RFC 6275)
    case 139: // host identity (RFC 7401)
        return true;
    default:
        return false;
    }
}

// Reads one extension header and steps behind it. RESULT_PASSED goes on.
static __always_inline __u32 read_header(struct xdp_md *ctx, void *first, void *end,
                                         struct chain *chain)
{
    __u32 protocol = chain->next, bytes, *rule;
    struct extension_header *header;
    struct fragment_header *fragment;
    void *start;

    if (chain->offset > CHAIN_BYTES_MAX)
        return RESULT_TOO_MANY;
    start = first + chain->offset;
    header = start;
    if (start + 8 > end)
        return RESULT_MALFORMED;
    rule = bpf_map_lookup_elem(&headers, &protocol);
    if (!rule || *rule == RULE_DROP || (*rule == RULE_UNLISTED && drop_unlisted))
        return RESULT_REFUSED_HEADER;
    if (*rule == RULE_FIRST_ONLY && chain->depth)
        return RESULT_REFUSED_HEADER;
    bytes = protocol == IPPROTO_AH ? (header->length + 2) * 4 : (header->length + 1) * 8;
    if (protocol == IPPROTO_FRAGMENT) {
        fragment = start;
        bytes = sizeof(*fragment);
        chain->is_fragment = 1;
        chain->is_later_fragment = (fragment->offset_and_more & bpf_htons(0xfff8)) != 0;
        chain->fragment_id = fragment->id;
    } else if (protocol == IPPROTO_HOPOPTS || *rule == RULE_OPTIONS) {
        __u32 result = read_options(ctx, HEADERS_AT + chain->offset, bytes);

        if (result != RESULT_PASSED)
            return result;
    }
    chain->next = header->next;
    chain->offset += bytes;
    chain->depth += 1;
    return RESULT_PASSED;
}

// Walks to the transport header.
static __always_inline __u32 walk(struct xdp_md *ctx, void *first, void *end,
                                  struct chain *chain)
{
    __u32 result;

    for (int i = 0; i < HEADERS_MAX; i++) {
        if (!is_extension(chain->next))
            return RESULT_PASSED;
        result = read_header(ctx, first, end, chain);
        if (result != RESULT_PASSED)
            return result;
        if (chain->is_later_fragment)
            return RESULT_PASSED;
    }
    return is_extension(chain->next) ? RESULT_TOO_MANY : RESULT_PASSED;
}

// The ports: from the transport header, or from the first fragment's.
static __always_inline __u32 read_ports(struct ipv6hdr *ip, void *end, struct chain *chain)
{
    struct fragment_key key = {
        .source = ip->saddr,
        .dest = ip->daddr,
        .id = chain->fragment_id,
    };
    struct ports *ports;

    if (chain->is_later_fragment) {
        ports = bpf_map_lookup_elem(&fragments, &key);
        if (!ports)
            return RESULT_FRAGMENT_ALONE;
        chain->ports = *ports;
        return RESULT_PASSED;
    }
    if (!protocol_has_ports(chain->next))
        return RESULT_PASSED;
    if (chain->offset > CHAIN_BYTES_MAX)
        return RESULT_TOO_MANY;
    ports = (void *)(ip + 1) + chain->offset;
    if ((void *)(ports + 1) > end)
        return RESULT_MALFORMED;
    chain->ports = *ports;
    if (chain->is_fragment)
        bpf_map_update_elem(&fragments, &key, &chain->ports, BPF_ANY);
    return RESULT_PASSED;
}

static __always_inline void count_depth(__u32 depth)
{
    __u64 *packets = bpf_map_lookup_elem(&depths, &depth);

    if (packets)
        *packets += 1;
}

static __always_inline __u64 sum_of_address(const struct in6_addr *address)
{
    __u64 sum = 0;

#pragma unroll
    for (int i = 0; i < 4; i++)
        sum += address->in6_u.u6_addr32[i];
    return sum;
}

// Mends the transport checksum: `before` and `after` are the sums of the addresses in the pseudo
// header. ICMP has a pseudo header in IPv6 only, and other numbers for its types.
static __always_inline bool mend(struct cursor *cursor, __u8 protocol, __u64 before, __u64 after,
                                 __u16 bytes)
{
    struct icmp_header *icmp;
    struct udphdr *udp;
    struct tcphdr *tcp;
    __u64 sum = after;

    switch (protocol) {
    case IPPROTO_TCP:
        tcp = TAKE(cursor, struct tcphdr);
        if (!tcp)
            return false;
        sum += (__u16)~tcp->check + (__u64)checksum_fold(before);
        tcp->check = checksum_fold(sum);
        return true;
    case IPPROTO_UDP:
        udp = TAKE(cursor, struct udphdr);
        if (!udp || !udp->check) // IPv6 has no packets without; to make it up takes all bytes
            return false;
        sum += (__u16)~udp->check + (__u64)checksum_fold(before);
        udp->check = checksum_fold(sum) ?: 0xffff;
        return true;
    case IPPROTO_ICMPV6: // to IPv4
        icmp = TAKE(cursor, struct icmp_header);
        if (!icmp || (icmp->type != ICMPV6_ECHO_REQUEST && icmp->type != ICMPV6_ECHO_REPLY))
            return false;
        before += bpf_htons(bytes) + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(icmp->type << 8);
        icmp->type = icmp->type == ICMPV6_ECHO_REPLY ? ICMP_ECHO_REPLY : ICMP_ECHO_REQUEST;
        sum = (__u16)~icmp->checksum + (__u64)checksum_fold(before) + bpf_htons(icmp->type << 8);
        icmp->checksum = checksum_fold(sum);
        return true;
    case IPPROTO_ICMP: // to IPv6
        icmp = TAKE(cursor, struct icmp_header);
        if (!icmp || (icmp->type != ICMP_ECHO_REQUEST && icmp->type != ICMP_ECHO_REPLY))
            return false;
        before = bpf_htons(icmp->type << 8);
        icmp->type = icmp->type == ICMP_ECHO_REPLY ? ICMPV6_ECHO_REPLY : ICMPV6_ECHO_REQUEST;
        sum += bpf_htons(bytes) + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(icmp->type << 8);
        sum += (__u16)~icmp->checksum + (__u64)checksum_fold(before);
        icmp->checksum = checksum_fold(sum);
        return true;
    default:
        return false;
    }
}

// The Ethernet header of a frame that goes back out, moved by `change` bytes.
static __always_inline bool move_ethernet(struct xdp_md *ctx, int change, __u16 ethertype)
{
    struct ethhdr *ethernet = (void *)(long)ctx->data, before;

    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return false;
    before = *ethernet;
    if (bpf_xdp_adjust_head(ctx, change))
        return false;
    ethernet = (void *)(long)ctx->data;
    if ((void *)(ethernet + 1) > (void *)(long)ctx->data_end)
        return false;
    *ethernet = before;
    ethernet->h_proto = bpf_htons(ethertype);
    swap_mac(ethernet);
    return true;
}

static __always_inline int to_ipv4(struct xdp_md *ctx, const struct ipv6hdr *ip,
                                   const struct chain *chain)
{
    __u16 bytes = bpf_ntohs(ip->payload_len) - chain->offset;
    __u64 before = sum_of_address(&ip->saddr) + sum_of_address(&ip->daddr);
    __be32 *source = bpf_map_lookup_elem(&hosts_v6, &ip->saddr);
    __u8 hops = ip->hop_limit, protocol = chain->next;
    __u8 tos = ip->priority << 4 | ip->flow_lbl[0] >> 4;
    __be32 dest = ipv4_of(&ip->daddr), source_v4;
    struct cursor cursor;
    struct iphdr *header;

    if (!source)
        return finish(ctx, RESULT_NO_HOST, XDP_DROP);
    source_v4 = *source;
    if (chain->is_fragment || hops <= 1 || chain->offset > CHAIN_BYTES_MAX)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    if (!move_ethernet(ctx, sizeof(*ip) + chain->offset - sizeof(*header), ETH_P_IP))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    cursor = cursor_at_start(ctx);
    TAKE(&cursor, struct ethhdr);
    header = TAKE(&cursor, struct iphdr);
    if (!header)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    __builtin_memset(header, 0, sizeof(*header));
    header->version = 4;
    header->ihl = 5;
    header->tos = tos;
    header->tot_len = bpf_htons(bytes + sizeof(*header));
    header->frag_off = bpf_htons(0x4000); // do not fragment: IPv6 never does on the way
    header->ttl = hops - 1;
    header->protocol = protocol == IPPROTO_ICMPV6 ? IPPROTO_ICMP : protocol;
    header->saddr = source_v4;
    header->daddr = dest;
    header->check = ipv4_checksum(header);
    if (!mend(&cursor, protocol, before, (__u64)source_v4 + dest, bytes))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    return finish(ctx, RESULT_TO_IPV4, XDP_TX);
}

static __always_inline int to_ipv6(struct xdp_md *ctx, const struct iphdr *ip,
                                   const struct in6_addr *dest)
{
    __u16 bytes = bpf_ntohs(ip->tot_len) - sizeof(*ip);
    __u8 hops = ip->ttl, protocol = ip->protocol, tos = ip->tos;
    __u64 before = (__u64)ip->saddr + ip->daddr;
    struct in6_addr source = {}, to = *dest;
    struct ipv6hdr *header;
    struct cursor cursor;

#pragma unroll
    for (int i = 0; i < 3; i++)
        source.in6_u.u6_addr32[i] = prefix[i];
    source.in6_u.u6_addr32[3] = ip->saddr;
    if (hops <= 1)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    if (!move_ethernet(ctx, (int)sizeof(*ip) - (int)sizeof(*header), ETH_P_IPV6))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    cursor = cursor_at_start(ctx);
    TAKE(&cursor, struct ethhdr);
    header = TAKE(&cursor, struct ipv6hdr);
    if (!header)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    __builtin_memset(header, 0, sizeof(*header));
    header->version = 6;
    header->priority = tos >> 4;
    header->flow_lbl[0] = tos << 4;
    header->payload_len = bpf_htons(bytes);
    header->nexthdr = protocol == IPPROTO_ICMP ? IPPROTO_ICMPV6 : protocol;
    header->hop_limit = hops - 1;
    header->saddr = source;
    header->daddr = to;
    if (!mend(&cursor, protocol, before, sum_of_address(&source) + sum_of_address(&to), bytes))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    return finish(ctx, RESULT_TO_IPV6, XDP_TX);
}

static __always_inline bool is_behind_prefix(const struct in6_addr *address)
{
    return address->in6_u.u6_addr32[0] == prefix[0] && address->in6_u.u6_addr32[1] == prefix[1] &&
           address->in6_u.u6_addr32[2] == prefix[2];
}

static __always_inline int read_ipv6(struct xdp_md *ctx, struct cursor *cursor)
{
    struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);
    struct chain chain = {};
    __u32 result;

    if (!ip || ip->version != 6 ||
        bpf_ntohs(ip->payload_len) > cursor->end - (void *)(ip + 1))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    chain.next = ip->nexthdr;
    result = walk(ctx, ip + 1, cursor->end, &chain);
    if (result == RESULT_PASSED)
        result = read_ports(ip, cursor->end, &chain);
    count_depth(chain.depth);
    if (result != RESULT_PASSED)
        return finish(ctx, result, XDP_DROP);
    if (is_behind_prefix(&ip->daddr))
        return to_ipv4(ctx, ip, &chain);
    return finish(ctx, RESULT_PASSED, XDP_PASS);
}

static __always_inline int read_ipv4(struct xdp_md *ctx, struct cursor *cursor)
{
    struct iphdr *ip = TAKE(cursor, struct iphdr);
    struct in6_addr *dest;

    if (!ip)
        return XDP_PASS;
    dest = bpf_map_lookup_elem(&hosts_v4, &ip->daddr);
    if (!dest)
        return XDP_PASS;
    if (ip->ihl != 5 || ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS) ||
        bpf_ntohs(ip->tot_len) > cursor->end - (void *)ip ||
        bpf_ntohs(ip->tot_len) < sizeof(*ip))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    return to_ipv6(ctx, ip, dest);
}

SEC("xdp")
int ipv6_gateway(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);

    if (!ethernet)
        return XDP_PASS;
    if (ethernet->h_proto == bpf_htons(ETH_P_IPV6))
        return read_ipv6(ctx, &cursor);
    if (ethernet->h_proto == bpf_htons(ETH_P_IP))
        return read_ipv4(ctx, &cursor);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
