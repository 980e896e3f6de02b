// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// allocated: what programs do with objects of their own, as the bytes of the frame say.
//
// Each pair of bytes behind the Ethernet header is a step and a place. An object says who it is
// twice over, so that one that was used again too early is noticed.
//
// Maps
//   slots   HASH   place -> kptr to an object
//   totals  ARRAY  0: objects made, 1: objects that were not whole
//
// Verdicts   what the steps saw, as one number.
#include "kfuncs.h"

#define PLACES 4
#define STEPS_MAX 64

#define private(name) SEC(".data." #name) __hidden __attribute__((aligned(8)))

// Not a name that a type of the kernel has.
struct counted {
    __u64 number;
    struct bpf_refcount references;
    struct bpf_list_node in_list;
    struct bpf_rb_node in_tree;
    __u64 inverted;
};

struct slot {
    struct counted __kptr *held;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PLACES);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} totals SEC(".maps");

private(lists) struct bpf_spin_lock lock;
private(lists) struct bpf_list_head list __contains(counted, in_list);
private(lists) struct bpf_rb_root tree __contains(counted, in_tree);

static __always_inline __u64 add_to(__u32 total)
{
    __u64 *value = bpf_map_lookup_elem(&totals, &total);

    return value ? __sync_fetch_and_add(value, 1) : 0;
}

static __always_inline struct slot *slot_of(__u32 place)
{
    struct slot *slot = bpf_map_lookup_elem(&slots, &place);
    struct slot empty = {};

    if (slot)
        return slot;
    bpf_map_update_elem(&slots, &place, &empty, BPF_NOEXIST);
    return bpf_map_lookup_elem(&slots, &place);
}

static bool is_less(struct bpf_rb_node *one, const struct bpf_rb_node *other)
{
    return container_of(one, struct counted, in_tree)->number <
           container_of(other, struct counted, in_tree)->number;
}

/* Gives a reference up, if there is one; which object it was. */
static __always_inline __u64 give_up(struct counted *node)
{
    __u64 number;

    if (!node)
        return 0;
    number = node->number;
    if (node->inverted != ~number)
        add_to(1);
    bpf_obj_drop(node);
    return number + 1;
}

static __noinline __u64 make(__u32 place)
{
    struct slot *slot = slot_of(place);
    struct counted *node;

    if (!slot)
        return 1;
    node = bpf_obj_new(struct counted);
    if (!node)
        return 2;
    node->number = add_to(0);
    node->inverted = ~node->number;
    node = bpf_kptr_xchg(&slot->held, node);
    return give_up(node);
}

static __noinline __u64 vacate(__u32 place)
{
    struct slot *slot = slot_of(place);

    return slot ? give_up(bpf_kptr_xchg(&slot->held, NULL)) : 1;
}

/* Into the list and the tree; whoever is there already is given up. */
static __noinline __u64 queue(__u32 place)
{
    struct slot *slot = slot_of(place);
    struct counted *node, *again;
    int listed, treed;

    if (!slot)
        return 1;
    node = bpf_kptr_xchg(&slot->held, NULL);
    if (!node)
        return 2;
    again = bpf_refcount_acquire(node);
    bpf_spin_lock(&lock);
    listed = bpf_list_push_back(&list, &node->in_list);
    treed = bpf_rbtree_add(&tree, &again->in_tree, is_less);
    bpf_spin_unlock(&lock);
    return 3 + (listed ? 1 : 0) + (treed ? 2 : 0);
}

static __noinline __u64 first_of_list(__u32 place)
{
    struct slot *slot = slot_of(place);
    struct bpf_list_node *first;
    struct counted *node;

    if (!slot)
        return 1;
    bpf_spin_lock(&lock);
    first = bpf_list_pop_front(&list);
    bpf_spin_unlock(&lock);
    if (!first)
        return 2;
    node = bpf_kptr_xchg(&slot->held, container_of(first, struct counted, in_list));
    return give_up(node);
}

static __noinline __u64 first_of_tree(__u32 place)
{
    struct slot *slot = slot_of(place);
    struct bpf_rb_node *first;
    struct counted *node;

    if (!slot)
        return 1;
    bpf_spin_lock(&lock);
    first = bpf_rbtree_first(&tree);
    if (!first) {
        bpf_spin_unlock(&lock);
        return 2;
    }
    first = bpf_rbtree_remove(&tree, first);
    bpf_spin_unlock(&lock);
    if (!first)
        return 3;
    node = bpf_kptr_xchg(&slot->held, container_of(first, struct counted, in_tree));
    return give_up(node);
}

/* One object in two places. */
static __noinline __u64 share(__u32 place)
{
    struct slot *slot = slot_of(place), *next = slot_of((place + 1) % PLACES);
    struct counted *node, *again;
    __u64 result;

    if (!slot || !next)
        return 1;
    node = bpf_kptr_xchg(&slot->held, NULL);
    if (!node)
        return 2;
    again = bpf_refcount_acquire(node);
    again = bpf_kptr_xchg(&next->held, again);
    result = give_up(again);
    node = bpf_kptr_xchg(&slot->held, node);
    return result * 31 + give_up(node);
}

/* Looks at an object that may be given up meanwhile, and keeps it where it was not. */
static __noinline __u64 look(__u32 place)
{
    struct slot *slot = slot_of(place);
    struct counted *node, *mine;

    if (!slot)
        return 1;
    node = slot->held;
    if (!node)
        return 2;
    if (node->inverted != ~node->number)
        add_to(1);
    mine = bpf_refcount_acquire(node);
    if (!mine)
        return 3;
    return give_up(mine);
}

static __noinline __u64 erase(__u32 place)
{
    return bpf_map_delete_elem(&slots, &place) ? 1 : 2;
}

SEC("xdp")
int allocated(struct xdp_md *ctx)
{
    struct bpf_iter_num steps;
    __u64 result = 0;
    __u8 step[2];
    int *index;

    bpf_iter_num_new(&steps, 0, STEPS_MAX);
    while ((index = bpf_iter_num_next(&steps))) {
        __u32 place;

        if (bpf_xdp_load_bytes(ctx, ETH_HLEN + *index * 2, step, sizeof(step)))
            break;
        place = step[1] % PLACES;
        switch (step[0] & 7) {
        case 0: result = result * 31 + make(place); break;
        case 1: result = result * 31 + vacate(place); break;
        case 2: result = result * 31 + queue(place); break;
        case 3: result = result * 31 + first_of_list(place); break;
        case 4: result = result * 31 + first_of_tree(place); break;
        case 5: result = result * 31 + share(place); break;
        case 6: result = result * 31 + look(place); break;
        default: result = result * 31 + erase(place); break;
        }
    }
    bpf_iter_num_destroy(&steps);
    return (__u32)result;
}

char _license[] SEC("license") = "Dual MIT/GPL";
