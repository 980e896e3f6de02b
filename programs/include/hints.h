// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// What is known of a frame, and what its sender is asked for. The readers are the kernel's (6.3,
// VLAN tags 6.8); the checksum and the setters were proposed and are in no kernel yet, or are
// Towpath's own (docs/differences.md). All are weak, so that the same object loads anywhere:
//
//     if (bpf_ksym_exists(bpf_xdp_store_rx_hash))
//         bpf_xdp_store_rx_hash(ctx, hash, XDP_RSS_L4);
#pragma once

#include "xdp.h"

// enum xdp_rss_hash_type: what a hash covers.
enum {
    XDP_RSS_L3_IPV4 = 1 << 0,
    XDP_RSS_L3_IPV6 = 1 << 1,
    XDP_RSS_L3_DYNHDR = 1 << 2,
    XDP_RSS_L4 = 1 << 3,
    XDP_RSS_L4_TCP = 1 << 4,
    XDP_RSS_L4_UDP = 1 << 5,
};

// enum xdp_checksum
enum {
    XDP_CHECKSUM_NONE = 1 << 0,
    XDP_CHECKSUM_UNNECESSARY = 1 << 1,
    XDP_CHECKSUM_COMPLETE = 1 << 2,
};

extern int bpf_xdp_metadata_rx_timestamp(const struct xdp_md *ctx, __u64 *timestamp) __ksym __weak;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, __u32 *hash,
                                    __u32 *rss_type) __ksym __weak;
extern int bpf_xdp_metadata_rx_vlan_tag(const struct xdp_md *ctx, __be16 *vlan_proto,
                                        __u16 *vlan_tci) __ksym __weak;
extern int bpf_xdp_metadata_rx_checksum(const struct xdp_md *ctx, __u32 *ip_summed, __u32 *cksum,
                                        __u8 *cksum_level) __ksym __weak;

extern int bpf_xdp_store_rx_ts(struct xdp_md *ctx, __u64 ts) __ksym __weak;
extern int bpf_xdp_store_rx_hash(struct xdp_md *ctx, __u32 hash, __u32 rss_type) __ksym __weak;
extern int bpf_xdp_store_rx_vlan(struct xdp_md *ctx, __be16 vlan_proto,
                                 __u16 vlan_tci) __ksym __weak;

extern int bpf_xdp_store_tx_checksum(struct xdp_md *ctx, __u32 csum_start,
                                     __u32 csum_offset) __ksym __weak;

// What a ring buffer is told of a frame whose sending a program asked for: once, when its port has
// taken it or when it is gone. docs/queueing.md says more.
struct xdp_tx_timestamp {
    __u64 cookie;         // the program's
    __u64 tx_timestamp;   // as of bpf_ktime_get_tai_ns(), in nanoseconds; 0: it was dropped
    __u32 egress_ifindex; // the port it left by
    __u32 reserved;
};

// Has that ring buffer of the program told when the frame was sent. -EBUSY: somebody has asked
// already; -ENOMEM: 65,536 frames are on their way with such a request.
extern int bpf_xdp_request_tx_timestamp(struct xdp_md *ctx, void *map__map,
                                        __u64 cookie) __ksym __weak;
