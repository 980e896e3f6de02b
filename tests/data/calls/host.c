/* Connections, sockets in maps, inner maps, storages, tasks, per-cpu variables.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

extern const struct rq runqueues __ksym;

struct {
	__uint(type, BPF_MAP_TYPE_SOCKMAP);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} sm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 4);
} xm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} h SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} pcpu SEC(".maps");

struct lv {
	struct bpf_spin_lock l;
	int x;
};

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct lv);
	__uint(max_entries, 4);
} i1 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct inner);
} om SEC(".maps") = { .values = { [0] = &i1 } };

struct tv {
	struct bpf_timer t;
};

struct tinner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct tv);
	__uint(max_entries, 4);
} ti SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct tinner);
} tom SEC(".maps") = { .values = { [0] = &ti, [1] = &ti } };

struct twv {
	struct bpf_task_work w;
	int x;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct twv);
	__uint(max_entries, 4);
} twm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, long);
} ts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, long);
} cs SEC(".maps");

struct sub {
	int pad;
	struct bpf_spin_lock l;
};
struct nested {
	long a;
	struct sub s;
	long b;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct nested);
	__uint(max_entries, 4);
} nm SEC(".maps");

struct karr {
	struct task_struct __kptr *t[3];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct karr);
	__uint(max_entries, 4);
} km SEC(".maps");

#define CT \
	struct bpf_sock_tuple t = {}; \
	struct bpf_ct_opts o = { .l4proto = 6, .netns_id = -1 };

SEC("xdp")
int ok_ct(struct xdp_md *ctx)
{
	CT
	struct nf_conn *n = bpf_xdp_ct_lookup(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	int r = n->status;
	bpf_ct_change_timeout(n, 5);
	bpf_ct_release(n);
	return r;
}

SEC("xdp")
int no_ct_leak(struct xdp_md *ctx)
{
	CT
	struct nf_conn *n = bpf_xdp_ct_lookup(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	return !!n;
}

SEC("xdp")
int ok_ct_alloc(struct xdp_md *ctx)
{
	CT
	struct nf_conn___init *n = bpf_xdp_ct_alloc(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	bpf_ct_set_timeout(n, 5);
	struct nf_conn *m = bpf_ct_insert_entry(n);
	if (!m)
		return 0;
	bpf_ct_release(m);
	return 1;
}

SEC("xdp")
int no_ct_init_release(struct xdp_md *ctx)
{
	CT
	struct nf_conn___init *n = bpf_xdp_ct_alloc(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	bpf_ct_release((void *)n);
	return 1;
}

SEC("xdp")
int no_ct_change_on_init(struct xdp_md *ctx)
{
	CT
	struct nf_conn___init *n = bpf_xdp_ct_alloc(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	bpf_ct_change_timeout((void *)n, 5);
	struct nf_conn *m = bpf_ct_insert_entry(n);
	if (!m)
		return 0;
	bpf_ct_release(m);
	return 1;
}

SEC("xdp")
int no_ct_write(struct xdp_md *ctx)
{
	CT
	struct nf_conn *n = bpf_xdp_ct_lookup(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	n->status = 1;
	bpf_ct_release(n);
	return 0;
}

SEC("xdp")
int ok_ct_nat(struct xdp_md *ctx)
{
	CT
	union nf_inet_addr a = {};
	struct nf_conn___init *n = bpf_xdp_ct_alloc(ctx, &t, sizeof t.ipv4, &o, sizeof o);
	if (!n)
		return 0;
	bpf_ct_set_nat_info(n, &a, 1, 0);
	struct nf_conn *m = bpf_ct_insert_entry(n);
	if (!m)
		return 0;
	bpf_ct_release(m);
	return 1;
}

SEC("xdp")
int ok_xfrm(struct xdp_md *ctx)
{
	struct bpf_xfrm_state_opts o = {};
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, &o, sizeof o);
	if (!x)
		return 0;
	bpf_xdp_xfrm_state_release(x);
	return 0;
}

SEC("xdp")
int ok_str(struct xdp_md *ctx)
{
	return bpf_strlen("abc") + bpf_strcmp("a", (char *)(long)ctx->rx_queue_index);
}

SEC("xdp")
int ok_sum(struct xdp_md *ctx)
{
	return bpf_map_sum_elem_count((void *)&h);
}

SEC("xdp")
int no_sum(struct xdp_md *ctx)
{
	return bpf_map_sum_elem_count((void *)ctx);
}

SEC("xdp")
int ok_sockmap(struct xdp_md *ctx)
{
	__u32 k = 1;
	struct bpf_sock *s = bpf_map_lookup_elem(&sm, &k);
	if (!s)
		return 0;
	int r = s->family;
	bpf_sk_release(s);
	return r;
}

SEC("xdp")
int no_sockmap_leak(struct xdp_md *ctx)
{
	__u32 k = 1;
	struct bpf_sock *s = bpf_map_lookup_elem(&sm, &k);
	if (!s)
		return 0;
	return s->family;
}

SEC("xdp")
int no_sockmap_update(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 v = 1;
	return bpf_map_update_elem(&sm, &k, &v, 0);
}

SEC("xdp")
int ok_xsk(struct xdp_md *ctx)
{
	__u32 k = 1;
	struct bpf_xdp_sock *s = bpf_map_lookup_elem(&xm, &k);
	return s ? s->queue_id : 0;
}

SEC("xdp")
int no_xsk_oob(struct xdp_md *ctx)
{
	__u32 k = 1;
	struct bpf_xdp_sock *s = bpf_map_lookup_elem(&xm, &k);
	return s ? *((int *)s + 1) : 0;
}

SEC("xdp")
int ok_percpu_elem(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_percpu_elem(&pcpu, &k, 0);
	return v ? *v : 0;
}

SEC("xdp")
int no_percpu_elem(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_percpu_elem(&h, &k, 0);
	return v ? *v : 0;
}

SEC("xdp")
int ok_inner_lock(struct xdp_md *ctx)
{
	__u32 k = 0;
	void *m = bpf_map_lookup_elem(&om, &k);
	if (!m)
		return 0;
	struct lv *v = bpf_map_lookup_elem(m, &k);
	if (!v)
		return 0;
	bpf_spin_lock(&v->l);
	v->x++;
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_inner_lock_other(struct xdp_md *ctx)
{
	__u32 k = 0;
	void *m = bpf_map_lookup_elem(&om, &k);
	if (!m)
		return 0;
	struct lv *v = bpf_map_lookup_elem(m, &k);
	if (!v)
		return 0;
	struct lv *w = bpf_map_lookup_elem(m, &k);
	if (!w)
		return 0;
	bpf_spin_lock(&v->l);
	v->x++;
	bpf_spin_unlock(&w->l);
	return 0;
}

SEC("xdp")
int ok_inner_timer(struct xdp_md *ctx)
{
	__u32 k = ctx->rx_queue_index & 1;
	void *m = bpf_map_lookup_elem(&tom, &k);
	if (!m)
		return 0;
	struct tv *v = bpf_map_lookup_elem(m, &k);
	if (!v)
		return 0;
	bpf_timer_init(&v->t, m, 1);
	return 0;
}

SEC("xdp")
int no_inner_timer(struct xdp_md *ctx)
{
	__u32 k = 0;
	void *m = bpf_map_lookup_elem(&tom, &k);
	if (!m)
		return 0;
	k = 1;
	void *m2 = bpf_map_lookup_elem(&tom, &k);
	if (!m2)
		return 0;
	struct tv *v = bpf_map_lookup_elem(m, &k);
	if (!v)
		return 0;
	bpf_timer_init(&v->t, m2, 1);
	return 0;
}

static int twcb(struct bpf_map *m, void *k, void *v)
{
	return 5;
}

SEC("xdp")
int ok_tw(struct xdp_md *ctx)
{
	__u32 k = 0;
	struct twv *v = bpf_map_lookup_elem(&twm, &k);
	if (!v)
		return 0;
	struct task_struct *t = bpf_get_current_task_btf();
	bpf_task_work_schedule_signal_impl(t, &v->w, &twm, twcb, 0);
	return 0;
}

SEC("xdp")
int ok_ts(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	long *v = bpf_task_storage_get(&ts, t, 0, 1);
	return v ? *v : 0;
}

SEC("xdp")
int ok_ts_walked(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	long *v = bpf_task_storage_get(&ts, t->parent->parent, 0, 1);
	return v ? *v : 0;
}

SEC("xdp")
int ok_cs(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	long *v = bpf_cgrp_storage_get(&cs, t->cgroups->dfl_cgrp, 0, 1);
	return v ? *v : 0;
}

SEC("xdp")
int no_nested_lock_write(struct xdp_md *ctx)
{
	__u32 k = 0;
	struct nested *v = bpf_map_lookup_elem(&nm, &k);
	if (!v)
		return 0;
	*(volatile int *)&v->s.l = 1;
	return 0;
}

SEC("xdp")
int ok_nested_lock(struct xdp_md *ctx)
{
	__u32 k = 0;
	struct nested *v = bpf_map_lookup_elem(&nm, &k);
	if (!v)
		return 0;
	bpf_spin_lock(&v->s.l);
	v->b = 1;
	bpf_spin_unlock(&v->s.l);
	return 0;
}

SEC("xdp")
int ok_karr(struct xdp_md *ctx)
{
	__u32 k = 0;
	struct karr *v = bpf_map_lookup_elem(&km, &k);
	if (!v)
		return 0;
	void *o = bpf_kptr_xchg(&v->t[2], NULL);
	if (o)
		bpf_task_release(o);
	return 0;
}

SEC("xdp")
int no_karr_write(struct xdp_md *ctx)
{
	__u32 k = 0;
	struct karr *v = bpf_map_lookup_elem(&km, &k);
	if (!v)
		return 0;
	v->t[1] = 0;
	return 0;
}

SEC("xdp")
int ok_rq(struct xdp_md *ctx)
{
	struct rq *r = bpf_per_cpu_ptr(&runqueues, 0);
	if (!r)
		return 0;
	return r->nr_running;
}

SEC("xdp")
int no_rq_null(struct xdp_md *ctx)
{
	struct rq *r = bpf_per_cpu_ptr(&runqueues, 0);
	return r->nr_running;
}

SEC("xdp")
int ok_rq_this(struct xdp_md *ctx)
{
	struct rq *r = bpf_this_cpu_ptr(&runqueues);
	return r->nr_running;
}

SEC("xdp")
int no_rq_direct(struct xdp_md *ctx)
{
	return *(volatile int *)&runqueues;
}

SEC("xdp")
int ok_dyn_misc(struct xdp_md *ctx)
{
	struct bpf_dynptr p, q;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	bpf_dynptr_clone(&p, &q);
	bpf_dynptr_copy(&p, 0, &q, 8, 8);
	bpf_dynptr_memset(&p, 0, 4, 0);
	return bpf_dynptr_is_null(&p) + bpf_dynptr_is_rdonly(&q);
}

SEC("xdp")
int no_task_iter_null(struct xdp_md *ctx)
{
	struct bpf_iter_task it;
	struct task_struct *t;
	bpf_iter_task_new(&it, 0, 1);
	t = bpf_iter_task_next(&it);
	int r = t->pid;
	bpf_iter_task_destroy(&it);
	return r;
}

SEC("xdp")
int ok_task_iter(struct xdp_md *ctx)
{
	struct bpf_iter_task it;
	struct task_struct *t;
	int r = 0;
	bpf_rcu_read_lock();
	bpf_iter_task_new(&it, 0, 1);
	while ((t = bpf_iter_task_next(&it)))
		r += t->pid;
	bpf_iter_task_destroy(&it);
	bpf_rcu_read_unlock();
	return r;
}

SEC("xdp")
int ok_bits(struct xdp_md *ctx)
{
	struct bpf_iter_bits it;
	int *b, s = 0;
	u64 d = 5;
	bpf_iter_bits_new(&it, &d, 1);
	while ((b = bpf_iter_bits_next(&it)))
		s += *b;
	bpf_iter_bits_destroy(&it);
	return s;
}

SEC("xdp")
int ok_cgroup(struct xdp_md *ctx)
{
	struct cgroup *g = bpf_cgroup_from_id(1);
	if (!g)
		return 0;
	long r = bpf_task_under_cgroup(bpf_get_current_task_btf(), g);
	bpf_cgroup_release(g);
	return r;
}

SEC("xdp")
int ok_kmem(struct xdp_md *ctx)
{
	struct kmem_cache *k = bpf_get_kmem_cache(1);
	return k ? k->size : 0;
}

SEC("xdp")
int no_meta(struct xdp_md *ctx)
{
	u32 h;
	enum xdp_rss_hash_type t;
	return bpf_xdp_metadata_rx_hash(ctx, &h, &t);
}

SEC("xdp")
int ok_weak(struct xdp_md *ctx)
{
	if (bpf_not_there)
		bpf_not_there();
	return 2;
}

SEC("xdp")
int no_weak(struct xdp_md *ctx)
{
	bpf_not_there();
	return 2;
}

SEC("xdp")
int ok_stream(struct xdp_md *ctx)
{
	static const char f[] = "x %d";
	u64 a[1] = {1};
	return bpf_stream_vprintk_impl(1, f, a, 8, 0);
}

static __noinline int use_iter(struct bpf_iter_num *it)
{
	int *v = bpf_iter_num_next(it);
	return v ? *v : -1;
}

SEC("xdp")
int ok_iter_sub(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 5);
	int r = use_iter(&it);
	bpf_iter_num_destroy(&it);
	return r;
}

static __noinline int use_dyn(struct bpf_dynptr *p)
{
	char b[4];
	bpf_dynptr_read(b, 4, p, 0, 0);
	return b[0];
}

SEC("xdp")
int ok_dyn_sub(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	return use_dyn(&p);
}

__noinline int g_dyn(struct bpf_dynptr *p)
{
	char b[4];
	bpf_dynptr_read(b, 4, p, 0, 0);
	return b[0];
}

SEC("xdp")
int ok_dyn_global(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	return g_dyn(&p);
}

__noinline int g_ctx(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 0);
}

SEC("xdp")
int no_stale_global(struct xdp_md *ctx)
{
	char *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	g_ctx(ctx);
	return d[0];
}

static __noinline int s_adj(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 0);
}

SEC("xdp")
int no_stale_static(struct xdp_md *ctx)
{
	char *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	s_adj(ctx);
	return d[0];
}

__noinline int g_ref(void)
{
	struct task_struct *t = bpf_task_from_pid(1);
	return !!t;
}

SEC("xdp")
int no_leak_global(struct xdp_md *ctx)
{
	return g_ref();
}

SEC("xdp")
int no_throw_held(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_task_from_pid(1);
	if (!t)
		return 0;
	bpf_throw(1);
	bpf_task_release(t);
	return 0;
}

struct okp {
	long a;
	struct task_struct __kptr *t;
};

SEC("xdp")
int ok_obj_kptr(struct xdp_md *ctx)
{
	struct okp *p = obj_new(struct okp);
	if (!p)
		return 0;
	struct task_struct *t = bpf_task_from_pid(1);
	if (!t) {
		obj_drop(p);
		return 0;
	}
	t = bpf_kptr_xchg(&p->t, t);
	if (t)
		bpf_task_release(t);
	obj_drop(p);
	return 0;
}

SEC("xdp")
int no_obj_kptr_store(struct xdp_md *ctx)
{
	struct okp *p = obj_new(struct okp);
	if (!p)
		return 0;
	p->t = 0;
	obj_drop(p);
	return 0;
}

SEC("xdp")
int ok_bitfield(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	return t->in_execve;
}

SEC("xdp")
int ok_union(struct xdp_md *ctx)
{
	struct xdp_buff *x = bpf_cast_to_kern_ctx(ctx);
	struct net_device *d = x->rxq->dev;
	return d->mtu + d->name[2];
}

SEC("xdp")
int ok_untrusted_chain(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	return t->mm->exe_file->f_inode->i_ino;
}
