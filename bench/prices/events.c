// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What programs send to user space. Rings are emptied between measurements and never full.
#include "price.h"

#define BYTES 64
#define CPUS_MAX 1024

struct event {
    __u8 bytes[BYTES];
};

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 23);
} ringbuf SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(max_entries, CPUS_MAX);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} nobody SEC(".maps");

// bench opens the slots of maps of this name.
struct {
    __uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
    __uint(max_entries, CPUS_MAX);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
} listeners SEC(".maps");

#define EVENT struct event event = {{first}}

PRICE(perf_event_output_to_nobody, EVENT,
      done += bpf_perf_event_output(ctx, &nobody, BPF_F_CURRENT_CPU, &event, BYTES) < 0)
PRICE(perf_event_output, EVENT,
      done += !bpf_perf_event_output(ctx, &listeners, BPF_F_CURRENT_CPU, &event, BYTES))
PRICE(perf_event_output_with_packet, EVENT,
      done += !bpf_perf_event_output(ctx, &listeners, BPF_F_CURRENT_CPU | 64ull << 32, &event, 16))

PRICE(ringbuf_output, EVENT, done += !bpf_ringbuf_output(&ringbuf, &event, BYTES, 0))
PRICE(ringbuf_output_without_wakeup, EVENT,
      done += !bpf_ringbuf_output(&ringbuf, &event, BYTES, BPF_RB_NO_WAKEUP))
PRICE(ringbuf_reserve_and_submit, , {
    __u64 *record = bpf_ringbuf_reserve(&ringbuf, BYTES, 0);
    if (record) {
        *record = n;
        bpf_ringbuf_submit(record, 0);
        done += 1;
    }
})
PRICE(ringbuf_reserve_and_discard, , {
    __u64 *record = bpf_ringbuf_reserve(&ringbuf, BYTES, 0);
    if (record) {
        bpf_ringbuf_discard(record, 0);
        done += 1;
    }
})
PRICE(ringbuf_reserve_and_submit_dynptr, , {
    struct bpf_dynptr record;
    done += !bpf_ringbuf_reserve_dynptr(&ringbuf, BYTES, 0, &record);
    bpf_ringbuf_submit_dynptr(&record, 0);
})
PRICE(ringbuf_query, , done += bpf_ringbuf_query(&ringbuf, BPF_RB_RING_SIZE) != 0)
