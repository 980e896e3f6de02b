// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// queue_classes: classes with a guaranteed and a maximum rate below one link, as HTB has them.
//
// Each class has two token buckets, as times at which they are empty (see queue_shaper), and the
// link has one. A class whose guaranteed bucket has something sends first; what the link has left
// goes in turn to those below their maximum. The class is that of the DSCP's upper two bits.
//
// Maps
//   class_queue_0 .. 3  PIFO_XDP  the packets of each class
//   rates               ARRAY     class -> guaranteed and maximum rate in bytes a second; 4: the
//                                 link's maximum. A rate of 0 is none: no guarantee, no limit
//   sent                ARRAY     class -> packets and bytes that left
//   class_state         ARRAY     the buckets and the timer
//
// Use        towpath load IN queue_classes.o
//            towpath load OUT queue_classes.o --hook dequeue --map-init rates.json
// Verdicts   XDP_REDIRECT into the class's queue.
#include "precedence.h"
#include "queueing.h"

#define CLASSES 4
#define LINK CLASSES
#define PACKETS_MAX 1024
#define PACKET_BYTES_MAX 65536
#define NANOSECONDS 1000000000ull
#define BURST_NS 1000000ull // what a class may save up while it has nothing to send

#define CLASS_QUEUE(number)                                                                        \
    struct {                                                                                       \
        __uint(type, BPF_MAP_TYPE_PIFO_XDP);                                                       \
        __uint(key_size, sizeof(__u32));                                                           \
        __uint(value_size, sizeof(__u32));                                                         \
        __uint(max_entries, PACKETS_MAX);                                                          \
        __uint(map_extra, 1);                                                                      \
        __uint(pinning, LIBBPF_PIN_BY_NAME);                                                       \
    } class_queue_##number SEC(".maps")

CLASS_QUEUE(0);
CLASS_QUEUE(1);
CLASS_QUEUE(2);
CLASS_QUEUE(3);

struct rate {
    __u64 guaranteed;
    __u64 maximum;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CLASSES + 1);
    __type(key, __u32);
    __type(value, struct rate);
} rates SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CLASSES);
    __type(key, __u32);
    __type(value, struct counter);
} sent SEC(".maps");

// When the buckets are empty, or were.
struct buckets {
    __u64 guaranteed_ns;
    __u64 maximum_ns;
};

struct class_state {
    struct bpf_timer timer;
    struct buckets buckets[CLASSES + 1];
    __u32 ifindex;
    __u32 has_timer;
    __u32 turn;
    __u32 zero;
    __u64 seen_ns; // the clock, when it was last looked at
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct class_state);
} class_state SEC(".maps");

SEC("xdp.frags")
int queue_classes(struct xdp_md *ctx)
{
    switch (precedence_of(ctx) >> 1) {
    case 1:
        return bpf_redirect_map(&class_queue_1, 0, 0);
    case 2:
        return bpf_redirect_map(&class_queue_2, 0, 0);
    case 3:
        return bpf_redirect_map(&class_queue_3, 0, 0);
    default:
        return bpf_redirect_map(&class_queue_0, 0, 0);
    }
}

static int go_on(void *map, __u32 *key, struct class_state *state)
{
    (void)map, (void)key;
    bpf_schedule_iface_dequeue(NULL, state->ifindex, 0);
    return 0;
}

static __always_inline void wait(struct class_state *state, __u32 ifindex, __u64 ns)
{
    state->ifindex = ifindex;
    if (!state->has_timer) {
        bpf_timer_init(&state->timer, &class_state, CLOCK_MONOTONIC);
        bpf_timer_set_callback(&state->timer, go_on);
        state->has_timer = 1;
    }
    bpf_timer_start(&state->timer, ns, 0);
}

static __always_inline struct xdp_md *take_of(struct dequeue_ctx *ctx, __u32 class)
{
    __u64 rank = 0;

    switch (class) {
    case 1:
        return bpf_packet_dequeue(ctx, &class_queue_1, 0, &rank);
    case 2:
        return bpf_packet_dequeue(ctx, &class_queue_2, 0, &rank);
    case 3:
        return bpf_packet_dequeue(ctx, &class_queue_3, 0, &rank);
    default:
        return bpf_packet_dequeue(ctx, &class_queue_0, 0, &rank);
    }
}

// The time a bucket is empty after so many more bytes.
static __always_inline __u64 drained(__u64 empty_ns, __u64 rate, __u64 bytes, __u64 now)
{
    __u64 start = now > BURST_NS ? now - BURST_NS : 0;

    if (!rate)
        return 0;
    return (empty_ns > start ? empty_ns : start) + bytes * NANOSECONDS / rate;
}

static __always_inline __u64 maximum_of(__u32 class)
{
    struct rate *rate = bpf_map_lookup_elem(&rates, &class);

    return rate ? rate->maximum : 0;
}

// Takes a packet's bytes out of the buckets that it is sent from.
static __always_inline void charge(struct class_state *state, __u32 class, __u64 bytes, __u64 now,
                                   bool is_guaranteed)
{
    struct counter *counter = bpf_map_lookup_elem(&sent, &class);
    struct rate *rate = bpf_map_lookup_elem(&rates, &class);
    struct buckets *own = &state->buckets[class & (CLASSES - 1)];
    struct buckets *link = &state->buckets[LINK];

    if (rate && is_guaranteed)
        own->guaranteed_ns = drained(own->guaranteed_ns, rate->guaranteed, bytes, now);
    if (rate)
        own->maximum_ns = drained(own->maximum_ns, rate->maximum, bytes, now);
    link->maximum_ns = drained(link->maximum_ns, maximum_of(LINK), bytes, now);
    if (counter)
        count(counter, bytes);
}

// What has been sent empties no bucket for longer than one packet takes: where it would, the clock
// has gone back.
static __always_inline void mend(__u64 *empty_ns, __u64 rate, __u64 now)
{
    if (rate && *empty_ns > now + PACKET_BYTES_MAX * NANOSECONDS / rate)
        *empty_ns = now;
}

static __always_inline void mend_all(struct class_state *state, __u64 now)
{
    for (__u32 class = 0; class <= CLASSES; class++) {
        struct rate *rate = bpf_map_lookup_elem(&rates, &class);

        if (!rate)
            continue;
        mend(&state->buckets[class].guaranteed_ns, rate->guaranteed, now);
        mend(&state->buckets[class].maximum_ns, rate->maximum, now);
    }
}

static __always_inline bool has_guarantee(struct class_state *state, __u32 class, __u64 now)
{
    struct rate *rate = bpf_map_lookup_elem(&rates, &class);

    return rate && rate->guaranteed && state->buckets[class].guaranteed_ns <= now;
}

SEC("dequeue")
void *send_by_class(struct dequeue_ctx *ctx)
{
    __u64 now = bpf_ktime_get_ns(), next = 0;
    __u32 zero = 0;
    struct class_state *state = bpf_map_lookup_elem(&class_state, &zero);
    struct xdp_md *pkt;

    if (!state)
        return NULL;
    if (now < state->seen_ns)
        mend_all(state, now);
    state->seen_ns = now;
    if (state->buckets[LINK].maximum_ns > now) {
        wait(state, ctx->egress_ifindex, state->buckets[LINK].maximum_ns - now);
        return NULL;
    }
    for (__u32 class = 0; class < CLASSES; class++) {
        if (state->buckets[class].maximum_ns > now || !has_guarantee(state, class, now))
            continue;
        pkt = take_of(ctx, class);
        if (pkt) {
            charge(state, class, packet_bytes(pkt), now, true);
            return pkt;
        }
    }
    state->turn += 1;
    for (__u32 i = 0; i < CLASSES; i++) {
        __u32 class = (state->turn + i) & (CLASSES - 1);
        __u64 maximum_ns = state->buckets[class].maximum_ns;

        if (maximum_ns > now) {
            if (!next || maximum_ns < next)
                next = maximum_ns;
            continue;
        }
        pkt = take_of(ctx, class);
        if (pkt) {
            charge(state, class, packet_bytes(pkt), now, false);
            return pkt;
        }
    }
    if (next)
        wait(state, ctx->egress_ifindex, next - now);
    return NULL;
}

char _license[] SEC("license") = "Dual MIT/GPL";
