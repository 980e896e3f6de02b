/* Open-coded iterators, loops and callbacks.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} a SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} h SEC(".maps");

SEC("xdp")
int ok_num(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *v, s = 0;
	bpf_iter_num_new(&it, 0, 10);
	while ((v = bpf_iter_num_next(&it)))
		s += *v;
	bpf_iter_num_destroy(&it);
	return s;
}

SEC("xdp")
int ok_num_nested(struct xdp_md *ctx)
{
	struct bpf_iter_num it, j;
	int *v, *w, s = 0;
	bpf_iter_num_new(&it, 0, 10);
	while ((v = bpf_iter_num_next(&it))) {
		bpf_iter_num_new(&j, 0, *v);
		while ((w = bpf_iter_num_next(&j)))
			s += *w;
		bpf_iter_num_destroy(&j);
	}
	bpf_iter_num_destroy(&it);
	return s;
}

SEC("xdp")
int no_num_leak(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *v, s = 0;
	bpf_iter_num_new(&it, 0, 10);
	while ((v = bpf_iter_num_next(&it)))
		s += *v;
	return s;
}

SEC("xdp")
int no_num_uninit(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	asm volatile("" : "=m"(it));
	int *v = bpf_iter_num_next(&it);
	return !!v;
}

SEC("xdp")
int no_num_double(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 10);
	bpf_iter_num_destroy(&it);
	bpf_iter_num_destroy(&it);
	return 0;
}

SEC("xdp")
int no_num_renew(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 10);
	bpf_iter_num_new(&it, 0, 10);
	bpf_iter_num_destroy(&it);
	return 0;
}

SEC("xdp")
int no_num_null(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 10);
	int *v = bpf_iter_num_next(&it);
	int s = *v;
	bpf_iter_num_destroy(&it);
	return s;
}

SEC("xdp")
int no_num_write(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 10);
	int *v = bpf_iter_num_next(&it);
	if (v)
		*v = 1;
	bpf_iter_num_destroy(&it);
	return 0;
}

SEC("xdp")
int ok_num_array(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *v;
	__u64 s = 0, arr[8] = {};
	bpf_iter_num_new(&it, 0, 8);
	while ((v = bpf_iter_num_next(&it))) {
		__u32 i = *v;
		if (i < 8)
			arr[i] = i;
	}
	bpf_iter_num_destroy(&it);
	return arr[3];
}

SEC("xdp")
int no_num_infinite_inner(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	int *v;
	bpf_iter_num_new(&it, 0, 8);
	while ((v = bpf_iter_num_next(&it))) {
		for (;;)
			asm volatile("");
	}
	bpf_iter_num_destroy(&it);
	return 0;
}

SEC("xdp")
int no_num_overwrite(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 0, 8);
	*(volatile __u64 *)&it = 0;
	bpf_iter_num_destroy(&it);
	return 0;
}

static long cb_ok(__u32 i, void *ctx)
{
	*(__u64 *)ctx += i;
	return 0;
}

static long cb_ret(__u32 i, void *ctx)
{
	return 7;
}

static long cb_oob(__u32 i, void *ctx)
{
	((__u64 *)ctx)[1] += i;
	return 0;
}

static long cb_idx(__u32 i, void *ctx)
{
	((char *)ctx)[i] = 1;
	return 0;
}

static long cb_idx_ok(__u32 i, void *ctx)
{
	if (i < 8)
		((char *)ctx)[i] = 1;
	return 0;
}

SEC("xdp")
int ok_loop(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_ok, &s, 0);
	return s;
}

SEC("xdp")
int no_loop_ret(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_ret, &s, 0);
	return s;
}

SEC("xdp")
int no_loop_oob(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_oob, &s, 0);
	return s;
}

SEC("xdp")
int no_loop_idx(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_idx, &s, 0);
	return s;
}

SEC("xdp")
int ok_loop_idx(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_idx_ok, &s, 0);
	return s;
}

static long fe(struct bpf_map *m, __u32 *k, __u64 *v, void *ctx)
{
	*(__u64 *)ctx += *k + *v;
	*v = 1;
	return 0;
}

static long fe_key(struct bpf_map *m, __u32 *k, __u64 *v, void *ctx)
{
	*k = 1;
	return 0;
}

static long fe_oob(struct bpf_map *m, __u32 *k, __u64 *v, void *ctx)
{
	return v[1] & 1;
}

SEC("xdp")
int ok_each(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_for_each_map_elem(&a, fe, &s, 0);
	bpf_for_each_map_elem(&h, fe, &s, 0);
	return s;
}

SEC("xdp")
int no_each_key(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_for_each_map_elem(&h, fe_key, &s, 0);
	return s;
}

SEC("xdp")
int no_each_oob(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_for_each_map_elem(&h, fe_oob, &s, 0);
	return s;
}

static long cb_drop_ref(__u32 i, void **ctx)
{
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rb SEC(".maps");

static long cb_leak(__u32 i, void *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 8, 0);
	return !!r;
}

SEC("xdp")
int no_loop_leak(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_leak, &s, 0);
	return s;
}

struct pc {
	__u64 *r;
};

static long cb_rel(__u32 i, struct pc *ctx)
{
	bpf_ringbuf_submit(ctx->r, 0);
	return 0;
}

SEC("xdp")
int no_loop_release(struct xdp_md *ctx)
{
	struct pc p;
	p.r = bpf_ringbuf_reserve(&rb, 8, 0);
	if (!p.r)
		return 0;
	bpf_loop(100, cb_rel, &p, 0);
	return 0;
}

static long cb_loop(__u32 i, void *ctx)
{
	__u64 s = 0;
	bpf_loop(10, cb_ok, &s, 0);
	*(__u64 *)ctx += s;
	return 0;
}

SEC("xdp")
int ok_loop_nested(struct xdp_md *ctx)
{
	__u64 s = 0;
	bpf_loop(100, cb_loop, &s, 0);
	return s;
}


/* What next() gave goes with the iterator. */
SEC("xdp")
int no_num_element_after_destroy(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 5, 10);
	int *p = bpf_iter_num_next(&it);
	bpf_iter_num_destroy(&it);
	return p ? *p : 1;
}

SEC("xdp")
int no_num_element_after_destroy_checked_before(struct xdp_md *ctx)
{
	struct bpf_iter_num it;
	bpf_iter_num_new(&it, 5, 10);
	int *p = bpf_iter_num_next(&it);
	if (p) {
		asm volatile("" : "+r"(p));
		bpf_iter_num_destroy(&it);
		return *p;
	}
	bpf_iter_num_destroy(&it);
	return 1;
}

SEC("xdp")
int ok_num_element_of_another(struct xdp_md *ctx)
{
	struct bpf_iter_num it, other;
	bpf_iter_num_new(&it, 5, 10);
	bpf_iter_num_new(&other, 5, 10);
	int *p = bpf_iter_num_next(&it);
	bpf_iter_num_destroy(&other);
	int got = p ? *p : 1;
	bpf_iter_num_destroy(&it);
	return got;
}
