// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// rate_limiter: a token bucket for each source address.
//
// A bucket fills at `packets_per_second` up to `burst_packets` and each packet takes one token. The
// bucket of a busy source is touched from several CPUs at once: its two fields change together
// under a spin lock. (The kernel allows no spin lock in an LRU map, so buckets are a plain hash:
// sources that find it full share one bucket between them.)
//
// Maps
//   buckets    HASH      source address -> bucket
//   overflow   ARRAY     the one bucket of all sources that found no room
//   offenders  LRU_HASH  source address -> packets and bytes dropped; who was limited lately
//   totals     ARRAY     0: passed, 1: limited; atomics, as all CPUs share them
//
// Configure  packets_per_second, burst_packets; prefix_v6_words: how many 32-bit words of an IPv6
//            source make "one source" (2 = a /64, which is what one customer is given).
// Verdicts   XDP_PASS within the limit, and for what is not IP; XDP_DROP above it.
#include "parse.h"

#define SOURCES_MAX 65536
#define OFFENDERS_MAX 1024
#define NANOSECONDS 1000000000ull
#define TOKEN_PARTS 1000 // a bucket counts thousandths, or slow rates would never fill it

struct bucket {
    struct bpf_spin_lock lock;
    __u32 zero;
    __u64 filled_ns; // when it was last filled
    __u64 parts;     // thousandths of a token
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, SOURCES_MAX);
    __type(key, struct in6_addr);
    __type(value, struct bucket);
} buckets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct bucket);
} overflow SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, OFFENDERS_MAX);
    __type(key, struct in6_addr);
    __type(value, struct counter);
} offenders SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, struct counter);
} totals SEC(".maps");

const volatile __u64 packets_per_second = 1000;
const volatile __u64 burst_packets = 100;
const volatile __u32 prefix_v6_words = 2;

static __always_inline void add(struct counter *counter, __u64 bytes)
{
    __sync_fetch_and_add(&counter->packets, 1);
    __sync_fetch_and_add(&counter->bytes, bytes);
}

static __always_inline int verdict(bool is_passed, __u64 bytes)
{
    __u32 index = is_passed ? 0 : 1;
    struct counter *total = bpf_map_lookup_elem(&totals, &index);

    if (total)
        add(total, bytes);
    return is_passed ? XDP_PASS : XDP_DROP;
}

static __always_inline void note_offender(const struct in6_addr *source, __u64 bytes)
{
    struct counter *known = bpf_map_lookup_elem(&offenders, source);
    struct counter first = {.packets = 1, .bytes = bytes};

    if (known)
        add(known, bytes);
    else
        bpf_map_update_elem(&offenders, source, &first, BPF_ANY);
}

// Fills the bucket for the time that has passed, then takes a token if there is one.
static __always_inline bool take_token(struct bucket *bucket, __u64 now_ns)
{
    __u64 full = burst_packets * TOKEN_PARTS;
    __u64 elapsed_ns, gained;
    bool is_taken = false;

    bpf_spin_lock(&bucket->lock);
    elapsed_ns = now_ns - bucket->filled_ns;
    if ((__s64)elapsed_ns < 0)
        elapsed_ns = 0; // another CPU read its clock later and came first
    if (elapsed_ns > NANOSECONDS)
        elapsed_ns = NANOSECONDS; // no overflow below; a second fills any sane bucket
    gained = elapsed_ns * packets_per_second / (NANOSECONDS / TOKEN_PARTS);
    if (gained) {
        bucket->parts += gained;
        bucket->filled_ns = now_ns;
    }
    if (bucket->parts > full)
        bucket->parts = full;
    if (bucket->parts >= TOKEN_PARTS) {
        bucket->parts -= TOKEN_PARTS;
        is_taken = true;
    }
    bpf_spin_unlock(&bucket->lock);
    return is_taken;
}

// The source's bucket, made full on first sight; the shared one when there is no room.
static __always_inline struct bucket *bucket_of(const struct in6_addr *source, __u64 now_ns)
{
    struct bucket full = {.filled_ns = now_ns, .parts = burst_packets * TOKEN_PARTS};
    struct bucket *bucket = bpf_map_lookup_elem(&buckets, source);
    __u32 shared = 0;

    if (bucket)
        return bucket;
    bpf_map_update_elem(&buckets, source, &full, BPF_NOEXIST);
    bucket = bpf_map_lookup_elem(&buckets, source);
    return bucket ? bucket : bpf_map_lookup_elem(&overflow, &shared);
}

static __always_inline void source_of(const struct flow *flow, struct in6_addr *source)
{
    *source = flow->source;
    if (flow->family == AF_INET)
        return;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i >= prefix_v6_words)
            source->in6_u.u6_addr32[i] = 0;
}

SEC("xdp")
int rate_limiter(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    __u64 now_ns = bpf_ktime_get_ns();
    __u64 bytes = linear_bytes(ctx);
    struct network network = {};
    struct in6_addr source = {};
    struct bucket *bucket;
    struct flow flow = {};

    if (parse_frame(&cursor, &network, &flow))
        return XDP_PASS;
    source_of(&flow, &source);
    bucket = bucket_of(&source, now_ns);
    if (!bucket || take_token(bucket, now_ns))
        return verdict(true, bytes);
    note_offender(&source, bytes);
    return verdict(false, bytes);
}

char _license[] SEC("license") = "Dual MIT/GPL";
