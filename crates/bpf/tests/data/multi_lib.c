#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} library_map SEC(".maps");

int step = 5;

static __attribute__((noinline)) int local(int x)
{
	return x * step;
}

__attribute__((noinline)) int from_library(int x)
{
	__u32 key = 0;
	__u64 *value = bpf_map_lookup_elem(&library_map, &key);
	return local(x) + (value ? *value : 0);
}
