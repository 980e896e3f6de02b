/* What may be passed to global functions as an object of the kernel, and what a function may do
 * that is called back. The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

#define __arg_trusted __attribute__((btf_decl_tag("arg:trusted")))
#define __arg_nullable __attribute__((btf_decl_tag("arg:nullable")))
#define CURRENT struct task_struct *task = bpf_get_current_task_btf();

__weak int number(struct task_struct *task __arg_trusted)
{
	return task->pid;
}

__weak int number_if_any(struct task_struct *task __arg_trusted __arg_nullable)
{
	return task ? task->pid : 0;
}

__weak int is_queued(struct sched_entity *entity __arg_trusted)
{
	return entity->on_rq;
}

__weak int hold(struct task_struct *task __arg_trusted)
{
	struct task_struct *held = bpf_task_acquire(task);

	if (!held)
		return 0;
	bpf_task_release(held);
	return 1;
}

SEC("xdp")
int ok_current(struct xdp_md *ctx)
{
	CURRENT
	return number(task) + hold(task);
}

SEC("xdp")
int ok_referenced(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);
	int result;

	if (!task)
		return 0;
	result = number(task);
	bpf_task_release(task);
	return result;
}

SEC("xdp")
int ok_perhaps_null(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);
	int result = number_if_any(task) + number_if_any(NULL);

	if (task)
		bpf_task_release(task);
	return result;
}

SEC("xdp")
int no_perhaps_null(struct xdp_md *ctx)
{
	struct task_struct *task = bpf_task_from_pid(1);
	int result = number(task);

	if (task)
		bpf_task_release(task);
	return result;
}

SEC("xdp")
int ok_under_rcu(struct xdp_md *ctx)
{
	CURRENT
	int result;

	bpf_rcu_read_lock();
	result = number(task->real_parent);
	bpf_rcu_read_unlock();
	return result;
}

SEC("xdp")
int ok_member(struct xdp_md *ctx)
{
	CURRENT
	return is_queued(&task->se);
}

SEC("xdp")
int no_other_type(struct xdp_md *ctx)
{
	CURRENT
	return is_queued((void *)task);
}

SEC("xdp")
int no_offset(struct xdp_md *ctx)
{
	CURRENT
	return number((void *)task + 8);
}

SEC("xdp")
int no_null(struct xdp_md *ctx)
{
	return number(NULL);
}

SEC("xdp")
int no_cast(struct xdp_md *ctx)
{
	return number(bpf_rdonly_cast(ctx, bpf_core_type_id_kernel(struct task_struct)));
}

SEC("xdp")
int no_context(struct xdp_md *ctx)
{
	return number((void *)ctx);
}

__weak int throw_seven(int code)
{
	if (code == 7)
		bpf_throw(0);
	return code;
}

static long throwing(__u32 index, void *unused)
{
	return throw_seven(index) & 1;
}

SEC("xdp")
int ok_throw(struct xdp_md *ctx)
{
	return throw_seven(ctx->rx_queue_index);
}

struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");

/* 6.18 looks into static functions only, and accepts the next three: nobody would give back what
 * they hold. */
SEC("xdp")
int no_global_throws_with_record(struct xdp_md *ctx)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 8, 0);
	int result;

	if (!record)
		return 0;
	result = throw_seven(ctx->rx_queue_index);
	bpf_ringbuf_discard(record, 0);
	return result;
}

SEC("xdp")
int no_global_throws_in_section(struct xdp_md *ctx)
{
	int result;

	bpf_rcu_read_lock();
	result = throw_seven(ctx->rx_queue_index);
	bpf_rcu_read_unlock();
	return result;
}

SEC("xdp")
int no_global_throws_without_preemption(struct xdp_md *ctx)
{
	int result;

	bpf_preempt_disable();
	result = throw_seven(ctx->rx_queue_index);
	bpf_preempt_enable();
	return result;
}

SEC("xdp")
int no_throw_in_callback(struct xdp_md *ctx)
{
	bpf_loop(3, throwing, NULL, 0);
	return 0;
}
