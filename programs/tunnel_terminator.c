// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// tunnel_terminator: takes the outer headers off IPIP, GRE, VXLAN and Geneve.
//
// The entry program reads the outer IP header, leaves what it found in front of the frame as
// metadata, and tail-calls the program for the tunnel protocol. That one checks its own header and
// the tenant, and removes everything up to the inner frame. A slot left empty (or replaced at run
// time) turns a protocol off without touching the others.
//
// Maps
//   handlers   PROG_ARRAY    slot -> program; filled from this object
//   tenants    HASH          {protocol, network id} -> 1; who is welcome unless `open`
//   endpoints  HASH          outer destination address -> 1; where tunnels may end
//   results    PERCPU_ARRAY  `enum result` -> packets, bytes
//
// Configure  open: accept network ids that `tenants` does not list.
// Verdicts   XDP_PASS decapsulated, or not a tunnel of ours; XDP_DROP malformed or unknown tenant.
#include "parse.h"

#define VXLAN_PORT 4789
#define GENEVE_PORT 6081
#define VXLAN_FLAG_ID 0x08
#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000
#define GRE_VERSION_MASK 0x0007

enum handler {
    HANDLER_IPIP,
    HANDLER_GRE,
    HANDLER_VXLAN,
    HANDLER_GENEVE,
    HANDLER_COUNT,
};

enum result {
    RESULT_IPIP,
    RESULT_GRE,
    RESULT_VXLAN,
    RESULT_GENEVE,
    RESULT_MALFORMED,
    RESULT_UNKNOWN_TENANT,
    RESULT_NO_HANDLER,
    RESULT_COUNT,
};

struct tenant {
    __u32 handler;
    __u32 id;
};

// What the entry program hands over in the metadata area: it survives the tail call, and a stack
// does not.
struct handover {
    __u16 tunnel_offset; // of the header behind outer IP (and UDP)
    __u8 inner_protocol; // of the outer IP header
    __u8 zero;
};

struct gre_header {
    __be16 flags;
    __be16 protocol;
};

struct vxlan_header {
    __u8 flags;
    __u8 reserved[3];
    __be32 id; // upper 24 bits
};

struct geneve_header {
    __u8 version_and_length; // options in units of 4 bytes
    __u8 flags;
    __be16 protocol;
    __be32 id; // upper 24 bits
};

int terminate_ipip(struct xdp_md *ctx);
int terminate_gre(struct xdp_md *ctx);
int terminate_vxlan(struct xdp_md *ctx);
int terminate_geneve(struct xdp_md *ctx);

struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, HANDLER_COUNT);
    __uint(key_size, sizeof(__u32));
    __array(values, int(void *));
} handlers SEC(".maps") = {
    .values = {
        [HANDLER_IPIP] = (void *)&terminate_ipip,
        [HANDLER_GRE] = (void *)&terminate_gre,
        [HANDLER_VXLAN] = (void *)&terminate_vxlan,
        [HANDLER_GENEVE] = (void *)&terminate_geneve,
    },
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 4096);
    __type(key, struct tenant);
    __type(value, __u8);
} tenants SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, struct in6_addr);
    __type(value, __u8);
} endpoints SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, struct counter);
} results SEC(".maps");

const volatile bool open = true;

static __always_inline int finish(struct xdp_md *ctx, __u32 result, int verdict)
{
    struct counter *stats = bpf_map_lookup_elem(&results, &result);

    if (stats)
        count(stats, linear_bytes(ctx));
    return verdict;
}

static __always_inline bool is_welcome(__u32 handler, __u32 id)
{
    struct tenant tenant = {.handler = handler, .id = id};

    return open || bpf_map_lookup_elem(&tenants, &tenant);
}

// A cursor at the tunnel header, from what the entry program left. The frame's start is `*start`.
static __always_inline bool resume(struct xdp_md *ctx, struct cursor *cursor,
                                   struct handover *handover)
{
    struct handover *left = (void *)(long)ctx->data_meta;
    void *start = (void *)(long)ctx->data;

    if ((void *)(left + 1) > start)
        return false;
    *handover = *left;
    cursor->end = (void *)(long)ctx->data_end;
    cursor->pos = start + (handover->tunnel_offset & 0xff);
    return true;
}

// Removes `bytes` from the front: the inner packet is an Ethernet frame of its own.
static __always_inline int strip_to_frame(struct xdp_md *ctx, __u32 result, __u32 bytes)
{
    if (bpf_xdp_adjust_meta(ctx, sizeof(struct handover)) || bpf_xdp_adjust_head(ctx, bytes))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    return finish(ctx, result, XDP_PASS);
}

// Removes `bytes` from behind the Ethernet header, which the inner IP packet inherits.
static __always_inline int strip_to_packet(struct xdp_md *ctx, __u32 result, __u32 bytes,
                                           __be16 ethertype)
{
    struct ethhdr ethernet, *header;
    struct cursor cursor = cursor_at_start(ctx);

    header = TAKE(&cursor, struct ethhdr);
    if (!header)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    ethernet = *header;
    ethernet.h_proto = ethertype;
    if (bpf_xdp_adjust_meta(ctx, sizeof(struct handover)) ||
        bpf_xdp_adjust_head(ctx, bytes - sizeof(ethernet)))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    cursor = cursor_at_start(ctx);
    header = TAKE(&cursor, struct ethhdr);
    if (!header)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    *header = ethernet;
    return finish(ctx, result, XDP_PASS);
}

SEC("xdp")
int terminate_ipip(struct xdp_md *ctx)
{
    struct handover handover;
    struct cursor cursor;
    __be16 ethertype;

    if (!resume(ctx, &cursor, &handover) || !is_welcome(HANDLER_IPIP, 0))
        return finish(ctx, RESULT_UNKNOWN_TENANT, XDP_DROP);
    ethertype = handover.inner_protocol == IPPROTO_IPIP ? bpf_htons(ETH_P_IP)
                                                        : bpf_htons(ETH_P_IPV6);
    return strip_to_packet(ctx, RESULT_IPIP, handover.tunnel_offset, ethertype);
}

// RFC 2784 with the key of RFC 2890. 0x6558 is a bridged Ethernet frame.
SEC("xdp")
int terminate_gre(struct xdp_md *ctx)
{
    struct handover handover;
    struct gre_header *gre;
    struct cursor cursor;
    __be16 protocol;
    __u32 id = 0, bytes;
    __u16 flags;

    if (!resume(ctx, &cursor, &handover))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    gre = TAKE(&cursor, struct gre_header);
    if (!gre)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    flags = bpf_ntohs(gre->flags);
    protocol = gre->protocol;
    if (flags & GRE_VERSION_MASK)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    bytes = sizeof(*gre);
    if (flags & GRE_CHECKSUM) {
        if (!take(&cursor, 4))
            return finish(ctx, RESULT_MALFORMED, XDP_DROP);
        bytes += 4;
    }
    if (flags & GRE_KEY) {
        __be32 *key = TAKE(&cursor, __be32);

        if (!key)
            return finish(ctx, RESULT_MALFORMED, XDP_DROP);
        id = bpf_ntohl(*key);
        bytes += 4;
    }
    if (flags & GRE_SEQUENCE)
        bytes += 4;
    if (!is_welcome(HANDLER_GRE, id))
        return finish(ctx, RESULT_UNKNOWN_TENANT, XDP_DROP);
    bytes += handover.tunnel_offset;
    if (protocol == bpf_htons(ETH_P_TEB))
        return strip_to_frame(ctx, RESULT_GRE, bytes);
    if (protocol != bpf_htons(ETH_P_IP) && protocol != bpf_htons(ETH_P_IPV6))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    return strip_to_packet(ctx, RESULT_GRE, bytes, protocol);
}

// RFC 7348.
SEC("xdp")
int terminate_vxlan(struct xdp_md *ctx)
{
    struct handover handover;
    struct vxlan_header *vxlan;
    struct cursor cursor;

    if (!resume(ctx, &cursor, &handover))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    vxlan = TAKE(&cursor, struct vxlan_header);
    if (!vxlan || !(vxlan->flags & VXLAN_FLAG_ID))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    if (!is_welcome(HANDLER_VXLAN, bpf_ntohl(vxlan->id) >> 8))
        return finish(ctx, RESULT_UNKNOWN_TENANT, XDP_DROP);
    return strip_to_frame(ctx, RESULT_VXLAN, handover.tunnel_offset + sizeof(*vxlan));
}

// RFC 8926. Options are removed unread; a critical one (flag 0x40) may not be.
SEC("xdp")
int terminate_geneve(struct xdp_md *ctx)
{
    struct geneve_header *geneve;
    struct handover handover;
    struct cursor cursor;
    __be16 protocol;
    __u32 bytes;

    if (!resume(ctx, &cursor, &handover))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    geneve = TAKE(&cursor, struct geneve_header);
    if (!geneve || geneve->version_and_length >> 6 || geneve->flags & 0x40)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    bytes = handover.tunnel_offset + sizeof(*geneve) + (geneve->version_and_length & 0x3f) * 4;
    protocol = geneve->protocol;
    if (!is_welcome(HANDLER_GENEVE, bpf_ntohl(geneve->id) >> 8))
        return finish(ctx, RESULT_UNKNOWN_TENANT, XDP_DROP);
    if (protocol == bpf_htons(ETH_P_TEB))
        return strip_to_frame(ctx, RESULT_GENEVE, bytes);
    return strip_to_packet(ctx, RESULT_GENEVE, bytes, protocol);
}

// Which handler the packet is for, or HANDLER_COUNT.
static __always_inline __u32 choose_handler(struct cursor *cursor, const struct flow *flow)
{
    switch (flow->protocol) {
    case IPPROTO_IPIP:
    case IPPROTO_IPV6:
        return HANDLER_IPIP;
    case IPPROTO_GRE:
        return HANDLER_GRE;
    case IPPROTO_UDP:
        if (!TAKE(cursor, struct udphdr))
            return HANDLER_COUNT;
        if (flow->dest_port == bpf_htons(VXLAN_PORT))
            return HANDLER_VXLAN;
        if (flow->dest_port == bpf_htons(GENEVE_PORT))
            return HANDLER_GENEVE;
        return HANDLER_COUNT;
    default:
        return HANDLER_COUNT;
    }
}

SEC("xdp")
int tunnel_terminator(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct handover *handover;
    void *start = cursor.pos;
    struct flow flow = {};
    __u32 handler, offset;

    if (parse_frame(&cursor, &network, &flow) || network.is_fragment)
        return XDP_PASS;
    if (!bpf_map_lookup_elem(&endpoints, &flow.dest))
        return XDP_PASS;
    handler = choose_handler(&cursor, &flow);
    offset = cursor.pos - start;
    if (handler == HANDLER_COUNT || offset > 0xff)
        return XDP_PASS;
    if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*handover)))
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    handover = (void *)(long)ctx->data_meta;
    if ((void *)(handover + 1) > (void *)(long)ctx->data)
        return finish(ctx, RESULT_MALFORMED, XDP_DROP);
    handover->tunnel_offset = offset;
    handover->inner_protocol = flow.protocol;
    handover->zero = 0;
    bpf_tail_call(ctx, &handlers, handler);
    bpf_xdp_adjust_meta(ctx, sizeof(*handover)); // not removed: leave the frame as it came
    return finish(ctx, RESULT_NO_HANDLER, XDP_PASS);
}

char _license[] SEC("license") = "Dual MIT/GPL";
