// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// jumbo_checksum: verifies UDP and TCP checksums of frames of any length, frags included.
//
// A port with a large MTU or receive coalescing delivers frames in several buffers, of which a
// program sees only the first directly. The three programs do the same work by the three ways there
// are to the rest: `checksum_by_load` copies with bpf_xdp_load_bytes, `checksum_by_dynptr` reads
// through dynptr slices (no copy where the bytes lie in one buffer), and `checksum_by_pull` first
// pulls the headers into the linear part.
//
// Needs: kernel 6.18 for checksum_by_pull (the kfunc is weak: without it the program passes all).
//
// Maps
//   scratch  PERCPU_ARRAY  one chunk of payload
//   results  PERCPU_ARRAY  0 not checked, 1 right, 2 wrong -> packets, bytes of whole frames
//
// Configure  nothing.
// Verdicts   XDP_DROP wrong checksum; XDP_PASS right, or nothing to check.
#include "checksum.h"
#include "kfuncs.h"
#include "parse.h"

#define CHUNK_BYTES 256
#define SLICE_BYTES 64u
#define CHUNKS_MAX 286 // 73,152 bytes: the longest frame there is (17 frags of 4096 and 3520)
#define HEADER_BYTES_MAX 128

enum result {
    RESULT_NOT_CHECKED,
    RESULT_RIGHT,
    RESULT_WRONG,
    RESULT_COUNT,
};

struct chunk {
    __u8 bytes[CHUNK_BYTES + sizeof(__be32)]; // room to round a length up to whole words
};

// What is to be summed: `bytes` from `offset` on, starting with the pseudo header's sum.
struct span {
    __u32 offset;
    __u32 bytes;
    __u64 sum;
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct chunk);
} scratch SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, struct counter);
} results SEC(".maps");

static __always_inline int finish(struct xdp_md *ctx, __u32 result)
{
    struct counter *stats = bpf_map_lookup_elem(&results, &result);

    if (stats)
        count(stats, bpf_xdp_get_buff_len(ctx));
    return result == RESULT_WRONG ? XDP_DROP : XDP_PASS;
}

// Finds the transport header and its pseudo header. False: nothing to check here.
static __always_inline bool find_span(struct cursor *cursor, struct span *span)
{
    void *start = cursor->pos;
    struct network network = {};
    __u16 ethertype;

    if (!parse_ethernet(cursor, &ethertype))
        return false;
    if (ethertype == ETH_P_IP) {
        struct iphdr *ip = parse_ipv4(cursor);

        if (!ip || ip->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
            return false;
        network.protocol = ip->protocol;
        span->bytes = (__u16)(bpf_ntohs(ip->tot_len) - ip->ihl * 4);
        span->sum = pseudo_sum_ipv4(ip, span->bytes);
    } else if (ethertype == ETH_P_IPV6) {
        struct ipv6hdr *ip = TAKE(cursor, struct ipv6hdr);

        if (!ip)
            return false;
        network.protocol = ip->nexthdr;
        span->bytes = bpf_ntohs(ip->payload_len);
        span->sum = pseudo_sum_ipv6(ip, ip->nexthdr, span->bytes);
    } else {
        return false;
    }
    span->offset = cursor->pos - start;
    if (network.protocol == IPPROTO_UDP) {
        struct udphdr *udp = TAKE(cursor, struct udphdr);

        return udp && udp->check;
    }
    return network.protocol == IPPROTO_TCP;
}

static __always_inline bool is_whole(struct xdp_md *ctx, const struct span *span)
{
    return span->offset + span->bytes <= bpf_xdp_get_buff_len(ctx);
}

// State of the bpf_loop that sums chunk after chunk.
struct load_walk {
    struct xdp_md *ctx;
    struct span span;
    bool is_failed;
};

static long add_loaded_chunk(__u32 index, void *data)
{
    struct load_walk *walk = data;
    __u64 bytes = walk->span.bytes;
    struct chunk *chunk;
    __u32 zero = 0;

    chunk = bpf_map_lookup_elem(&scratch, &zero);
    if (!chunk || !bytes)
        return 1;
    if (bytes > CHUNK_BYTES)
        bytes = CHUNK_BYTES;
    barrier_var(bytes);
    if (bytes == 0 || bytes > CHUNK_BYTES)
        return 1;
    if (bytes & 3) // csum_diff takes whole words: an odd tail is padded with zeroes
        __builtin_memset(chunk, 0, sizeof(*chunk));
    if (bpf_xdp_load_bytes(walk->ctx, walk->span.offset, chunk->bytes, bytes)) {
        walk->is_failed = true;
        return 1;
    }
    walk->span.sum = bpf_csum_diff(NULL, 0, (__be32 *)chunk->bytes, (bytes + 3) & ~3ull,
                                   walk->span.sum);
    walk->span.offset += bytes;
    walk->span.bytes -= bytes;
    return 0;
}

// csum_diff carries 32 bits from call to call.
static __always_inline __u64 sum_to_32(__u64 sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    return (sum & 0xffffffff) + (sum >> 32);
}

SEC("xdp.frags")
int checksum_by_load(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct load_walk walk = {.ctx = ctx};

    if (!find_span(&cursor, &walk.span) || !is_whole(ctx, &walk.span))
        return finish(ctx, RESULT_NOT_CHECKED);
    walk.span.sum = sum_to_32(walk.span.sum);
    bpf_loop(CHUNKS_MAX, add_loaded_chunk, &walk, 0);
    if (walk.is_failed)
        return finish(ctx, RESULT_NOT_CHECKED);
    return finish(ctx, checksum_fold(walk.span.sum) ? RESULT_WRONG : RESULT_RIGHT);
}

// Sums the piece at `offset` through a slice; `buffer` is used where the piece spans two frags.
static __always_inline int add_slice(const struct bpf_dynptr *frame, __u32 offset, __u64 *sum)
{
    __be32 buffer[SLICE_BYTES / 4];
    __be32 *words = bpf_dynptr_slice(frame, offset, buffer, sizeof(buffer));

    if (!words)
        return -1;
    *sum = bpf_csum_diff(NULL, 0, words, sizeof(buffer), *sum);
    return 0;
}

// What remains behind the last whole slice.
static __always_inline int add_tail(const struct bpf_dynptr *frame, struct span *span)
{
    __u32 offset = span->offset + (span->bytes & ~(SLICE_BYTES - 1));
    __u64 bytes = span->bytes & (SLICE_BYTES - 1);
    __be32 buffer[SLICE_BYTES / 4] = {};

    barrier_var(bytes);
    if (bytes == 0)
        return 0;
    if (bytes > sizeof(buffer) || bpf_dynptr_read(buffer, bytes, frame, offset, 0))
        return -1;
    span->sum = bpf_csum_diff(NULL, 0, buffer, sizeof(buffer), span->sum);
    return 0;
}

SEC("xdp.frags")
int checksum_by_dynptr(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct bpf_dynptr frame;
    struct bpf_iter_num it;
    struct span span;
    int failed = 0, *index;

    if (!find_span(&cursor, &span) || !is_whole(ctx, &span))
        return finish(ctx, RESULT_NOT_CHECKED);
    if (bpf_dynptr_from_xdp(ctx, 0, &frame))
        return finish(ctx, RESULT_NOT_CHECKED);
    span.sum = sum_to_32(span.sum);
    // Offsets come from the iterator's number and not from a running variable: so one round of the
    // loop looks to the verifier like the next, and it is followed once, not 1,144 times.
    bpf_iter_num_new(&it, 0, CHUNKS_MAX * CHUNK_BYTES / SLICE_BYTES);
    while ((index = bpf_iter_num_next(&it))) {
        __u32 done = *index * SLICE_BYTES;

        if (done + SLICE_BYTES > span.bytes)
            break;
        failed = add_slice(&frame, span.offset + done, &span.sum);
        if (failed)
            break;
    }
    bpf_iter_num_destroy(&it);
    if (failed || add_tail(&frame, &span))
        return finish(ctx, RESULT_NOT_CHECKED);
    return finish(ctx, checksum_fold(span.sum) ? RESULT_WRONG : RESULT_RIGHT);
}

// A driver may put even the headers into a frag; after the pull they are where parsers look. The
// payload is then summed with load_bytes as above.
SEC("xdp.frags")
int checksum_by_pull(struct xdp_md *ctx)
{
    struct load_walk walk = {.ctx = ctx};
    __u32 wanted = HEADER_BYTES_MAX;
    __u32 frame_bytes = bpf_xdp_get_buff_len(ctx);
    struct cursor cursor;

    if (wanted > frame_bytes)
        wanted = frame_bytes;
    if (!bpf_xdp_pull_data || bpf_xdp_pull_data(ctx, wanted))
        return finish(ctx, RESULT_NOT_CHECKED);
    cursor = cursor_at_start(ctx);
    if (!find_span(&cursor, &walk.span) || !is_whole(ctx, &walk.span))
        return finish(ctx, RESULT_NOT_CHECKED);
    walk.span.sum = sum_to_32(walk.span.sum);
    bpf_loop(CHUNKS_MAX, add_loaded_chunk, &walk, 0);
    if (walk.is_failed)
        return finish(ctx, RESULT_NOT_CHECKED);
    return finish(ctx, checksum_fold(walk.span.sum) ? RESULT_WRONG : RESULT_RIGHT);
}

char _license[] SEC("license") = "Dual MIT/GPL";
