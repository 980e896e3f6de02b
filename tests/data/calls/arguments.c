/* Arguments of global functions: what tags may be on what. */
#include "calls.h"
#define tag(name) __attribute__((btf_decl_tag("arg:" #name)))
#define AS(func) __attribute__((noinline)) int func
struct unheard_of { int x; };
struct pair { __u64 a, b; };

AS(ctx_as_number)(__u64 *ctx tag(ctx)) { return ctx ? 1 : 0; }
AS(ctx_as_other)(struct __sk_buff *ctx tag(ctx)) { return ctx ? 1 : 0; }
AS(ctx_as_void)(void *ctx tag(ctx)) { return ctx ? 1 : 0; }
AS(ctx_as_itself)(struct xdp_md *ctx tag(ctx)) { return ctx->rx_queue_index; }
AS(ctx_and_more)(struct xdp_md *ctx tag(ctx) tag(nonnull)) { return ctx->rx_queue_index; }
AS(number_with_tag)(int x tag(nonnull)) { return x * 3; }
AS(tag_unknown)(struct pair *p tag(whatever)) { return p ? p->a : 0; }
AS(nullable_alone)(struct pair *p tag(nullable)) { return p ? p->a : 0; }
AS(memory)(struct pair *p tag(nonnull)) { return p->a; }
AS(memory_maybe)(struct pair *p) { return p->a; }
AS(untrusted_unheard_of)(struct unheard_of *p tag(untrusted)) { return p->x; }
AS(untrusted_known)(struct task_struct *p tag(untrusted)) { return p->pid; }
AS(untrusted_number)(__u64 *p tag(untrusted)) { return p[3]; }
AS(untrusted_written)(__u64 *p tag(untrusted)) { p[0] = 1; return 0; }
AS(untrusted_and_nullable)(__u64 *p tag(untrusted) tag(nullable)) { return p[3]; }
AS(trusted_unheard_of)(struct unheard_of *p tag(trusted)) { return p->x; }
AS(trusted_and_nonnull)(struct task_struct *p tag(trusted) tag(nonnull)) { return p->pid; }
AS(arena_and_nonnull)(__u64 *p tag(arena) tag(nonnull)) { return p ? 1 : 0; }
AS(dynptr_with_tag)(struct bpf_dynptr *p tag(nonnull)) { return bpf_dynptr_size(p); }

SEC("xdp") int no_ctx_number(struct xdp_md *ctx) { return ctx_as_number((void *)ctx); }
SEC("xdp") int no_ctx_other(struct xdp_md *ctx) { return ctx_as_other((void *)ctx); }
SEC("xdp") int ok_ctx_void(struct xdp_md *ctx) { return ctx_as_void(ctx); }
SEC("xdp") int ok_ctx_itself(struct xdp_md *ctx) { return ctx_as_itself(ctx); }
SEC("xdp") int no_ctx_more(struct xdp_md *ctx) { return ctx_and_more(ctx); }
SEC("xdp") int no_number_tag(struct xdp_md *ctx)
{
	return number_with_tag(ctx->rx_queue_index);
}
SEC("xdp") int no_tag_unknown(struct xdp_md *ctx)
{
	struct pair p = {}; return tag_unknown(&p);
}
SEC("xdp") int no_nullable_alone(struct xdp_md *ctx)
{
	struct pair p = {};
	return nullable_alone(&p);
}
SEC("xdp") int ok_memory(struct xdp_md *ctx) { struct pair p = {}; return memory(&p); }
SEC("xdp") int no_memory_maybe(struct xdp_md *ctx)
{
	struct pair p = {}; return memory_maybe(&p);
}
SEC("xdp") int no_memory_small(struct xdp_md *ctx) { __u64 x = 0; return memory((void *)&x); }
SEC("xdp") int no_untrusted_unheard_of(struct xdp_md *ctx)
{
	return untrusted_unheard_of((void *)ctx);
}
SEC("xdp") int ok_untrusted_known(struct xdp_md *ctx) { return untrusted_known((void *)ctx); }
SEC("xdp") int ok_untrusted_number(struct xdp_md *ctx) { return untrusted_number((void *)ctx); }
SEC("xdp") int no_untrusted_written(struct xdp_md *ctx)
{
	return untrusted_written((void *)ctx);
}
SEC("xdp") int no_untrusted_and_nullable(struct xdp_md *ctx)
{
	return untrusted_and_nullable((void *)ctx);
}
SEC("xdp") int no_trusted_unheard_of(struct xdp_md *ctx)
{
	return trusted_unheard_of((void *)ctx);
}
SEC("xdp") int no_trusted_and_nonnull(struct xdp_md *ctx)
{
	return trusted_and_nonnull((void *)ctx);
}
SEC("xdp") int no_arena_and_nonnull(struct xdp_md *ctx)
{
	return arena_and_nonnull((void *)(long)ctx->rx_queue_index);
}
SEC("xdp") int no_dynptr_with_tag(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	return dynptr_with_tag(&p);
}
