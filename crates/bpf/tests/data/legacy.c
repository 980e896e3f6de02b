/* Maps as plain structs: iproute2's, with an inner map and a tail call by section name. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct bpf_elf_map {
	__u32 type, size_key, size_value, max_elem, flags, id, pinning, inner_id, inner_idx;
};

SEC("maps") struct bpf_elf_map jumps = {
	.type = BPF_MAP_TYPE_PROG_ARRAY, .size_key = 4, .size_value = 4, .max_elem = 2, .id = 1};
SEC("maps") struct bpf_elf_map template = {
	.type = BPF_MAP_TYPE_ARRAY, .size_key = 4, .size_value = 8, .max_elem = 1, .id = 9,
	.inner_idx = 2};
SEC("maps") struct bpf_elf_map outer = {
	.type = BPF_MAP_TYPE_ARRAY_OF_MAPS, .size_key = 4, .size_value = 4, .max_elem = 3,
	.inner_id = 9, .pinning = 2};

/* Static, as Cilium's: it is a program all the same. */
__attribute__((section("1/0"), used)) static int tail(struct xdp_md *ctx)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&outer, &key) ? XDP_PASS : XDP_DROP;
}

SEC("prog") int entry(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &jumps, 0);
	return XDP_ABORTED;
}

char _license[] SEC("license") = "Dual BSD/GPL";
