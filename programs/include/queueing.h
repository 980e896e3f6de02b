// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Queues of packets, and programs that say which packet leaves next: what only Towpath has, with
// the names of "xdp: Add packet queueing and scheduling capabilities" (T. Høiland-Jørgensen,
// July 2022). docs/queueing.md says how to use it.
//
//     struct {
//         __uint(type, BPF_MAP_TYPE_PIFO_XDP);
//         __uint(key_size, sizeof(__u32));
//         __uint(value_size, sizeof(__u32));
//         __uint(max_entries, 1024); // packets
//         __uint(map_extra, 64);     // ranks in the window, a power of two
//         __uint(pinning, LIBBPF_PIN_BY_NAME);
//     } queue SEC(".maps");
//
//     SEC("xdp") int enqueue(struct xdp_md *ctx) { return bpf_redirect_map(&queue, 0, 0); }
//
//     SEC("dequeue") void *send(struct dequeue_ctx *ctx)
//     {
//         __u64 rank = 0;
//
//         return bpf_packet_dequeue(ctx, &queue, 0, &rank);
//     }
#pragma once

#include "xdp.h"

#define BPF_MAP_TYPE_PIFO_GENERIC 1024 // values; bpf_map_push_elem() takes the rank as its flags
#define BPF_MAP_TYPE_PIFO_XDP 1025     // packets; bpf_redirect_map() takes the rank as its key

#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif

// What a dequeue program gets.
struct dequeue_ctx {
    __u32 egress_ifindex; // the port that has room
};

// The packet of the lowest rank, which the program then holds: it returns it to have it sent, or
// drops it. Its `data`, `data_end` and `data_meta` lead to its bytes. NULL: `*rank` is -ENOENT, or
// -EINVAL for flags, or -EBUSY when the program holds too many.
extern struct xdp_md *bpf_packet_dequeue(struct dequeue_ctx *ctx, void *map__map, __u64 flags,
                                         __u64 *rank) __ksym __weak;

// Drops a packet that the program holds.
extern int bpf_packet_drop(struct dequeue_ctx *ctx, struct xdp_md *pkt) __ksym __weak;

// Has the dequeue program of a port run as soon as the port has room. What is put into a queue does
// that by itself for the ports whose programs know the queue. `ctx` may be anything: a timer has
// none. -ENODEV: there is no such port; -ENOENT: it has no such program.
extern int bpf_schedule_iface_dequeue(void *ctx__ign, __u32 ifindex, __u64 flags) __ksym __weak;

// Has a packet leave at this time of CLOCK_MONOTONIC, and not before.
extern int bpf_packet_store_launch_time(struct xdp_md *pkt, __u64 time_ns) __ksym __weak;

// The same for the frame that an XDP program judges.
extern int bpf_xdp_store_launch_time(struct xdp_md *ctx, __u64 time_ns) __ksym __weak;

// Has a ring buffer of the program told when the packet was sent: a struct xdp_tx_timestamp, as of
// bpf_xdp_request_tx_timestamp() (hints.h).
extern int bpf_packet_request_tx_timestamp(struct xdp_md *pkt, void *map__map,
                                           __u64 cookie) __ksym __weak;

// Bytes of a packet that a dequeue program holds, of its first buffer.
static __always_inline __u64 packet_bytes(struct xdp_md *pkt)
{
    __u64 bytes = pkt->data_end - pkt->data;

    // As in linear_bytes().
    barrier_var(bytes);
    return bytes;
}
