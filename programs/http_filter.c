// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// http_filter: looks at the first line and the Host header of HTTP/1 requests.
//
// The head of the payload is copied into a per-CPU buffer once; the string kfuncs work on that. A
// request is judged by its method, its host and the length it announces. Only what fits into one
// segment is seen: a filter against mistakes and noise, not against an adversary.
//
// Needs: kernel 6.17 (string kfuncs).
//
// Maps
//   text     PERCPU_ARRAY  head of the request
//   hosts    HASH          host name, lower case not required, zero-filled -> verdict
//   methods  PERCPU_ARRAY  method number, see METHODS below, last is "other" -> requests
//
// Configure  body_bytes_max: a larger Content-Length is dropped.
// Verdicts   XDP_DROP host listed to be dropped, body too long; XDP_PASS everything else.
#include "kfuncs.h"
#include "parse.h"

#define TEXT_BYTES 512
#define HOST_BYTES 64
#define HTTP_PORT 80
#define METHODS_COUNT 5
#define METHOD_OTHER METHODS_COUNT

struct text {
    char bytes[TEXT_BYTES];
    char host[HOST_BYTES];
};

struct host {
    char name[HOST_BYTES];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct text);
} text SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1024);
    __type(key, struct host);
    __type(value, __u32);
} hosts SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, METHODS_COUNT + 1);
    __type(key, __u32);
    __type(value, __u64);
} methods SEC(".maps");

const volatile __u64 body_bytes_max = 1 << 20;

// bpf_strncmp wants its second string constant, so each method is asked for by name.
static __always_inline __u32 method_of(const char *line)
{
    if (!bpf_strncmp(line, 4, "GET "))
        return 0;
    if (!bpf_strncmp(line, 5, "HEAD "))
        return 1;
    if (!bpf_strncmp(line, 5, "POST "))
        return 2;
    if (!bpf_strncmp(line, 4, "PUT "))
        return 3;
    if (!bpf_strncmp(line, 7, "DELETE "))
        return 4;
    return METHOD_OTHER;
}

// Where the value of header `name` begins, or a negative number.
static __always_inline int find_header(const char *bytes, const char *name, int name_bytes)
{
    int at = bpf_strnstr(bytes, name, TEXT_BYTES - 1);

    return at < 0 ? at : at + name_bytes;
}

static __always_inline bool is_body_too_long(struct text *request)
{
    int at = find_header(request->bytes, "\r\nContent-Length: ", 18);
    unsigned long bytes = 0;

    if (at < 0 || at > TEXT_BYTES - 24)
        return false;
    barrier_var(at);
    if (at < 0 || at > TEXT_BYTES - 24)
        return false;
    // Reads digits up to the line's end; -EINVAL when there is none.
    return bpf_strtoul(&request->bytes[at], 20, 10, &bytes) > 0 && bytes > body_bytes_max;
}

// The verdict for the request's host, or XDP_PASS.
static __always_inline int host_verdict(struct text *request)
{
    int at = find_header(request->bytes, "\r\nHost: ", 8);
    __u64 length;
    __u32 *verdict;
    int end;

    if (at < 0 || at > TEXT_BYTES - HOST_BYTES)
        return XDP_PASS;
    barrier_var(at);
    if (at < 0 || at > TEXT_BYTES - HOST_BYTES)
        return XDP_PASS;
    end = bpf_strnchr(&request->bytes[at], HOST_BYTES, '\r');
    length = end;
    barrier_var(length);
    if (length == 0 || length >= HOST_BYTES)
        return XDP_PASS;
    __builtin_memset(request->host, 0, HOST_BYTES);
    bpf_probe_read_kernel(request->host, length, &request->bytes[at]);
    verdict = bpf_map_lookup_elem(&hosts, request->host);
    return verdict && *verdict == XDP_DROP ? XDP_DROP : XDP_PASS;
}

// Copies the segment's payload; false if there is none.
static __always_inline bool read_text(struct xdp_md *ctx, struct cursor *cursor,
                                      struct text *request)
{
    void *start = (void *)(long)ctx->data;
    struct tcphdr *tcp = TAKE(cursor, struct tcphdr);
    __u64 bytes, offset;

    if (!tcp || tcp->doff < 5)
        return false;
    offset = (void *)tcp - start + tcp->doff * 4;
    bytes = linear_bytes(ctx);
    if (bytes <= offset)
        return false;
    bytes -= offset;
    barrier_var(bytes);
    if (bytes > TEXT_BYTES - 1)
        bytes = TEXT_BYTES - 1;
    if (bytes < 16)
        return false;
    __builtin_memset(request->bytes, 0, sizeof(request->bytes));
    return !bpf_xdp_load_bytes(ctx, offset, request->bytes, bytes);
}

SEC("xdp")
int http_filter(struct xdp_md *ctx)
{
    struct cursor cursor = cursor_at_start(ctx);
    struct network network = {};
    struct text *request;
    struct flow flow = {};
    __u32 zero = 0, method;
    __u64 *times;

    if (parse_frame(&cursor, &network, &flow) || !network.has_ports)
        return XDP_PASS;
    if (flow.protocol != IPPROTO_TCP || flow.dest_port != bpf_htons(HTTP_PORT))
        return XDP_PASS;
    request = bpf_map_lookup_elem(&text, &zero);
    if (!request || !read_text(ctx, &cursor, request))
        return XDP_PASS;
    method = method_of(request->bytes);
    times = bpf_map_lookup_elem(&methods, &method);
    if (times)
        *times += 1;
    if (method == METHOD_OTHER)
        return XDP_PASS;
    if (is_body_too_long(request))
        return XDP_DROP;
    return host_verdict(request);
}

char _license[] SEC("license") = "Dual MIT/GPL";
