/* Programs that are run as well, here and in the kernel. Those that tail calls lead to come first.
 */
#include "calls.h"

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __uint(max_entries, 8); __type(key, __u32);
	__type(value, __u64); } notes SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");

#define PROGRAM(name) SEC("xdp") int name(struct xdp_md *ctx)
#define STATIC static __noinline int

static void note(__u32 key, __u64 value)
{
	__u64 *noted = bpf_map_lookup_elem(&notes, &key);
	if (noted)
		*noted = *noted * 31 + value;
}

/* Ends where `bpf_throw` is, two functions deep. */
STATIC throws_deeper(struct xdp_md *ctx) { note(0, 1); bpf_throw(7); note(0, 2); return 1; }
STATIC throws(struct xdp_md *ctx) { int x = throws_deeper(ctx); note(0, 3); return x; }
PROGRAM(ok_throws) { int x = throws(ctx); note(0, 4); return x + 1; }

__noinline int caught(__u64 cookie) { note(1, cookie); return cookie + 100; }
__attribute__((btf_decl_tag("exception_callback:caught")))
PROGRAM(ok_catches) { int x = throws(ctx); note(0, 5); return x + 1; }

PROGRAM(ok_counts) { note(2, 1); return 3; }

struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __uint(max_entries, 4); __type(key, __u32);
	__array(values, int (struct xdp_md *)); } onward SEC(".maps") = {
	.values = { [0] = (void *)ok_throws, [1] = (void *)ok_catches, [2] = (void *)ok_counts },
};

/* A program that another one goes on to, by a function or not. */
STATIC go(struct xdp_md *ctx, __u32 slot)
{
	note(3, slot);
	bpf_tail_call(ctx, &onward, slot);
	note(3, 9);
	return 2;
}
PROGRAM(ok_goes_on_to_throws) { bpf_tail_call(ctx, &onward, 0); return 1; }
PROGRAM(ok_goes_on_to_catches) { bpf_tail_call(ctx, &onward, 1); return 1; }

/* Callers of the function that was left go on, whatever the other program does, with what they
 * hold. */
PROGRAM(ok_calls_what_throws)
{
	int a = go(ctx, 0), b = go(ctx, 1), c = go(ctx, 2), d = go(ctx, 3);
	note(4, a * 1000 + b);
	note(5, c * 1000 + d);
	return a + b + c + d;
}
PROGRAM(ok_holds_while_another_throws)
{
	__u64 *record = bpf_ringbuf_reserve(&ring, 8, 0);
	if (!record)
		return 0;
	int a = go(ctx, 0), b = go(ctx, 1);
	*record = a + b;
	bpf_ringbuf_discard(record, 0);
	return a + 2 * b;
}

/* It catches what itself throws, not what the others do. */
STATIC goes_then_throws(struct xdp_md *ctx)
{
	int a = go(ctx, 1);
	note(6, a);
	bpf_throw(a + 1);
	return 0;
}
__attribute__((btf_decl_tag("exception_callback:caught")))
PROGRAM(ok_calls_what_throws_and_throws) { return goes_then_throws(ctx); }

/* The first number of the range is one more than the largest there is. */
PROGRAM(ok_numbers_from_the_lowest)
{
	struct bpf_iter_num it;
	int *v, count = 0;

	bpf_iter_num_new(&it, (int)0x80000000, (int)0x80000005);
	while ((v = bpf_iter_num_next(&it))) {
		note(7, *v);
		count++;
	}
	bpf_iter_num_destroy(&it);
	return count;
}
PROGRAM(ok_numbers_to_the_highest)
{
	struct bpf_iter_num it;
	int *v, count = 0;

	bpf_iter_num_new(&it, 0x7ffffff9, 0x7fffffff);
	while ((v = bpf_iter_num_next(&it))) {
		note(7, *v);
		count++;
	}
	bpf_iter_num_destroy(&it);
	return count;
}
char LICENSE[] SEC("license") = "GPL";
