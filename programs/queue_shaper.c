// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// queue_shaper: a token bucket that says for each packet the earliest time at which it may leave.
//
// The bucket is one number, the time at which it is empty: each packet moves it on by the time
// that its bytes take at the rate, and it is never further in the past than the burst. A packet
// gets that time as its launch time, to which the port keeps to the microsecond. What is not due
// soon stays in the queue, and a timer has the program run again.
//
// Maps
//   shaper_queue  PIFO_XDP  the packets, first in, first out
//   shaper_state  ARRAY     the bucket, the timer, and what was sent
//
// Configure  bytes_per_second, burst_bytes, ahead_ns: how long before its time a packet is handed
//            to the port
// Use        towpath load IN queue_shaper.o
//            towpath load OUT queue_shaper.o --hook dequeue --set bytes_per_second=1250000
// Verdicts   XDP_REDIRECT into the queue.
#include "queueing.h"

#define PACKETS_MAX 4096
#define PACKET_BYTES_MAX 65536
#define NANOSECONDS 1000000000ull

struct {
    __uint(type, BPF_MAP_TYPE_PIFO_XDP);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
    __uint(max_entries, PACKETS_MAX);
    __uint(map_extra, 1);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} shaper_queue SEC(".maps");

struct shaper {
    struct bpf_timer timer;
    __u64 empty_ns; // when the bucket is empty, or was
    __u32 ifindex;
    __u32 has_timer;
    struct counter sent;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct shaper);
} shaper_state SEC(".maps");

const volatile __u64 bytes_per_second = 125000000;
const volatile __u64 burst_bytes = 1514;
const volatile __u64 ahead_ns = 500000;

static __always_inline __u64 time_of(__u64 bytes)
{
    return bytes * NANOSECONDS / (bytes_per_second ? bytes_per_second : 1);
}

SEC("xdp.frags")
int queue_shaper(struct xdp_md *ctx)
{
    return bpf_redirect_map(&shaper_queue, 0, 0);
}

static int go_on(void *map, __u32 *key, struct shaper *shaper)
{
    (void)map, (void)key;
    bpf_schedule_iface_dequeue(NULL, shaper->ifindex, 0);
    return 0;
}

static __always_inline void wait(struct shaper *shaper, __u32 ifindex, __u64 ns)
{
    shaper->ifindex = ifindex;
    if (!shaper->has_timer) {
        bpf_timer_init(&shaper->timer, &shaper_state, CLOCK_MONOTONIC);
        bpf_timer_set_callback(&shaper->timer, go_on);
        shaper->has_timer = 1;
    }
    bpf_timer_start(&shaper->timer, ns, 0);
}

SEC("dequeue")
void *send_at_rate(struct dequeue_ctx *ctx)
{
    __u64 now = bpf_ktime_get_ns(), rank = 0, start, bytes;
    __u32 zero = 0;
    struct shaper *shaper = bpf_map_lookup_elem(&shaper_state, &zero);
    struct xdp_md *pkt;

    if (!shaper)
        return NULL;
    // Nothing that was sent empties the bucket for longer: the clock has gone back.
    if (shaper->empty_ns > now + ahead_ns + time_of(PACKET_BYTES_MAX))
        shaper->empty_ns = now;
    start = now > time_of(burst_bytes) ? now - time_of(burst_bytes) : 0;
    if (shaper->empty_ns > start)
        start = shaper->empty_ns;
    if (start > now + ahead_ns) {
        wait(shaper, ctx->egress_ifindex, start - ahead_ns - now);
        return NULL;
    }
    pkt = bpf_packet_dequeue(ctx, &shaper_queue, 0, &rank);
    if (!pkt)
        return NULL;
    bytes = packet_bytes(pkt);
    shaper->empty_ns = start + time_of(bytes);
    count(&shaper->sent, bytes);
    bpf_packet_store_launch_time(pkt, start);
    return pkt;
}

char _license[] SEC("license") = "Dual MIT/GPL";
