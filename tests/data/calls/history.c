/* Holes that the kernel's verifier had, where it takes types to show them: above each, the subject
 * of the commit that closed it. docs/verifier-history.md lists them with those of
 * tests/data/history. */
#include "calls.h"
#define PROGRAM(name) SEC("xdp") int name(struct xdp_md *ctx)
#define GLOBAL __attribute__((noinline)) int
#define STATIC static __attribute__((noinline)) int

struct value {
	struct bpf_spin_lock lock;
	int count;
	struct bpf_timer timer;
	struct task_struct __kptr *task;
};

struct item {
	struct bpf_list_node list;
	struct bpf_refcount ref;
	long number;
};

#define MAP(name, kind, k, v, n) struct { __uint(type, kind); __type(key, k); \
	__type(value, v); __uint(max_entries, n); } name SEC(".maps")
MAP(values, BPF_MAP_TYPE_ARRAY, __u32, struct value, 4);
MAP(others, BPF_MAP_TYPE_ARRAY, __u32, struct value, 4);
MAP(hashed, BPF_MAP_TYPE_HASH, __u32, struct value, 4);
MAP(programs, BPF_MAP_TYPE_PROG_ARRAY, __u32, __u32, 4);
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");
private(A) struct bpf_spin_lock head_lock;
private(A) struct bpf_list_head head __contains(item, list);

static struct value *value_at(void *map, __u32 key)
{
	return bpf_map_lookup_elem(map, &key);
}

/* bpf: Tighten tail call checks for lingering locks, RCU, preempt_disable */
PROGRAM(no_tail_call_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	bpf_tail_call(ctx, &programs, 0);
	bpf_spin_unlock(&v->lock);
	return 0;
}
PROGRAM(no_tail_call_rcu)
{
	bpf_rcu_read_lock();
	bpf_tail_call(ctx, &programs, 0);
	bpf_rcu_read_unlock();
	return 0;
}
PROGRAM(no_tail_call_preempt)
{
	bpf_preempt_disable();
	bpf_tail_call(ctx, &programs, 0);
	bpf_preempt_enable();
	return 0;
}
PROGRAM(no_tail_call_irq)
{
	unsigned long flags;
	bpf_local_irq_save(&flags);
	bpf_tail_call(ctx, &programs, 0);
	bpf_local_irq_restore(&flags);
	return 0;
}
STATIC tail_calls(struct xdp_md *ctx) { bpf_tail_call(ctx, &programs, 0); return 1; }
PROGRAM(no_tail_call_in_function_preempt)
{
	bpf_preempt_disable();
	int x = tail_calls(ctx);
	bpf_preempt_enable();
	return x;
}
PROGRAM(ok_tail_call_behind_rcu)
{
	bpf_rcu_read_lock();
	bpf_rcu_read_unlock();
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

/* bpf: Unify resource leak checks */
PROGRAM(no_exit_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	return 0;
}
PROGRAM(no_exit_preempt) { bpf_preempt_disable(); return 0; }
PROGRAM(no_exit_rcu) { bpf_rcu_read_lock(); return 0; }
PROGRAM(no_throw_preempt) { bpf_preempt_disable(); bpf_throw(0); return 0; }
PROGRAM(no_throw_rcu) { bpf_rcu_read_lock(); bpf_throw(0); return 0; }
PROGRAM(no_throw_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	bpf_throw(0);
	return 0;
}
/* bpf: Implement BPF exceptions */
PROGRAM(no_throw_with_object)
{
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	bpf_throw(0);
	obj_drop(n);
	return 0;
}
STATIC throws(struct xdp_md *ctx) { if (ctx->rx_queue_index) bpf_throw(0); return 0; }
PROGRAM(no_function_throws_with_object)
{
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	throws(ctx);
	obj_drop(n);
	return 0;
}
PROGRAM(no_function_throws_with_record)
{
	long *r = bpf_ringbuf_reserve(&ring, 8, 0);
	if (!r)
		return 0;
	throws(ctx);
	bpf_ringbuf_discard(r, 0);
	return 0;
}
static int round_throws(__u32 i, void *c) { bpf_throw(0); return 0; }
PROGRAM(no_callback_throws_with_record)
{
	long *r = bpf_ringbuf_reserve(&ring, 8, 0);
	if (!r)
		return 0;
	bpf_loop(4, round_throws, NULL, 0);
	bpf_ringbuf_discard(r, 0);
	return 0;
}
PROGRAM(ok_function_throws) { return throws(ctx); }

/* bpf: track changes_pkt_data property for global functions */
GLOBAL moves(struct xdp_md *ctx) { return bpf_xdp_adjust_head(ctx, 0); }
GLOBAL moves_deeper(struct xdp_md *ctx) { return moves(ctx) + 1; }
GLOBAL moves_by_tail_call(struct xdp_md *ctx) { bpf_tail_call(ctx, &programs, 0); return 1; }
GLOBAL looks(struct xdp_md *ctx) { return ctx->rx_queue_index; }
#define READ_BEHIND(call) \
	__u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end; \
	if (data + 8 > end) \
		return 0; \
	int x = call; \
	return data[0] + x
PROGRAM(no_packet_behind_function) { READ_BEHIND(moves(ctx)); }
PROGRAM(no_packet_behind_functions) { READ_BEHIND(moves_deeper(ctx)); }
PROGRAM(no_packet_behind_tail_call) { READ_BEHIND(moves_by_tail_call(ctx)); }
PROGRAM(no_packet_behind_static_tail_call) { READ_BEHIND(tail_calls(ctx)); }
PROGRAM(ok_packet_behind_function) { READ_BEHIND(looks(ctx)); }

/* bpf: Allow calling static subprogs while holding a bpf_spin_lock */
STATIC counts(struct value *v) { return v->count++; }
GLOBAL global_one(int x) { return x * 2; }
PROGRAM(no_global_function_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	int x = global_one(ctx->rx_queue_index);
	bpf_spin_unlock(&v->lock);
	return x;
}
PROGRAM(ok_static_function_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	int x = counts(v);
	bpf_spin_unlock(&v->lock);
	return x;
}
static int round_counts(__u32 i, struct value *v) { v->count++; return 0; }
PROGRAM(no_helper_locked)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_spin_lock(&v->lock);
	bpf_loop(4, round_counts, v, 0);
	bpf_spin_unlock(&v->lock);
	return 0;
}

/* bpf: use check_ids() for active_lock comparison */
PROGRAM(no_unlock_of_another)
{
	struct value *a = value_at(&hashed, 0), *b = value_at(&hashed, 1);
	if (!a || !b)
		return 0;
	bpf_spin_lock(&a->lock);
	bpf_spin_unlock(&b->lock);
	return 0;
}
PROGRAM(no_unlock_of_one_of_two)
{
	struct value *a = value_at(&hashed, 0), *b = value_at(&hashed, 1);
	if (!a || !b)
		return 0;
	struct value *v = ctx->rx_queue_index ? a : b;
	bpf_spin_lock(&a->lock);
	bpf_spin_unlock(&v->lock);
	return 0;
}
PROGRAM(no_second_lock)
{
	struct value *a = value_at(&hashed, 0), *b = value_at(&hashed, 1);
	if (!a || !b)
		return 0;
	bpf_spin_lock(&a->lock);
	bpf_spin_lock(&b->lock);
	bpf_spin_unlock(&b->lock);
	bpf_spin_unlock(&a->lock);
	return 0;
}
static int round_locks(__u32 i, struct value **v)
{
	bpf_spin_lock(&(*v)->lock);
	return 0;
}
PROGRAM(no_callback_leaves_lock)
{
	struct value *v = value_at(&hashed, 0);
	if (!v)
		return 0;
	bpf_loop(2, round_locks, &v, 0);
	bpf_spin_unlock(&v->lock);
	return 0;
}
PROGRAM(no_write_to_lock)
{
	struct value *v = value_at(&hashed, 0);
	if (v)
		*(volatile __u32 *)&v->lock = 1;
	return 0;
}
PROGRAM(no_read_of_lock_by_helper)
{
	struct value *v = value_at(&hashed, 0);
	if (v)
		bpf_xdp_store_bytes(ctx, 0, v, 8);
	return 0;
}

/* bpf: Prevent pointer mismatch in bpf_timer_init. */
PROGRAM(no_timer_of_another_map)
{
	struct value *v = value_at(&values, 0);
	if (v)
		bpf_timer_init(&v->timer, &others, 1);
	return 0;
}
PROGRAM(ok_timer)
{
	struct value *v = value_at(&values, 0);
	if (v)
		bpf_timer_init(&v->timer, &values, 1);
	return 0;
}
PROGRAM(no_timer_beside)
{
	struct value *v = value_at(&values, 0);
	if (v)
		bpf_timer_init((void *)&v->count, &values, 1);
	return 0;
}
/* bpf: Fix max stack depth check for async callbacks */
STATIC deep(int x)
{
	volatile char room[300];
	room[x & 127] = 1;
	return room[1];
}
static int alarm_deep(void *map, int *key, struct value *v)
{
	volatile char room[300];
	room[*key & 127] = 1;
	deep(*key);
	return 0;
}
PROGRAM(no_deep_timer)
{
	struct value *v = value_at(&values, 0);
	if (v)
		bpf_timer_set_callback(&v->timer, alarm_deep);
	return 0;
}
static int alarm_any(void *map, int *key, struct value *v) { return bpf_get_prandom_u32(); }
PROGRAM(no_timer_returns_anything)
{
	struct value *v = value_at(&values, 0);
	if (v)
		bpf_timer_set_callback(&v->timer, alarm_any);
	return 0;
}

/* bpf: Introduce single ownership BPF linked list API */
PROGRAM(no_list_node_behind_unlock)
{
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	bpf_spin_lock(&head_lock);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	bpf_spin_unlock(&head_lock);
	return n->number;
}
PROGRAM(no_list_node_dropped)
{
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	bpf_spin_lock(&head_lock);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	obj_drop(n);
	bpf_spin_unlock(&head_lock);
	return 0;
}
PROGRAM(no_list_node_twice)
{
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	bpf_spin_lock(&head_lock);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	bpf_spin_unlock(&head_lock);
	return 0;
}
/* bpf: Make bpf_refcount_acquire fallible for non-owning refs */
PROGRAM(no_acquired_without_asking)
{
	struct item *n = obj_new(struct item), *m;
	if (!n)
		return 0;
	bpf_spin_lock(&head_lock);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	m = bpf_refcount_acquire_impl(n, NULL);
	bpf_spin_unlock(&head_lock);
	m->number = 1;
	obj_drop(m);
	return 0;
}
PROGRAM(ok_acquired)
{
	struct item *n = obj_new(struct item), *m;
	if (!n)
		return 0;
	bpf_spin_lock(&head_lock);
	bpf_list_push_front_impl(&head, &n->list, NULL, 0);
	m = bpf_refcount_acquire_impl(n, NULL);
	bpf_spin_unlock(&head_lock);
	if (m) {
		m->number = 1;
		obj_drop(m);
	}
	return 0;
}

/* bpf: Allow storing referenced kptr in map */
PROGRAM(no_kptr_overwritten)
{
	struct value *v = value_at(&values, 0);
	if (v)
		*(volatile __u64 *)&v->task = 1;
	return 0;
}
PROGRAM(no_kptr_left)
{
	struct value *v = value_at(&values, 0);
	if (!v)
		return 0;
	struct task_struct *t = bpf_kptr_xchg(&v->task, NULL);
	return t ? 1 : 0;
}
PROGRAM(no_kptr_of_another_type)
{
	struct value *v = value_at(&values, 0);
	struct item *n = obj_new(struct item);
	if (!n)
		return 0;
	if (!v) {
		obj_drop(n);
		return 0;
	}
	void *old = bpf_kptr_xchg(&v->task, (void *)n);
	if (old)
		bpf_task_release(old);
	return 0;
}
PROGRAM(no_kptr_released_twice)
{
	struct value *v = value_at(&values, 0);
	if (!v)
		return 0;
	struct task_struct *t = bpf_kptr_xchg(&v->task, NULL);
	if (!t)
		return 0;
	bpf_task_release(t);
	bpf_task_release(t);
	return 0;
}
PROGRAM(ok_kptr)
{
	struct value *v = value_at(&values, 0);
	if (!v)
		return 0;
	struct task_struct *t = bpf_kptr_xchg(&v->task, NULL);
	if (t)
		bpf_task_release(t);
	return 0;
}

/* bpf: Add bpf_dynptr_clone */
PROGRAM(no_clone_behind_its_origin)
{
	struct bpf_dynptr a, b;
	bpf_ringbuf_reserve_dynptr(&ring, 8, 0, &a);
	bpf_dynptr_clone(&a, &b);
	bpf_ringbuf_submit_dynptr(&a, 0);
	return bpf_dynptr_size(&b);
}
PROGRAM(no_bytes_of_clone_behind_its_origin)
{
	struct bpf_dynptr a, b;
	bpf_ringbuf_reserve_dynptr(&ring, 8, 0, &a);
	bpf_dynptr_clone(&a, &b);
	int *p = bpf_dynptr_data(&b, 0, 4);
	bpf_ringbuf_submit_dynptr(&a, 0);
	return p ? *p : 0;
}
PROGRAM(no_slice_of_clone_behind_adjust_head)
{
	struct bpf_dynptr a, b;
	char room[8] = {};
	bpf_dynptr_from_xdp(ctx, 0, &a);
	bpf_dynptr_clone(&a, &b);
	char *p = bpf_dynptr_slice(&b, 0, room, 8);
	bpf_xdp_adjust_head(ctx, 0);
	return p ? *p : 0;
}
/* bpf: Add kfunc bpf_rcu_read_lock/unlock() */
PROGRAM(no_unlock_without_lock) { bpf_rcu_read_unlock(); return 0; }
/* bpf: Introduce bpf_preempt_[disable,enable] kfuncs */
PROGRAM(no_preempt_enable_without_disable) { bpf_preempt_enable(); return 0; }
/* bpf: Introduce support for bpf_local_irq_{save,restore} */
PROGRAM(no_irq_restored_out_of_order)
{
	unsigned long a, b;
	bpf_local_irq_save(&a);
	bpf_local_irq_save(&b);
	bpf_local_irq_restore(&a);
	bpf_local_irq_restore(&b);
	return 0;
}
PROGRAM(no_irq_flags_overwritten)
{
	unsigned long a;
	bpf_local_irq_save(&a);
	*(volatile unsigned long *)&a = 0;
	bpf_local_irq_restore(&a);
	return 0;
}
/* bpf: Reject %p% format string in bprintf-like helpers */
PROGRAM(no_format_of_pointer_and_percent)
{
	static const char format[] = "%p%";
	char out[16];
	__u64 args[1] = { 1 };
	return bpf_snprintf(out, sizeof(out), format, args, sizeof(args));
}
PROGRAM(no_format_with_more_arguments)
{
	static const char format[] = "%d %d";
	char out[16];
	__u64 args[1] = { 1 };
	return bpf_snprintf(out, sizeof(out), format, args, sizeof(args));
}
