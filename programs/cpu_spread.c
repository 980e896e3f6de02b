// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// cpu_spread: spreads flows over CPUs, for ports whose own hash cannot (one queue, tunnels).
//
// Both directions of a conversation get the same CPU. The second program runs on the chosen CPU,
// before the host's stack sees the frame: work that is too dear for the receiving CPU goes there.
//
// Maps
//   cpus       CPUMAP        CPU -> {queue size, program}; who may receive
//   cpu_list   ARRAY         slot -> CPU number
//   cpu_count  ARRAY         0: how many slots of cpu_list are used
//   chosen     PERCPU_ARRAY  slot -> frames, bytes sent there
//   received   PERCPU_ARRAY  0: frames, bytes that cpu_spread_remote saw on its CPU
//
// Configure  cpu_list and cpu_count.
// Verdicts   XDP_REDIRECT; XDP_PASS for what is not IP, or no CPU is listed. On the remote CPU:
//            XDP_DROP truncated, XDP_PASS.
#include "hash.h"

#define CPUS_MAX 128

struct {
    __uint(type, BPF_MAP_TYPE_CPUMAP);
    __uint(max_entries, 2); // at most the machine's CPUs: -E2BIG otherwise; resize before load
    __type(key, __u32);
    __type(value, struct bpf_cpumap_val);
} cpus SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, CPUS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} cpu_list SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} cpu_count SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, CPUS_MAX);
    __type(key, __u32);
    __type(value, struct counter);
} chosen SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counter);
} received SEC(".maps");

SEC("xdp")
int cpu_spread(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct flow flow = {};
    struct counter *stats;
    __u32 *count_used, *cpu;
    __u32 slot = 0;

    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    count_used = bpf_map_lookup_elem(&cpu_count, &slot);
    if (!count_used || !*count_used)
        return XDP_PASS;
    slot = hash_scale(hash_flow_symmetric(&flow), *count_used);
    cpu = bpf_map_lookup_elem(&cpu_list, &slot);
    if (!cpu)
        return XDP_PASS;
    stats = bpf_map_lookup_elem(&chosen, &slot);
    if (stats)
        count(stats, linear_bytes(ctx));
    return bpf_redirect_map(&cpus, *cpu, XDP_PASS); // the flags are the verdict for a missing CPU
}

SEC("xdp/cpumap")
int cpu_spread_remote(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct counter *stats;
    __u32 zero = 0;

    if (!TAKE(&cursor, struct ethhdr))
        return XDP_DROP;
    stats = bpf_map_lookup_elem(&received, &zero);
    if (stats)
        count(stats, linear_bytes(ctx));
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
