// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// firewall: a stateless packet filter for IPv4 and IPv6.
//
// Source addresses are matched against prefix lists (longest match wins, so an allowed host may
// sit in a blocked network), then destination ports against a set of services. ICMP errors that
// IPv6 and path-MTU discovery need always pass. Whatever matched is counted by rule and CPU.
//
// Maps
//   sources_v4   LPM_TRIE      {prefix length, IPv4 prefix} -> rule
//   sources_v6   LPM_TRIE      {prefix length, IPv6 prefix} -> rule
//   services     HASH          {port, protocol} -> rule
//   rule_stats   PERCPU_ARRAY  rule number -> packets, bytes
//   protocols    PERCPU_HASH   IP protocol -> packets, bytes; entries appear as traffic does
//
// Configure  default_drop: what happens to TCP and UDP to a port that no rule names.
//            drop_fragments: later fragments carry no ports, so they can only be trusted or not.
// Verdicts   XDP_DROP blocked, malformed or too short; XDP_PASS everything else.
#include "parse.h"

#define PREFIXES_MAX 16384
#define SERVICES_MAX 1024
#define RULES_MAX 64

// Rules that no map entry names; numbers below RULE_BUILT_IN belong to the operator.
enum built_in_rule {
    RULE_BUILT_IN = 56,
    RULE_MALFORMED = RULE_BUILT_IN,
    RULE_FRAGMENT,
    RULE_NOT_IP,
    RULE_ICMP,
    RULE_DEFAULT,
};

enum action {
    ACTION_DROP,
    ACTION_PASS,
    ACTION_NEXT, // for a prefix: trusted no further than to be asked for its port
};

struct rule {
    __u32 number;
    enum action action;
};

struct prefix_v4 {
    __u32 prefixlen;
    __be32 address;
};

struct prefix_v6 {
    __u32 prefixlen;
    struct in6_addr address;
};

struct service {
    __be16 port;
    __u8 protocol;
    __u8 zero;
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix_v4);
    __type(value, struct rule);
} sources_v4 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix_v6);
    __type(value, struct rule);
} sources_v6 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SERVICES_MAX);
    __type(key, struct service);
    __type(value, struct rule);
} services SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RULES_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} rule_stats SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, struct counter);
} protocols SEC(".maps");

const volatile bool default_drop = false;
const volatile bool drop_fragments = false;

static __always_inline int apply(__u32 rule, bool is_passed, __u64 bytes)
{
    struct counter *stats = bpf_map_lookup_elem(&rule_stats, &rule);

    if (stats)
        count(stats, bytes);
    return is_passed ? XDP_PASS : XDP_DROP;
}

static __always_inline void count_protocol(__u32 protocol, __u64 bytes)
{
    struct counter *stats = bpf_map_lookup_elem(&protocols, &protocol);
    struct counter first = {.packets = 1, .bytes = bytes};

    if (stats)
        count(stats, bytes);
    else
        bpf_map_update_elem(&protocols, &protocol, &first, BPF_NOEXIST);
}

static __always_inline struct rule *find_source(const struct flow *flow)
{
    if (flow->family == AF_INET) {
        struct prefix_v4 host = {.prefixlen = 32, .address = ipv4_of(&flow->source)};

        return bpf_map_lookup_elem(&sources_v4, &host);
    }
    struct prefix_v6 host = {.prefixlen = 128, .address = flow->source};

    return bpf_map_lookup_elem(&sources_v6, &host);
}

static __always_inline struct rule *find_service(const struct flow *flow)
{
    struct service key = {.port = flow->dest_port, .protocol = flow->protocol};

    return bpf_map_lookup_elem(&services, &key);
}

SEC("xdp")
int firewall(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u64 bytes = linear_bytes(ctx);
    struct network network = {};
    struct flow flow = {};
    struct rule *rule;

    if (!parse_ethernet(&cursor, &network.ethertype))
        return apply(RULE_MALFORMED, false, bytes);
    if (network.ethertype != ETH_P_IP && network.ethertype != ETH_P_IPV6)
        return apply(RULE_NOT_IP, true, bytes);
    if (parse_flow(&cursor, &network, &flow))
        return apply(RULE_MALFORMED, false, bytes);
    count_protocol(flow.protocol, bytes);

    rule = find_source(&flow);
    if (rule && rule->action != ACTION_NEXT)
        return apply(rule->number, rule->action == ACTION_PASS, bytes);
    if (flow.protocol == IPPROTO_ICMP || flow.protocol == IPPROTO_ICMPV6)
        return apply(RULE_ICMP, true, bytes);
    if (network.is_fragment && !network.has_ports)
        return apply(RULE_FRAGMENT, !drop_fragments, bytes);
    rule = find_service(&flow);
    if (rule)
        return apply(rule->number, rule->action == ACTION_PASS, bytes);
    return apply(RULE_DEFAULT, !(default_drop && network.has_ports), bytes);
}

char _license[] SEC("license") = "Dual MIT/GPL";
