// Branches, return values, addresses and arguments that depend on bytes that nobody set.
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

struct header { __u8 kind; __u8 length; __u16 rest; };
struct answer { __u32 verdict; __u32 port; };
#define AF_INET 2

__u64 table[16];
struct {
    __uint(type, BPF_MAP_TYPE_PROG_ARRAY);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} next SEC(".maps");
struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 4);
    __type(key, __u32);
    __type(value, __u32);
} ports SEC(".maps");

#define FAR 60000
#define ESCAPES(it) asm volatile("" : : "r"(&(it)) : "memory")

SEC("xdp") int branch(struct xdp_md *ctx)
{
    struct header header;

    bpf_xdp_load_bytes(ctx, FAR, &header, sizeof(header));
    // finds undefined-branch: the direction of this branch
    if (header.kind == 7)
        return XDP_DROP;
    return XDP_PASS;
}

SEC("xdp") int returned(struct xdp_md *ctx)
{
    struct answer answer;

    answer.port = 1;
    ESCAPES(answer);
    // finds undefined-return: the verdict that is returned depends
    return answer.verdict;
}

SEC("xdp") int address(struct xdp_md *ctx)
{
    struct header header;

    bpf_xdp_load_bytes(ctx, FAR, &header, sizeof(header));
    // finds undefined-address: the address of this access
    table[header.length & 15] = 1;
    return XDP_PASS;
}

SEC("xdp") int interface(struct xdp_md *ctx)
{
    struct answer answer;

    answer.verdict = 1;
    ESCAPES(answer);
    // finds undefined-argument: argument 1 of bpf_redirect
    return bpf_redirect(answer.port, 0);
}

SEC("xdp") int slot(struct xdp_md *ctx)
{
    struct answer answer;

    answer.verdict = 1;
    ESCAPES(answer);
    // finds undefined-argument: argument 2 of bpf_redirect_map
    return bpf_redirect_map(&ports, answer.port, XDP_PASS);
}

SEC("xdp") int program(struct xdp_md *ctx)
{
    struct answer answer;

    answer.verdict = 1;
    ESCAPES(answer);
    // finds undefined-argument: argument 3 of bpf_tail_call
    bpf_tail_call(ctx, &next, answer.port);
    return XDP_PASS;
}

SEC("xdp") int route(struct xdp_md *ctx)
{
    struct bpf_fib_lookup fib;

    fib.family = AF_INET;
    fib.ipv4_src = 1;
    fib.ipv4_dst = 2;
    fib.ifindex = ctx->ingress_ifindex;
    // finds undefined-argument: family, l4_protocol, ports, tot_len and ifindex in the parameters
    bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
    return XDP_PASS;
}

SEC("xdp") int largest_packet(struct xdp_md *ctx)
{
    __u32 mtu;

    // finds undefined-argument: the memory that it reads (argument 3 of bpf_check_mtu, `&mtu`)
    bpf_check_mtu(ctx, 0, &mtu, 0, 0);
    return XDP_PASS;
}

SEC("xdp") int checksum(struct xdp_md *ctx)
{
    __u32 words[4];

    words[0] = words[1] = words[3] = 1;
    ESCAPES(words);
    // finds undefined-argument: argument 3 of bpf_csum_diff, `words`): bytes 8 to 11
    return bpf_csum_diff(0, 0, words, sizeof(words), 0) == 7
               ? XDP_DROP
               : XDP_PASS;
}

static __noinline int parse(struct xdp_md *ctx, struct header *header)
{
    if (ctx->ingress_ifindex == 77)
        header->length = 5;
    header->kind = 1;
    return 0;
}

SEC("xdp") int set_on_one_way_only(struct xdp_md *ctx)
{
    struct header header;

    parse(ctx, &header);
    // finds undefined-branch: the direction
    return header.length > 4 ? XDP_DROP : XDP_PASS;
}

static long each(__u32 index, void *context)
{
    struct answer *answer = context;

    answer->port = index;
    // finds undefined-branch: the direction
    return answer->verdict > 3;
}

SEC("xdp") int in_a_callback(struct xdp_md *ctx)
{
    struct answer answer;

    bpf_loop(2, each, &answer, 0);
    return XDP_PASS;
}

// Nothing is wrong from here on.

static long count(__u32 index, void *context)
{
    struct answer *answer = context;

    answer->port += index;
    return 0;
}

SEC("xdp") int set_first(struct xdp_md *ctx)
{
    struct answer answer = { .verdict = XDP_PASS };
    struct header header;
    struct bpf_fib_lookup fib;
    __u32 mtu = 0;

    bpf_loop(3, count, &answer, 0);
    if (bpf_xdp_load_bytes(ctx, 0, &header, sizeof(header)) || answer.port != 3)
        return XDP_ABORTED;
    __builtin_memset(&fib, 0, sizeof(fib));
    fib.family = AF_INET;
    bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
    bpf_check_mtu(ctx, 0, &mtu, 0, 0);
    return header.kind == 7 ? XDP_DROP : answer.verdict;
}

SEC("xdp") int looked_at(struct xdp_md *ctx)
{
    struct header header;

    if (bpf_xdp_load_bytes(ctx, FAR, &header, sizeof(header)))
        return XDP_PASS;
    return header.kind;
}

SEC("xdp") int masked(struct xdp_md *ctx)
{
    struct header header;
    __u32 all;

    ESCAPES(header);
    header.kind = 3;
    ESCAPES(header);
    all = *(__u32 *)&header;
    return (all & 0xff) == 3 && all << 24 == 3 << 24 ? XDP_PASS : XDP_DROP;
}

char _license[] SEC("license") = "GPL";
