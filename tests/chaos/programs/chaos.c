// SPDX-License-Identifier: MIT OR Apache-2.0
// The filter of the chaos walk: which classes of frames pass is said by `mask`, and by the map
// `blocked`, which only users change. Frames of other protocols pass, and are nobody's business.
//
//   1  the first
//   2  other code, the same maps
//   3  `blocked` has values of another size: refused in the place of 1 and 2
//   4  the verifier refuses it
//   5  its function has another name
//   6  frames of the last class keep it busy until somebody stops it
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define PROTOCOL 0x88b5
#define CLASSES 8
#define TO_SOCKET 5
#define BY_MAP 6

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
#if VERSION == 3
	__type(value, __u64);
#else
	__type(value, __u32);
#endif
	__uint(max_entries, 64);
} blocked SEC(".maps");

// Frames of the class BY_MAP leave by its port, and by none without one.
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} out SEC(".maps");

// Those of the class TO_SOCKET are an application's, if there is one.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, CLASSES);
} seen SEC(".maps");

const volatile __u32 mask = 0;
const volatile __u32 version = VERSION;

#if VERSION == 6
static long turn(__u32 index, void *context)
{
	return 0;
}

static long round(__u32 index, void *context)
{
	bpf_loop(1 << 23, turn, context, 0);
	return 0;
}
#endif

#if VERSION == 5
#define NAME nobody
#else
#define NAME filter
#endif

static __always_inline int let_pass(struct xdp_md *ctx, __u32 class)
{
	if (class == TO_SOCKET)
		return bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS);
	if (class == BY_MAP)
		return bpf_redirect_map(&out, 0, 0);
	return XDP_PASS;
}

SEC("xdp")
int NAME(struct xdp_md *ctx)
{
	unsigned char *data = (void *)(long)ctx->data;
	unsigned char *end = (void *)(long)ctx->data_end;

	if (data + 14 > end)
		return XDP_DROP;
#if VERSION == 4
	if (data[60] == 1)
		return XDP_PASS;
#endif
	if (data[12] != PROTOCOL >> 8 || data[13] != (PROTOCOL & 0xff))
		return XDP_PASS;
	__u32 class = data[5];
	if (class >= CLASSES)
		return XDP_DROP;
	__u64 *count = bpf_map_lookup_elem(&seen, &class);
	if (count)
		__sync_fetch_and_add(count, 1);
#if VERSION == 6
	if (class == CLASSES - 1)
		bpf_loop(1 << 23, round, &class, 0);
#endif
#if VERSION == 2
	if (bpf_map_lookup_elem(&blocked, &class))
		return XDP_DROP;
	return mask & 1 << class ? let_pass(ctx, class) : XDP_DROP;
#else
	if (!(mask >> class & 1))
		return XDP_DROP;
	return bpf_map_lookup_elem(&blocked, &class) ? XDP_DROP : let_pass(ctx, class);
#endif
}

char _license[] SEC("license") = "GPL";
