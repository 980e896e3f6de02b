// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// policy: who may talk to whom, by identity and not by address.
//
// Addresses have identities: the longest prefix of a trie says which. Each workload on this host
// has a policy of its own, a trie inside a map of maps: from the other side's identity alone to
// identity, protocol and a range of ports (a prefix of the port's bits). The longest match for that
// identity and the longest for anybody compete; the longer wins, and of equals the refusal. A frame
// between two workloads passes what the sender may send and what the receiver may receive.
//
// Maps
//   identities  LPM_TRIE      {cluster, family, address prefix} -> identity, flags
//   workloads   HASH          {address, family} -> number, flags, MAC
//   policies    HASH_OF_MAPS  workload number -> LPM_TRIE {identity, way, protocol, port} -> rule
//   verdicts    PERCPU_HASH   {reason, way} -> packets, bytes
//   refusals    PERF_EVENT_ARRAY  a notice for each frame that is dropped
//   logged      RINGBUF       a notice for frames that a rule wants seen
//
// Configure  cluster, default_identity, mark: leave the identity in front of the frame
// Verdicts   XDP_PASS allowed, or of no workload here; XDP_DROP refused or malformed.
#include "parse.h"

#define IDENTITIES_MAX 65536
#define WORKLOADS_MAX 1024
#define RULES_MAX 16384
#define NOTICE_FRAME_BYTES 96

#define IDENTITY_ANY 0
#define IDENTITY_REMOTE 1 // its traffic comes in a tunnel only

#define WORKLOAD_NO_EGRESS_POLICY 1
#define WORKLOAD_NO_INGRESS_POLICY 2

#define RULE_DENY 1
#define RULE_LOG 2

// Bits of a rule's key.
#define RULE_BITS_IDENTITY 32
#define RULE_BITS_WAY 8
#define RULE_BITS_PROTOCOL 8
#define RULE_BITS_PORT 16
#define RULE_BITS (RULE_BITS_IDENTITY + RULE_BITS_WAY + RULE_BITS_PROTOCOL + RULE_BITS_PORT)

enum way {
    INGRESS,
    EGRESS,
};

enum reason {
    REASON_ALLOWED,
    REASON_ALLOWED_BY_DEFAULT,
    REASON_DENIED,
    REASON_NO_RULE,
    REASON_NO_POLICY,
    REASON_FRAGMENT,
    REASON_SPOOFED,
};

struct identity_key {
    __u32 prefixlen; // the 32 bits of cluster and family included
    __u16 cluster;
    __u16 family;
    struct in6_addr address;
};

#define IDENTITY_BITS_FIXED 32

struct identity {
    __u32 number;
    __u32 flags;
};

struct workload_key {
    struct in6_addr address;
    __u32 family;
};

struct workload {
    __u32 number;
    __u32 flags;
    __u8 mac[ETH_ALEN];
    __u16 zero;
};

struct rule_key {
    __u32 prefixlen;
    __u32 identity;
    __u8 way;
    __u8 protocol;
    __be16 port;
};

struct rule {
    __u32 flags;
    __u16 bits; // of its own prefix: which of two is the longer
    __u16 zero;
    __u64 packets;
    __u64 bytes;
};

struct verdict_key {
    __u32 reason;
    __u32 way;
};

struct notice {
    __u64 time_ns;
    __u32 reason;
    __u32 way;
    __u32 source_identity;
    __u32 dest_identity;
    __u32 workload;
    __u32 bytes;
    struct flow flow;
};

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, IDENTITIES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct identity_key);
    __type(value, struct identity);
} identities SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, WORKLOADS_MAX);
    __type(key, struct workload_key);
    __type(value, struct workload);
} workloads SEC(".maps");

struct rules {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, RULES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct rule_key);
    __type(value, struct rule);
} host_rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, WORKLOADS_MAX);
    __uint(key_size, sizeof(__u32));
    __array(values, struct rules);
} policies SEC(".maps") = {
    .values = {[0] = &host_rules},
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_HASH);
    __uint(max_entries, 64);
    __type(key, struct verdict_key);
    __type(value, struct counter);
} verdicts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} refusals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 18);
} logged SEC(".maps");

const volatile __u16 cluster = 0;
const volatile __u32 default_identity = 2; // "the world"
const volatile bool mark = true;

// Both sides of a frame.
struct parties {
    struct flow flow;
    struct identity source;
    struct identity dest;
    __u32 bytes;
    __u32 workload; // whose policy is being asked
    bool has_ports;
};

static __always_inline struct identity identity_of(const struct in6_addr *address, __u16 family)
{
    struct identity_key key = {
        .prefixlen = IDENTITY_BITS_FIXED + 128,
        .cluster = cluster,
        .family = family,
        .address = *address,
    };
    struct identity *known = bpf_map_lookup_elem(&identities, &key);
    struct identity unknown = {.number = default_identity};

    return known ? *known : unknown;
}

static __always_inline struct workload *workload_at(const struct in6_addr *address, __u16 family)
{
    struct workload_key key = {.address = *address, .family = family};

    return bpf_map_lookup_elem(&workloads, &key);
}

static __always_inline void count_verdict(const struct parties *parties, __u32 reason, __u32 way)
{
    struct verdict_key key = {.reason = reason, .way = way};
    struct counter *known = bpf_map_lookup_elem(&verdicts, &key);
    struct counter first = {.packets = 1, .bytes = parties->bytes};

    if (known)
        count(known, parties->bytes);
    else
        bpf_map_update_elem(&verdicts, &key, &first, BPF_ANY);
}

static __always_inline void fill_notice(struct notice *notice, const struct parties *parties,
                                        __u32 reason, __u32 way)
{
    notice->time_ns = bpf_ktime_get_ns();
    notice->reason = reason;
    notice->way = way;
    notice->source_identity = parties->source.number;
    notice->dest_identity = parties->dest.number;
    notice->workload = parties->workload;
    notice->bytes = parties->bytes;
    notice->flow = parties->flow;
}

static __always_inline int refuse(struct xdp_md *ctx, const struct parties *parties, __u32 reason,
                                  __u32 way)
{
    struct notice notice;
    __u64 bytes = parties->bytes;

    if (bytes > NOTICE_FRAME_BYTES)
        bytes = NOTICE_FRAME_BYTES;
    fill_notice(&notice, parties, reason, way);
    bpf_perf_event_output(ctx, &refusals, BPF_F_CURRENT_CPU | bytes << 32, &notice,
                          sizeof(notice));
    count_verdict(parties, reason, way);
    return XDP_DROP;
}

static __always_inline void write_log(const struct parties *parties, __u32 reason, __u32 way)
{
    struct notice *notice = bpf_ringbuf_reserve(&logged, sizeof(*notice), 0);

    if (!notice)
        return;
    fill_notice(notice, parties, reason, way);
    bpf_ringbuf_submit(notice, 0);
}

// The rule for this identity and the rule for anybody: the longer one, of equals the refusal.
static __always_inline struct rule *find_rule(void *rules, const struct parties *parties,
                                              __u32 identity, enum way way)
{
    struct rule_key key = {
        .prefixlen = RULE_BITS - (parties->has_ports ? 0 : RULE_BITS_PORT),
        .identity = identity,
        .way = way,
        .protocol = parties->flow.protocol,
        .port = parties->flow.dest_port,
    };
    struct rule *one, *anybody;

    one = bpf_map_lookup_elem(rules, &key);
    key.identity = IDENTITY_ANY;
    anybody = bpf_map_lookup_elem(rules, &key);
    if (!one)
        return anybody;
    if (!anybody)
        return one;
    if (one->bits != anybody->bits)
        return one->bits > anybody->bits ? one : anybody;
    return anybody->flags & RULE_DENY ? anybody : one;
}

// Asks a workload's policy: XDP_PASS, or the frame is dropped with a notice.
static __always_inline int ask(struct xdp_md *ctx, struct parties *parties,
                               const struct workload *workload, enum way way)
{
    __u32 identity = way == INGRESS ? parties->source.number : parties->dest.number;
    __u32 open = way == EGRESS ? WORKLOAD_NO_EGRESS_POLICY : WORKLOAD_NO_INGRESS_POLICY;
    __u32 number = workload->number;
    struct rule *rule;
    void *rules;

    parties->workload = number;
    if (workload->flags & open) {
        count_verdict(parties, REASON_ALLOWED_BY_DEFAULT, way);
        return XDP_PASS;
    }
    rules = bpf_map_lookup_elem(&policies, &number);
    if (!rules)
        return refuse(ctx, parties, REASON_NO_POLICY, way);
    rule = find_rule(rules, parties, identity, way);
    if (!rule)
        return refuse(ctx, parties, REASON_NO_RULE, way);
    __sync_fetch_and_add(&rule->packets, 1);
    __sync_fetch_and_add(&rule->bytes, parties->bytes);
    if (rule->flags & RULE_LOG)
        write_log(parties, REASON_ALLOWED, way);
    if (rule->flags & RULE_DENY)
        return refuse(ctx, parties, REASON_DENIED, way);
    count_verdict(parties, REASON_ALLOWED, way);
    return XDP_PASS;
}

// Leaves the sender's identity in front of the frame, for whoever handles it next.
static __always_inline void leave_mark(struct xdp_md *ctx, __u32 identity)
{
    __u32 *place = (void *)(long)ctx->data_meta;

    // Somebody before may have made the room.
    if ((void *)(place + 1) > (void *)(long)ctx->data &&
        bpf_xdp_adjust_meta(ctx, -(int)sizeof(*place)))
        return;
    place = (void *)(long)ctx->data_meta;
    if ((void *)(place + 1) > (void *)(long)ctx->data)
        return;
    *place = identity;
}

SEC("xdp")
int policy(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct workload *source, *dest;
    struct network network = {};
    struct parties parties = {};
    int here, verdict = XDP_PASS;

    parties.bytes = linear_bytes(ctx);
    if (parse_frame(&cursor, &network, &parties.flow))
        return XDP_PASS;
    source = workload_at(&parties.flow.source, parties.flow.family);
    dest = workload_at(&parties.flow.dest, parties.flow.family);
    here = (source ? 1 : 0) + (dest ? 1 : 0);
    barrier_var(here); // or clang asks both pointers at once, by an OR that pointers do not have
    if (!here)
        return XDP_PASS;
    parties.source = identity_of(&parties.flow.source, parties.flow.family);
    parties.dest = identity_of(&parties.flow.dest, parties.flow.family);
    parties.has_ports = network.has_ports;
    if (network.is_fragment && !network.has_ports)
        return refuse(ctx, &parties, REASON_FRAGMENT, INGRESS);
    if (!source && parties.source.flags & IDENTITY_REMOTE)
        return refuse(ctx, &parties, REASON_SPOOFED, INGRESS);
    if (source)
        verdict = ask(ctx, &parties, source, EGRESS);
    if (dest && verdict == XDP_PASS)
        verdict = ask(ctx, &parties, dest, INGRESS);
    if (mark && verdict == XDP_PASS)
        leave_mark(ctx, parties.source.number);
    return verdict;
}

char _license[] SEC("license") = "Dual MIT/GPL";
