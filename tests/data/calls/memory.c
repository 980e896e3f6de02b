/* Memory, keys, maps and sockets as arguments of helpers.
 * The verifier must accept ok_*, and refuse no_*. */
#include "calls.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} h SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
} a SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} rb SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 4);
} pa SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 4);
} dm SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(value_size, 8);
	__uint(max_entries, 4);
} q SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(value_size, 8);
	__uint(max_entries, 4);
} bf SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 16);
} in1 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct inner);
} om SEC(".maps") = { .values = { [0] = &in1 } };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 4);
	__uint(map_flags, BPF_F_RDONLY_PROG);
} ro SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
	__uint(max_entries, 4);
} pe SEC(".maps");

SEC("xdp")
int ok_lookup(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&h, &k);
	return v ? *v : 0;
}

SEC("xdp")
int no_lookup_nonull(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&h, &k);
	return *v;
}

SEC("xdp")
int no_key_in_lower_half_of_slot(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&a, &k);
	return *v;
}

SEC("xdp")
int ok_lookup_const_array0(struct xdp_md *ctx)
{
	__u32 k = 0;
	__u64 *v = bpf_map_lookup_elem(&a, &k);
	return *v;
}

SEC("xdp")
int no_lookup_const_array_oob(struct xdp_md *ctx)
{
	__u32 k = 4;
	__u64 *v = bpf_map_lookup_elem(&a, &k);
	return *v;
}

SEC("xdp")
int ok_key_in_packet(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 4 > e)
		return 1;
	__u64 *v = bpf_map_lookup_elem(&h, d);
	return v ? *v : 0;
}

SEC("xdp")
int no_key_in_packet(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data;
	__u64 *v = bpf_map_lookup_elem(&h, d);
	return v ? *v : 0;
}

SEC("xdp")
int ok_update_from_value(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&h, &k);
	if (!v)
		return 0;
	return bpf_map_update_elem(&a, &k, v, 0);
}

SEC("xdp")
int no_update_ro(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 v = 1;
	return bpf_map_update_elem(&ro, &k, &v, 0);
}

SEC("xdp")
int ok_read_ro(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&ro, &k);
	return v ? *v : 0;
}

SEC("xdp")
int no_write_ro(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&ro, &k);
	if (v)
		*v = 1;
	return 0;
}

SEC("xdp")
int no_lookup_prog_array(struct xdp_md *ctx)
{
	__u32 k = 1;
	void *v = bpf_map_lookup_elem(&pa, &k);
	return !!v;
}

SEC("xdp")
int ok_tail(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &pa, 1);
	return 2;
}

SEC("xdp")
int no_tail_hash(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &h, 1);
	return 2;
}

SEC("xdp")
int ok_redirect_map(struct xdp_md *ctx)
{
	return bpf_redirect_map(&dm, ctx->rx_queue_index, 0);
}

SEC("xdp")
int no_redirect_map(struct xdp_md *ctx)
{
	return bpf_redirect_map(&h, 0, 0);
}

SEC("xdp")
int ok_devmap_lookup(struct xdp_md *ctx)
{
	__u32 k = 0;
	__u32 *v = bpf_map_lookup_elem(&dm, &k);
	return v ? *v : 0;
}

SEC("xdp")
int no_devmap_update(struct xdp_md *ctx)
{
	__u32 k = 0, v = 1;
	return bpf_map_update_elem(&dm, &k, &v, 0);
}

SEC("xdp")
int ok_queue(struct xdp_md *ctx)
{
	__u64 v;
	if (bpf_map_pop_elem(&q, &v))
		return 0;
	return v;
}

SEC("xdp")
int ok_bloom_peek_uninit(struct xdp_md *ctx)
{
	__u64 v;
	asm volatile("" : "=m"(v));
	return bpf_map_peek_elem(&bf, &v);
}

SEC("xdp")
int ok_bloom_peek(struct xdp_md *ctx)
{
	__u64 v = 7;
	return bpf_map_peek_elem(&bf, &v);
}

SEC("xdp")
int ok_inner(struct xdp_md *ctx)
{
	__u32 k = 0;
	void *m = bpf_map_lookup_elem(&om, &k);
	if (!m)
		return 0;
	__u64 *v = bpf_map_lookup_elem(m, &k);
	return v ? *v : 0;
}

SEC("xdp")
int no_inner_null(struct xdp_md *ctx)
{
	__u32 k = ctx->rx_queue_index;
	void *m = bpf_map_lookup_elem(&om, &k);
	__u64 *v = bpf_map_lookup_elem(m, &k);
	return v ? *v : 0;
}

SEC("xdp")
int ok_ringbuf(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	r[0] = 1;
	r[1] = 2;
	bpf_ringbuf_submit(r, 0);
	return 1;
}

SEC("xdp")
int no_ringbuf_leak(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	r[0] = 1;
	return 1;
}

SEC("xdp")
int no_ringbuf_oob(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	r[2] = 1;
	bpf_ringbuf_submit(r, 0);
	return 1;
}

SEC("xdp")
int no_ringbuf_use_after(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	bpf_ringbuf_submit(r, 0);
	return r[0];
}

SEC("xdp")
int no_ringbuf_double(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	bpf_ringbuf_submit(r, 0);
	bpf_ringbuf_submit(r, 0);
	return 1;
}

SEC("xdp")
int no_ringbuf_off(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, 16, 0);
	if (!r)
		return 0;
	bpf_ringbuf_submit(r + 1, 0);
	return 1;
}

SEC("xdp")
int no_ringbuf_var(struct xdp_md *ctx)
{
	__u64 *r = bpf_ringbuf_reserve(&rb, ctx->rx_queue_index, 0);
	if (!r)
		return 0;
	bpf_ringbuf_submit(r, 0);
	return 1;
}

SEC("xdp")
int no_ringbuf_value(struct xdp_md *ctx)
{
	__u32 k = 1;
	__u64 *v = bpf_map_lookup_elem(&h, &k);
	if (!v)
		return 0;
	bpf_ringbuf_submit(v, 0);
	return 1;
}

SEC("xdp")
int ok_ringbuf_output(struct xdp_md *ctx)
{
	__u64 x = 1;
	return bpf_ringbuf_output(&rb, &x, sizeof x, 0);
}

SEC("xdp")
int no_ringbuf_output_pkt(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 14 > e)
		return 1;
	return bpf_ringbuf_output(&rb, d, 14, 0);
}

SEC("xdp")
int ok_perf(struct xdp_md *ctx)
{
	__u64 x = 1;
	return bpf_perf_event_output(ctx, &pe, BPF_F_CURRENT_CPU, &x, 8);
}

SEC("xdp")
int no_perf_map(struct xdp_md *ctx)
{
	__u64 x = 1;
	return bpf_perf_event_output(ctx, &h, BPF_F_CURRENT_CPU, &x, 8);
}

SEC("xdp")
int no_perf_pkt(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 14 > e)
		return 1;
	return bpf_perf_event_output(ctx, &pe, BPF_F_CURRENT_CPU, d, 14);
}

SEC("xdp")
int ok_csum(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	return bpf_csum_diff(0, 0, d, 20, 0);
}

SEC("xdp")
int no_csum_len(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	return bpf_csum_diff(0, 0, d, 24, 0);
}

SEC("xdp")
int no_csum_null(struct xdp_md *ctx)
{
	return bpf_csum_diff(0, 4, 0, 0, 0);
}

SEC("xdp")
int ok_load_bytes(struct xdp_md *ctx)
{
	char b[32];
	if (bpf_xdp_load_bytes(ctx, 0, b, sizeof b))
		return 0;
	return b[31];
}

SEC("xdp")
int ok_load_bytes_var(struct xdp_md *ctx)
{
	char b[32] = {};
	__u32 n = ctx->rx_queue_index;
	if (n == 0 || n > 32)
		return 0;
	asm volatile("" : "+r"(n));
	if (n == 0 || n > 32)
		return 0;
	return bpf_xdp_load_bytes(ctx, 0, b, n);
}

SEC("xdp")
int ok_load_bytes_var_uninit(struct xdp_md *ctx)
{
	char b[32];
	asm volatile("" : "=m"(b));
	__u32 n = ctx->rx_queue_index;
	if (n == 0 || n > 32)
		return 0;
	return bpf_xdp_load_bytes(ctx, 0, b, n);
}

SEC("xdp")
int no_load_bytes_zero(struct xdp_md *ctx)
{
	char b[32] = {};
	__u32 n = ctx->rx_queue_index & 31;
	return bpf_xdp_load_bytes(ctx, 0, b, n);
}

SEC("xdp")
int no_load_bytes_unbounded(struct xdp_md *ctx)
{
	char b[32] = {};
	return bpf_xdp_load_bytes(ctx, 0, b, ctx->rx_queue_index);
}

SEC("xdp")
int no_load_bytes_small(struct xdp_md *ctx)
{
	char b[32] = {};
	return bpf_xdp_load_bytes(ctx, 0, b, 33);
}

SEC("xdp")
int no_load_bytes_pkt(struct xdp_md *ctx)
{
	void *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	return bpf_xdp_load_bytes(ctx, 0, d, 20);
}

SEC("xdp")
int ok_store_uninit(struct xdp_md *ctx)
{
	char b[32];
	asm volatile("" : "=m"(b));
	return bpf_xdp_store_bytes(ctx, 0, b, 32);
}

SEC("xdp")
int no_ctx_off(struct xdp_md *ctx)
{
	return bpf_xdp_adjust_head((void *)ctx + 4, 0);
}

SEC("xdp")
int no_stale_pkt(struct xdp_md *ctx)
{
	char *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	bpf_xdp_adjust_head(ctx, 0);
	return d[0];
}

SEC("xdp")
int ok_fresh_pkt(struct xdp_md *ctx)
{
	bpf_xdp_adjust_head(ctx, 0);
	char *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	return d[0];
}

SEC("xdp")
int no_stale_pull(struct xdp_md *ctx)
{
	char *d = (void *)(long)ctx->data, *e = (void *)(long)ctx->data_end;
	if (d + 20 > e)
		return 1;
	bpf_xdp_pull_data(ctx, 20);
	return d[0];
}

SEC("xdp")
int ok_fib(struct xdp_md *ctx)
{
	struct bpf_fib_lookup f = {};
	return bpf_fib_lookup(ctx, &f, sizeof f, 0);
}

SEC("xdp")
int ok_mtu(struct xdp_md *ctx)
{
	__u32 m = 0;
	return bpf_check_mtu(ctx, 1, &m, 0, 0);
}

SEC("xdp")
int no_mtu_align(struct xdp_md *ctx)
{
	__u64 m[2] = {};
	return bpf_check_mtu(ctx, 1, (void *)m + 2, 0, 0);
}

SEC("xdp")
int ok_strtol(struct xdp_md *ctx)
{
	char s[4] = "12";
	long v;
	if (bpf_strtol(s, 4, 0, &v) < 0)
		return 0;
	return v;
}

SEC("xdp")
int ok_strncmp(struct xdp_md *ctx)
{
	char s[4] = "12";
	return bpf_strncmp(s, 4, "12");
}

SEC("xdp")
int no_strncmp(struct xdp_md *ctx)
{
	char s[4] = "12", t[4] = "x";
	return bpf_strncmp(s, 4, t);
}

SEC("xdp")
int ok_printk(struct xdp_md *ctx)
{
	bpf_printk("hi %d", ctx->rx_queue_index);
	return 0;
}

SEC("xdp")
int ok_snprintf(struct xdp_md *ctx)
{
	char o[16];
	static const char f[] = "%d %s";
	__u64 a2[2] = {1, (__u64)f};
	return bpf_snprintf(o, 16, f, a2, 16);
}

SEC("xdp")
int no_snprintf_args(struct xdp_md *ctx)
{
	char o[16];
	static const char f[] = "%d %s";
	__u64 a2[2] = {1, 2};
	return bpf_snprintf(o, 16, f, a2, 8);
}

SEC("xdp")
int no_snprintf_fmt(struct xdp_md *ctx)
{
	char o[16];
	static const char f[] = "%f";
	__u64 a2[2] = {1, 2};
	return bpf_snprintf(o, 16, f, a2, 8);
}

SEC("xdp")
int no_skb_helper(struct xdp_md *ctx)
{
	char b[4];
	return bpf_skb_load_bytes(ctx, 0, b, 4);
}

SEC("xdp")
int no_sleep(struct xdp_md *ctx)
{
	char b[4];
	return bpf_copy_from_user(b, 4, (void *)1);
}

SEC("xdp")
int ok_probe(struct xdp_md *ctx)
{
	char b[4];
	return bpf_probe_read_kernel(b, 4, (void *)1);
}

SEC("xdp")
int ok_probe0(struct xdp_md *ctx)
{
	char b[4];
	return bpf_probe_read_kernel(b, 0, (void *)1);
}

SEC("xdp")
int ok_sk(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	int r = s->family + s->src_port + s->mark;
	bpf_sk_release(s);
	return r;
}

SEC("xdp")
int no_sk_leak(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	return s->family;
}

SEC("xdp")
int no_sk_null(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	bpf_sk_release(s);
	return 0;
}

SEC("xdp")
int no_sk_after(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	bpf_sk_release(s);
	return s->family;
}

SEC("xdp")
int no_skc_mark(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_skc_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	int r = s->mark;
	bpf_sk_release(s);
	return r;
}

SEC("xdp")
int ok_skc_to(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_skc_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(s);
	int r = 0;
	if (tp)
		r = tp->snd_cwnd;
	bpf_sk_release(s);
	return r;
}

SEC("xdp")
int no_skc_to_after(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_skc_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(s);
	bpf_sk_release(s);
	int r = 0;
	if (tp)
		r = tp->snd_cwnd;
	return r;
}

SEC("xdp")
int no_sk_write(struct xdp_md *ctx)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *s = bpf_sk_lookup_tcp(ctx, &t, sizeof t.ipv4, -1, 0);
	if (!s)
		return 0;
	s->mark = 1;
	bpf_sk_release(s);
	return 0;
}

SEC("xdp")
int ok_gen_cookie(struct xdp_md *ctx)
{
	struct {
		struct iphdr i;
		struct tcphdr t;
	}
	b = {};
	return bpf_tcp_raw_gen_syncookie_ipv4(&b.i, &b.t, sizeof b.t);
}

SEC("xdp")
int ok_cpu_index(struct xdp_md *ctx)
{
	return bpf_get_smp_processor_id();
}

SEC("xdp")
int ok_const_key_8(struct xdp_md *ctx)
{
	__u32 k[2];
	*(volatile __u32 *)&k[0] = 1;
	__u64 *v = bpf_map_lookup_elem(&a, &k[0]);
	return *v;
}

SEC("xdp")
int no_const_key_8_oob(struct xdp_md *ctx)
{
	__u32 k[2];
	*(volatile __u32 *)&k[0] = 9;
	__u64 *v = bpf_map_lookup_elem(&a, &k[0]);
	return *v;
}

SEC("xdp")
int no_const_key_8_var(struct xdp_md *ctx)
{
	__u32 k[2];
	__u32 x = 1;
	if (ctx->rx_queue_index > 3)
		x = 9;
	asm volatile("" : "+r"(x));
	*(volatile __u32 *)&k[0] = x;
	asm volatile("" ::: "memory");
	__u64 *v = bpf_map_lookup_elem(&a, &k[0]);
	return *v;
}

