/* A legacy map that two files define weakly: the linker keeps one symbol, and the bytes of both. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct bpf_map_def {
	__u32 type, key_size, value_size, max_entries, map_flags;
};

__attribute__((weak)) struct bpf_map_def SEC("maps") shared = {BPF_MAP_TYPE_ARRAY, 4, 8, 1, 0};
struct bpf_map_def SEC("maps") NAME = {BPF_MAP_TYPE_HASH, 4, 8, 16, 0};

SEC("xdp") int PROGRAM(struct xdp_md *ctx)
{
	__u32 key = 0;
	__u64 *own = bpf_map_lookup_elem(&NAME, &key);
	__u64 *both = bpf_map_lookup_elem(&shared, &key);

	if (both)
		++*both;
	return own ? XDP_DROP : XDP_PASS;
}

char _license[] SEC("license") = "GPL";
