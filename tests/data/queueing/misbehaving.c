// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Dequeue programs that are no good, and what puts packets into their queue, by the rank in byte
// 14.
#include "queueing.h"

struct {
    __uint(type, BPF_MAP_TYPE_PIFO_XDP);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
    __uint(max_entries, 256);
    __uint(map_extra, 16);
} queue SEC(".maps");

SEC("xdp.frags")
int put(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u8 *rank;

    if (!take(&cursor, ETH_HLEN) || !(rank = TAKE(&cursor, __u8)))
        return XDP_DROP;
    return bpf_redirect_map(&queue, *rank, 0);
}

SEC("dequeue")
void *sends(struct dequeue_ctx *ctx)
{
    __u64 rank = 0;

    return bpf_packet_dequeue(ctx, &queue, 0, &rank);
}

SEC("dequeue")
void *sends_nothing(struct dequeue_ctx *ctx)
{
    return NULL;
}

// And wants to be asked again.
SEC("dequeue")
void *never_rests(struct dequeue_ctx *ctx)
{
    bpf_schedule_iface_dequeue(ctx, ctx->egress_ifindex, 0);
    return NULL;
}

SEC("dequeue")
void *drops_all(struct dequeue_ctx *ctx)
{
    for (int i = 0; i < 1000; i++) {
        __u64 rank = 0;
        struct xdp_md *pkt = bpf_packet_dequeue(ctx, &queue, 0, &rank);

        if (!pkt)
            return NULL;
        bpf_packet_drop(ctx, pkt);
    }
    return NULL;
}

// Holds as many as it can keep pointers to, and sends the last but one it took.
SEC("dequeue")
void *holds_many(struct dequeue_ctx *ctx)
{
    __u64 rank = 0;
    struct xdp_md *a, *b, *c;
    __u8 *first, *second;

    a = bpf_packet_dequeue(ctx, &queue, 0, &rank);
    if (!a)
        return NULL;
    b = bpf_packet_dequeue(ctx, &queue, 0, &rank);
    if (!b)
        return a;
    c = bpf_packet_dequeue(ctx, &queue, 0, &rank);
    if (!c) {
        bpf_packet_drop(ctx, a);
        return b;
    }
    // Bytes of two packets at the same time.
    first = (void *)(long)a->data;
    second = (void *)(long)c->data;
    if ((void *)(first + 16) <= (void *)(long)a->data_end &&
        (void *)(second + 16) <= (void *)(long)c->data_end)
        first[15] = second[15];
    bpf_packet_drop(ctx, c);
    bpf_packet_drop(ctx, b);
    return a;
}

// A port that is not there, one without a dequeue program, and flags: what it is told is where the
// packet's last bytes were.
SEC("xdp")
int asks(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    int *said;

    if (!take(&cursor, ETH_HLEN + 2) || !(said = take(&cursor, 12)))
        return XDP_DROP;
    said[0] = bpf_schedule_iface_dequeue(ctx, 9999, 0);
    said[1] = bpf_schedule_iface_dequeue(ctx, ctx->ingress_ifindex, 0);
    said[2] = bpf_schedule_iface_dequeue(ctx, ctx->ingress_ifindex, 1);
    return XDP_TX;
}

// Leaves by the port of ifindex 12, a while from now.
const volatile __u64 later_ns = 30 * 1000000;

SEC("xdp.frags")
int later(struct xdp_md *ctx)
{
    bpf_xdp_store_launch_time(ctx, bpf_ktime_get_ns() + later_ns);
    return bpf_redirect(12, 0);
}

char _license[] SEC("license") = "Dual MIT/GPL";
