// What the example of a map file in docs/cli.md fills.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct count {
	__u64 packets, bytes;
};
struct prefix {
	__u32 prefixlen;
	__u8 address[4];
};
struct rule {
	__u32 number;
};
struct table {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct count);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} limits SEC(".maps");

struct table table SEC(".maps"), name_of_a_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4);
	__type(value, __u32);
} pending SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} per_cpu SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16);
	__type(key, struct prefix);
	__type(value, struct rule);
} blocked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 4);
} jumps SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, struct bpf_devmap_val);
} tx_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 16);
	__type(key, __u32);
	__array(values, struct table);
} tenants SEC(".maps");

__u64 seen;

SEC("xdp")
int uses_all(struct xdp_md *ctx)
{
	__u32 key = 0;
	void *maps[] = {&counters, &limits, &table, &name_of_a_map, &per_cpu, &tenants};

	for (int i = 0; i < 6; i++)
		seen += bpf_map_lookup_elem(maps[i], &key) != 0;
	bpf_map_pop_elem(&pending, &key);
	struct prefix prefix = {.prefixlen = 32};
	seen += bpf_map_lookup_elem(&blocked, &prefix) != 0;
	bpf_tail_call(ctx, &jumps, 1);
	return bpf_redirect_map(&tx_ports, 0, XDP_PASS);
}

SEC("xdp")
int name_of_a_program(struct xdp_md *ctx)
{
	return XDP_PASS;
}

SEC("xdp/devmap")
int name_of_a_devmap_program(struct xdp_md *ctx)
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
