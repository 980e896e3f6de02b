// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// syn_cookie: keeps SYN floods away from a TCP service (RFC 4987, 3.6).
//
// Nothing is remembered for a SYN: the answer's sequence number is a cookie that the kernel (or
// Towpath) computes from the addresses. An ACK that brings a valid cookie back proves that the
// client receives at its address; from then on its segments pass. The service behind must be told
// to accept such an ACK as a handshake (with Linux: tcp_syncookies=2).
//
// Maps
//   protected   HASH      {port} -> 1; SYNs to other ports pass
//   verified    LRU_HASH  flow -> time of the valid ACK; segments of these pass
//   results     PERCPU_ARRAY  `enum result` -> how often
//
// Configure  window: the window that the answer offers.
// Verdicts   XDP_TX the SYN-ACK; XDP_PASS verified, valid or not protected; XDP_DROP all else.
#include "checksum.h"
#include "rewrite.h"

#define FLOWS_MAX 131072
#define TCP_OPTION_MSS 2
#define TCP_BYTES_MAX 60

enum result {
    RESULT_SYN_ANSWERED,
    RESULT_COOKIE_VALID,
    RESULT_COOKIE_WRONG,
    RESULT_KNOWN,
    RESULT_REFUSED, // the helper would not make a cookie
    RESULT_COUNT,
};

struct mss_option {
    __u8 kind;
    __u8 length;
    __be16 mss;
};

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 64);
    __type(key, __be16);
    __type(value, __u8);
} protected SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, FLOWS_MAX);
    __type(key, struct flow);
    __type(value, __u64);
} verified SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, RESULT_COUNT);
    __type(key, __u32);
    __type(value, __u64);
} results SEC(".maps");

const volatile __u16 window = 64240;

static __always_inline int finish(__u32 result, int verdict)
{
    __u64 *times = bpf_map_lookup_elem(&results, &result);

    if (times)
        *times += 1;
    return verdict;
}

// Where the headers of one segment are. Set anew after each adjustment of the frame.
struct segment {
    struct ethhdr *ethernet;
    struct iphdr *ipv4;   // or NULL
    struct ipv6hdr *ipv6; // or NULL
    struct tcphdr *tcp;
};

// Plain TCP over IPv4 without options or IPv6 without extensions; the rest passes.
static __always_inline bool find_segment(struct xdp_md *ctx, struct segment *segment)
{
    struct cursor cursor = cursor_at_start(ctx);

    segment->ipv4 = NULL;
    segment->ipv6 = NULL;
    segment->ethernet = TAKE(&cursor, struct ethhdr);
    if (!segment->ethernet)
        return false;
    if (segment->ethernet->h_proto == bpf_htons(ETH_P_IP)) {
        segment->ipv4 = TAKE(&cursor, struct iphdr);
        if (!segment->ipv4 || segment->ipv4->ihl != 5 || segment->ipv4->protocol != IPPROTO_TCP)
            return false;
        if (segment->ipv4->frag_off & bpf_htons(IPV4_OFFSET_MASK | IPV4_MORE_FRAGMENTS))
            return false;
    } else if (segment->ethernet->h_proto == bpf_htons(ETH_P_IPV6)) {
        segment->ipv6 = TAKE(&cursor, struct ipv6hdr);
        if (!segment->ipv6 || segment->ipv6->nexthdr != IPPROTO_TCP)
            return false;
    } else {
        return false;
    }
    segment->tcp = TAKE(&cursor, struct tcphdr);
    return segment->tcp != NULL;
}

static __always_inline void flow_of(const struct segment *segment, struct flow *flow)
{
    if (segment->ipv4) {
        flow->family = AF_INET;
        set_ipv4(&flow->source, segment->ipv4->saddr);
        set_ipv4(&flow->dest, segment->ipv4->daddr);
    } else if (segment->ipv6) {
        flow->family = AF_INET6;
        __builtin_memcpy(&flow->source, &segment->ipv6->saddr, sizeof(flow->source));
        __builtin_memcpy(&flow->dest, &segment->ipv6->daddr, sizeof(flow->dest));
    }
    flow->protocol = IPPROTO_TCP;
    flow->source_port = segment->tcp->source;
    flow->dest_port = segment->tcp->dest;
}

// The low half is the cookie, bits 32..47 the MSS; negative on error. The helper reads as much
// as the header says, and the verifier wants the largest header to be there: the frame is grown
// first, and cut to the answer's length later.
static __always_inline __s64 make_cookie(struct xdp_md *ctx, struct segment *segment)
{
    __u64 tcp_bytes = segment->tcp->doff * 4;
    int missing = (long)segment->tcp + TCP_BYTES_MAX - ctx->data_end;

    if ((void *)segment->tcp + tcp_bytes > (void *)(long)ctx->data_end)
        return -1;
    if (missing > 0 && bpf_xdp_adjust_tail(ctx, missing))
        return -1;
    if (!find_segment(ctx, segment))
        return -1;
    if ((void *)segment->tcp + TCP_BYTES_MAX > (void *)(long)ctx->data_end)
        return -1;
    barrier_var(tcp_bytes);
    if (tcp_bytes < sizeof(*segment->tcp) || tcp_bytes > TCP_BYTES_MAX)
        return -1;
    if (segment->ipv4)
        return bpf_tcp_raw_gen_syncookie_ipv4(segment->ipv4, segment->tcp, tcp_bytes);
    if (segment->ipv6)
        return bpf_tcp_raw_gen_syncookie_ipv6(segment->ipv6, segment->tcp, tcp_bytes);
    return -1;
}

// Turns the SYN into its answer. The frame is already exactly as long as the answer.
static __always_inline int write_answer(struct segment *segment, void *end, __u32 cookie,
                                        __u16 mss)
{
    struct tcphdr *tcp = segment->tcp;
    struct mss_option *option = (void *)(tcp + 1);
    __u32 tcp_bytes = sizeof(*tcp) + sizeof(*option);
    __be32 sequence = tcp->seq;
    __be16 client = tcp->source;
    __be16 server = tcp->dest;
    __u64 sum;

    if ((void *)(option + 1) > end)
        return XDP_DROP;
    swap_mac(segment->ethernet);
    __builtin_memset(tcp, 0, sizeof(*tcp));
    tcp->source = server;
    tcp->dest = client;
    tcp->seq = bpf_htonl(cookie);
    tcp->ack_seq = bpf_htonl(bpf_ntohl(sequence) + 1);
    tcp->doff = tcp_bytes / 4;
    tcp->syn = 1;
    tcp->ack = 1;
    tcp->window = bpf_htons(window);
    option->kind = TCP_OPTION_MSS;
    option->length = sizeof(*option);
    option->mss = bpf_htons(mss);
    if (segment->ipv4) {
        struct iphdr *ip = segment->ipv4;

        swap_ipv4(ip);
        ip->tot_len = bpf_htons(sizeof(*ip) + tcp_bytes);
        ip->ttl = 64;
        ip->check = 0;
        ip->check = ipv4_checksum(ip);
        sum = pseudo_sum_ipv4(ip, tcp_bytes);
    } else {
        struct ipv6hdr *ip = segment->ipv6;

        barrier_var(ip); // clang knows that one of the two is there; the verifier must be shown
        if (!ip)
            return XDP_DROP;
        swap_ipv6(ip);
        ip->payload_len = bpf_htons(tcp_bytes);
        ip->hop_limit = 64;
        sum = pseudo_sum_ipv6(ip, IPPROTO_TCP, tcp_bytes);
    }
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    tcp->check = checksum_fold(bpf_csum_diff(NULL, 0, (__be32 *)tcp, tcp_bytes, sum));
    return finish(RESULT_SYN_ANSWERED, XDP_TX);
}

static __always_inline int answer_syn(struct xdp_md *ctx, struct segment *segment)
{
    __s64 cookie = make_cookie(ctx, segment);
    int answer_bytes = sizeof(struct ethhdr) + sizeof(struct tcphdr) + sizeof(struct mss_option);

    if (cookie < 0)
        return finish(RESULT_REFUSED, XDP_DROP);
    answer_bytes += segment->ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr);
    if (bpf_xdp_adjust_tail(ctx, answer_bytes - (int)linear_bytes(ctx)))
        return finish(RESULT_REFUSED, XDP_DROP);
    if (!find_segment(ctx, segment))
        return finish(RESULT_REFUSED, XDP_DROP);
    return write_answer(segment, (void *)(long)ctx->data_end, cookie, cookie >> 32);
}

static __always_inline int check_ack(const struct segment *segment, const struct flow *flow)
{
    __u64 now_ns = bpf_ktime_get_coarse_ns();
    long result = -1;

    if (segment->ipv4)
        result = bpf_tcp_raw_check_syncookie_ipv4(segment->ipv4, segment->tcp);
    else if (segment->ipv6)
        result = bpf_tcp_raw_check_syncookie_ipv6(segment->ipv6, segment->tcp);
    if (result)
        return finish(RESULT_COOKIE_WRONG, XDP_DROP);
    bpf_map_update_elem(&verified, flow, &now_ns, BPF_ANY);
    return finish(RESULT_COOKIE_VALID, XDP_PASS);
}

SEC("xdp")
int syn_cookie(struct xdp_md *ctx)
{
    struct segment segment = {};
    struct flow flow = {};
    __be16 port;

    if (!find_segment(ctx, &segment))
        return XDP_PASS;
    port = segment.tcp->dest;
    if (!bpf_map_lookup_elem(&protected, &port))
        return XDP_PASS;
    flow_of(&segment, &flow);
    if (segment.tcp->syn)
        return segment.tcp->ack ? XDP_PASS : answer_syn(ctx, &segment);
    if (bpf_map_lookup_elem(&verified, &flow)) {
        if (segment.tcp->rst || segment.tcp->fin)
            bpf_map_delete_elem(&verified, &flow);
        return finish(RESULT_KNOWN, XDP_PASS);
    }
    if (!segment.tcp->ack || segment.tcp->rst)
        return finish(RESULT_COOKIE_WRONG, XDP_DROP);
    return check_ack(&segment, &flow);
}

char _license[] SEC("license") = "Dual MIT/GPL";
