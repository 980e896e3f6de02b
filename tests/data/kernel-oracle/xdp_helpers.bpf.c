// Calls one XDP helper, chosen by a map, and records its result and what it did to the frame.
// `expected-6.18.txt` holds what Linux 6.18 answered (BPF_PROG_TEST_RUN); a case line is
// "op a b flags data_len metadata_len", where op is a case of the switch below.
//
//   clang-14 -O2 -g -target bpf -fdebug-compilation-dir=. -c xdp_helpers.bpf.c -o xdp_helpers.bpf.o

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct cfg {
	__u32 op;
	__s32 a;
	__s32 b;
	__u32 flags;
};

struct res {
	__s64 r;
	__u32 linear;
	__u32 total;
	__u32 meta;
	__u32 mtu;
	__u32 ctx[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cfg);
} cfgm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct res);
} resm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} dm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
} xm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CPUMAP);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u32);
} cm SEC(".maps");

extern int bpf_xdp_pull_data(struct xdp_md *x, __u32 len) __ksym __weak;

static char buf[64];

// A size between 1 and 64 that the verifier can see.
static __always_inline __u64 small_size(int b)
{
	__u64 n = ((__u32)b - 1) & 63;

	asm volatile("" : "+r"(n));
	n &= 63;
	return n + 1;
}

SEC("xdp.frags")
int prog(struct xdp_md *ctx)
{
	__u32 zero = 0, ret = XDP_PASS, mtu_len;
	struct cfg *c = bpf_map_lookup_elem(&cfgm, &zero);
	struct res *res = bpf_map_lookup_elem(&resm, &zero);
	__s64 r = 0;

	if (!c || !res)
		return XDP_ABORTED;

	int a = c->a, b = c->b;
	__u32 flags = c->flags;

	switch (c->op) {
	case 1:
		r = bpf_xdp_adjust_head(ctx, a);
		break;
	case 2:
		r = bpf_xdp_adjust_meta(ctx, a);
		break;
	case 3:
		r = bpf_xdp_adjust_tail(ctx, a);
		break;
	case 4:
		ret = r = bpf_redirect(a, flags);
		break;
	case 5:
		ret = r = bpf_redirect_map(&dm, a, flags);
		break;
	case 6:
		ret = r = bpf_redirect_map(&xm, a, flags);
		break;
	case 7:
		ret = r = bpf_redirect_map(&cm, a, flags);
		break;
	case 8:
		r = bpf_xdp_load_bytes(ctx, a, buf, small_size(b));
		break;
	case 9:
		r = bpf_xdp_store_bytes(ctx, a, buf, small_size(b));
		break;
	case 10:
		r = bpf_xdp_get_buff_len(ctx);
		break;
	case 11:
		if (bpf_xdp_pull_data)
			r = bpf_xdp_pull_data(ctx, a);
		break;
	case 12:
		r = bpf_xdp_adjust_meta(ctx, a);
		if (!r)
			r = bpf_xdp_adjust_head(ctx, b);
		break;
	case 13:
		mtu_len = b;
		r = bpf_check_mtu(ctx, a, &mtu_len, (int)flags, 0);
		res->mtu = mtu_len;
		break;
	case 14:
		r = bpf_xdp_adjust_meta(ctx, a);
		if (!r && bpf_xdp_pull_data)
			r = bpf_xdp_pull_data(ctx, b);
		break;
	case 15:
		ret = a;
		break;
	case 16:
		bpf_redirect_map(&dm, a, XDP_PASS);
		ret = r = bpf_redirect(b, 0);
		break;
	}

	res->r = r;
	res->linear = ctx->data_end - ctx->data;
	res->meta = ctx->data - ctx->data_meta;
	res->total = bpf_xdp_get_buff_len(ctx);
	res->ctx[0] = ctx->ingress_ifindex;
	res->ctx[1] = ctx->rx_queue_index;
	return ret;
}

char _license[] SEC("license") = "GPL";
