/* Crypto contexts that a program makes when users call it, and packets that another encrypts.
 * tests/tests/crypto.rs calls and runs them, beside the running kernel. */
#include "calls.h"

struct holder {
	struct bpf_crypto_ctx __kptr *ctx;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, struct holder);
} contexts SEC(".maps");

/* What to do with a packet, and what came of it. */
struct work {
	__u32 source, source_end, target, target_end;
	/* Whether the source, or the target, is `bytes` below, not the packet. */
	__u8 own_source, own_target;
	__u8 decrypts, has_iv;
	__u32 iv_bytes;
	__s32 result, adjusted;
	__u8 iv[32];
	__u8 bytes[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct work);
} tasks SEC(".maps");

struct wanted_context {
	struct bpf_crypto_params params;
	__u32 size;
	__s32 error;
	__u32 made;
	__u32 shared;
};

/* Puts a context into the first element, and a second reference to it into the other one. */
SEC("syscall")
int ok_setup(struct wanted_context *request)
{
	struct bpf_crypto_ctx *made, *shared = 0;
	__u32 first = 0, second = 1;
	int error = 77;

	if (request->size == sizeof(request->params))
		made = bpf_crypto_ctx_create(&request->params, sizeof(request->params), &error);
	else if (request->size == 16)
		made = bpf_crypto_ctx_create(&request->params, 16, &error);
	else
		made = bpf_crypto_ctx_create(&request->params, 407, &error);
	request->error = error;
	request->made = !!made;
	struct holder *one = bpf_map_lookup_elem(&contexts, &first);
	struct holder *other = bpf_map_lookup_elem(&contexts, &second);
	if (made)
		shared = bpf_crypto_ctx_acquire(made);
	request->shared = !!shared;
	if (one)
		made = bpf_kptr_xchg(&one->ctx, made);
	if (made)
		bpf_crypto_ctx_release(made);
	if (other)
		shared = bpf_kptr_xchg(&other->ctx, shared);
	if (shared)
		bpf_crypto_ctx_release(shared);
	return 42;
}

/* Takes the context of the first element away. */
SEC("syscall")
int ok_forget(void *context)
{
	__u32 first = 0;
	struct holder *one = bpf_map_lookup_elem(&contexts, &first);
	struct bpf_crypto_ctx *old = one ? bpf_kptr_xchg(&one->ctx, 0) : 0;

	if (!old)
		return 0;
	bpf_crypto_ctx_release(old);
	return 1;
}

static int crypt(struct xdp_md *packet, __u32 which)
{
	struct bpf_dynptr source, target, iv;
	__u32 first = 0;
	struct holder *held = bpf_map_lookup_elem(&contexts, &which);
	struct work *task = bpf_map_lookup_elem(&tasks, &first);
	int result;

	if (!held || !task)
		return XDP_ABORTED;
	struct bpf_crypto_ctx *ctx = held->ctx;
	if (!ctx)
		return XDP_DROP;
	if (task->own_source)
		bpf_dynptr_from_mem(task->bytes, sizeof(task->bytes), 0, &source);
	else
		bpf_dynptr_from_xdp(packet, 0, &source);
	if (task->own_target)
		bpf_dynptr_from_mem(task->bytes, sizeof(task->bytes), 0, &target);
	else
		bpf_dynptr_from_xdp(packet, 0, &target);
	task->adjusted = bpf_dynptr_adjust(&source, task->source, task->source_end);
	task->adjusted |= bpf_dynptr_adjust(&target, task->target, task->target_end);
	/* Flags that no kernel knows make a null dynptr. */
	bpf_dynptr_from_mem(task->iv, sizeof(task->iv), task->iv_bytes == 99, &iv);
	bpf_dynptr_adjust(&iv, 0, task->iv_bytes);
	if (task->has_iv && task->decrypts)
		result = bpf_crypto_decrypt(ctx, &source, &target, &iv);
	else if (task->has_iv)
		result = bpf_crypto_encrypt(ctx, &source, &target, &iv);
	else if (task->decrypts)
		result = bpf_crypto_decrypt(ctx, &source, &target, 0);
	else
		result = bpf_crypto_encrypt(ctx, &source, &target, 0);
	task->result = result;
	return XDP_PASS;
}

SEC("xdp.frags")
int ok_crypt(struct xdp_md *packet)
{
	return crypt(packet, 0);
}

/* The same with the other reference. */
SEC("xdp.frags")
int ok_crypt_shared(struct xdp_md *packet)
{
	return crypt(packet, 1);
}
