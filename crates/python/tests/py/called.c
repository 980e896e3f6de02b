// A program that is called with a verdict, and one that returns it for each packet.
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} verdicts SEC(".maps");

struct request {
	__u32 verdict, before;
};

SEC("syscall")
int set_verdict(struct request *request)
{
	__u32 first = 0;
	__u32 *verdict = bpf_map_lookup_elem(&verdicts, &first);

	if (!verdict)
		return 1;
	request->before = *verdict;
	*verdict = request->verdict;
	return 7;
}

SEC("xdp")
int judge(struct xdp_md *ctx)
{
	__u32 first = 0;
	__u32 *verdict = bpf_map_lookup_elem(&verdicts, &first);

	return verdict ? *verdict : XDP_ABORTED;
}

char _license[] SEC("license") = "GPL";
