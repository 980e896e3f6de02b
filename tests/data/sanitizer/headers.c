// Packets that arrive with right headers and leave with wrong ones, and values that get lost.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct counter { struct bpf_spin_lock lock; __u64 packets; };

#define MAP(map, kind, v)                                                                          \
    struct {                                                                                       \
        __uint(type, kind);                                                                        \
        __uint(max_entries, 4);                                                                    \
        __type(key, __u32);                                                                        \
        __type(value, v);                                                                          \
    } map SEC(".maps")

MAP(totals, BPF_MAP_TYPE_ARRAY, __u64);
MAP(each, BPF_MAP_TYPE_PERCPU_ARRAY, __u64);
MAP(locked, BPF_MAP_TYPE_ARRAY, struct counter);

static __always_inline struct iphdr *ip_header(struct xdp_md *ctx)
{
    struct iphdr *ip = (void *)(long)ctx->data + sizeof(struct ethhdr);

    return (void *)(ip + 1) > (void *)(long)ctx->data_end ? 0 : ip;
}

static __always_inline void lower_ttl(struct iphdr *ip)
{
    __u32 check = ip->check;

    check += bpf_htons(0x0100);
    ip->check = (__u16)(check + (check >= 0xffff));
    ip->ttl--;
}

SEC("xdp") int ttl_only(struct xdp_md *ctx)
{
    struct iphdr *ip = ip_header(ctx);

    if (!ip)
        return XDP_DROP;
    // finds wrong-checksum: the packet that leaves with XDP_TX has a wrong IPv4 checksum
    ip->ttl = 7;
    return XDP_TX;
}

SEC("xdp") int udp_checksum(struct xdp_md *ctx)
{
    struct iphdr *ip = ip_header(ctx);
    struct udphdr *udp = (void *)(ip + 1);

    if (!ip || (void *)(udp + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    // finds wrong-checksum: has a wrong UDP checksum
    udp->check = bpf_htons(0x1234);
    return XDP_PASS;
}

SEC("xdp") int cut(struct xdp_md *ctx)
{
    // finds wrong-length: has a length in its IPv4 header that it does not have
    if (bpf_xdp_adjust_tail(ctx, -4))
        return XDP_DROP;
    return XDP_PASS;
}

SEC("xdp") int longer_udp(struct xdp_md *ctx)
{
    struct iphdr *ip = ip_header(ctx);
    struct udphdr *udp = (void *)(ip + 1);

    if (!ip || (void *)(udp + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    // finds wrong-length: in its UDP header
    udp->len = bpf_htons(100);
    return XDP_TX;
}

SEC("xdp") int counted_together(struct xdp_md *ctx)
{
    __u32 key = 0;
    __u64 *total = bpf_map_lookup_elem(&totals, &key);

    if (total)
        // finds lost-update: a value of map totals
        *total += 1;
    return XDP_PASS;
}

// Nothing is wrong from here on.

SEC("xdp") int right(struct xdp_md *ctx)
{
    struct iphdr *ip = ip_header(ctx);

    if (!ip)
        return XDP_DROP;
    lower_ttl(ip);
    return XDP_TX;
}

SEC("xdp") int wrong_but_dropped(struct xdp_md *ctx)
{
    struct iphdr *ip = ip_header(ctx);

    if (ip)
        ip->ttl = 7;
    return XDP_DROP;
}

SEC("xdp") int counted_alone(struct xdp_md *ctx)
{
    __u32 key = 0;
    __u64 *total = bpf_map_lookup_elem(&totals, &key), *own = bpf_map_lookup_elem(&each, &key);
    struct counter *counter = bpf_map_lookup_elem(&locked, &key);

    if (!total || !own || !counter)
        return XDP_DROP;
    __sync_fetch_and_add(total, 1);
    *own += 1;
    bpf_spin_lock(&counter->lock);
    counter->packets += 1;
    bpf_spin_unlock(&counter->lock);
    return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
