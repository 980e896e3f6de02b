// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// tenants: per-tenant access lists, each tenant's in a map of its own.
//
// The VLAN id names the tenant. The outer maps hold the tenants' maps: an operator replaces a
// tenant's whole list in one update of the outer map, and packets see the old or the new list,
// never a mixture. Counters are per tenant and CPU in the same way.
//
// Maps
//   tenant_lists   HASH_OF_MAPS   VLAN id -> HASH {destination, port} -> 1
//   tenant_totals  ARRAY_OF_MAPS  VLAN id -> ARRAY 0: allowed, 1: denied
//   list_a, totals_a, totals_b    the inner maps this object brings, in VLANs 10 and 20
//
// Configure  nothing.
// Verdicts   XDP_PASS listed, or no VLAN; XDP_DROP not listed, or unknown tenant.
#include "parse.h"

#define TENANTS_MAX 64
#define VLAN_ID_MASK 0x0fff

struct destination {
    struct in6_addr address;
    __be16 port;
    __u8 protocol;
    __u8 zero;
};

struct list {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct destination);
    __type(value, __u8);
} list_a SEC(".maps"), list_b SEC(".maps");

struct totals {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct counter);
} totals_a SEC(".maps"), totals_b SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
    __uint(max_entries, TENANTS_MAX);
    __uint(key_size, sizeof(__u32));
    __array(values, struct list);
} tenant_lists SEC(".maps") = {
    .values = {[10] = &list_a, [20] = &list_b},
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
    __uint(max_entries, TENANTS_MAX);
    __uint(key_size, sizeof(__u32));
    __array(values, struct totals);
} tenant_totals SEC(".maps") = {
    .values = {[10] = &totals_a, [20] = &totals_b},
};

static __always_inline int finish(__u32 tenant, bool is_allowed, __u64 bytes)
{
    struct totals *totals = bpf_map_lookup_elem(&tenant_totals, &tenant);
    __u32 index = is_allowed ? 0 : 1;
    struct counter *total;

    if (totals) {
        total = bpf_map_lookup_elem(totals, &index);
        if (total) {
            __sync_fetch_and_add(&total->packets, 1);
            __sync_fetch_and_add(&total->bytes, bytes);
        }
    }
    return is_allowed ? XDP_PASS : XDP_DROP;
}

SEC("xdp")
int tenants(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u64 bytes = linear_bytes(ctx);
    struct destination destination = {};
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct network network = {};
    struct vlan_header *tag;
    struct flow flow = {};
    struct list *list;
    __u32 tenant;

    if (!ethernet || ethernet->h_proto != bpf_htons(ETH_P_8021Q))
        return XDP_PASS;
    tag = TAKE(&cursor, struct vlan_header);
    if (!tag)
        return XDP_DROP;
    tenant = bpf_ntohs(tag->tci) & VLAN_ID_MASK;
    list = bpf_map_lookup_elem(&tenant_lists, &tenant);
    if (!list)
        return finish(tenant, false, bytes);
    network.ethertype = bpf_ntohs(tag->protocol);
    if (network.ethertype == ETH_P_ARP)
        return finish(tenant, true, bytes);
    if (parse_flow(&cursor, &network, &flow))
        return finish(tenant, false, bytes);
    destination.address = flow.dest;
    destination.port = flow.dest_port;
    destination.protocol = flow.protocol;
    return finish(tenant, bpf_map_lookup_elem(list, &destination) != NULL, bytes);
}

char _license[] SEC("license") = "Dual MIT/GPL";
