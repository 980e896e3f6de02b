// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What works on the frame and its way: sizes, bytes, redirects, look-ups in the host's tables.
#include "price.h"

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} devmap SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} devmap_hash SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_CPUMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} cpumap SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} xskmap SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} programs SEC(".maps");

struct bytes {
    __u8 at[64];
};

struct fib {
    struct bpf_fib_lookup key;
};

PRICE(csum_diff_4, __u32 from = first; __u32 to = 1,
      done += (to = bpf_csum_diff(&from, 4, &to, 4, n)) != 0)
PRICE(csum_diff_20, __u32 words[5] = {first}, {
    words[0] = bpf_csum_diff(0, 0, words, sizeof(words), n + 1);
    done += words[0] != 0;
})
PRICE(csum_diff_256, __u32 words[64] = {first}, {
    words[0] = bpf_csum_diff(0, 0, words, sizeof(words), n + 1);
    done += words[0] != 0;
})
PRICE(xdp_get_buff_len, , done += bpf_xdp_get_buff_len(ctx) > 64)
PRICE(xdp_adjust_head_out_and_in, ,
      done += !(bpf_xdp_adjust_head(ctx, -16) | bpf_xdp_adjust_head(ctx, 16)))
PRICE(xdp_adjust_tail_in_and_out, ,
      done += !(bpf_xdp_adjust_tail(ctx, -16) | bpf_xdp_adjust_tail(ctx, 16)))
PRICE(xdp_adjust_meta_out_and_in, ,
      done += !(bpf_xdp_adjust_meta(ctx, -16) | bpf_xdp_adjust_meta(ctx, 16)))
PRICE(xdp_load_bytes_64, struct bytes bytes = {}, done += !bpf_xdp_load_bytes(ctx, n, &bytes, 64))
PRICE(xdp_store_bytes_64, struct bytes bytes = {},
      done += !bpf_xdp_store_bytes(ctx, n + 14, &bytes, 64))
PRICE(xdp_pull_data, , done += !bpf_xdp_pull_data(ctx, 64))
PRICE(redirect, , done += bpf_redirect(1, 0) == XDP_REDIRECT)
PRICE(redirect_map_devmap, , done += bpf_redirect_map(&devmap, first, 0) == XDP_REDIRECT)
PRICE(redirect_map_devmap_hash, , done += bpf_redirect_map(&devmap_hash, first, 0) == XDP_REDIRECT)
PRICE(redirect_map_cpumap, , done += bpf_redirect_map(&cpumap, first, 0) == XDP_REDIRECT)
PRICE(redirect_map_xskmap_empty, , done += bpf_redirect_map(&xskmap, first, XDP_PASS) == XDP_PASS)
PRICE(redirect_map_broadcast, ,
      done += bpf_redirect_map(&devmap, 0, BPF_F_BROADCAST) == XDP_REDIRECT)
PRICE(tail_call_empty_slot, , (bpf_tail_call(ctx, &programs, first), done += 1))
PRICE(check_mtu, __u32 mtu = 0, done += !bpf_check_mtu(ctx, 0, &mtu, 0, 0))
PRICE(fib_lookup, struct bpf_fib_lookup key = {}, {
    key.family = AF_INET;
    key.ifindex = 1;
    key.ipv4_dst = bpf_htonl(0x7f000001);
    done += bpf_fib_lookup(ctx, &key, sizeof(key), 0) >= 0;
})
PRICE(sk_lookup_udp, struct bpf_sock_tuple tuple = {}, {
    struct bpf_sock *socket;
    tuple.ipv4.daddr = bpf_htonl(0x7f000001);
    tuple.ipv4.dport = bpf_htons(9);
    socket = bpf_sk_lookup_udp(ctx, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
    if (socket)
        bpf_sk_release(socket);
    else
        done += 1;
})
PRICE(ct_lookup_miss, struct bpf_sock_tuple tuple = {}; struct bpf_ct_opts options = {}, {
    struct nf_conn *entry;
    tuple.ipv4.saddr = bpf_htonl(0x0a000001);
    tuple.ipv4.daddr = bpf_htonl(0x0a000002);
    tuple.ipv4.sport = bpf_htons(1024 + n);
    tuple.ipv4.dport = bpf_htons(80);
    options.netns_id = -1;
    options.l4proto = IPPROTO_TCP;
    entry = bpf_xdp_ct_lookup(ctx, &tuple, sizeof(tuple.ipv4), &options, sizeof(options));
    if (entry)
        bpf_ct_release(entry);
    else
        done += 1;
})

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash, __u32 *type) __ksym;

PRICE(xdp_metadata_rx_timestamp, __u64 time = 0,
      done += bpf_xdp_metadata_rx_timestamp(ctx, &time) <= 0)

PRICE(dynptr_from_xdp, , {
    struct bpf_dynptr frame;
    done += !bpf_dynptr_from_xdp(ctx, 0, &frame);
})
#define FRAME struct bpf_dynptr frame; bpf_dynptr_from_xdp(ctx, 0, &frame)
PRICE(dynptr_slice_of_frame, FRAME; struct bytes bytes,
      done += !!bpf_dynptr_slice(&frame, n, &bytes, sizeof(bytes)))
PRICE(dynptr_read_of_frame_64, FRAME; struct bytes bytes,
      done += !bpf_dynptr_read(&bytes, sizeof(bytes), &frame, n, 0))
PRICE(dynptr_write_to_frame_64, FRAME; struct bytes bytes = {},
      done += !bpf_dynptr_write(&frame, n + 14, &bytes, sizeof(bytes), 0))
PRICE(dynptr_size, FRAME, done += bpf_dynptr_size(&frame) > 64)
PRICE(dynptr_adjust, FRAME, done += !bpf_dynptr_adjust(&frame, 1, bpf_dynptr_size(&frame)))
PRICE(dynptr_clone, FRAME, {
    struct bpf_dynptr clone;
    done += !bpf_dynptr_clone(&frame, &clone);
})
