/* Dynptrs: made, cut, released, and not overwritten.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rb SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__uint(value_size, 64);
	__uint(max_entries, 4);
} a SEC(".maps");

SEC("xdp")
int ok_slice(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[14];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d ? d[13] : 0;
}

SEC("xdp")
int ok_slice_nobuf(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, 0, 14);
	return d ? d[13] : 0;
}

SEC("xdp")
int no_slice_oob(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d ? d[14] : 0;
}

SEC("xdp")
int no_slice_null(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d[1];
}

SEC("xdp")
int no_slice_var(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, ctx->rx_queue_index & 7);
	return d ? 1 : 0;
}

SEC("xdp")
int no_slice_write(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	if (d)
		d[0] = 1;
	return 0;
}

SEC("xdp")
int ok_slice_rdwr(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice_rdwr(&p, 0, b, 14);
	if (d)
		d[0] = 1;
	return 0;
}

SEC("xdp")
int no_slice_stale(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[16];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	if (!d)
		return 0;
	bpf_xdp_adjust_head(ctx, 4);
	return d[0];
}

SEC("xdp")
int no_slice_smallbuf(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[8];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d ? d[13] : 0;
}

SEC("xdp")
int no_uninit(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[14];
	asm volatile("" : "=m"(p));
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d ? d[13] : 0;
}

SEC("xdp")
int no_overwrite(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char b[14];
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	*(volatile __u32 *)((void *)&p + 4) = 1;
	char *d = bpf_dynptr_slice(&p, 0, b, 14);
	return d ? d[13] : 0;
}

SEC("xdp")
int no_read_dynptr(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	return *(volatile __u32 *)&p;
}

SEC("xdp")
int ok_ring(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	long r = bpf_ringbuf_reserve_dynptr(&rb, ctx->rx_queue_index, 0, &p);
	if (!r) {
		__u64 *d = bpf_dynptr_data(&p, 0, 8);
		if (d)
			*d = 1;
	}
	bpf_ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_ring_leak(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	return 0;
}

SEC("xdp")
int no_ring_leak_err(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	if (bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p))
		return 0;
	bpf_ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_ring_use_after(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	__u64 *d = bpf_dynptr_data(&p, 0, 8);
	bpf_ringbuf_submit_dynptr(&p, 0);
	if (d)
		return *d;
	return 0;
}

SEC("xdp")
int no_ring_double(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	bpf_ringbuf_submit_dynptr(&p, 0);
	bpf_ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_ring_overwrite(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	*(volatile __u64 *)&p = 0;
	bpf_ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_ring_submit_xdp(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	bpf_ringbuf_submit_dynptr(&p, 0);
	return 0;
}

SEC("xdp")
int no_ring_clone_after(struct xdp_md *ctx)
{
	struct bpf_dynptr p, q;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	bpf_dynptr_clone(&p, &q);
	bpf_ringbuf_submit_dynptr(&p, 0);
	return bpf_dynptr_size(&q);
}

SEC("xdp")
int ok_ring_clone(struct xdp_md *ctx)
{
	struct bpf_dynptr p, q;
	bpf_ringbuf_reserve_dynptr(&rb, 8, 0, &p);
	bpf_dynptr_clone(&p, &q);
	bpf_ringbuf_submit_dynptr(&q, 0);
	return 0;
}

SEC("xdp")
int ok_from_mem(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	__u32 k = 0;
	char *v = bpf_map_lookup_elem(&a, &k);
	if (!v)
		return 0;
	bpf_dynptr_from_mem(v, 64, 0, &p);
	char b[8];
	bpf_dynptr_read(b, 8, &p, 0, 0);
	bpf_dynptr_write(&p, 8, b, 8, 0);
	return b[0];
}

SEC("xdp")
int no_from_stack(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	char s[8] = {};
	bpf_dynptr_from_mem(s, 8, 0, &p);
	return 0;
}

SEC("xdp")
int no_from_mem_oob(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	__u32 k = 0;
	char *v = bpf_map_lookup_elem(&a, &k);
	if (!v)
		return 0;
	bpf_dynptr_from_mem(v, 65, 0, &p);
	return 0;
}

SEC("xdp")
int ok_adjust(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	if (bpf_dynptr_from_xdp(ctx, 0, &p))
		return 0;
	bpf_dynptr_adjust(&p, 14, 34);
	return bpf_dynptr_size(&p);
}

SEC("xdp")
int ok_reinit(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	bpf_dynptr_from_xdp(ctx, 0, &p);
	return bpf_dynptr_size(&p);
}

SEC("xdp")
int no_data_xdp_rw(struct xdp_md *ctx)
{
	struct bpf_dynptr p;
	bpf_dynptr_from_xdp(ctx, 0, &p);
	char b[4];
	return bpf_dynptr_read(b, 8, &p, 0, 0);
}

struct {
	__uint(type, BPF_MAP_TYPE_USER_RINGBUF);
	__uint(max_entries, 4096);
} urb SEC(".maps");

static long drain_ok(struct bpf_dynptr *p, void *ctx)
{
	__u64 v;
	bpf_dynptr_read(&v, 8, p, 0, 0);
	*(__u64 *)ctx += v;
	return 0;
}

static long drain_write(struct bpf_dynptr *p, void *ctx)
{
	__u64 v = 1;
	bpf_dynptr_write(p, 0, &v, 8, 0);
	return 0;
}

static long drain_release(struct bpf_dynptr *p, void *ctx)
{
	bpf_ringbuf_submit_dynptr(p, 0);
	return 0;
}

static long drain_ret(struct bpf_dynptr *p, void *ctx)
{
	return 2;
}

SEC("xdp")
int ok_drain(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_user_ringbuf_drain(&urb, drain_ok, &s, 0);
	return s;
}

SEC("xdp")
int ok_drain_write(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_user_ringbuf_drain(&urb, drain_write, &s, 0);
	return s;
}

SEC("xdp")
int no_drain_release(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_user_ringbuf_drain(&urb, drain_release, &s, 0);
	return s;
}

SEC("xdp")
int no_drain_ret(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_user_ringbuf_drain(&urb, drain_ret, &s, 0);
	return s;
}

