#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} shared_map SEC(".maps");

extern int step;
extern int from_library(int x);

static __attribute__((noinline)) int local(int x)
{
	return x + step;
}

SEC("xdp") int entry(struct xdp_md *ctx)
{
	__u32 key = 0;
	bpf_map_lookup_elem(&shared_map, &key);
	return from_library(local(ctx->rx_queue_index));
}

char _license[] SEC("license") = "MIT";
