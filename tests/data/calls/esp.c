/* States of IPsec, and ESP on the frame. tests/tests/accelerator/kfuncs.rs runs what is `ok_*`. */
#include "calls.h"

/* As in programs/include/towpath_esp.h, whose headers don't go with the kernel's own types. */
struct esp_meta {
	__u32 sa, spi;
	__u8 dir, status;
	__u16 moved;
	__u32 ingress_ifindex;
};

extern int bpf_xdp_esp_decap(struct xdp_md *ctx, __u32 ifindex, struct esp_meta *meta,
	__u32 meta__sz) __ksym __weak;
extern int bpf_xdp_esp_encap(struct xdp_md *ctx, __u32 ifindex, struct esp_meta *meta,
	__u32 meta__sz) __ksym __weak;

/* What to ask for, and what was found. */
struct query {
	__u8 opts[64];
	__u32 size;
	__u32 found;
	__u32 spi, reqid;
	__u8 proto, mode, flags, window, state, dir;
	__u16 family;
	__u8 daddr[16], saddr[16];
	__u32 oseq, seq, has_esn, esn_oseq, esn_oseq_hi, esn_seq, esn_seq_hi, esn_window;
	__u64 bytes, packets, added, used, soft_packets, hard_bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct query);
} queries SEC(".maps");

SEC("xdp")
int ok_state(struct xdp_md *ctx)
{
	__u32 first = 0;
	struct query *q = bpf_map_lookup_elem(&queries, &first);
	if (!q)
		return 0;
	q->found = 0;
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, (void *)q->opts, q->size & 63);
	if (!x)
		return 1;
	q->found = 1;
	q->spi = x->id.spi;
	q->proto = x->id.proto;
	__builtin_memcpy(q->daddr, x->id.daddr.a6, 16);
	__builtin_memcpy(q->saddr, x->props.saddr.a6, 16);
	q->reqid = x->props.reqid;
	q->mode = x->props.mode;
	q->family = x->props.family;
	q->flags = x->props.flags;
	q->window = x->props.replay_window;
	q->state = x->km.state;
	q->oseq = x->replay.oseq;
	q->seq = x->replay.seq;
	q->bytes = x->curlft.bytes;
	q->packets = x->curlft.packets;
	q->added = x->curlft.add_time;
	q->used = x->curlft.use_time;
	q->soft_packets = x->lft.soft_packet_limit;
	q->hard_bytes = x->lft.hard_byte_limit;
	if (bpf_core_field_exists(x->dir))
		q->dir = x->dir;
	struct xfrm_replay_state_esn *esn = x->replay_esn;
	q->has_esn = esn != 0;
	if (esn) {
		q->esn_oseq = esn->oseq;
		q->esn_oseq_hi = esn->oseq_hi;
		q->esn_seq = esn->seq;
		q->esn_seq_hi = esn->seq_hi;
		q->esn_window = esn->replay_window;
	}
	bpf_xdp_xfrm_state_release(x);
	return 2;
}

SEC("xdp")
int no_state_kept(struct xdp_md *ctx)
{
	struct bpf_xfrm_state_opts o = {};
	return bpf_xdp_get_xfrm_state(ctx, &o, sizeof o) != 0;
}

SEC("xdp")
int no_state_unchecked(struct xdp_md *ctx)
{
	struct bpf_xfrm_state_opts o = {};
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, &o, sizeof o);
	int spi = x->id.spi;
	bpf_xdp_xfrm_state_release(x);
	return spi;
}

SEC("xdp")
int no_state_written(struct xdp_md *ctx)
{
	struct bpf_xfrm_state_opts o = {};
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, &o, sizeof o);
	if (!x)
		return 0;
	x->props.reqid = 1;
	bpf_xdp_xfrm_state_release(x);
	return 1;
}

SEC("xdp")
int no_state_after_release(struct xdp_md *ctx)
{
	struct bpf_xfrm_state_opts o = {};
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, &o, sizeof o);
	if (!x)
		return 0;
	bpf_xdp_xfrm_state_release(x);
	return x->id.spi;
}

SEC("xdp")
int no_state_options_too_short(struct xdp_md *ctx)
{
	__u64 o = 0;
	struct xfrm_state *x = bpf_xdp_get_xfrm_state(ctx, (void *)&o,
		sizeof(struct bpf_xfrm_state_opts));
	if (x)
		bpf_xdp_xfrm_state_release(x);
	return 0;
}

/* What to do with a frame, and what came of it. */
struct task {
	__u32 ifindex, size;
	__s32 result;
	__u8 decaps, in_packet;
	__u16 length;
	__u8 meta[64];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct task);
} esp_tasks SEC(".maps");

/* Returns XDP_DROP where the functions do not exist, otherwise the length of the linear part as it
 * is after the call. */
SEC("xdp.frags")
int ok_esp(struct xdp_md *ctx)
{
	__u32 first = 0;
	struct task *t = bpf_map_lookup_elem(&esp_tasks, &first);
	if (!t || !bpf_xdp_esp_encap || !bpf_xdp_esp_decap)
		return XDP_DROP;
	__u32 size = t->size & 63;
	void *meta = t->meta;
	void *data = (void *)(long)ctx->data;
	if (t->in_packet && data + 64 <= (void *)(long)ctx->data_end)
		meta = data;
	t->result = t->decaps ? bpf_xdp_esp_decap(ctx, t->ifindex, meta, size)
			      : bpf_xdp_esp_encap(ctx, t->ifindex, meta, size);
	t->length = ctx->data_end - ctx->data;
	return XDP_PASS;
}

/* Whether it is ESP, also in UDP, behind an IPv4 header without options. */
static __always_inline int is_esp(struct xdp_md *ctx)
{
	__u8 *data = (void *)(long)ctx->data;
	if (data + 38 > (__u8 *)(long)ctx->data_end)
		return 0;
	return data[23] == 50 || (data[23] == 17 && data[36] == 4500 >> 8 && data[37] == (4500 & 255));
}

/* Does what the port would do with the frame, and passes it with the record in front. */
static __always_inline int gateway(struct xdp_md *ctx, __u32 ifindex)
{
	struct esp_meta meta = {};
	if (!bpf_xdp_esp_encap || !bpf_xdp_esp_decap)
		return XDP_DROP;
	if (is_esp(ctx))
		bpf_xdp_esp_decap(ctx, ifindex, &meta, sizeof meta);
	else
		bpf_xdp_esp_encap(ctx, ifindex, &meta, sizeof meta);
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof meta))
		return XDP_DROP;
	struct esp_meta *record = (void *)(long)ctx->data_meta;
	if ((void *)(record + 1) > (void *)(long)ctx->data)
		return XDP_DROP;
	*record = meta;
	return XDP_PASS;
}

SEC("xdp")
int ok_esp_gateway(struct xdp_md *ctx)
{
	return gateway(ctx, 12);
}

/* Half of the frames go through the port. */
SEC("xdp")
int ok_esp_gateway_and_port(struct xdp_md *ctx)
{
	return bpf_get_prandom_u32() & 1 ? bpf_redirect(12, 0) : gateway(ctx, 12);
}

SEC("xdp")
int no_esp_stale_pointer(struct xdp_md *ctx)
{
	struct esp_meta meta = {};
	__u8 *data = (void *)(long)ctx->data;
	if (data + 14 > (__u8 *)(long)ctx->data_end)
		return 0;
	bpf_xdp_esp_encap(ctx, 1, &meta, sizeof meta);
	return data[0];
}

SEC("xdp")
int no_esp_stale_pointer_in(struct xdp_md *ctx)
{
	struct esp_meta meta = {};
	__u8 *data = (void *)(long)ctx->data;
	if (data + 14 > (__u8 *)(long)ctx->data_end)
		return 0;
	bpf_xdp_esp_decap(ctx, 1, &meta, sizeof meta);
	return data[0];
}

SEC("xdp")
int no_esp_record_too_short(struct xdp_md *ctx)
{
	__u64 meta = 0;
	return bpf_xdp_esp_encap(ctx, 1, (void *)&meta, sizeof(struct esp_meta));
}

SEC("xdp")
int no_esp_null(struct xdp_md *ctx)
{
	return bpf_xdp_esp_decap(ctx, 1, 0, sizeof(struct esp_meta));
}
