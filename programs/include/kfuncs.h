// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Kernel functions and types that Debian's headers are too old to declare. Types are declared with
// the fields the programs touch; CO-RE finds them in the kernel that runs.
#pragma once

#include "xdp.h"

#include <bpf/bpf_core_read.h>

#define __kfunc_type __attribute__((preserve_access_index))

// Dynptrs (kernel 6.4, pull_data 6.18).
extern int bpf_dynptr_from_xdp(struct xdp_md *ctx, __u64 flags, struct bpf_dynptr *ptr) __ksym;
extern void *bpf_dynptr_slice(const struct bpf_dynptr *ptr, __u32 offset, void *buffer,
                              __u32 buffer__szk) __ksym;
extern void *bpf_dynptr_slice_rdwr(const struct bpf_dynptr *ptr, __u32 offset, void *buffer,
                                   __u32 buffer__szk) __ksym;
extern int bpf_dynptr_adjust(const struct bpf_dynptr *ptr, __u32 start, __u32 end) __ksym;
extern int bpf_dynptr_clone(const struct bpf_dynptr *ptr, struct bpf_dynptr *clone) __ksym;
extern __u32 bpf_dynptr_size(const struct bpf_dynptr *ptr) __ksym;
extern bool bpf_dynptr_is_rdonly(const struct bpf_dynptr *ptr) __ksym;
extern int bpf_xdp_pull_data(struct xdp_md *ctx, __u32 length) __ksym __weak;

// Open-coded iterators (kernel 6.4, bits 6.11).
struct bpf_iter_num {
    __u64 opaque[1];
} __attribute__((aligned(8)));
struct bpf_iter_bits {
    __u64 opaque[2];
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
extern int bpf_iter_bits_new(struct bpf_iter_bits *it, const __u64 *words, __u32 count) __ksym;
extern int *bpf_iter_bits_next(struct bpf_iter_bits *it) __ksym;
extern void bpf_iter_bits_destroy(struct bpf_iter_bits *it) __ksym;

// Strings (kernel 6.17).
extern int bpf_strcmp(const char *left, const char *right) __ksym;
extern int bpf_strnchr(const char *text, unsigned long length, char wanted) __ksym;
extern int bpf_strnlen(const char *text, unsigned long length) __ksym;
extern int bpf_strnstr(const char *text, const char *wanted, unsigned long length) __ksym;

// Objects, lists and trees (kernel 6.2 to 6.4, walking a tree 6.16).
struct bpf_list_head {
    __u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_list_node {
    __u64 opaque[3];
} __attribute__((aligned(8)));
struct bpf_rb_root {
    __u64 opaque[2];
} __attribute__((aligned(8)));
struct bpf_rb_node {
    __u64 opaque[4];
} __attribute__((aligned(8)));
struct bpf_refcount {
    __u32 opaque[1];
} __attribute__((aligned(4)));

#define __contains(type, member) \
    __attribute__((btf_decl_tag("contains:" #type ":" #member)))

extern void *bpf_obj_new_impl(__u64 type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;
extern void *bpf_refcount_acquire_impl(void *object, void *meta) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *head, struct bpf_list_node *node,
                                   void *meta, __u64 offset) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *head) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
                               bool(less)(struct bpf_rb_node *a, const struct bpf_rb_node *b),
                               void *meta, __u64 offset) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root,
                                             struct bpf_rb_node *node) __ksym;

#define bpf_obj_new(type) ((type *)bpf_obj_new_impl(bpf_core_type_id_local(type), NULL))
#define bpf_obj_drop(object) bpf_obj_drop_impl(object, NULL)
#define bpf_refcount_acquire(object) bpf_refcount_acquire_impl(object, NULL)
#define bpf_list_push_back(head, node) bpf_list_push_back_impl(head, node, NULL, 0)
#define bpf_rbtree_add(root, node, less) bpf_rbtree_add_impl(root, node, less, NULL, 0)

// Connection tracking (kernel 6.1).
struct nf_conn {
    __u64 status;
    __u32 mark;
} __kfunc_type;

struct bpf_ct_opts {
    __s32 netns_id;
    __s32 error;
    __u8 l4proto;
    __u8 dir;
    __u8 reserved[2];
};

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
                                         __u32 tuple__sz, struct bpf_ct_opts *opts,
                                         __u32 opts__sz) __ksym;
extern struct nf_conn *bpf_xdp_ct_alloc(struct xdp_md *ctx, struct bpf_sock_tuple *tuple,
                                        __u32 tuple__sz, struct bpf_ct_opts *opts,
                                        __u32 opts__sz) __ksym;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn *entry) __ksym;
extern void bpf_ct_set_timeout(struct nf_conn *entry, __u32 timeout_ms) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *entry, __u32 timeout_ms) __ksym;
extern void bpf_ct_release(struct nf_conn *entry) __ksym;
