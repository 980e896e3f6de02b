// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// vlan: puts 802.1Q tags on, takes them off, and translates them, by table.
//
// Three programs for the three kinds of port: `vlan_access` tags what comes in with the VLAN of its
// port, `vlan_trunk` takes the outermost tag off (and drops VLANs that the port is not in),
// `vlan_translate` exchanges the VLAN id and keeps priority and drop-eligible bits.
//
// Maps
//   ports        HASH          ifindex -> {VLAN id, priority} for vlan_access
//   members      HASH          {ifindex, VLAN id} -> 1 for vlan_trunk
//   translation  ARRAY         VLAN id -> VLAN id, 0 is "drop"
//   vlan_stats   LRU_PERCPU_HASH  VLAN id -> packets, bytes; the busiest stay
//
// Configure  nothing.
// Verdicts   XDP_PASS with the frame rewritten; XDP_DROP not a member, no headroom.
#include "parse.h"

#define VLAN_ID_MASK 0x0fff
#define VLAN_PRIORITY_SHIFT 13
#define VLAN_IDS 4096

struct access {
    __u16 id;
    __u8 priority;
    __u8 zero;
};

struct member {
    __u32 ifindex;
    __u32 id;
};

// The first 16 bytes of a tagged frame.
struct tagged_ethernet {
    __u8 dest[ETH_ALEN];
    __u8 source[ETH_ALEN];
    __be16 tag_protocol;
    __be16 tci;
};
_Static_assert(sizeof(struct tagged_ethernet) == 16, "as on the wire");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, struct access);
} ports SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct member);
    __type(value, __u8);
} members SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, VLAN_IDS);
    __type(key, __u32);
    __type(value, __u16);
} translation SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_PERCPU_HASH);
    __uint(max_entries, 256);
    __type(key, __u32);
    __type(value, struct counter);
} vlan_stats SEC(".maps");

static __always_inline void count_vlan(__u32 id, __u64 bytes)
{
    struct counter *stats = bpf_map_lookup_elem(&vlan_stats, &id);
    struct counter first = {.packets = 1, .bytes = bytes};

    if (stats)
        count(stats, bytes);
    else
        bpf_map_update_elem(&vlan_stats, &id, &first, BPF_ANY);
}

static __always_inline bool is_tag(__be16 protocol)
{
    return protocol == bpf_htons(ETH_P_8021Q) || protocol == bpf_htons(ETH_P_8021AD);
}

SEC("xdp")
int vlan_access(struct xdp_md *ctx)
{
    __u32 ifindex = ctx->ingress_ifindex;
    struct access *access = bpf_map_lookup_elem(&ports, &ifindex);
    struct tagged_ethernet *tagged;
    struct ethhdr untagged;
    struct cursor cursor;
    void *frame;

    if (!access)
        return XDP_PASS;
    cursor = cursor_at_start(ctx);
    frame = take(&cursor, sizeof(untagged));
    if (!frame)
        return XDP_DROP;
    __builtin_memcpy(&untagged, frame, sizeof(untagged));
    if (is_tag(untagged.h_proto))
        return XDP_DROP; // a host on an access port has no business tagging
    count_vlan(access->id, linear_bytes(ctx));
    if (bpf_xdp_adjust_head(ctx, -(int)sizeof(struct vlan_header)))
        return XDP_DROP;
    cursor = cursor_at_start(ctx);
    tagged = TAKE(&cursor, struct tagged_ethernet);
    if (!tagged)
        return XDP_DROP;
    __builtin_memcpy(tagged->dest, untagged.h_dest, ETH_ALEN);
    __builtin_memcpy(tagged->source, untagged.h_source, ETH_ALEN);
    tagged->tag_protocol = bpf_htons(ETH_P_8021Q);
    tagged->tci = bpf_htons((access->id & VLAN_ID_MASK) | access->priority << VLAN_PRIORITY_SHIFT);
    return XDP_PASS; // the old type field now follows the tag, where it belongs
}

SEC("xdp")
int vlan_trunk(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct member member = {.ifindex = ctx->ingress_ifindex};
    struct tagged_ethernet *tagged;
    __u8 addresses[2 * ETH_ALEN];
    void *frame;

    tagged = TAKE(&cursor, struct tagged_ethernet);
    if (!tagged)
        return XDP_DROP;
    if (!is_tag(tagged->tag_protocol))
        return XDP_PASS;
    member.id = bpf_ntohs(tagged->tci) & VLAN_ID_MASK;
    if (!bpf_map_lookup_elem(&members, &member))
        return XDP_DROP;
    count_vlan(member.id, linear_bytes(ctx));
    __builtin_memcpy(addresses, tagged, sizeof(addresses));
    if (bpf_xdp_adjust_head(ctx, sizeof(struct vlan_header)))
        return XDP_DROP;
    cursor = cursor_at_start(ctx);
    frame = take(&cursor, sizeof(addresses));
    if (!frame)
        return XDP_DROP;
    __builtin_memcpy(frame, addresses, sizeof(addresses));
    return XDP_PASS;
}

SEC("xdp")
int vlan_translate(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct tagged_ethernet *tagged = TAKE(&cursor, struct tagged_ethernet);
    __u16 tci, *translated;
    __u32 id;

    if (!tagged || !is_tag(tagged->tag_protocol))
        return XDP_PASS;
    tci = bpf_ntohs(tagged->tci);
    id = tci & VLAN_ID_MASK;
    translated = bpf_map_lookup_elem(&translation, &id);
    if (!translated || !*translated)
        return XDP_DROP;
    tagged->tci = bpf_htons((tci & ~VLAN_ID_MASK) | (*translated & VLAN_ID_MASK));
    count_vlan(*translated & VLAN_ID_MASK, linear_bytes(ctx));
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
