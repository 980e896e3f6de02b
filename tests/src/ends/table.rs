//! The things, as C.

use super::Thing;

const fn thing(
    name: &'static str,
    of: &'static [&'static str],
    handle: [&'static str; 2],
    get: &'static str,
    end: &'static str,
) -> Thing {
    Thing { name, of, handle, get, end }
}

const CTX: [&str; 2] = ["struct xdp_md *", "ctx"];
const DYNPTR: [&str; 2] = ["struct bpf_dynptr *", "&d"];
const POINTER: [&str; 2] = ["void *", "p"];

const PACKET: &str =
    "p = (void *)(long)ctx->data; if (p + 16 > (void *)(long)ctx->data_end) return 0;";
const RECORD: &str = "p = bpf_ringbuf_reserve(&ring, 16, 0); if (!p) return 0;";
const RECORD_DATA: &str = "struct bpf_dynptr d; bpf_ringbuf_reserve_dynptr(&ring, 16, 0, &d); \
     p = bpf_dynptr_data(&d, 0, 8); if (!p) { bpf_ringbuf_discard_dynptr(&d, 0); return 0; }";
const RECORD_SLICE: &str = "struct bpf_dynptr d; bpf_ringbuf_reserve_dynptr(&ring, 16, 0, &d); \
     p = bpf_dynptr_slice(&d, 0, 0, 8); if (!p) { bpf_ringbuf_discard_dynptr(&d, 0); return 0; }";
const CLONE_SLICE: &str = "struct bpf_dynptr d, c; bpf_ringbuf_reserve_dynptr(&ring, 16, 0, &d); \
     bpf_dynptr_clone(&d, &c); \
     p = bpf_dynptr_data(&c, 0, 8); if (!p) { bpf_ringbuf_discard_dynptr(&d, 0); return 0; }";
const FRAME_SLICE: &str = "struct bpf_dynptr d; bpf_dynptr_from_xdp(ctx, 0, &d); \
     p = bpf_dynptr_slice(&d, 0, 0, 8); if (!p) return 0;";
const FRAME_SLICE_RDWR: &str = "struct bpf_dynptr d; bpf_dynptr_from_xdp(ctx, 0, &d); \
     p = bpf_dynptr_slice_rdwr(&d, 0, 0, 8); if (!p) return 0;";
const LOCAL_SLICE: &str = "void *v = value(0); if (!v) return 0; struct bpf_dynptr d; \
     bpf_dynptr_from_mem(v, 16, 0, &d); p = bpf_dynptr_data(&d, 0, 8); if (!p) return 0;";
const LOCKED_NODE: &str = "struct list_item *made = obj_new(struct list_item); if (!made) \
     return 0; \
     p = made; bpf_spin_lock(&list_lock); bpf_list_push_front_impl(&list, &made->n, 0, 0);";
const LISTED: &str = "bpf_spin_lock(&list_lock); struct bpf_list_node *n = \
     bpf_list_front(&list); \
     if (!n) { bpf_spin_unlock(&list_lock); return 0; } p = container_of(n, struct list_item, \
     n);";
const LISTED_LAST: &str = "bpf_spin_lock(&list_lock); struct bpf_list_node *n = \
     bpf_list_back(&list); \
     if (!n) { bpf_spin_unlock(&list_lock); return 0; } p = container_of(n, struct list_item, \
     n);";
const POPPED: &str = "bpf_spin_lock(&list_lock); struct bpf_list_node *n = \
     bpf_list_pop_front(&list); \
     bpf_spin_unlock(&list_lock); if (!n) return 0; p = container_of(n, struct list_item, n);";
const POPPED_LAST: &str = "bpf_spin_lock(&list_lock); struct bpf_list_node *n = \
     bpf_list_pop_back(&list); \
     bpf_spin_unlock(&list_lock); if (!n) return 0; p = container_of(n, struct list_item, n);";
const ADDED: &str = "struct leaf *made = obj_new(struct leaf); if (!made) return 0; p = made; \
     bpf_spin_lock(&tree_lock); bpf_rbtree_add_impl(&tree, &made->rb, less, 0, 0);";
const IN_TREE: &str = "bpf_spin_lock(&tree_lock); struct bpf_rb_node *n = \
     bpf_rbtree_first(&tree); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } p = container_of(n, struct leaf, rb);";
const TREE_ROOT: &str = "bpf_spin_lock(&tree_lock); struct bpf_rb_node *n = \
     bpf_rbtree_root(&tree); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } p = container_of(n, struct leaf, rb);";
const TREE_LEFT: &str = "bpf_spin_lock(&tree_lock); struct bpf_rb_node *n = \
     bpf_rbtree_root(&tree); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } n = bpf_rbtree_left(&tree, n); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } p = container_of(n, struct leaf, rb);";
const TREE_RIGHT: &str = "bpf_spin_lock(&tree_lock); struct bpf_rb_node *n = \
     bpf_rbtree_root(&tree); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } n = bpf_rbtree_right(&tree, n); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } p = container_of(n, struct leaf, rb);";
const OUT_OF_TREE: &str = "bpf_spin_lock(&tree_lock); struct bpf_rb_node *n = \
     bpf_rbtree_first(&tree); \
     if (!n) { bpf_spin_unlock(&tree_lock); return 0; } n = bpf_rbtree_remove(&tree, n); \
     bpf_spin_unlock(&tree_lock); if (!n) return 0; p = container_of(n, struct leaf, rb);";
const LOOKUP: &str = "struct bpf_sock_tuple t = {}; \
     struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof(t.ipv4), -1, 0); if (!s) return \
     0; p = s;";
const LOOKUP_UDP: &str = "struct bpf_sock_tuple t = {}; \
     struct bpf_sock *s = bpf_sk_lookup_udp(ctx, &t, sizeof(t.ipv4), -1, 0); if (!s) return \
     0; p = s;";
const LOOKUP_COMMON: &str = "struct bpf_sock_tuple t = {}; \
     struct bpf_sock *s = bpf_skc_lookup_tcp(ctx, &t, sizeof(t.ipv4), -1, 0); if (!s) return 0; \
     p = bpf_skc_to_tcp_sock(s); if (!p) { bpf_sk_release(s); return 0; }";
const STORED_SOCKET: &str = "__u32 key = 0; struct bpf_sock *s = \
     bpf_map_lookup_elem(&sockets, &key); \
     if (!s) return 0; p = s;";
const KEPT: &str = "struct keeper *k = keeper(); if (!k) return 0; bpf_rcu_read_lock(); \
     p = k->plain; if (!p) { bpf_rcu_read_unlock(); return 0; }";
const KEPT_PERCPU: &str = "struct keeper *k = keeper(); if (!k) return 0; bpf_rcu_read_lock(); \
     void *each = k->percpu; if (!each) { bpf_rcu_read_unlock(); return 0; } \
     p = bpf_this_cpu_ptr(each);";
const KEPT_PERCPU_OTHER: &str = "struct keeper *k = keeper(); if (!k) return 0; \
     bpf_rcu_read_lock(); \
     void *each = k->percpu; if (!each) { bpf_rcu_read_unlock(); return 0; } \
     p = bpf_per_cpu_ptr(each, 0); if (!p) { bpf_rcu_read_unlock(); return 0; }";
const EXCHANGED: &str = "struct keeper *k = keeper(); if (!k) return 0; \
     p = bpf_kptr_xchg(&k->plain, 0); if (!p) return 0;";
const ACQUIRED: &str = "struct counted *made = obj_new(struct counted); if (!made) return 0; \
     p = bpf_refcount_acquire_impl(made, 0); obj_drop(made); if (!p) return 0;";
const TASK: &str = "p = bpf_task_from_pid(1); if (!p) return 0;";
const NUMBERS: &str = "struct bpf_iter_num it; bpf_iter_num_new(&it, 5, 10); \
     p = bpf_iter_num_next(&it); if (!p) { bpf_iter_num_destroy(&it); return 0; }";
const BITS: &str = "struct bpf_iter_bits it; __u64 word = 5; bpf_iter_bits_new(&it, &word, 1); \
     p = bpf_iter_bits_next(&it); if (!p) { bpf_iter_bits_destroy(&it); return 0; }";
const UNLOCK_LIST: &str = "bpf_spin_unlock(&list_lock);";
const UNLOCK_TREE: &str = "bpf_spin_unlock(&tree_lock);";

/// Each thing, by what it hangs on.
pub const THINGS: &[Thing] = &[
    thing(
        "num",
        &["bpf_iter_num_next"],
        ["struct bpf_iter_num *", "&it"],
        NUMBERS,
        "bpf_iter_num_destroy(H);",
    ),
    thing(
        "bits",
        &["bpf_iter_bits_next"],
        ["struct bpf_iter_bits *", "&it"],
        BITS,
        "bpf_iter_bits_destroy(H);",
    ),
    thing(
        "record_submitted",
        &["bpf_ringbuf_reserve"],
        POINTER,
        RECORD,
        "bpf_ringbuf_submit(H, 0);",
    ),
    thing(
        "record_discarded",
        &["bpf_ringbuf_reserve"],
        POINTER,
        RECORD,
        "bpf_ringbuf_discard(H, 0);",
    ),
    thing(
        "record_data",
        &["bpf_dynptr_data", "bpf_ringbuf_reserve_dynptr"],
        DYNPTR,
        RECORD_DATA,
        "bpf_ringbuf_submit_dynptr(H, 0);",
    ),
    thing(
        "record_slice",
        &["bpf_dynptr_slice"],
        DYNPTR,
        RECORD_SLICE,
        "bpf_ringbuf_discard_dynptr(H, 0);",
    ),
    thing(
        "clone_data",
        &["bpf_dynptr_clone"],
        DYNPTR,
        CLONE_SLICE,
        "bpf_ringbuf_submit_dynptr(H, 0);",
    ),
    thing("frame_slice", &["bpf_dynptr_slice"], CTX, FRAME_SLICE, "bpf_xdp_adjust_head(H, 0);"),
    thing(
        "frame_slice_pulled",
        &["bpf_dynptr_slice_rdwr"],
        CTX,
        FRAME_SLICE_RDWR,
        "bpf_xdp_pull_data(H, 0);",
    ),
    thing("local_data", &["bpf_dynptr_data"], DYNPTR, LOCAL_SLICE, "*(volatile __u64 *)(H) = 0;"),
    thing("packet_head", &[], CTX, PACKET, "bpf_xdp_adjust_head(H, 0);"),
    thing("packet_tail", &[], CTX, PACKET, "bpf_xdp_adjust_tail(H, 0);"),
    thing("packet_meta", &[], CTX, PACKET, "bpf_xdp_adjust_meta(H, 0);"),
    thing("packet_pulled", &[], CTX, PACKET, "bpf_xdp_pull_data(H, 0);"),
    thing("packet_tail_call", &[], CTX, PACKET, "tail(H);"),
    thing("pushed", &[], CTX, LOCKED_NODE, UNLOCK_LIST),
    thing("listed", &["bpf_list_front"], CTX, LISTED, UNLOCK_LIST),
    thing("listed_last", &["bpf_list_back"], CTX, LISTED_LAST, UNLOCK_LIST),
    thing("popped", &["bpf_list_pop_front"], POINTER, POPPED, "obj_drop((struct list_item *)H);"),
    thing(
        "popped_last",
        &["bpf_list_pop_back"],
        POINTER,
        POPPED_LAST,
        "obj_drop((struct list_item *)H);",
    ),
    thing("added", &[], CTX, ADDED, UNLOCK_TREE),
    thing("in_tree", &["bpf_rbtree_first"], CTX, IN_TREE, UNLOCK_TREE),
    thing("tree_root", &["bpf_rbtree_root"], CTX, TREE_ROOT, UNLOCK_TREE),
    thing("tree_left", &["bpf_rbtree_left"], CTX, TREE_LEFT, UNLOCK_TREE),
    thing("tree_right", &["bpf_rbtree_right"], CTX, TREE_RIGHT, UNLOCK_TREE),
    thing(
        "out_of_tree",
        &["bpf_rbtree_remove"],
        POINTER,
        OUT_OF_TREE,
        "obj_drop((struct leaf *)H);",
    ),
    thing(
        "made",
        &["bpf_obj_new_impl"],
        POINTER,
        "p = obj_new(struct plain); if (!p) return 0;",
        "obj_drop((struct plain *)H);",
    ),
    thing(
        "acquired",
        &["bpf_refcount_acquire_impl"],
        POINTER,
        ACQUIRED,
        "obj_drop((struct counted *)H);",
    ),
    thing("exchanged", &["bpf_kptr_xchg"], POINTER, EXCHANGED, "obj_drop((struct plain *)H);"),
    thing("kept", &[], CTX, KEPT, "bpf_rcu_read_unlock();"),
    thing("kept_percpu", &["bpf_this_cpu_ptr"], CTX, KEPT_PERCPU, "bpf_rcu_read_unlock();"),
    thing(
        "kept_percpu_other",
        &["bpf_per_cpu_ptr"],
        CTX,
        KEPT_PERCPU_OTHER,
        "bpf_rcu_read_unlock();",
    ),
    thing("socket", &["bpf_sk_lookup_tcp"], POINTER, LOOKUP, "bpf_sk_release(H);"),
    thing("socket_udp", &["bpf_sk_lookup_udp"], POINTER, LOOKUP_UDP, "bpf_sk_release(H);"),
    thing(
        "socket_cast",
        &["bpf_skc_lookup_tcp", "bpf_skc_to_tcp_sock"],
        ["struct bpf_sock *", "s"],
        LOOKUP_COMMON,
        "bpf_sk_release(H);",
    ),
    thing("socket_of_map", &["bpf_map_lookup_elem"], POINTER, STORED_SOCKET, "bpf_sk_release(H);"),
    thing("task", &["bpf_task_from_pid"], POINTER, TASK, "bpf_task_release(H);"),
];
