/* Everything an instruction can refer to: maps, data, functions, callbacks, externs. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct counter {
	__u64 packets;
	__u64 bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct counter);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} flows SEC(".maps");

struct inner {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, int);
	__type(value, __u64);
} inner_a SEC(".maps"), inner_b SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 8);
	__uint(key_size, 4);
	__array(values, struct inner);
} outer SEC(".maps") = {.values = {[1] = &inner_a, [5] = &inner_b}};

int leaf(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__array(values, int(void *));
} jumps SEC(".maps") = {.values = {[2] = (void *)&leaf}};

const volatile __u32 limit = 7;
const volatile _Bool enabled;
__u64 total = 0x1122334455667788ull;
static volatile int hidden_state;
__u8 table[16] SEC(".data.tables") = {1, 2, 3};

extern int LINUX_KERNEL_VERSION __kconfig;
extern _Bool CONFIG_BPF __kconfig;
extern enum libbpf_tristate CONFIG_MISSING __kconfig __weak;
extern const void no_such_symbol __ksym __weak;
extern int no_such_variable __ksym __weak;
extern void bpf_rcu_read_lock(void) __ksym;
extern void no_such_kfunc(void) __ksym __weak;

__attribute__((noinline)) static int in_text(int x)
{
	hidden_state += x;
	return x + hidden_state;
}

SEC(".text.hot") __attribute__((noinline)) int in_hot(int x)
{
	return x * 3 + in_text(x);
}

__attribute__((noinline)) int shared(int x)
{
	return in_hot(x) + table[x & 15];
}

__weak int overridable(int x)
{
	return x + 1;
}

static long each(__u32 index, void *ctx)
{
	total += index;
	return 0;
}

SEC("xdp.frags") int entry(struct xdp_md *ctx)
{
	__u32 key = ctx->rx_queue_index;
	struct counter *counter = bpf_map_lookup_elem(&flows, &key);

	if (counter)
		counter->packets += limit;
	bpf_loop(10, each, 0, 0);
	if (enabled)
		bpf_tail_call(ctx, &jumps, 2);
	return shared(key) + overridable(key) + in_text(key);
}

SEC("xdp/devmap") int leaf(struct xdp_md *ctx)
{
	if (!CONFIG_BPF || CONFIG_MISSING)
		return 1;
	return LINUX_KERNEL_VERSION >> 16;
}

SEC("?weird.name") int externs(struct xdp_md *ctx)
{
	bpf_rcu_read_lock();
	if (&no_such_symbol)
		return 1;
	if (&no_such_variable)
		return 2;
	if (no_such_kfunc)
		no_such_kfunc();
	return 3;
}

char _license[] SEC("license") = "GPL";
