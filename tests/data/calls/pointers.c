/* Pointers in map values, typed pointers, timers and work queues.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct obj {
	long a;
	long b;
};

struct v {
	long x;
	struct task_struct __kptr *t;
	struct obj __kptr *o;
	struct task_struct __kptr_untrusted *u;
	struct obj __percpu_kptr *pc;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct v);
	__uint(max_entries, 16);
} m SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, long);
	__uint(max_entries, 16);
} p SEC(".maps");

#define GET __u32 k = 1; struct v *v = bpf_map_lookup_elem(&m, &k); if (!v) return 0;

SEC("xdp")
int ok_xchg_obj(struct xdp_md *ctx)
{
	GET
	struct obj *o = obj_new(struct obj);
	if (!o)
		return 0;
	o = bpf_kptr_xchg(&v->o, o);
	if (o)
		obj_drop(o);
	return 0;
}

SEC("xdp")
int no_xchg_leak(struct xdp_md *ctx)
{
	GET
	struct obj *o = obj_new(struct obj);
	if (!o)
		return 0;
	o = bpf_kptr_xchg(&v->o, o);
	return 0;
}

SEC("xdp")
int ok_xchg_null(struct xdp_md *ctx)
{
	GET
	struct obj *o = bpf_kptr_xchg(&v->o, NULL);
	if (o)
		obj_drop(o);
	return 0;
}

SEC("xdp")
int no_xchg_type(struct xdp_md *ctx)
{
	GET
	struct obj *o = obj_new(struct obj);
	if (!o)
		return 0;
	void *t = bpf_kptr_xchg(&v->t, (void *)o);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int no_xchg_nokptr(struct xdp_md *ctx)
{
	GET
	struct obj *o = obj_new(struct obj);
	if (!o)
		return 0;
	o = bpf_kptr_xchg((void *)&v->x, o);
	if (o)
		obj_drop(o);
	return 0;
}

SEC("xdp")
int no_xchg_unref(struct xdp_md *ctx)
{
	GET
	void *t = bpf_kptr_xchg(&v->u, NULL);
	return !!t;
}

SEC("xdp")
int no_store_ref(struct xdp_md *ctx)
{
	GET
	v->t = 0;
	return 0;
}

SEC("xdp")
int ok_load_ref(struct xdp_md *ctx)
{
	GET
	struct task_struct *t = v->t;
	return t ? t->pid : 0;
}

SEC("xdp")
int ok_load_obj(struct xdp_md *ctx)
{
	GET
	struct obj *t = v->o;
	return t ? t->a : 0;
}

SEC("xdp")
int no_load_obj_null(struct xdp_md *ctx)
{
	GET
	struct obj *t = v->o;
	return t->a;
}

SEC("xdp")
int ok_load_unref(struct xdp_md *ctx)
{
	GET
	struct task_struct *t = v->u;
	return t ? t->pid : 0;
}

SEC("xdp")
int ok_store_unref_null(struct xdp_md *ctx)
{
	GET
	v->u = 0;
	return 0;
}

SEC("xdp")
int no_store_unref_scalar(struct xdp_md *ctx)
{
	GET
	v->u = (void *)(long)ctx->rx_queue_index;
	return 0;
}

SEC("xdp")
int ok_store_unref(struct xdp_md *ctx)
{
	GET
	struct task_struct *t = bpf_get_current_task_btf();
	v->u = t;
	return 0;
}

SEC("xdp")
int no_half_load(struct xdp_md *ctx)
{
	GET
	return *(volatile int *)&v->t;
}

SEC("xdp")
int no_half_load2(struct xdp_md *ctx)
{
	GET
	return *(volatile int *)((void *)&v->t + 4);
}

SEC("xdp")
int no_helper_kptr(struct xdp_md *ctx)
{
	GET
	return bpf_xdp_store_bytes(ctx, 0, v, sizeof *v);
}

SEC("xdp")
int ok_task(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_task_from_pid(1);
	if (!t)
		return 0;
	int r = t->pid;
	bpf_task_release(t);
	return r;
}

SEC("xdp")
int no_task_leak(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_task_from_pid(1);
	if (!t)
		return 0;
	return t->pid;
}

SEC("xdp")
int ok_task_acquire(struct xdp_md *ctx)
{
	GET
	struct task_struct *t = v->t;
	if (!t)
		return 0;
	t = bpf_task_acquire(t);
	if (!t)
		return 0;
	t = bpf_kptr_xchg(&v->t, t);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int no_task_acquire_untrusted(struct xdp_md *ctx)
{
	GET
	struct task_struct *t = v->u;
	if (!t)
		return 0;
	t = bpf_task_acquire(t);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int no_task_release_unowned(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	bpf_task_release(t);
	return 0;
}

SEC("xdp")
int ok_walk(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	return t->group_leader->pid;
}

SEC("xdp")
int ok_walk_acquire(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	t = bpf_task_acquire(t->group_leader);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int no_walk_untrusted(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	t = bpf_task_acquire(t->parent);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int ok_walk_rcu(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct task_struct *q = t->real_parent;
	if (!q)
		return 0;
	t = bpf_task_acquire(q);
	if (t)
		bpf_task_release(t);
	return 0;
}

SEC("xdp")
int no_write_task(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	t->pid = 1;
	return 0;
}

SEC("xdp")
int ok_comm(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	return t->comm[3];
}

SEC("xdp")
int ok_rdonly_cast(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_rdonly_cast((void *)(long)ctx->rx_queue_index,
		bpf_core_type_id_kernel(struct task_struct));
	return t->pid;
}

SEC("xdp")
int ok_kern_ctx(struct xdp_md *ctx)
{
	struct xdp_buff *x = bpf_cast_to_kern_ctx(ctx);
	return x->frame_sz + x->rxq->queue_index + x->rxq->dev->ifindex;
}

SEC("xdp")
int no_kern_ctx_write(struct xdp_md *ctx)
{
	struct xdp_buff *x = bpf_cast_to_kern_ctx(ctx);
	x->frame_sz = 1;
	return 0;
}

SEC("xdp")
int no_member_oob(struct xdp_md *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	return *(volatile int *)((void *)t + 0x100000);
}

SEC("xdp")
int ok_percpu_xchg(struct xdp_md *ctx)
{
	GET
	struct obj *o = bpf_percpu_obj_new_impl(bpf_core_type_id_local(struct obj), 0);
	if (!o)
		return 0;
	o = bpf_kptr_xchg(&v->pc, o);
	if (o)
		bpf_percpu_obj_drop_impl(o, 0);
	return 0;
}

SEC("xdp")
int ok_percpu_load(struct xdp_md *ctx)
{
	GET
	struct obj *o = v->pc;
	if (!o)
		return 0;
	struct obj *q = bpf_this_cpu_ptr(o);
	q->a = 1;
	return q->b;
}

struct twal {
	struct bpf_timer t;
	int x;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct twal);
	__uint(max_entries, 16);
} tm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct twal);
	__uint(max_entries, 16);
} tm2 SEC(".maps");

static int tcb(void *map, int *key, struct twal *v)
{
	v->x = *key;
	bpf_timer_start(&v->t, 1, 0);
	return 0;
}

static int tcb_ret(void *map, int *key, struct twal *v)
{
	return 1;
}

#define TGET __u32 k = 1; struct twal *v = bpf_map_lookup_elem(&tm, &k); if (!v) return 0;

SEC("xdp")
int ok_timer(struct xdp_md *ctx)
{
	TGET
	bpf_timer_init(&v->t, &tm, 1);
	bpf_timer_set_callback(&v->t, tcb);
	bpf_timer_start(&v->t, 1000, 0);
	return 0;
}

SEC("xdp")
int no_timer_map(struct xdp_md *ctx)
{
	TGET
	bpf_timer_init(&v->t, &tm2, 1);
	return 0;
}

SEC("xdp")
int no_timer_off(struct xdp_md *ctx)
{
	TGET
	bpf_timer_start((void *)&v->x, 1, 0);
	return 0;
}

SEC("xdp")
int no_timer_ret(struct xdp_md *ctx)
{
	TGET
	bpf_timer_set_callback(&v->t, tcb_ret);
	return 0;
}

SEC("xdp")
int no_timer_direct(struct xdp_md *ctx)
{
	TGET
	*(volatile long *)&v->t = 1;
	return 0;
}

struct wval {
	struct bpf_wq w;
	int x;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct wval);
	__uint(max_entries, 16);
} wm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct wval);
	__uint(max_entries, 16);
} wm2 SEC(".maps");

static int wcb(void *map, int *key, void *v)
{
	return 0;
}

static int wcb_sleep(void *map, int *key, void *v)
{
	char b[4];
	bpf_copy_from_user(b, 4, (void *)1);
	return 0;
}

#define WGET __u32 k = 1; struct wval *v = bpf_map_lookup_elem(&wm, &k); if (!v) return 0;

SEC("xdp")
int ok_wq(struct xdp_md *ctx)
{
	WGET
	bpf_wq_init(&v->w, &wm, 0);
	bpf_wq_set_callback_impl(&v->w, wcb, 0, 0);
	bpf_wq_start(&v->w, 0);
	return 0;
}

SEC("xdp")
int ok_wq_sleep(struct xdp_md *ctx)
{
	WGET
	bpf_wq_init(&v->w, &wm, 0);
	bpf_wq_set_callback_impl(&v->w, wcb_sleep, 0, 0);
	bpf_wq_start(&v->w, 0);
	return 0;
}

SEC("xdp")
int no_wq_map(struct xdp_md *ctx)
{
	WGET
	bpf_wq_init(&v->w, &wm2, 0);
	return 0;
}

extern const int bpf_prog_active __ksym __weak;

