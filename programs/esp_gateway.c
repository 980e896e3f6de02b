// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// esp_gateway: a gateway for IPsec around a port of kind `ipsec`, the accelerator (docs/ipsec.md).
//
// `esp_outside` is for the port to the Internet: ESP goes to the accelerator, and everything else,
// IKE among it, to the host. `esp_inside` is for ports to networks that are protected: packets
// whose route leads to the accelerator's interface go to the accelerator. `esp_done` is for the
// accelerator itself: encapsulated packets leave by their route, and decapsulated ones leave by
// theirs or go to the host.
//
// Maps
//   accelerator  DEVMAP        0 -> ifindex of the accelerator
//   ports        DEVMAP_HASH   ifindex -> ifindex; completed packets are forwarded only to these
//   outcomes     PERCPU_ARRAY  packets at `esp_done` by result of bpf_fib_lookup
//                              (BPF_FIB_LKUP_RET_*), and 16.. below
//
// Configure  host_mac: Ethernet address of the accelerator's interface in the host, its shadow.
// Verdicts   XDP_REDIRECT to the accelerator or forwarded; XDP_DROP refused by the accelerator, or
//            encapsulated and without a next hop; XDP_PASS for the host.
#include "checksum.h"
#include "parse.h"
#include "towpath_esp.h"

#define PORTS_MAX 64
#define NAT_T_PORT 4500

enum outcome {
    OUTCOME_REFUSED = 16, // by the accelerator
    OUTCOME_NO_RECORD,    // the accelerator has not seen it
    OUTCOME_COUNT,
};

const volatile __u8 host_mac[ETH_ALEN] = {};

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} accelerator SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, OUTCOME_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} outcomes SEC(".maps");

static __always_inline void note(__u32 outcome)
{
    __u64 *times = bpf_map_lookup_elem(&outcomes, &outcome);

    if (times)
        *times += 1;
}

// Whether UDP behind the cursor carries ESP: not IKE, whose marker is 0, and no keepalive of one
// byte (RFC 3948, 2.2 and 2.3).
static __always_inline bool is_esp_in_udp(struct cursor *cursor)
{
    struct udphdr *udp = TAKE(cursor, struct udphdr);
    __be32 *spi;

    if (!udp || udp->dest != bpf_htons(NAT_T_PORT))
        return false;
    spi = TAKE(cursor, __be32);
    return spi && *spi != 0;
}

SEC("xdp")
int esp_outside(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    __u8 protocol;

    if (!ethernet)
        return XDP_DROP;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(&cursor, struct iphdr);

        // The host puts fragments together; options are its business too.
        if (!ip || ip->ihl != 5 ||
            ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
            return XDP_PASS;
        protocol = ip->protocol;
    } else if (ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = TAKE(&cursor, struct ipv6hdr);

        if (!ip)
            return XDP_PASS;
        protocol = ip->nexthdr;
    } else {
        return XDP_PASS;
    }
    if (protocol == IPPROTO_ESP || (protocol == IPPROTO_UDP && is_esp_in_udp(&cursor)))
        return bpf_redirect_map(&accelerator, 0, XDP_DROP);
    return XDP_PASS;
}

// Looks up the route of the packet behind the cursor. Returns the result of bpf_fib_lookup, or
// NOT_FWDED for a packet that only the host can forward.
static __always_inline long route(struct xdp_md *ctx, struct cursor *cursor, __be16 protocol,
                                  struct bpf_fib_lookup *fib, __u32 flags)
{
    if (protocol == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(cursor, struct iphdr);

        if (!ip || ip->ttl <= 1 ||
            (ip->daddr & bpf_htonl(0xf0000000)) == bpf_htonl(0xe0000000))
            return BPF_FIB_LKUP_RET_NOT_FWDED;
        fib->family = AF_INET;
        fib->tos = ip->tos;
        fib->l4_protocol = ip->protocol;
        fib->tot_len = bpf_ntohs(ip->tot_len);
        fib->ipv4_src = ip->saddr;
        fib->ipv4_dst = ip->daddr;
    } else if (protocol == bpf_htons(ETH_P_IPV6)) {
        struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);

        if (!ip || ip->hop_limit <= 1 || ip->daddr.in6_u.u6_addr8[0] == 0xff)
            return BPF_FIB_LKUP_RET_NOT_FWDED;
        fib->family = AF_INET6;
        fib->flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
        fib->l4_protocol = ip->nexthdr;
        fib->tot_len = bpf_ntohs(ip->payload_len) + sizeof(*ip);
        __builtin_memcpy(fib->ipv6_src, &ip->saddr, sizeof(fib->ipv6_src));
        __builtin_memcpy(fib->ipv6_dst, &ip->daddr, sizeof(fib->ipv6_dst));
    } else {
        return BPF_FIB_LKUP_RET_NOT_FWDED;
    }
    fib->ifindex = ctx->ingress_ifindex;
    return bpf_fib_lookup(ctx, fib, sizeof(*fib), flags);
}

// Counts one hop of the packet behind the Ethernet header.
static __always_inline bool decrease_ttl(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);

    if (!ethernet)
        return false;
    if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        struct iphdr *ip = TAKE(&cursor, struct iphdr);

        if (!ip)
            return false;
        ipv4_decrease_ttl(ip);
    } else {
        struct ipv6hdr *ip = TAKE(&cursor, struct ipv6hdr);

        if (!ip)
            return false;
        ip->hop_limit--;
    }
    return true;
}

SEC("xdp")
int esp_inside(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct bpf_fib_lookup fib = {};
    __u32 index = 0, *target;

    if (!ethernet)
        return XDP_DROP;
    // The accelerator needs no neighbour.
    if (route(ctx, &cursor, ethernet->h_proto, &fib, BPF_FIB_LOOKUP_SKIP_NEIGH))
        return XDP_PASS;
    target = bpf_map_lookup_elem(&accelerator, &index);
    if (!target || *target != fib.ifindex)
        return XDP_PASS;
    if (!decrease_ttl(ctx))
        return XDP_DROP;
    return bpf_redirect_map(&accelerator, 0, XDP_DROP);
}

SEC("xdp")
int esp_done(struct xdp_md *ctx)
{
    struct towpath_esp_meta *esp = (void *)(long)ctx->data_meta;
    struct cursor cursor = cursor_at_start(ctx);
    struct ethhdr *ethernet = TAKE(&cursor, struct ethhdr);
    struct bpf_fib_lookup fib = {};
    bool is_encapsulated;
    long outcome;

    if ((void *)(esp + 1) > (void *)(long)ctx->data || !ethernet) {
        note(OUTCOME_NO_RECORD);
        return XDP_DROP;
    }
    if (esp->status != TOWPATH_ESP_DONE) {
        note(OUTCOME_REFUSED);
        return XDP_DROP;
    }
    is_encapsulated = esp->dir == TOWPATH_ESP_OUT;
    outcome = route(ctx, &cursor, ethernet->h_proto, &fib, 0);
    note(outcome);
    if (outcome == BPF_FIB_LKUP_RET_SUCCESS && bpf_map_lookup_elem(&ports, &fib.ifindex)) {
        __builtin_memcpy(ethernet->h_dest, fib.dmac, ETH_ALEN);
        __builtin_memcpy(ethernet->h_source, fib.smac, ETH_ALEN);
        // A packet that was encapsulated here begins its way.
        if (!is_encapsulated && !decrease_ttl(ctx))
            return XDP_DROP;
        return bpf_redirect_map(&ports, fib.ifindex, XDP_DROP);
    }
    if (is_encapsulated)
        return XDP_DROP;
    for (int i = 0; i < ETH_ALEN; i++)
        ethernet->h_dest[i] = host_mac[i];
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
