// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// l2_switch: a learning Ethernet switch between the ports of a devmap.
//
// Source addresses are learned with the port they came in by and aged out by the LRU. A known
// destination gets the frame alone; broadcast, multicast and unknown ones go to every port but the
// one it came from, which the devmap does by itself.
//
// Maps
//   ports      DEVMAP    slot -> {ifindex, program}
//   addresses  LRU_HASH  MAC -> {ifindex, slot, time}
//   slots      HASH      ifindex -> slot; the inverse of `ports`, kept by the control plane
//   totals     ARRAY     `enum total` -> frames
//
// Configure  ports and slots.
// Verdicts   XDP_REDIRECT; XDP_DROP a bad source, a destination on its own port, link-local control
//            frames (IEEE 802.1D 7.12.6: never forwarded); XDP_PASS a port that is not in `slots`.
#include "xdp.h"

#define PORTS_MAX 32
#define ADDRESSES_MAX 8192

enum total {
    TOTAL_FORWARDED,
    TOTAL_FLOODED,
    TOTAL_FILTERED,
    TOTAL_MOVED, // a known address came in by another port
    TOTAL_COUNT,
};

struct mac_key {
    __u8 bytes[ETH_ALEN];
    __u16 zero;
};

struct place {
    __u32 ifindex;
    __u32 slot;
    __u64 seen_ns;
};

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, struct bpf_devmap_val);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, ADDRESSES_MAX);
    __type(key, struct mac_key);
    __type(value, struct place);
} addresses SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, TOTAL_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

static __always_inline void add(__u32 total)
{
    __u64 *frames = bpf_map_lookup_elem(&totals, &total);

    if (frames)
        __sync_fetch_and_add(frames, 1);
}

static __always_inline bool is_group(const __u8 *mac)
{
    return mac[0] & 1;
}

// 01:80:c2:00:00:00 to 0f: spanning tree, LACP, LLDP.
static __always_inline bool is_link_local(const __u8 *mac)
{
    return mac[0] == 0x01 && mac[1] == 0x80 && mac[2] == 0xc2 && mac[3] == 0 && mac[4] == 0 &&
           mac[5] < 0x10;
}

static __always_inline void learn(const __u8 *mac, __u32 ifindex, __u32 slot)
{
    struct place place = {.ifindex = ifindex, .slot = slot, .seen_ns = bpf_ktime_get_ns()};
    struct mac_key key = {};
    struct place *known;

    __builtin_memcpy(key.bytes, mac, ETH_ALEN);
    known = bpf_map_lookup_elem(&addresses, &key);
    if (known && known->ifindex == ifindex) {
        known->seen_ns = place.seen_ns;
        return;
    }
    if (known)
        add(TOTAL_MOVED);
    bpf_map_update_elem(&addresses, &key, &place, BPF_ANY);
}

SEC("xdp")
int l2_switch(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    __u32 ifindex = ctx->ingress_ifindex;
    struct mac_key key = {};
    struct place *place;
    __u32 *slot;

    if (!ethernet)
        return XDP_DROP;
    slot = bpf_map_lookup_elem(&slots, &ifindex);
    if (!slot)
        return XDP_PASS;
    if (is_group(ethernet->h_source) || is_link_local(ethernet->h_dest)) {
        add(TOTAL_FILTERED);
        return XDP_DROP;
    }
    learn(ethernet->h_source, ifindex, *slot);
    __builtin_memcpy(key.bytes, ethernet->h_dest, ETH_ALEN);
    place = is_group(ethernet->h_dest) ? NULL : bpf_map_lookup_elem(&addresses, &key);
    if (!place) {
        add(TOTAL_FLOODED);
        return bpf_redirect_map(&ports, 0, BPF_F_BROADCAST | BPF_F_EXCLUDE_INGRESS);
    }
    if (place->ifindex == ifindex) {
        add(TOTAL_FILTERED);
        return XDP_DROP;
    }
    add(TOTAL_FORWARDED);
    return bpf_redirect_map(&ports, place->slot, XDP_DROP);
}

char _license[] SEC("license") = "Dual MIT/GPL";
