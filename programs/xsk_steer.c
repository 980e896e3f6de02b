// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// xsk_steer: sends chosen UDP ports to AF_XDP sockets, everything else to the host.
//
// The socket is that of the receive queue; if the queue has none, the frame takes the verdict of
// the port's entry instead of being lost. Frames of a control protocol stay with the host always.
//
// Maps
//   sockets   XSKMAP        receive queue -> AF_XDP socket
//   udp_ports HASH          UDP destination port -> verdict when no socket is there
//   queues    PERCPU_ARRAY  receive queue -> frames, bytes steered
//
// Configure  udp_ports.
// Verdicts   XDP_REDIRECT to a socket; XDP_PASS or XDP_DROP (the entry's) without one; XDP_PASS.
#include "parse.h"

#define QUEUES_MAX 64

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, QUEUES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} sockets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, __be16);
    __type(value, __u32);
} udp_ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, QUEUES_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} queues SEC(".maps");

SEC("xdp.frags")
int xsk_steer(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u32 queue = ctx->rx_queue_index;
    struct network network = {};
    struct flow flow = {};
    struct counter *stats;
    __u32 *without;

    if (parse_frame(&cursor, &network, &flow) || !network.has_ports)
        return XDP_PASS;
    if (flow.protocol != IPPROTO_UDP)
        return XDP_PASS;
    without = bpf_map_lookup_elem(&udp_ports, &flow.dest_port);
    if (!without)
        return XDP_PASS;
    stats = bpf_map_lookup_elem(&queues, &queue);
    if (stats)
        count(stats, bpf_xdp_get_buff_len(ctx));
    // Two bits of the flags are the verdict of a miss; larger values would be refused.
    return bpf_redirect_map(&sockets, queue, *without & 3);
}

char _license[] SEC("license") = "Dual MIT/GPL";
