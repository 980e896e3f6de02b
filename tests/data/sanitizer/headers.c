// Packets that arrive with right headers and leave with wrong ones, and values that get lost.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
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
    // finds wrong-length: has a wrong length in its IPv4 header
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

// All packets are carried as if they were of IPv6.
SEC("xdp") int carried_as_another(struct xdp_md *ctx)
{
    struct ethhdr was, *eth = (void *)(long)ctx->data;
    struct iphdr *ip;

    if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
        return XDP_DROP;
    was = *eth;
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct iphdr)))
        return XDP_DROP;
    ip = ip_header(ctx);
    if (!ip)
        return XDP_DROP;
    *(struct ethhdr *)(long)ctx->data = was;
    __builtin_memset(ip, 0, sizeof(*ip));
    ip->version = 4;
    ip->ihl = 5;
    ip->tot_len = bpf_htons(20 + 46);
    ip->ttl = 64;
    ip->protocol = IPPROTO_IPV6;
    ip->saddr = bpf_htonl(0x0a000001);
    ip->daddr = bpf_htonl(0x0a000002);
    // What is told is the last line that changed the packet.
    __asm__ volatile("" ::: "memory");
    // finds wrong-length: has no IPv6 header, although the header in front of it announces one
    ip->check = bpf_htons(0x6691);
    return XDP_TX;
}

// Room for 4 bytes is made behind the headers, which move to the front.
static __always_inline struct iphdr *make_room(struct xdp_md *ctx)
{
    __u8 headers[14 + 20 + 8], *data = (void *)(long)ctx->data;

    if (data + sizeof(headers) > (__u8 *)(long)ctx->data_end)
        return 0;
    __builtin_memcpy(headers, data, sizeof(headers));
    if (bpf_xdp_adjust_head(ctx, -4))
        return 0;
    data = (void *)(long)ctx->data;
    if (data + sizeof(headers) + 4 > (__u8 *)(long)ctx->data_end)
        return 0;
    __builtin_memcpy(data, headers, sizeof(headers));
    __builtin_memset(data + sizeof(headers), 0, 4);
    *(__be16 *)(data + 38) = bpf_htons(26 + 4);
    *(__be16 *)(data + 16) = bpf_htons(46 + 4);
    return (void *)(data + sizeof(struct ethhdr));
}

SEC("xdp") int moved_to_the_front(struct xdp_md *ctx)
{
    struct iphdr *ip = make_room(ctx);

    if (!ip)
        return XDP_DROP;
    __asm__ volatile("" ::: "memory");
    // finds wrong-checksum: has a wrong IPv4 checksum
    ip->tos = 8;
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

SEC("xdp") int moved_and_right(struct xdp_md *ctx)
{
    struct iphdr *ip = make_room(ctx);

    if (!ip)
        return XDP_DROP;
    ip->check = bpf_htons(0x26b9);
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
