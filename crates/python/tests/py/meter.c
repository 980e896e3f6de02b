// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// meter: something of everything that the Python package shows. Counts packets by destination
// port, sends what is over the limit on to `refuse`, and says so in four ways.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct flow {
    __u16 port;
    __u16 pad;
};

struct seen {
    __u64 packets;
    __u64 last_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4);
    __type(key, struct flow);
    __type(value, struct seen);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u32);
} stages SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} events SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_QUEUE);
    __uint(max_entries, 2);
    __type(value, __u32);
} jobs SEC(".maps");

const volatile __u64 limit = 2;
__u64 last_packet_ns;

SEC("xdp")
int meter(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct iphdr *ip = data + sizeof(struct ethhdr);
    struct udphdr *udp = (void *)(ip + 1);
    struct seen first = {.packets = 1}, *seen;
    struct flow flow = {};
    __u32 zero = 0;
    __u64 *total;

    if ((void *)(udp + 1) > end || ip->protocol != 17)
        return XDP_PASS;
    total = bpf_map_lookup_elem(&totals, &zero);
    if (total)
        *total += 1;
    last_packet_ns = bpf_ktime_get_ns();
    flow.port = bpf_ntohs(udp->dest);
    seen = bpf_map_lookup_elem(&flows, &flow);
    if (!seen) {
        first.last_ns = last_packet_ns;
        bpf_map_update_elem(&flows, &flow, &first, BPF_NOEXIST);
        return XDP_PASS;
    }
    seen->packets += 1;
    seen->last_ns = last_packet_ns;
    if (seen->packets <= limit)
        return XDP_PASS;
    bpf_tail_call(ctx, &stages, 0);
    return XDP_DROP;
}

SEC("xdp")
int refuse(struct xdp_md *ctx)
{
    __u32 size = ctx->data_end - ctx->data;

    bpf_printk("refused %u bytes", size);
    bpf_ringbuf_output(&events, &size, sizeof(size), 0);
    bpf_map_push_elem(&jobs, &size, 0);
    if (bpf_xdp_adjust_head(ctx, 14))
        return XDP_ABORTED;
    return bpf_redirect_map(&ports, 1, XDP_TX);
}

char _license[] SEC("license") = "Dual MIT/GPL";
