// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// dns_filter: answers or drops DNS queries (UDP, IPv4 and IPv6) for listed domains.
//
// A listed domain covers its subdomains. The query's name is lowered into a per-CPU buffer in wire
// form (RFC 1035, 3.1: length, label, length, label, ..., 0); each suffix of it is put to a bloom
// filter, and only what that lets through costs a lookup in the exact table. Nearly all names are
// not listed, so nearly all frames never touch the table.
//
// Maps
//   domain_filter  BLOOM_FILTER  names as in `domains`; whoever adds a domain adds it here too
//   domains        HASH          name in wire form, lower case, zero-filled -> action
//   scratch        PERCPU_ARRAY  the name being looked at
//   results        PERCPU_ARRAY  `enum result` -> how often
//
// Configure  nothing.
// Verdicts   XDP_DROP listed to be dropped; XDP_TX listed to be denied: the query goes back as
//            NXDOMAIN; XDP_PASS everything else.
#include "checksum.h"
#include "rewrite.h"

#define NAME_BYTES 64 // longer names are looked at from the label where they fit
#define QUERY_BYTES_MAX 256 // RFC 1035, 3.1: 255 octets
#define LABELS_MAX 8
#define DOMAINS_MAX 10000
#define DNS_PORT 53

#define DNS_RESPONSE 0x8000
#define DNS_OPCODE_MASK 0x7800
#define DNS_NXDOMAIN 3

enum action {
    ACTION_DROP,
    ACTION_DENY,
};

enum result {
    RESULT_NOT_A_QUERY,
    RESULT_BAD_NAME,
    RESULT_NOT_LISTED,
    RESULT_BLOOM_ONLY, // the filter said "perhaps", the table said no
    RESULT_DROPPED,
    RESULT_DENIED,
    RESULT_COUNT,
};

struct dns_header {
    __be16 id;
    __be16 flags;
    __be16 questions;
    __be16 answers;
    __be16 authorities;
    __be16 additional;
};

struct name {
    __u8 bytes[NAME_BYTES];
};

struct domain {
    __u32 action;
};

// The whole name, zero-filled behind, so that a suffix of it is a key without being copied.
struct query {
    __u8 bytes[QUERY_BYTES_MAX + NAME_BYTES];
    __u8 labels[LABELS_MAX]; // where the last labels start
    __u32 label_count;       // here and not in a register: the verifier need not follow its value
};

struct {
    __uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
    __uint(max_entries, DOMAINS_MAX);
    __uint(map_extra, 4); // hash functions
    __type(value, struct name);
} domain_filter SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, DOMAINS_MAX);
    __type(key, struct name);
    __type(value, struct domain);
} domains SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct query);
} scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} results SEC(".maps");

static __always_inline int finish(__u32 result, int verdict)
{
    __u64 *times = bpf_map_lookup_elem(&results, &result);

    if (times)
        *times += 1;
    return verdict;
}

// Copies the name behind the DNS header and notes where its labels start; of many labels the last
// LABELS_MAX are kept. Returns the name's length with its final 0, or 0.
static __noinline __u32 read_name(struct xdp_md *ctx, struct query *query, __u32 offset)
{
    void *end = (void *)(long)ctx->data_end;
    __u8 *pos = (void *)(long)ctx->data;
    __u32 left = 0;

    if (!query || offset > 0xfff)
        return 0;
    pos += offset;
    for (__u32 i = 0; i < QUERY_BYTES_MAX - 1; i++) {
        __u8 byte;

        if ((void *)(pos + 1) > end)
            return 0;
        byte = *pos++;
        if (left == 0) {
            if (byte == 0)
                return i + 1;
            if (byte > 63) // a pointer (RFC 1035, 4.1.4) has no place in a question
                return 0;
            query->labels[query->label_count++ & (LABELS_MAX - 1)] = i;
            left = byte;
        } else {
            if (byte >= 'A' && byte <= 'Z')
                byte += 'a' - 'A';
            left--;
        }
        query->bytes[i] = byte;
    }
    return 0;
}

// Looks each suffix up. Returns the action for the name, or -1.
static __always_inline int find_action(struct query *query, __u32 length)
{
    int missing = RESULT_NOT_LISTED;

    for (__u32 i = 0; i < LABELS_MAX; i++) {
        struct domain *domain;
        __u32 start = query->labels[i];
        __u8 *suffix = &query->bytes[start];

        if (i >= query->label_count)
            break;
        if (start + NAME_BYTES < length)
            continue;
        if (bpf_map_peek_elem(&domain_filter, suffix))
            continue;
        domain = bpf_map_lookup_elem(&domains, suffix);
        if (domain)
            return domain->action;
        missing = RESULT_BLOOM_ONLY;
    }
    return finish(missing, -1);
}

// Sends the query back as its own answer: no such name (RFC 2308 allows it without an SOA).
static __always_inline int deny(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct dns_header *dns;
    struct ethhdr *ethernet;
    struct udphdr *udp;
    __be16 port, flags;

    ethernet = parse_ethernet(&cursor, &network.ethertype);
    if (!ethernet)
        return XDP_DROP;
    if (network.ethertype == ETH_P_IP) {
        struct iphdr *ip = parse_ipv4(&cursor);

        if (!ip)
            return XDP_DROP;
        swap_ipv4(ip);
    } else {
        struct ipv6hdr *ip = parse_ipv6(&cursor, &network);

        if (!ip)
            return XDP_DROP;
        swap_ipv6(ip);
    }
    udp = TAKE(&cursor, struct udphdr);
    dns = TAKE(&cursor, struct dns_header);
    if (!udp || !dns)
        return XDP_DROP;
    swap_mac(ethernet);
    port = udp->source;
    udp->source = udp->dest;
    udp->dest = port;
    flags = dns->flags;
    dns->flags = flags | bpf_htons(DNS_RESPONSE | DNS_NXDOMAIN);
    if (udp->check) // 0 is "no checksum" over IPv4
        udp->check = checksum_replace(udp->check, flags, dns->flags);
    return finish(RESULT_DENIED, XDP_TX);
}

SEC("xdp")
int dns_filter(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct dns_header *dns;
    struct flow flow = {};
    struct query *query;
    void *start = cursor.pos;
    __u32 zero = 0, length;
    int action;

    if (parse_frame(&cursor, &network, &flow) || !network.has_ports)
        return XDP_PASS;
    if (flow.protocol != IPPROTO_UDP || flow.dest_port != bpf_htons(DNS_PORT))
        return XDP_PASS;
    if (!take(&cursor, sizeof(struct udphdr)))
        return XDP_PASS;
    dns = TAKE(&cursor, struct dns_header);
    if (!dns || dns->questions != bpf_htons(1) ||
        (dns->flags & bpf_htons(DNS_RESPONSE | DNS_OPCODE_MASK)))
        return finish(RESULT_NOT_A_QUERY, XDP_PASS);
    query = bpf_map_lookup_elem(&scratch, &zero);
    if (!query)
        return XDP_PASS;
    __builtin_memset(query, 0, sizeof(*query));
    length = read_name(ctx, query, cursor.pos - start);
    if (!length)
        return finish(RESULT_BAD_NAME, XDP_PASS);
    action = find_action(query, length);
    if (action == ACTION_DROP)
        return finish(RESULT_DROPPED, XDP_DROP);
    return action == ACTION_DENY ? deny(ctx) : XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
