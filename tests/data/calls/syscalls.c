/* Programs that users call, and what they may do: they may sleep, and their context is bytes of
 * the user's. The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct held {
	struct bpf_crypto_ctx __kptr *ctx;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct held);
} contexts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 4);
	__uint(map_flags, 1);
	__type(key, __u64);
	__type(value, __u64);
} prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct bpf_crypto_params);
} params SEC(".maps");

struct two {
	__u64 first, second;
};

static struct held *held(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&contexts, &key);
}

static struct bpf_crypto_params *wanted(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&params, &key);
}

SEC("syscall") int ok_nothing(void *ctx)
{
	return 7;
}

SEC("syscall") int ok_reads_and_writes_its_context(struct two *ctx)
{
	ctx->second = ctx->first + bpf_ktime_get_ns();
	return ctx->second;
}

SEC("syscall") int ok_far_into_its_context(char *ctx)
{
	return ctx[32767];
}

SEC("syscall") int no_in_front_of_its_context(char *ctx)
{
	return ctx[-1];
}

SEC("syscall") int no_misaligned_in_its_context(char *ctx)
{
	return *(volatile __u32 *)(ctx + 2);
}

SEC("syscall") int no_variable_offset_into_its_context(char *ctx)
{
	return *(volatile char *)(ctx + (bpf_get_prandom_u32() & 7));
}

SEC("syscall") int no_atomic_on_its_context(struct two *ctx)
{
	__sync_fetch_and_add(&ctx->first, 1);
	return 0;
}

SEC("syscall") int no_context_as_key(void *ctx)
{
	return !bpf_map_lookup_elem(&contexts, ctx);
}

SEC("syscall") int ok_prints(struct two *ctx)
{
	bpf_printk("%llu", ctx->first);
	return 0;
}

SEC("syscall") int ok_ring(struct two *ctx)
{
	__u64 value = ctx->first;
	return bpf_ringbuf_output(&ring, &value, sizeof(value), 0);
}

SEC("syscall") int no_prefixes(void *ctx)
{
	__u64 key = 32;
	return !bpf_map_lookup_elem(&prefixes, &key);
}

SEC("syscall") int no_tail_call(void *ctx)
{
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

SEC("syscall") int no_redirect(void *ctx)
{
	return bpf_redirect(1, 0);
}

SEC("syscall") int no_packet(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head(ctx, 4);
}

SEC("syscall") int no_dynptr_of_packet(struct xdp_md *ctx)
{
	struct bpf_dynptr ptr;
	return bpf_dynptr_from_xdp(ctx, 0, &ptr);
}

SEC("syscall") int ok_copy_from_user(struct two *ctx)
{
	__u64 word = 0;
	return bpf_copy_from_user(&word, sizeof(word), (void *)(long)ctx->first);
}

SEC("syscall") int no_copy_from_user_under_rcu(struct two *ctx)
{
	__u64 word = 0;
	bpf_rcu_read_lock();
	bpf_copy_from_user(&word, sizeof(word), (void *)(long)ctx->first);
	bpf_rcu_read_unlock();
	return word;
}

SEC("syscall") int no_rcu_that_never_ends(struct two *ctx)
{
	bpf_rcu_read_lock();
	return 0;
}

__noinline int sleeps(__u64 from)
{
	__u64 word = 0;
	bpf_copy_from_user(&word, sizeof(word), (void *)(long)from);
	return word;
}

SEC("syscall") int ok_global_that_sleeps(struct two *ctx)
{
	return sleeps(ctx->first);
}

SEC("syscall") int no_global_that_sleeps_under_rcu(struct two *ctx)
{
	bpf_rcu_read_lock();
	int word = sleeps(ctx->first);
	bpf_rcu_read_unlock();
	return word;
}

SEC("xdp") int no_global_that_sleeps_in_xdp(struct xdp_md *ctx)
{
	return sleeps(ctx->rx_queue_index);
}

__noinline int takes_ctx(void *ctx __attribute__((btf_decl_tag("arg:ctx"))))
{
	return ((struct two *)ctx)->second;
}

SEC("syscall") int ok_global_with_its_context(struct two *ctx)
{
	return takes_ctx(ctx);
}

SEC("syscall") int ok_create_and_release(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (!made)
		return error;
	bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int ok_create_from_its_context(struct bpf_crypto_params *ctx)
{
	int error;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(ctx, sizeof(*ctx), &error);
	if (!made)
		return error;
	bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int no_create_behind_the_value(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants) + 1, &error);
	if (made)
		bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int no_create_with_error_in_a_number(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), (int *)8);
	if (made)
		bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int no_create_under_rcu(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (!wants)
		return 0;
	bpf_rcu_read_lock();
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (made)
		bpf_crypto_ctx_release(made);
	bpf_rcu_read_unlock();
	return 0;
}

SEC("syscall") int no_created_and_kept(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	return wants && bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
}

SEC("syscall") int no_release_of_null(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (wants)
		bpf_crypto_ctx_release(bpf_crypto_ctx_create(wants, sizeof(*wants), &error));
	return 0;
}

SEC("syscall") int no_released_twice(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (!made)
		return 0;
	bpf_crypto_ctx_release(made);
	bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int ok_put_into_a_map(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	struct held *place = held();
	int error;
	if (!wants || !place)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (!made)
		return error;
	made = bpf_kptr_xchg(&place->ctx, made);
	if (made)
		bpf_crypto_ctx_release(made);
	return 0;
}

SEC("syscall") int no_old_one_forgotten(void *ctx)
{
	struct held *place = held();
	if (place)
		bpf_kptr_xchg(&place->ctx, 0);
	return 0;
}

SEC("syscall") int ok_acquire_under_rcu(void *ctx)
{
	struct held *place = held();
	if (!place)
		return 0;
	bpf_rcu_read_lock();
	struct bpf_crypto_ctx *known = place->ctx;
	struct bpf_crypto_ctx *own = known ? bpf_crypto_ctx_acquire(known) : 0;
	bpf_rcu_read_unlock();
	if (own)
		bpf_crypto_ctx_release(own);
	return 0;
}

SEC("syscall") int no_acquire_without_rcu(void *ctx)
{
	struct held *place = held();
	if (!place || !place->ctx)
		return 0;
	struct bpf_crypto_ctx *own = bpf_crypto_ctx_acquire(place->ctx);
	if (own)
		bpf_crypto_ctx_release(own);
	return 0;
}

SEC("syscall") int no_acquire_after_rcu(void *ctx)
{
	struct held *place = held();
	if (!place)
		return 0;
	bpf_rcu_read_lock();
	struct bpf_crypto_ctx *known = place->ctx;
	bpf_rcu_read_unlock();
	struct bpf_crypto_ctx *own = known ? bpf_crypto_ctx_acquire(known) : 0;
	if (own)
		bpf_crypto_ctx_release(own);
	return 0;
}

SEC("syscall") int no_encrypt_where_nothing_is_a_packet(void *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	struct bpf_dynptr bytes;
	int error;
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (!made)
		return error;
	bpf_dynptr_from_mem(wants, sizeof(*wants), 0, &bytes);
	bpf_crypto_encrypt(made, &bytes, &bytes, 0);
	bpf_crypto_ctx_release(made);
	return 0;
}

SEC("xdp") int no_create_in_xdp(struct xdp_md *ctx)
{
	struct bpf_crypto_params *wants = wanted();
	int error;
	if (!wants)
		return 0;
	struct bpf_crypto_ctx *made = bpf_crypto_ctx_create(wants, sizeof(*wants), &error);
	if (made)
		bpf_crypto_ctx_release(made);
	return 2;
}

SEC("xdp") int no_release_in_xdp(struct xdp_md *ctx)
{
	struct held *place = held();
	struct bpf_crypto_ctx *old = place ? bpf_kptr_xchg(&place->ctx, 0) : 0;
	if (old)
		bpf_crypto_ctx_release(old);
	return 2;
}

SEC("xdp") int no_moved_in_xdp_and_the_other_kept(struct xdp_md *ctx)
{
	struct held *place = held();
	struct bpf_crypto_ctx *old = place ? bpf_kptr_xchg(&place->ctx, 0) : 0;
	if (old && bpf_kptr_xchg(&place->ctx, old))
		return 1;
	return 2;
}

SEC("xdp") int ok_encrypt(struct xdp_md *ctx)
{
	struct held *place = held();
	struct bpf_dynptr bytes;
	struct bpf_crypto_ctx *known = place ? place->ctx : 0;
	bpf_dynptr_from_xdp(ctx, 0, &bytes);
	return known ? bpf_crypto_encrypt(known, &bytes, &bytes, 0) : 2;
}

SEC("xdp") int no_encrypt_with_null(struct xdp_md *ctx)
{
	struct held *place = held();
	struct bpf_dynptr bytes;
	bpf_dynptr_from_xdp(ctx, 0, &bytes);
	return place ? bpf_crypto_encrypt(place->ctx, &bytes, &bytes, 0) : 2;
}

SEC("xdp") int no_encrypt_into_null(struct xdp_md *ctx)
{
	struct held *place = held();
	struct bpf_dynptr bytes;
	struct bpf_crypto_ctx *known = place ? place->ctx : 0;
	bpf_dynptr_from_xdp(ctx, 0, &bytes);
	return known ? bpf_crypto_encrypt(known, &bytes, 0, 0) : 2;
}
