// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// heavy_hitters: which sources send most, kept in a sorted tree as frames arrive.
//
// Each source seen has a record, an object of its own. They lie in a tree sorted by bytes. When a
// source has sent another quantum, its record leaves the tree and comes back at its new place;
// between two quanta nothing is locked. The record of a source that falls to the last place of a
// full tree is retired onto a list, from which new sources take theirs: after the warm-up nothing
// is allocated.
//
// Needs: kernel 6.4 (rbtree and list kfuncs).
//
// Maps
//   sources    LRU_HASH   source address -> bytes so far, and since its record was last placed
//   totals     ARRAY      `enum total`
//   .data.board           the tree, the list and their lock, as globals
//
// Configure  quantum_bytes; board_max: how many records the tree holds.
// Verdicts   always XDP_PASS.
#include "kfuncs.h"
#include "parse.h"

#define SOURCES_MAX 16384

enum total {
    TOTAL_PLACED,
    TOTAL_RETIRED,
    TOTAL_REUSED,
    TOTAL_ALLOCATED,
    TOTAL_SMALLEST_BYTES,
    TOTAL_COUNT,
};

struct record {
    struct bpf_rb_node node;
    struct bpf_list_node link;
    struct bpf_refcount references; // required of what can lie in a tree and in a list
    struct in6_addr source;
    __u64 bytes;
};

struct source {
    __u64 bytes;
    __u64 placed_bytes;
};

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, SOURCES_MAX);
    __type(key, struct in6_addr);
    __type(value, struct source);
} sources SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, TOTAL_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

#define BOARD SEC(".data.board") __hidden __attribute__((aligned(8)))
BOARD struct bpf_spin_lock board_lock;
BOARD struct bpf_rb_root board __contains(record, node);
BOARD struct bpf_list_head retired __contains(record, link);
__u64 board_size;

const volatile __u64 quantum_bytes = 4096;
const volatile __u64 board_max = 64;

static __always_inline void add(__u32 total)
{
    __u64 *value = bpf_map_lookup_elem(&totals, &total);

    if (value)
        __sync_fetch_and_add(value, 1);
}

static bool sends_less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
    const struct record *left = container_of(a, struct record, node);
    const struct record *right = container_of(b, struct record, node);

    return left->bytes < right->bytes;
}

// A record to fill: a retired one, or a new one.
static __always_inline struct record *take_record(void)
{
    struct bpf_list_node *link;

    bpf_spin_lock(&board_lock);
    link = bpf_list_pop_front(&retired);
    bpf_spin_unlock(&board_lock);
    if (link) {
        add(TOTAL_REUSED);
        return container_of(link, struct record, link);
    }
    add(TOTAL_ALLOCATED);
    return bpf_obj_new(struct record);
}

// Moves the smallest record of a tree that is too large onto the list.
static __always_inline void retire_smallest(void)
{
    struct bpf_rb_node *node = NULL;
    struct record *record;

    bpf_spin_lock(&board_lock);
    if (board_size > board_max) {
        node = bpf_rbtree_first(&board);
        if (node)
            node = bpf_rbtree_remove(&board, node);
    }
    if (node) {
        record = container_of(node, struct record, node);
        board_size -= 1;
        bpf_list_push_back(&retired, &record->link);
    }
    bpf_spin_unlock(&board_lock);
    if (node)
        add(TOTAL_RETIRED);
}

static __always_inline void place(const struct in6_addr *source, __u64 bytes)
{
    struct record *record = take_record();

    if (!record)
        return;
    record->source = *source;
    record->bytes = bytes;
    bpf_spin_lock(&board_lock);
    bpf_rbtree_add(&board, &record->node, sends_less);
    board_size += 1;
    bpf_spin_unlock(&board_lock);
    add(TOTAL_PLACED);
    retire_smallest();
}

SEC("xdp")
int heavy_hitters(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u64 bytes = linear_bytes(ctx);
    struct source first = {.bytes = bytes};
    struct network network = {};
    struct source *source;
    struct flow flow = {};

    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    source = bpf_map_lookup_elem(&sources, &flow.source);
    if (!source) {
        bpf_map_update_elem(&sources, &flow.source, &first, BPF_NOEXIST);
        return XDP_PASS;
    }
    __sync_fetch_and_add(&source->bytes, bytes);
    if (source->bytes - source->placed_bytes < quantum_bytes)
        return XDP_PASS;
    source->placed_bytes = source->bytes;
    place(&flow.source, source->bytes);
    return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
