/* What loaders other than libbpf take: static functions as programs, pins of their own. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define TAIL(key) __attribute__((section("2/" #key), used)) static

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
	/* CILIUM_PIN_REPLACE */
	__uint(pinning, 1 << 4);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
	/* LIBBPF_PIN_BY_NAME, and a bit of another loader. */
	__uint(pinning, 1 | 1 << 4);
} totals SEC(".maps");

extern unsigned int ntohl(unsigned int);
extern int of_no_library(int);

/* Called from within its section: no program. */
__attribute__((section("2/1"), noinline)) static int helper(__u32 number)
{
	return number * 7 + bpf_get_prandom_u32();
}

TAIL(1) int first(struct xdp_md *ctx)
{
	return helper(ctx->rx_queue_index) & 1 ? XDP_TX : XDP_DROP;
}

TAIL(2) int second(struct xdp_md *ctx)
{
	return XDP_DROP;
}

/* In .text: no program. */
__attribute__((used)) static int unused(struct xdp_md *ctx)
{
	return XDP_DROP;
}

SEC("xdp") int entry(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &calls, 1);
	return XDP_PASS;
}

SEC("xdp") int byte_order(struct xdp_md *ctx)
{
	return ntohl(ctx->rx_queue_index) & 1;
}

SEC("xdp") int nowhere(struct xdp_md *ctx)
{
	return of_no_library(ctx->rx_queue_index) & 1;
}

char _license[] SEC("license") = "GPL";
