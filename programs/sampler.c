// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// sampler: a copy of one frame in `one_in` for a monitor, as sFlow and IPFIX exporters want.
//
// Two ways out, for two kinds of reader. The ring buffer carries fixed records with the first bytes
// of the frame, in order over all CPUs. The perf event array carries a small header and as many
// bytes of the frame as asked for, copied by the helper itself, frags included.
//
// Maps
//   samples      RINGBUF           struct sample
//   packets      PERF_EVENT_ARRAY  struct sample_header, then frame bytes
//   alarms       RINGBUF           struct alarm: one when the sampler had to throw samples away
//   totals       PERCPU_ARRAY      `enum total` -> how often
//
// Configure  one_in; to_ring, to_perf; capture_bytes (of the frame, perf only).
// Verdicts   always XDP_PASS.
#include "parse.h"

#define SAMPLE_BYTES 128

enum total {
    TOTAL_SEEN,
    TOTAL_SAMPLED,
    TOTAL_LOST,
    TOTAL_COUNT,
};

struct sample_header {
    __u64 time_ns;
    __u32 ifindex;
    __u32 queue;
    __u32 frame_bytes; // of the whole frame, frags included
    __u32 copied_bytes;
};

struct sample {
    struct sample_header header;
    __u8 data[SAMPLE_BYTES];
};

struct alarm {
    __u64 time_ns;
    __u64 unread_bytes;
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 262144);
} samples SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} alarms SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} packets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, TOTAL_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

const volatile __u32 one_in = 64;
const volatile __u32 capture_bytes = 96;
const volatile bool to_ring = true;
const volatile bool to_perf = true;

static __always_inline void add(__u32 total)
{
    __u64 *times = bpf_map_lookup_elem(&totals, &total);

    if (times)
        *times += 1;
}

static __always_inline void fill_header(struct xdp_md *ctx, struct sample_header *header)
{
    header->time_ns = bpf_ktime_get_ns();
    header->ifindex = ctx->ingress_ifindex;
    header->queue = ctx->rx_queue_index;
    header->frame_bytes = bpf_xdp_get_buff_len(ctx);
}

static __always_inline void raise_alarm(void)
{
    struct alarm alarm = {
        .time_ns = bpf_ktime_get_ns(),
        .unread_bytes = bpf_ringbuf_query(&samples, BPF_RB_AVAIL_DATA),
    };

    bpf_ringbuf_output(&alarms, &alarm, sizeof(alarm), BPF_RB_FORCE_WAKEUP);
    add(TOTAL_LOST);
}

static __always_inline void sample_to_ring(struct xdp_md *ctx)
{
    struct sample *sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
    __u64 bytes;

    if (!sample) {
        raise_alarm();
        return;
    }
    fill_header(ctx, &sample->header);
    bytes = sample->header.frame_bytes;
    barrier_var(bytes); // one register for the comparison and the call, whatever clang prefers
    if (bytes > SAMPLE_BYTES)
        bytes = SAMPLE_BYTES;
    if (bytes < ETH_HLEN || bpf_xdp_load_bytes(ctx, 0, sample->data, bytes)) {
        bpf_ringbuf_discard(sample, BPF_RB_NO_WAKEUP);
        return;
    }
    sample->header.copied_bytes = bytes;
    bpf_ringbuf_submit(sample, 0);
}

static __always_inline void sample_to_perf(struct xdp_md *ctx)
{
    struct sample_header header;
    __u64 bytes = capture_bytes;

    fill_header(ctx, &header);
    if (bytes > header.frame_bytes)
        bytes = header.frame_bytes;
    header.copied_bytes = bytes;
    // The upper half of the flags says how much of the frame to append.
    if (bpf_perf_event_output(ctx, &packets, BPF_F_CURRENT_CPU | bytes << 32, &header,
                              sizeof(header)))
        add(TOTAL_LOST);
}

SEC("xdp.frags")
int sampler(struct xdp_md *ctx)
{
    add(TOTAL_SEEN);
    if (one_in > 1 && bpf_get_prandom_u32() % one_in)
        return XDP_PASS;
    add(TOTAL_SAMPLED);
    if (to_ring)
        sample_to_ring(ctx);
    if (to_perf)
        sample_to_perf(ctx);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
