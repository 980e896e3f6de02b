// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Programs that want to know when packets were sent. A packet's cookie is its byte 14, which is
// its rank as well; it leaves by the port of ifindex 12.
#include "hints.h"
#include "queueing.h"

struct {
    __uint(type, BPF_MAP_TYPE_PIFO_XDP);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
    __uint(max_entries, 256);
    __uint(map_extra, 256);
} queue SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} sent SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __s64);
} answers SEC(".maps");

static __always_inline void note(__u32 key, __s64 answer)
{
    bpf_map_update_elem(&answers, &key, &answer, BPF_ANY);
}

static __always_inline int cookie_of(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u8 *byte;

    if (!take(&cursor, ETH_HLEN) || !(byte = TAKE(&cursor, __u8)))
        return -1;
    return *byte;
}

SEC("xdp.frags")
int stamp(struct xdp_md *ctx)
{
    int cookie = cookie_of(ctx);

    note(0, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie));
    return bpf_redirect(12, 0);
}

// Twice, of which the second is refused.
SEC("xdp.frags")
int stamp_twice(struct xdp_md *ctx)
{
    int cookie = cookie_of(ctx);

    note(0, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie));
    note(1, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie + 1));
    return bpf_redirect(12, 0);
}

SEC("xdp.frags")
int stamp_and_drop(struct xdp_md *ctx)
{
    note(0, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie_of(ctx)));
    return XDP_DROP;
}

// Every other one.
SEC("xdp.frags")
int stamp_some(struct xdp_md *ctx)
{
    int cookie = cookie_of(ctx);

    if (cookie & 1)
        note(0, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie));
    return bpf_redirect(12, 0);
}

SEC("xdp.frags")
int stamp_later(struct xdp_md *ctx)
{
    note(0, bpf_xdp_request_tx_timestamp(ctx, &sent, cookie_of(ctx)));
    bpf_xdp_store_launch_time(ctx, bpf_ktime_get_ns() + 30 * 1000000);
    return bpf_redirect(12, 0);
}

SEC("xdp.frags")
int put(struct xdp_md *ctx)
{
    int rank = cookie_of(ctx);

    return rank < 0 ? XDP_DROP : bpf_redirect_map(&queue, rank, 0);
}

SEC("dequeue")
void *stamps_all(struct dequeue_ctx *ctx)
{
    __u64 rank = 0;
    struct xdp_md *pkt = bpf_packet_dequeue(ctx, &queue, 0, &rank);

    if (!pkt)
        return NULL;
    note(0, bpf_packet_request_tx_timestamp(pkt, &sent, rank));
    return pkt;
}

char _license[] SEC("license") = "Dual MIT/GPL";
