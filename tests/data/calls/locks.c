/* Locks, RCU, preemption and interrupts: balanced, nested, not held too long.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct val {
	int x;
	struct bpf_spin_lock l;
	int y;
};

struct rval {
	int x;
	struct bpf_res_spin_lock l;
	int y;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct val);
	__uint(max_entries, 16);
} h SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct val);
	__uint(max_entries, 16);
} a SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct rval);
	__uint(max_entries, 16);
} ra SEC(".maps");

#define GET(m) __u32 k = 1; struct val *v = bpf_map_lookup_elem(&m, &k); if (!v) return 0;
#define RGET(m) __u32 k = 1; struct rval *v = bpf_map_lookup_elem(&m, &k); if (!v) return 0;

SEC("xdp")
int ok_lock(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	v->x++;
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int ok_lock_a(struct xdp_md *ctx)
{
	GET(a)
	bpf_spin_lock(&v->l);
	v->x++;
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_lock_leak(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	v->x++;
	return 0;
}

SEC("xdp")
int no_lock_twice(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	bpf_spin_lock(&v->l);
	bpf_spin_unlock(&v->l);
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_unlock(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_lock_off(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock((void *)&v->x);
	bpf_spin_unlock((void *)&v->x);
	return 0;
}

SEC("xdp")
int no_lock_other(struct xdp_md *ctx)
{
	GET(h)
	__u32 k2 = 2;
	struct val *w = bpf_map_lookup_elem(&h, &k2);
	if (!w)
		return 0;
	bpf_spin_lock(&v->l);
	bpf_spin_unlock(&w->l);
	return 0;
}

SEC("xdp")
int no_lock_call(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	v->x = bpf_ktime_get_ns();
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_lock_direct(struct xdp_md *ctx)
{
	GET(h)
	*(volatile int *)&v->l = 1;
	return 0;
}

SEC("xdp")
int no_lock_read(struct xdp_md *ctx)
{
	GET(h)
	return *(volatile int *)&v->l;
}

SEC("xdp")
int no_lock_helper(struct xdp_md *ctx)
{
	GET(h)
	return bpf_xdp_store_bytes(ctx, 0, v, sizeof *v);
}

SEC("xdp")
int no_lock_tail(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	bpf_tail_call(ctx, &h, 0);
	bpf_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int ok_res(struct xdp_md *ctx)
{
	RGET(ra)
	if (bpf_res_spin_lock(&v->l)) return 0;
	v->x++;
	bpf_res_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_res_unchecked(struct xdp_md *ctx)
{
	RGET(ra)
	bpf_res_spin_lock(&v->l);
	v->x++;
	bpf_res_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_res_leak(struct xdp_md *ctx)
{
	RGET(ra)
	if (bpf_res_spin_lock(&v->l)) return 0;
	v->x++;
	return 0;
}

SEC("xdp")
int no_res_aa(struct xdp_md *ctx)
{
	RGET(ra)
	if (bpf_res_spin_lock(&v->l)) return 0;
	if (!bpf_res_spin_lock(&v->l))
		bpf_res_spin_unlock(&v->l);
	bpf_res_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int ok_res_two(struct xdp_md *ctx)
{
	RGET(ra)
	__u32 k2 = 2;
	struct rval *w = bpf_map_lookup_elem(&ra, &k2);
	if (!w)
		return 0;
	if (bpf_res_spin_lock(&v->l))
		return 0;
	if (!bpf_res_spin_lock(&w->l))
		bpf_res_spin_unlock(&w->l);
	bpf_res_spin_unlock(&v->l);
	return 0;
}

SEC("xdp")
int no_res_order(struct xdp_md *ctx)
{
	RGET(ra)
	__u32 k2 = 2;
	struct rval *w = bpf_map_lookup_elem(&ra, &k2);
	if (!w)
		return 0;
	if (bpf_res_spin_lock(&v->l))
		return 0;
	if (bpf_res_spin_lock(&w->l)) {
		bpf_res_spin_unlock(&v->l);
		return 0;
	}
	bpf_res_spin_unlock(&v->l);
	bpf_res_spin_unlock(&w->l);
	return 0;
}

SEC("xdp")
int ok_res_irq(struct xdp_md *ctx)
{
	unsigned long f;
	RGET(ra)
	if (bpf_res_spin_lock_irqsave(&v->l, &f)) return 0;
	v->x++;
	bpf_res_spin_unlock_irqrestore(&v->l, &f);
	return 0;
}

SEC("xdp")
int ok_rcu(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	bpf_rcu_read_unlock();
	return 0;
}

SEC("xdp")
int no_rcu(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	return 0;
}

SEC("xdp")
int no_rcu_un(struct xdp_md *ctx)
{
	bpf_rcu_read_unlock();
	return 0;
}

SEC("xdp")
int no_rcu_nested(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	bpf_rcu_read_lock();
	bpf_rcu_read_unlock();
	bpf_rcu_read_unlock();
	return 0;
}

SEC("xdp")
int ok_preempt(struct xdp_md *ctx)
{
	bpf_preempt_disable();
	bpf_preempt_enable();
	return 0;
}

SEC("xdp")
int no_preempt(struct xdp_md *ctx)
{
	bpf_preempt_disable();
	return 0;
}

SEC("xdp")
int no_preempt_un(struct xdp_md *ctx)
{
	bpf_preempt_enable();
	return 0;
}

SEC("xdp")
int ok_irq(struct xdp_md *ctx)
{
	unsigned long f;
	bpf_local_irq_save(&f);
	bpf_local_irq_restore(&f);
	return 0;
}

SEC("xdp")
int no_irq(struct xdp_md *ctx)
{
	unsigned long f;
	bpf_local_irq_save(&f);
	return 0;
}

SEC("xdp")
int no_irq_order(struct xdp_md *ctx)
{
	unsigned long f, g;
	bpf_local_irq_save(&f);
	bpf_local_irq_save(&g);
	bpf_local_irq_restore(&f);
	bpf_local_irq_restore(&g);
	return 0;
}

SEC("xdp")
int ok_irq_order(struct xdp_md *ctx)
{
	unsigned long f, g;
	bpf_local_irq_save(&f);
	bpf_local_irq_save(&g);
	bpf_local_irq_restore(&g);
	bpf_local_irq_restore(&f);
	return 0;
}

SEC("xdp")
int no_irq_uninit(struct xdp_md *ctx)
{
	unsigned long f;
	asm volatile("" : "=m"(f));
	bpf_local_irq_restore(&f);
	return 0;
}

SEC("xdp")
int no_irq_overwrite(struct xdp_md *ctx)
{
	unsigned long f;
	bpf_local_irq_save(&f);
	*(volatile unsigned long *)&f = 0;
	bpf_local_irq_restore(&f);
	return 0;
}

__noinline static int sub(struct xdp_md *ctx)
{
	asm volatile("");
	return ctx->rx_queue_index;
}

SEC("xdp")
int no_lock_exitsub(struct xdp_md *ctx)
{
	GET(h)
	bpf_spin_lock(&v->l);
	bpf_throw(1);
	return 0;
}

SEC("xdp")
int ok_throw(struct xdp_md *ctx)
{
	if (ctx->rx_queue_index > 5)
		bpf_throw(1);
	return 2;
}

