// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// around: what a program is told of the host and the port around it, left in a map: the way of an
// IPv4 packet, the socket it is for, the connection it is of, the port's hints, the time.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

struct nf_conn;

// struct bpf_ct_opts
struct options {
    __s32 netns_id;
    __s32 error;
    __u8 l4proto;
    __u8 dir;
    __u16 ct_zone_id;
    __u8 ct_zone_dir;
    __u8 reserved[3];
};

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
                                         __u32 tuple__sz, struct options *opts,
                                         __u32 opts__sz) __ksym;
extern void bpf_ct_release(struct nf_conn *entry) __ksym;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
                                    __u32 *rss_type) __ksym;

struct told {
    __u64 time;
    __s32 way;
    __u32 out;
    __u32 next_hop_mac;
    __u32 is_for_socket;
    __u32 socket_mark;
    __u32 is_tracked;
    __s32 hash_error;
    __u32 hash;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct told);
} told SEC(".maps");

SEC("xdp")
int around(struct xdp_md *ctx)
{
    void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
    struct iphdr *ip = data + sizeof(struct ethhdr);
    struct bpf_fib_lookup way = { .family = 2, .ifindex = ctx->ingress_ifindex };
    struct options options = { .netns_id = -1, .l4proto = 6 };
    struct bpf_sock_tuple tuple = {};
    struct nf_conn *connection;
    struct bpf_sock *socket;
    __u32 zero = 0, type = 0, hash = 0;
    struct told *it = bpf_map_lookup_elem(&told, &zero);

    if (!it || (void *)(ip + 1) + 4 > end)
        return XDP_ABORTED;
    it->time = bpf_ktime_get_ns();
    way.ipv4_src = ip->saddr;
    way.ipv4_dst = ip->daddr;
    it->way = bpf_fib_lookup(ctx, &way, sizeof(way), 0);
    it->out = it->way ? 0 : way.ifindex;
    it->next_hop_mac = it->way ? 0 : way.dmac[5];

    tuple.ipv4.saddr = ip->saddr;
    tuple.ipv4.daddr = ip->daddr;
    tuple.ipv4.sport = ((__be16 *)(ip + 1))[0];
    tuple.ipv4.dport = ((__be16 *)(ip + 1))[1];
    socket = bpf_sk_lookup_tcp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
    it->is_for_socket = !!socket;
    it->socket_mark = 0;
    if (socket) {
        it->socket_mark = socket->mark;
        bpf_sk_release(socket);
    }
    connection = bpf_xdp_ct_lookup(ctx, &tuple, sizeof(tuple.ipv4), &options, 12);
    it->is_tracked = !!connection;
    if (connection)
        bpf_ct_release(connection);
    it->hash_error = bpf_xdp_metadata_rx_hash(ctx, &hash, &type);
    it->hash = hash;
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
