/* Kfuncs and shorthand for the calls under test; types are those of the running kernel. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#define private(name) SEC(".data." #name) __attribute__((aligned(8)))
#define BPF_ANY 0
#define XDP_PASS 2
#define XDP_DROP 1
#ifndef __contains
#define __contains(name, node) __attribute__((btf_decl_tag("contains:" #name ":" #node)))
#endif
#undef __kptr
#define __kptr __attribute__((btf_type_tag("kptr")))
#define __kptr_untrusted __attribute__((btf_type_tag("kptr_untrusted")))
#define __percpu_kptr __attribute__((btf_type_tag("percpu_kptr")))
#define container_of(p, t, m) ((t *)((void *)(p) - __builtin_offsetof(t, m)))

extern void *bpf_obj_new_impl(__u64 local_type_id, void *meta) __ksym;
extern void bpf_obj_drop_impl(void *p, void *meta) __ksym;
extern void *bpf_percpu_obj_new_impl(__u64 local_type_id, void *meta) __ksym;
extern void bpf_percpu_obj_drop_impl(void *p, void *meta) __ksym;
extern void *bpf_refcount_acquire_impl(void *p, void *meta) __ksym;
extern int bpf_list_push_front_impl(struct bpf_list_head *h, struct bpf_list_node *n,
	void *meta, __u64 off) __ksym;
extern int bpf_list_push_back_impl(struct bpf_list_head *h, struct bpf_list_node *n,
	void *meta, __u64 off) __ksym;
extern struct bpf_list_node *bpf_list_pop_front(struct bpf_list_head *h) __ksym;
extern struct bpf_list_node *bpf_list_pop_back(struct bpf_list_head *h) __ksym;
extern struct bpf_list_node *bpf_list_front(struct bpf_list_head *h) __ksym;
extern int bpf_rbtree_add_impl(struct bpf_rb_root *root, struct bpf_rb_node *node,
	bool (less)(struct bpf_rb_node *a, const struct bpf_rb_node *b), void *meta,
		__u64 off) __ksym;
extern struct bpf_rb_node *bpf_rbtree_remove(struct bpf_rb_root *root,
	struct bpf_rb_node *node) __ksym;
extern struct bpf_rb_node *bpf_rbtree_first(struct bpf_rb_root *root) __ksym;
extern void bpf_rcu_read_lock(void) __ksym;
extern void bpf_rcu_read_unlock(void) __ksym;
extern void bpf_preempt_disable(void) __ksym;
extern void bpf_preempt_enable(void) __ksym;
extern void bpf_local_irq_save(unsigned long *f) __ksym;
extern void bpf_local_irq_restore(unsigned long *) __ksym;
extern struct task_struct *bpf_task_acquire(struct task_struct *p) __ksym;
extern void bpf_task_release(struct task_struct *p) __ksym;
extern struct task_struct *bpf_task_from_pid(int pid) __ksym;
extern void bpf_throw(__u64 cookie) __ksym;
extern int bpf_dynptr_from_xdp(struct xdp_md *x, __u64 flags, struct bpf_dynptr *ptr) __ksym;
extern void *bpf_dynptr_slice(const struct bpf_dynptr *p, __u32 off, void *buf,
	__u32 sz) __ksym;
extern void *bpf_dynptr_slice_rdwr(const struct bpf_dynptr *p, __u32 off, void *buf,
	__u32 sz) __ksym;
extern int bpf_dynptr_adjust(const struct bpf_dynptr *p, __u32 s, __u32 e) __ksym;
extern __u32 bpf_dynptr_size(const struct bpf_dynptr *p) __ksym;
extern int bpf_dynptr_clone(const struct bpf_dynptr *p, struct bpf_dynptr *clone) __ksym;
extern int bpf_xdp_pull_data(struct xdp_md *x, __u32 len) __ksym;
extern int bpf_iter_num_new(struct bpf_iter_num *it, int s, int e) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
extern void *bpf_rdonly_cast(const void *obj, __u32 id) __ksym;
extern void *bpf_cast_to_kern_ctx(void *obj) __ksym;
extern int bpf_res_spin_lock(struct bpf_res_spin_lock *lock) __ksym;
extern void bpf_res_spin_unlock(struct bpf_res_spin_lock *lock) __ksym;
extern int bpf_res_spin_lock_irqsave(struct bpf_res_spin_lock *lock,
	unsigned long *flags) __ksym;
extern void bpf_res_spin_unlock_irqrestore(struct bpf_res_spin_lock *lock,
	unsigned long *flags) __ksym;
extern int bpf_wq_init(struct bpf_wq *wq, void *map, unsigned flags) __ksym;
extern int bpf_wq_start(struct bpf_wq *wq, unsigned flags) __ksym;
extern int bpf_wq_set_callback_impl(struct bpf_wq *wq, int (cb)(void *map, int *key,
	void *value), unsigned flags, void *aux) __ksym;

extern struct nf_conn *bpf_xdp_ct_lookup(struct xdp_md *, struct bpf_sock_tuple *, u32,
	struct bpf_ct_opts *, u32) __ksym;
extern struct nf_conn___init *bpf_xdp_ct_alloc(struct xdp_md *, struct bpf_sock_tuple *, u32,
	struct bpf_ct_opts *, u32) __ksym;
extern struct nf_conn *bpf_ct_insert_entry(struct nf_conn___init *) __ksym;
extern void bpf_ct_release(struct nf_conn *) __ksym;
extern void bpf_ct_set_timeout(struct nf_conn___init *, u32) __ksym;
extern int bpf_ct_change_timeout(struct nf_conn *, u32) __ksym;
extern int bpf_ct_set_nat_info(struct nf_conn___init *, union nf_inet_addr *, int port,
	enum nf_nat_manip_type) __ksym;
extern struct xfrm_state *bpf_xdp_get_xfrm_state(struct xdp_md *ctx,
	struct bpf_xfrm_state_opts *opts, u32 sz) __ksym;
extern void bpf_xdp_xfrm_state_release(struct xfrm_state *x) __ksym;
extern struct bpf_crypto_ctx *bpf_crypto_ctx_create(const struct bpf_crypto_params *params,
	u32 size, int *err) __ksym;
extern struct bpf_crypto_ctx *bpf_crypto_ctx_acquire(struct bpf_crypto_ctx *ctx) __ksym;
extern void bpf_crypto_ctx_release(struct bpf_crypto_ctx *ctx) __ksym;
extern int bpf_crypto_encrypt(struct bpf_crypto_ctx *ctx, const struct bpf_dynptr *s,
	const struct bpf_dynptr *d, const struct bpf_dynptr *iv) __ksym;
extern int bpf_crypto_decrypt(struct bpf_crypto_ctx *ctx, const struct bpf_dynptr *s,
	const struct bpf_dynptr *d, const struct bpf_dynptr *iv) __ksym;
extern int bpf_strcmp(const char *a, const char *b) __ksym;
extern int bpf_strlen(const char *a) __ksym;
extern s64 bpf_map_sum_elem_count(const struct bpf_map *map) __ksym;
extern int bpf_dynptr_copy(struct bpf_dynptr *d, u32 o, struct bpf_dynptr *s, u32 so,
	u32 n) __ksym;
extern int bpf_dynptr_memset(struct bpf_dynptr *p, u32 o, u32 n, u8 v) __ksym;
extern bool bpf_dynptr_is_null(const struct bpf_dynptr *p) __ksym;
extern bool bpf_dynptr_is_rdonly(const struct bpf_dynptr *p) __ksym;
extern struct cgroup *bpf_cgroup_from_id(u64 id) __ksym;
extern void bpf_cgroup_release(struct cgroup *) __ksym;
extern long bpf_task_under_cgroup(struct task_struct *t, struct cgroup *cgrp) __ksym;
extern int bpf_iter_task_new(struct bpf_iter_task *it, struct task_struct *t,
	unsigned int f) __ksym;
extern struct task_struct *bpf_iter_task_next(struct bpf_iter_task *it) __ksym;
extern void bpf_iter_task_destroy(struct bpf_iter_task *it) __ksym;
extern int bpf_iter_bits_new(struct bpf_iter_bits *it, const u64 *p, u32 n) __ksym;
extern int *bpf_iter_bits_next(struct bpf_iter_bits *it) __ksym;
extern void bpf_iter_bits_destroy(struct bpf_iter_bits *it) __ksym;
extern int bpf_xdp_metadata_rx_hash(const struct xdp_md *ctx, u32 *h,
	enum xdp_rss_hash_type *t) __ksym;
extern int bpf_task_work_schedule_signal_impl(struct task_struct *task,
	struct bpf_task_work *tw, void *map, int (*cb)(struct bpf_map *, void *, void *),
		void *aux) __ksym;
extern int bpf_stream_vprintk_impl(int id, const char *f, const void *a, u32 l,
	void *aux) __ksym;
extern struct kmem_cache *bpf_get_kmem_cache(u64 addr) __ksym;
extern void bpf_not_there(void) __ksym __weak;
#define obj_new(T) ((T *)bpf_obj_new_impl(bpf_core_type_id_local(T), NULL))
#define obj_drop(p) bpf_obj_drop_impl(p, NULL)

char _license[] SEC("license") = "GPL";

