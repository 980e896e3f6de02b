// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// flow_table: counts flows and forgets the idle ones by itself.
//
// Each flow carries a timer that its packets push back; when it fires, the flow moves from the
// table to the expired ones. One more timer sweeps all flows every few seconds and leaves totals,
// so a reader needs one lookup and not a walk. No agent in user space has to run for any of it.
//
// Maps
//   flows       HASH   flow -> counters and the timer
//   housekeeper ARRAY  0: the sweep's timer and its totals
//   expired     LRU_HASH  flow -> last counters of flows that ended
//
// Configure  idle_ns, sweep_ns.
// Verdicts   always XDP_PASS.
#include "parse.h"

#define FLOWS_MAX 16384
#define CLOCK_MONOTONIC 1

struct flow_entry {
    struct counter counter;
    __u64 last_seen_ns;
    struct bpf_timer timer;
};

struct housekeeper {
    struct bpf_timer timer;
    __u32 is_started;
    __u32 flow_count;
    __u64 packets;
    __u64 sweeps;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, FLOWS_MAX);
    __type(key, struct flow);
    __type(value, struct flow_entry);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct housekeeper);
} housekeeper SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, FLOWS_MAX);
    __type(key, struct flow);
    __type(value, struct counter);
} expired SEC(".maps");

const volatile __u64 idle_ns = 30ull * 1000000000;
const volatile __u64 sweep_ns = 5ull * 1000000000;

static int expire(void *map, struct flow *flow, struct flow_entry *entry)
{
    struct counter last = entry->counter;

    (void)map;
    bpf_map_update_elem(&expired, flow, &last, BPF_ANY);
    bpf_map_delete_elem(&flows, flow);
    return 0;
}

struct sweep {
    __u64 packets;
    __u32 flow_count;
};

static long add_flow(void *map, struct flow *flow, struct flow_entry *entry,
                     struct sweep *sweep)
{
    (void)map, (void)flow;
    sweep->flow_count += 1;
    sweep->packets += entry->counter.packets;
    return 0;
}

static int sweep_flows(void *map, __u32 *index, struct housekeeper *keeper)
{
    struct sweep sweep = {};

    (void)map, (void)index;
    bpf_for_each_map_elem(&flows, add_flow, &sweep, 0);
    keeper->flow_count = sweep.flow_count;
    keeper->packets = sweep.packets;
    keeper->sweeps += 1;
    bpf_timer_start(&keeper->timer, sweep_ns, 0);
    return 0;
}

// The first packet starts the sweep; whoever loses the race finds the timer initialised (-EBUSY).
static __always_inline void start_housekeeper(void)
{
    __u32 zero = 0;
    struct housekeeper *keeper = bpf_map_lookup_elem(&housekeeper, &zero);

    if (!keeper || keeper->is_started)
        return;
    keeper->is_started = 1;
    if (bpf_timer_init(&keeper->timer, &housekeeper, CLOCK_MONOTONIC))
        return;
    bpf_timer_set_callback(&keeper->timer, sweep_flows);
    bpf_timer_start(&keeper->timer, sweep_ns, 0);
}

static __always_inline struct flow_entry *add_entry(const struct flow *flow)
{
    struct flow_entry first = {};
    struct flow_entry *entry;

    if (bpf_map_update_elem(&flows, flow, &first, BPF_NOEXIST))
        return NULL;
    entry = bpf_map_lookup_elem(&flows, flow);
    if (!entry || bpf_timer_init(&entry->timer, &flows, CLOCK_MONOTONIC))
        return NULL;
    bpf_timer_set_callback(&entry->timer, expire);
    return entry;
}

SEC("xdp")
int flow_table(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct flow_entry *entry;
    struct flow flow = {};

    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    start_housekeeper();
    entry = bpf_map_lookup_elem(&flows, &flow);
    if (!entry)
        entry = add_entry(&flow);
    if (!entry)
        return XDP_PASS;
    __sync_fetch_and_add(&entry->counter.packets, 1);
    __sync_fetch_and_add(&entry->counter.bytes, linear_bytes(ctx));
    entry->last_seen_ns = bpf_ktime_get_ns();
    bpf_timer_start(&entry->timer, idle_ns, 0);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
