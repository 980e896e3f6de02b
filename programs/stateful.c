// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// stateful: a stateful firewall on the host's own knowledge: connections and sockets.
//
// A segment of a connection that connection tracking knows passes. A new one passes if a socket of
// this host waits for it, and its connection is entered so that answers are known too. What nobody
// waits for is dropped before the host spends a thought on it.
//
// Needs: kernel 6.1 with connection tracking (the kfuncs are resolved when the program is loaded).
//
// Maps
//   results  PERCPU_ARRAY  `enum result` -> packets, bytes
//
// Configure  enter_new: enter new connections; timeout_ms of those.
// Verdicts   XDP_PASS known, awaited, or not TCP/UDP; XDP_DROP nobody is there.
#include "kfuncs.h"
#include "parse.h"

#define ENOENT 2

enum result {
    RESULT_KNOWN,
    RESULT_AWAITED,
    RESULT_ENTERED,
    RESULT_NOBODY,
    RESULT_OTHER,
    RESULT_COUNT,
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, struct counter);
} results SEC(".maps");

const volatile bool enter_new = false;
const volatile __u32 timeout_ms = 30000;

static __always_inline int finish(struct xdp_md *ctx, __u32 result)
{
    struct counter *stats = bpf_map_lookup_elem(&results, &result);

    if (stats)
        count(stats, linear_bytes(ctx));
    return result == RESULT_NOBODY ? XDP_DROP : XDP_PASS;
}

// The tuple as helpers want it; its size tells them the family.
static __always_inline __u32 fill_tuple(const struct flow *flow, struct bpf_sock_tuple *tuple)
{
    if (flow->family == AF_INET) {
        tuple->ipv4.saddr = ipv4_of(&flow->source);
        tuple->ipv4.daddr = ipv4_of(&flow->dest);
        tuple->ipv4.sport = flow->source_port;
        tuple->ipv4.dport = flow->dest_port;
        return sizeof(tuple->ipv4);
    }
    __builtin_memcpy(tuple->ipv6.saddr, &flow->source, sizeof(tuple->ipv6.saddr));
    __builtin_memcpy(tuple->ipv6.daddr, &flow->dest, sizeof(tuple->ipv6.daddr));
    tuple->ipv6.sport = flow->source_port;
    tuple->ipv6.dport = flow->dest_port;
    return sizeof(tuple->ipv6);
}

static __always_inline bool is_known(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
                                     __u32 bytes, __u8 protocol)
{
    struct bpf_ct_opts opts = {.netns_id = BPF_F_CURRENT_NETNS, .l4proto = protocol};
    struct nf_conn *connection;

    if (bytes == sizeof(tuple->ipv4))
        connection = bpf_xdp_ct_lookup(ctx, tuple, sizeof(tuple->ipv4), &opts, sizeof(opts));
    else
        connection = bpf_xdp_ct_lookup(ctx, tuple, sizeof(tuple->ipv6), &opts, sizeof(opts));
    if (!connection)
        return false;
    bpf_ct_change_timeout(connection, timeout_ms);
    bpf_ct_release(connection);
    return true;
}

static __always_inline bool enter(struct xdp_md *ctx, struct bpf_sock_tuple *tuple, __u32 bytes,
                                  __u8 protocol)
{
    struct bpf_ct_opts opts = {.netns_id = BPF_F_CURRENT_NETNS, .l4proto = protocol};
    struct nf_conn *entry, *inserted;

    if (bytes == sizeof(tuple->ipv4))
        entry = bpf_xdp_ct_alloc(ctx, tuple, sizeof(tuple->ipv4), &opts, sizeof(opts));
    else
        entry = bpf_xdp_ct_alloc(ctx, tuple, sizeof(tuple->ipv6), &opts, sizeof(opts));
    if (!entry)
        return false;
    bpf_ct_set_timeout(entry, timeout_ms);
    inserted = bpf_ct_insert_entry(entry);
    if (!inserted)
        return false;
    bpf_ct_release(inserted);
    return true;
}

// Whether a socket of this host would take the packet. A listener is found as "request socket or
// listener" (skc), which needs no full socket.
static __always_inline bool is_awaited(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
                                       __u32 bytes, __u8 protocol)
{
    struct bpf_sock *socket;

    if (protocol == IPPROTO_TCP)
        socket = bpf_skc_lookup_tcp(ctx, tuple, bytes, BPF_F_CURRENT_NETNS, 0);
    else
        socket = bpf_sk_lookup_udp(ctx, tuple, bytes, BPF_F_CURRENT_NETNS, 0);
    if (!socket)
        return false;
    bpf_sk_release(socket);
    return true;
}

SEC("xdp")
int stateful(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct bpf_sock_tuple tuple = {};
    struct network network = {};
    struct flow flow = {};
    __u32 bytes;

    if (parse_frame(&cursor, &network, &flow) || !network.has_ports)
        return finish(ctx, RESULT_OTHER);
    if (flow.protocol != IPPROTO_TCP && flow.protocol != IPPROTO_UDP)
        return finish(ctx, RESULT_OTHER);
    bytes = fill_tuple(&flow, &tuple);
    if (is_known(ctx, &tuple, bytes, flow.protocol))
        return finish(ctx, RESULT_KNOWN);
    if (!is_awaited(ctx, &tuple, bytes, flow.protocol))
        return finish(ctx, RESULT_NOBODY);
    if (enter_new && enter(ctx, &tuple, bytes, flow.protocol))
        return finish(ctx, RESULT_ENTERED);
    return finish(ctx, RESULT_AWAITED);
}

char _license[] SEC("license") = "Dual MIT/GPL";
