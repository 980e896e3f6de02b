// What only many runs show: look-ups that never find anything, elements that are never deleted,
// counters that wrap, drops that nobody counts; and redirects that are forgotten.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_LEN 14

struct service { __u32 addr; __u16 port; __u16 proto; };
struct flow { __u32 source, number; };
struct stats { __u64 packets; __u32 bytes; __u16 errors; };

#define MAP(map, kind, k, v)                                                                       \
    struct {                                                                                       \
        __uint(type, kind);                                                                        \
        __uint(max_entries, 16);                                                                   \
        __type(key, k);                                                                            \
        __type(value, v);                                                                          \
    } map SEC(".maps")

MAP(ports, BPF_MAP_TYPE_HASH, __u16, __u64);
MAP(services, BPF_MAP_TYPE_HASH, struct service, __u64);
MAP(blocked, BPF_MAP_TYPE_HASH, __u32, __u64);
MAP(cached, BPF_MAP_TYPE_HASH, __u32, __u64);
MAP(flows, BPF_MAP_TYPE_HASH, struct flow, __u64);
MAP(reasons, BPF_MAP_TYPE_HASH, __u32, __u64);
MAP(recent, BPF_MAP_TYPE_LRU_HASH, __u32, __u64);
MAP(closed, BPF_MAP_TYPE_HASH, struct flow, __u64);
MAP(opened, BPF_MAP_TYPE_HASH, struct flow, __u64);
MAP(totals, BPF_MAP_TYPE_ARRAY, __u32, struct stats);
MAP(limits, BPF_MAP_TYPE_ARRAY, __u32, __u32);
MAP(egress, BPF_MAP_TYPE_DEVMAP, __u32, __u32);

__u32 sequence, hits;
const volatile __u32 way_out;

// The packet's destination port, as it stands there.
static __always_inline __u16 destination(struct xdp_md *ctx)
{
    __u16 port = 0;

    bpf_xdp_load_bytes(ctx, ETH_LEN + 20 + 2, &port, sizeof(port));
    return port;
}

// Another one each time.
static __always_inline struct flow next_flow(struct xdp_md *ctx)
{
    struct flow flow = {};

    bpf_xdp_load_bytes(ctx, ETH_LEN + 12, &flow.source, sizeof(flow.source));
    flow.number = __sync_fetch_and_add(&sequence, 1);
    return flow;
}

SEC("xdp") int network_order(struct xdp_md *ctx)
{
    __u16 known = 53, port = destination(ctx);
    __u64 one = 1;

    bpf_map_update_elem(&ports, &known, &one, BPF_ANY);
    // finds never-found: of map ports, which has some; with the key in the other byte order
    return bpf_map_lookup_elem(&ports, &port)
               ? XDP_TX
               : XDP_PASS;
}

SEC("xdp") int member_in_network_order(struct xdp_md *ctx)
{
    struct service known = { .addr = 1, .port = 53, .proto = 17 }, seen = known;
    __u64 one = 1;

    bpf_map_update_elem(&services, &known, &one, BPF_ANY);
    seen.port = destination(ctx);
    // finds never-found: with `port` in the other byte order it would
    return bpf_map_lookup_elem(&services, &seen)
               ? XDP_TX
               : XDP_PASS;
}

SEC("xdp") int another_key(struct xdp_md *ctx)
{
    __u32 known = 1, seen = 2;
    __u64 one = 1;

    bpf_map_update_elem(&blocked, &known, &one, BPF_ANY);
    // finds never-found: no look-up at this call finds an element of map blocked
    return bpf_map_lookup_elem(&blocked, &seen)
               ? XDP_DROP
               : XDP_PASS;
}

SEC("xdp") int grows(struct xdp_md *ctx)
{
    struct flow flow = next_flow(ctx);
    __u64 one = 1;

    // finds never-deleted: elements are added to map flows, no program deletes any
    bpf_map_update_elem(&flows, &flow, &one, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int few_bits(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct stats *all = bpf_map_lookup_elem(&totals, &zero);

    if (!all)
        return XDP_ABORTED;
    __sync_fetch_and_add(&all->packets, 1);
    // finds wrapping-counter: `bytes` of map totals has 32 bits
    __sync_fetch_and_add(&all->bytes, ctx->data_end - ctx->data);
    return XDP_PASS;
}

SEC("xdp") int very_few_bits(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct stats *all = bpf_map_lookup_elem(&totals, &zero);

    if (!all)
        return XDP_ABORTED;
    // finds lost-update: a value of map totals
    // finds wrapping-counter: `errors` of map totals has 16 bits: it wraps to 0 after 65535
    all->errors++;
    return XDP_PASS;
}

SEC("xdp") int global(struct xdp_md *ctx)
{
    // finds wrapping-counter: a counter of map .bss has 32 bits
    __sync_fetch_and_add(&hits, 1);
    return XDP_PASS;
}

SEC("xdp") int dropped_without_a_trace(struct xdp_md *ctx)
{
    __u16 port = destination(ctx);
    __u32 zero = 0;
    struct stats *all = bpf_map_lookup_elem(&totals, &zero);

    if (!all)
        return XDP_ABORTED;
    if (all->packets == 0) {
        __sync_fetch_and_add(&all->packets, 1);
        return XDP_DROP;
    }
    // finds uncounted-drop: packets on this path are dropped (XDP_DROP) without being counted
    if (port == bpf_htons(53)) {
        asm volatile("");
        return XDP_DROP;
    }
    return XDP_PASS;
}

SEC("xdp") int forgotten(struct xdp_md *ctx)
{
    // finds unused-redirect: this call sets a redirect target, but XDP_PASS
    bpf_redirect(ctx->ingress_ifindex, 0);
    return XDP_PASS;
}

SEC("xdp") int to_nothing(struct xdp_md *ctx)
{
    // finds redirect-to-nothing: redirected to ifindex 0, which no interface has
    return bpf_redirect(way_out, 0);
}

// Nothing is wrong from here on.

SEC("xdp") int all_drops_are_counted(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct stats *all = bpf_map_lookup_elem(&totals, &zero);

    if (!all)
        return XDP_ABORTED;
    __sync_fetch_and_add(&all->packets, 1);
    return destination(ctx) == bpf_htons(53) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int no_drop_is_counted(struct xdp_md *ctx)
{
    return destination(ctx) == bpf_htons(53) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int host_order(struct xdp_md *ctx)
{
    __u16 known = 53, port = bpf_ntohs(destination(ctx));
    __u64 one = 1;

    bpf_map_update_elem(&ports, &known, &one, BPF_ANY);
    return bpf_map_lookup_elem(&ports, &port) ? XDP_TX : XDP_PASS;
}

SEC("xdp") int added_when_missing(struct xdp_md *ctx)
{
    __u32 other = 77, key = ctx->ingress_ifindex + __sync_fetch_and_add(&sequence, 1);
    __u64 one = 1;

    bpf_map_update_elem(&recent, &other, &one, BPF_ANY);
    if (!bpf_map_lookup_elem(&recent, &key))
        bpf_map_update_elem(&recent, &key, &one, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int nothing_is_there(struct xdp_md *ctx)
{
    __u32 key = 3;

    return bpf_map_lookup_elem(&cached, &key) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int looks_whether_there_was_room(struct xdp_md *ctx)
{
    struct flow flow = next_flow(ctx);
    __u64 one = 1;

    if (bpf_map_update_elem(&opened, &flow, &one, BPF_ANY))
        return XDP_DROP;
    return XDP_PASS;
}

SEC("xdp") int counts_by_reason(struct xdp_md *ctx)
{
    __u32 reason = __sync_fetch_and_add(&sequence, 1) & 3;
    __u64 one = 1;

    bpf_map_update_elem(&reasons, &reason, &one, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int deletes(struct xdp_md *ctx)
{
    struct flow flow = next_flow(ctx);
    __u64 one = 1;

    bpf_map_update_elem(&closed, &flow, &one, BPF_ANY);
    bpf_map_delete_elem(&closed, &flow);
    return XDP_PASS;
}

SEC("xdp") int stops_at_its_limit(struct xdp_md *ctx)
{
    __u32 zero = 0, *used = bpf_map_lookup_elem(&limits, &zero);

    if (!used)
        return XDP_ABORTED;
    if (*used < 100)
        __sync_fetch_and_add(used, 1);
    return XDP_PASS;
}

SEC("xdp") int takes_turns(struct xdp_md *ctx)
{
    __u32 one = 1, *turn = bpf_map_lookup_elem(&limits, &one), slot;

    if (!turn)
        return XDP_ABORTED;
    slot = __sync_fetch_and_add(turn, 1);
    return bpf_redirect_map(&egress, slot & 3, XDP_PASS);
}

char _license[] SEC("license") = "GPL";
