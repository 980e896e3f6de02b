// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// last_words: keeps the head of the last dropped-looking frame of each source, for the post-mortem.
//
// A frame whose IP header lies about its length, or whose TTL is 0, is copied into an object
// that is built aside and then exchanged into the map in one step: a reader sees a whole note or
// none, and the former note comes back to be freed. No lock, and no copy inside the map.
//
// Needs: clang >= 15 (type tags for kptrs), kernel 6.4.
//
// Maps
//   notes   HASH   source address -> kptr to the note
//   totals  ARRAY  0: notes written, 1: replaced
//
// Configure  nothing.
// Verdicts   XDP_DROP the frame lies; XDP_PASS.
#include "kfuncs.h"
#include "parse.h"

#define SOURCES_MAX 1024
#define HEAD_BYTES 64

struct note {
    __u64 time_ns;
    __u32 frame_bytes;
    __u32 claimed_bytes;
    __u8 head[HEAD_BYTES];
};

struct slot {
    struct note __kptr *note;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SOURCES_MAX);
    __type(key, __be32);
    __type(value, struct slot);
} notes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

static __always_inline void add(__u32 total)
{
    __u64 *value = bpf_map_lookup_elem(&totals, &total);

    if (value)
        __sync_fetch_and_add(value, 1);
}

static __always_inline struct slot *slot_of(__be32 source)
{
    struct slot *slot = bpf_map_lookup_elem(&notes, &source);
    struct slot empty = {};

    if (slot)
        return slot;
    bpf_map_update_elem(&notes, &source, &empty, BPF_NOEXIST);
    return bpf_map_lookup_elem(&notes, &source);
}

static __always_inline void write_note(struct xdp_md *ctx, __be32 source, __u32 claimed_bytes)
{
    struct slot *slot = slot_of(source);
    __u8 head[HEAD_BYTES] = {};
    struct note *note, *former;
    __u64 bytes;

    if (!slot)
        return;
    bytes = bpf_xdp_get_buff_len(ctx);
    barrier_var(bytes);
    if (bytes > HEAD_BYTES)
        bytes = HEAD_BYTES;
    if (bytes < ETH_HLEN || bpf_xdp_load_bytes(ctx, 0, head, bytes))
        return;
    note = bpf_obj_new(struct note);
    if (!note)
        return;
    note->time_ns = bpf_ktime_get_boot_ns();
    note->frame_bytes = bpf_xdp_get_buff_len(ctx);
    note->claimed_bytes = claimed_bytes;
    __builtin_memcpy(note->head, head, HEAD_BYTES);
    former = bpf_kptr_xchg(&slot->note, note);
    add(0);
    if (former) {
        add(1);
        bpf_obj_drop(former);
    }
}

SEC("xdp.frags")
int last_words(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u32 claimed_bytes;
    struct iphdr *ip;
    __u16 ethertype;
    __be32 source;
    void *start = cursor.pos;
    __u32 offset;

    if (!parse_ethernet(&cursor, &ethertype) || ethertype != ETH_P_IP)
        return XDP_PASS;
    offset = cursor.pos - start;
    ip = TAKE(&cursor, struct iphdr);
    if (!ip)
        return XDP_PASS;
    claimed_bytes = bpf_ntohs(ip->tot_len);
    source = ip->saddr;
    if (ip->ttl && claimed_bytes >= sizeof(*ip) &&
        offset + claimed_bytes <= bpf_xdp_get_buff_len(ctx))
        return XDP_PASS;
    write_note(ctx, source, claimed_bytes);
    return XDP_DROP;
}

char _license[] SEC("license") = "Dual MIT/GPL";
