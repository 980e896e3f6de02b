/* Maps, types and functions of generated programs that use a thing after its end. */
#include "calls.h"

struct plain {
	long a, b;
};

struct list_item {
	long key;
	struct bpf_list_node n;
};

struct leaf {
	long key;
	struct bpf_rb_node rb;
};

struct counted {
	long key;
	struct bpf_refcount ref;
	struct bpf_list_node n;
};

struct keeper {
	struct plain __kptr *plain;
	struct plain __percpu_kptr *percpu;
	struct counted __kptr *counted;
};

struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, __u64[8]);
	__uint(max_entries, 4); } values SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_HASH); __type(key, __u32); __type(value, __u64[8]);
	__uint(max_entries, 4); } hash SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_ARRAY); __type(key, __u32); __type(value, struct keeper);
	__uint(max_entries, 4); } keepers SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_RINGBUF); __uint(max_entries, 4096); } ring SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_USER_RINGBUF); __uint(max_entries, 4096); }
	messages SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_SOCKMAP); __type(key, __u32); __type(value, __u64);
	__uint(max_entries, 4); } sockets SEC(".maps");
struct { __uint(type, BPF_MAP_TYPE_PROG_ARRAY); __type(key, __u32); __type(value, __u32);
	__uint(max_entries, 4); } programs SEC(".maps");
private(A) struct bpf_spin_lock list_lock;
private(A) struct bpf_list_head list __contains(list_item, n);
private(B) struct bpf_spin_lock tree_lock;
private(B) struct bpf_rb_root tree __contains(leaf, rb);
private(C) struct bpf_spin_lock counted_lock;
private(C) struct bpf_list_head counted_list __contains(counted, n);

extern struct bpf_rb_node *bpf_rbtree_root(struct bpf_rb_root *root) __ksym;
extern struct bpf_rb_node *bpf_rbtree_left(struct bpf_rb_root *root, struct bpf_rb_node *n) __ksym;
extern struct bpf_rb_node *bpf_rbtree_right(struct bpf_rb_root *root, struct bpf_rb_node *n) __ksym;
extern struct bpf_list_node *bpf_list_back(struct bpf_list_head *h) __ksym;

static bool less(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	return container_of(a, struct leaf, rb)->key < container_of(b, struct leaf, rb)->key;
}

static __always_inline void *value(__u32 key)
{
	return bpf_map_lookup_elem(&values, &key);
}

static __always_inline struct keeper *keeper(void)
{
	__u32 key = 0;
	return bpf_map_lookup_elem(&keepers, &key);
}

#define READ(p) (*(volatile int *)(p))
#define KEEP(p) asm volatile("" : "+r"(p) : : "memory")

static __noinline int read_it(void *p)
{
	return READ(p);
}

static __noinline int tail(struct xdp_md *ctx)
{
	bpf_tail_call(ctx, &programs, 1);
	return 0;
}

struct kept {
	void *p;
	void *handle;
};

static long read_kept(__u32 index, struct kept *kept)
{
	return READ(kept->p) == 77;
}
