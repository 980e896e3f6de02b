// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Objects of programs: allocated, kept in maps, lists and trees.
//
// Needs: clang >= 15 (type tags for kptrs), kernel 6.4.
#include "price.h"

struct item {
    struct bpf_rb_node node;
    struct bpf_list_node link;
    struct bpf_refcount references;
    __u64 number;
};

struct note {
    __u64 words[8];
};

struct slot {
    struct note __kptr *note;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct slot);
} slots SEC(".maps");

#define SHELF SEC(".data.shelf") __hidden __attribute__((aligned(8)))
SHELF struct bpf_spin_lock shelf_lock;
SHELF struct bpf_rb_root tree __contains(item, node);
SHELF struct bpf_list_head list __contains(item, link);

static bool is_less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
    return container_of(a, struct item, node)->number < container_of(b, struct item, node)->number;
}

PRICE(obj_new_and_drop, , {
    struct note *note = bpf_obj_new(struct note);
    if (note) {
        bpf_obj_drop(note);
        done += 1;
    }
})
#define SLOT                                                                                       \
    struct slot *slot = bpf_map_lookup_elem(&slots, &first);                                       \
    if (!slot)                                                                                     \
    return 0

PRICE(refcount_acquire_and_drop, struct item *item = bpf_obj_new(struct item);
      if (!item) return 0, {
    struct item *again = bpf_refcount_acquire(item);
    if (again) {
        bpf_obj_drop(again);
        done += 1;
    }
    if (n == REPEATS - 1)
        bpf_obj_drop(item);
})
PRICE(kptr_xchg_of_new_object, SLOT, {
    struct note *note = bpf_obj_new(struct note);
    if (note) {
        note = bpf_kptr_xchg(&slot->note, note);
        if (note)
            bpf_obj_drop(note);
        done += 1;
    }
})
PRICE(kptr_xchg_of_null, SLOT, {
    struct note *note = bpf_kptr_xchg(&slot->note, NULL);
    if (note)
        bpf_obj_drop(note);
    else
        done += 1;
})
PRICE(list_push_and_pop_of_new_object, , {
    struct item *item = bpf_obj_new(struct item);
    struct bpf_list_node *link;
    if (!item)
        return 0;
    bpf_spin_lock(&shelf_lock);
    bpf_list_push_back(&list, &item->link);
    link = bpf_list_pop_front(&list);
    bpf_spin_unlock(&shelf_lock);
    if (link) {
        bpf_obj_drop(container_of(link, struct item, link));
        done += 1;
    }
})
PRICE(rbtree_add_and_remove_of_new_object, , {
    struct item *item = bpf_obj_new(struct item);
    struct bpf_rb_node *node;
    if (!item)
        return 0;
    item->number = n;
    bpf_spin_lock(&shelf_lock);
    bpf_rbtree_add(&tree, &item->node, is_less);
    node = bpf_rbtree_first(&tree);
    if (node)
        node = bpf_rbtree_remove(&tree, node);
    bpf_spin_unlock(&shelf_lock);
    if (node) {
        bpf_obj_drop(container_of(node, struct item, node));
        done += 1;
    }
})
