// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What people get wrong in C, and each mistake mended as its hint says. tests/tests/mistakes.rs
// looks at the hints, and asks the running kernel about all of it.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define BEGIN(ctx)                                                                                 \
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;                      \
    __u8 *bytes = data;
#define AGAIN(ctx)                                                                                 \
    data = (void *)(long)ctx->data, end = (void *)(long)ctx->data_end, bytes = data;
#define LOOP _Pragma("clang loop unroll(disable)")

struct flow {
    __u32 source;
    __u32 destination;
};

struct block {
    __u8 bytes[64];
};

struct counter {
    struct bpf_spin_lock lock;
    __u64 packets;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8);
    __type(key, struct flow);
    __type(value, __u64);
} flows SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 8);
    __type(key, __u32);
    __type(value, struct block);
} blocks SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct block);
} table SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct { __u8 bytes[300]; });
} scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct counter);
} counters SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4096);
} records SEC(".maps");

// Keys and values.

SEC("xdp") int key_of_half_the_size(struct xdp_md *ctx)
{
    __u32 source = 1;

    return bpf_map_lookup_elem(&flows, &source) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int key_of_half_the_size_mended(struct xdp_md *ctx)
{
    struct flow flow = { .source = 1 };

    return bpf_map_lookup_elem(&flows, &flow) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int value_that_is_too_small(struct xdp_md *ctx)
{
    __u32 key = 1;
    __u64 value = 1;

    bpf_map_update_elem(&blocks, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int value_that_is_too_small_mended(struct xdp_md *ctx)
{
    __u32 key = 1;
    struct block value = { .bytes = { 1 } };

    bpf_map_update_elem(&blocks, &key, &value, BPF_ANY);
    return XDP_PASS;
}

SEC("xdp") int key_in_the_packet(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    return bpf_map_lookup_elem(&flows, &ip->daddr) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int key_in_the_packet_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    struct flow flow = { .destination = ip->daddr };
    return bpf_map_lookup_elem(&flows, &flow) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int key_in_a_value(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct block *block = bpf_map_lookup_elem(&table, &zero);

    if (!block)
        return XDP_PASS;
    return bpf_map_lookup_elem(&flows, &block->bytes[60]) ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int key_in_a_value_mended(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct block *block = bpf_map_lookup_elem(&table, &zero);

    if (!block)
        return XDP_PASS;
    return bpf_map_lookup_elem(&flows, (struct flow *)&block->bytes[56]) ? XDP_DROP : XDP_PASS;
}

// Packets.

SEC("xdp") int less_compared(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);

    if (data + sizeof(struct ethhdr) > end)
        return XDP_PASS;
    return ip->protocol;
}

SEC("xdp") int less_compared_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);

    if (data + 24 > end)
        return XDP_PASS;
    return ip->protocol;
}

SEC("xdp") int loop_over_the_packet(struct xdp_md *ctx)
{
    BEGIN(ctx)
    __u32 sum = 0;

    for (int i = 0; (void *)(bytes + i + 1) <= end; i++)
        sum += bytes[i];
    return sum & 1;
}

SEC("xdp") int loop_over_the_packet_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    __u32 sum = 0;

    for (int i = 0; i < 500 && (void *)(bytes + i + 1) <= end; i++)
        sum += bytes[i];
    return sum & 1;
}

SEC("xdp") int loop_to_a_length(struct xdp_md *ctx)
{
    BEGIN(ctx)
    long length = end - data;
    __u32 sum = 0;

    LOOP
    for (long i = 0; i < length && i < 500; i++)
        sum += bytes[i];
    return sum & 1;
}

SEC("xdp") int loop_to_a_length_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    __u32 sum = 0;

    LOOP
    for (long i = 0; i < 500; i++) {
        if ((void *)(bytes + i + 1) > end)
            break;
        sum += bytes[i];
    }
    return sum & 1;
}

SEC("xdp") int length_compared(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (end - data < 14)
        return XDP_PASS;
    return bytes[12];
}

SEC("xdp") int length_compared_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end)
        return XDP_PASS;
    return bytes[12];
}

SEC("xdp") int offset_without_a_limit(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);
    __u8 *behind;

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    behind = (void *)ip + bpf_ntohs(ip->tot_len);
    if ((void *)(behind + 1) > end)
        return XDP_PASS;
    return *behind;
}

SEC("xdp") int offset_without_a_limit_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);
    __u16 offset;
    __u8 *behind;

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    offset = bpf_ntohs(ip->tot_len);
    if (offset > 1500)
        return XDP_PASS;
    behind = (void *)ip + offset;
    if ((void *)(behind + 1) > end)
        return XDP_PASS;
    return *behind;
}

SEC("xdp") int header_behind_options(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);
    struct udphdr *udp;

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    udp = (void *)ip + ip->ihl * 4;
    return udp->dest == bpf_htons(53);
}

SEC("xdp") int header_behind_options_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct iphdr *ip = data + sizeof(struct ethhdr);
    struct udphdr *udp;

    if ((void *)(ip + 1) > end)
        return XDP_PASS;
    udp = (void *)ip + ip->ihl * 4;
    if ((void *)(udp + 1) > end)
        return XDP_PASS;
    return udp->dest == bpf_htons(53);
}

SEC("xdp") int headers_of_ipv6(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct ipv6hdr *ip = data + sizeof(struct ethhdr);
    void *at = ip + 1;
    __u8 next, *header;

    if (at > end)
        return XDP_PASS;
    next = ip->nexthdr;
    LOOP
    for (int i = 0; i < 6; i++) {
        header = at;
        if (at + 8 > end)
            return XDP_PASS;
        if (next != 0 && next != 43 && next != 60)
            break;
        next = header[0];
        at += (header[1] + 1) * 8;
    }
    return ((struct udphdr *)at)->dest == bpf_htons(53);
}

SEC("xdp") int headers_of_ipv6_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    struct ipv6hdr *ip = data + sizeof(struct ethhdr);
    void *at = ip + 1;
    __u8 next, *header;

    if (at > end)
        return XDP_PASS;
    next = ip->nexthdr;
    LOOP
    for (int i = 0; i < 6; i++) {
        header = at;
        if (at + 8 > end)
            return XDP_PASS;
        if (next != 0 && next != 43 && next != 60)
            break;
        next = header[0];
        at += (header[1] + 1) * 8;
    }
    if (at + sizeof(struct udphdr) > end)
        return XDP_PASS;
    return ((struct udphdr *)at)->dest == bpf_htons(53);
}

// An offset that grows by 65,535 at most each time, as the lengths of some records do.
SEC("xdp") int options_by_their_lengths(struct xdp_md *ctx)
{
    BEGIN(ctx)
    __u32 offset = 54;

    LOOP
    for (int i = 0; i < 10; i++) {
        __be16 *option = data + offset;

        if ((void *)(option + 2) > end)
            break;
        if (option[0] == 0)
            return XDP_DROP;
        offset += bpf_ntohs(option[1]);
    }
    return XDP_PASS;
}

SEC("xdp") int options_by_their_lengths_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)
    __u32 offset = 54;

    LOOP
    for (int i = 0; i < 10; i++) {
        if (offset > 1500)
            break;
        __be16 *option = data + offset;

        if ((void *)(option + 2) > end)
            break;
        if (option[0] == 0)
            return XDP_DROP;
        offset += bpf_ntohs(option[1]);
    }
    return XDP_PASS;
}

SEC("xdp") int arithmetic_on_data_end(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data > end - 14)
        return XDP_PASS;
    return bytes[12];
}

SEC("xdp") int arithmetic_on_data_end_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end)
        return XDP_PASS;
    return bytes[12];
}

SEC("xdp") int beyond_what_counts(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 70000 > end)
        return XDP_PASS;
    return bytes[69999];
}

SEC("xdp") int beyond_what_counts_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 65535 > end)
        return XDP_PASS;
    return bytes[65534];
}

SEC("xdp") int wrong_branch(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 <= end)
        return XDP_PASS;
    return bytes[12];
}

SEC("xdp") int wrong_branch_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end)
        return XDP_PASS;
    return bytes[12];
}

// Packets that move.

SEC("xdp") int after_adjust_head(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || bpf_xdp_adjust_head(ctx, 4))
        return XDP_PASS;
    return bytes[0];
}

SEC("xdp") int after_adjust_head_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || bpf_xdp_adjust_head(ctx, 4))
        return XDP_PASS;
    AGAIN(ctx)
    if (data + 14 > end)
        return XDP_PASS;
    return bytes[0];
}

SEC("xdp") int not_compared_after_adjust_head(struct xdp_md *ctx)
{
    if (bpf_xdp_adjust_head(ctx, -4))
        return XDP_PASS;
    BEGIN(ctx)
    return bytes[0];
}

SEC("xdp") int not_compared_after_adjust_head_mended(struct xdp_md *ctx)
{
    if (bpf_xdp_adjust_head(ctx, -4))
        return XDP_PASS;
    BEGIN(ctx)
    if (data + 1 > end)
        return XDP_PASS;
    return bytes[0];
}

extern int bpf_xdp_pull_data(struct xdp_md *xdp, __u32 len) __ksym;

SEC("xdp") int after_pull_data(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || bpf_xdp_pull_data(ctx, 64))
        return XDP_PASS;
    return bytes[0];
}

SEC("xdp") int after_pull_data_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || bpf_xdp_pull_data(ctx, 64))
        return XDP_PASS;
    AGAIN(ctx)
    if (data + 14 > end)
        return XDP_PASS;
    return bytes[0];
}

static __noinline int shrink(struct xdp_md *ctx)
{
    return bpf_xdp_adjust_tail(ctx, -8);
}

SEC("xdp") int after_a_function_that_moves(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || shrink(ctx))
        return XDP_PASS;
    return bytes[0];
}

SEC("xdp") int after_a_function_that_moves_mended(struct xdp_md *ctx)
{
    BEGIN(ctx)

    if (data + 14 > end || shrink(ctx))
        return XDP_PASS;
    AGAIN(ctx)
    if (data + 14 > end)
        return XDP_PASS;
    return bytes[0];
}

// What is held.

SEC("xdp") int record_that_is_kept(struct xdp_md *ctx)
{
    __u64 *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

    if (!record || ctx->rx_queue_index == 7)
        return XDP_PASS;
    *record = 1;
    bpf_ringbuf_submit(record, 0);
    return XDP_PASS;
}

SEC("xdp") int record_that_is_kept_mended(struct xdp_md *ctx)
{
    __u64 *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

    if (!record)
        return XDP_PASS;
    if (ctx->rx_queue_index == 7) {
        bpf_ringbuf_discard(record, 0);
        return XDP_PASS;
    }
    *record = 1;
    bpf_ringbuf_submit(record, 0);
    return XDP_PASS;
}

SEC("xdp") int record_that_is_gone(struct xdp_md *ctx)
{
    __u64 *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

    if (!record)
        return XDP_PASS;
    bpf_ringbuf_submit(record, 0);
    *record = 1;
    return XDP_PASS;
}

SEC("xdp") int record_that_is_gone_mended(struct xdp_md *ctx)
{
    __u64 *record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);

    if (!record)
        return XDP_PASS;
    *record = 1;
    bpf_ringbuf_submit(record, 0);
    return XDP_PASS;
}

SEC("xdp") int socket_that_is_kept(struct xdp_md *ctx)
{
    struct bpf_sock_tuple tuple = {};
    struct bpf_sock *socket = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), -1, 0);

    return socket ? XDP_DROP : XDP_PASS;
}

SEC("xdp") int socket_that_is_kept_mended(struct xdp_md *ctx)
{
    struct bpf_sock_tuple tuple = {};
    struct bpf_sock *socket = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), -1, 0);

    if (!socket)
        return XDP_PASS;
    bpf_sk_release(socket);
    return XDP_DROP;
}

SEC("xdp") int lock_that_is_kept(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct counter *counter = bpf_map_lookup_elem(&counters, &zero);

    if (!counter)
        return XDP_PASS;
    bpf_spin_lock(&counter->lock);
    if (counter->packets > 7)
        return XDP_DROP;
    counter->packets++;
    bpf_spin_unlock(&counter->lock);
    return XDP_PASS;
}

SEC("xdp") int lock_that_is_kept_mended(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct counter *counter = bpf_map_lookup_elem(&counters, &zero);

    if (!counter)
        return XDP_PASS;
    bpf_spin_lock(&counter->lock);
    if (counter->packets > 7) {
        bpf_spin_unlock(&counter->lock);
        return XDP_DROP;
    }
    counter->packets++;
    bpf_spin_unlock(&counter->lock);
    return XDP_PASS;
}

SEC("xdp") int call_under_a_lock(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct counter *counter = bpf_map_lookup_elem(&counters, &zero);

    if (!counter)
        return XDP_PASS;
    bpf_spin_lock(&counter->lock);
    counter->packets = bpf_ktime_get_ns();
    bpf_spin_unlock(&counter->lock);
    return XDP_PASS;
}

SEC("xdp") int call_under_a_lock_mended(struct xdp_md *ctx)
{
    __u32 zero = 0;
    struct counter *counter = bpf_map_lookup_elem(&counters, &zero);
    __u64 now = bpf_ktime_get_ns();

    if (!counter)
        return XDP_PASS;
    bpf_spin_lock(&counter->lock);
    counter->packets = now;
    bpf_spin_unlock(&counter->lock);
    return XDP_PASS;
}

// Values, stacks and lengths.

SEC("xdp") int value_that_may_not_be_there(struct xdp_md *ctx)
{
    struct flow flow = {};
    __u64 *packets = bpf_map_lookup_elem(&flows, &flow);

    *packets += 1;
    return XDP_PASS;
}

SEC("xdp") int value_that_may_not_be_there_mended(struct xdp_md *ctx)
{
    struct flow flow = {};
    __u64 *packets = bpf_map_lookup_elem(&flows, &flow);

    if (packets)
        *packets += 1;
    return XDP_PASS;
}

SEC("xdp") int index_that_is_one_too_large(struct xdp_md *ctx)
{
    __u32 zero = 0, index = ctx->rx_queue_index;
    struct block *block = bpf_map_lookup_elem(&table, &zero);

    if (!block || index > sizeof(block->bytes))
        return XDP_PASS;
    return block->bytes[index];
}

SEC("xdp") int index_that_is_one_too_large_mended(struct xdp_md *ctx)
{
    __u32 zero = 0, index = ctx->rx_queue_index;
    struct block *block = bpf_map_lookup_elem(&table, &zero);

    if (!block || index >= sizeof(block->bytes))
        return XDP_PASS;
    return block->bytes[index];
}

SEC("xdp") int length_with_one_bound(struct xdp_md *ctx)
{
    __u8 copy[64] = {};
    __u64 length = ctx->data_end - ctx->data;

    if (length > sizeof(copy) || bpf_xdp_load_bytes(ctx, 0, copy, length))
        return XDP_PASS;
    return copy[0];
}

SEC("xdp") int length_with_one_bound_mended(struct xdp_md *ctx)
{
    __u8 copy[64] = {};
    __u64 length = ctx->data_end - ctx->data;

    length &= 63;
    if (!length || bpf_xdp_load_bytes(ctx, 0, copy, length))
        return XDP_PASS;
    return copy[0];
}

static __noinline int fill(__u32 with)
{
    volatile __u8 large[300];

    LOOP
    for (int i = 0; i < 300; i++)
        large[i] = with;
    return large[with & 255];
}

SEC("xdp") int large_variables_of_two_functions(struct xdp_md *ctx)
{
    volatile __u8 large[300];

    LOOP
    for (int i = 0; i < 300; i++)
        large[i] = i;
    return fill(large[ctx->rx_queue_index & 255]);
}

SEC("xdp") int large_variables_of_two_functions_mended(struct xdp_md *ctx)
{
    __u32 zero = 0;
    volatile __u8 *large = bpf_map_lookup_elem(&scratch, &zero);

    if (!large)
        return XDP_PASS;
    LOOP
    for (int i = 0; i < 300; i++)
        large[i] = i;
    return fill(large[ctx->rx_queue_index & 255]);
}

char _license[] SEC("license") = "GPL";
