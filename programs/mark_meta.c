// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// mark_meta: classifies frames and leaves the class in the metadata in front of them.
//
// What runs later (a TC program, an AF_XDP application, a program in a devmap) reads 16 bytes
// instead of parsing again. Classes come from a table of destination-port ranges, kept as bits: the
// program walks the set bits of a word of rules with an open-coded iterator.
//
// Needs: kernel 6.11 (bits iterator).
//
// Maps
//   rules    ARRAY         rule number -> {port range, protocol, class}
//   enabled  ARRAY         0: 64 bits, which rules are on
//   classes  PERCPU_ARRAY  class -> packets, bytes
//
// Configure  rules, enabled.
// Verdicts   XDP_PASS with metadata; XDP_PASS without where the port has no metadata support.
#include "hash.h"
#include "kfuncs.h"

#define RULES_MAX 64
#define CLASSES_MAX 16
#define MARK_MAGIC 0x746f7770

struct rule {
    __u16 port_low; // host order, both ends included
    __u16 port_high;
    __u8 protocol; // 0 is any
    __u8 class;
    __u16 zero;
};

// What later stages find at data_meta. Its size is a multiple of four, as it must be.
struct mark {
    __u32 magic;
    __u32 class;
    __u32 flow_hash;
    __u16 l4_offset;
    __u16 vlan;
};
_Static_assert(sizeof(struct mark) == 16, "part of the interface");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, RULES_MAX);
    __type(key, __u32);
    __type(value, struct rule);
} rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u64);
} enabled SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, CLASSES_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} classes SEC(".maps");

static __always_inline bool is_match(const struct rule *rule, const struct flow *flow)
{
    __u16 port = bpf_ntohs(flow->dest_port);

    return port >= rule->port_low && port <= rule->port_high &&
           (!rule->protocol || rule->protocol == flow->protocol);
}

// The class of the first rule that is on and matches; 0 is "none".
static __always_inline __u32 classify(const struct flow *flow)
{
    struct bpf_iter_bits it;
    __u32 zero = 0, class = 0;
    __u64 *word;
    int *bit;

    word = bpf_map_lookup_elem(&enabled, &zero);
    if (!word)
        return 0;
    bpf_iter_bits_new(&it, word, 1);
    while ((bit = bpf_iter_bits_next(&it))) {
        __u32 number = *bit;
        struct rule *rule = bpf_map_lookup_elem(&rules, &number);

        if (rule && is_match(rule, flow)) {
            class = rule->class % CLASSES_MAX;
            break;
        }
    }
    bpf_iter_bits_destroy(&it);
    return class;
}

SEC("xdp")
int mark_meta(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    void *start = cursor.pos;
    struct counter *stats;
    struct flow flow = {};
    struct mark *mark;
    __u64 offset;
    __u32 class;

    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    offset = cursor.pos - start;
    class = network.has_ports ? classify(&flow) : 0;
    stats = bpf_map_lookup_elem(&classes, &class);
    if (stats)
        count(stats, linear_bytes(ctx));
    if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark)))
        return XDP_PASS;
    mark = (void *)(long)ctx->data_meta;
    if ((void *)(mark + 1) > (void *)(long)ctx->data)
        return XDP_PASS;
    mark->magic = MARK_MAGIC;
    mark->class = class;
    mark->flow_hash = hash_flow_symmetric(&flow);
    mark->l4_offset = offset;
    mark->vlan = 0;
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
