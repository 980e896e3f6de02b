// Keys of maps with bytes that nobody set, and keys that only look so.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct flow { __u8 proto; __u32 addr; };
struct pair { __u32 source; __u16 port; __u32 dest; };
struct either { __u8 family; __u8 pad[3]; union { __u32 v4; __u8 v6[16]; } addr; };
struct prefix { __u32 bits; __u8 addr[16]; };
struct narrow { __u32 kind : 4; __u32 rest : 28; };
struct deep { __u16 zone; struct flow inner; };

#define MAP(map, kind, k, flags)                                                                   \
    struct {                                                                                       \
        __uint(type, kind);                                                                        \
        __uint(max_entries, 16);                                                                   \
        __uint(map_flags, flags);                                                                  \
        __type(key, k);                                                                            \
        __type(value, __u64);                                                                      \
    } map SEC(".maps")

MAP(flows, BPF_MAP_TYPE_HASH, struct flow, 0);
MAP(pairs, BPF_MAP_TYPE_LRU_HASH, struct pair, 0);
MAP(eithers, BPF_MAP_TYPE_PERCPU_HASH, struct either, 0);
MAP(prefixes, BPF_MAP_TYPE_LPM_TRIE, struct prefix, BPF_F_NO_PREALLOC);
MAP(narrows, BPF_MAP_TYPE_HASH, struct narrow, 0);
MAP(deeps, BPF_MAP_TYPE_HASH, struct deep, 0);
MAP(slots, BPF_MAP_TYPE_ARRAY, __u32, 0);

// Its address is known elsewhere: the compiler may not forget about it.
#define ESCAPES(it) asm volatile("" : : "r"(&(it)) : "memory")

SEC("xdp") int padding_of_an_update(struct xdp_md *ctx)
{
    struct flow k;
    __u64 one = 1;

    k.proto = 17;
    k.addr = 0x0a000001;
    // finds undefined-key: `&k`): the padding behind `proto` was never set (bytes 1 to 3)
    bpf_map_update_elem(&flows, &k, &one, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int padding_of_a_look_up(struct xdp_md *ctx)
{
    struct pair who;

    who.source = 1;
    who.port = 2;
    who.dest = 3;
    // finds undefined-key: map pairs (argument 2 of bpf_map_lookup_elem, `&who`): the padding
    return bpf_map_lookup_elem(&pairs, &who)
               ? XDP_DROP
               : XDP_PASS;
}

SEC("xdp") int padding_of_a_delete(struct xdp_md *ctx)
{
    struct flow k;

    k.addr = 1;
    k.proto = 6;
    // finds undefined-key: padding behind `proto`
    bpf_map_delete_elem(&flows, &k);
    return XDP_PASS;
}

SEC("xdp") int forgotten_member(struct xdp_md *ctx)
{
    struct flow k;

    __builtin_memset(&k, 0, 4);
    k.proto = 6;
    ESCAPES(k);
    // finds undefined-key: `addr` was never set (bytes 4 to 7)
    bpf_map_lookup_elem(&flows, &k);
    return XDP_PASS;
}

SEC("xdp") int half_a_union(struct xdp_md *ctx)
{
    struct either k;
    __u64 one = 1;

    k.family = 4;
    k.pad[0] = k.pad[1] = k.pad[2] = 0;
    k.addr.v4 = 0x0a000001;
    // finds undefined-key: `addr.v6` was never set (bytes 8 to 19)
    bpf_map_update_elem(&eithers, &k, &one, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int length_of_a_prefix(struct xdp_md *ctx)
{
    struct prefix k;

    __builtin_memset(k.addr, 0, sizeof(k.addr));
    ESCAPES(k);
    // finds undefined-key: `bits` was never set
    bpf_map_lookup_elem(&prefixes, &k);
    return XDP_PASS;
}

SEC("xdp") int padding_inside(struct xdp_md *ctx)
{
    struct deep k;

    k.zone = 1;
    k.inner.proto = 2;
    k.inner.addr = 3;
    // finds undefined-key: the padding behind `zone` and the padding behind `inner.proto`
    bpf_map_lookup_elem(&deeps, &k);
    return XDP_PASS;
}

SEC("xdp") int copied(struct xdp_md *ctx)
{
    struct flow from, k;

    from.proto = 1;
    from.addr = 2;
    ESCAPES(from);
    k = from;
    ESCAPES(k);
    // finds undefined-key: padding behind `proto`
    bpf_map_lookup_elem(&flows, &k);
    return XDP_PASS;
}

SEC("xdp") int index_of_an_array(struct xdp_md *ctx)
{
    __u32 index;

    bpf_xdp_load_bytes(ctx, 60000, &index, sizeof(index));
    // finds undefined-key: map slots
    bpf_map_lookup_elem(&slots, &index);
    return XDP_PASS;
}

// Nothing is wrong from here on.

SEC("xdp") int cleared(struct xdp_md *ctx)
{
    struct flow k;
    struct either e;
    __u64 one = 1;

    __builtin_memset(&k, 0, sizeof(k));
    k.proto = 17;
    bpf_map_update_elem(&flows, &k, &one, BPF_ANY);
    __builtin_memset(&e, 0, sizeof(e));
    e.addr.v4 = 1;
    bpf_map_update_elem(&eithers, &e, &one, BPF_ANY);
    return bpf_map_lookup_elem(&flows, &k) ? XDP_PASS : XDP_DROP;
}

SEC("xdp") int short_prefix(struct xdp_md *ctx)
{
    struct prefix k;

    k.bits = 20;
    k.addr[0] = k.addr[1] = k.addr[2] = 1;
    bpf_map_lookup_elem(&prefixes, &k);
    return XDP_PASS;
}

SEC("xdp") int bits(struct xdp_md *ctx)
{
    struct narrow k;

    ESCAPES(k);
    k.kind = 3;
    ESCAPES(k);
    k.rest = 5;
    bpf_map_lookup_elem(&narrows, &k);
    return XDP_PASS;
}

SEC("xdp") int some_bits(struct xdp_md *ctx)
{
    struct narrow k;

    ESCAPES(k);
    k.kind = 3;
    ESCAPES(k);
    // finds undefined-key: `rest` was never set
    bpf_map_lookup_elem(&narrows, &k);
    return XDP_PASS;
}

SEC("xdp") int copied_and_not_used(struct xdp_md *ctx)
{
    struct flow from, to;

    from.proto = 1;
    from.addr = 2;
    ESCAPES(from);
    to = from;
    ESCAPES(to);
    return to.addr == 2 && to.proto == 1 ? XDP_PASS : XDP_DROP;
}

char _license[] SEC("license") = "GPL";
