// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// queue_fair: every flow gets the same share, and a flow whose packets wait too long loses some.
//
// Deficit round robin (Shreedhar and Varghese, 1995) over flows by hash: in each round a flow may
// send a quantum of bytes, and what it did not use it has in the next. The queue's rank is the
// number of the round: a flow that was idle joins the round that is under way, in front of all
// that others have queued for later rounds. Each flow has the state of CoDel (RFC 8289): when its
// packets waited for longer than `target_ns` during all of `interval_ns`, one is dropped, and then
// more and more often until they don't.
//
// Flows that are judged on several workers share their state without a lock: now and then one gets
// a round too early or too late.
//
// Maps
//   fair_queue  PIFO_XDP  the packets; in front of each a `struct mark`
//   fair_flows  ARRAY     by hash: the flow's round, what is left of its quantum, CoDel
//   fair_drops  ARRAY     0: the flow had too much queued, 1: CoDel
//
// Configure  quantum, target_ns, interval_ns
// Use        towpath load IN queue_fair.o; towpath load OUT queue_fair.o --hook dequeue
// Verdicts   XDP_REDIRECT into the queue; XDP_DROP when the flow has ROUNDS_MAX rounds in it.
#include "hash.h"
#include "queueing.h"

#define FLOWS 1024 // a power of two
#define PACKETS_MAX 4096
#define ROUNDS 256     // in a window: ranks never reach past the second
#define ROUNDS_MAX 128 // a flow's quanta that may wait
#define TRIES 16       // packets that one run drops at most
#define DROPS_ROOT_MAX 16

struct {
    __uint(type, BPF_MAP_TYPE_PIFO_XDP);
    __uint(key_size, sizeof(__u32));
    __uint(value_size, sizeof(__u32));
    __uint(max_entries, PACKETS_MAX);
    __uint(map_extra, ROUNDS);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} fair_queue SEC(".maps");

struct flow_state {
    __u32 round; // of the flow's last packet
    __u32 used;  // bytes of that round's quantum that it has used
    __u64 above_ns; // when its packets will have waited too long for an interval; 0: they don't
    __u64 drop_ns;  // when the next is dropped
    __u32 drops;    // since its packets began to wait too long
    __u32 is_dropping;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, FLOWS);
    __type(key, __u32);
    __type(value, struct flow_state);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} fair_flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct counter);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} fair_drops SEC(".maps");

struct fair_clock {
    __u32 round; // of the packet that left last
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct fair_clock);
    __uint(pinning, LIBBPF_PIN_BY_NAME);
} fair_clock SEC(".maps");

// In front of a packet in the queue.
struct mark {
    __u64 enqueued_ns;
    __u32 flow;
    __u32 zero;
};

const volatile __u32 quantum = 1514;
const volatile __u64 target_ns = 5 * 1000000;
const volatile __u64 interval_ns = 100 * 1000000;

static __always_inline void count_drop(__u32 why, __u64 bytes)
{
    struct counter *counter = bpf_map_lookup_elem(&fair_drops, &why);

    if (counter) {
        __sync_fetch_and_add(&counter->packets, 1);
        __sync_fetch_and_add(&counter->bytes, bytes);
    }
}

static __always_inline __u32 flow_of(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct flow flow = {};

    // What is no IP is one flow.
    if (parse_frame(&cursor, &network, &flow))
        __builtin_memset(&flow, 0, sizeof(flow));
    return hash_flow(&flow, 0x9747b28c) & (FLOWS - 1);
}

// The round in which a packet of so many bytes may leave, or -1 when that is too far away.
static __always_inline __s64 round_of(struct flow_state *flow, __u32 now, __u32 bytes)
{
    __u32 share = quantum ? quantum : 1;
    __u32 round = flow->round, used = flow->used, rounds;

    if ((__s32)(round - now) < 0) {
        round = now;
        used = 0;
    }
    used += bytes;
    rounds = (used - 1) / share; // full ones: a packet is never empty
    round += rounds;
    if (round - now >= ROUNDS_MAX)
        return -1;
    flow->round = round;
    flow->used = used - rounds * share;
    return round;
}

SEC("xdp.frags")
int queue_fair(struct xdp_md *ctx)
{
    __u32 index = flow_of(ctx), zero = 0, bytes = linear_bytes(ctx);
    struct flow_state *flow = bpf_map_lookup_elem(&fair_flows, &index);
    struct fair_clock *clock = bpf_map_lookup_elem(&fair_clock, &zero);
    struct mark *mark;
    __s64 round;

    if (!flow || !clock)
        return XDP_DROP;
    round = round_of(flow, clock->round, bytes);
    if (round < 0) {
        count_drop(0, bytes);
        return XDP_DROP;
    }
    if (!bpf_xdp_adjust_meta(ctx, -(int)sizeof(*mark))) {
        mark = (void *)(long)ctx->data_meta;
        if ((void *)(mark + 1) <= (void *)(long)ctx->data) {
            mark->enqueued_ns = bpf_ktime_get_ns();
            mark->flow = index;
            mark->zero = 0;
        }
    }
    return bpf_redirect_map(&fair_queue, round, 0);
}

static __always_inline __u32 root_of(__u32 number)
{
    __u32 root = 1;

#pragma unroll
    for (__u32 next = 2; next <= DROPS_ROOT_MAX; next++) {
        if (next * next <= number)
            root = next;
    }
    return root;
}

static __always_inline bool waits_too_long(struct flow_state *flow, __u64 waited, __u64 now)
{
    if (waited < target_ns) {
        flow->above_ns = 0;
        flow->is_dropping = 0;
        return false;
    }
    // An end that is further away than an interval was set before the clock went back.
    if (!flow->above_ns || flow->above_ns > now + interval_ns) {
        flow->above_ns = now + interval_ns;
        flow->is_dropping = 0;
        return false;
    }
    if (now < flow->above_ns)
        return false;
    if (!flow->is_dropping) {
        flow->is_dropping = 1;
        flow->drops = 1;
        flow->drop_ns = now + interval_ns;
        return true;
    }
    if (now < flow->drop_ns)
        return false;
    flow->drops += 1;
    // Of drops that nobody was there to make none is made up for.
    if (now - flow->drop_ns > interval_ns)
        flow->drop_ns = now;
    flow->drop_ns += interval_ns / root_of(flow->drops);
    return true;
}

static __always_inline bool is_dropped(struct xdp_md *pkt, __u64 now)
{
    struct mark *mark = (void *)(long)pkt->data_meta;
    struct flow_state *flow;
    __u64 waited;
    __u32 index;

    if ((void *)(mark + 1) > (void *)(long)pkt->data)
        return false;
    index = mark->flow;
    waited = now > mark->enqueued_ns ? now - mark->enqueued_ns : 0;
    flow = bpf_map_lookup_elem(&fair_flows, &index);
    return flow && waits_too_long(flow, waited, now);
}

SEC("dequeue")
void *send_in_turn(struct dequeue_ctx *ctx)
{
    __u64 now = bpf_ktime_get_ns();
    __u32 zero = 0;
    struct fair_clock *clock = bpf_map_lookup_elem(&fair_clock, &zero);

    if (!clock)
        return NULL;
    for (int i = 0; i < TRIES; i++) {
        __u64 round = 0;
        struct xdp_md *pkt = bpf_packet_dequeue(ctx, &fair_queue, 0, &round);

        if (!pkt)
            return NULL;
        clock->round = round;
        if (!is_dropped(pkt, now))
            return pkt;
        count_drop(1, packet_bytes(pkt));
        bpf_packet_drop(ctx, pkt);
    }
    // There is more, and somebody else may have something to do.
    bpf_schedule_iface_dequeue(ctx, ctx->egress_ifindex, 0);
    return NULL;
}

char _license[] SEC("license") = "Dual MIT/GPL";
