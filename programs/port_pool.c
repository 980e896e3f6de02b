// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// port_pool: source NAT for UDP over IPv4, with a pool of ports.
//
// A new flow from inside takes a port from the pool and leaves with the public address. Answers
// to that port find their way back. A flow's port returns when its entry is taken down by the next
// use of an old port: ports that were just freed lie on a stack and are reused last: late answers
// to an old flow do not reach a new one.
//
// Maps
//   free_ports   QUEUE    ports never used yet, in order; filled by the operator
//   used_ports   STACK    ports of flows that were closed
//   outgoing     HASH     inside {address, port, remote} -> public port
//   incoming     HASH     public port -> inside address and port, remote
//   results      PERCPU_ARRAY  `enum result` -> how often
//
// Configure  inside, inside_mask: who is translated; public_address.
// Verdicts   XDP_TX translated, back through the port it came in by (one-armed); XDP_DROP the pool
//            is empty, or an answer for nobody; XDP_PASS not UDP, not ours.
#include "checksum.h"
#include "rewrite.h"

#define FLOWS_MAX 16384
#define DISCARD_PORT 9 // a datagram to it closes the flow: a stand-in for an idle timer

enum result {
    RESULT_OUT,
    RESULT_IN,
    RESULT_NEW,
    RESULT_CLOSED,
    RESULT_POOL_EMPTY,
    RESULT_NOBODY,
    RESULT_COUNT,
};

struct inside_flow {
    __be32 inside;
    __be32 remote;
    __be16 inside_port;
    __be16 remote_port;
};

struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, FLOWS_MAX);
    __type(value, __be16);
} free_ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_STACK);
    __uint(max_entries, FLOWS_MAX);
    __type(value, __be16);
} used_ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, FLOWS_MAX);
    __type(key, struct inside_flow);
    __type(value, __be16);
} outgoing SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, FLOWS_MAX);
    __type(key, __be16);
    __type(value, struct inside_flow);
} incoming SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} results SEC(".maps");

const volatile __be32 inside = bpf_htonl(0x0a000000); // 10.0.0.0/8
const volatile __be32 inside_mask = bpf_htonl(0xff000000);
const volatile __be32 public_address = bpf_htonl(0xc6336401); // 198.51.100.1

static __always_inline int finish(__u32 result, int verdict)
{
    __u64 *times = bpf_map_lookup_elem(&results, &result);

    if (times)
        *times += 1;
    return verdict;
}

static __always_inline void replace_address(struct iphdr *ip, struct udphdr *udp,
                                            __be32 *address, __be32 after)
{
    __be32 before = *address;
    __u16 low = before, high = before >> 16, new_low = after, new_high = after >> 16;

    ip->check = checksum_replace(checksum_replace(ip->check, low, new_low), high, new_high);
    if (udp->check)
        udp->check = checksum_replace(checksum_replace(udp->check, low, new_low), high, new_high);
    *address = after;
}

static __always_inline void replace_port(struct udphdr *udp, __be16 *port, __be16 after)
{
    if (udp->check)
        udp->check = checksum_replace(udp->check, *port, after);
    *port = after;
}

// The flow's public port, from the pool if it is new. Returns false when the pool is empty.
static __always_inline bool public_port_of(const struct inside_flow *flow, __be16 *port)
{
    __be16 *known = bpf_map_lookup_elem(&outgoing, flow);

    if (known) {
        *port = *known;
        return true;
    }
    if (bpf_map_pop_elem(&free_ports, port) && bpf_map_pop_elem(&used_ports, port))
        return false;
    bpf_map_update_elem(&outgoing, flow, port, BPF_ANY);
    bpf_map_update_elem(&incoming, port, flow, BPF_ANY);
    finish(RESULT_NEW, 0);
    return true;
}

static __always_inline void close_flow(const struct inside_flow *flow, __be16 port)
{
    bpf_map_delete_elem(&outgoing, flow);
    bpf_map_delete_elem(&incoming, &port);
    bpf_map_push_elem(&used_ports, &port, BPF_EXIST); // on a full stack the oldest goes
    finish(RESULT_CLOSED, 0);
}

static __always_inline int translate_out(struct iphdr *ip, struct udphdr *udp)
{
    struct inside_flow flow = {
        .inside = ip->saddr,
        .remote = ip->daddr,
        .inside_port = udp->source,
        .remote_port = udp->dest,
    };
    __be16 port;

    if (!public_port_of(&flow, &port))
        return finish(RESULT_POOL_EMPTY, XDP_DROP);
    replace_address(ip, udp, &ip->saddr, public_address);
    replace_port(udp, &udp->source, port);
    if (flow.remote_port == bpf_htons(DISCARD_PORT))
        close_flow(&flow, port);
    return finish(RESULT_OUT, XDP_TX);
}

static __always_inline int translate_in(struct iphdr *ip, struct udphdr *udp)
{
    __be16 port = udp->dest;
    struct inside_flow *flow = bpf_map_lookup_elem(&incoming, &port);

    if (!flow || flow->remote != ip->saddr || flow->remote_port != udp->source)
        return finish(RESULT_NOBODY, XDP_DROP);
    replace_address(ip, udp, &ip->daddr, flow->inside);
    replace_port(udp, &udp->dest, flow->inside_port);
    return finish(RESULT_IN, XDP_TX);
}

SEC("xdp")
int port_pool(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet;
    struct udphdr *udp;
    struct iphdr *ip;
    __u16 ethertype;
    int verdict;

    ethernet = parse_ethernet(&cursor, &ethertype);
    if (!ethernet || ethertype != ETH_P_IP)
        return XDP_PASS;
    ip = parse_ipv4(&cursor);
    if (!ip || ip->protocol != IPPROTO_UDP)
        return XDP_PASS;
    if (ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
        return XDP_PASS;
    udp = TAKE(&cursor, struct udphdr);
    if (!udp)
        return XDP_PASS;
    if ((ip->saddr & inside_mask) == inside)
        verdict = translate_out(ip, udp);
    else if (ip->daddr == public_address)
        verdict = translate_in(ip, udp);
    else
        return XDP_PASS;
    if (verdict == XDP_TX)
        swap_mac(ethernet);
    return verdict;
}

char _license[] SEC("license") = "Dual MIT/GPL";
