// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// queue_priority: strict priority. A packet leaves before all that are less urgent, however long
// those have waited.
//
// The eight classes are those of the DSCP's upper three bits (RFC 2474, class selectors): 7 leaves
// first. The rank in the queue is the class turned round.
//
// Maps
//   priority_queue  PIFO_XDP  the packets
//   classes         ARRAY     class -> packets and bytes that came; atomics
//
// Use        towpath load IN queue_priority.o; towpath load OUT queue_priority.o --hook dequeue
// Verdicts   XDP_REDIRECT into the queue.
#include "precedence.h"
#include "queueing.h"

#define CLASSES 8
#define PACKETS_MAX 2048

struct {
    __uint(type, BPF_MAP_TYPE_PIFO_XDP);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
    __uint(max_entries, PACKETS_MAX);
    __uint(map_extra, CLASSES);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} priority_queue SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CLASSES);
    __type(key, __u32);
    __type(value, struct counter);
} classes SEC(".maps");

SEC("xdp.frags")
int queue_priority(struct xdp_md *ctx)
{
    __u32 class = precedence_of(ctx) & (CLASSES - 1);
    struct counter *counter = bpf_map_lookup_elem(&classes, &class);

    if (counter) {
        __sync_fetch_and_add(&counter->packets, 1);
        __sync_fetch_and_add(&counter->bytes, linear_bytes(ctx));
    }
    return bpf_redirect_map(&priority_queue, CLASSES - 1 - class, 0);
}

SEC("dequeue")
void *send_most_urgent(struct dequeue_ctx *ctx)
{
    __u64 rank = 0;

    return bpf_packet_dequeue(ctx, &priority_queue, 0, &rank);
}

char _license[] SEC("license") = "Dual MIT/GPL";
